//! An op as the checks see it, decoded once.

use crate::findings::Checks;
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::registers::{Group, Registers};

use bitflags::bitflags;
use sass::{Arch, Register, Word};

bitflags! {
    /// Work of the checks at an op.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Needs: u8 {
        /// Its effect is checked.
        const ACT = 1 << 0;
        /// It may use, or overwrite, registers that loads and products have left behind, or bring lanes together.
        const RACE = 1 << 1;
        /// It writes registers, which nothing may have written before.
        const DEFINES = 1 << 2;
    }
}

/// An op: its effect, its registers, and the work at it. Most ops need none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub needs: Needs,
    pub act: Act,
    pub registers: Registers,
    /// Registers that it may write, all that are known and those between.
    pub defines: Group,
}

impl Step {
    /// The instruction `word` under these checks.
    pub fn of(arch: Arch, word: u128, checks: Checks) -> Self {
        let (act, registers) = (Act::of(arch, word), Registers::of(arch, word));
        let defines = if checks.contains(Checks::INIT) { defined(arch, word) } else { Group::default() };
        let mut needs = Needs::empty();
        needs.set(Needs::ACT, checks.intersects(checks_of(act)));
        needs.set(Needs::RACE, checks.contains(Checks::RACE));
        needs.set(Needs::DEFINES, defines.count > 0);
        Step { needs, act, registers, defines }
    }
}

/// The checks that look at an effect.
fn checks_of(act: Act) -> Checks {
    match act {
        Act::Other => Checks::empty(),
        Act::Memory(_) | Act::LoadMatrix | Act::CopyToShared | Act::MultiplyShared(_) => {
            Checks::all() - Checks::SYNC
        }
        Act::CopyBulk | Act::InitObject | Act::Arrive | Act::ArriveAfterCopies | Act::CheckPhase => {
            Checks::all()
        }
        Act::Barrier => Checks::RACE | Checks::SYNC,
        Act::CommitCopies | Act::WaitForCopies(_) | Act::WaitForProducts(_) => Checks::RACE,
        Act::Fence | Act::BlockFence | Act::EmptyCache | Act::WaitForGrid => Checks::RACE | Checks::ORDER,
        Act::Shuffle | Act::WarpSync | Act::BranchDiverged => Checks::SYNC,
    }
}

/// Registers that an instruction may write: all of the thread's where that is not known.
fn defined(arch: Arch, word: u128) -> Group {
    let Ok(instruction) = sass::decode(arch, Word(word)) else { return Group::default() };
    let Some(effects) = instruction.effects() else { return Group { first: 0, count: u8::MAX } };
    let mut written = effects.writes.iter().filter_map(|register| match register {
        Register::R(n) => Some(n),
        _ => None,
    });
    let Some(first) = written.next() else { return Group::default() };
    Group { first, count: written.last().map_or(1, |last| last - first + 1) }
}
