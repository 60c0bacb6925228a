//! Targets of fuzzing.

use std::time::Duration;

use rand::rngs::StdRng;

/// A target, ready for its cases.
pub trait Fuzz {
    /// Makes an input from a generator and hands it to what is fuzzed. Panics where a promise is broken.
    fn case(&mut self, rng: &mut StdRng);

    /// The summary of the cases so far; empty where that is nothing but their number.
    fn summary(&self) -> String {
        String::new()
    }
}

impl<F: FnMut(&mut StdRng)> Fuzz for F {
    fn case(&mut self, rng: &mut StdRng) {
        self(rng);
    }
}

/// A prepared target.
pub type Case = Box<dyn Fuzz>;

/// Something that takes inputs from others.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// The inputs, in words.
    pub about: &'static str,
    /// Longest time that one case may take on a busy machine.
    pub bound: Duration,
    /// Prepares the state that all cases share.
    pub start: fn() -> Case,
}
