//! Tokens per second, measured as llama-bench does, so that figures are comparable.
//!
//! Prefill processes a prompt of random tokens at an empty context. Decode processes random tokens one at a
//! time and copies the logits of each to the host; in greedy decode the device chooses the token, in sampled
//! decode the engine draws it by [`SAMPLING`], on the device where it can. Each test first runs until the
//! clocks have risen.

use std::time::{Duration, Instant};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};
use serde::Serialize;

use ga10b_llm::{Decoder, Result, Sampler, SamplerOptions};

/// The plan of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Tokens of the prompt; 0 skips prefill.
    pub prefill: usize,
    /// Tokens decoded; 0 skips decode.
    pub decode: usize,
    /// Tokens in the context before those decoded, as if a prompt had put them there.
    pub depth: usize,
    /// Measured runs, after the warm-up.
    pub repeats: usize,
    /// Least time of each test's warm-up, which is at least one run.
    pub warm_up: Duration,
}

/// Warm-up of a GPU: an H200 takes 1 to 1.5 s of load from 345 to 1980 MHz (measured).
pub const WARM_UP: Duration = Duration::from_millis(1500);

/// The sampling options: llama.cpp's default chain.
pub const SAMPLING: SamplerOptions =
    SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, seed: 0 };

/// The runs of one test.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// `pp512`, `tg128`, `tg128-greedy`, `tg128-sampled@d8192`: kind and number of tokens, depth.
    pub test: String,
    /// Tokens in a run.
    pub tokens: usize,
    /// Mean over the runs.
    pub tokens_per_second: f64,
    /// Sample standard deviation over the runs; 0 for a single run.
    pub tokens_per_second_sd: f64,
    /// Each run.
    pub runs_tokens_per_second: Vec<f64>,
}

impl Row {
    /// A row from the seconds of each run of `tokens` tokens.
    pub fn new(test: String, tokens: usize, seconds: &[f64]) -> Self {
        let runs: Vec<f64> = seconds.iter().map(|s| tokens as f64 / s).collect();
        let (mean, sd) = spread(&runs);
        Self { test, tokens, tokens_per_second: mean, tokens_per_second_sd: sd, runs_tokens_per_second: runs }
    }
}

/// Mean and sample standard deviation, which is 0 for a single value.
pub fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|r| (r - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (count - 1.0)).sqrt() } else { 0.0 })
}

/// Random tokens of a vocabulary, always the same.
pub fn tokens_of(vocab: usize) -> impl FnMut() -> u32 {
    let mut random = ChaCha8Rng::seed_from_u64(0);
    move || ((u64::from(random.next_u32()) * vocab as u64) >> 32) as u32
}

/// The seconds of each of `repeats` runs of `tokens` tokens that `draw` gives, after runs of `warm_up` in all, at
/// least one. `after` is called after the last run of the warm-up, with 0, and after each measured one, with
/// their number.
///
/// # Errors
/// The errors of `run`.
pub fn samples(
    tokens: usize,
    (repeats, warm_up): (usize, Duration),
    draw: &mut dyn FnMut() -> u32,
    after: &mut dyn FnMut(usize),
    run: &mut dyn FnMut(&[u32]) -> Result<()>,
) -> Result<Vec<f64>> {
    let mut seconds = Vec::new();
    let began = Instant::now();
    let mut warm = false;
    while seconds.len() < repeats {
        let drawn: Vec<u32> = (0..tokens).map(|_| draw()).collect();
        let begin = Instant::now();
        run(&drawn)?;
        // The first runs warm up caches, clocks and page tables.
        if warm {
            seconds.push(begin.elapsed().as_secs_f64());
        } else if began.elapsed() < warm_up {
            continue;
        }
        warm = true;
        after(seconds.len());
    }
    Ok(seconds)
}

/// Runs `plan`; `start` makes the context one of `plan.depth` tokens, and `progress` is called with the
/// tokens done and in all.
///
/// # Errors
/// The decoder's errors, for example a full context.
pub fn run<D: Decoder>(
    decoder: &mut D,
    vocab: usize,
    plan: Plan,
    start: &mut dyn FnMut(&mut D) -> Result<()>,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Vec<Row>> {
    let mut draw = tokens_of(vocab);
    let total = ((plan.prefill + 3 * plan.decode) * (plan.repeats + 1)) as u64;
    let mut done = 0;
    let mut rows = Vec::new();
    let mut measure =
        |name: String, tokens: usize, run: &mut dyn FnMut(&[u32]) -> Result<()>| -> Result<()> {
            if tokens == 0 {
                return Ok(());
            }
            let mut after = |_| {
                done += tokens as u64;
                progress(done, total);
            };
            let seconds = samples(tokens, (plan.repeats, plan.warm_up), &mut draw, &mut after, run)?;
            rows.push(Row::new(name, tokens, &seconds));
            Ok(())
        };
    measure(format!("pp{}", plan.prefill), plan.prefill, &mut |tokens| {
        decoder.reset()?;
        decoder.prefill(tokens).map(drop)
    })?;
    let mut logits = Vec::new();
    let depth = if plan.depth > 0 { format!("@d{}", plan.depth) } else { String::new() };
    measure(format!("tg{}{depth}", plan.decode), plan.decode, &mut |tokens| {
        start(decoder)?;
        tokens.iter().try_for_each(|&token| decoder.step_into(token, &mut logits))
    })?;
    measure(format!("tg{}-greedy{depth}", plan.decode), plan.decode, &mut |tokens| {
        start(decoder)?;
        let mut next = tokens[0];
        for _ in tokens {
            next = decoder.step_greedy(next)?;
        }
        Ok(())
    })?;
    let mut sampler = Sampler::new(SAMPLING);
    measure(format!("tg{}-sampled{depth}", plan.decode), plan.decode, &mut |tokens| {
        start(decoder)?;
        let mut next = tokens[0];
        for _ in tokens {
            next = decoder.step_sampled(next, &mut sampler)?;
        }
        Ok(())
    })?;
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts the calls.
    #[derive(Default)]
    struct Counter {
        position: usize,
        most: usize,
        resets: usize,
    }

    impl Decoder for Counter {
        fn step(&mut self, token: u32) -> Result<Vec<f32>> {
            assert!(token < 7);
            self.position += 1;
            self.most = self.most.max(self.position);
            Ok(vec![0.0; 7])
        }

        fn truncate(&mut self, count: usize) -> Result<()> {
            self.position = count.min(self.position);
            self.resets += 1;
            Ok(())
        }

        fn position(&self) -> usize {
            self.position
        }

        fn context(&self) -> usize {
            8
        }
    }

    #[test]
    fn every_run_starts_from_an_empty_context() {
        let mut counter = Counter::default();
        let mut last = (0, 0);
        let plan = Plan { prefill: 5, decode: 3, depth: 0, repeats: 2, warm_up: Duration::ZERO };
        let rows = run(&mut counter, 7, plan, &mut Counter::reset, &mut |done, total| last = (done, total))
            .expect("runs");
        let names: Vec<&str> = rows.iter().map(|r| r.test.as_str()).collect();
        assert_eq!(names, ["pp5", "tg3", "tg3-greedy", "tg3-sampled"]);
        assert_eq!((counter.resets, counter.most), (12, 5));
        assert_eq!(last, (42, 42));
        assert!(rows.iter().all(|r| r.runs_tokens_per_second.len() == 2 && r.tokens_per_second > 0.0));
    }

    #[test]
    fn tokens_are_decoded_at_the_depth_that_was_asked_for() {
        let plan = Plan { prefill: 2, decode: 3, depth: 4, repeats: 1, warm_up: Duration::ZERO };
        let mut counter = Counter::default();
        let mut start = |counter: &mut Counter| {
            counter.position = 4;
            Ok(())
        };
        let rows = run(&mut counter, 7, plan, &mut start, &mut |_, _| ()).expect("runs");
        let names: Vec<&str> = rows.iter().map(|r| r.test.as_str()).collect();
        assert_eq!(names, ["pp2", "tg3@d4", "tg3-greedy@d4", "tg3-sampled@d4"]);
        assert_eq!((counter.resets, counter.most), (2, 7));
    }

    #[test]
    fn runs_that_warm_up_do_not_count() {
        let mut counter = Counter::default();
        let plan = Plan { prefill: 4, decode: 0, depth: 0, repeats: 3, warm_up: Duration::from_millis(5) };
        let rows = run(&mut counter, 7, plan, &mut Counter::reset, &mut |done, total| assert!(done <= total))
            .expect("runs");
        assert_eq!(rows[0].runs_tokens_per_second.len(), 3);
        assert!(counter.resets > 4, "{} runs in 5 ms", counter.resets);
    }

    #[test]
    fn a_test_of_no_tokens_is_left_out() {
        let plan = Plan { prefill: 0, decode: 1, depth: 0, repeats: 1, warm_up: Duration::ZERO };
        let rows = run(&mut Counter::default(), 7, plan, &mut Counter::reset, &mut |_, _| ()).expect("runs");
        assert_eq!(rows.len(), 3);
    }

    #[test]
    fn mean_and_deviation_are_over_the_rates() {
        let row = Row::new("tg10".into(), 10, &[1.0, 2.0]);
        assert_eq!(row.runs_tokens_per_second, [10.0, 5.0]);
        assert_eq!(row.tokens_per_second, 7.5);
        assert!((row.tokens_per_second_sd - 12.5f64.sqrt()).abs() < 1e-12);
        assert_eq!(Row::new("tg1".into(), 1, &[0.5]).tokens_per_second_sd, 0.0);
    }
}
