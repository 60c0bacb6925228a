//! A worker's cache of address translations.

use crate::gpu::sm::launch::{Access, Memory, MemoryFault, Span, Windows};

const ENTRIES: usize = 256;
/// Translations that are kept whole: one that covers the address of a miss is not walked again.
const RECENT: usize = 4;
/// Bytes of guest memory that share an entry.
const GRAIN: u32 = 14;

/// A translation in the form the interpreter uses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub va: u64,
    /// Bytes from `va` on; 0 marks an empty entry.
    pub len: u64,
    pub host: *mut u8,
    pub writable: bool,
}

impl Entry {
    const EMPTY: Entry = Entry { va: 0, len: 0, host: std::ptr::null_mut(), writable: false };

    fn covers(&self, va: u64) -> bool {
        va.wrapping_sub(self.va) < self.len
    }
}

/// Why an address has no translation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Miss {
    /// It lies in the shared-memory window.
    Shared,
    /// It lies in the local-memory window.
    Local,
    /// The MMU refused.
    Mmu(MemoryFault),
}

/// The cache. Entries never reach into a memory window, so that a hit needs no window check.
pub(crate) struct Tlb<'a> {
    memory: &'a dyn Memory,
    windows: Windows,
    generation: u64,
    entries: Box<[Entry; ENTRIES]>,
    /// The last translations, and which of them goes next.
    recent: [Entry; RECENT],
    next: usize,
}

impl<'a> Tlb<'a> {
    pub fn new(memory: &'a dyn Memory, windows: Windows) -> Self {
        let generation = memory.generation();
        Tlb {
            memory,
            windows,
            generation,
            entries: Box::new([Entry::EMPTY; ENTRIES]),
            recent: [Entry::EMPTY; RECENT],
            next: 0,
        }
    }

    /// Drops all entries if the memory reports that translations changed.
    pub fn refresh(&mut self) {
        let generation = self.memory.generation();
        if generation != self.generation {
            self.generation = generation;
            *self.entries = [Entry::EMPTY; ENTRIES];
            self.recent = [Entry::EMPTY; RECENT];
        }
    }

    /// The window that holds `va`, if any.
    pub fn window(&self, va: u64) -> Option<Miss> {
        if va.wrapping_sub(self.windows.shared_base) < Windows::LEN {
            Some(Miss::Shared)
        } else if va.wrapping_sub(self.windows.local_base) < Windows::LEN {
            Some(Miss::Local)
        } else {
            None
        }
    }

    /// The translation of the page that holds `va`, if it is at hand.
    #[inline(always)]
    pub fn hit(&self, va: u64, access: Access) -> Option<Entry> {
        let e = self.entries[((va >> GRAIN) as usize) % ENTRIES];
        (e.covers(va) && (e.writable || access == Access::Read)).then_some(e)
    }

    /// The translation of the page that holds `va`.
    #[inline(always)]
    pub fn find(&mut self, va: u64, access: Access) -> Result<Entry, Miss> {
        self.hit(va, access).map_or_else(|| self.fill(va, access), Ok)
    }

    #[cold]
    #[inline(never)]
    fn fill(&mut self, va: u64, access: Access) -> Result<Entry, Miss> {
        let covers = |e: &&Entry| e.covers(va) && (e.writable || access == Access::Read);
        if let Some(&e) = self.recent.iter().find(covers) {
            self.entries[((va >> GRAIN) as usize) % ENTRIES] = e;
            return Ok(e);
        }
        if let Some(window) = self.window(va) {
            return Err(window);
        }
        let Span { va: start, len, host, writable } = self.memory.translate(va, access).map_err(Miss::Mmu)?;
        let mut e = Entry { va: start, len, host: host.as_ptr(), writable };
        for base in [self.windows.shared_base, self.windows.local_base] {
            if e.covers(base) {
                e.len = base - e.va;
            }
            let end = base.wrapping_add(Windows::LEN);
            if e.covers(end) && !e.covers(va) {
                // The page began inside a window and `va` lies after it.
                e = Entry {
                    va: end,
                    len: start + len - end,
                    host: host.as_ptr().wrapping_add((end - start) as usize),
                    writable,
                };
            }
        }
        self.entries[((va >> GRAIN) as usize) % ENTRIES] = e;
        self.recent[self.next] = e;
        self.next = (self.next + 1) % RECENT;
        Ok(e)
    }
}
