//! The pages of the cache: how many sequences share each, and which are kept without one.

use crate::engine::cache::{PAGE, pages_for};

/// All pages: how many owners each has.
#[derive(Debug)]
pub struct Pages {
    owners: Vec<u32>,
    /// The pages without an owner; the last is taken first.
    free: Vec<u32>,
}

/// The pages of a sequence, and how many positions of them are used.
#[derive(Debug, Default)]
pub struct Table {
    /// By their order in the sequence.
    pub pages: Vec<u32>,
    /// Positions.
    pub len: usize,
}

/// The copy that is due before a sequence writes: of a page that others share, to one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageCopy {
    /// The page that stays with the others.
    pub from: u32,
    /// The page that the sequence has now.
    pub to: u32,
}

impl Pages {
    /// `count` pages that are free.
    pub fn new(count: u32) -> Self {
        Self { owners: vec![0; count as usize], free: (0..count).rev().collect() }
    }

    /// Pages without an owner.
    pub fn free(&self) -> usize {
        self.free.len()
    }

    fn take(&mut self) -> Option<u32> {
        let page = self.free.pop()?;
        self.owners[page as usize] = 1;
        Some(page)
    }

    /// Takes an owner from `page`, which is free without any.
    pub fn give(&mut self, page: u32) {
        let owners = &mut self.owners[page as usize];
        *owners -= 1;
        if *owners == 0 {
            self.free.push(page);
        }
    }

    /// Adds an owner to page number `index` of `table`, if it has so many.
    pub fn keep(&mut self, table: &Table, index: usize) -> Option<u32> {
        let page = *table.pages.get(index)?;
        self.owners[page as usize] += 1;
        Some(page)
    }

    /// The number of sequences and others that have `page`; `None` if there is no such page.
    pub fn owners(&self, page: u32) -> Option<u32> {
        self.owners.get(page as usize).copied()
    }

    /// Pages that `table` needs to write `more` positions: new ones, and a copy of the last one if it is
    /// shared.
    pub fn needed(&self, table: &Table, more: usize) -> usize {
        let new = pages_for(table.len + more).saturating_sub(table.pages.len());
        new + usize::from(more > 0 && self.shared_last(table).is_some())
    }

    /// The number in `table` of the page that the next position is written to, if others share it.
    fn shared_last(&self, table: &Table) -> Option<usize> {
        let index = table.len / PAGE;
        table.pages.get(index).filter(|page| self.owners[**page as usize] > 1).map(|_| index)
    }

    /// Gives `table` the pages to write `more` positions. Returns what to copy before it does; `None`, and
    /// changes nothing, if there are too few pages.
    pub fn extend(&mut self, table: &mut Table, more: usize) -> Option<Vec<PageCopy>> {
        if self.needed(table, more) > self.free() {
            return None;
        }
        let mut copies = Vec::new();
        if more > 0
            && let Some(index) = self.shared_last(table)
        {
            let (from, to) = (table.pages[index], self.take()?);
            self.give(from);
            table.pages[index] = to;
            copies.push(PageCopy { from, to });
        }
        while table.pages.len() < pages_for(table.len + more) {
            table.pages.push(self.take()?);
        }
        Some(copies)
    }

    /// A sequence that shares the pages of the first `len` positions of `table`.
    pub fn fork(&mut self, table: &Table, len: usize) -> Table {
        let len = len.min(table.len);
        self.begin(table.pages[..pages_for(len)].to_vec(), len)
    }

    /// A sequence that shares `pages`, which hold its first `len` positions.
    pub fn begin(&mut self, pages: Vec<u32>, len: usize) -> Table {
        pages.iter().for_each(|page| self.owners[*page as usize] += 1);
        Table { pages, len }
    }

    /// Shortens `table` to `len` positions, and gives its other pages back.
    pub fn truncate(&mut self, table: &mut Table, len: usize) {
        table.len = len.min(table.len);
        for page in table.pages.drain(pages_for(table.len)..) {
            self.give(page);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Op {
        Extend(usize, usize),
        Fork(usize, usize),
        Truncate(usize, usize),
        Release(usize),
        /// Keeps all pages of a sequence beside it.
        Keep(usize),
        Begin(usize, usize),
        Give(usize),
    }

    fn op() -> impl Strategy<Value = Op> {
        prop_oneof![
            4 => (0usize..6, 0usize..700).prop_map(|(at, more)| Op::Extend(at, more)),
            1 => (0usize..6, 0usize..1500).prop_map(|(at, len)| Op::Fork(at, len)),
            1 => (0usize..6, 0usize..1500).prop_map(|(at, len)| Op::Truncate(at, len)),
            1 => (0usize..6).prop_map(Op::Release),
            1 => (0usize..6).prop_map(Op::Keep),
            1 => (0usize..6, 0usize..1500).prop_map(|(at, len)| Op::Begin(at, len)),
            1 => (0usize..6).prop_map(Op::Give),
        ]
    }

    /// A cache of tokens in pages beside each sequence's tokens as a list.
    struct Model {
        pages: Pages,
        cells: Vec<[u32; PAGE]>,
        sequences: Vec<(Table, Vec<u32>)>,
        /// Pages without a sequence, and the tokens in them.
        kept: Vec<(Vec<u32>, Vec<u32>)>,
        written: u32,
    }

    impl Model {
        fn apply(&mut self, op: &Op) {
            let count = self.sequences.len();
            match *op {
                Op::Extend(at, more) => {
                    let (table, tokens) = &mut self.sequences[at % count];
                    let needed = self.pages.needed(table, more);
                    let (before, free) = (table.pages.clone(), self.pages.free());
                    let Some(copies) = self.pages.extend(table, more) else {
                        assert!(needed > free, "refused {needed} of {free} pages");
                        assert_eq!(
                            (&before, free),
                            (&table.pages, self.pages.free()),
                            "changed all the same"
                        );
                        return;
                    };
                    assert_eq!(free - self.pages.free(), needed);
                    for PageCopy { from, to } in copies {
                        self.cells[to as usize] = self.cells[from as usize];
                    }
                    for _ in 0..more {
                        self.written += 1;
                        let page = table.pages[table.len / PAGE];
                        self.cells[page as usize][table.len % PAGE] = self.written;
                        tokens.push(self.written);
                        table.len += 1;
                    }
                }
                Op::Fork(at, len) if count < 6 => {
                    let (table, tokens) = &self.sequences[at % count];
                    let fork = self.pages.fork(table, len);
                    let tokens = tokens[..fork.len].to_vec();
                    self.sequences.push((fork, tokens));
                }
                Op::Fork(..) => {}
                Op::Truncate(at, len) => {
                    let (table, tokens) = &mut self.sequences[at % count];
                    self.pages.truncate(table, len);
                    tokens.truncate(len);
                }
                Op::Release(at) => {
                    let (mut table, _) = self.sequences.swap_remove(at % count);
                    self.pages.truncate(&mut table, 0);
                    self.sequences.push((Table::default(), vec![]));
                }
                Op::Keep(at) => {
                    let (table, tokens) = &self.sequences[at % count];
                    let pages = (0..table.pages.len()).map(|index| self.pages.keep(table, index).unwrap());
                    self.kept.push((pages.collect(), tokens.clone()));
                    assert_eq!(self.pages.keep(table, table.pages.len()), None);
                }
                Op::Begin(at, len) if count < 6 && !self.kept.is_empty() => {
                    let (pages, tokens) = &self.kept[at % self.kept.len()];
                    let tokens = tokens[..len.min(tokens.len())].to_vec();
                    let pages = pages[..pages_for(tokens.len())].to_vec();
                    self.sequences.push((self.pages.begin(pages, tokens.len()), tokens));
                }
                Op::Begin(..) => {}
                Op::Give(at) if !self.kept.is_empty() => {
                    let (pages, _) = self.kept.swap_remove(at % self.kept.len());
                    pages.into_iter().for_each(|page| self.pages.give(page));
                }
                Op::Give(_) => {}
            }
        }

        fn check(&self) {
            let mut owners = vec![0; self.cells.len()];
            for (table, tokens) in &self.sequences {
                assert_eq!(table.len, tokens.len());
                assert_eq!(table.pages.len(), pages_for(table.len));
                table.pages.iter().for_each(|page| owners[*page as usize] += 1);
                for (at, token) in tokens.iter().enumerate() {
                    assert_eq!(
                        self.cells[table.pages[at / PAGE] as usize][at % PAGE],
                        *token,
                        "position {at}"
                    );
                }
            }
            for (pages, tokens) in &self.kept {
                pages.iter().for_each(|page| owners[*page as usize] += 1);
                for (at, token) in tokens.iter().enumerate() {
                    assert_eq!(self.cells[pages[at / PAGE] as usize][at % PAGE], *token, "kept {at}");
                }
            }
            assert_eq!(owners, self.pages.owners);
            assert_eq!(self.pages.free(), owners.iter().filter(|n| **n == 0).count(), "a page is lost");
        }
    }

    proptest! {
        /// Every sequence reads what it wrote, whatever others that share its pages write, and no page is
        /// lost.
        #[test]
        fn sequences_keep_their_tokens(count in 1u32..12, ops in proptest::collection::vec(op(), 1..60)) {
            let cells = vec![[0; PAGE]; count as usize];
            let sequences = vec![(Table::default(), vec![])];
            let pages = Pages::new(count);
            let mut model = Model { pages, cells, sequences, kept: vec![], written: 0 };
            for op in &ops {
                model.apply(op);
                model.check();
            }
        }
    }
}
