//! A launch, as the operations that run in it see it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sass::Word;

use crate::clock::Clock;
use crate::findings::Checks;
use crate::gpu::sm::l2::L2;
use crate::gpu::sm::lanes::Lanes;
use crate::gpu::sm::launch::{Launch, Memory};
use crate::gpu::sm::target::Target;
use crate::poison::POISON;

/// The surroundings of a running launch, shared by its workers.
pub(crate) struct Environment<'a> {
    pub launch: &'a Launch,
    pub memory: &'a dyn Memory,
    pub target: Target,
    /// Counter of DRAM traffic, if any.
    pub l2: Option<&'a L2>,
    /// Mistakes of the kernel that are searched for.
    pub checks: Checks,
    pub clock: &'a Clock,
    /// Set by the caller to end the launch early.
    pub stop: &'a AtomicBool,
    /// Set when a warp failed.
    pub failed: AtomicBool,
    /// Set when blocks are to give way before their time slices end.
    pub hurry: AtomicBool,
}

impl Environment<'_> {
    /// Value of registers, shared and local memory that nothing wrote.
    pub fn fresh(&self) -> Lanes {
        Lanes::splat(if self.checks.contains(Checks::INIT) { POISON } else { 0 })
    }

    /// An instruction as text.
    pub fn text(&self, word: u128, va: u64) -> String {
        match sass::decode(self.target.arch, Word(word)) {
            Ok(i) => i.text(va),
            Err(e) => e.to_string(),
        }
    }

    /// Whether blocks are to give way now.
    pub fn is_hurried(&self) -> bool {
        self.hurry.load(Relaxed) || self.is_stopping()
    }

    /// Whether the launch is to end early.
    pub fn is_stopping(&self) -> bool {
        self.failed.load(Relaxed) || self.stop.load(Relaxed)
    }
}
