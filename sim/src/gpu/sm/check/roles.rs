//! The purpose of a load of memory, by the code that follows it: machine code has no mark for a wait, nor for an
//! update that is no atomic operation.

use sass::{Access, Arch, Instruction, Opcode, Operand, Word};

use crate::gpu::sm::check::registers::{Group, Registers};
use crate::gpu::sm::code_map::CodeMap;

/// Instructions after a load that are looked at.
const AHEAD: u32 = 64;

/// Purpose of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Plain,
    /// A loop loads the same place until it has another value.
    Poll,
    /// An atomic operation on the same place compares the value with what is there by then.
    Guess,
    /// The value is changed and stored to the same place, by the op with this number.
    Update(u32),
}

/// Registers and predicates that depend on a load.
#[derive(Default)]
struct Dependent {
    registers: [u64; 4],
    predicates: u8,
}

impl Dependent {
    fn has(&self, register: u8) -> bool {
        self.registers[usize::from(register / 64)] >> (register % 64) & 1 != 0
    }

    fn any(&self, group: Group) -> bool {
        (0..group.count).any(|n| self.has(group.first.wrapping_add(n)))
    }

    fn set(&mut self, group: Group, depends: bool) {
        for n in 0..group.count {
            let register = group.first.wrapping_add(n);
            let bit = 1 << (register % 64);
            match depends {
                true => self.registers[usize::from(register / 64)] |= bit,
                false => self.registers[usize::from(register / 64)] &= !bit,
            }
        }
    }

    fn decides(&self, i: &Instruction) -> bool {
        let condition = i.word.bits(87, 3) as u8;
        let named = |index: u8| index != 7 && self.predicates >> index & 1 != 0;
        !i.guard.uniform && named(i.guard.index) || i.opcode == Opcode::Bra && named(condition)
    }

    /// The instruction has run.
    fn pass(&mut self, i: &Instruction, registers: &Registers) {
        let depends = registers.reads.iter().any(|group| self.any(*group)) || self.reads_predicate(i);
        let written = match (registers.written.count, i.dst) {
            (0, Some(first)) if first != 255 && !is_uniform(i) => Group { first, count: 1 },
            (0, _) => Group::default(),
            _ => registers.written,
        };
        let always = i.guard.is_always();
        if depends || always {
            self.set(written, depends);
        }
        if let Some(predicates) = written_predicates(i) {
            self.predicates = match depends {
                true => self.predicates | predicates,
                false if always => self.predicates & !predicates,
                false => self.predicates,
            };
        }
    }

    fn reads_predicate(&self, i: &Instruction) -> bool {
        let named = |at: u32| {
            let index = i.word.bits(at, 3);
            index != 7 && self.predicates >> index & 1 != 0
        };
        match i.opcode {
            Opcode::Plop3 => named(87) || named(77) || named(68),
            Opcode::Isetp | Opcode::Fsetp | Opcode::Sel | Opcode::Fsel | Opcode::Vote => named(87),
            _ => false,
        }
    }
}

/// The predicates that an instruction writes, as a mask.
fn written_predicates(i: &Instruction) -> Option<u8> {
    use Opcode as Op;
    let writes = matches!(
        i.opcode,
        Op::Isetp
            | Op::Fsetp
            | Op::Dsetp
            | Op::Hsetp2
            | Op::Lop3
            | Op::Plop3
            | Op::Iadd3
            | Op::Lea
            | Op::Vote
            | Op::R2p
    );
    let of = |at: u32| 1u8 << i.word.bits(at, 3) & 0x7f;
    match i.opcode {
        Op::R2p => Some(0x7f),
        _ => writes.then(|| of(81) | of(84)),
    }
}

/// Returns the purpose of the load at op `pc`.
pub(super) fn role(map: &CodeMap, arch: Arch, pc: u32) -> Role {
    scan(map, arch, pc, true)
}

fn scan(map: &CodeMap, arch: Arch, pc: u32, nested: bool) -> Role {
    let (start, decode) = (map.va(pc), |pc| sass::decode(arch, Word(map.word(pc))));
    let Ok(load) = decode(pc) else { return Role::Plain };
    let Some(place) = load.memory_access() else { return Role::Plain };
    let mut dependent = Dependent::default();
    dependent.set(Registers::of(arch, map.word(pc)).written, true);
    let address = Group {
        first: place.register,
        count: if place.register == 255 { 0 } else { 1 + u8::from(place.wide) },
    };
    let mut decided = false;
    for (ahead, pc) in (1..AHEAD).zip(pc + 1..) {
        let va = map.va(pc);
        let Ok(i) = decode(pc) else { break };
        if va != start + 16 * u64::from(ahead) {
            break;
        }
        let registers = Registers::of(arch, map.word(pc));
        let here = i.memory_access().filter(|other| {
            (other.register, other.offset, other.wide || place.wide)
                == (place.register, place.offset, place.wide || other.wide)
        });
        match (i.opcode, i.branch_target(va)) {
            (Opcode::Bra, Some(target)) => {
                decided |= dependent.decides(&i);
                if target <= start {
                    return if decided { Role::Poll } else { Role::Plain };
                }
                if i.guard.is_always() && i.word.bits(87, 3) == 7 {
                    break;
                }
            }
            (Opcode::Exit, _) if i.guard.is_always() => break,
            (Opcode::Bar | Opcode::Ret | Opcode::CallRel | Opcode::CallAbs, _) => break,
            _ => {}
        }
        match here.map(|other| other.access) {
            Some(Access::Store) if dependent.any(registers.reads[1]) => return Role::Update(pc),
            Some(Access::Atomic) if compares(&i, &dependent) => return Role::Guess,
            // The first look of a loop that looks again.
            Some(Access::Load) if decided && nested && scan(map, arch, pc, false) == Role::Poll => {
                return Role::Poll;
            }
            _ => {}
        }
        let moved = i.dst.is_some_and(|first| {
            let written = Group { first, count: registers.written.count.max(1) };
            (0..address.count).any(|n| written.contains(address.first + n)) && !is_uniform(&i)
        });
        if moved {
            break;
        }
        dependent.pass(&i, &registers);
    }
    Role::Plain
}

/// Whether an atomic operation compares with a value.
fn compares(i: &Instruction, dependent: &Dependent) -> bool {
    let of = |operand: Operand| matches!(operand, Operand::Reg(register) if register != 255 && dependent.has(register));
    matches!(i.opcode, Opcode::AtomgCas | Opcode::AtomCas | Opcode::AtomsCas)
        && [i.b, i.c].into_iter().flatten().any(|source| of(source.operand))
}

/// Whether the destination is a register of the warp.
fn is_uniform(i: &Instruction) -> bool {
    i.opcode.mnemonic().starts_with('U')
        || matches!(i.opcode, Opcode::S2ur | Opcode::R2ur | Opcode::Voteu | Opcode::Redux)
}
