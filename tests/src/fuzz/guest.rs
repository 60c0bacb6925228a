//! A guest memory of a few regions for the interpreter.

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use ga10b_sim::sm::{Access, Memory, MemoryFault, Span};

/// 16 bytes, aligned as guest addresses are.
#[derive(Default)]
#[repr(C, align(16))]
struct Line([AtomicU64; 2]);

struct Region {
    va: u64,
    lines: Box<[Line]>,
    writable: bool,
}

/// Regions of guest memory, each with its rights.
#[derive(Default)]
pub(crate) struct Guest {
    regions: Vec<Region>,
}

impl Guest {
    /// Maps `len` zero bytes at `va`; both are multiples of 16.
    pub(crate) fn map(&mut self, va: u64, len: usize, writable: bool) {
        let lines = (0..len / 16).map(|_| Line::default()).collect();
        self.regions.push(Region { va, lines, writable });
    }

    /// Fills the region at `va` with `words` and, after them, zeros.
    pub(crate) fn fill(&mut self, va: u64, words: impl IntoIterator<Item = u64>) {
        let region = self.regions.iter().find(|region| region.va == va).expect("a region that was mapped");
        let mut words = words.into_iter();
        for cell in region.lines.iter().flat_map(|line| &line.0) {
            cell.store(words.next().unwrap_or(0), Relaxed);
        }
    }
}

// SAFETY: the regions live as long as the guest, never move, and are reached through atomics alone.
unsafe impl Memory for Guest {
    fn translate(&self, va: u64, access: Access) -> Result<Span, MemoryFault> {
        let holds = |region: &&Region| va.wrapping_sub(region.va) < region.lines.len() as u64 * 16;
        let region = self.regions.iter().find(holds).ok_or(MemoryFault { va, access, kind: 2 })?;
        if !region.writable && matches!(access, Access::Write | Access::Atomic) {
            return Err(MemoryFault { va, access, kind: 6 });
        }
        let host = NonNull::from(&*region.lines).cast();
        Ok(Span { va: region.va, len: region.lines.len() as u64 * 16, host, writable: region.writable })
    }

    fn generation(&self) -> u64 {
        0
    }
}
