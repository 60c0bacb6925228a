//! Last accesses to each word, to find accesses that nothing orders.

use rustc_hash::FxHashMap;

use crate::gpu::sm::check::atomics::Atomics;
use crate::gpu::sm::check::knowledge::Knowledge;
use crate::gpu::sm::check::lane_order::LaneOrder;
use crate::gpu::sm::check::mark::{Kind, Mark};

/// Lines of a page of shadows.
const PAGE: u64 = 32;
/// Accesses of one kind to the same words of shared memory that are remembered: those of all warps.
const MOST: usize = 32;
/// ... of global memory, which many blocks may read.
const MOST_GLOBAL: usize = 8;

/// An access that is remembered.
#[derive(Clone, Copy, Debug)]
struct Record {
    /// The words of the line that it is the last of its kind for.
    mask: u32,
    /// Number of a load whose value nobody has used yet; 0 for an access that counts.
    load: u32,
    mark: Mark,
}

/// The accesses to a line: seldom more than one is remembered.
#[derive(Clone, Debug, Default)]
struct Line {
    first: Option<Record>,
    more: Option<Box<More>>,
}

/// State that few lines have.
#[derive(Clone, Debug, Default)]
struct More {
    records: Vec<Record>,
    /// Atomic operations on shared memory.
    atomics: Atomics,
}

/// An earlier access that nothing orders with a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict {
    pub earlier: Mark,
    /// A load whose value nobody has used yet, unless 0.
    pub load: u32,
    /// The word of the line.
    pub word: u32,
    /// The lane of the earlier access.
    pub earlier_lane: u8,
    /// The lane of the later one.
    pub lane: u8,
}

/// Knowledge of the order of accesses.
pub(super) struct Orders<'a> {
    /// Knowledge of the block that accesses, of others.
    pub blocks: Option<&'a Knowledge>,
    /// ... of its warp, of others of the block, and the order of the warp's lanes.
    pub inside: Option<(Option<&'a Knowledge>, &'a LaneOrder)>,
}

/// The last accesses to each word of a memory.
#[derive(Debug)]
pub(super) struct Shadow {
    /// Accesses of one kind to the same words that are remembered beside each other.
    most: usize,
    pages: Vec<Box<[Line]>>,
    /// By the number of the page.
    index: FxHashMap<u64, u32>,
    /// The page that was used last.
    recent: Option<(u64, u32)>,
}

impl Orders<'_> {
    /// Whether two accesses are ordered, whichever lanes make them.
    #[inline]
    fn are_ordered(&self, old: &Mark, new: &Mark) -> bool {
        if old.block != new.block {
            return self.blocks.is_some_and(|known| known.has(old.block, old.block_clock));
        }
        let Some((warps, lanes)) = self.inside else { return true };
        if old.id != new.id {
            return warps.is_some_and(|known| known.has(old.id, old.clock));
        }
        // One instruction, copies, or lanes that have met since.
        old.clock == new.clock || new.id != u32::from(new.warp) || lanes.all_know(old.clock)
    }

    /// A word of `overlap` and the lanes of two accesses to it that nothing orders.
    #[inline]
    fn unordered(&self, old: &Mark, new: &Mark, overlap: u32) -> Option<(u32, u8, u8)> {
        let word = overlap.trailing_zeros();
        let anyone = || (word, old.owners.of(word).0, new.owners.of(word).0);
        if new.kind.contains(Kind::CONSTANT) && old.kind.contains(Kind::WRITES) {
            return Some(anyone());
        }
        if self.are_ordered(old, new) {
            return None;
        }
        if old.block != new.block || old.id != new.id {
            return Some(anyone());
        }
        let (_, lanes) = self.inside?;
        if old.owners == new.owners && new.owners.are_single() {
            return None;
        }
        (0..32).filter(|word| overlap >> word & 1 != 0).find_map(|word| {
            let ((a, b), (c, d)) = (old.owners.of(word), new.owners.of(word));
            let pairs = [(a, c), (a, d), (b, c), (b, d)];
            let apart = pairs.into_iter().find(|&(old_lane, lane)| !lanes.knows(lane, old_lane, old.clock));
            apart.map(|(old_lane, lane)| (word, old_lane, lane))
        })
    }

    /// Shows `found` one atomic operation of each participant that nothing orders with an access.
    fn look_at(&self, atomics: &Atomics, mask: u32, mark: &Mark, found: &mut impl FnMut(Conflict)) {
        let mut reported = None;
        for (word, earlier) in atomics.each(mask) {
            if reported == Some(earlier.id) || !earlier.may_conflict(mark) {
                continue;
            }
            if let Some((word, earlier_lane, lane)) = self.unordered(&earlier, mark, 1 << word) {
                reported = Some(earlier.id);
                found(Conflict { earlier, load: 0, word, earlier_lane, lane });
            }
        }
    }

    /// Whether what conflicts with `old` later is noticed by `new` too, or has been already.
    #[inline]
    fn covers(&self, new: &Mark, old: &Mark) -> bool {
        let plain = |mark: &Mark| !mark.kind.contains(Kind::STRONG);
        let overwrites = new.overwrites();
        if old.bytes & !new.bytes != 0 || !overwrites && (old.id, old.block) != (new.id, new.block) {
            return false;
        }
        if overwrites {
            return true;
        }
        let same_kind =
            old.kind == new.kind || (plain(old) == plain(new) && old.kind == new.kind - Kind::WRITES);
        if !same_kind {
            return false;
        }
        let met = |lanes: &LaneOrder| lanes.all_know(old.clock) || old.clock == new.clock;
        old.owners == new.owners || self.inside.is_none_or(|(_, lanes)| met(lanes))
    }
}

impl Record {
    #[inline]
    fn writes(&self) -> bool {
        self.mark.kind.contains(Kind::WRITES)
    }
}

impl Line {
    #[inline]
    fn records(&self) -> impl Iterator<Item = &Record> {
        self.first.iter().chain(self.more.iter().flat_map(|more| &more.records))
    }

    /// Removes the records that `keep` does not.
    fn retain(&mut self, keep: impl Fn(&Record) -> bool) {
        self.first = self.first.filter(&keep);
        if let Some(more) = &mut self.more {
            more.records.retain(keep);
            self.first = self.first.or_else(|| more.records.pop());
        }
    }

    /// Shows `found` the earlier accesses that nothing orders with one to the words of `mask`.
    #[inline]
    fn look(&self, orders: &Orders<'_>, mask: u32, mark: &Mark, found: &mut impl FnMut(Conflict)) {
        for old in self.records() {
            let overlap = old.mask & mask;
            if overlap != 0
                && old.mark.may_conflict(mark)
                && let Some((word, earlier_lane, lane)) = orders.unordered(&old.mark, mark, overlap)
            {
                found(Conflict { earlier: old.mark, load: old.load, word, earlier_lane, lane });
            }
        }
        if let Some(more) = &self.more {
            orders.look_at(&more.atomics, mask, mark, found);
        }
    }

    /// Whether an access by lanes that `mark` does not tell may be in no order with an earlier one.
    #[inline]
    fn may_conflict(&self, orders: &Orders<'_>, mask: u32, mark: &Mark) -> bool {
        self.records().any(|old| {
            old.mask & mask != 0 && old.mark.may_conflict(mark) && !orders.are_ordered(&old.mark, mark)
        })
    }

    /// Notes an access, for which those that it covers make room, unless `most` of its kind to some of its words
    /// are known.
    fn note(&mut self, orders: &Orders<'_>, new: &Record, most: usize) {
        if let Some(more) = &mut self.more
            && new.mark.overwrites()
            && new.mark.bytes == 15
        {
            more.atomics.forget(new.mask);
        }
        if self.first.is_none() {
            self.first = Some(*new);
            return;
        }
        let (writes, mut placed, mut empty, mut others) = (new.writes(), false, false, 0);
        let more = self.more.iter_mut().flat_map(|more| &mut more.records);
        for old in self.first.iter_mut().chain(more) {
            if old.mask & new.mask == 0 || !writes && old.writes() {
                continue;
            }
            if orders.covers(&new.mark, &old.mark) {
                old.mask &= !new.mask;
                match (old.mask, placed) {
                    (0, false) => (*old, placed) = (*new, true),
                    (0, true) => empty = true,
                    _ => {}
                }
            } else {
                others += usize::from(old.writes() == writes);
            }
        }
        if empty {
            self.retain(|record| record.mask != 0);
        }
        if !placed && others < most {
            self.more.get_or_insert_default().records.push(*new);
        }
    }
}

impl Default for Shadow {
    /// Shared memory to which nothing has happened.
    fn default() -> Self {
        Shadow { most: MOST, pages: Vec::new(), index: FxHashMap::default(), recent: None }
    }
}

impl Shadow {
    /// Global memory to which nothing has happened.
    pub fn of_grid() -> Self {
        Shadow { most: MOST_GLOBAL, ..Shadow::default() }
    }

    #[inline]
    fn line(&mut self, line: u64) -> &mut Line {
        let page = line / PAGE;
        let at = match self.recent {
            Some((recent, at)) if recent == page => at,
            _ => {
                let pages = &mut self.pages;
                let at = *self.index.entry(page).or_insert_with(|| {
                    pages.push(vec![Line::default(); PAGE as usize].into());
                    (pages.len() - 1) as u32
                });
                self.recent = Some((page, at));
                at
            }
        };
        &mut self.pages[at as usize][(line % PAGE) as usize]
    }

    /// Notes an access to words of a line, whose value nobody has used yet if `load` is not 0; shows `found`
    /// the earlier ones that nothing orders with it.
    pub fn access(
        &mut self,
        orders: &Orders<'_>,
        (line, mask): (u64, u32),
        mark: Mark,
        load: u32,
        mut found: impl FnMut(Conflict),
    ) {
        let most = self.most;
        let line = self.line(line);
        line.look(orders, mask, &mark, &mut found);
        line.note(orders, &Record { mask, load, mark }, most);
    }

    /// Whether an atomic operation of several lanes on words of a line may be in no order with an earlier access.
    pub fn may_conflict(&mut self, orders: &Orders<'_>, (line, mask): (u64, u32), mark: &Mark) -> bool {
        self.line(line).may_conflict(orders, mask, mark)
    }

    /// Atomic operations on lines, which shared memory has apart.
    pub fn atomics(&mut self, line: u64) -> &mut Atomics {
        &mut self.line(line).more.get_or_insert_default().atomics
    }

    /// Shows `found` the earlier accesses that nothing orders with one that is not noted.
    pub fn look(
        &self,
        orders: &Orders<'_>,
        (line, mask): (u64, u32),
        mark: Mark,
        found: &mut impl FnMut(Conflict),
    ) {
        if let Some(page) = self.index.get(&(line / PAGE)) {
            self.pages[*page as usize][(line % PAGE) as usize].look(orders, mask, &mark, found);
        }
    }

    /// Forgets a load of words of a line.
    pub fn forget(&mut self, line: u64, load: u32) {
        self.line(line).retain(|record| record.load != load);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::sm::check::pieces::Owners;

    fn access(shadow: &mut Shadow, block: u32, word: u32, kind: Kind) -> Vec<Conflict> {
        let mark = Mark {
            id: 0,
            clock: word + 1,
            block,
            block_clock: 1,
            pc: 0,
            warp: 0,
            kind,
            bytes: 15,
            owners: Owners::all(word, word),
        };
        let lanes = LaneOrder::default();
        let orders = Orders { blocks: None, inside: Some((None, &lanes)) };
        let mut found = Vec::new();
        shadow.access(&orders, (5, 1 << word), mark, 0, |conflict| found.push(conflict));
        found
    }

    #[test]
    fn each_word_of_a_line_is_remembered_whoever_accesses_the_others() {
        let mut shadow = Shadow::of_grid();
        for word in 0..32 {
            assert_eq!(access(&mut shadow, 7, word, Kind::WRITES), []);
        }
        for word in 0..32 {
            let found = access(&mut shadow, 8, word, Kind::empty());
            let about =
                found.first().map(|conflict| (conflict.earlier.block, conflict.word, conflict.earlier_lane));
            assert_eq!((about, found.len()), (Some((7, word, word as u8)), 1));
        }
    }

    #[test]
    fn of_readers_of_a_word_the_first_are_remembered() {
        let mut shadow = Shadow::of_grid();
        for block in 0..40 {
            assert_eq!(access(&mut shadow, block, 3, Kind::empty()), []);
        }
        assert_eq!(access(&mut shadow, 99, 3, Kind::WRITES).len(), MOST_GLOBAL);
    }
}
