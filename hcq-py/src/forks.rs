//! Views of memory in forks.
//!
//! A device's mappings do not come along into a forked child (`MADV_DONTFORK`), but the objects of Python that view
//! them do. For these the child gets memory of its own there, of zeros: a touch is no segmentation fault.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous};
use nix::unistd::{SysconfVar, sysconf};

/// Viewed memory: its first address, its length, and how many views there are. Locked while the interpreter is held,
/// and not longer.
static VIEWED: Mutex<BTreeMap<usize, (usize, usize)>> = Mutex::new(BTreeMap::new());

fn viewed() -> MutexGuard<'static, BTreeMap<usize, (usize, usize)>> {
    VIEWED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One view more of `len` bytes at `at`.
pub(crate) fn view(at: NonNull<u8>, len: usize) {
    static ENROLLED: Once = Once::new();
    ENROLLED.call_once(|| {
        // SAFETY: the handler is a function of this library, which no interpreter unloads.
        unsafe { libc::pthread_atfork(None, None, Some(provide)) };
    });
    viewed().entry(at.as_ptr().addr()).or_insert((len, 0)).1 += 1;
}

/// One view less of the memory at `at`.
pub(crate) fn end_view(at: NonNull<u8>) {
    let mut viewed = viewed();
    if let Some((_, views)) = viewed.get_mut(&at.as_ptr().addr()) {
        *views -= 1;
        if *views == 0 {
            viewed.remove(&at.as_ptr().addr());
        }
    }
}

/// Maps memory in a child where there is none any more.
unsafe extern "C" fn provide() {
    // Held by another thread, if the fork was not Python's; then there is no table to go by.
    let Ok(viewed) = VIEWED.try_lock() else { return };
    let page = sysconf(SysconfVar::PAGE_SIZE).ok().flatten().map_or(4096, |page| page as usize);
    // Buffers share pages: the end of what was mapped so far.
    let mut mapped = 0;
    for (at, (len, _)) in &*viewed {
        let (from, to) = ((at & !(page - 1)).max(mapped), (at + len).next_multiple_of(page));
        mapped = mapped.max(to);
        if let (Some(from), Some(len)) = (NonZeroUsize::new(from), NonZeroUsize::new(to.saturating_sub(from)))
        {
            let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE | MapFlags::MAP_FIXED_NOREPLACE;
            // SAFETY: replaces nothing: where something is mapped, the call fails.
            let _: Result<NonNull<c_void>, _> = unsafe {
                mmap_anonymous(Some(from), len, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE, flags)
            };
        }
    }
}
