//! One instruction as the analysis sees it.

use crate::control::Control;
use crate::instruction::Instruction;
use crate::lint::unit::{Queue, Unit};
use crate::opcode::Opcode;
use crate::registers::{Register, RegisterSet};

/// An instruction, as far as others must wait for it or it for others.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub instruction: Instruction,
    /// Registers that it reads; none if its guard never holds.
    pub reads: RegisterSet,
    /// Registers that it may write.
    pub writes: RegisterSet,
    /// Sources that are read after it has issued: registers of the thread, where its latency is variable.
    pub late_sources: RegisterSet,
    /// Results that are there when the sources have been read.
    pub early_results: RegisterSet,
    /// Whether barriers say when it is done, rather than cycles.
    pub is_variable: bool,
    /// In which order its results become visible.
    pub results_queue: Option<Queue>,
    /// In which order its sources are read.
    pub sources_queue: Option<Queue>,
    /// In which order its sources are read and the results of others written.
    pub replacement_queue: Option<Queue>,
}

impl Step {
    /// `None` if the operands of the instruction are not known.
    pub fn of(instruction: Instruction) -> Option<Self> {
        let effects = instruction.effects()?;
        let guard = instruction.guard;
        let executes = guard.index != 7 || !guard.neg;
        let (reads, writes) = if executes { (effects.reads, effects.writes) } else { Default::default() };
        let is_variable = Unit::is_variable(&instruction);
        let of_thread = |register: &Register| matches!(register, Register::R(_));
        let early = match instruction.opcode {
            // Whether the atomic can be done where the address lies.
            Opcode::Atom | Opcode::AtomCas => writes.iter().filter(|r| !of_thread(r)).collect(),
            _ => RegisterSet::EMPTY,
        };
        Some(Self {
            instruction,
            reads,
            writes,
            late_sources: if is_variable {
                reads.iter().filter(of_thread).collect()
            } else {
                RegisterSet::EMPTY
            },
            early_results: early,
            is_variable,
            results_queue: Queue::of_results(&instruction),
            sources_queue: Queue::of_sources(&instruction),
            replacement_queue: Queue::of_replacement(&instruction),
        })
    }

    /// The scheduling field.
    pub fn control(&self) -> Control {
        self.instruction.control()
    }

    /// The barriers that are waited for before it issues.
    pub fn waits(&self) -> u8 {
        let word = self.instruction.word;
        let explicit = match self.instruction.opcode {
            Opcode::Depbar => {
                // A count above 0 lets some of the instructions go on.
                let drained = word.bit(47) && word.bits(38, 6) == 0;
                let counted = if drained { 1u8.checked_shl(word.bits(44, 3) as u32).unwrap_or(0) } else { 0 };
                word.bits(32, 6) as u8 | counted
            }
            _ => 0,
        };
        self.control().wait_mask | explicit
    }

    /// The predicate of the guard.
    pub fn guard(&self) -> Register {
        let guard = self.instruction.guard;
        if guard.uniform { Register::Up(guard.index) } else { Register::P(guard.index) }
    }

    /// Whether no thread executes both while the predicate keeps its value.
    pub fn is_opposite(&self, other: &Self) -> bool {
        self.guard() == other.guard() && self.instruction.guard.neg != other.instruction.guard.neg
    }
}
