//! Measures how long prompts hold back the tokens of others: texts are written while long prompts arrive one
//! after the other, with whole chunks and with bounds (`Scheduler::with_latency`). Prints the times between two
//! tokens of a text, and the tokens of prompts per second.
//!
//! `latency MODEL.gguf [TEXTS [TOKENS OF A PROMPT]]` on the device that `HCQ_DEVICE` names; 8 and 2048 if not
//! given.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use ga10b_llm::schedule::{Event, Reading, Request, RequestId, Scheduler};
use ga10b_llm::{Columns, ColumnsOptions, Model, Sampler, SamplerOptions};
use hcq::{Device, Selector};

/// Milliseconds of the bounds.
const BOUNDS: [u64; 3] = [20, 5, 1];
/// Prompts that arrive beside the texts.
const PROMPTS: usize = 24;

fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let model = args.next().context("latency MODEL.gguf [TEXTS [TOKENS]]")?;
    let mut number = |default: usize| args.next().map_or(Ok(default), |n| n.parse().context("not a number"));
    let (texts, tokens) = (number(8)?, number(2048)?);
    let model = Model::open(Path::new(&model))?;
    let device = Device::open(Selector::from_env()?)?;
    let options = ColumnsOptions::new(texts + 1, tokens + 2048).with_chunks();
    let mut columns = Columns::new(&device, &model, &options)?;
    columns.record_all()?;
    columns.record_slices()?;
    println!("{} texts, {PROMPTS} prompts of {tokens} tokens", texts);
    println!("bound ms   p50 ms   p99 ms   most ms   prompt tok/s   text tok/s");
    let mut scheduler = Scheduler::new(columns, 64);
    // The clocks rise.
    run(&mut scheduler, texts, tokens)?;
    for bound in [None].into_iter().chain(BOUNDS.map(Some)) {
        scheduler = bound.map(Duration::from_millis).into_iter().fold(scheduler, Scheduler::with_latency);
        let (mut times, seconds) = run(&mut scheduler, texts, tokens)?;
        times.sort_unstable();
        let at = |part: f64| times[((times.len() - 1) as f64 * part) as usize].as_secs_f64() * 1e3;
        let bound = bound.map_or("none".to_owned(), |ms| ms.to_string());
        let (of_prompts, of_texts) = ((PROMPTS * tokens) as f64 / seconds, times.len() as f64 / seconds);
        println!(
            "{bound:>8} {:>8.2} {:>8.2} {:>9.2} {of_prompts:>14.0} {of_texts:>12.0}",
            at(0.5),
            at(0.99),
            at(1.0)
        );
    }
    Ok(())
}

/// The times between two tokens of a text while prompts are processed, and the seconds that these take.
fn run(
    scheduler: &mut Scheduler<Columns>,
    texts: usize,
    tokens: usize,
) -> anyhow::Result<(Vec<Duration>, f64)> {
    let vocab = scheduler.sequences().vocab();
    let prompt =
        |seed: usize, len: usize| (0..len).map(|i| ((seed * 7919 + i * 31 + 1) % vocab) as u32).collect();
    let request = |prompt, most| {
        let sampler = Sampler::new(SamplerOptions::GREEDY);
        Request { prompt, sampler, most, ends: vec![], reuse: false, reading: Reading::Nothing }
    };
    let mut written: HashMap<RequestId, Instant> = HashMap::new();
    for seed in 0..texts {
        scheduler.submit(request(prompt(seed, 16), usize::MAX))?;
    }
    while written.len() < texts {
        let events = scheduler.step()?;
        written
            .extend(events.iter().filter(|(_, event)| is_token(event)).map(|(id, _)| (*id, Instant::now())));
    }
    let (mut times, begin) = (Vec::new(), Instant::now());
    for seed in 0..PROMPTS {
        let beside = scheduler.submit(request(prompt(texts + seed, tokens), 1))?;
        let mut ended = false;
        while !ended {
            let events = scheduler.step()?;
            let now = Instant::now();
            for (id, event) in events {
                match written.get_mut(&id) {
                    Some(last) if is_token(&event) => times.push(now - std::mem::replace(last, now)),
                    _ => ended |= id == beside && matches!(event, Event::Finished(_)),
                }
            }
        }
    }
    let seconds = begin.elapsed().as_secs_f64();
    written.into_keys().try_for_each(|id| scheduler.cancel(id).map(drop))?;
    Ok((times, seconds))
}

fn is_token(event: &Event) -> bool {
    matches!(event, Event::Token(_))
}
