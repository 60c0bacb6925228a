//! Accesses to memory that is not the kernel's, compared with what the program said of its memory: see
//! [`Pieces`].

use std::ops::Range;

use crate::findings::{Checks, Event, Finding, Findings};
use crate::gpu::sm::check::{Place, WarpAccess, Watch, finding, lanes};
use crate::gpu::sm::core::Core;
use crate::gpu::sm::launch::{Access as Translate, Memory};
use crate::gpu::sm::tlb::Miss;
use crate::pieces::{Location, Permit, Pieces};

use nvgpu_sys::{KernelAccess, PieceKind, StackNote};
use sass::Access;

/// Ranges of addresses that are remembered.
const REMEMBERED: usize = 64;
/// Addresses that share an entry, as a power of two.
const GRAIN: u32 = 12;

/// What a launch was found to be allowed: ranges of addresses, until the pieces change.
#[derive(Debug)]
pub(super) struct Bounds {
    generation: u64,
    allowed: Vec<(Range<u64>, KernelAccess)>,
    /// The stack of a thread, once it was asked for.
    stack: Option<Option<StackNote>>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { generation: 0, allowed: vec![(0..0, KernelAccess::None); REMEMBERED], stack: None }
    }
}

/// What is wrong with an address.
enum Wrong {
    /// It lies in no piece.
    Outside,
    /// It lies in a piece that is not for such accesses.
    Forbidden,
}

impl Bounds {
    fn slot(va: u64) -> usize {
        (va >> GRAIN) as usize % REMEMBERED
    }

    /// The first address of an access that is wrong.
    fn first_wrong(
        &mut self,
        core: &mut Core<'_>,
        pieces: &Pieces,
        place: Range<u64>,
        needs: KernelAccess,
    ) -> Option<(u64, Wrong)> {
        let generation = pieces.generation();
        if self.generation != generation {
            *self = Self { generation, stack: self.stack, ..Self::default() };
        }
        let (known, access) = &self.allowed[Self::slot(place.start)];
        if known.start <= place.start && place.end <= known.end && *access >= needs {
            return None;
        }
        let mut at = place.start;
        while at < place.end {
            let (permit, range) = pieces.permit(at);
            let access = match permit {
                Permit::Piece(access) if access < needs => return Some((at, Wrong::Forbidden)),
                Permit::Piece(access) => access,
                Permit::Outside => return Some((at, Wrong::Outside)),
                // What is mapped there is not described.
                Permit::Unknown if is_mapped(core, at) => KernelAccess::ReadWrite,
                // The hardware says that nothing is, but not whose neighbour it is.
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

/// What the location of an address in local memory is relative to.
const STACK: &str = "stack";

fn verb_of(needs: KernelAccess) -> &'static str {
    if needs == KernelAccess::Read { "read" } else { "write" }
}

/// A line of a copy of the copy engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// First address that is read, if any is.
    pub(crate) from: Option<u64>,
    /// Bytes that are read.
    pub(crate) read: u64,
    /// First address that is written.
    pub(crate) to: u64,
    /// Bytes that are written.
    pub(crate) bytes: u64,
}

/// Compares a copy of the copy engine with the pieces.
pub(crate) fn check_copy(findings: &Findings, memory: &dyn Memory, copy: &Copied) {
    let Some(pieces) = memory.pieces() else { return };
    let Copied { from, to, bytes, read } = *copy;
    let source = from.and_then(|from| Some((pieces.copy_leaves(from, read)?, "reads")));
    let target = pieces.copy_leaves(to, bytes).map(|at| (at, "writes"));
    for (at, verb) in source.into_iter().chain(target) {
        let text = match pieces.freed(at) {
            Some(_) => format!("a copy {verb} memory that was freed"),
            None => format!("a copy {verb} global memory outside every buffer"),
        };
        let copy = match from {
            Some(from) => format!("copy of {bytes} bytes from {from:#x} to {to:#x}"),
            None => format!("fill of {bytes} bytes at {to:#x}"),
        };
        let event = Event { pc: 0, sass: copy, block: [0; 3], thread: [0; 3], source: None };
        let location = pieces.locate(at);
        findings.record(Finding {
            check: Checks::MEMORY,
            text,
            program: 0,
            kernel: None,
            event,
            address: Some(at),
            location,
            earlier: None,
            count: 1,
        });
    }
}
