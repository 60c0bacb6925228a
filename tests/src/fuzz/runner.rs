//! Runs the cases of a target, and notices those that panic or do not end.

use std::any::Any;
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::fuzz::target::Target;

/// Interval at which the progress of the cases is read.
const WATCH: Duration = Duration::from_millis(100);

/// The cases to run.
#[derive(Clone, Debug)]
pub struct Cases {
    /// The program that runs them for longer.
    pub program: &'static str,
    /// Seed of all of them.
    pub seed: u64,
    /// Their numbers.
    pub numbers: Range<u64>,
    /// No case but the first begins later than this after it.
    pub time: Duration,
    /// Whether to print the number of each case before it runs: for a process that a signal ends.
    pub trace: bool,
}

/// Cases that all ended as promised.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Their number.
    pub cases: u64,
    /// The time they took.
    pub elapsed: Duration,
    /// Further remarks about them.
    pub summary: String,
}

/// A case that broke a promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; again with: {program} --seed {seed} --case {case} {target}")]
pub struct Failure {
    /// The program that runs it again.
    pub program: &'static str,
    /// Name of the target.
    pub target: &'static str,
    /// Seed of the cases.
    pub seed: u64,
    /// Number of the case.
    pub case: u64,
    /// The event.
    pub what: String,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rate = self.cases as f64 / self.elapsed.as_secs_f64().max(1e-9);
        write!(f, "{} inputs in {:.1} s, {rate:.0} per second", self.cases, self.elapsed.as_secs_f64())?;
        if self.summary.is_empty() { Ok(()) } else { write!(f, "; {}", self.summary) }
    }
}

/// The generator of a case.
fn generator(target: &str, seed: u64, case: u64) -> StdRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&case.to_le_bytes());
    for (place, byte) in bytes[16..].iter_mut().zip(target.bytes()) {
        *place = byte;
    }
    StdRng::from_seed(bytes)
}

/// Runs cases of a target on a thread of their own, until all have run, time is up, or one fails. After a
/// case that does not end, its thread is left alone.
///
/// # Errors
/// The first case that panicked, or took longer than [`Target::bound`].
pub fn run(target: &Target, cases: &Cases) -> Result<Outcome, Failure> {
    let failure = |case, what: String| {
        let Cases { program, seed, .. } = *cases;
        Failure { program, target: target.name, seed, case, what }
    };
    let current = Arc::new(AtomicU64::new(cases.numbers.start));
    let (done, result) = channel();
    let (begun, wanted, target_of_thread) = (Arc::clone(&current), cases.clone(), *target);
    thread::spawn(move || {
        // Nobody listens after a case that took too long.
        let _ = done.send(loop_over(&target_of_thread, &wanted, &begun));
    });
    let (mut seen, mut since) = (cases.numbers.start, Instant::now());
    loop {
        match result.recv_timeout(WATCH) {
            Ok(Ok(outcome)) => return Ok(outcome),
            Ok(Err((case, text))) => return Err(failure(case, format!("panicked: {text}"))),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(failure(current.load(Relaxed), "the thread of the cases ended".to_owned()));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        let now = current.load(Relaxed);
        if now != seen {
            (seen, since) = (now, Instant::now());
        } else if since.elapsed() > target.bound {
            return Err(failure(now, format!("still running after {:?}", target.bound)));
        }
    }
}

/// Runs the cases; the error is the number of one that panicked, and what it said.
fn loop_over(target: &Target, cases: &Cases, current: &AtomicU64) -> Result<Outcome, (u64, String)> {
    let mut case = (target.start)();
    let began = Instant::now();
    let mut run = 0;
    for number in cases.numbers.clone() {
        if run > 0 && began.elapsed() >= cases.time {
            break;
        }
        current.store(number, Relaxed);
        if cases.trace {
            eprintln!("{} {number}", target.name);
        }
        let mut rng = generator(target.name, cases.seed, number);
        catch_unwind(AssertUnwindSafe(|| case.case(&mut rng))).map_err(|panic| (number, text(&*panic)))?;
        run += 1;
    }
    Ok(Outcome { cases: run, elapsed: began.elapsed(), summary: case.summary() })
}

/// The words of a panic.
fn text(panic: &(dyn Any + Send)) -> String {
    let words = panic.downcast_ref::<String>().map(String::as_str);
    words.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::Rng;

    const CASES: Cases =
        Cases { program: "hcq-fuzz", seed: 3, numbers: 0..1000, time: Duration::from_secs(60), trace: false };

    fn planted(start: fn() -> crate::fuzz::target::Case) -> Target {
        Target { name: "planted", about: "", bound: Duration::from_millis(300), start }
    }

    #[test]
    fn a_case_that_panics_is_named_and_panics_again_alone() {
        let target = planted(|| Box::new(|rng: &mut StdRng| assert!(rng.random_range(0..100) != 7, "seven")));
        let failure = run(&target, &CASES).unwrap_err();
        assert_eq!(failure.what, "panicked: seven");
        let one = Cases { numbers: failure.case..failure.case + 1, ..CASES };
        assert_eq!(run(&target, &one).unwrap_err(), failure);
        let line = format!("hcq-fuzz --seed 3 --case {} planted", failure.case);
        assert!(failure.to_string().ends_with(&line), "{failure}");
    }

    #[test]
    fn one_case_runs_however_little_time_there_is() {
        let target = planted(|| Box::new(|_: &mut StdRng| ()));
        assert_eq!(run(&target, &Cases { time: Duration::ZERO, ..CASES }).unwrap().cases, 1);
    }

    #[test]
    fn a_case_that_does_not_end_is_named() {
        let target = planted(|| {
            let mut count = 0;
            Box::new(move |_: &mut StdRng| {
                count += 1;
                if count == 3 {
                    thread::sleep(Duration::MAX);
                }
            })
        });
        let failure = run(&target, &CASES).unwrap_err();
        assert_eq!((failure.case, failure.what.as_str()), (2, "still running after 300ms"));
    }

    #[test]
    fn cases_end_with_their_time() {
        let target = planted(|| Box::new(|_: &mut StdRng| thread::sleep(Duration::from_millis(5))));
        let outcome = run(&target, &Cases { time: Duration::from_millis(50), ..CASES }).unwrap();
        assert!((1..=10).contains(&outcome.cases), "{outcome}");
    }
}
