//! Compares the engine's logits with the CPU reference.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::cache::CacheType;
use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::decoder::Decoder;
use ga10b_llm::reference::Reference;
use ga10b_llm::sampler::argmax;
use ga10b_llm::tokenizer::Tokenizer;

use crate::cli::Cli;
use crate::outcome::Outcome;
use crate::progress;
use crate::session::{self, Session};

/// Steps where the command line does not say.
const DEFAULT_STEPS: u32 = 32;

/// Takes in the prompt and then what the reference finds most likely, on both sides the same tokens; then all of them at once, as a
/// prompt.
pub fn run(cli: &Cli) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let prompt = tokenizer.encode(session::prompt(cli)).context("cannot encode the prompt")?;
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
    let mut next = model_start(&prompt, &tokenizer);
    let bar = progress::step_bar("verifying");
    bar.set_length(steps as u64);
    for step in 0..steps {
        let token = prompt.get(step).copied().unwrap_or(next);
        let expected = reference.step(token)?;
        let found = Decoder::step(&mut session.engine, token)?;
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
    let cache = match cli.kv {
        CacheType::F16 => "f16; the reference's is exact",
        CacheType::Q8_0 => "q8_0, and so is the reference's: what is left is not the cache's rounding",
    };
    writeln!(out, "cache        {cache}")?;
    writeln!(out, "NMSE         {:.3e}   at most {:.0e}", c.nmse(), bounds.nmse)?;
    writeln!(
        out,
        "KL mean      {:.3e}   at most {:.0e} nats (largest {:.3e})",
        c.divergence(),
        bounds.divergence,
        c.divergence_max()
    )?;
    writeln!(
        out,
        "top-1        {:.2} %      at least {:.0} %",
        100.0 * c.agreement(),
        100.0 * bounds.agreement
    )?;
    writeln!(out, "max |Δlogit| {:.3e}", c.difference_max())?;
    let (count, nmse) = (tokens.len(), prompt.nmse());
    writeln!(
        out,
        "as a prompt  NMSE {nmse:.3e} of the logits after all {count} tokens, at most {:.0e}",
        bounds.nmse
    )?;
    writeln!(out, "{}", if good { "within bounds" } else { "PAST THE BOUNDS" })?;
    Ok(if good { Outcome::Good } else { Outcome::Bad })
}

/// The token to begin with where the prompt is empty.
fn model_start(prompt: &[u32], tokenizer: &Tokenizer) -> u32 {
    prompt.first().copied().or(tokenizer.bos()).unwrap_or(0)
}
