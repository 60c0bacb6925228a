//! A draft that is a model.

use std::fmt;

use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::speculate::draft::{Draft, Kind, Lengths, Proposal};

/// So many tokens are processed one at a time without copies of their logits; more as a prompt.
const FEW: usize = 8;

/// Proposes the most likely tokens of a model, usually a smaller one of the same vocabulary
/// ([`check_vocabularies`](crate::speculate::check_vocabularies)).
pub struct DraftModel {
    decoder: Box<dyn Decoder>,
    vocab: usize,
    /// The tokens in the decoder's context.
    held: Vec<u32>,
}

impl fmt::Debug for DraftModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DraftModel({} of {} positions)", self.held.len(), self.decoder.context())
    }
}

impl DraftModel {
    /// A draft of `decoder`, which has an empty context and a vocabulary of `vocab` tokens. Past its context
    /// and after tokens that it does not have it proposes nothing.
    pub fn new(decoder: Box<dyn Decoder>, vocab: usize) -> Self {
        Self { decoder, vocab, held: Vec::new() }
    }

    /// Processes the rest of `tokens`, and proposes `most` tokens.
    fn continued(&mut self, tokens: &[u32], most: usize) -> Result<Vec<u32>> {
        let shared = self.held.iter().zip(tokens).take_while(|(a, b)| a == b).count();
        // The last token gives the first proposal.
        let shared = shared.min(tokens.len() - 1);
        if shared < self.held.len() {
            self.held.truncate(shared);
            self.decoder.truncate(shared)?;
        }
        let (mut rest, mut proposed) = (&tokens[shared..], Vec::new());
        if rest.len() > FEW {
            let (before, last) = rest.split_at(rest.len() - 1);
            self.decoder.prefill(before)?;
            self.held.extend(before);
            rest = last;
        }
        let mut next = 0;
        for token in rest {
            next = self.decoder.step_greedy(*token)?;
            self.held.push(*token);
        }
        proposed.push(next);
        while proposed.len() < most {
            let token = next;
            next = self.decoder.step_greedy(token)?;
            self.held.push(token);
            proposed.push(next);
        }
        Ok(proposed)
    }
}

impl Draft for DraftModel {
    fn propose(&mut self, tokens: &[u32], lengths: &Lengths) -> Result<Proposal> {
        // The last proposed token is not processed.
        let room = (self.decoder.context() + 1).saturating_sub(tokens.len());
        let most = lengths.of(Kind::Model).min(room);
        let nothing = Proposal { tokens: Vec::new(), kind: Kind::Model };
        if most == 0 || tokens.iter().any(|token| *token as usize >= self.vocab) {
            return Ok(nothing);
        }
        match self.continued(tokens, most) {
            Ok(tokens) => Ok(Proposal { tokens, ..nothing }),
            Err(error) => {
                // How much of it was processed is not known. The first error is reported.
                self.held.clear();
                let _ = self.decoder.reset();
                Err(Error::Draft { source: Box::new(error) })
            }
        }
    }
}
