//! Constraints of a text.

use std::fmt::Debug;

/// Says before each token of a text which ones may come next.
///
/// A constraint is of one text at a time: a copy has its own place in it.
pub trait Constraint: Debug + Send + Sync {
    /// Begins a text.
    fn begin(&mut self);

    /// Makes the logits of all tokens that may not come next minus infinity. Tokens that end the text may
    /// come where the constraint holds for the text so far.
    ///
    /// # Errors
    /// [`GaveUp`] if no token may come, or if it takes too much work to know.
    fn restrict(&mut self, logits: &mut [f32]) -> Result<(), GaveUp>;

    /// Adds a token to the text. Returns whether the text is complete: whether nothing may come but its end.
    ///
    /// # Errors
    /// [`GaveUp`] if the token may not come, or if it takes too much work to know.
    fn accept(&mut self, token: u32) -> Result<bool, GaveUp>;

    /// A copy at the same place.
    fn copied(&self) -> Box<dyn Constraint>;
}

/// A constraint cannot say what comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GaveUp;

/// A constraint, and what it said last.
#[derive(Debug)]
pub(super) struct Constrained {
    inner: Box<dyn Constraint>,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    Complete,
    GaveUp,
}

impl Constrained {
    pub fn new(inner: Box<dyn Constraint>) -> Self {
        Self { inner, state: State::Open }
    }

    pub fn begin(&mut self) {
        self.inner.begin();
        self.state = State::Open;
    }

    pub fn restrict(&mut self, logits: &mut [f32]) {
        if self.inner.restrict(logits).is_err() {
            self.state = State::GaveUp;
        }
    }

    pub fn accept(&mut self, token: u32) {
        if self.state == State::GaveUp {
            return;
        }
        self.state = match self.inner.accept(token) {
            Ok(true) => State::Complete,
            Ok(false) => State::Open,
            Err(GaveUp) => State::GaveUp,
        };
    }

    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    pub fn gave_up(&self) -> bool {
        self.state == State::GaveUp
    }
}

impl Clone for Constrained {
    fn clone(&self) -> Self {
        Self { inner: self.inner.copied(), state: self.state }
    }
}

impl PartialEq for Constrained {
    /// Whether both are the same one: what constraints allow is not compared.
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(&raw const *self.inner, &raw const *other.inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Penalties, Sampler, SamplerOptions};

    /// Allows token 2 a number of times.
    #[derive(Clone, Debug)]
    struct Twos {
        left: usize,
        most: usize,
    }

    impl Constraint for Twos {
        fn begin(&mut self) {
            self.left = self.most;
        }

        fn restrict(&mut self, logits: &mut [f32]) -> Result<(), GaveUp> {
            if self.left == 0 {
                return Err(GaveUp);
            }
            (0..)
                .zip(logits)
                .for_each(|(token, logit)| *logit = if token == 2 { *logit } else { f32::NEG_INFINITY });
            Ok(())
        }

        fn accept(&mut self, token: u32) -> Result<bool, GaveUp> {
            assert_eq!(token, 2);
            self.left -= 1;
            Ok(self.left == 0)
        }

        fn copied(&self) -> Box<dyn Constraint> {
            Box::new(self.clone())
        }
    }

    #[test]
    fn only_what_the_constraint_allows_is_chosen_whatever_else_is_asked_for() {
        let penalties = Penalties { frequency: 2.0, repeat: 1.5, ..Penalties::NONE };
        for temperature in [0.0, 1.0] {
            let options = SamplerOptions { temperature, ..SamplerOptions::GREEDY };
            let sampler =
                Sampler::new(options).with_penalties(penalties).with_bias(vec![(0, 100.0), (2, -100.0)]);
            let mut sampler = sampler.with_constraint(Box::new(Twos { left: 0, most: 2 }));
            assert!(sampler.adjusts() && !sampler.is_greedy());
            let logits = [9.0, 3.0, -5.0, 1.0];
            for _ in 0..2 {
                sampler.begin(&[2, 2, 2]);
                assert_eq!((sampler.sample(&logits), sampler.is_complete()), (2, false));
                let mut copy = sampler.clone();
                assert_eq!((sampler.sample(&logits), sampler.is_complete()), (2, true));
                assert_eq!((copy.sample(&logits), copy.gave_up()), (2, false));
                copy.sample(&logits);
                assert!(copy.gave_up() && !sampler.gave_up());
            }
        }
    }
}
