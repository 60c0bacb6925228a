//! Searches the shapes of kernels that are fastest on a device for a model.
//!
//! Candidates are compiled, launched once and compared with what the usual shape gives, and then timed in turns with it on the
//! model's own matrices; the median of several turns counts. What does not fit the device, fails or differs is rejected.

mod gemm;
mod matvec;
mod meter;
mod step;

use std::collections::BTreeSet;
use std::time::{Duration, Instant, SystemTime};

use hcq::{Buffer, Device, Queue};

use crate::compare::Comparison;
use crate::engine::matrix::fits;
use crate::engine::patience;
use crate::engine::plan::{ModelMemory, Plan};
use crate::engine::programs::Programs;
use crate::error::{Error, Result};
use crate::kernels::{CacheType, Recipe};
use crate::model::Model;
use crate::tuning::{Compiler, Entry, Kernels, Method, Subject, Tuning};

pub use meter::{Counter, Meter};

/// What is searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The kernel that does a whole step in one launch.
    Step,
    /// Matrix times vector, as `--engine operations` and the ends of prompts use it.
    Matvec,
    /// Matrix times the tokens of a prompt.
    Prompt,
}

impl Part {
    /// All of them.
    pub const ALL: [Part; 3] = [Part::Step, Part::Matvec, Part::Prompt];

    /// Its name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Part::Step => "step",
            Part::Matvec => "matvec",
            Part::Prompt => "prompt",
        }
    }
}

/// How far a search goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// What is searched, in this order.
    pub parts: Vec<Part>,
    /// Time after which no further candidate is begun. Parts share what is left of it evenly.
    pub budget: Duration,
    /// Turns of which the median counts.
    pub repeats: usize,
    /// For how long the device works before it is measured.
    pub warm_up: Duration,
    /// Positions that there is room for; prompts are as long at most.
    pub context: usize,
    /// Candidates per kernel at most.
    pub candidates: usize,
}

/// How far a search is.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// What is being done.
    pub what: String,
    /// Candidates of this part that are done, and all of them.
    pub done: usize,
    /// All of them.
    pub total: usize,
}

/// What was found for one kernel and matrix.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The part.
    pub part: Part,
    /// The kernel, and the matrix.
    pub what: String,
    /// The usual shape.
    pub usual: String,
    /// Time with it, in ns.
    pub usual_ns: u64,
    /// The fastest shape that there was, which is the usual one unless another one is clearly faster.
    pub chosen: String,
    /// Time with it, in ns.
    pub ns: u64,
    /// Candidates that were timed beside the usual one.
    pub tried: usize,
}

/// A candidate that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The kernel.
    pub kernel: String,
    /// Why.
    pub reason: String,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// To be kept.
    pub entry: Entry,
    /// The kernels that `entry` names.
    pub kernels: Kernels,
    /// What was found, in the order of the search.
    pub findings: Vec<Finding>,
    /// What cannot be used.
    pub rejected: Vec<Rejected>,
    /// Parts that were left out, and why.
    pub left_out: Vec<String>,
    /// Whether there were candidates for which there was no time.
    pub out_of_time: bool,
}

/// Who hears of a search.
pub trait Listener: Send {
    /// Tensor bytes brought to the device, and in all.
    fn loading(&mut self, done: u64, total: u64);

    /// A candidate is about to be tried.
    fn progress(&mut self, progress: &Progress);

    /// Something has been found: worth keeping, whatever comes after.
    ///
    /// # Errors
    /// End the search.
    fn found(&mut self, outcome: &Outcome) -> Result<()>;
}

/// A shape is taken instead of the usual one if it needs at most this share of its time.
const GAIN: f64 = 0.98;
/// How far results may be from those of the usual shape: rounding in another order.
const NMSE: f64 = 1e-6;

/// Searches the shapes for `model` on `device`.
///
/// # Errors
/// As [`Engine::new`](crate::engine::Engine::new); what `listener` reports; [`Error::TuningStopped`] if a candidate brings the device down.
pub fn search(
    device: &Device,
    model: &Model,
    compiler: &Compiler,
    meter: Meter,
    limits: &Limits,
    listener: &mut dyn Listener,
) -> Result<Outcome> {
    let (total, mut done) = (model.tensor_bytes(), 0);
    let context = limits.context.clamp(1, model.config.context);
    let room = (context, CacheType::F16);
    let (plan, memory, programs) = Plan::new(device, model, room, &Tuning::default(), &mut |bytes| {
        done += bytes;
        listener.loading(done, total);
    })?;
    let entry = Entry {
        subject: Subject::new(device.info(), model),
        date: now(),
        method: match meter {
            Meter::Clock => Method::Measured,
            Meter::Count(_) => Method::Predicted,
        },
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ptxas: compiler.version().to_owned(),
        step: None,
        matvec: Vec::new(),
        gemm: Vec::new(),
        kernels: Vec::new(),
    };
    let outcome = Outcome {
        entry,
        kernels: Kernels::new(),
        findings: Vec::new(),
        rejected: Vec::new(),
        left_out: Vec::new(),
        out_of_time: false,
    };
    let mut bench = Bench {
        device,
        queue: device.queue()?,
        model,
        context,
        plan,
        memory,
        programs,
        compiler,
        meter,
        limits,
        patience: patience(device, model),
        deadline: Instant::now(),
        compiled: Kernels::new(),
        refused: BTreeSet::new(),
        outcome,
        listener,
    };
    let end = Instant::now() + limits.budget;
    for (i, part) in limits.parts.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        bench.deadline = Instant::now() + left / (limits.parts.len() - i) as u32;
        match part {
            Part::Step => step::search(&mut bench)?,
            Part::Matvec => matvec::search(&mut bench)?,
            Part::Prompt => gemm::search(&mut bench)?,
        }
        bench.tell()?;
    }
    Ok(bench.outcome)
}

/// The time in UTC.
fn now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

/// What candidates are measured with.
struct Bench<'a> {
    device: &'a Device,
    queue: Queue,
    model: &'a Model,
    context: usize,
    plan: Plan,
    memory: ModelMemory,
    programs: Programs,
    compiler: &'a Compiler,
    meter: Meter,
    limits: &'a Limits,
    /// The longest that a launch may take.
    patience: Duration,
    /// When the part that is searched ends.
    deadline: Instant,
    /// All kernels compiled so far.
    compiled: Kernels,
    /// Names of those that ptxas refused.
    refused: BTreeSet<String>,
    outcome: Outcome,
    listener: &'a mut dyn Listener,
}

impl Bench<'_> {
    /// Whether the time of the part is over; remembers that it was asked for more.
    fn is_over(&mut self) -> bool {
        let over = Instant::now() >= self.deadline;
        self.outcome.out_of_time |= over;
        over
    }

    fn reject(&mut self, kernel: &str, reason: String) {
        if !self.outcome.rejected.iter().any(|r| r.kernel == kernel && r.reason == reason) {
            self.outcome.rejected.push(Rejected { kernel: kernel.to_owned(), reason });
        }
    }

    /// Whether a candidate with `warps` resident on an SM can be compared with the usual shape, which has `usual`. What is counted
    /// says nothing of latencies, which fewer warps hide less of.
    fn is_judged(&mut self, kernel: &str, warps: u32, usual: u32) -> bool {
        let judged = matches!(self.meter, Meter::Clock) || warps >= usual;
        if !judged {
            self.reject(
                kernel,
                format!("{warps} warps on an SM, not {usual}: what that costs is not predicted"),
            );
        }
        judged
    }

    fn progress(&mut self, what: &str, done: usize, total: usize) {
        self.listener.progress(&Progress { what: what.to_owned(), done, total });
    }

    /// Tells of what was found, with the kernels that it needs.
    fn tell(&mut self) -> Result<()> {
        self.outcome.entry.date = now();
        let needed = self.outcome.entry.recipes();
        let kept = self.compiled.iter().filter(|(name, _)| needed.contains_key(&***name));
        self.outcome.kernels = kept.map(|(name, cubin)| (name.clone(), cubin.clone())).collect();
        self.listener.found(&self.outcome)
    }

    /// Compiles what is not committed, as far as there is time.
    fn compile(&mut self, recipes: impl Iterator<Item = Recipe>) {
        let mut new: Vec<Recipe> = Vec::new();
        for recipe in recipes {
            if !recipe.is_committed() && !self.is_known(&recipe) && !new.contains(&recipe) {
                new.push(recipe);
            }
        }
        // As many as there are cores, so that progress shows.
        let some = 2 * rayon::current_num_threads();
        for (i, chunk) in new.chunks(some).enumerate() {
            self.progress("compiling", i * some, new.len());
            let results = self.compiler.compile_all(chunk, self.deadline);
            for (recipe, result) in chunk.iter().zip(results) {
                let name = recipe.name();
                match result {
                    Some(Ok(cubin)) => {
                        self.programs.add(&name, cubin.clone());
                        self.compiled.insert(name.into(), cubin);
                    }
                    Some(Err(error)) => {
                        self.reject(&name, error.to_string());
                        self.refused.insert(name);
                    }
                    None => self.outcome.out_of_time = true,
                }
            }
        }
    }

    fn is_known(&self, recipe: &Recipe) -> bool {
        let name = recipe.name();
        self.compiled.contains_key(name.as_str()) || self.refused.contains(&name)
    }

    /// Whether there is a kernel of `recipe`.
    fn has(&self, recipe: &Recipe) -> bool {
        recipe.is_committed() || self.compiled.contains_key(recipe.name().as_str())
    }

    /// Submits what is recorded and waits for it.
    fn finish(&mut self) -> Result<()> {
        self.queue.submit()?.wait(self.patience)?;
        Ok(())
    }

    /// Judges the results of a candidate. `usual` gives the usual ones again, where the device has to show that it still works.
    fn accept(
        &mut self,
        kernel: &str,
        wanted: &[f32],
        found: Result<Vec<f32>>,
        usual: &mut dyn FnMut(&mut Self) -> Result<Vec<f32>>,
    ) -> Result<bool> {
        match found {
            Ok(found) => {
                let mut comparison = Comparison::new();
                comparison.add(wanted, &found);
                // What is no number is not below.
                let good = comparison.nmse() <= NMSE || wanted == found;
                if !good {
                    let reason = format!("its results differ, NMSE {:.1e}", comparison.nmse());
                    self.reject(kernel, reason);
                }
                Ok(good)
            }
            Err(Error::Device(error)) => {
                self.reject(kernel, error.to_string());
                let again = self.device.queue().map_err(Error::from).and_then(|queue| {
                    self.queue = queue;
                    usual(self)
                });
                match again {
                    Ok(_) => Ok(false),
                    Err(source) => {
                        Err(Error::TuningStopped { candidate: kernel.to_owned(), source: Box::new(source) })
                    }
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Runs `run` until the clocks are up.
    fn warm_up(&mut self, run: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < self.limits.warm_up {
            run(self)?;
            self.finish()?;
        }
        Ok(())
    }

    /// The median time of each of `count` candidates in ns, timed in turns; `run` records one. `None` where there was no time.
    fn times(
        &mut self,
        count: usize,
        run: &mut dyn FnMut(&mut Self, usize) -> Result<()>,
    ) -> Result<Vec<Option<f64>>> {
        let mut all = vec![Vec::new(); count];
        'turns: for turn in 0..self.limits.repeats.max(1) {
            for (i, times) in all.iter_mut().enumerate() {
                if (turn > 0 || i > 0) && self.is_over() {
                    break 'turns;
                }
                times.push(self.time(&mut |bench| run(bench, i))?);
            }
        }
        Ok(all.into_iter().map(median).collect())
    }

    /// A buffer of single precision numbers.
    fn floats(&self, count: u64) -> Result<Buffer> {
        Ok(self.device.alloc(4 * count)?)
    }
}

/// The middle one; of two the smaller.
fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len().saturating_sub(1) / 2).copied()
}

/// The fastest: the first unless another is clearly faster. With its time.
fn fastest(times: &[Option<f64>]) -> Option<(usize, f64)> {
    let usual = (*times.first()?)?;
    let timed = times.iter().enumerate().filter_map(|(i, t)| Some((i, (*t)?)));
    let best = timed.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(if best.1 <= GAIN * usual { best } else { (0, usual) })
}

/// The time of one of `count` that took `ns` together.
fn each(ns: f64, count: usize) -> u64 {
    (ns / count as f64).round() as u64
}

/// `count` numbers between -1 and 1, always the same.
fn numbers(count: usize) -> impl Iterator<Item = f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 16) as f32 / 32768.0 - 1.0)
}

/// Writes [`numbers`] to the beginning of `buffer`.
fn fill(buffer: &Buffer, count: usize) -> Result<()> {
    let bytes: Vec<u8> = numbers(count).flat_map(f32::to_le_bytes).collect();
    Ok(buffer.write(0, &bytes)?)
}

/// `count` numbers of `buffer` from byte `at` on.
fn read(buffer: &Buffer, at: u64, count: usize) -> Result<Vec<f32>> {
    let mut bytes = vec![0; 4 * count];
    buffer.read(at, &mut bytes)?;
    Ok(bytes.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_shape_stays_unless_another_is_clearly_faster() {
        assert_eq!(fastest(&[Some(100.0), Some(99.0), None]), Some((0, 100.0)));
        assert_eq!(fastest(&[Some(100.0), None, Some(97.0)]), Some((2, 97.0)));
        assert_eq!(fastest(&[None, Some(1.0)]), None);
        assert_eq!(fastest(&[]), None);
    }

    #[test]
    fn the_median_is_one_of_the_times() {
        assert_eq!(median(vec![]), None);
        assert_eq!(median(vec![3.0]), Some(3.0));
        assert_eq!(median(vec![4.0, 1.0]), Some(1.0));
        assert_eq!(median(vec![9.0, 1.0, 2.0]), Some(2.0));
    }

    #[test]
    fn times_are_dated() {
        assert!(now().len() == 20 && now().ends_with('Z'));
        let values: Vec<f32> = numbers(1000).collect();
        assert!(values.iter().all(|v| v.abs() <= 1.0) && values[1] != values[2]);
    }
}
