//! Locks, and the order of stores as the GPU sees them.

use std::sync::atomic::Ordering;
#[cfg(target_arch = "x86_64")]
use std::sync::atomic::compiler_fence;
#[cfg(not(target_arch = "x86_64"))]
use std::sync::atomic::fence;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The value behind a lock. The value that a panicking thread left is whole, because changes are made in one
/// go.
pub(crate) fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes all earlier stores visible to the GPU before any later store: write-combined ones, and cacheable ones to
/// a GPU that snoops.
pub(crate) fn store_barrier() {
    #[cfg(test)]
    tests::at_barrier();
    #[cfg(target_arch = "x86_64")]
    {
        compiler_fence(Ordering::SeqCst);
        // SAFETY: SSE is part of every x86-64 CPU.
        unsafe { std::arch::x86_64::_mm_sfence() };
        compiler_fence(Ordering::SeqCst);
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches no memory and no register. The inner-shareable barrier that `fence` makes
    // need not order cacheable stores against a store to a device; this one is no weaker than what Linux puts
    // before a store to a device (`wmb`, arch/arm64/include/asm/barrier.h).
    unsafe {
        std::arch::asm!("dsb sy", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::RefCell;

    type Watch = Box<dyn Fn()>;

    thread_local! {
        static WATCH: RefCell<Option<Watch>> = const { RefCell::new(None) };
    }

    /// Does `work`, and calls `watch` at each barrier of this thread meanwhile.
    pub(crate) fn with_barriers_watched<T>(watch: impl Fn() + 'static, work: impl FnOnce() -> T) -> T {
        WATCH.set(Some(Box::new(watch)));
        let done = work();
        WATCH.set(None);
        done
    }

    pub(super) fn at_barrier() {
        WATCH.with_borrow(|watch| watch.iter().for_each(|watch| watch()));
    }
}
