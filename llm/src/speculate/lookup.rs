//! Prompt lookup: what followed the last tokens where the text had them before.
//!
//! It pays for texts that repeat their prompt or themselves: summaries, answers with quotations, edited code.

use crate::error::Result;
use crate::speculate::draft::{Draft, Kind, Lengths, Proposal, Text};

/// Most tokens that are compared.
const LONGEST: usize = 3;

/// Proposes what followed the longest match of the last three to one tokens, of several the newest one. Where
/// the match reaches into the text's end, the repetition goes on.
///
/// A proposal takes one pass over the context, some microseconds per ten thousand tokens.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lookup;

/// End of the longest match, and its length.
fn longest_match(tokens: &[u32]) -> Option<(usize, usize)> {
    let mut best = None;
    for end in (1..tokens.len()).rev() {
        let pairs = tokens[..end].iter().rev().zip(tokens.iter().rev()).take(LONGEST);
        let length = pairs.take_while(|(a, b)| a == b).count();
        if length > best.map_or(0, |(_, length)| length) {
            best = Some((end, length));
        }
        if length == LONGEST {
            break;
        }
    }
    best
}

/// The proposal for a text.
fn continuation(tokens: &[u32], lengths: &Lengths) -> Proposal {
    let Some((end, length)) = longest_match(tokens) else {
        return Proposal { tokens: Vec::new(), kind: Kind::MatchOfOne };
    };
    let kind = match length {
        1 => Kind::MatchOfOne,
        2 => Kind::MatchOfTwo,
        _ => Kind::MatchOfThree,
    };
    let repetition = tokens[end..].iter().cycle();
    Proposal { tokens: repetition.take(lengths.of(kind)).copied().collect(), kind }
}

impl Draft for Lookup {
    /// Each text gets an equal part of the columns, and of those that the texts before it left.
    fn propose(&mut self, texts: &[Text<'_>], mut columns: usize) -> Result<Vec<Proposal>> {
        let mut all = Vec::new();
        for (number, text) in texts.iter().enumerate() {
            let share = columns.div_ceil(texts.len() - number);
            let proposal = continuation(text.tokens, &text.lengths.at_most(share));
            columns -= proposal.tokens.len();
            all.push(proposal);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proposal(tokens: &[u32], most: usize) -> (Vec<u32>, Kind) {
        let Proposal { tokens, kind } = continuation(tokens, &Lengths::all(most));
        (tokens, kind)
    }

    #[test]
    fn the_longest_match_is_continued_and_of_equals_the_newest() {
        assert_eq!(proposal(&[1, 2, 3, 4, 9, 3, 5, 1, 2, 3], 3), (vec![4, 9, 3], Kind::MatchOfThree));
        assert_eq!(proposal(&[2, 3, 4, 7, 2, 3, 5, 8, 2, 3], 1), (vec![5], Kind::MatchOfTwo));
        assert_eq!(proposal(&[3, 4, 3, 5, 3], 1), (vec![5], Kind::MatchOfOne));
        assert!(proposal(&[1, 2, 3], 4).0.is_empty());
        assert!(proposal(&[1], 4).0.is_empty());
        assert!(proposal(&[1, 2, 1], 0).0.is_empty());
    }

    #[test]
    fn a_repetition_goes_on() {
        assert_eq!(proposal(&[5, 5], 4), (vec![5; 4], Kind::MatchOfOne));
        assert_eq!(proposal(&[1, 2, 3, 1, 2, 3], 5), (vec![1, 2, 3, 1, 2], Kind::MatchOfThree));
    }
}
