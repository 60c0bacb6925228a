//! Logarithms of the probabilities of tokens.

/// Logarithms of the probabilities of a choice, by the logits as the model gave them: before constraints, penalties,
/// biases and temperature.
#[derive(Clone, Debug, PartialEq)]
pub struct Logprobs {
    /// The token that was chosen.
    pub token: u32,
    /// Its own.
    pub chosen: f32,
    /// The most likely tokens and theirs, the most likely first.
    pub top: Vec<(u32, f32)>,
}

impl Logprobs {
    /// Of the choice of `token` among `logits`, with the `most` most likely tokens. NaN has no probability.
    pub fn of(token: u32, logits: &[f32], most: usize) -> Self {
        let best = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let there = logits.iter().filter(|logit| !logit.is_nan());
        let sum: f64 = there.map(|logit| f64::from(logit - best).exp()).sum();
        let logarithm = |logit: f32| (f64::from(logit - best) - sum.ln()) as f32;
        let mut order: Vec<(u32, f32)> =
            (0..).zip(logits.iter().copied()).filter(|(_, l)| !l.is_nan()).collect();
        let rank = |a: &(u32, f32), b: &(u32, f32)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if most > 0 && most < order.len() {
            order.select_nth_unstable_by(most - 1, rank);
        }
        order.truncate(most);
        order.sort_unstable_by(rank);
        let chosen = logits.get(token as usize).map_or(f32::NEG_INFINITY, |logit| logarithm(*logit));
        Self {
            token,
            chosen,
            top: order.into_iter().map(|(token, logit)| (token, logarithm(logit))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampler::{Sampler, SamplerOptions};

    #[test]
    fn probabilities_are_those_of_the_softmax() {
        let logits = [0.5f32.ln() + 7.0, f32::NAN, 0.3f32.ln() + 7.0, 0.2f32.ln() + 7.0];
        let found = Logprobs::of(2, &logits, 2);
        assert!((found.chosen.exp() - 0.3).abs() < 1e-5, "{found:?}");
        assert_eq!(found.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [0, 2]);
        assert!((found.top[0].1.exp() - 0.5).abs() < 1e-5, "{found:?}");
        assert_eq!(Logprobs::of(0, &logits, 9).top.len(), 3);
        assert!(Logprobs::of(0, &logits, 0).top.is_empty());
    }

    #[test]
    fn they_are_of_the_logits_before_all_changes() {
        let logits = [1.0f32, 3.0, 2.0];
        let mut sampler = Sampler::new(SamplerOptions::GREEDY).with_bias(vec![(1, -100.0)]).with_logprobs(1);
        assert!(!sampler.is_greedy());
        assert_eq!(
            (sampler.sample(&logits), sampler.take_logprobs()),
            (2, Some(Logprobs::of(2, &logits, 1)))
        );
        assert_eq!(sampler.take_logprobs(), None);
    }
}
