//! Measures tokens per second as llama-bench does, and of several sequences as llama-batched-bench does.

mod rows;

use std::io;
use std::panic::resume_unwind;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::ensure;
use ga10b_llm::{ColumnsOptions, Decoder, Engine, Footprint, Model, Sampler, Tokenizer};
use ga10b_llm_tools::batched::{self, BatchPlan};
use ga10b_llm_tools::bench::{SAMPLING, WARM_UP, samples, tokens_of};
use ga10b_llm_tools::energy::{Meter, Rail};
use ga10b_llm_tools::first_token::Stopwatch;
use hcq::Device;

use crate::cli::commands::{Bench, Choice};
use crate::memory::size;
use crate::outcome::{Outcome, Usage};
use crate::progress;
use crate::report::{DeviceReport, ModelReport};
use crate::session::{self, Session, Setup};
use crate::shapes::TuningReport;
use rows::{Common, Measured, Results, Test};

const SCHEMA: &str = "llm-demo.bench/2";

/// The numbers that the command line names, or usual ones of the device.
struct Plan {
    prompts: Vec<usize>,
    generated: Vec<usize>,
    repeats: usize,
    /// Least time that each test runs before it is measured.
    warm_up: Duration,
}

pub fn run(bench: &Bench, began: Instant) -> anyhow::Result<Outcome> {
    let watch = Stopwatch::since_process_start(began);
    check(bench)?;
    let model = session::model_to_run(&bench.common.model, bench.common.launching.kv)?;
    let (common, tests) = match bench.batch.is_empty() {
        true => of_engine(bench, &model, watch)?,
        false => of_columns(bench, &model)?,
    };
    let file = bench.common.model.path.as_ref();
    let file = file.map_or_else(|| "embedded".into(), |path| path.display().to_string());
    let kv = bench.common.launching.kv.name();
    let results = Results { common, file, kv, tests };
    results.write(bench.output, &mut io::stdout().lock())?;
    Ok(Outcome::Good)
}

/// Refuses numbers that leave nothing to measure, or a prompt without tokens where there has to be one.
fn check(bench: &Bench) -> Result<(), Usage> {
    let none = |list: &[u32]| !list.is_empty() && list.iter().all(|n| *n == 0);
    let refused = match bench.batch.is_empty() {
        true if none(&bench.prompt) && none(&bench.generate) => "nothing to measure: -p and -n are all 0",
        false if bench.prompt.contains(&0) => {
            "-p is 0: with -b each sequence has a prompt of at least 1 token"
        }
        _ => return Ok(()),
    };
    Err(Usage(refused.to_owned()))
}

/// Measures an engine, which processes one sequence.
fn of_engine(bench: &Bench, model: &Model, mut watch: Stopwatch) -> anyhow::Result<(Common, Vec<Measured>)> {
    watch.lap("file");
    let (mut session, plan, tests, free, tokenizer_seconds) = thread::scope(|scope| {
        let tokenizer = scope.spawn(|| {
            let begin = Instant::now();
            Tokenizer::from_gguf(&model.gguf).map(|_| begin.elapsed().as_secs_f64())
        });
        let device = session::device(&bench.common.device)?;
        watch.lap("opening the device");
        let most = model.config.context;
        let plan = Plan::new(bench, &device, most);
        let tests = plan.tests(bench, most)?;
        let context = tests.iter().map(|test| test.depth + test.prompt + test.generate).max();
        // A step follows the first prompt where the model has room.
        let context = context.unwrap_or(1).max(plan.first_prompt() + 1);
        let free = free(&device);
        let session = Session::new(device, &Setup::of(&bench.common.launching), model, context)?;
        watch.loaded(&session.engine);
        let seconds = tokenizer.join().unwrap_or_else(|panic| resume_unwind(panic));
        if let Err(error) = &seconds {
            tracing::warn!(%error, "the time to the first token lacks the tokenizer");
        }
        watch.lap("tokenizer, after the weights");
        anyhow::Ok((session, plan, tests, free, seconds.ok()))
    })?;
    let engine = &mut session.engine;
    engine.record_prompt(plan.first_prompt())?;
    watch.lap("recording the prompt");
    let prompt: Vec<u32> = (0..plan.first_prompt()).map(|i| (i * 31 % model.config.vocab) as u32).collect();
    let first_token = watch.finish(engine, &prompt)?;

    let rails = Rail::all(Path::new("/"));
    let bar = progress::step_bar("measuring");
    bar.set_length((tests.len() * (plan.repeats + 1)) as u64);
    let hints = hints(bench, model, &session, tests.iter().any(|test| test.prompt > 0));
    let engine = &mut session.engine;
    let measured = tests
        .into_iter()
        .map(|test| measure(engine, model, test, &plan, &rails, &mut || bar.inc(1)))
        .collect::<anyhow::Result<_>>()?;
    bar.finish_and_clear();
    let common = Common {
        schema: SCHEMA,
        device: DeviceReport::new(session.device.info()),
        model: ModelReport::new(model),
        engine: engine.mode().name(),
        tuning: session.tuning,
        context: session.context,
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        load_seconds: session.load.as_secs_f64(),
        first_token: Some(first_token),
        tokenizer_seconds,
        weight_bytes_per_step: engine.weight_bytes_per_token(),
        launches_per_step: Some(engine.launches_per_token()),
        cache_bytes_per_position: engine.cache_bytes_per_position(),
        device_bytes: taken(free, &session.device),
        peak_host_bytes: rows::peak(),
        hints: hints?,
    };
    Ok((common, measured))
}

/// Measures the batch engine, which processes several sequences: first the prompts of all of them, then the
/// tokens after them.
fn of_columns(bench: &Bench, model: &Model) -> anyhow::Result<(Common, Vec<Measured>)> {
    let device = session::device(&bench.common.device)?;
    let plan = Plan::new(bench, &device, model.config.context);
    let most = |list: &[usize]| list.iter().copied().max().unwrap_or(0);
    let (context, trained) = (most(&plan.prompts) + most(&plan.generated), model.config.context);
    ensure!(
        context <= trained,
        "{context} tokens do not fit the model's context of {trained}: choose smaller -p, -n"
    );
    let batches: Vec<usize> = bench.batch.iter().map(|batch| *batch as usize).collect();
    let options = ColumnsOptions::new(most(&batches), context).with_cache(bench.common.launching.kv);
    let (free, begin) = (free(&device), Instant::now());
    let mut columns = session::columns(
        &device,
        model,
        options.with_chunks(),
        options.pages,
        bench.common.launching.prompt_weights,
    )?;
    let load_seconds = begin.elapsed().as_secs_f64();

    let both = plan.prompts.iter().flat_map(|prompt| plan.generated.iter().map(move |n| (*prompt, *n)));
    let runs = both.flat_map(|both| batches.iter().map(move |batch| (both, *batch)));
    let mut measured = Vec::new();
    for ((prompt, decode), sequences) in runs {
        let at = now();
        let run = BatchPlan { prompt, decode, repeats: plan.repeats, warm_up: plan.warm_up };
        let times = batched::run(&mut columns, run, sequences)?;
        let test = Test { prompt, generate: 0, depth: 0, choice: Choice::Greedy, sequences };
        measured.push(Measured::new(test, at, times.prompt_seconds, Vec::new()));
        if decode > 0 {
            let test = Test { prompt: 0, generate: decode, depth: prompt, ..test };
            measured.push(Measured::new(test, at, times.decode_seconds, Vec::new()));
        }
    }
    let common = Common {
        schema: SCHEMA,
        device: DeviceReport::new(device.info()),
        model: ModelReport::new(model),
        engine: "columns",
        tuning: TuningReport::Default,
        context,
        warm_up_seconds: plan.warm_up.as_secs_f64(),
        load_seconds,
        first_token: None,
        tokenizer_seconds: None,
        weight_bytes_per_step: columns.weight_bytes(),
        launches_per_step: None,
        cache_bytes_per_position: columns.cache_bytes_of_layer() * columns.layers() as u64,
        device_bytes: taken(free, &device),
        peak_host_bytes: rows::peak(),
        hints: Vec::new(),
    };
    Ok((common, measured))
}

impl Plan {
    /// llama-bench's numbers, or llama-batched-bench's, where none are given; smaller ones on the software
    /// device, which is a million times slower.
    fn new(bench: &Bench, device: &Device, most: usize) -> Self {
        let software = device.info().backend == hcq::BackendKind::Sim;
        let usual = match (bench.batch.is_empty(), software) {
            (true, false) => [512, 128],
            (true, true) => [16, 16],
            (false, false) => [128, 128],
            (false, true) => [4, 4],
        };
        let list = |given: &[u32], usual: usize| match given.is_empty() {
            true => vec![usual.min(most)],
            false => given.iter().map(|n| *n as usize).collect(),
        };
        Self {
            prompts: list(&bench.prompt, usual[0]),
            generated: list(&bench.generate, usual[1]),
            repeats: bench.repeats.map_or(if software { 2 } else { 5 }, |n| n as usize),
            warm_up: if software { Duration::ZERO } else { WARM_UP },
        }
    }

    /// Tokens of the prompt before the first token.
    fn first_prompt(&self) -> usize {
        self.prompts[0].max(1)
    }

    /// The tests of one sequence: prompts first, each at all depths.
    fn tests(&self, bench: &Bench, most: usize) -> anyhow::Result<Vec<Test>> {
        let mut tests = Vec::new();
        let mut add = |prompt: usize, generate: usize, choice: Choice| {
            for depth in bench.depth.iter().map(|depth| *depth as usize) {
                let test = Test { prompt, generate, depth, choice, sequences: 1 };
                let context = depth + prompt + generate;
                ensure!(
                    context <= most,
                    "{} needs {context} tokens and the model's context has {most}; choose smaller -p, -n and -d",
                    test.name()
                );
                tests.push(test);
            }
            Ok(())
        };
        for prompt in self.prompts.iter().filter(|n| **n > 0) {
            add(*prompt, 0, Choice::Logits)?;
        }
        for generate in self.generated.iter().filter(|n| **n > 0) {
            bench.choice.iter().try_for_each(|choice| add(0, *generate, *choice))?;
        }
        Ok(tests)
    }
}

fn measure(
    engine: &mut Engine,
    model: &Model,
    test: Test,
    plan: &Plan,
    rails: &[Rail],
    advance: &mut dyn FnMut(),
) -> anyhow::Result<Measured> {
    let Test { prompt, generate, depth, choice, .. } = test;
    engine.record_prompt(prompt)?;
    let at = now();
    let mut meter = None;
    let mut after = |count| {
        advance();
        if count == 0 {
            meter = Meter::start(rails);
        }
    };
    let (mut logits, mut sampler) = (Vec::new(), Sampler::new(SAMPLING));
    let mut draw = tokens_of(model.config.vocab);
    let runs = (plan.repeats, plan.warm_up);
    let seconds = samples(prompt + generate, runs, &mut draw, &mut after, &mut |tokens| {
        match depth {
            0 => engine.reset()?,
            depth => engine.pretend(depth)?,
        }
        if prompt > 0 {
            return engine.prefill(tokens).map(drop);
        }
        let mut next = tokens[0];
        for &token in tokens {
            match choice {
                Choice::Logits => engine.step_into(token, &mut logits)?,
                Choice::Greedy => next = engine.step_greedy(next)?,
                Choice::Sampled => next = engine.step_sampled(next, &mut sampler)?,
            }
        }
        Ok(())
    })?;
    Ok(Measured::new(test, at, seconds, meter.map(Meter::stop).unwrap_or_default()))
}

/// Options with which the prompts of a GPU would be faster.
fn hints(bench: &Bench, model: &Model, session: &Session, prompts: bool) -> anyhow::Result<Vec<String>> {
    let device = &session.device;
    if !prompts || device.info().backend == hcq::BackendKind::Sim {
        return Ok(Vec::new());
    }
    let (options, _) = Setup::of(&bench.common.launching).options(device, model, session.context)?;
    let more = Footprint::of(model, &options.with_expanded_weights(true), device)?.expanded;
    let room = free(device).is_none_or(|free| more <= free);
    let file = bench.common.model.path.as_ref().map(|path| path.display().to_string());
    let is_default = matches!(session.tuning, TuningReport::Default);
    Ok(hints_of(
        (!session.expanded && room).then_some(more),
        (is_default, bench.common.launching.no_tuning),
        file,
    ))
}

/// Hints: of weights that could be kept for so many bytes `more`, and of shapes that are the default ones, or are so
/// because the command line says so.
fn hints_of(more: Option<u64>, (is_default, no_tuning): (bool, bool), file: Option<String>) -> Vec<String> {
    let mut hints = Vec::new();
    if let Some(more) = more {
        let more = size(more);
        hints.push(format!(
            "--prompt-weights keep: prompts do not expand the weights each time, for {more} of memory"
        ));
    }
    match (is_default, no_tuning) {
        (true, false) => {
            let model = file.map_or(String::new(), |file| format!(" -m {file}"));
            hints.push(format!(
                "llm-demo tune{model}: searches faster shapes of prompts' products for this GPU"
            ));
        }
        (true, true) => {
            hints.push("without --no-tuning: shapes that llm-demo tune found are used".to_owned())
        }
        (false, _) => {}
    }
    hints
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

fn free(device: &Device) -> Option<u64> {
    device.free_memory().ok()
}

/// Bytes that `device` has less than it had.
fn taken(before: Option<u64>, device: &Device) -> Option<u64> {
    Some(before?.saturating_sub(free(device)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_names_the_option_and_what_it_takes() {
        let hints = hints_of(Some(2_500_000_000), (true, false), Some("m.gguf".into()));
        assert_eq!(hints.len(), 2);
        assert!(hints[0].starts_with("--prompt-weights keep") && hints[0].contains("2.50 GB"), "{hints:?}");
        assert!(hints[1].starts_with("llm-demo tune -m m.gguf:"), "{hints:?}");
        assert!(hints_of(None, (true, true), None)[0].contains("--no-tuning"));
        assert!(hints_of(None, (false, false), None).is_empty());
    }
}
