//! Addresses that a launch was found to be allowed.

use std::ops::Range;

use crate::gpu::sm::core::Core;
use crate::gpu::sm::launch::Access as Translate;
use crate::gpu::sm::tlb::Miss;
use crate::pieces::note::{KernelAccess, StackNote};
use crate::pieces::{Permit, Pieces};

/// Ranges of addresses that are remembered.
const REMEMBERED: usize = 64;
/// Addresses that share an entry, as a power of two.
const GRAIN: u32 = 12;
/// Bytes that are looked up at once.
const AT_ONCE: u64 = 64 << 10;

/// Ranges of addresses that a launch was found to be allowed, until the pieces change.
#[derive(Debug)]
pub(super) struct Bounds {
    generation: u64,
    allowed: Vec<(Range<u64>, KernelAccess)>,
    /// The stack of a thread, once it was looked up.
    pub stack: Option<Option<StackNote>>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { generation: 0, allowed: vec![(0..0, KernelAccess::None); REMEMBERED], stack: None }
    }
}

/// Fault of an address.
pub(super) enum Wrong {
    /// It lies in no piece.
    Outside,
    /// It lies in a piece that is not for such accesses.
    Forbidden,
}

impl Bounds {
    fn slot(va: u64) -> usize {
        (va >> GRAIN) as usize % REMEMBERED
    }

    /// Whether all of `place` is known to be allowed, or found to be.
    pub fn allows(
        &mut self,
        core: &mut Core<'_>,
        pieces: &Pieces,
        place: Range<u64>,
        needs: KernelAccess,
    ) -> bool {
        self.refresh(pieces);
        self.knows(&place, needs)
            || place.end - place.start <= AT_ONCE && self.first_wrong(core, pieces, place, needs).is_none()
    }

    fn refresh(&mut self, pieces: &Pieces) {
        let generation = pieces.generation();
        if self.generation != generation {
            *self = Self { generation, stack: self.stack, ..Self::default() };
        }
    }

    fn knows(&self, place: &Range<u64>, needs: KernelAccess) -> bool {
        let (known, access) = &self.allowed[Self::slot(place.start)];
        known.start <= place.start && place.end <= known.end && *access >= needs
    }

    /// The first address of an access that is wrong.
    pub fn first_wrong(
        &mut self,
        core: &mut Core<'_>,
        pieces: &Pieces,
        place: Range<u64>,
        needs: KernelAccess,
    ) -> Option<(u64, Wrong)> {
        self.refresh(pieces);
        if self.knows(&place, needs) {
            return None;
        }
        let mut at = place.start;
        while at < place.end {
            let (permit, range) = pieces.permit(at);
            let access = match permit {
                Permit::Piece(access) if access < needs => return Some((at, Wrong::Forbidden)),
                Permit::Piece(access) => access,
                Permit::Outside => return Some((at, Wrong::Outside)),
                // The mapping there is not described.
                Permit::Unknown if is_mapped(core, at) => KernelAccess::ReadWrite,
                // The hardware reports that nothing is there, but not whose neighbour it is.
                Permit::Unknown if pieces.is_near(at) => return Some((at, Wrong::Outside)),
                Permit::Unknown => return None,
            };
            // Another mapping may follow on the next page.
            let page = at >> GRAIN << GRAIN;
            let range = match permit {
                Permit::Unknown => range.start.max(page)..range.end.min(page.saturating_add(1 << GRAIN)),
                _ => range,
            };
            at = range.end;
            self.allowed[Self::slot(place.start)] = (range, access);
        }
        None
    }
}

fn is_mapped(core: &mut Core<'_>, va: u64) -> bool {
    !matches!(core.tlb.find(va, Translate::Read), Err(Miss::Mmu(_)))
}
