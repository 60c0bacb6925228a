//! Tokens per second of several sequences, measured as llama-batched-bench does: for each number of sequences
//! first the prompts of all of them, then one token of each per step.

use std::time::{Duration, Instant};

use ga10b_llm::engine::{LaunchTime, MOST_COLUMNS};
use ga10b_llm::{ColumnId, Columns, Result, Sequences};
/// The plan of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// Tokens of each prompt, at least 1.
    pub prompt: usize,
    /// Tokens decoded of each sequence.
    pub decode: usize,
    /// Measured runs, after the warm-up.
    pub repeats: usize,
    /// Least time that all is run before it is measured.
    pub warm_up: Duration,
}

/// Times of one number of sequences, in each measured run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchTimes {
    /// Of all prompts.
    pub prompt_seconds: Vec<f64>,
    /// Of all tokens after them.
    pub decode_seconds: Vec<f64>,
}

/// Processes the prompts of `ids`, of `len` tokens each. Returns the first token of each text.
fn prompts(columns: &mut Columns, ids: &[ColumnId], len: usize) -> Result<Vec<u32>> {
    let vocab = columns.vocab();
    let token = |i: usize, at: usize| ((i * 7919 + at * 31 + 1) % vocab) as u32;
    let last = len - 1;
    let mut all: Vec<(ColumnId, u32)> = Vec::new();
    for (i, id) in ids.iter().enumerate() {
        let prompt: Vec<u32> = (0..len).map(|at| token(i, at)).collect();
        let done = columns.prefill_chunks(*id, &prompt)?;
        all.extend(prompt[done..last].iter().map(|token| (*id, *token)));
    }
    for work in all.chunks(MOST_COLUMNS) {
        columns.fill(work)?;
    }
    let work: Vec<(ColumnId, u32)> = ids.iter().enumerate().map(|(i, id)| (*id, token(i, last))).collect();
    Ok(columns.step(&work)?.into_iter().map(Option::unwrap_or_default).collect())
}

/// One run of `batch` sequences; the times of prompts and of tokens.
fn once(columns: &mut Columns, plan: BatchPlan, batch: usize) -> Result<[f64; 2]> {
    let ids = (0..batch).map(|_| columns.admit()).collect::<Result<Vec<ColumnId>>>()?;
    let begin = Instant::now();
    let mut tokens = prompts(columns, &ids, plan.prompt)?;
    let prompt = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    for _ in 0..plan.decode {
        let work: Vec<(ColumnId, u32)> = ids.iter().copied().zip(tokens).collect();
        tokens = columns.step(&work)?.into_iter().map(Option::unwrap_or_default).collect();
    }
    let decode = begin.elapsed().as_secs_f64();
    ids.into_iter().try_for_each(|id| columns.release(id))?;
    Ok([prompt, decode])
}

/// Runs `plan` with `batch` sequences, at most [`MOST_COLUMNS`], whose pages are free.
///
/// # Errors
/// The engine's errors.
pub fn run(columns: &mut Columns, plan: BatchPlan, batch: usize) -> Result<BatchTimes> {
    columns.record_all()?;
    let began = Instant::now();
    loop {
        once(columns, plan, batch)?;
        if began.elapsed() >= plan.warm_up {
            break;
        }
    }
    let mut times = BatchTimes::default();
    for _ in 0..plan.repeats {
        let [prompt, decode] = once(columns, plan, batch)?;
        times.prompt_seconds.push(prompt);
        times.decode_seconds.push(decode);
    }
    Ok(times)
}

/// The launches of a step of `batch` sequences after a prompt of `prompt` tokens each.
///
/// # Errors
/// The engine's errors.
pub fn launches(columns: &mut Columns, prompt: usize, batch: usize) -> Result<Vec<LaunchTime>> {
    let ids = (0..batch).map(|_| columns.admit()).collect::<Result<Vec<ColumnId>>>()?;
    let tokens = prompts(columns, &ids, prompt)?;
    let work: Vec<(ColumnId, u32)> = ids.iter().copied().zip(tokens).collect();
    let (_, times) = columns.step_timed(&work)?;
    ids.into_iter().try_for_each(|id| columns.release(id))?;
    Ok(times)
}
