//! State of the check of races beside the accesses and the clocks: what each op means for their order.

use rustc_hash::FxHashMap;
use sass::{Arch, Opcode, Word};

use crate::gpu::sm::check::pieces::Piece;
use crate::gpu::sm::check::registers::Registers;
use crate::gpu::sm::check::roles::{Role, role};
use crate::gpu::sm::check::shadow::Conflict;
use crate::gpu::sm::core::Core;

/// How an instruction orders the lanes that execute it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meeting {
    None,
    /// They are together.
    Here,
    /// They wait for each other.
    Waits,
}

/// An op, as far as the order of accesses depends on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RaceOp {
    pub meeting: Meeting,
    /// Registers that it reads or writes.
    pub touches: [u64; 4],
    pub role: Option<Role>,
    /// It stores what a load before it has begun to change.
    pub updates: bool,
}

/// State of the check beside the accesses and the clocks.
#[derive(Debug, Default)]
pub(super) struct Races {
    ops: Vec<Option<RaceOp>>,
    /// Room for the pieces of an access, and for its conflicts.
    pub pieces: Vec<Piece>,
    pub conflicts: Vec<(Piece, Conflict)>,
    /// Of a block, a warp and a word: another thread's change that a change in two steps may undo.
    pub lost: FxHashMap<(u32, u32, u64), (Piece, Conflict)>,
}

impl RaceOp {
    /// One that the order of accesses does not depend on.
    const NONE: Self = RaceOp { meeting: Meeting::None, touches: [0; 4], role: None, updates: false };

    /// Of the instruction `word`. In straight code `__syncwarp` is a `NOP`.
    fn of(arch: Arch, word: u128, registers: &Registers) -> Self {
        use Opcode as Op;
        let meeting = match sass::decode(arch, Word(word)).map(|i| i.opcode) {
            Ok(Op::Nop | Op::Shfl | Op::Vote | Op::Voteu | Op::Match | Op::Redux | Op::Ldsm | Op::Movm)
            | Ok(Op::Hmma | Op::Imma | Op::Bmma | Op::Dmma | Op::Qmma | Op::Hgmma) => Meeting::Here,
            Ok(Op::Warpsync) => Meeting::Waits,
            _ => Meeting::None,
        };
        let mut touches = [0u64; 4];
        for group in registers.reads.iter().chain([&registers.written]) {
            for n in 0..group.count {
                let register = group.first.wrapping_add(n);
                touches[usize::from(register / 64)] |= 1 << (register % 64);
            }
        }
        RaceOp { meeting, touches, ..RaceOp::NONE }
    }
}

impl Races {
    #[inline]
    pub fn op(&mut self, core: &Core<'_>, pc: u32) -> &mut RaceOp {
        let at = pc as usize;
        if !matches!(self.ops.get(at), Some(Some(_))) {
            self.decode(core, pc);
        }
        self.ops[at].get_or_insert(RaceOp::NONE)
    }

    #[cold]
    fn decode(&mut self, core: &Core<'_>, pc: u32) {
        let at = pc as usize;
        if self.ops.len() <= at {
            self.ops.resize(at + 1, None);
        }
        let (arch, word) = (core.env.launch.arch, core.map.word(pc));
        self.ops[at] = Some(RaceOp::of(arch, word, &Registers::of(arch, word)));
    }

    /// Returns the purpose of the current load.
    pub fn role(&mut self, core: &Core<'_>) -> Role {
        if let Some(role) = self.op(core, core.pc).role {
            return role;
        }
        let role = role(&core.map, core.env.launch.arch, core.pc);
        self.op(core, core.pc).role = Some(role);
        if let Role::Update(store) = role {
            self.op(core, store).updates = true;
        }
        role
    }
}
