//! Tokens with their probabilities, until it is certain that their text is part of the answer.

use std::collections::VecDeque;

use crate::serve::job::{Piece, Weighed};

/// The tokens of a text whose end is held back.
#[derive(Debug, Default)]
pub struct Weighing {
    /// Bytes of all tokens, and of the text that is certain.
    pushed: usize,
    certain: usize,
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

    /// The text that is certain now, with the tokens that end in it.
    pub fn pass(&mut self, text: String) -> Piece {
        self.certain += text.len();
        let count = self.held.iter().take_while(|(_, end, _)| *end <= self.certain).count();
        Piece { text, tokens: self.held.drain(..count).map(|(.., token)| token).collect() }
    }

    /// The last text, with the tokens that begin in it: those of a stop string are not part of the answer.
    pub fn finish(mut self, text: String) -> Piece {
        let mut piece = self.pass(text);
        let rest = self.held.into_iter().take_while(|(begin, ..)| *begin < self.certain);
        piece.tokens.extend(rest.map(|(.., token)| token));
        piece
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
        let numbers = |piece: Piece| piece.tokens.iter().map(|token| token.token).collect::<Vec<_>>();
        let mut weighing = Weighing::default();
        weighing.push("abc", token(1));
        assert!(numbers(weighing.pass("ab".into())).is_empty());
        weighing.push("", token(2));
        weighing.push("de", token(3));
        assert_eq!(numbers(weighing.pass("c".into())), [1, 2]);
        weighing.push("fg", token(4));
        weighing.push("h", token(5));
        assert_eq!(numbers(weighing.finish("def".into())), [3, 4]);
    }
}
