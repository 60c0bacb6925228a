//! Accesses to memory that is not the kernel's, compared with the program's notes on its memory: see
//! [`Pieces`].

use std::ops::Range;

use crate::findings::Checks;
use crate::gpu::sm::check::bounds::Wrong;
use crate::gpu::sm::check::{Place, WarpAccess, Watch, finding, lanes};
use crate::gpu::sm::core::Core;
use crate::pieces::note::{KernelAccess, PieceKind};
use crate::pieces::{Location, Pieces};

use sass::Access;

fn verb(access: Access) -> &'static str {
    match access {
        Access::Load => "reads",
        Access::Store => "writes",
        Access::Atomic => "updates",
    }
}

impl Watch {
    /// Compares an access with the pieces; one finding at most, of the first lane that is wrong.
    pub(super) fn check_memory(&mut self, core: &mut Core<'_>, access: &WarpAccess) {
        let Some(pieces) = core.env.memory.pieces() else { return };
        let needs = match access.memory.access {
            Access::Load => KernelAccess::Read,
            Access::Store | Access::Atomic => KernelAccess::ReadWrite,
        };
        for lane in lanes(access.lanes) {
            let place = access.places[lane as usize];
            let Some(end) = place.offset().checked_add(access.memory.bytes.into()) else { continue };
            let wrong = match place {
                Place::Global(va) => self.bounds.first_wrong(core, pieces, va..end, needs),
                Place::Local(offset) => {
                    if self.leaves_stack(core, pieces, access, lane, offset.into()..end) {
                        return;
                    }
                    None
                }
                Place::Shared(_) => None,
            };
            if let Some((at, wrong)) = wrong {
                let verb = verb(access.memory.access);
                let text = match wrong {
                    Wrong::Outside if pieces.freed(at).is_some() => format!("{verb} memory that was freed"),
                    Wrong::Outside => format!("{verb} global memory outside every buffer"),
                    Wrong::Forbidden => {
                        format!("{verb} memory that is not for kernels to {}", verb_of(needs))
                    }
                };
                self.report(core, Checks::MEMORY, lane, &text, Some(Place::Global(at)), None);
                return;
            }
        }
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

/// Reference point of an address in local memory.
const STACK: &str = "stack";

fn verb_of(needs: KernelAccess) -> &'static str {
    if needs == KernelAccess::Read { "read" } else { "write" }
}
