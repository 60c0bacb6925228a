//! State of the check of races beside the accesses and the clocks.

use rustc_hash::FxHashMap;

use crate::gpu::sm::check::access::lanes as bits;
use crate::gpu::sm::check::pieces::{Piece, Pieces};
use crate::gpu::sm::check::shadow::Conflict;

/// Marks the number of a line of global memory where those of shared memory stand beside it.
pub(super) const GLOBAL: u64 = 1 << 63;

/// State of the check beside the accesses and the clocks.
#[derive(Debug, Default)]
pub(super) struct Races {
    /// Room for the conflicts of an access, and for its lines.
    pub conflicts: Vec<(Piece, Conflict)>,
    pub lines: Lines,
    /// Of a block, a warp and a word: another thread's change that a change in two steps may undo.
    pub lost: FxHashMap<(u32, u32, u64), (Piece, Conflict)>,
}

/// The lines of an access, each once.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Their numbers, and the words of all pieces.
    pub all: Vec<(u64, u32)>,
    /// The first and the last lane that access each word.
    lanes: Vec<[(u8, u8); 32]>,
}

/// The number of a piece's line.
pub(super) fn line_of(piece: &Piece) -> u64 {
    if piece.global { GLOBAL | piece.line } else { piece.line }
}

impl Lines {
    pub fn fill(&mut self, pieces: &Pieces) {
        let Lines { all, lanes } = self;
        all.clear();
        lanes.clear();
        for piece in pieces.iter() {
            let line = line_of(piece);
            let at = all.iter().position(|(other, _)| *other == line).unwrap_or_else(|| {
                all.push((line, 0));
                lanes.push([(0, 31); 32]);
                all.len() - 1
            });
            all[at].1 |= piece.mask;
            bits(piece.mask).for_each(|word| lanes[at][word as usize] = piece.owners.of(word));
        }
    }

    /// The first and the last lane that access a word of a line.
    #[inline]
    pub fn lanes(&self, at: usize, word: u32) -> (u8, u8) {
        self.lanes[at][word as usize]
    }
}
