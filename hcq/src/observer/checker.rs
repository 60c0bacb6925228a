//! The checks of the software ga10b as observer: what `hcq` knows of its memory and its work, in their terms.
//!
//! With the check `memory` there is room between pieces of memory, and addresses are not used again soon: a
//! mistake does not land in another buffer.

use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};

use ga10b_sim::{
    Annotations, ArrayNote, Checks, KernelAccess, KernelNote, LineNote, Note, PieceKind, PieceNote,
    SharedNote, Sim, StackNote,
};

use crate::address::GpuVa;
use crate::constant_bank::STACK_START;
use crate::cubin::File;
use crate::cubin::loader::{KernelInfo, Part, SectionKind};
use crate::cubin::shared::SharedLayout;
use crate::observer::quarantine::Quarantine;
use crate::observer::{Observer, Spacing, Unobserved};
use crate::sync::lock;

/// Unused bytes after a small piece, and unmapped ones after a mapping. A stride past them is not noticed.
const RED_ZONE: Spacing = Spacing { pieces: 4 << 10, mappings: 1 << 20 };

/// Most bytes of freed memory to keep where `sim` checks accesses to it: what is kept stays mapped, and a kernel
/// that uses it would not be noticed.
pub(crate) fn keep_freed(sim: &Sim) -> Option<u64> {
    sim.checks().contains(Checks::MEMORY).then_some(0)
}

/// The observer of what a program does in an address space of `sim`.
pub(crate) fn of(sim: &Arc<Sim>, address_space: BorrowedFd<'_>) -> Arc<dyn Observer> {
    match sim.annotations(address_space).filter(|_| !sim.checks().is_empty()) {
        Some(annotations) => {
            let quarantine = sim.checks().contains(Checks::MEMORY).then(Mutex::default);
            Arc::new(Checker { annotations, quarantine })
        }
        None => Arc::new(Unobserved),
    }
}

struct Checker {
    annotations: Annotations,
    /// Where accesses to memory are checked.
    quarantine: Option<Mutex<Quarantine<Range<u64>>>>,
}

impl Observer for Checker {
    fn spacing(&self) -> Spacing {
        if self.quarantine.is_some() { RED_ZONE } else { Spacing::default() }
    }

    fn allocated(&self, va: GpuVa, len: u64, what: &'static str) {
        use KernelAccess::{None, ReadWrite};
        // What is not listed here is not for kernels.
        let (kind, access) = match what {
            "buffer" | "host buffer" => (PieceKind::Buffer, ReadWrite),
            "command ring" => (PieceKind::Commands, None),
            "launch ring" | "graph" => (PieceKind::Launches, None),
            "program" => (PieceKind::Program, None),
            "scratch" => (PieceKind::Local, None),
            "staging" => (PieceKind::Staging, None),
            "signal" => (PieceKind::Signal, None),
            _ => (PieceKind::Other, None),
        };
        let name = if what == "buffer" { "" } else { what };
        self.piece(va.raw(), len, kind, access, name);
    }

    fn named(&self, va: GpuVa, name: &str) {
        self.annotations.note(&Note::Named { va: va.raw(), name });
    }

    fn freed(&self, va: GpuVa) {
        self.annotations.note(&Note::Freed { va: va.raw() });
    }

    fn hold_back(&self, addresses: Range<u64>, memory: u64) -> Vec<Range<u64>> {
        match &self.quarantine {
            Some(quarantine) => lock(quarantine).put(addresses, memory),
            None => vec![addresses],
        }
    }

    fn let_go(&self) -> Vec<Range<u64>> {
        self.quarantine.as_ref().map_or_else(Vec::new, |quarantine| lock(quarantine).take_all())
    }

    /// The bytes between sections have no owner.
    fn loaded(&self, va: GpuVa, parts: &[Part], kernels: &[KernelInfo], file: &[u8]) {
        for part in parts.iter().filter(|part| part.extent.len > 0) {
            let (kind, access) = match part.kind {
                SectionKind::Code => (PieceKind::Code, KernelAccess::None),
                // Constants have addresses too, which kernels may load from.
                SectionKind::Constants => (PieceKind::Constants, KernelAccess::Read),
                SectionKind::Variables => (PieceKind::Variables, KernelAccess::ReadWrite),
            };
            self.piece(va.raw() + part.extent.offset, part.extent.len, kind, access, &part.name);
        }
        let file = File::parse(file).ok();
        for kernel in kernels {
            let sources = file.as_ref().map(|file| sources(file, &kernel.name)).unwrap_or_default();
            let lines: Vec<LineNote<'_>> =
                sources.iter().map(|(offset, source)| LineNote { offset: *offset, source }).collect();
            let stack = StackNote { top: STACK_START, bytes: kernel.stack };
            let layout = file.as_ref().and_then(|file| shared(file, &kernel.name)).unwrap_or_default();
            let arrays: Vec<ArrayNote<'_>> = layout
                .arrays
                .iter()
                .filter_map(|array| {
                    let (offset, bytes) = (array.offset.try_into().ok()?, array.bytes.try_into().ok()?);
                    Some(ArrayNote { name: &array.name, offset, bytes })
                })
                .collect();
            self.annotations.note(&Note::Kernel(KernelNote {
                va: va.raw() + kernel.code.offset,
                bytes: kernel.code.len,
                name: &kernel.name,
                stack: (kernel.stack > 0).then_some(stack),
                shared: (!arrays.is_empty()).then_some(SharedNote {
                    bytes: kernel.static_shared,
                    may_have_more: layout.may_have_more,
                    arrays: &arrays,
                }),
                lines: &lines,
            }));
        }
    }

    fn written(&self, va: GpuVa, data: &[u8]) {
        self.annotations.accesses(va.raw(), data.len() as u64, true);
        self.annotations.stores(va.raw(), data);
    }

    fn staged(&self, va: GpuVa, data: &[u8]) {
        self.annotations.stores(va.raw(), data);
    }

    fn read(&self, va: GpuVa, len: u64) {
        self.annotations.accesses(va.raw(), len, false);
    }

    fn submitted(&self, token: u32, put: u32) {
        self.annotations.submits(token, put);
    }

    fn completed(&self, va: GpuVa, value: u64) {
        self.annotations.observed(va.raw(), value);
    }
}

impl Checker {
    fn piece(&self, va: u64, bytes: u64, kind: PieceKind, access: KernelAccess, name: &str) {
        self.annotations.note(&Note::Piece(PieceNote { va, bytes, kind, name, access }));
    }
}

/// The shared memory of a kernel.
fn shared(file: &File<'_>, kernel: &str) -> Option<SharedLayout> {
    let function = file.functions().find(|function| function.name == kernel)?;
    Some(file.shared(&function))
}

/// The source lines of a kernel by offset from its start; none if the cubin does not say.
fn sources(file: &File<'_>, kernel: &str) -> Vec<(u64, String)> {
    let Some(function) = file.functions().find(|function| function.name == kernel) else { return Vec::new() };
    let lines = file.lines(&function).unwrap_or_default().table().into_iter();
    lines.filter_map(|(at, source)| Some((at.checked_sub(function.offset)?, source))).collect()
}
