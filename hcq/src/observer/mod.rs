//! The observer of a device: told what the program does with it, in the order in which the program does it.
//!
//! A driver sees mappings, and a GPU sees work. What lies in a mapping, what was freed, what the CPU reads and
//! which work it has waited for, only this crate knows. A tool that looks for mistakes implements [`Observer`];
//! everything else calls it and does not know whether one looks: [`Unobserved`] does nothing.

use std::ops::Range;

use crate::address::GpuVa;
use crate::cubin::loader::{KernelInfo, Part};

#[cfg(feature = "sim")]
pub(crate) mod checker;
#[cfg(feature = "sim")]
pub(crate) mod quarantine;

/// Unused addresses that an observer wants, so that what leaves one piece of memory does not land in another.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spacing {
    /// Bytes after each piece that shares a mapping with others.
    pub pieces: u64,
    /// Bytes after each mapping; there is one page at least.
    pub mappings: u64,
}

/// Observer of the program's use of a device. All methods do nothing by default.
///
/// It is defined here and not in `nvgpu-sys`: its events are this crate's (a piece, a program, a semaphore that
/// was read), and no system call goes with them. `ga10b-sim`, where the checks are, is below and optional, so
/// `checker` passes the events on to it. A launch is no event of its own: it is in what is submitted.
pub(crate) trait Observer: Send + Sync {
    /// Asked once, before anything is allocated.
    fn spacing(&self) -> Spacing {
        Spacing::default()
    }

    /// `len` bytes at `va` are memory of the kind that `what` says: "buffer", "command ring", "signal", ...
    fn allocated(&self, _va: GpuVa, _len: u64, _what: &'static str) {}

    /// The program calls the piece at `va` so.
    fn named(&self, _va: GpuVa, _name: &str) {}

    /// The piece at `va` is no longer used.
    fn freed(&self, _va: GpuVa) {}

    /// `addresses` could be used again, as could `memory` bytes that lie there. Returns those that may: these at
    /// once, or later ones that were held back before.
    fn hold_back(&self, addresses: Range<u64>, _memory: u64) -> Vec<Range<u64>> {
        vec![addresses]
    }

    /// There are no other addresses: returns all that are held back.
    fn let_go(&self) -> Vec<Range<u64>> {
        Vec::new()
    }

    /// The program in `file`, which has these sections and kernels, is about to be written to `va`.
    fn loaded(&self, _va: GpuVa, _parts: &[Part], _kernels: &[KernelInfo], _file: &[u8]) {}

    /// The CPU is about to write `data` at `va`, memory of the program's.
    fn written(&self, _va: GpuVa, _data: &[u8]) {}

    /// The CPU is about to write `data` at `va`, from where it is copied to memory of the program's.
    fn staged(&self, _va: GpuVa, _data: &[u8]) {}

    /// The CPU is about to read `len` bytes at `va`.
    fn read(&self, _va: GpuVa, _len: u64) {}

    /// The entries before `put` are about to be published in the ring of the channel that `token` names.
    fn submitted(&self, _token: u32, _put: u32) {}

    /// The CPU has read `value` from the semaphore at `va`, and relies on the work that ended with it.
    fn completed(&self, _va: GpuVa, _value: u64) {}
}

/// No observer.
pub(crate) struct Unobserved;

impl Observer for Unobserved {}
