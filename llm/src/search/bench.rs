//! Compiling, checking and timing of candidates.

use std::collections::BTreeSet;
use std::time::Instant;

use hcq::{Buffer, Queue};

use crate::compare::Comparison;
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::error::{Error, Result};
use crate::kernels::choices::Kernels;
use crate::kernels::recipe::Recipe;
use crate::search::meter::Meter;
use crate::search::outcome::{Limits, Listener, Outcome, Progress, Rejected};
use crate::tuning::compile::Compiler;
use crate::tuning::entry::now;

/// A shape is chosen instead of the default if it takes at most this share of its time.
const GAIN: f64 = 0.98;
/// Largest error of a candidate's results relative to the default's: rounding in another order.
const NMSE: f64 = 1e-6;

/// Context of a comparison of candidates.
pub(super) struct Bench<'a> {
    pub queue: Queue,
    pub model: DeviceModel,
    pub programs: Programs,
    pub compiler: &'a Compiler,
    pub meter: Meter,
    pub limits: &'a Limits,
    /// The end of the search's time.
    pub deadline: Instant,
    /// All kernels compiled so far.
    pub compiled: Kernels,
    /// Names of the kernels that ptxas refused.
    pub refused: BTreeSet<String>,
    pub outcome: Outcome,
    pub listener: &'a mut dyn Listener,
}

impl Bench<'_> {
    /// Whether the time has ended; if so, the outcome says that it was too short.
    pub fn is_over(&mut self) -> bool {
        let over = Instant::now() >= self.deadline;
        self.outcome.out_of_time |= over;
        over
    }

    /// Adds a candidate that cannot be used.
    pub fn reject(&mut self, kernel: &str, reason: String) {
        if !self.outcome.rejected.iter().any(|r| r.kernel == kernel && r.reason == reason) {
            self.outcome.rejected.push(Rejected { kernel: kernel.to_owned(), reason });
        }
    }

    /// Reports progress.
    pub fn progress(&mut self, what: &str, done: usize, total: usize) {
        self.listener.progress(&Progress { what: what.to_owned(), done, total });
    }

    /// Reports the results so far, with the kernels that they need.
    pub fn report(&mut self) -> Result<()> {
        self.outcome.entry.date = now();
        let needed = self.outcome.entry.recipes();
        let kept = self.compiled.iter().filter(|(name, _)| needed.contains_key(&***name));
        self.outcome.kernels = kept.map(|(name, cubin)| (name.clone(), cubin.clone())).collect();
        self.listener.found(&self.outcome)
    }

    /// Compiles kernels that are not committed, until the time ends.
    pub fn compile(&mut self, recipes: impl Iterator<Item = Recipe>) {
        let mut new: Vec<Recipe> = Vec::new();
        for recipe in recipes {
            if !recipe.is_committed() && !self.is_known(&recipe) && !new.contains(&recipe) {
                new.push(recipe);
            }
        }
        // Few at a time, so that progress is visible.
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
    pub fn has(&self, recipe: &Recipe) -> bool {
        recipe.is_committed() || self.compiled.contains_key(recipe.name().as_str())
    }

    /// Submits the recorded launches and waits for them.
    pub fn finish(&mut self) -> Result<()> {
        self.queue.submit()?.wait(self.model.patience)?;
        Ok(())
    }

    /// Whether the results of a candidate are right. `usual` computes the default's results again, to check
    /// that the device still works after a failure.
    pub fn accept(
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
                // NaN is not below the bound.
                let good = comparison.nmse() <= NMSE || wanted == found;
                if !good {
                    let reason = format!("its results differ, NMSE {:.1e}", comparison.nmse());
                    self.reject(kernel, reason);
                }
                Ok(good)
            }
            Err(Error::Device(error)) => {
                self.reject(kernel, error.to_string());
                let again = self.model.device.queue().map_err(Error::from).and_then(|queue| {
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

    /// Runs `run` until the clocks have risen.
    pub fn warm_up(&mut self, run: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<()> {
        let begin = Instant::now();
        while begin.elapsed() < self.limits.warm_up {
            run(self)?;
            self.finish()?;
        }
        Ok(())
    }

    /// The median time of each of `count` candidates in ns, timed alternately; `run` records one. `None` for
    /// candidates that were not timed.
    pub fn times(
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

    /// The time in ns of what `run` records, from its start to its end.
    fn time(&mut self, run: &mut dyn FnMut(&mut Self) -> Result<()>) -> Result<f64> {
        if let Meter::Count(counter) = &mut self.meter {
            counter.start();
        }
        let start = self.queue.timestamp()?;
        run(self)?;
        let end = self.queue.timestamp()?;
        self.finish()?;
        if let Meter::Count(counter) = &mut self.meter {
            return Ok(counter.predicted_ns());
        }
        let ns = end.ns().zip(start.ns());
        Ok(ns.map_or(f64::INFINITY, |(end, start)| end.saturating_sub(start) as f64))
    }

    /// A buffer of `count` single precision numbers.
    pub fn floats(&self, count: u64) -> Result<Buffer> {
        Ok(self.model.device.alloc(4 * count)?)
    }
}

/// The median; of an even number of times the smaller middle one.
fn median(mut times: Vec<f64>) -> Option<f64> {
    times.sort_by(f64::total_cmp);
    times.get(times.len().saturating_sub(1) / 2).copied()
}

/// Index and time of the fastest: the first unless another is clearly faster.
pub(super) fn fastest(times: &[Option<f64>]) -> Option<(usize, f64)> {
    let usual = (*times.first()?)?;
    let timed = times.iter().enumerate().filter_map(|(i, t)| Some((i, (*t)?)));
    let best = timed.min_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(if best.1 <= GAIN * usual { best } else { (0, usual) })
}

/// The time of one of `count` launches that took `ns` together.
pub(super) fn each(ns: f64, count: usize) -> u64 {
    (ns / count as f64).round() as u64
}

/// `count` numbers between -1 and 1, always the same ones.
pub(super) fn numbers(count: usize) -> impl Iterator<Item = f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 16) as f32 / 32768.0 - 1.0)
}

/// Writes `count` of [`numbers`] to the start of `buffer`.
pub(super) fn fill(buffer: &Buffer, count: usize) -> Result<()> {
    Ok(buffer.write_slice(0, &numbers(count).collect::<Vec<_>>())?)
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
    fn numbers_are_small_and_differ() {
        let values: Vec<f32> = numbers(1000).collect();
        assert!(values.iter().all(|v| v.abs() <= 1.0) && values[1] != values[2]);
    }
}
