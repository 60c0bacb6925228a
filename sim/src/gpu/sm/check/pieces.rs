//! The accesses of a warp's lanes, line by line: what one instruction does to neighbouring words is one piece.

use crate::gpu::sm::check::access::{Place, WarpAccess, lanes, words};
use crate::order::shadow::Threads;

use sass::Access;

/// Words of a line.
pub(super) const LINE: u64 = 32;

/// The lanes that access each word of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owners {
    /// The lane of the line's first word, were it in the piece.
    first: i8,
    layout: Layout,
}

/// How the words of a piece lie among its lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    /// Each word is that of all lanes from the first to this one.
    All(u8),
    /// Each lane has so many words, as a power of two, and the next lane those after them.
    Rows(u8),
    /// Each word has so many lanes, as a power of two.
    Parts(u8),
}

impl Owners {
    /// One lane, or all from `first` to `last`.
    pub fn all(first: u32, last: u32) -> Self {
        Owners { first: first as i8, layout: Layout::All(last as u8) }
    }

    /// The first and the last lane that access a word of the line.
    #[inline]
    pub fn of(self, word: u32) -> (u8, u8) {
        let word = word as i8;
        match self.layout {
            Layout::All(last) => (self.first as u8, last),
            Layout::Rows(shift) => {
                let lane = (self.first + (word >> shift)) as u8 & 31;
                (lane, lane)
            }
            Layout::Parts(shift) => {
                let lane = (i32::from(self.first) + (i32::from(word) << shift)) as u8 & 31;
                (lane, (lane + (1 << shift) - 1) & 31)
            }
        }
    }

    /// The threads of words of the line, of a warp whose first thread is `base`.
    pub fn threads(self, base: u32, mask: u32) -> Threads {
        let from = mask.trailing_zeros();
        let first = (base + u32::from(self.of(from).0)) as u16;
        match self.layout {
            Layout::Rows(shift) => Threads { first, from: from as u8, row: Some(shift) },
            Layout::All(_) | Layout::Parts(_) => Threads::one(first),
        }
    }

    /// Whether each word has one lane.
    #[inline]
    pub fn are_single(self) -> bool {
        match self.layout {
            Layout::All(last) => self.first as u8 == last,
            Layout::Rows(_) => true,
            Layout::Parts(_) => false,
        }
    }
}

/// Words of a line that lanes access in one instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// In global memory, else in shared memory.
    pub global: bool,
    /// Number of the line.
    pub line: u64,
    /// Its words.
    pub mask: u32,
    /// The bytes of each of them.
    pub bytes: u8,
    pub owners: Owners,
}

/// The words of a piece.
pub(super) fn words_of(piece: &Piece) -> impl Iterator<Item = u64> + use<> {
    let Piece { line, mask, .. } = *piece;
    lanes(mask).map(move |word| line * LINE + u64::from(word))
}

/// The pieces of one access.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    list: Vec<Piece>,
    global: bool,
    apart: bool,
}

impl Pieces {
    /// Cuts an access to global memory and to a block's shared memory of so many bytes. Accesses that fault have
    /// no pieces.
    pub fn cut(&mut self, access: &WarpAccess, shared_bytes: u32) {
        self.list.clear();
        self.apart = true;
        // Words that were seen, by their lowest bits.
        let mut seen = 0u64;
        let mut rest = access.lanes;
        while rest != 0 {
            let first = rest.trailing_zeros();
            let Some(run) = Run::at(access, first, rest >> first) else {
                rest &= rest - 1;
                continue;
            };
            rest &= !((u32::MAX >> (32 - run.count)) << first);
            let inside = |lane| is_inside(access, lane, shared_bytes);
            if !inside(first) || !inside(first + run.count - 1) {
                continue;
            }
            let before = self.list.len();
            cut_run(access.memory.bytes, &run, &mut self.list);
            self.apart &= run.count == 1 || !run.same;
            if access.memory.access != Access::Store {
                continue;
            }
            for piece in &self.list[before..] {
                let words = u64::from(piece.mask).rotate_left((piece.line * 37 % 64) as u32);
                self.apart &= seen & words == 0 || rest == 0 && before == 0;
                seen |= words;
            }
        }
        self.global = self.list.iter().any(|piece| piece.global);
    }

    /// Whether no two lanes of a store access the same word, as far as is known.
    pub fn apart(&self) -> bool {
        self.apart
    }

    /// Whether some are of global memory.
    #[inline]
    pub fn global(&self) -> bool {
        self.global
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Piece> {
        self.list.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

/// The address or offset of a lane's access; none in local memory.
#[inline]
fn address(access: &WarpAccess, lane: u32) -> Option<u64> {
    match access.places[lane as usize] {
        Place::Global(va) => Some(va),
        Place::Shared(offset) => Some(offset.into()),
        Place::Local(_) => None,
    }
}

#[inline]
fn is_inside(access: &WarpAccess, lane: u32, shared_bytes: u32) -> bool {
    match access.places[lane as usize] {
        Place::Global(va) => va.checked_add(16).is_some(),
        Place::Shared(offset) => {
            u64::from(offset) + u64::from(access.memory.bytes) <= u64::from(shared_bytes)
        }
        Place::Local(_) => false,
    }
}

/// Neighbouring lanes that access neighbouring words or parts of words, or all the same.
struct Run {
    global: bool,
    /// The address of the first.
    base: u64,
    first: u32,
    count: u32,
    same: bool,
}

impl Run {
    /// The run of lanes from `first` on, of those in `lanes` (bit 0 is `first`); none in local memory.
    #[inline]
    fn at(access: &WarpAccess, first: u32, lanes: u32) -> Option<Self> {
        let bytes = u64::from(access.memory.bytes);
        let base = address(access, first)?;
        let most = if bytes.is_power_of_two() { (!lanes).trailing_zeros() } else { 1 };
        let places = &access.places[first as usize..][..most as usize];
        let global = matches!(places[0], Place::Global(_));
        let same = most > 1 && places[1] == places[0];
        let stride = if same { 0 } else { bytes };
        let is_next = |n: usize| {
            base.checked_add(n as u64 * stride).is_some_and(|at| places[n] == places[0].moved_to(at))
        };
        let mut count = 1;
        while count < places.len() && is_next(count) {
            count += 1;
        }
        Some(Run { global, base, first, count: count as u32, same })
    }
}

/// Cuts the access of a run of lanes.
fn cut_run(bytes: u32, run: &Run, pieces: &mut Vec<Piece>) {
    let Run { global, base, first, count, same } = *run;
    let one = |pieces: &mut Vec<Piece>, at: u64, len: u32, owners: Owners| {
        for (word, bytes) in words(at, len) {
            let (line, mask) = (word / LINE, 1 << (word % LINE));
            match pieces.last_mut() {
                Some(last) if (last.line, last.bytes, last.owners) == (line, bytes, owners) => {
                    last.mask |= mask
                }
                _ => pieces.push(Piece { global, line, mask, bytes, owners }),
            }
        }
    };
    if same || count == 1 {
        one(pieces, base, bytes, Owners::all(first, first + count - 1));
        return;
    }
    // Lanes in a word that others do not fill.
    let (head, tail) = match bytes {
        1 | 2 => {
            let head = (base.next_multiple_of(4) - base) as u32 / bytes;
            let head = head.min(count);
            (head, (count - head) % (4 / bytes))
        }
        _ => (0, 0),
    };
    let lane_at = |n: u32| base + u64::from(n * bytes);
    if head > 0 {
        one(pieces, base, head * bytes, Owners::all(first, first + head - 1));
    }
    let rest = head..count - tail;
    if !rest.is_empty() {
        cut_words(bytes, global, lane_at(rest.start), (first + rest.start, rest.end - rest.start), pieces);
    }
    if tail > 0 {
        let from = count - tail;
        one(pieces, lane_at(from), tail * bytes, Owners::all(first + from, first + count - 1));
    }
}

/// Cuts whole words that `count` lanes from `first` on access, the first of them at `base`.
fn cut_words(bytes: u32, global: bool, base: u64, (first, count): (u32, u32), pieces: &mut Vec<Piece>) {
    let (from, to) = (base / 4, (base + u64::from(count * bytes)) / 4);
    let mut word = from;
    while word < to {
        let (line, begin) = (word / LINE, word % LINE);
        let end = (to - line * LINE).min(LINE);
        let mask = (u32::MAX >> (LINE - end)) & (u32::MAX << begin);
        // The lane of the line's first word, counted back from the row's.
        let back = (line * LINE) as i64 - from as i64;
        let (lane, layout) = match bytes {
            1 | 2 => {
                let shift = 2 - bytes.trailing_zeros();
                (i64::from(first) + (back << shift), Layout::Parts(shift as u8))
            }
            _ => {
                let shift = bytes.trailing_zeros() - 2;
                (i64::from(first) + (back >> shift), Layout::Rows(shift as u8))
            }
        };
        pieces.push(Piece { global, line, mask, bytes: 15, owners: Owners { first: lane as i8, layout } });
        word = line * LINE + end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::sm::check::{act, registers::Group};
    use proptest::prelude::*;

    fn access(bytes: u32, lanes: u32, at: impl Fn(u64) -> u64) -> WarpAccess {
        let memory = act::Memory { bytes, ..act::Memory::shared(Access::Load) };
        let places = std::array::from_fn(|lane| Place::Global(at(lane as u64)));
        WarpAccess { memory, lanes, places, data: None, loaded: Group::default(), by: 0 }
    }

    proptest! {
        /// The pieces are the words of the lanes, whatever the addresses.
        #[test]
        fn pieces_have_every_word_of_every_lane(
            size in 0u32..5, base in 0u64..64, mask in any::<u32>(), row in any::<bool>(),
            // Lanes that follow each other, with a jump now and then.
            stride in prop::sample::select(vec![0u64, 1, 2, 5]),
            jumps in prop::collection::vec(prop::sample::select(vec![0i64, 0, 0, 0, 1, -3, 9]), 32),
        ) {
            let bytes = 1 << size;
            let mask = if row { u32::MAX >> (mask % 32) << (mask / 32 % 32) } else { mask };
            let access = access(bytes, mask, |lane| {
                let jumped: i64 = jumps[..=lane as usize].iter().sum();
                (4096 + base + lane * stride).wrapping_add_signed(jumped) * u64::from(bytes)
            });
            let mut pieces = Pieces::default();
            pieces.cut(&access, 0);
            for lane in lanes(mask) {
                for (word, bytes) in words(address(&access, lane).unwrap(), bytes) {
                    let of_lane = |piece: &Piece| {
                        let (first, last) = piece.owners.of((word % LINE) as u32);
                        piece.line == word / LINE && piece.mask >> (word % LINE) & 1 != 0
                            && piece.bytes & bytes == bytes && (u32::from(first)..=u32::from(last)).contains(&lane)
                    };
                    prop_assert!(pieces.iter().any(of_lane), "{lane} {word} {pieces:?}");
                }
            }
            let count: u32 = pieces.iter().map(|piece| piece.mask.count_ones()).sum();
            let most: u32 = lanes(mask).map(|_| bytes.div_ceil(4)).sum();
            prop_assert!(count <= most);
        }
    }
}
