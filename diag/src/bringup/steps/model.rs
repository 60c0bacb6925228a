//! Steps 20 and 21: a language model, alone and beside other work.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;
use std::time::Instant;

use anyhow::{Context, anyhow, ensure};
use ga10b_llm::{Decoder, Engine, EngineOptions, Mode, Model, Tokenizer, embedded};
use hcq::Device;

use super::kernel::fill;
use crate::bringup::outcome::Notes;
use crate::bringup::rig::Rig;

/// How the embedded model continues its prompt, by the program that trained it.
const STORY: &str = ", a cheerful boy named Tom lived on a quiet farm. The morning was cold and bright.";

/// The model, and the tokens that it has to give.
struct Expected {
    model: Model,
    prompt: Vec<u32>,
    tokens: Vec<u32>,
}

impl Expected {
    fn new(count: u32) -> anyhow::Result<Self> {
        let model = embedded::model()?;
        let tokenizer = Tokenizer::from_gguf(&model.gguf)?;
        let prompt = tokenizer.encode(embedded::PROMPT)?;
        let whole = tokenizer.encode(&format!("{}{STORY}", embedded::PROMPT))?;
        let tokens = whole[prompt.len()..].iter().copied().take(count as usize).collect();
        Ok(Self { model, prompt, tokens })
    }

    /// Decodes as many tokens, and compares them; tokens per second.
    fn decode(&self, engine: &mut Engine) -> anyhow::Result<f64> {
        engine.reset()?;
        let logits = engine.prefill(&self.prompt).map_err(of_the_device)?;
        let mut next =
            logits.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1)).map_or(0, |(i, _)| i as u32);
        let began = Instant::now();
        for (position, token) in self.tokens.iter().enumerate() {
            ensure!(next == *token, "token {position} is {next} instead of {token}");
            next = engine.step_greedy(next).map_err(of_the_device)?;
        }
        Ok(self.tokens.len() as f64 / began.elapsed().as_secs_f64())
    }

    fn engine(&self, device: &Device, mode: Mode) -> anyhow::Result<Engine> {
        let context = self.prompt.len() + self.tokens.len() + 1;
        Ok(Engine::new(device, &self.model, &EngineOptions::new(context).with_mode(mode))?)
    }
}

/// An engine's error, of weights that are known to be good: not the file is to blame for NaN.
fn of_the_device(error: ga10b_llm::Error) -> anyhow::Error {
    match error {
        ga10b_llm::Error::NotFinite { phase, layer, position } => {
            let layer = layer.map(|layer| format!(" of layer {layer}")).unwrap_or_default();
            anyhow!(
                "token: {phase:?}{layer} gives NaN or infinity at position {position} from the built-in weights, \
                 which are sound: the device computes wrong values"
            )
        }
        other => other.into(),
    }
}

pub fn model(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let expected = Expected::new(rig.scaled(20, 6))?;
    for mode in [Mode::Operations, Mode::Persistent] {
        let device = rig.device()?;
        let mut engine = expected.engine(&device, mode).with_context(|| format!("engine {}", mode.name()))?;
        let rate = expected.decode(&mut engine).with_context(|| format!("engine {}", mode.name()))?;
        notes
            .fact(mode.name(), format!("{} tokens as expected, {rate:.1} per second", expected.tokens.len()));
    }
    Ok(())
}

pub fn soak(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let before = rig.logged();
    let expected = Expected::new(rig.scaled(20, 4))?;
    let mode = if rig.software { Mode::Operations } else { Mode::Persistent };
    let mut engine = expected.engine(&rig.device()?, mode)?;
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
        let decoded = decode_until(&expected, &mut engine, &is_done);
        stop.store(true, Ordering::Relaxed);
        let visited = guest.join().map_err(|_| anyhow!("the other client panicked"))?;
        // What happened to the other client first is often the cause.
        visited.context("the other client")?;
        decoded
    })?;
    notes.fact("duration", format!("{} s", rig.soak.as_secs()));
    notes.fact("decoded", format!("{rounds} times the same tokens, {slowest:.1} per second at least"));
    notes.fact("other clients", format!("{} came, worked and went", visits.load(Ordering::Relaxed)));
    let timeout = rig.logged_since(&before).into_iter().find(|line| line.contains("ctxsw timeout"));
    ensure!(timeout.is_none(), "the driver logged: {}", timeout.unwrap_or_default());
    Ok(())
}

/// How many other clients there are at least, however long they take.
const VISITS: u32 = 24;

/// Decodes the same tokens again and again; how often, and the lowest rate.
fn decode_until(
    expected: &Expected,
    engine: &mut Engine,
    is_done: &dyn Fn() -> bool,
) -> anyhow::Result<(u32, f64)> {
    let (mut rounds, mut slowest) = (0, f64::INFINITY);
    while !is_done() {
        let rate = expected.decode(engine).with_context(|| format!("round {rounds}"))?;
        slowest = rate.min(slowest);
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
