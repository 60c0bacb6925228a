//! Early links: a kernel begins while the one before it in a chain still runs (programmatic dependent launch,
//! from sm_90 on).
//!
//! A kernel that executes `griddepcontrol.launch_dependents` lets the next one begin once all its blocks have
//! executed it or ended; the next stands at `griddepcontrol.wait` until this one has ended, and then sees
//! what it wrote. This hides the time from the end of one grid to the begin of the next.
//!
//! **The rule**, for every kernel of a chain whose launches are linked early:
//! 1. Every thread executes the wait, before it ends.
//! 2. Before the wait it reads nothing that any kernel of the chain writes, and writes nothing: what it may
//!    read are its parameters, and memory that only the host writes, such as weights.
//!
//! The first makes the order transitive. A kernel lets the next one begin before it has waited itself, so of
//! a chain A, B, C all three can run at once, and C waits for B alone. But B ends only when its threads have
//! waited, which is when A has ended: so after its wait C follows A too. Did one thread of B end without the
//! wait, B could end before A. Before the wait nothing is known of any of them, which is why the second part
//! names all kernels of the chain and not the one before.
//!
//! Nobody starves: dependents begin when every block of the grid before is resident or has ended, so blocks
//! that stand at a wait take no room that those they wait for still need.
//!
//! The software device checks the rule: what threads do before their wait is ordered after nothing of the
//! chain (`NVGPU_SIM_CHECK=order`).

use ptxgen::{Kernel, Target};

/// Lets the next launch of a chain begin, and waits for the end of the one before, where GPUs have such
/// links: by itself the next would begin after this one's end. Every thread executes it before it reads what
/// a kernel of the chain writes.
pub(crate) fn after_previous(k: &Kernel, target: Target) {
    if target >= Target::Sm90 {
        k.launch_dependents();
        k.wait_prerequisites();
    }
}

/// `kernel`, of which every thread begins with [`after_previous`].
pub(crate) fn linked(kernel: Kernel, target: Target) -> Kernel {
    kernel.begin_with(|k| after_previous(k, target));
    kernel
}
