//! An op as the checks see it, decoded once.

use crate::findings::Checks;
use crate::gpu::sm::check::act::Act;
use crate::gpu::sm::check::registers::{Group, Registers};
use crate::gpu::sm::check::roles::{Role, role};
use crate::gpu::sm::core::Core;

use bitflags::bitflags;
use sass::{Arch, Opcode, Register, Word};

bitflags! {
    /// Work of the checks at an op.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub(super) struct Needs: u8 {
        /// Its effect is checked.
        const ACT = 1 << 0;
        /// It may use, or overwrite, registers that loads and products have left behind, or brings lanes together.
        const RACE = 1 << 1;
        /// It writes registers, which nothing may have written before.
        const DEFINES = 1 << 2;
    }
}

/// How an instruction orders the lanes that execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    None,
    /// They are together.
    Here,
    /// They wait for each other.
    Waits,
}

/// An op: its effect, its registers, and the work at it. Most ops need none.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub needs: Needs,
    pub act: Act,
    pub registers: Registers,
    /// All of them, one bit each.
    pub touches: [u64; 4],
    /// Registers that it may write, all that are known and those between.
    pub defines: Group,
    pub meeting: Meeting,
    /// Purpose of a load, once it was looked for.
    role: Option<Role>,
    /// It stores what a load before it has begun to change.
    pub updates: bool,
}

impl Step {
    /// The instruction `word` under these checks.
    #[cold]
    #[inline(never)]
    pub fn of(arch: Arch, word: u128, checks: Checks) -> Self {
        let (act, registers) = (Act::of(arch, word), Registers::of(arch, word));
        let defines = if checks.contains(Checks::INIT) { defined(arch, word) } else { Group::default() };
        let mut touches = [0u64; 4];
        for group in registers.reads.iter().chain([&registers.written]) {
            for n in 0..group.count {
                let register = group.first.wrapping_add(n);
                touches[usize::from(register / 64)] |= 1 << (register % 64);
            }
        }
        let meeting = Meeting::of(arch, word);
        let orders = meeting != Meeting::None || act == Act::Barrier;
        let mut needs = Needs::empty();
        needs.set(Needs::ACT, checks.intersects(checks_of(act)));
        needs.set(Needs::RACE, checks.contains(Checks::RACE) && (orders || touches != [0; 4]));
        needs.set(Needs::DEFINES, defines.count > 0);
        Step { needs, act, registers, touches, defines, meeting, role: None, updates: false }
    }
}

impl Meeting {
    /// Of the instruction `word`. In straight code `__syncwarp` is a `NOP`.
    fn of(arch: Arch, word: u128) -> Self {
        use Opcode as Op;
        match sass::decode(arch, Word(word)).map(|i| i.opcode) {
            Ok(Op::Nop | Op::Shfl | Op::Vote | Op::Voteu | Op::Match | Op::Redux | Op::Ldsm | Op::Movm)
            | Ok(Op::Hmma | Op::Imma | Op::Bmma | Op::Dmma | Op::Qmma | Op::Hgmma) => Meeting::Here,
            Ok(Op::Warpsync) => Meeting::Waits,
            _ => Meeting::None,
        }
    }
}

/// The ops of a launch.
#[derive(Debug)]
pub(super) struct Steps {
    checks: Checks,
    /// Each is decoded on first use.
    decoded: Vec<Option<Step>>,
}

impl Steps {
    pub fn new(checks: Checks) -> Self {
        Steps { checks, decoded: Vec::new() }
    }

    /// Returns op `pc` of the program.
    #[inline(always)]
    pub fn at(&mut self, core: &Core<'_>, pc: u32) -> &mut Step {
        let (at, checks) = (pc as usize, self.checks);
        if self.decoded.len() <= at {
            self.grow(at + 1);
        }
        self.decoded[at].get_or_insert_with(|| Step::of(core.env.launch.arch, core.map.word(pc), checks))
    }

    #[cold]
    fn grow(&mut self, len: usize) {
        self.decoded.resize(len, None);
    }

    /// Returns op `pc` if a lane has come to it.
    pub fn known(&self, pc: u32) -> Option<&Step> {
        self.decoded.get(pc as usize)?.as_ref()
    }

    /// Returns the purpose of the current load.
    pub fn role(&mut self, core: &Core<'_>) -> Role {
        if let Some(role) = self.at(core, core.pc).role {
            return role;
        }
        let role = role(&core.map, core.env.launch.arch, core.pc);
        self.at(core, core.pc).role = Some(role);
        if let Role::Update(store) = role {
            self.at(core, store).updates = true;
        }
        role
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
