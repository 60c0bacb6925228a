//! Compares the engine's logits with the CPU reference.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::sampler::argmax;
use ga10b_llm::{Decoder, Reference, Tokenizer};

use crate::checker;
use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::session::{self, Session};

/// Steps by default.
const DEFAULT_STEPS: u32 = 32;

/// Both sides process the prompt and then the tokens that the reference finds most likely. Then the engine
/// processes all of them at once, as a prompt.
pub fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let prompt = tokenizer.encode(&session::prompt(cli)?).context("cannot encode the prompt")?;
    let steps = cli.count.unwrap_or(DEFAULT_STEPS) as usize;
    anyhow::ensure!(
        steps <= model.config.context,
        "{steps} steps do not fit the model's context of {} tokens; choose a smaller -n",
        model.config.context
    );
    let mut reference = Reference::with_cache(&model, steps, cli.kv)?;
    let mut session = Session::open(cli, &model, steps)?;
    let bounds = Bounds::of_cache(cli.kv);

    let mut comparison = Comparison::new();
    let (mut tokens, mut last) = (Vec::new(), Vec::new());
    // For an empty prompt.
    let mut next = tokenizer.bos().unwrap_or(0);
    let bar = progress::step_bar("verifying");
    bar.set_length(steps as u64);
    for step in 0..steps {
        let token = prompt.get(step).copied().unwrap_or(next);
        let expected = reference.step(token)?;
        let found = session.engine.step(token)?;
        anyhow::ensure!(
            found.len() == expected.len(),
            "the engine gave {} logits, the model has {} tokens",
            found.len(),
            expected.len()
        );
        comparison.add(&expected, &found);
        next = argmax(&expected);
        tokens.push(token);
        last = expected;
        bar.inc(1);
    }
    bar.finish_and_clear();
    session.engine.reset()?;
    let mut prompt = Comparison::new();
    prompt.add(&last, &session.engine.prefill(&tokens)?);

    let good = comparison.is_within(bounds) && prompt.nmse() <= bounds.nmse;
    let c = &comparison;
    let mut out = io::stdout().lock();
    writeln!(out, "device       {}", session.device.info().name)?;
    writeln!(out, "steps        {}", c.rows())?;
    let cache = cli.kv.name();
    writeln!(
        out,
        "cache        {cache} on both sides: the error does not include the rounding of the cache"
    )?;
    let Bounds { nmse, divergence, agreement } = bounds;
    let (mean, largest) = (c.divergence(), c.divergence_max());
    let (same, least) = (100.0 * c.agreement(), 100.0 * agreement);
    writeln!(out, "NMSE         {:.3e}   at most {nmse:.0e}", c.nmse())?;
    writeln!(out, "KL mean      {mean:.3e}   at most {divergence:.0e} nats (largest {largest:.3e})")?;
    writeln!(out, "top-1        {same:.2} %      at least {least:.0} %")?;
    writeln!(out, "max |Δlogit| {:.3e}", c.difference_max())?;
    let (count, found) = (tokens.len(), prompt.nmse());
    writeln!(
        out,
        "as a prompt  NMSE {found:.3e} of the logits after all {count} tokens, at most {nmse:.0e}"
    )?;
    writeln!(out, "{}", if good { "within bounds" } else { "PAST THE BOUNDS" })?;
    let outcome = if good { Outcome::Good } else { Outcome::Bad };
    Ok(checker::conclude(cli.check, &session.device, outcome))
}
