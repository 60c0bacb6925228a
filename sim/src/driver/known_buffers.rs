//! Properties of buffers, kept also when only a descriptor of one remains: no handle, no mapping of the GPU.
//!
//! Nothing reports that the last descriptor of a memfd is closed. So the table is searched for such buffers
//! each time it has doubled: its size is bounded by the number of buffers in use, and a buffer costs the same
//! however many there were before.

use crate::driver::descriptor::{FileKey, borrow};
use crate::driver::dmabuf::{BufferFacts, DmaBuf};
use crate::driver::heaps::Taken;
use nix::errno::Errno;
use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::{Arc, Weak};

/// Buffers below which the table is not searched.
const FEW: usize = 256;

#[derive(Debug)]
struct KnownBuffer {
    alive: Weak<DmaBuf>,
    facts: BufferFacts,
    /// The last search found no descriptor of it. One may have been moved meanwhile, so a second search
    /// decides.
    missed: bool,
}

/// The buffers that something may still refer to.
#[derive(Debug)]
pub(crate) struct KnownBuffers {
    by_key: HashMap<FileKey, KnownBuffer>,
    /// Length of the table at which it is searched.
    search_at: usize,
}

impl Default for KnownBuffers {
    fn default() -> Self {
        Self { by_key: HashMap::new(), search_at: FEW }
    }
}

impl KnownBuffers {
    /// Adds a new buffer.
    pub(crate) fn add(&mut self, buffer: &Arc<DmaBuf>) {
        if self.by_key.len() >= self.search_at {
            if let Some(open) = open_files() {
                self.forget_all_but(&open);
            }
            self.search_at = FEW.max(2 * self.by_key.len());
        }
        let known = KnownBuffer { alive: Arc::downgrade(buffer), facts: buffer.facts(), missed: false };
        self.by_key.insert(buffer.key(), known);
    }

    /// Stores the facts of a buffer, for the time when only a descriptor of it remains.
    pub(crate) fn remember(&mut self, buffer: &DmaBuf) {
        if let Some(known) = self.by_key.get_mut(&buffer.key()) {
            known.facts = buffer.facts();
        }
    }

    /// The buffer of a key; `revive` makes it again when only a descriptor remained.
    ///
    /// # Errors
    /// `EINVAL` when there is none; those of `revive`.
    pub(crate) fn find(
        &mut self,
        key: FileKey,
        revive: impl FnOnce(BufferFacts) -> Result<DmaBuf, Errno>,
    ) -> Result<Arc<DmaBuf>, Errno> {
        let known = self.by_key.get_mut(&key).ok_or(Errno::EINVAL)?;
        if let Some(buffer) = known.alive.upgrade() {
            return Ok(buffer);
        }
        let buffer = Arc::new(revive(known.facts)?);
        known.alive = Arc::downgrade(&buffer);
        Ok(buffer)
    }

    /// The buffer that is known by the key of this one, or else this one.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(crate) fn find_or_add(&mut self, buffer: DmaBuf) -> Result<Arc<DmaBuf>, Errno> {
        let alive = self.by_key.get(&buffer.key()).and_then(|known| known.alive.upgrade());
        if let Some(known) = alive {
            known.adopt_descriptor(buffer.descriptor()?.as_fd())?;
            return Ok(known);
        }
        let buffer = Arc::new(buffer);
        self.add(&buffer);
        Ok(buffer)
    }

    /// Returns the properties of this buffer, if it is one.
    pub(crate) fn facts(&self, key: FileKey) -> Option<BufferFacts> {
        self.by_key.get(&key).map(|known| known.facts)
    }

    /// Returns the allocated parts of a carveout.
    pub(crate) fn taken(&self, heap: u32) -> Taken {
        let open = open_files();
        let mut taken = Taken::default();
        for (key, KnownBuffer { alive, facts, .. }) in &self.by_key {
            let used = alive.strong_count() > 0 || open.as_ref().is_none_or(|open| open.contains(key));
            if used && facts.heap == heap {
                taken.add(facts.offset, facts.size);
            }
        }
        taken
    }

    /// Whether this is a buffer.
    pub(crate) fn contains(&self, key: FileKey) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Forgets buffers that nothing refers to but, maybe, a descriptor that is not among those that are open.
    fn forget_all_but(&mut self, open: &HashSet<FileKey>) {
        self.by_key.retain(|key, known| {
            let used = known.alive.strong_count() > 0 || open.contains(key);
            let missed_before = std::mem::replace(&mut known.missed, !used);
            used || !missed_before
        });
    }
}

/// Returns the files that this process has open; `None` where they cannot be read.
fn open_files() -> Option<HashSet<FileKey>> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let key = |name: &std::ffi::OsStr| FileKey::of(borrow(name.to_str()?.parse().ok()?)?).ok();
    entries
        .map(|entry| entry.map(|entry| key(&entry.file_name())))
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer(serial: u64) -> Arc<DmaBuf> {
        Arc::new(DmaBuf::new(4096, serial).unwrap())
    }

    #[test]
    fn what_nothing_refers_to_is_forgotten_and_what_a_descriptor_names_is_not() {
        let mut known = KnownBuffers::default();
        let (held, named) = (buffer(1), buffer(2));
        known.add(&held);
        known.add(&named);
        let descriptor = named.descriptor().unwrap();
        let key = named.key();
        drop(named);
        let mut most = 0;
        for serial in 3..10_000 {
            known.add(&buffer(serial));
            most = most.max(known.by_key.len());
        }
        assert!(most <= 4 * FEW, "{most} buffers were kept");
        assert!(known.contains(held.key()) && known.contains(key));
        let facts = known.find(key, |facts| DmaBuf::new(facts.size, facts.serial)).unwrap().facts();
        assert_eq!((facts.size, facts.serial), (4096, 2));
        drop(descriptor);
        (10_000..12_000).for_each(|serial| known.add(&buffer(serial)));
        assert!(!known.contains(key) && known.contains(held.key()));
    }
}
