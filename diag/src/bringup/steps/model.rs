//! Steps 20 and 21: a language model, alone and beside other work.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};

use super::kernel::fill;
use crate::bringup::llm_demo::{LlmDemo, NOT_INSTALLED};
use crate::bringup::outcome::Notes;
use crate::bringup::rig::{Platform, Rig};

/// The program of these steps.
fn program<'a>(rig: &'a Rig<'_>) -> anyhow::Result<&'a LlmDemo> {
    rig.llm_demo.as_ref().context(NOT_INSTALLED)
}

pub fn model(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let (llm_demo, steps) = (program(rig)?, rig.scaled(32, 8));
    for engine in ["batch", "stream"] {
        let began = Instant::now();
        let error =
            llm_demo.verify(rig.selector, engine, steps).with_context(|| format!("engine {engine}"))?;
        let seconds = began.elapsed().as_secs_f64();
        notes.fact(
            engine,
            format!("{steps} steps within the bounds of the CPU reference, {error}, {seconds:.1} s"),
        );
    }
    Ok(())
}

pub fn soak(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let before = rig.logged();
    let (llm_demo, tokens) = (program(rig)?, rig.scaled(128, 4));
    let (stop, visits) = (AtomicBool::new(false), AtomicU32::new(0));
    let (rounds, slowest) = thread::scope(|scope| {
        let guest = scope.spawn(|| {
            let visited = visit(rig, &stop, &visits);
            stop.store(true, Ordering::Relaxed);
            visited
        });
        let began = Instant::now();
        let is_done = || {
            let long_enough = began.elapsed() >= rig.soak && visits.load(Ordering::Relaxed) >= VISITS;
            long_enough || stop.load(Ordering::Relaxed)
        };
        let round = || Ok(llm_demo.same_tokens(rig.selector, tokens)?);
        let decoded = repeat_until(&round, &is_done);
        stop.store(true, Ordering::Relaxed);
        let visited = guest.join().map_err(|_| anyhow!("the other client panicked"))?;
        // The other client's failure comes first: it is often the cause.
        visited.context("the other client")?;
        decoded
    })?;
    notes.fact("duration", format!("{} s", rig.soak.as_secs()));
    let slowest = slowest.as_secs_f64();
    notes.fact(
        "decoded",
        format!("{rounds} times {tokens} tokens, the same by both engines, each time within {slowest:.1} s"),
    );
    notes.fact("other clients", format!("{} came, worked and went", visits.load(Ordering::Relaxed)));
    match rig.logged() {
        Some(_) => {
            let late = rig.logged_since(&before).into_iter().find(|line| line.contains("ctxsw timeout"));
            notes.expect(
                "kernel log",
                late.as_deref().unwrap_or("no ctxsw timeout"),
                "no ctxsw timeout",
                "hal/fifo/ctxsw_timeout_ga10b_fusa.c, r36.4.3",
            );
        }
        None if rig.platform == Platform::Desktop => {}
        None => notes.unseen("the kernel log: whether a context switch came too late"),
    }
    Ok(())
}

/// Least number of other clients, however long they take.
const VISITS: u32 = 24;

/// Does the same again and again; how often, and the longest time.
fn repeat_until(
    round: &dyn Fn() -> anyhow::Result<()>,
    is_done: &dyn Fn() -> bool,
) -> anyhow::Result<(u32, Duration)> {
    let (mut rounds, mut slowest) = (0, Duration::ZERO);
    while !is_done() {
        let began = Instant::now();
        round().with_context(|| format!("round {rounds}"))?;
        slowest = slowest.max(began.elapsed());
        rounds += 1;
    }
    Ok((rounds, slowest))
}

/// Other clients: each opens the device, launches, and leaves.
fn visit(rig: &Rig<'_>, stop: &AtomicBool, visits: &AtomicU32) -> anyhow::Result<()> {
    while !stop.load(Ordering::Relaxed) {
        let number = visits.load(Ordering::Relaxed) + 1;
        let device = rig.device().with_context(|| format!("number {number} cannot open the device"))?;
        fill(&device, (8, 128), number).with_context(|| format!("number {number}"))?;
        visits.store(number, Ordering::Relaxed);
    }
    Ok(())
}
