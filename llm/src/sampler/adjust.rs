//! Changes to the logits before a choice: penalties for tokens that were there already, and a bias per token.

use std::collections::{BTreeMap, VecDeque};

/// Penalties of tokens that were there already.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Penalties {
    /// Divisor of the positive logits, and factor of the negative ones, of the last tokens of prompt and text;
    /// 1 changes nothing.
    pub repeat: f32,
    /// Number of these last tokens.
    pub last: usize,
    /// Taken from the logit of each token that the text has, without its prompt; 0 changes nothing.
    pub presence: f32,
    /// Taken from the logit of a token for each time that the text has it, without its prompt; 0 changes
    /// nothing.
    pub frequency: f32,
}

impl Penalties {
    /// No penalties; the last 64 tokens, if the rest is set.
    pub const NONE: Self = Self { repeat: 1.0, last: 64, presence: 0.0, frequency: 0.0 };

    /// Whether logits stay as they are.
    pub fn are_none(&self) -> bool {
        !self.repeats() && self.presence == 0.0 && self.frequency == 0.0
    }

    fn repeats(&self) -> bool {
        self.repeat != 1.0 && self.last > 0
    }
}

/// Penalties and biases, and the tokens that they depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Adjustments {
    pub penalties: Penalties,
    /// Tokens, and what is added to their logits.
    pub bias: Vec<(u32, f32)>,
    /// The last tokens of prompt and text.
    recent: VecDeque<u32>,
    /// Number of each token in the text.
    counts: BTreeMap<u32, u32>,
}

impl Default for Adjustments {
    fn default() -> Self {
        Self {
            penalties: Penalties::NONE,
            bias: Vec::new(),
            recent: VecDeque::new(),
            counts: BTreeMap::new(),
        }
    }
}

impl Adjustments {
    /// Whether logits stay as they are.
    pub fn are_none(&self) -> bool {
        self.penalties.are_none() && self.bias.is_empty()
    }

    /// Begins a text after `prompt`.
    pub fn begin(&mut self, prompt: &[u32]) {
        self.counts.clear();
        self.recent.clear();
        if self.penalties.repeats() {
            self.recent.extend(&prompt[prompt.len().saturating_sub(self.penalties.last)..]);
        }
    }

    /// Adds a token to the text.
    pub fn add(&mut self, token: u32) {
        *self.counts.entry(token).or_default() += 1;
        if self.penalties.repeats() {
            self.recent.push_back(token);
            if self.recent.len() > self.penalties.last {
                self.recent.pop_front();
            }
        }
    }

    /// Changes the logits of the next token. Tokens outside the vocabulary have none.
    pub fn apply(&self, logits: &mut [f32]) {
        for &(token, bias) in &self.bias {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit += bias;
            }
        }
        let Penalties { repeat, presence, frequency, .. } = self.penalties;
        let mut recent: Vec<u32> = self.recent.iter().copied().collect();
        recent.sort_unstable();
        recent.dedup();
        for token in recent {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit = if *logit > 0.0 { *logit / repeat } else { *logit * repeat };
            }
        }
        for (&token, &count) in &self.counts {
            if let Some(logit) = logits.get_mut(token as usize) {
                *logit -= presence + frequency * count as f32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn adjusted(penalties: Penalties, prompt: &[u32], text: &[u32]) -> Vec<f32> {
        let mut adjustments = Adjustments { penalties, ..Adjustments::default() };
        adjustments.begin(prompt);
        text.iter().for_each(|token| adjustments.add(*token));
        let mut logits = vec![2.0, -2.0, 1.0, 4.0];
        adjustments.apply(&mut logits);
        logits
    }

    #[test]
    fn a_repeated_token_is_less_likely_whatever_its_sign_and_once() {
        let penalties = Penalties { repeat: 2.0, ..Penalties::NONE };
        assert_eq!(adjusted(penalties, &[0, 1], &[0, 0]), [1.0, -4.0, 1.0, 4.0]);
        let last = Penalties { last: 2, ..penalties };
        assert_eq!(adjusted(last, &[3, 3, 3], &[0, 1]), [1.0, -4.0, 1.0, 4.0]);
        assert_eq!(adjusted(last, &[3, 3, 0], &[1]), [1.0, -4.0, 1.0, 4.0]);
        assert_eq!(adjusted(Penalties { last: 0, ..penalties }, &[0], &[0]), [2.0, -2.0, 1.0, 4.0]);
    }

    #[test]
    fn presence_and_frequency_are_of_the_text_without_its_prompt() {
        let penalties = Penalties { presence: 0.5, frequency: 0.25, ..Penalties::NONE };
        assert_eq!(adjusted(penalties, &[0, 1], &[3, 3, 2]), [2.0, -2.0, 0.25, 3.0]);
    }

    #[test]
    fn a_bias_of_a_token_outside_the_vocabulary_is_none() {
        let adjustments = Adjustments { bias: vec![(1, 3.0), (9, 1.0)], ..Adjustments::default() };
        let mut logits = vec![0.0, 1.0];
        adjustments.apply(&mut logits);
        assert_eq!(logits, [0.0, 4.0]);
    }
}
