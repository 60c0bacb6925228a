//! Models of a decoder and of a sequence that are too simple to be wrong, for tests of speculation.

use ga10b_llm::{Decoder, Error, Result, Sequences};

pub(crate) const VOCAB: u32 = 24;

/// The logits after `text`; `None` for the few texts that have none.
pub(crate) fn logits_of(text: &[u32]) -> Option<Vec<f32>> {
    let mut hash = 17u32;
    text.iter().for_each(|token| hash = (hash ^ token).wrapping_mul(0x9e37_79b1).rotate_left(7));
    let value = |i: u32| (hash.wrapping_mul(2 * i + 1).rotate_left(i) >> 20) as f32 / 512.0;
    (!hash.is_multiple_of(61)).then(|| (0..VOCAB).map(value).collect())
}

pub(crate) fn best(logits: &[f32]) -> u32 {
    let better = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
    (0..logits.len()).fold(0, better) as u32
}

/// The text that follows, until there are no logits.
pub(crate) fn continuation(tokens: &[u32], count: usize) -> Vec<u32> {
    let mut text = tokens.to_vec();
    while text.len() < tokens.len() + count {
        let Some(logits) = logits_of(&text) else { break };
        text.push(best(&logits));
    }
    text.split_off(tokens.len())
}

/// One token at a time.
pub(crate) struct Plain {
    pub(crate) tokens: Vec<u32>,
    pub(crate) context: usize,
}

impl Decoder for Plain {
    fn step(&mut self, token: u32) -> Result<Vec<f32>> {
        if token >= VOCAB {
            return Err(Error::Token { token, vocab: VOCAB as usize });
        }
        if self.tokens.len() == self.context {
            return Err(Error::ContextFull { position: self.context, context: self.context });
        }
        self.tokens.push(token);
        let position = self.tokens.len() - 1;
        logits_of(&self.tokens).ok_or_else(|| {
            self.tokens.clear();
            Error::NotFinite { phase: "step", layer: None, position }
        })
    }

    fn truncate(&mut self, count: usize) -> Result<()> {
        self.tokens.truncate(count);
        Ok(())
    }

    fn position(&self) -> usize {
        self.tokens.len()
    }

    fn context(&self) -> usize {
        self.context
    }
}

/// Several tokens at a time.
pub(crate) struct Several {
    pub(crate) tokens: Vec<u32>,
    pub(crate) context: usize,
    pub(crate) columns: usize,
    pub(crate) logits: Vec<Option<Vec<f32>>>,
}

/// One sequence without pages.
impl Sequences for Several {
    type Id = ();
    type Page = ();

    fn most_columns(&self) -> usize {
        self.columns
    }

    fn most_sequences(&self) -> usize {
        1
    }

    fn context(&self) -> usize {
        self.context
    }

    fn page_positions(&self) -> usize {
        self.context
    }

    fn free_pages(&self) -> usize {
        0
    }

    fn vocab(&self) -> usize {
        VOCAB as usize
    }

    fn admit_with(&mut self, _: &[&()], len: usize) -> Result<()> {
        assert_eq!((len, self.tokens.len()), (0, 0), "one sequence");
        Ok(())
    }

    fn keep_page(&mut self, (): (), _: usize) -> Result<()> {
        panic!("nothing is kept");
    }

    fn give_back(&mut self, (): ()) {}

    fn is_kept_alone(&self, (): &()) -> bool {
        false
    }

    fn release(&mut self, (): ()) -> Result<()> {
        panic!("it is not released");
    }

    fn truncate(&mut self, (): (), len: usize) -> Result<()> {
        self.tokens.truncate(len);
        Ok(())
    }

    fn position(&self, (): ()) -> Result<usize> {
        Ok(self.tokens.len())
    }

    fn pages_needed(&self, (): (), _: usize) -> Result<usize> {
        Ok(0)
    }

    fn fill(&mut self, work: &[((), u32)]) -> Result<()> {
        self.step(work).map(drop)
    }

    fn fill_with_states(&mut self, _: &[((), u32)]) -> Result<()> {
        panic!("nobody asks for states");
    }

    fn state(&self, _: usize) -> Result<Vec<f32>> {
        panic!("there are no states");
    }

    fn step(&mut self, work: &[((), u32)]) -> Result<Vec<Option<u32>>> {
        assert!(!work.is_empty() && work.len() <= self.columns, "a step of {} tokens", work.len());
        assert!(work.iter().all(|(_, token)| *token < VOCAB), "a token that does not exist");
        self.logits.clear();
        for (_, token) in work {
            self.tokens.push(*token);
            self.logits.push(logits_of(&self.tokens));
        }
        assert!(self.tokens.len() <= self.context, "past the context");
        Ok(self.logits.iter().map(|logits| logits.as_deref().map(best)).collect())
    }

    fn logits(&self, column: usize) -> Result<Vec<f32>> {
        Ok(self.logits[column].clone().expect("logits that are none"))
    }
}
