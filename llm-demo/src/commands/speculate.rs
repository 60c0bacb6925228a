//! Measures what a draft gains: the same text by the engine, by the batch engine a token at a time, and with
//! the draft.

use std::io::{self, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ga10b_llm::generate::Generation;
use ga10b_llm::speculate::{Lookup, Statistics};
use ga10b_llm::{Decoder, Tokenizer, generate};
use ga10b_llm_tools::bench::{Row, WARM_UP};
use hcq::{BackendKind, Device};
use serde::Serialize;

use crate::cli::commands::Speculate;
use crate::outcome::Outcome;
use crate::report::{self, DeviceReport, ModelReport};
use crate::session::{self, Session, Setup};
use crate::speculation::{Drafting, target};

/// The document of `--json`. Added fields are compatible; any other change increases the number.
#[derive(Debug, Serialize)]
struct Report {
    schema: &'static str,
    version: &'static str,
    device: DeviceReport,
    model: ModelReport,
    /// The draft model; null for prompt lookup.
    draft: Option<ModelReport>,
    /// Most tokens of a proposal.
    draft_max: usize,
    /// Whether fewer are proposed where that is faster.
    adaptive: bool,
    kv: &'static str,
    prompt_tokens: usize,
    text_tokens: usize,
    repeats: usize,
    warm_up_seconds: f64,
    /// Tokens per second with the draft by those of the batch engine without.
    speedup: f64,
    /// The same by those of the engine.
    speedup_over_engine: f64,
    /// Whether the draft changed no token.
    same_text: bool,
    results: Vec<Measured>,
}

/// One way of decoding.
#[derive(Debug, Serialize)]
struct Measured {
    #[serde(flatten)]
    row: Row,
    /// Of all runs, for the batch engine.
    #[serde(flatten)]
    proposals: Option<Proposals>,
}

/// Counts of proposals.
#[derive(Debug, Serialize)]
struct Proposals {
    steps: usize,
    tokens_per_step: Option<f64>,
    proposed: usize,
    accepted: usize,
    acceptance: Option<f64>,
    step_seconds: f64,
    draft_seconds: f64,
}

impl From<Statistics> for Proposals {
    fn from(statistics: Statistics) -> Self {
        let Statistics { steps, proposed, accepted, step_seconds, draft_seconds } = statistics;
        let (tokens_per_step, acceptance) = (statistics.tokens_per_step(), statistics.acceptance());
        Self { steps, tokens_per_step, proposed, accepted, acceptance, step_seconds, draft_seconds }
    }
}

/// The plan of the measurement.
struct Plan<'a> {
    speculate: &'a Speculate,
    tokenizer: &'a Tokenizer,
    prompt: &'a [u32],
    /// Most tokens of the text.
    count: usize,
    repeats: usize,
    warm_up: Duration,
}

pub fn run(speculate: &Speculate) -> anyhow::Result<Outcome> {
    let (common, setup) = (&speculate.common, Setup::of(&speculate.common.launching));
    let model = session::model_for(common, &speculate.sampling)?;
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let prompt = tokenizer.encode(&session::prompt(&speculate.text)?).context("cannot encode the prompt")?;
    let drafting = Drafting::open(&speculate.speculation, &model, setup.kv)?;
    let device = session::device(&common.device)?;
    let plan = plan(speculate, &device, (&tokenizer, &prompt));
    let context = plan.prompt.len() + plan.count;
    ensure!(
        context <= model.config.context,
        "the prompt of {} tokens and {} more do not fit the model's context of {}: choose a smaller -n",
        plan.prompt.len(),
        plan.count,
        model.config.context
    );

    let mut results = Vec::new();
    {
        // It leaves the device before the batch engine needs the memory.
        let mut session = Session::new(device.clone(), &setup, &model, context)?;
        let name = format!("engine, {}", session.engine.mode().name());
        plan.warm(&mut session.engine)?;
        results.push(Measured { row: plan.timed(name, &mut session.engine)?.1, proposals: None });
    }
    let mut decoder = target(&device, &setup, &model, context)?;
    let mut texts = Vec::new();
    for name in ["columns", if drafting.model().is_none() { "columns, lookup" } else { "columns, draft" }] {
        if !texts.is_empty() {
            let draft = drafting.draft(&device, &setup, (1, context))?;
            let (draft, options) = draft.unwrap_or_else(|| (Box::new(Lookup), drafting.options));
            decoder.set_draft(draft, options)?;
        }
        plan.warm(&mut decoder)?;
        decoder.take_statistics();
        let (text, row) = plan.timed(name.into(), &mut decoder)?;
        let proposals = Some(decoder.take_statistics().into());
        results.push(Measured { row, proposals });
        texts.push(text);
    }
    let rate = |at: usize| results[at].row.tokens_per_second;
    let (speedup, speedup_over_engine) = (rate(2) / rate(1), rate(2) / rate(0));
    let report = Report {
        schema: "llm-demo.speculation/1",
        version: env!("CARGO_PKG_VERSION"),
        device: DeviceReport::new(device.info()),
        model: ModelReport::new(&model),
        draft: drafting.model().map(ModelReport::new),
        draft_max: drafting.options.most,
        adaptive: drafting.options.adaptive,
        kv: setup.kv.name(),
        prompt_tokens: prompt.len(),
        text_tokens: texts[0].len(),
        repeats: plan.repeats,
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        speedup,
        speedup_over_engine,
        same_text: texts[0] == texts[1],
        results,
    };
    report::show(&report, speculate.json, print)?;
    Ok(if report.same_text { Outcome::Good } else { Outcome::Bad })
}

/// llama-bench's sizes; smaller ones on the software device.
fn plan<'a>(
    speculate: &'a Speculate,
    device: &Device,
    (tokenizer, prompt): (&'a Tokenizer, &'a [u32]),
) -> Plan<'a> {
    let software = device.info().backend == BackendKind::Sim;
    Plan {
        speculate,
        tokenizer,
        prompt,
        count: speculate.count.map_or(if software { 32 } else { 128 }, |n| n as usize),
        repeats: speculate.repeats.map_or(if software { 2 } else { 5 }, |n| n as usize),
        warm_up: if software { Duration::ZERO } else { WARM_UP },
    }
}

impl Plan<'_> {
    /// Writes the text from an empty context.
    fn once(&self, decoder: &mut dyn Decoder) -> anyhow::Result<Generation> {
        decoder.reset()?;
        let sampler = &mut self.speculate.sampling.sampler();
        Ok(generate(decoder, self.tokenizer, sampler, self.prompt, self.count, &mut |_| Ok(()))?)
    }

    /// Writes it until the clocks are up, at least once.
    fn warm(&self, decoder: &mut dyn Decoder) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            self.once(decoder)?;
            if began.elapsed() >= self.warm_up {
                return Ok(());
            }
        }
    }

    /// The text, and its tokens per second after the first one.
    fn timed(&self, test: String, decoder: &mut dyn Decoder) -> anyhow::Result<(Vec<u32>, Row)> {
        let mut seconds = Vec::new();
        let mut text = Vec::new();
        for _ in 0..self.repeats {
            let made = self.once(decoder)?;
            seconds.push(made.decode.as_secs_f64());
            text = made.tokens;
        }
        ensure!(
            text.len() > 1,
            "the text ends after {} tokens, there is nothing to measure: choose another prompt (-p, -f) or a larger \
             -n",
            text.len()
        );
        let steps = text.len() - 1;
        Ok((text, Row::new(test, steps, &seconds)))
    }
}

fn print(report: &Report, out: &mut impl Write) -> io::Result<()> {
    report.device.print(out)?;
    report.model.print(out)?;
    let &Report { prompt_tokens, text_tokens, repeats, draft_max, kv, .. } = report;
    let what = if report.draft.is_some() { "a model" } else { "prompt lookup" };
    let pays = if report.adaptive { ", as many as pay" } else { "" };
    writeln!(out, "draft       {what}, up to {draft_max} tokens{pays}")?;
    if let Some(draft) = &report.draft {
        draft.print(out)?;
    }
    let warm_up = match report.warm_up_seconds {
        0.0 => "1".to_owned(),
        seconds => format!("{seconds} s"),
    };
    write!(out, "run         a prompt of {prompt_tokens} tokens and a text of {text_tokens}, ")?;
    writeln!(out, "{repeats} runs after {warm_up} to warm up, cache {kv}")?;
    writeln!(out)?;
    writeln!(
        out,
        "{:<20} {:>10} {:>8} {:>8} {:>12} {:>10} {:>10}",
        "test", "tok/s", "± sd", "steps", "tokens/step", "proposed", "accepted"
    )?;
    for Measured { row, proposals } in &report.results {
        write!(out, "{:<20} {:>10.2} {:>8.2}", row.test, row.tokens_per_second, row.tokens_per_second_sd)?;
        match proposals {
            None => writeln!(out)?,
            Some(Proposals { steps, tokens_per_step, proposed, accepted, .. }) => {
                let per_step = tokens_per_step.unwrap_or_default();
                writeln!(out, " {steps:>8} {per_step:>12.2} {proposed:>10} {accepted:>10}")?;
            }
        }
    }
    writeln!(out)?;
    let &Report { speedup, speedup_over_engine, same_text, .. } = report;
    writeln!(out, "speed-up    {speedup:.2} over columns, {speedup_over_engine:.2} over the engine")?;
    writeln!(
        out,
        "text        {}",
        if same_text { "the same with the draft" } else { "DIFFERENT with the draft" }
    )
}
