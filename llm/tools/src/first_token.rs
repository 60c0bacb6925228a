//! The time from the start of the process to the first token, and its parts.

use std::time::{Duration, Instant};

use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use serde::Serialize;

use ga10b_llm::sampler::argmax;
use ga10b_llm::{Decoder, Engine, Result};

/// The start of a measured time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The start of the process, as the kernel records it, in steps of 10 ms.
    ProcessStart,
    /// The first line of `main`, if the kernel does not report the start.
    Main,
}

impl Origin {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ProcessStart => "the start of the process",
            Self::Main => "the start of main",
        }
    }
}

/// A part of the time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Part {
    /// The action of the program.
    pub name: &'static str,
    /// Its time.
    pub seconds: f64,
}

/// Time to the first token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FirstToken {
    /// The start of the time.
    pub from: Origin,
    /// Tokens of the prompt.
    pub prompt_tokens: usize,
    /// The whole time, until the first token was chosen.
    pub seconds: f64,
    /// Its parts.
    pub parts: Vec<Part>,
    /// The following step, to the second token; `None` if the context is full.
    pub first_step_seconds: Option<f64>,
}

/// Measures the parts of the time from the start of the process.
#[derive(Clone, Debug)]
pub struct Stopwatch {
    from: Origin,
    start: Instant,
    last: Instant,
    parts: Vec<Part>,
}

impl Stopwatch {
    /// A watch that runs since the start of the process, or since `main` if that is not known.
    pub fn since_process_start(main: Instant) -> Self {
        let start = process_age().and_then(|age| Instant::now().checked_sub(age));
        // Because of the steps of 10 ms it may be later than `main`.
        match start.map(|start| start.min(main)) {
            Some(start) => {
                let mut watch = Self { from: Origin::ProcessStart, start, last: start, parts: Vec::new() };
                watch.push("start of the program", main);
                watch
            }
            None => Self { from: Origin::Main, start: main, last: main, parts: Vec::new() },
        }
    }

    /// Names the part since the last call.
    pub fn lap(&mut self, name: &'static str) {
        self.push(name, Instant::now());
    }

    fn push(&mut self, name: &'static str, now: Instant) {
        self.parts.push(Part { name, seconds: (now - self.last).as_secs_f64() });
        self.last = now;
    }

    /// Adds the parts of setting up `engine`, which took the time since the last call.
    pub fn loaded(&mut self, engine: &Engine) {
        let times = engine.load_times();
        let end = Instant::now();
        let weights = (self.last + times.weights).min(end);
        self.push("weights to the device", weights);
        self.push("memory, kernels, recording the step", end);
    }

    /// Processes `prompt` and chooses the first token; then processes that one, if the context has room.
    ///
    /// # Errors
    /// The decoder's errors.
    pub fn finish(mut self, decoder: &mut dyn Decoder, prompt: &[u32]) -> Result<FirstToken> {
        let token = argmax(&decoder.prefill(prompt)?);
        self.lap("prompt");
        let seconds = (self.last - self.start).as_secs_f64();
        let first_step_seconds = match decoder.position() < decoder.context() {
            true => {
                decoder.step_greedy(token)?;
                Some(self.last.elapsed().as_secs_f64())
            }
            false => None,
        };
        let Self { from, parts, .. } = self;
        Ok(FirstToken { from, prompt_tokens: prompt.len(), seconds, parts, first_step_seconds })
    }
}

/// The age of this process, in steps of 10 ms; `None` if the system does not report it.
fn process_age() -> Option<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks = start_time(&stat).filter(|ticks| *ticks > 0)?;
    let per_second = u64::try_from(sysconf(SysconfVar::CLK_TCK).ok()??).ok()?;
    let start = Duration::from_nanos(ticks.checked_mul(1_000_000_000 / per_second.max(1))?);
    let now = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).ok()?);
    now.checked_sub(start)
}

/// The start time in clock ticks since boot: field 22, counted from the end of the name, which may contain
/// anything (`proc(5)`).
fn start_time(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(22 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_behind_any_name() {
        let line = "4711 (a ) b) R 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 123456 20";
        assert_eq!(start_time(line), Some(123_456));
        assert_eq!(start_time("4711 (x) R 1"), None);
        assert_eq!(start_time(""), None);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        struct Silent(usize, usize);
        impl Decoder for Silent {
            fn step(&mut self, _: u32) -> Result<Vec<f32>> {
                self.0 += 1;
                Ok(vec![0.0, 1.0])
            }
            fn truncate(&mut self, count: usize) -> Result<()> {
                self.0 = count.min(self.0);
                Ok(())
            }
            fn position(&self) -> usize {
                self.0
            }
            fn context(&self) -> usize {
                self.1
            }
        }
        let mut watch = Stopwatch::since_process_start(Instant::now());
        watch.lap("nothing");
        let first = watch.clone().finish(&mut Silent(0, 4), &[0; 3]).expect("steps");
        let sum: f64 = first.parts.iter().map(|p| p.seconds).sum();
        assert!((sum - first.seconds).abs() < 1e-9, "{sum} {}", first.seconds);
        assert!(first.first_step_seconds.is_some());
        let full = watch.finish(&mut Silent(0, 3), &[0; 3]).expect("steps");
        assert_eq!(full.first_step_seconds, None);
    }
}
