//! What is fuzzed.

use std::time::Duration;

use rand::rngs::StdRng;

/// What is fuzzed, ready for its cases.
pub trait Fuzz {
    /// Makes an input from a generator and hands it to what is fuzzed. Panics where a promise is broken.
    fn case(&mut self, rng: &mut StdRng);

    /// What the cases so far came to; empty where that is nothing but their number.
    fn summary(&self) -> String {
        String::new()
    }
}

impl<F: FnMut(&mut StdRng)> Fuzz for F {
    fn case(&mut self, rng: &mut StdRng) {
        self(rng);
    }
}

/// What prepares the cases of a target gives.
pub type Case = Box<dyn Fuzz>;

/// Something that takes inputs from others.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name on the command line.
    pub name: &'static str,
    /// What its inputs are.
    pub about: &'static str,
    /// Longest time that one case may take on a busy machine.
    pub bound: Duration,
    /// Prepares what all cases share.
    pub start: fn() -> Case,
}
