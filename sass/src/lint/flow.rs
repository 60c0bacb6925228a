//! Control flow of a piece of code: the successors of each instruction.

use std::collections::BTreeMap;

use crate::instruction::Instruction;
use crate::lint::step::Step;
use crate::listing::Listing;
use crate::opcode::Opcode;
use crate::word::WORD_BYTES;

/// Why the analysis of a path ends before the path does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StopReason {
    /// A register holds the target of the branch or call.
    Indirect,
    /// The target lies outside the code.
    Outside,
    /// Only the name of the instruction is known, or not even that.
    Unknown,
    /// The code ends without an end of the path.
    End,
}

/// A place where the analysis of a path ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stop {
    /// The address of the instruction.
    pub pc: u64,
    /// Why.
    pub reason: StopReason,
}

/// An instruction and its successors.
#[derive(Debug)]
pub(super) struct Node {
    /// Its effects and timing; `None` if they are not known.
    pub step: Option<Step>,
    /// Indices of the instructions that may follow.
    pub next: Vec<usize>,
}

/// The control-flow graph of a piece of code, one node per instruction.
#[derive(Debug)]
pub(super) struct Flow {
    pub nodes: Vec<Node>,
    pub stops: Vec<Stop>,
    base: u64,
}

impl Flow {
    pub fn of(listing: Listing<'_>, base: u64) -> Self {
        let nodes = listing.map(|line| Node { step: line.decoded.ok().and_then(Step::of), next: Vec::new() });
        let mut flow = Self { nodes: nodes.collect(), stops: Vec::new(), base };
        let mut calls = Vec::new();
        for at in 0..flow.nodes.len() {
            flow.connect(at, &mut calls);
        }
        flow.connect_returns(&calls);
        flow.forget_padding();
        flow
    }

    /// The address of a node.
    pub fn pc(&self, at: usize) -> u64 {
        self.base.wrapping_add((at * WORD_BYTES) as u64)
    }

    fn stop(&mut self, at: usize, reason: StopReason) {
        self.stops.push(Stop { pc: self.pc(at), reason });
    }

    /// Adds what may follow `at`, returns excepted; calls go to `calls` with the node of their target.
    fn connect(&mut self, at: usize, calls: &mut Vec<(usize, usize)>) {
        let Some(Step { instruction, .. }) = self.nodes[at].step else {
            return self.stop(at, StopReason::Unknown);
        };
        let goes_on = match transfer(&instruction) {
            Transfer::None => true,
            Transfer::End => !instruction.guard.is_always() || instruction.word.bits(87, 4) != 7,
            Transfer::Return => !instruction.guard.is_always(),
            Transfer::Indirect { returns } => {
                self.stop(at, StopReason::Indirect);
                // The state after the callee is not known: the code after a call begins a path of its own.
                !returns && !is_unconditional(&instruction)
            }
            Transfer::Jump => {
                if let Some(target) = self.target(at, &instruction) {
                    self.nodes[at].next.push(target);
                }
                !is_unconditional(&instruction)
            }
            Transfer::Call => {
                if let Some(target) = self.target(at, &instruction) {
                    self.nodes[at].next.push(target);
                    calls.push((at, target));
                }
                !is_unconditional(&instruction)
            }
        };
        if goes_on && at + 1 < self.nodes.len() {
            self.nodes[at].next.push(at + 1);
        } else if goes_on {
            self.stop(at, StopReason::End);
        }
    }

    fn target(&mut self, at: usize, instruction: &Instruction) -> Option<usize> {
        let offset = instruction.branch_target(self.pc(at)).and_then(|pc| pc.checked_sub(self.base));
        let index = offset.filter(|offset| offset % WORD_BYTES as u64 == 0);
        let index = index.and_then(|offset| usize::try_from(offset / WORD_BYTES as u64).ok());
        let inside = index.filter(|index| *index < self.nodes.len());
        if inside.is_none() {
            self.stop(at, StopReason::Outside);
        }
        inside
    }

    /// Leads each return to the instructions after the calls of the functions it ends.
    fn connect_returns(&mut self, calls: &[(usize, usize)]) {
        let mut callers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &(call, target) in calls {
            callers.entry(target).or_default().push(call);
        }
        let mut edges = Vec::new();
        for (&entry, callers) in &callers {
            for end in self.returns_of(entry, calls) {
                edges.extend(callers.iter().map(|call| (end, call + 1)));
            }
        }
        for (end, after) in edges {
            if after < self.nodes.len() {
                self.nodes[end].next.push(after);
            }
        }
    }

    /// The end of the code ends a path only if the first instruction leads there: the words after the last
    /// branch are padding.
    fn forget_padding(&mut self) {
        let mut reached = vec![false; self.nodes.len()];
        let mut open: Vec<usize> = (0..self.nodes.len().min(1)).collect();
        while let Some(at) = open.pop() {
            if !std::mem::replace(&mut reached[at], true) {
                open.extend(&self.nodes[at].next);
            }
        }
        if !reached.last().is_some_and(|reached| *reached) {
            self.stops.retain(|stop| stop.reason != StopReason::End);
        }
    }

    /// The returns that the function at `entry` reaches, stepping over the calls it makes.
    fn returns_of(&self, entry: usize, calls: &[(usize, usize)]) -> Vec<usize> {
        let mut seen = vec![false; self.nodes.len()];
        let (mut open, mut returns) = (vec![entry], Vec::new());
        while let Some(at) = open.pop() {
            if std::mem::replace(&mut seen[at], true) {
                continue;
            }
            let Some(Step { instruction, .. }) = &self.nodes[at].step else { continue };
            let transfer = transfer(instruction);
            if transfer == Transfer::Return {
                returns.push(at);
            }
            if matches!(transfer, Transfer::Call | Transfer::Indirect { returns: true }) {
                let callee = calls.iter().find(|(call, _)| *call == at).map(|(_, target)| *target);
                open.extend(self.nodes[at].next.iter().copied().filter(|next| Some(*next) != callee));
                open.extend(Some(at + 1).filter(|after| *after < self.nodes.len()));
            } else {
                open.extend(&self.nodes[at].next);
            }
        }
        returns
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transfer {
    /// The next instruction follows.
    None,
    /// The thread ends.
    End,
    /// A target in the word.
    Jump,
    /// A call of a target in the word.
    Call,
    /// A target that the word does not name.
    Indirect {
        /// It is a call.
        returns: bool,
    },
    /// To the caller.
    Return,
}

fn transfer(instruction: &Instruction) -> Transfer {
    use Opcode as Op;
    match instruction.opcode {
        Op::Exit => Transfer::End,
        Op::Bra => Transfer::Jump,
        Op::Warpsync if instruction.branch_target(0).is_some() => Transfer::Jump,
        Op::CallRel if instruction.form == 4 => Transfer::Call,
        // The linker fills in the target.
        Op::CallRel | Op::CallAbs => Transfer::Indirect { returns: true },
        Op::Brx | Op::Brxu | Op::Jmp | Op::Jmx | Op::Jmxu => Transfer::Indirect { returns: false },
        Op::Ret => Transfer::Return,
        _ => Transfer::None,
    }
}

/// Whether a jump is taken by all threads that come to it.
fn is_unconditional(instruction: &Instruction) -> bool {
    // `BRA.DIV` and `BRA.CONV` test whether the warp is together; bits 87 to 90 are a second condition.
    let depends = match instruction.opcode {
        Opcode::Bra => instruction.word.bits(32, 2) >= 2,
        Opcode::Warpsync => true,
        _ => false,
    };
    instruction.guard.is_always() && instruction.word.bits(87, 4) == 7 && !depends
}
