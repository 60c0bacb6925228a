//! Copies from global to shared memory that bypass the registers (`cp.async`).
//!
//! A thread's copies since its last [`Kernel::commit_copies`] form a group. [`Kernel::wait_copies`] waits for
//! the thread's own groups only; other threads see the data after a barrier that follows the wait. A barrier
//! object takes the place of both with [`Kernel::arrive_after_copies`].

use crate::builder::Kernel;
use crate::layout::Layout;
use crate::pointer::{Global, Pointer, Shared};
use crate::policy::Policy;
use crate::ty::Element;

impl Kernel {
    /// As [`Kernel::copy_async_with`], without a policy.
    ///
    /// # Panics
    /// As that one.
    pub fn copy_async<E: Element>(&self, to: Pointer<Shared, E>, from: Pointer<Global, E>, count: u32) {
        self.copy_async_with(to, from, count, None);
    }

    /// Starts copying `count` elements, in pieces as wide as the alignment of both addresses proves safe: 16,
    /// 8 or 4 bytes. The source must not be written while the kernel runs.
    ///
    /// # Panics
    /// If the addresses are not proven to be multiples of 4 bytes, or the length is not one: mistakes in the
    /// program that writes the kernel.
    pub fn copy_async_with<E: Element>(
        &self,
        to: Pointer<Shared, E>,
        from: Pointer<Global, E>,
        count: u32,
        policy: Option<Policy>,
    ) {
        let (hint, operand) = Policy::hint(policy);
        let bytes = count * E::SIZE;
        let proven = to.alignment().min(from.alignment()).min(Layout::MAX_ACCESS);
        assert!(proven >= 4, "an asynchronous copy between multiples of {proven} bytes only");
        assert!(bytes % 4 == 0, "an asynchronous copy of {bytes} bytes");
        let mut at = 0;
        while at < bytes {
            let width = proven.min(1 << (bytes - at).ilog2());
            // Only whole sixteens may pass by the first-level cache.
            let cache = if width == 16 { "cg" } else { "ca" };
            let (to, from) = (to.text(i64::from(at)), from.text(i64::from(at)));
            self.emit(format!("cp.async.{cache}.shared.global{hint} {to}, {from}, {width}{operand};"));
            at += width;
        }
    }

    /// Closes a group, which may be empty.
    pub fn commit_copies(&self) {
        self.emit("cp.async.commit_group;".to_owned());
    }

    /// Waits until at most the `pending` youngest of this thread's groups are still under way.
    pub fn wait_copies(&self, pending: u32) {
        self.emit(format!("cp.async.wait_group {pending};"));
    }
}
