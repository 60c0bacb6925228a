//! Tokens with their probabilities, until it is certain that their text is part of the answer.

use std::collections::VecDeque;

use crate::serve::job::Weighed;

/// The tokens of a text whose end is held back.
#[derive(Debug, Default)]
pub struct Weighing {
    /// Bytes of all tokens.
    pushed: usize,
    /// The begin and the end of each token.
    held: VecDeque<(usize, usize, Weighed)>,
}

impl Weighing {
    /// Adds a token, whose text is `piece`.
    pub fn push(&mut self, piece: &str, token: Option<Weighed>) {
        let begin = self.pushed;
        self.pushed += piece.len();
        self.held.extend(token.map(|token| (begin, self.pushed, token)));
    }

    /// The tokens that end in the first `certain` bytes, as far as they were not passed on.
    pub fn pass(&mut self, certain: usize) -> Vec<Weighed> {
        let count = self.held.iter().take_while(|(_, end, _)| *end <= certain).count();
        self.held.drain(..count).map(|(.., token)| token).collect()
    }

    /// The last tokens, which begin in `certain` bytes: those of a stop string are not part of the answer.
    pub fn finish(mut self, certain: usize) -> Vec<Weighed> {
        let mut tokens = self.pass(certain);
        let rest = self.held.into_iter().take_while(|(begin, ..)| *begin < certain);
        tokens.extend(rest.map(|(.., token)| token));
        tokens
    }
}

#[cfg(test)]
mod tests {
    use ga10b_llm::sampler::Logprobs;

    use super::*;

    #[test]
    fn tokens_go_with_their_text() {
        let logprobs = Some(Logprobs { token: 0, chosen: 0.0, top: Vec::new() });
        let token = |token| Some(Weighed { token, characters: 1, logprobs: logprobs.clone() });
        let numbers = |tokens: Vec<Weighed>| tokens.iter().map(|token| token.token).collect::<Vec<_>>();
        let mut weighing = Weighing::default();
        weighing.push("abc", token(1));
        assert!(numbers(weighing.pass(2)).is_empty());
        weighing.push("", token(2));
        weighing.push("de", token(3));
        assert_eq!(numbers(weighing.pass(3)), [1, 2]);
        weighing.push("fg", token(4));
        weighing.push("h", token(5));
        assert_eq!(numbers(weighing.finish(6)), [3, 4]);
    }
}
