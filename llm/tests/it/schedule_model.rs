//! A model of an engine that is too simple to be wrong, for tests of the scheduler.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Duration;

use ga10b_llm::speculate::{self, Draft, Kind, Proposal};
use ga10b_llm::{Cut, Error, Result, Sampler, Sequences};

pub(crate) const VOCAB: u32 = 64;

/// The tokens in a page. Its owners share it.
pub(crate) type Page = Rc<RefCell<Vec<u32>>>;

/// A sequence, and its pages.
#[derive(Debug, Default)]
pub(crate) struct Text {
    pub(crate) tokens: Vec<u32>,
    pub(crate) pages: Vec<Page>,
}

/// A page that is kept, by its address.
#[derive(Debug)]
pub(crate) struct Handle(usize);

/// Sequences whose next token is a number that all their tokens decide.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) pages: usize,
    pub(crate) page: usize,
    /// Tokens after whole pages that are a chunk; `None` if there are no chunks.
    pub(crate) least: Option<usize>,
    /// A token whose keys and values are no numbers, which only a look at them tells.
    pub(crate) poison: Option<u32>,
    /// Whether a text has steps of its own.
    pub(crate) alone: bool,
    pub(crate) context: usize,
    pub(crate) most: usize,
    pub(crate) next: u32,
    pub(crate) texts: BTreeMap<u32, Text>,
    pub(crate) kept: Vec<Page>,
    pub(crate) logits: Vec<Vec<f32>>,
    pub(crate) states: Vec<Vec<f32>>,
    /// Tokens of the last steps.
    pub(crate) steps: Vec<usize>,
    /// Number of chunks, or of their slices.
    pub(crate) chunks: usize,
    /// A chunk that has begun: its sequence, its tokens and its slices.
    pub(crate) begun: Option<(u32, Vec<u32>, usize)>,
}

/// A token in the cache that was written in the chunk from `first` on of `count` tokens. What follows is not
/// what follows the token as a column.
pub(crate) fn in_chunk(token: u32, (first, count): (usize, usize)) -> u32 {
    token | (first as u32 + 1) << 8 | (count as u32) << 20
}

/// A token in the cache that a step of a text that is alone wrote.
pub(crate) fn alone(token: u32) -> u32 {
    token | 1 << 31
}

/// The division of a prompt.
fn cut(tokens: usize, page: usize, least: Option<usize>) -> Cut {
    least.map_or(Cut::NONE, |least| Cut::new(tokens, page, least))
}

/// A prompt as the cache has it.
pub(crate) fn cached(prompt: &[u32], page: usize, least: Option<usize>) -> Vec<u32> {
    let cut = cut(prompt.len(), page, least);
    let mut text = vec![];
    while text.len() < prompt.len() {
        let first = text.len();
        match cut.chunk_at(first) {
            Some(count) => text.extend(prompt[first..][..count].iter().map(|t| in_chunk(*t, (first, count)))),
            None => text.push(prompt[first]),
        }
    }
    text
}

/// The logits after `text`.
pub(crate) fn logits_of(text: &[u32]) -> Vec<f32> {
    let mut hash = 17u32;
    text.iter().for_each(|token| hash = (hash ^ token).wrapping_mul(0x9e37_79b1).rotate_left(7));
    let value = |i: u32| (hash.wrapping_mul(2 * i + 1).rotate_left(i) >> 20) as f32 / 512.0;
    (0..VOCAB).map(value).collect()
}

/// The hidden state after `text`.
pub(crate) fn state_of(text: &[u32]) -> Vec<f32> {
    logits_of(text)[..3].to_vec()
}

pub(crate) fn best(logits: &[f32]) -> u32 {
    let better = |best: usize, i: usize| if logits[i] > logits[best] { i } else { best };
    (0..logits.len()).fold(0, better) as u32
}

impl Model {
    fn used(&self) -> usize {
        let pages = self.texts.values().flat_map(|text| &text.pages).chain(&self.kept);
        pages.map(|page| Rc::as_ptr(page) as usize).collect::<BTreeSet<_>>().len()
    }

    fn write(&mut self, work: &[(u32, u32)]) {
        assert!(!work.is_empty() && work.len() <= 32, "a step of {} tokens", work.len());
        self.steps.push(work.len());
        self.append(work);
    }

    fn append(&mut self, work: &[(u32, u32)]) {
        self.logits.clear();
        self.states.clear();
        for (id, token) in work {
            let text = self.texts.get_mut(id).expect("a sequence");
            let at = text.tokens.len() % self.page;
            if at == 0 {
                text.pages.push(Page::default());
            }
            let last = text.pages.last_mut().expect("a page");
            // The page to write to is of this sequence alone.
            if Rc::strong_count(last) > 1 {
                let cells = last.borrow().clone();
                *last = Rc::new(RefCell::new(cells));
            }
            let mut cells = last.borrow_mut();
            cells.truncate(at);
            cells.push(*token);
            text.tokens.push(*token);
            assert!(text.tokens.len() <= self.context, "past the context");
            self.logits.push(logits_of(&text.tokens));
            self.states.push(state_of(&text.tokens));
        }
        assert!(self.used() <= self.pages, "past the pages");
    }
}

impl Sequences for Model {
    type Id = u32;
    type Page = Handle;

    fn most_columns(&self) -> usize {
        32
    }

    fn columns_for(&self, tokens: usize) -> usize {
        tokens.next_multiple_of(8)
    }

    fn most_sequences(&self) -> usize {
        self.most
    }

    fn context(&self) -> usize {
        self.context
    }

    fn page_positions(&self) -> usize {
        self.page
    }

    fn free_pages(&self) -> usize {
        self.pages - self.used()
    }

    fn vocab(&self) -> usize {
        VOCAB as usize
    }

    fn admit_with(&mut self, pages: &[&Handle], len: usize) -> Result<u32> {
        assert!(self.texts.len() < self.most, "too many sequences");
        assert!(len <= self.context && pages.len() == len.div_ceil(self.page), "{pages:?} for {len}");
        let found = |handle: &&Handle| self.kept.iter().find(|page| Rc::as_ptr(page) as usize == handle.0);
        let pages: Vec<Page> = pages.iter().map(|page| found(page).expect("it is kept").clone()).collect();
        let mut tokens: Vec<u32> = pages.iter().flat_map(|page| page.borrow().clone()).collect();
        assert!(len <= tokens.len(), "{len} of {} tokens", tokens.len());
        tokens.truncate(len);
        self.next += 1;
        self.texts.insert(self.next, Text { tokens, pages });
        Ok(self.next)
    }

    fn keep_page(&mut self, id: u32, number: usize) -> Result<Handle> {
        let page = self.texts[&id].pages[number].clone();
        self.kept.push(Rc::clone(&page));
        Ok(Handle(Rc::as_ptr(&page) as usize))
    }

    fn give_back(&mut self, page: Handle) {
        let at = self.kept.iter().position(|kept| Rc::as_ptr(kept) as usize == page.0);
        self.kept.swap_remove(at.expect("it is kept"));
    }

    fn is_kept_alone(&self, page: &Handle) -> bool {
        let kept = self.kept.iter().find(|kept| Rc::as_ptr(kept) as usize == page.0);
        Rc::strong_count(kept.expect("it is kept")) == 1
    }

    fn release(&mut self, id: u32) -> Result<()> {
        self.texts.remove(&id).map(drop).ok_or(Error::Released)
    }

    fn truncate(&mut self, id: u32, len: usize) -> Result<()> {
        let page = self.page;
        self.begun.take_if(|(begun, ..)| *begun == id);
        let text = self.texts.get_mut(&id).ok_or(Error::Released)?;
        assert!(len <= text.tokens.len(), "{len} of {} tokens", text.tokens.len());
        text.tokens.truncate(len);
        text.pages.truncate(len.div_ceil(page));
        Ok(())
    }

    fn position(&self, id: u32) -> Result<usize> {
        self.texts.get(&id).map(|text| text.tokens.len()).ok_or(Error::Released)
    }

    fn pages_needed(&self, id: u32, tokens: usize) -> Result<usize> {
        let Text { tokens: own, pages } = self.texts.get(&id).ok_or(Error::Released)?;
        let len = own.len();
        let partial = pages.last().filter(|_| tokens > 0 && !len.is_multiple_of(self.page));
        let copy = partial.is_some_and(|last| Rc::strong_count(last) > 1);
        Ok((len + tokens).div_ceil(self.page) - len.div_ceil(self.page) + usize::from(copy))
    }

    fn fill(&mut self, work: &[(u32, u32)]) -> Result<()> {
        self.fill_with_states(work)?;
        self.states.clear();
        Ok(())
    }

    fn fill_with_states(&mut self, work: &[(u32, u32)]) -> Result<()> {
        self.write(work);
        self.logits.clear();
        Ok(())
    }

    fn state(&self, column: usize) -> Result<Vec<f32>> {
        Ok(self.states[column].clone())
    }

    fn step(&mut self, work: &[(u32, u32)]) -> Result<Vec<Option<u32>>> {
        self.write(work);
        Ok(self.logits.iter().map(|logits| Some(best(logits))).collect())
    }

    fn logits(&self, column: usize) -> Result<Vec<f32>> {
        Ok(self.logits[column].clone())
    }

    fn next(&mut self, id: u32, token: u32, sampler: &mut Sampler) -> Result<Option<u32>> {
        self.step(&[(id, if self.alone { alone(token) } else { token })])?;
        Ok(Some(sampler.sample(&self.logits[0])))
    }

    fn is_finite(&self, id: u32) -> Result<bool> {
        Ok(self.poison.is_none_or(|poison| !self.texts[&id].tokens.contains(&poison)))
    }

    fn cut(&mut self, tokens: usize) -> Result<Cut> {
        let cut = cut(tokens, self.page, self.least);
        Ok(if self.alone { cut.with_text_alone(tokens) } else { cut })
    }

    /// With a time, in three slices.
    fn chunk(&mut self, id: u32, tokens: &[u32], time: Option<Duration>) -> Result<bool> {
        assert!(!tokens.is_empty() && tokens.len() <= self.page, "a chunk of {} tokens", tokens.len());
        self.chunks += 1;
        let begun = self.begun.take().filter(|(begun, of, _)| *begun == id && of == tokens);
        let slices = begun.map_or(0, |(_, _, slices)| slices) + 1;
        if time.is_some() && slices < 3 {
            self.begun = Some((id, tokens.to_vec(), slices));
            return Ok(false);
        }
        let place = (self.texts[&id].tokens.len(), tokens.len());
        let work: Vec<(u32, u32)> = tokens.iter().map(|token| (id, in_chunk(*token, place))).collect();
        self.append(&work);
        Ok(true)
    }
}

/// Proposes what the model would write if no token were in a chunk, and nonsense for every third text.
#[derive(Debug, Default)]
pub(crate) struct Guess {
    /// The texts that it has.
    pub(crate) held: Rc<RefCell<BTreeSet<u64>>>,
}

impl Draft for Guess {
    fn propose(&mut self, texts: &[speculate::Text<'_>], mut columns: usize) -> Result<Vec<Proposal>> {
        let mut all = vec![];
        for text in texts {
            self.held.borrow_mut().insert(text.name);
            let mut tokens = text.tokens.to_vec();
            for _ in 0..text.lengths.of(Kind::Model).min(columns) {
                let nonsense = text.name % 3 == 2;
                tokens.push(if nonsense { tokens.len() as u32 * 3 } else { best(&logits_of(&tokens)) });
            }
            columns -= tokens.len() - text.tokens.len();
            all.push(Proposal { tokens: tokens.split_off(text.tokens.len()), kind: Kind::Model });
        }
        Ok(all)
    }

    fn forget(&mut self, name: u64) {
        self.held.borrow_mut().remove(&name);
    }
}
