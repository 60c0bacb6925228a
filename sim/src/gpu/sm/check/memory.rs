//! Accesses to memory that is not the kernel's, compared with the program's notes on its memory: see
//! [`Pieces`].

use std::ops::Range;

use crate::findings::{Checks, Finding};
use crate::gpu::sm::check::access::{Place, WarpAccess, lanes};
use crate::gpu::sm::check::arrays::SharedBounds;
use crate::gpu::sm::check::bounds::Wrong;
use crate::gpu::sm::check::reach::{Extent, Reach};
use crate::gpu::sm::check::{Watch, finding};
use crate::gpu::sm::core::Core;
use crate::pieces::note::{KernelAccess, PieceKind};
use crate::pieces::{Location, Pieces};

use sass::Access;

pub(super) fn verb(access: Access) -> &'static str {
    match access {
        Access::Load => "reads",
        Access::Store => "writes",
        Access::Atomic => "updates",
    }
}

impl Watch {
    /// Compares an access with the pieces; one finding at most, of the first lane that is wrong. Whether all are
    /// right.
    pub(super) fn check_memory(&mut self, core: &mut Core<'_>, access: &WarpAccess, reach: &Reach) -> bool {
        let needs = match access.memory.access {
            Access::Load => KernelAccess::Read,
            Access::Store | Access::Atomic => KernelAccess::ReadWrite,
        };
        let wrong = !reach.end.is_some_and(|end| self.allows(core, reach.extent, reach.start..end, needs))
            && self.check_lanes(core, access, needs);
        if wrong {
            self.reported = Some((core.pc, core.block.index, core.warp.index));
        }
        !wrong
    }

    /// Whether all that lies between the lowest and the highest address is allowed; often it is.
    fn allows(&mut self, core: &mut Core<'_>, extent: Extent, all: Range<u64>, needs: KernelAccess) -> bool {
        match extent {
            Extent::Global => {
                let Some(pieces) = core.env.memory.pieces() else { return true };
                self.bounds.allows(core, pieces, all, needs)
            }
            Extent::Shared => {
                let size = core.env.launch.shared_bytes.into();
                self.shared_bounds(core).first_wrong(all, size).is_none()
            }
            Extent::Local | Extent::Mixed => false,
        }
    }

    fn shared_bounds(&mut self, core: &Core<'_>) -> &SharedBounds {
        self.shared.get_or_insert_with(|| SharedBounds::of(core.env.memory.pieces(), core.env.launch))
    }

    /// Reports the first lane that is wrong; whether there is one.
    fn check_lanes(&mut self, core: &mut Core<'_>, access: &WarpAccess, needs: KernelAccess) -> bool {
        let pieces = core.env.memory.pieces();
        for lane in lanes(access.lanes) {
            let place = access.places[lane as usize];
            let Some(end) = place.offset().checked_add(access.memory.bytes.into()) else { continue };
            match (place, pieces) {
                (Place::Global(va), Some(pieces)) => {
                    if let Some((at, wrong)) = self.bounds.first_wrong(core, pieces, va..end, needs) {
                        let text = outside(pieces, access.memory.access, at, &wrong);
                        self.report(core, Checks::MEMORY, lane, &text, Some(Place::Global(at)), None);
                        return true;
                    }
                }
                (Place::Local(offset), Some(pieces)) => {
                    if self.leaves_stack(core, pieces, access, lane, offset.into()..end) {
                        return true;
                    }
                }
                (Place::Shared(offset), _) => {
                    if self.leaves_arrays(core, access, lane, offset.into()..end) {
                        return true;
                    }
                }
                (Place::Global(_) | Place::Local(_), None) => {}
            }
        }
        false
    }

    /// Whether an access of shared memory lies outside the kernel's arrays, which is reported.
    fn leaves_arrays(&mut self, core: &Core<'_>, access: &WarpAccess, lane: u32, place: Range<u64>) -> bool {
        let size = core.env.launch.shared_bytes.into();
        let bounds = self.shared_bounds(core);
        let Some(at) = bounds.first_wrong(place, size) else { return false };
        let detail = bounds.describe(at);
        let text = format!("{} shared memory outside every array", verb(access.memory.access));
        let found = finding(core, Checks::MEMORY, lane, &text, Some(Place::Shared(at as u32)), None);
        self.findings.record(Finding { detail, ..found });
        true
    }

    /// Whether an access of local memory lies outside the thread's stack, which is reported.
    fn leaves_stack(
        &mut self,
        core: &Core<'_>,
        pieces: &Pieces,
        access: &WarpAccess,
        lane: u32,
        place: Range<u64>,
    ) -> bool {
        let program = core.env.launch.program;
        let Some(stack) = *self.bounds.stack.get_or_insert_with(|| pieces.stack(program)) else {
            return false;
        };
        let top = u64::from(stack.top);
        let bottom = top.saturating_sub(stack.bytes.into());
        if bottom <= place.start && place.end <= top {
            return false;
        }
        let text = format!("{} local memory outside the stack of the thread", verb(access.memory.access));
        let at = if place.start < top { place.start } else { place.start.max(top) };
        let mut found = finding(core, Checks::MEMORY, lane, &text, Some(access.places[lane as usize]), None);
        let location = Location::new(PieceKind::Local, STACK, bottom, top - bottom, at);
        found.location = Some(location);
        self.findings.record(found);
        true
    }
}

/// Text for an address that is wrong.
fn outside(pieces: &Pieces, access: Access, at: u64, wrong: &Wrong) -> String {
    let verb = verb(access);
    match wrong {
        Wrong::Outside if pieces.freed(at).is_some() => format!("{verb} memory that was freed"),
        Wrong::Outside => format!("{verb} global memory outside every buffer"),
        Wrong::Forbidden if access == Access::Load => {
            format!("{verb} memory that is not for kernels to read")
        }
        Wrong::Forbidden => format!("{verb} memory that is not for kernels to write"),
    }
}

/// Reference point of an address in local memory.
const STACK: &str = "stack";
