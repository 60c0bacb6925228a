//! State that a method can reach, and its result.

use crate::gpu::front::Front;
use crate::gpu::instance::Instance;
use crate::gpu::interrupts::Interrupts;
use crate::gpu::memory::GpuMemory;
use crate::gpu::semaphore::Acquire;
use crate::gpu::sm::grid::Turn;
use crate::gpu::sm::order::Order;
use crate::gpu::units::Units;
use crate::gpu::userd::Ring;
use std::cell::RefCell;

/// Everything a method may need.
pub(crate) struct Context<'a> {
    /// The units.
    pub(crate) units: &'a Units,
    /// Handler of interrupts.
    pub(crate) interrupts: &'a dyn Interrupts,
    /// The channel whose turn it is.
    pub(crate) channel: &'a Instance,
    /// Its ring.
    pub(crate) ring: &'a Ring,
    /// Its memory.
    pub(crate) memory: GpuMemory<'a>,
    /// Its line in the ledger, if the machine keeps one.
    pub(crate) front: Option<Front<'a>>,
    /// Decides what runs next among work that nothing orders; without, all runs in the order of submission.
    pub(crate) choices: Option<&'a RefCell<Order>>,
    /// The condition at which launches give way.
    pub(crate) turn: Turn<'a>,
}

/// Result of a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on.
    Next,
    /// Nothing more until a semaphore has its value.
    Acquire(Acquire),
    /// Go on with the launches that have begun, after other channels have had their turns.
    Preempted,
    /// A launch has begun that cannot go on, and has not ended: the engine stays with it.
    Stuck,
}
