//! Barrier objects in shared memory (`mbarrier`): arrivals of threads and bytes of copies complete a phase, on
//! whose parity threads wait.
//!
//! A phase completes when its count of arrivals has come and, on SM 9.0, all bytes that it was told to expect.
//! The first phase has parity 0. A wait for a parity succeeds when the phase of that parity is complete, so a
//! new object passes a wait for parity 1 at once: the producer of a ring starts there.
//! A phase must not complete twice while a thread still waits for it, or its parity is taken for an older one's.
//! Source: PTX ISA, "Parallel Synchronization and Communication Instructions: mbarrier".

use crate::builder::Kernel;
use crate::pointer::{Pointer, Shared};
use crate::reg::{Operand, Pred};
use crate::target::{Target, Version};
use crate::ty::Element;

/// A barrier object: 64 opaque bits of shared memory, aligned to 8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Mbarrier;

impl Element for Mbarrier {
    const SIZE: u32 = 8;
    const MEMORY: &'static str = "u64";
    type Value = u64;
}

/// Way in which a thread checks whether a phase is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poll {
    /// Looks once (`test_wait`).
    Test,
    /// The same; [`Kernel::wait_phase`] gives other warps the time of about so many nanoseconds between two
    /// polls.
    Sleep(u32),
    /// May suspend the thread for a time that the hardware limits (`try_wait`): from [`Target::Sm90`] on.
    Try,
}

/// The place of an object as instructions write it.
fn place(barrier: Pointer<Shared, Mbarrier>) -> String {
    assert!(barrier.alignment() >= 8, "a barrier object at a multiple of {} bytes only", barrier.alignment());
    barrier.text(0)
}

/// All functions that take an object panic if its address is not proven to be a multiple of 8 bytes: a mistake
/// in the program that writes the kernel.
impl Kernel {
    /// Makes 64 bits of shared memory a barrier object whose phases count `arrivals`, from 1 to 2^20 − 1.
    /// Other threads may use it after [`Kernel::sync_threads`]; bulk copies also after
    /// [`Kernel::fence_mbarrier_init`].
    pub fn init_mbarrier(&self, barrier: Pointer<Shared, Mbarrier>, arrivals: impl Operand<u32>) {
        self.emit(format!("mbarrier.init.shared.b64 {}, {};", place(barrier), arrivals.text()));
    }

    /// Ends the object's life; its memory may be used otherwise.
    pub fn invalidate_mbarrier(&self, barrier: Pointer<Shared, Mbarrier>) {
        self.emit(format!("mbarrier.inval.shared.b64 {};", place(barrier)));
    }

    /// One arrival. The thread's earlier writes are visible to those that the phase releases.
    pub fn arrive(&self, barrier: Pointer<Shared, Mbarrier>) {
        // The first version in which the state may be left out.
        self.require(Version::new(7, 1));
        self.emit(format!("mbarrier.arrive.shared.b64 _, {};", place(barrier)));
    }

    /// Tells the current phase to expect `bytes` more, at most 2^20 − 1 in one phase, then arrives once. From
    /// [`Target::Sm90`] on.
    pub fn arrive_expecting(&self, barrier: Pointer<Shared, Mbarrier>, bytes: impl Operand<u32>) {
        self.require_target("mbarrier.arrive.expect_tx", Target::Sm90, Version::new(8, 0));
        self.emit(format!("mbarrier.arrive.expect_tx.shared.b64 _, {}, {};", place(barrier), bytes.text()));
    }

    /// Arrives once when all of this thread's earlier [`Kernel::copy_async`] are complete; does not wait. The
    /// arrival is one of those that the object was initialized with (`.noinc`).
    pub fn arrive_after_copies(&self, barrier: Pointer<Shared, Mbarrier>) {
        self.emit(format!("cp.async.mbarrier.arrive.noinc.shared.b64 {};", place(barrier)));
    }

    /// Whether the phase of this parity, 0 or 1, is complete. If so, writes before its arrivals are visible.
    pub fn phase_done(
        &self,
        barrier: Pointer<Shared, Mbarrier>,
        parity: impl Operand<u32>,
        poll: Poll,
    ) -> Pred {
        let how = match poll {
            Poll::Test | Poll::Sleep(_) => {
                self.require(Version::new(7, 1));
                "test_wait"
            }
            Poll::Try => {
                self.require_target("mbarrier.try_wait", Target::Sm90, Version::new(7, 8));
                "try_wait"
            }
        };
        let done = self.reg();
        self.emit(format!("mbarrier.{how}.parity.shared.b64 {done}, {}, {};", place(barrier), parity.text()));
        done
    }

    /// Waits until the phase of this parity is complete, without limit.
    pub fn wait_phase(&self, barrier: Pointer<Shared, Mbarrier>, parity: impl Operand<u32>, poll: Poll) {
        self.loop_(|wait| {
            self.break_if(wait, self.phase_done(barrier, parity, poll));
            if let Poll::Sleep(nanoseconds) = poll {
                self.sleep(nanoseconds);
            }
        });
    }

    /// Makes objects that this thread initialized visible to bulk copies. From [`Target::Sm90`] on.
    pub fn fence_mbarrier_init(&self) {
        self.require_target("fence.mbarrier_init", Target::Sm90, Version::new(8, 0));
        self.emit("fence.mbarrier_init.release.cluster;".to_owned());
    }
}
