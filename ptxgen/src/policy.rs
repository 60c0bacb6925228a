//! Control of the L2 cache: eviction policies, loads that carry one, prefetches.
//!
//! Source: PTX ISA, "createpolicy", "Cache Eviction Priority Hints", "prefetch".

use crate::builder::Kernel;
use crate::memory::Cache;
use crate::pointer::{Global, Pointer};
use crate::reg::{Operand, Raw, Reg};
use crate::target::Version;
use crate::ty::Element;

/// Eviction priority of lines in the L2 cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evict {
    /// Before others: for data read once.
    First,
    /// As usual.
    Normal,
    /// After others: for data read again.
    Last,
    /// The order of eviction stays as it is.
    Unchanged,
}

impl Evict {
    const fn name(self) -> &'static str {
        match self {
            Evict::First => "evict_first",
            Evict::Normal => "evict_normal",
            Evict::Last => "evict_last",
            Evict::Unchanged => "evict_unchanged",
        }
    }
}

/// An eviction policy in a register.
#[derive(Clone, Copy, Debug)]
pub struct Policy(Reg<u64>);

impl Policy {
    /// The qualifier and the operand of an instruction that may carry a policy.
    pub(crate) fn hint(policy: Option<Self>) -> (&'static str, String) {
        match policy {
            Some(Policy(register)) => (".L2::cache_hint", format!(", {register}")),
            None => ("", String::new()),
        }
    }
}

impl Kernel {
    /// A policy for `fraction` of the lines, chosen by their addresses; the others are treated as usual.
    ///
    /// # Panics
    /// If `fraction` is not above 0 and at most 1: a mistake in the program that writes the kernel.
    pub fn policy(&self, evict: Evict, fraction: f32) -> Policy {
        assert!(fraction > 0.0 && fraction <= 1.0, "a policy for {fraction} of the lines");
        self.require(Version::new(7, 4));
        let policy = self.reg();
        self.emit(format!("createpolicy.fractional.L2::{}.b64 {policy}, {};", evict.name(), fraction.text()));
        Policy(policy)
    }

    /// Loads one, two or four words of global memory in one access, under a policy.
    ///
    /// # Panics
    /// If the alignment of one access is not proven: a mistake in the program that writes the kernel.
    pub fn load_hinted<const N: usize, E: Element>(
        &self,
        from: Pointer<Global, E>,
        cache: Cache,
        policy: Policy,
    ) -> [Reg<u32>; N] {
        assert!(matches!(N, 1 | 2 | 4) && from.alignment() >= 4 * N as u32, "{N} words from {from:?}");
        let into = [(); N].map(|()| self.reg::<u32>());
        let raw: Vec<Raw> = into.iter().map(|r| r.raw()).collect();
        let (hint, operand) = Policy::hint(Some(policy));
        self.vector_load(&format!("{}{hint}", self.cache_suffix::<Global>(cache)), &raw, from, &operand);
        into
    }

    /// Asks for the line of an address to be brought to the L2 cache. The address need not be mapped.
    pub fn prefetch<E: Element>(&self, at: Pointer<Global, E>) {
        self.emit(format!("prefetch.global.L2 {};", at.text(0)));
    }
}
