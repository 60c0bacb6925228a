//! Copies of whole runs by the SM's copy unit (`cp.async.bulk`), from [`Target::Sm90`] on.
//!
//! One thread starts a copy; a barrier object counts its bytes. Source: PTX ISA, "Data Movement and Conversion
//! Instructions: Bulk copy".

use crate::builder::Kernel;
use crate::mbarrier::Mbarrier;
use crate::pointer::{Global, Multiple, Pointer, Shared};
use crate::policy::Policy;
use crate::reg::Operand;
use crate::target::{Target, Version};
use crate::ty::Element;

/// The length of a bulk copy, a multiple of [`BulkLength::UNIT`] bytes: a constant, or a value of which that is
/// proven.
#[derive(Clone, Debug)]
pub struct BulkLength(String);

impl BulkLength {
    /// Lengths and addresses of bulk copies are multiples of this, in bytes.
    pub const UNIT: u32 = 16;
}

impl From<u32> for BulkLength {
    /// # Panics
    /// If `bytes` is no multiple of [`BulkLength::UNIT`].
    fn from(bytes: u32) -> Self {
        assert!(bytes % Self::UNIT == 0, "a bulk copy of {bytes} bytes");
        Self(bytes.text())
    }
}

impl From<Multiple> for BulkLength {
    /// # Panics
    /// If it is not proven that `bytes` is a multiple of [`BulkLength::UNIT`].
    fn from(bytes: Multiple) -> Self {
        assert!(bytes.of() % Self::UNIT == 0, "a bulk copy of a multiple of {} bytes", bytes.of());
        Self(bytes.reg().text())
    }
}

fn check(what: &str, proven: u32) {
    assert!(proven >= BulkLength::UNIT, "{what} at a multiple of {proven} bytes only");
}

impl Kernel {
    /// Starts copying `bytes` to shared memory; `barrier`'s current phase counts them when they have arrived.
    /// The phase must expect them ([`Kernel::arrive_expecting`]). A thread sees the data after it waited for
    /// that phase. Where other threads accessed the destination before, they must have released it to this
    /// thread, by a barrier object for instance; after ordinary writes [`Kernel::fence_proxy_async`] too.
    ///
    /// # Panics
    /// If either address is not proven to be a multiple of [`BulkLength::UNIT`] bytes, or the object's of 8:
    /// mistakes in the program that writes the kernel.
    pub fn copy_bulk<E: Element>(
        &self,
        to: Pointer<Shared, E>,
        from: Pointer<Global, E>,
        bytes: impl Into<BulkLength>,
        barrier: Pointer<Shared, Mbarrier>,
        policy: Option<Policy>,
    ) {
        check("the destination of a bulk copy", to.alignment());
        check("the source of a bulk copy", from.alignment());
        assert!(
            barrier.alignment() >= 8,
            "a barrier object at a multiple of {} bytes only",
            barrier.alignment()
        );
        self.require_target("cp.async.bulk", Target::Sm90, Version::new(8, 0));
        let (hint, operand) = Policy::hint(policy);
        self.emit(format!(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes{hint} {}, {}, {}, {}{operand};",
            to.text(0),
            from.text(0),
            bytes.into().0,
            barrier.text(0)
        ));
    }

    /// Asks for `bytes` of global memory to be brought to the L2 cache.
    ///
    /// # Panics
    /// If the address is not proven to be a multiple of [`BulkLength::UNIT`] bytes.
    pub fn prefetch_bulk<E: Element>(&self, from: Pointer<Global, E>, bytes: impl Into<BulkLength>) {
        check("the source of a bulk prefetch", from.alignment());
        self.require_target("cp.async.bulk.prefetch", Target::Sm90, Version::new(8, 0));
        self.emit(format!("cp.async.bulk.prefetch.L2.global {}, {};", from.text(0), bytes.into().0));
    }

    /// Orders this thread's ordinary accesses to shared memory before the bulk copies that it starts later.
    pub fn fence_proxy_async(&self) {
        self.require_target("fence.proxy.async", Target::Sm90, Version::new(8, 0));
        self.emit("fence.proxy.async.shared::cta;".to_owned());
    }
}
