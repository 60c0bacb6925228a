//! Compares the engine's logits with the CPU reference.

use std::io::{self, Write};

use anyhow::Context;
use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::sampler::argmax;
use ga10b_llm::{CacheType, Decoder, Model, Reference, Tokenizer};
use hcq::Device;

use crate::checker;
use crate::cli::commands::Verify;
use crate::outcome::Outcome;
use crate::progress;
use crate::session::{self, Session, Setup};
use crate::speculation;

/// Steps by default.
const DEFAULT_STEPS: u32 = 32;
/// Largest difference of the engine, as a fraction of that which a cache's rounding makes: values near the middle of
/// two quants become either. Prompts and batch steps compute keys and values from f16, which makes more of them.
const STEPS_SHARE: f64 = 0.5;
const PROMPT_SHARE: f64 = 0.75;

/// Both sides process the prompt and then the tokens that the reference finds most likely. Then the engine
/// processes all of them at once, as a prompt.
pub fn run(verify: &Verify) -> anyhow::Result<Outcome> {
    let (check, setup) = (verify.checking.check, Setup::of(&verify.common.launching));
    let model = session::model_to_run(&verify.common.model, verify.common.launching.kv)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let prompt = tokenizer.encode(&session::prompt(&verify.text)?).context("cannot encode the prompt")?;
    let steps = verify.count.unwrap_or(DEFAULT_STEPS) as usize;
    let given = prompt.len();
    anyhow::ensure!(
        steps <= model.config.context,
        "{steps} steps do not fit the model's context of {} tokens; choose a smaller -n",
        model.config.context
    );
    let mut reference = Reference::with_cache(&model, steps, setup.kv)?;
    let device = checker::device(check, &verify.common.device)?;
    let mut decoder = decoder(verify.batch, &device, &setup, &model, steps)?;
    let mut rounding = Rounding::new(&model, steps, setup.kv)?;

    let mut comparison = Comparison::new();
    let (mut tokens, mut last) = (Vec::new(), Vec::new());
    // For an empty prompt.
    let mut next = tokenizer.bos().unwrap_or(0);
    let bar = progress::step_bar("verifying");
    bar.set_length(steps as u64);
    for step in 0..steps {
        let token = prompt.get(step).copied().unwrap_or(next);
        let expected = reference.step(token)?;
        let found = decoder.step(token)?;
        anyhow::ensure!(
            found.len() == expected.len(),
            "the engine gave {} logits, the model has {} tokens",
            found.len(),
            expected.len()
        );
        comparison.add(&expected, &found);
        rounding.step(token, &expected)?;
        next = argmax(&expected);
        tokens.push(token);
        last = expected;
        bar.inc(1);
    }
    bar.finish_and_clear();
    decoder.truncate(0)?;
    let mut prompt = Comparison::new();
    prompt.add(&last, &decoder.prefill(&tokens)?);

    let bounds = Bounds::of_cache(setup.kv);
    let of_prompt = bounds.beside(&rounding.last, PROMPT_SHARE);
    let bounds = bounds.beside(&rounding.all, if verify.batch { PROMPT_SHARE } else { STEPS_SHARE });
    let good = comparison.is_within(bounds) && prompt.nmse() <= of_prompt.nmse;
    let c = &comparison;
    let mut out = io::stdout().lock();
    writeln!(out, "device       {}", device.info().name)?;
    let of = if verify.batch { ", of a batch" } else { "" };
    writeln!(out, "steps        {}{of}", c.rows())?;
    if given > steps {
        writeln!(out, "prompt       its first {steps} of {given} tokens: -n {given} compares all of them")?;
    }
    let cache = setup.kv.name();
    writeln!(
        out,
        "cache        {cache} on both sides: the error does not include the rounding of the cache"
    )?;
    if rounding.exact.is_some() {
        let (nmse, mean) = (rounding.all.nmse(), rounding.all.divergence());
        writeln!(
            out,
            "rounding     changes the reference by NMSE {nmse:.3e}, KL mean {mean:.3e}: bounds are a share of it, or more"
        )?;
    }
    let Bounds { nmse, divergence, agreement } = bounds;
    let (mean, largest) = (c.divergence(), c.divergence_max());
    let (same, least) = (100.0 * c.agreement(), 100.0 * agreement);
    writeln!(out, "NMSE         {:.3e}   at most {nmse:.1e}", c.nmse())?;
    writeln!(out, "KL mean      {mean:.3e}   at most {divergence:.1e} nats (largest {largest:.3e})")?;
    writeln!(out, "top-1        {same:.2} %      at least {least:.0} %")?;
    writeln!(out, "max |Δlogit| {:.3e}", c.difference_max())?;
    let (count, found) = (tokens.len(), prompt.nmse());
    writeln!(
        out,
        "as a prompt  NMSE {found:.3e} of the logits after all {count} tokens, at most {:.1e}",
        of_prompt.nmse
    )?;
    writeln!(out, "{}", if good { "within bounds" } else { "PAST THE BOUNDS" })?;
    Ok(checker::conclude(check, &device, if good { Outcome::Good } else { Outcome::Bad }))
}

/// The decoder that is verified: an engine, or the batch step.
fn decoder(
    batch: bool,
    device: &Device,
    setup: &Setup,
    model: &Model,
    steps: usize,
) -> anyhow::Result<Box<dyn Decoder>> {
    Ok(match batch {
        true => Box::new(speculation::target(device, setup, model, steps)?),
        false => Box::new(Session::new(device.clone(), setup, model, steps)?.engine),
    })
}

/// The effect of the cache's rounding alone, in the reference.
struct Rounding<'m> {
    /// The reference with a cache in f16, if the cache is another.
    exact: Option<Reference<'m>>,
    /// In all steps.
    all: Comparison,
    /// In the last one.
    last: Comparison,
}

impl<'m> Rounding<'m> {
    fn new(model: &'m Model, steps: usize, kv: CacheType) -> anyhow::Result<Self> {
        let exact = (kv != CacheType::F16).then(|| Reference::with_cache(model, steps, CacheType::F16));
        Ok(Self { exact: exact.transpose()?, all: Comparison::new(), last: Comparison::new() })
    }

    /// Compares the logits of a step with a rounded cache.
    fn step(&mut self, token: u32, rounded: &[f32]) -> anyhow::Result<()> {
        if let Some(exact) = &mut self.exact {
            let exact = exact.step(token)?;
            self.all.add(&exact, rounded);
            self.last = Comparison::new();
            self.last.add(&exact, rounded);
        }
        Ok(())
    }
}
