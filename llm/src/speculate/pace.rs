//! The number of tokens worth proposing: a model of cost that is measured while texts are decoded.
//!
//! If each proposed token is accepted with the probability `a`, a step of one token and `k` proposed ones
//! gives `1 + a + .. + a^k` tokens, in the time `t(1 + k) + k * d`: `t(n)` is that of a step of `n` tokens,
//! `d` that of the draft for a token. The `k` with the most tokens per second is taken; 0 is a plain step.
//! All are measured: `a`, of each kind of proposal, as a mean in which the last tokens count most; `t` and
//! `d` as the median of the last times, so that a delay has no influence, nor a draft that processes a whole
//! prompt. A `t` of fewer than three times lies on the line between its neighbours, or is that of the largest
//! number so far, so that it is tried. Now and then a plain step measures `t(1)`, and a token is proposed
//! where none would be, because a text may have become easier.

use std::array;
use std::collections::VecDeque;

use crate::speculate::draft::{KINDS, Kind, Lengths};

/// Of so many steps one is plain.
const PLAIN: u64 = 64;
/// Of so many steps one tries kinds that do not pay.
const TRIAL: u64 = 16;
/// Acceptance before anything is measured.
const FIRST_ACCEPTANCE: f64 = 0.7;
/// Part of a new token in the mean acceptance.
const TOKEN_SHARE: f64 = 1.0 / 16.0;
/// Times of which the median is taken.
const TIMES: usize = 5;
/// Fewer times say nothing.
const LEAST_TIMES: usize = 3;

/// The last times of something, in seconds.
#[derive(Clone, Debug, Default)]
struct Times(VecDeque<f64>);

impl Times {
    fn add(&mut self, seconds: f64) {
        if self.0.len() == TIMES {
            self.0.pop_front();
        }
        self.0.push_back(seconds);
    }

    /// The median; `None` while there are too few.
    fn get(&self) -> Option<f64> {
        let mut times: Vec<f64> = self.0.iter().copied().collect();
        times.sort_unstable_by(f64::total_cmp);
        (times.len() >= LEAST_TIMES).then(|| times[times.len() / 2])
    }
}

/// Decides how many tokens are proposed.
#[derive(Clone, Debug)]
pub struct Pace {
    /// Most tokens of a proposal.
    most: usize,
    /// False: always as many as possible.
    adaptive: bool,
    /// Steps so far.
    count: u64,
    /// Seconds of steps of 1, 2, .. tokens.
    steps: Vec<Times>,
    /// Seconds of the draft for a token.
    draft: Times,
    /// Accepted part of the tokens of each kind.
    accepted: [f64; KINDS],
}

impl Pace {
    /// Nothing is measured.
    pub fn new(most: usize, adaptive: bool) -> Self {
        let steps = vec![Times::default(); most + 1];
        let accepted = [FIRST_ACCEPTANCE; KINDS];
        Self { most, adaptive, count: 0, steps, draft: Times::default(), accepted }
    }

    /// The number of tokens of each kind that the next step takes.
    pub fn next(&mut self) -> Lengths {
        if !self.adaptive {
            return Lengths::all(self.most);
        }
        self.count += 1;
        let Some(plain) = self.steps[0].get() else { return Lengths::all(0) };
        if self.count.is_multiple_of(PLAIN) {
            return Lengths::all(0);
        }
        let trial = usize::from(self.count.is_multiple_of(TRIAL)).min(self.most);
        Lengths::new(array::from_fn(|kind| self.best(self.accepted[kind], plain).max(trial)))
    }

    /// The number of tokens that gives the most per second, by an acceptance and the time of a plain step.
    fn best(&self, acceptance: f64, plain: f64) -> usize {
        let (mut best, mut rate) = (0, 1.0 / plain);
        let (mut tokens, mut all) = (1.0, 1.0);
        let draft = self.draft.get().unwrap_or(0.0);
        for proposed in 1..=self.most {
            all *= acceptance;
            tokens += all;
            let own = tokens / (self.seconds(1 + proposed) + proposed as f64 * draft);
            if own > rate {
                (best, rate) = (proposed, own);
            }
        }
        best
    }

    /// Time of a step of `tokens` tokens, after a plain one was measured.
    fn seconds(&self, tokens: usize) -> f64 {
        let measured = |tokens: usize| Some((tokens as f64, self.steps[tokens - 1].get()?));
        let below = (1..=tokens).rev().find_map(measured);
        let above = (tokens..=self.steps.len()).find_map(measured);
        match (below, above) {
            (Some((from, low)), Some((to, high))) if to > from => {
                low + (high - low) * (tokens as f64 - from) / (to - from)
            }
            (Some((_, seconds)), _) | (None, Some((_, seconds))) => seconds,
            (None, None) => 0.0,
        }
    }

    /// A step of `tokens` tokens took so long.
    pub fn stepped(&mut self, tokens: usize, seconds: f64) {
        if let Some(times) = self.steps.get_mut(tokens - 1) {
            times.add(seconds);
        }
    }

    /// The draft took so long for `tokens` tokens.
    pub fn drafted(&mut self, tokens: usize, seconds: f64) {
        if tokens > 0 {
            self.draft.add(seconds / tokens as f64);
        }
    }

    /// A proposed token was the next one of the text, or was not.
    pub fn examined(&mut self, kind: Kind, accepted: bool) {
        let mean = &mut self.accepted[kind as usize];
        *mean += (f64::from(u8::from(accepted)) - *mean) * TOKEN_SHARE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lengths after `rounds` steps on a device with these times, of a draft that is right in `right` of 16
    /// tokens.
    fn after(rounds: usize, right: usize, time: &dyn Fn(usize) -> f64, draft: f64) -> (Pace, Vec<usize>) {
        let mut pace = Pace::new(7, true);
        let (mut lengths, mut tokens) = (Vec::new(), 0);
        for _ in 0..rounds {
            let length = pace.next().of(Kind::Model);
            pace.stepped(1 + length, time(1 + length));
            pace.drafted(length, draft * length as f64);
            for _ in 0..length {
                tokens += 5;
                let accepted = tokens % 16 < right;
                pace.examined(Kind::Model, accepted);
                if !accepted {
                    break;
                }
            }
            lengths.push(length);
        }
        (pace, lengths)
    }

    fn most_common(lengths: &[usize]) -> usize {
        let count = |n: usize| lengths.iter().filter(|length| **length == n).count();
        (0..8).max_by_key(|n| count(*n)).unwrap_or_default()
    }

    #[test]
    fn a_gpu_that_is_bound_by_its_weights_takes_all_that_a_good_draft_proposes() {
        let flat = |tokens: usize| 1e-3 + 1e-5 * tokens as f64;
        let (_, lengths) = after(300, 15, &flat, 0.0);
        assert_eq!(lengths[..3], [0; 3], "plain steps are measured first");
        assert_eq!(most_common(&lengths), 7);
        let plain = lengths.iter().filter(|length| **length == 0).count();
        assert_eq!(plain, 3 + 300 / 64);
    }

    #[test]
    fn where_a_token_costs_a_step_nothing_is_proposed_but_trials() {
        let linear = |tokens: usize| 1e-3 * tokens as f64;
        let (_, lengths) = after(800, 8, &linear, 0.0);
        let last = &lengths[400..];
        assert_eq!(most_common(last), 0, "{last:?}");
        assert!(last.contains(&1) && last.iter().sum::<usize>() <= 400 / 16, "{last:?}");
    }

    #[test]
    fn a_draft_that_is_slow_or_bad_is_shortened() {
        let flat = |tokens: usize| 1e-3 + 1e-6 * tokens as f64;
        let common = |right: usize, draft: f64| most_common(&after(600, right, &flat, draft).1[300..]);
        assert_eq!(common(15, 2e-3), 0, "slower than the target");
        let (good, fair) = (common(15, 2e-4), common(10, 2e-4));
        assert!(good > fair && fair > 0, "{good} and {fair}");
    }

    #[test]
    fn a_text_that_becomes_easier_is_noticed() {
        let linear = |tokens: usize| 1e-3 + 2e-4 * tokens as f64;
        let (mut pace, _) = after(400, 0, &linear, 0.0);
        assert_eq!(pace.best(pace.accepted[Kind::Model as usize], 1.2e-3), 0);
        let mut steps = 0;
        while pace.next().of(Kind::Model) < 7 {
            // The one of a trial.
            pace.examined(Kind::Model, true);
            steps += 1;
            assert!(steps < 200, "no end");
        }
    }

    #[test]
    fn times_between_those_measured_are_on_a_line() {
        let mut pace = Pace::new(7, true);
        (0..3).for_each(|_| pace.stepped(1, 1.0));
        assert_eq!(pace.seconds(8), 1.0);
        // A delay is not taken for the time of a step.
        [3.0, 90.0, 3.0].iter().for_each(|seconds| pace.stepped(5, *seconds));
        assert_eq!([1, 2, 3, 5, 8].map(|tokens| pace.seconds(tokens)), [1.0, 1.5, 2.0, 3.0, 3.0]);
    }

    #[test]
    fn a_fixed_length_is_kept() {
        let mut pace = Pace::new(3, false);
        (0..100).for_each(|_| pace.examined(Kind::Model, false));
        assert_eq!(pace.next(), Lengths::all(3));
    }
}
