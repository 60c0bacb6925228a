//! A launch, as the operations that run in it see it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sass::Word;

use crate::clock::Clock;
use crate::gpu::sm::l2::L2;
use crate::gpu::sm::launch::{Launch, Memory};
use crate::gpu::sm::target::Target;

/// The surroundings of a running launch, shared by its workers.
pub(crate) struct Environment<'a> {
    pub launch: &'a Launch,
    pub memory: &'a dyn Memory,
    pub target: Target,
    /// What counts DRAM traffic, if anything does.
    pub l2: Option<&'a L2>,
    pub clock: &'a Clock,
    /// Set by the caller to end the launch early.
    pub stop: &'a AtomicBool,
    /// Set when a warp failed.
    pub failed: AtomicBool,
}

impl Environment<'_> {
    /// An instruction as text.
    pub fn text(&self, word: u128, va: u64) -> String {
        match sass::decode(self.target.arch, Word(word)) {
            Ok(i) => i.text(va),
            Err(e) => e.to_string(),
        }
    }

    /// Whether the launch is to end early.
    pub fn is_stopping(&self) -> bool {
        self.failed.load(Relaxed) || self.stop.load(Relaxed)
    }
}
