//! Tokens per second of several sequences, measured as llama-batched-bench does: for each number of sequences
//! first the prompts of all of them, then one token of each per step.

use std::time::{Duration, Instant};

use ga10b_llm::engine::{LaunchTime, MOST_COLUMNS};
use ga10b_llm::{ColumnId, Columns, Result};
use serde::Serialize;

/// What to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// Tokens of each prompt, at least 1.
    pub prompt: usize,
    /// Tokens decoded of each sequence.
    pub decode: usize,
    /// Least time that all is run before it is measured.
    pub warm_up: Duration,
}

/// Measurement of one number of sequences.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct BatchRow {
    /// Sequences.
    pub batch: usize,
    /// Time of all prompts.
    pub prompt_seconds: f64,
    /// Time of all tokens after them.
    pub decode_seconds: f64,
    /// Tokens of the prompts per second.
    pub prompt_tokens_per_second: f64,
    /// Decoded tokens of all sequences per second.
    pub decode_tokens_per_second: f64,
    /// All tokens per second.
    pub tokens_per_second: f64,
}

/// Processes the prompts of `ids`, of `len` tokens each. Returns the first token of each text.
fn prompts(columns: &mut Columns, ids: &[ColumnId], len: usize) -> Result<Vec<u32>> {
    let vocab = columns.vocab();
    let token = |i: usize, at: usize| ((i * 7919 + at * 31 + 1) % vocab) as u32;
    let (last, cut) = (len - 1, columns.cut(len)?);
    let mut all: Vec<(ColumnId, u32)> = Vec::new();
    for (i, id) in ids.iter().enumerate() {
        let mut done = 0;
        while let Some(count) = cut.chunk_at(done) {
            let chunk: Vec<u32> = (done..done + count).map(|at| token(i, at)).collect();
            columns.chunk(*id, &chunk)?;
            done += count;
        }
        all.extend((done..last).map(|at| (*id, token(i, at))));
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
/// What the engine reports.
pub fn run(columns: &mut Columns, plan: BatchPlan, batch: usize) -> Result<BatchRow> {
    columns.record_all()?;
    let began = Instant::now();
    loop {
        once(columns, plan, batch)?;
        if began.elapsed() >= plan.warm_up {
            break;
        }
    }
    let [prompt_seconds, decode_seconds] = once(columns, plan, batch)?;
    let (prompt, decode) = ((batch * plan.prompt) as f64, (batch * plan.decode) as f64);
    Ok(BatchRow {
        batch,
        prompt_seconds,
        decode_seconds,
        prompt_tokens_per_second: prompt / prompt_seconds,
        decode_tokens_per_second: decode / decode_seconds,
        tokens_per_second: (prompt + decode) / (prompt_seconds + decode_seconds),
    })
}

/// The launches of a step of `batch` sequences after a prompt of `plan.prompt` tokens each.
///
/// # Errors
/// What the engine reports.
pub fn launches(columns: &mut Columns, plan: BatchPlan, batch: usize) -> Result<Vec<LaunchTime>> {
    let ids = (0..batch).map(|_| columns.admit()).collect::<Result<Vec<ColumnId>>>()?;
    let tokens = prompts(columns, &ids, plan.prompt)?;
    let work: Vec<(ColumnId, u32)> = ids.iter().copied().zip(tokens).collect();
    let (_, times) = columns.step_timed(&work)?;
    ids.into_iter().try_for_each(|id| columns.release(id))?;
    Ok(times)
}
