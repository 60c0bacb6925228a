//! The choice of the next token from logits.
//!
//! The steps are in the order of other engines: keep the `top_k` most likely tokens, then the smallest set
//! with `top_p` of the probability, then those with at least `min_p` of the best one's probability, and draw
//! from the rest at the given temperature. Random numbers are from ChaCha8 (crate `rand_chacha`, whose output
//! for a seed is part of its interface), and weights are integers ([`arithmetic`]), so a seed gives the same
//! text everywhere: [`Sampler::sample`] on the CPU and the kernel
//! [`sample`](crate::kernels::sample) on the GPU choose the same token.
//!
//! Before all of that, a constraint excludes tokens ([`Constraint`]), and then penalties and biases change
//! the logits ([`Penalties`], [`Sampler::with_bias`]); the CPU then chooses, also where a GPU could.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

use crate::sampler::adjust::Adjustments;
use crate::sampler::arithmetic::{Draw, ONE, distance, key, weight};
use crate::sampler::constraint::Constrained;

mod adjust;
pub mod arithmetic;
mod constraint;
mod logprobs;

pub use adjust::Penalties;
pub use constraint::{Constraint, GaveUp};
pub use logprobs::Logprobs;

/// Options of a [`Sampler`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SamplerOptions {
    /// Divisor of the logits; 0 always takes the most likely token.
    pub temperature: f32,
    /// Number of most likely tokens that are kept; 0 keeps all.
    pub top_k: usize,
    /// Probability that is kept, from the most likely token on; 1 keeps all.
    pub top_p: f32,
    /// Least probability relative to the most likely token; 0 keeps all.
    pub min_p: f32,
    /// Start of the random sequence.
    pub seed: u64,
}

impl SamplerOptions {
    /// Always the most likely token.
    pub const GREEDY: Self = Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0 };
}

/// Chooses tokens, with its own random sequence.
#[derive(Clone, Debug, PartialEq)]
pub struct Sampler {
    options: SamplerOptions,
    random: ChaCha8Rng,
    adjustments: Adjustments,
    constrained: Option<Constrained>,
    /// Most likely tokens whose probabilities are kept, if they are.
    kept: Option<usize>,
    logprobs: Option<Logprobs>,
}

impl Sampler {
    /// A sampler at the start of its sequence.
    pub fn new(options: SamplerOptions) -> Self {
        let random = ChaCha8Rng::seed_from_u64(options.seed);
        let adjustments = Adjustments::default();
        Self { options, random, adjustments, constrained: None, kept: None, logprobs: None }
    }

    /// Sets how tokens that were there already become less likely.
    #[must_use]
    pub fn with_penalties(mut self, penalties: Penalties) -> Self {
        self.adjustments.penalties = penalties;
        self
    }

    /// Sets what is added to the logits of tokens. Tokens outside the vocabulary have no effect.
    #[must_use]
    pub fn with_bias(mut self, bias: Vec<(u32, f32)>) -> Self {
        self.adjustments.bias = bias;
        self
    }

    /// Sets what the text has to be.
    #[must_use]
    pub fn with_constraint(mut self, constraint: Box<dyn Constraint>) -> Self {
        self.constrained = Some(Constrained::new(constraint));
        self
    }

    /// Keeps the probability of each token that is chosen, and of the `most` most likely ones.
    #[must_use]
    pub fn with_logprobs(mut self, most: usize) -> Self {
        self.kept = Some(most);
        self
    }

    /// The probabilities of the last choice, if they are kept and were not taken.
    pub fn take_logprobs(&mut self) -> Option<Logprobs> {
        self.logprobs.take()
    }

    /// Begins a text after `prompt`, for the penalties and the constraint.
    pub fn begin(&mut self, prompt: &[u32]) {
        self.adjustments.begin(prompt);
        if let Some(constrained) = &mut self.constrained {
            constrained.begin();
        }
    }

    /// Whether a constraint, penalties or biases change the logits, or probabilities are kept: then they are needed
    /// on the CPU.
    pub fn adjusts(&self) -> bool {
        self.constrained.is_some() || !self.adjustments.are_none() || self.kept.is_some()
    }

    /// Whether the text is complete by its constraint: the last token that was chosen is the last one of the
    /// text.
    pub fn is_complete(&self) -> bool {
        self.constrained.as_ref().is_some_and(Constrained::is_complete)
    }

    /// Whether the constraint could not say which tokens may come ([`GaveUp`]): the last token that was
    /// chosen is not one of the text.
    pub fn gave_up(&self) -> bool {
        self.constrained.as_ref().is_some_and(Constrained::gave_up)
    }

    /// Whether the choice is the most likely token of the logits as they are, and no random number is used.
    pub fn is_greedy(&self) -> bool {
        self.takes_the_best() && !self.adjusts()
    }

    fn takes_the_best(&self) -> bool {
        self.options.temperature <= 0.0 || self.options.top_k == 1
    }

    /// The parameters of the next choice besides the logits; draws a random number.
    pub fn draw(&mut self) -> Draw {
        let SamplerOptions { temperature, top_k, top_p, min_p, .. } = self.options;
        let share = |p: f32| f64::from(p.max(0.0));
        Draw {
            top_k: u32::try_from(top_k).unwrap_or(0),
            // Exact: a share below 1 has 24 bits.
            top_p: if top_p >= 1.0 { Draw::ALL } else { (share(top_p) * 2f64.powi(64)) as u64 },
            least: (share(min_p.min(1.0)) * f64::from(ONE)).ceil() as u32,
            slope: (f64::from(Draw::PLAIN) / f64::from(temperature)).min(f32::MAX.into()) as f32,
            random: self.random.next_u64(),
        }
    }

    /// Chooses a token; `logits` has one entry per token of the vocabulary.
    ///
    /// NaN is never chosen. Without logits, token 0.
    ///
    /// With penalties or a constraint the token is taken for the next one of the text.
    pub fn sample(&mut self, logits: &[f32]) -> u32 {
        if !self.adjusts() {
            return self.choose(logits);
        }
        let mut adjusted = logits.to_vec();
        if let Some(constrained) = &mut self.constrained {
            constrained.restrict(&mut adjusted);
        }
        self.adjustments.apply(&mut adjusted);
        let token = self.choose(&adjusted);
        self.logprobs = self.kept.map(|most| Logprobs::of(token, logits, most));
        self.adjustments.add(token);
        if let Some(constrained) = &mut self.constrained {
            constrained.accept(token);
        }
        token
    }

    fn choose(&mut self, logits: &[f32]) -> u32 {
        match self.takes_the_best() {
            true => argmax(logits),
            false => choose(&self.draw(), logits),
        }
    }
}

/// The token that `draw` names among `logits`; the first if none can be chosen.
pub fn choose(draw: &Draw, logits: &[f32]) -> u32 {
    let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let there = logits.iter().enumerate().filter_map(|(token, &l)| Some((token as u32, distance(best, l)?)));
    let mut order: Vec<(u32, f32)> = there.collect();
    // Ties are ordered by token, so that the text is the same everywhere.
    let rank = |&(token, distance): &(u32, f32)| u64::from(key(distance)) << 32 | u64::from(token);
    let top_k = draw.top_k as usize;
    if top_k > 0 && top_k < order.len() {
        order.select_nth_unstable_by_key(top_k - 1, rank);
        order.truncate(top_k);
    }
    order.sort_unstable_by_key(rank);

    if draw.top_p != Draw::ALL {
        // Before the temperature, as in llama.cpp's default chain.
        let plain = |d: f32| u64::from(weight(d, Draw::PLAIN));
        let budget = draw.budget(order.iter().map(|&(_, d)| plain(d)).sum());
        let mut mass = 0;
        let kept = order.iter().take_while(|&&(_, d)| {
            let keep = mass < budget;
            mass += plain(d);
            keep
        });
        let kept = kept.count();
        order.truncate(kept);
    }
    let weights = || order.iter().map(|&(token, d)| (token, u64::from(draw.weight(d))));
    let unit = draw.unit(weights().map(|(_, weight)| weight).sum());
    let mut sum = 0;
    let drawn = weights().find(|(_, weight)| {
        sum += weight;
        sum > unit
    });
    drawn.map_or_else(|| argmax(logits), |(token, _)| token)
}

/// The index of the largest logit, the first of equals; NaN is ignored.
pub fn argmax(logits: &[f32]) -> u32 {
    let mut best = 0;
    let mut value = f32::NEG_INFINITY;
    for (token, &logit) in logits.iter().enumerate() {
        if logit > value {
            (best, value) = (token as u32, logit);
        }
    }
    best
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options() -> SamplerOptions {
        SamplerOptions { temperature: 1.0, seed: 5, ..SamplerOptions::GREEDY }
    }

    fn draw(options: SamplerOptions, logits: &[f32], count: usize) -> Vec<usize> {
        let mut sampler = Sampler::new(options);
        let mut seen = vec![0; logits.len()];
        (0..count).for_each(|_| seen[sampler.sample(logits) as usize] += 1);
        seen
    }

    #[test]
    fn greedy_takes_the_first_of_the_largest() {
        let mut sampler = Sampler::new(SamplerOptions::GREEDY);
        assert_eq!(sampler.sample(&[0.5, 2.0, f32::NAN, 2.0]), 1);
        assert_eq!(sampler.sample(&[]), 0);
    }

    #[test]
    fn a_seed_fixes_the_sequence_for_good() {
        let logits: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin()).collect();
        let mut sampler = Sampler::new(options());
        let tokens: Vec<u32> = (0..6).map(|_| sampler.sample(&logits)).collect();
        let mut again = Sampler::new(options());
        assert_eq!(tokens, (0..6).map(|_| again.sample(&logits)).collect::<Vec<_>>());
        let mut other = Sampler::new(SamplerOptions { seed: 6, ..options() });
        assert_ne!(tokens, (0..6).map(|_| other.sample(&logits)).collect::<Vec<_>>());
    }

    #[test]
    fn penalties_and_biases_change_the_choice() {
        let logits = [1.0f32, 3.0, 2.0];
        let greedy = || Sampler::new(SamplerOptions::GREEDY);
        let mut biased = greedy().with_bias(vec![(1, -100.0)]);
        assert!(biased.adjusts() && !biased.is_greedy());
        assert_eq!((biased.sample(&logits), biased.sample(&logits)), (2, 2));
        let mut penalized = greedy().with_penalties(Penalties { frequency: 0.75, ..Penalties::NONE });
        penalized.begin(&[1, 1, 1]);
        let text: Vec<u32> = (0..6).map(|_| penalized.sample(&logits)).collect();
        assert_eq!(text, [1, 1, 2, 1, 2, 0]);
        penalized.begin(&[]);
        assert_eq!(penalized.sample(&logits), 1);
        // A seed draws the same numbers, whatever is not changed.
        let mut plain = Sampler::new(options());
        let mut none = Sampler::new(options()).with_penalties(Penalties::NONE).with_bias(Vec::new());
        assert!((0..20).all(|_| plain.sample(&logits) == none.sample(&logits)));
    }

    #[test]
    fn frequencies_follow_the_softmax() {
        let logits = [1.0f32, 0.0, -1.0, 2.0];
        for temperature in [0.5f32, 1.0, 2.0] {
            let count = 20_000;
            let seen = draw(SamplerOptions { temperature, ..options() }, &logits, count);
            let total: f32 = logits.iter().map(|l| (l / temperature).exp()).sum();
            for (seen, logit) in seen.iter().zip(logits) {
                let expected = (logit / temperature).exp() / total;
                let found = *seen as f32 / count as f32;
                // Five standard deviations of a binomial fraction.
                let bound = 5.0 * (expected * (1.0 - expected) / count as f32).sqrt();
                assert!((found - expected).abs() < bound, "{found} {expected} at {temperature}");
            }
        }
    }

    #[test]
    fn top_p_keeps_the_token_that_crosses_the_limit() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()];
        let seen = draw(SamplerOptions { top_p: 0.6, ..options() }, &logits, 500);
        assert!(seen[0] > 0 && seen[1] > 0 && seen[2] == 0, "{seen:?}");
    }

    #[test]
    fn min_p_is_relative_to_the_best_token() {
        let logits = [0.5f32.ln(), 0.3f32.ln(), 0.2f32.ln()];
        let seen = draw(SamplerOptions { min_p: 0.5, ..options() }, &logits, 500);
        assert!(seen[0] > 0 && seen[1] > 0 && seen[2] == 0, "{seen:?}");
    }

    proptest! {
        #[test]
        fn any_logits_give_a_token_that_is_allowed(
            logits in prop::collection::vec(prop_oneof![
                8 => -30.0f32..30.0,
                1 => Just(f32::NAN),
                1 => Just(f32::NEG_INFINITY),
                1 => Just(f32::INFINITY),
            ], 1..200),
            temperature in 0.0f32..3.0,
            top_k in 0usize..20,
            top_p in 0.0f32..=1.0,
            min_p in 0.0f32..=1.0,
            seed: u64,
        ) {
            let options = SamplerOptions { temperature, top_k, top_p, min_p, seed };
            let token = Sampler::new(options).sample(&logits) as usize;
            prop_assert!(token < logits.len());
            let mut ranked: Vec<f32> = logits.iter().copied().filter(|l| !l.is_nan()).collect();
            ranked.sort_by(|a, b| b.total_cmp(a));
            if ranked.first().is_some_and(|l| *l > f32::NEG_INFINITY) {
                prop_assert!(logits[token] > f32::NEG_INFINITY);
                let limit = if top_k == 0 { ranked.len() } else { top_k.min(ranked.len()) };
                prop_assert!(logits[token] >= ranked[limit - 1]);
                let ratio = f64::from(logits[token] - ranked[0]).exp();
                prop_assert!(logits[token] == ranked[0] || temperature == 0.0 || ratio >= f64::from(min_p));
            }
        }
    }
}
