//! A static proof that machine code waits for its own results.
//!
//! The GPU does not check dependencies: the compiler writes into every instruction how many cycles the next one
//! waits, which scoreboard barrier it sets, and which it waits for. [`lint`] follows every path of a piece of
//! code and reports each instruction that reads or overwrites a register before the instruction that produces
//! or reads it is known to be done.
//!
//! The hardware rules it assumes:
//! - A result of fixed latency is there after the cycles of the table in `timing`.
//! - A result of variable latency is there when a barrier has been waited for that the instruction sets, or
//!   that a later one sets which passes the same queue: shared memory and shuffles, conversions, double
//!   precision and moves to uniform registers each answer in order.
//! - Registers of the thread are read late by instructions of variable latency: the read barrier, or the write
//!   barrier, says when. Memory operations read them in order. Predicates and uniform registers are read at
//!   issue.
//! - Instructions with opposite guards share no thread while the predicate keeps its value.
//!
//! ptxas keeps these rules in every kernel of the test corpus.

mod flow;
mod pending;
mod search;
mod step;
mod timing;
mod unit;

use crate::arch::Arch;
use crate::lint::flow::Flow;
use crate::lint::search::Conflict;
use crate::listing::Listing;
use crate::registers::RegisterSet;

pub use flow::{Stop, StopReason};
pub use pending::Hazard;
pub use unit::Unit;

/// Missing waits of a piece of code.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Instructions that do not wait, by address.
    pub findings: Vec<Finding>,
    /// Places at which paths were not followed further. The code behind them is examined as if nothing were
    /// under way.
    pub stops: Vec<Stop>,
}

/// An instruction that does not wait for an earlier one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The hazard.
    pub hazard: Hazard,
    /// The registers concerned.
    pub registers: RegisterSet,
    /// The address of the earlier instruction.
    pub first: u64,
    /// The address of the one that does not wait.
    pub next: u64,
    /// The missing wait.
    pub missing: Missing,
    /// The addresses of the instructions from `first` to `next` on one such path, both included.
    pub path: Vec<u64>,
}

/// Change that would make an instruction wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Missing {
    /// A wait for this barrier, which the earlier instruction sets.
    Wait {
        /// Barrier 0 to 5.
        barrier: u8,
    },
    /// A barrier that the earlier instruction, or a later one of its queue, sets.
    Barrier,
    /// Cycles in the stall counts between the two.
    Cycles {
        /// Cycles that the result takes.
        needed: u8,
        /// Cycles that pass on the path.
        passed: u8,
    },
}

/// Examines the instructions of `code`, which begins at address `base`.
///
/// ```
/// use sass::lint::{Missing, lint};
/// // FADD R5, R2, R3 with a stall of 2 cycles, then FADD R6, R5, R3.
/// let add = |d: u128, a: u128| 0x000fc4000000000000000003_00_00_7221u128 | d << 16 | a << 24;
/// let code = [add(5, 2).to_le_bytes(), add(6, 5).to_le_bytes()].concat();
/// let report = lint(sass::Arch::Sm87, &code, 0);
/// assert_eq!(report.findings[0].missing, Missing::Cycles { needed: 4, passed: 2 });
/// ```
pub fn lint(arch: Arch, code: &[u8], base: u64) -> Report {
    let flow = Flow::of(Listing::new(arch, code, base), base);
    let mut findings: Vec<Finding> =
        search::conflicts(&flow).iter().filter_map(|conflict| finding(&flow, conflict)).collect();
    findings.sort_by_key(|finding| (finding.next, finding.first));
    Report { findings, stops: flow.stops }
}

/// Returns the missing wait between the two instructions of a conflict, if any.
fn finding(flow: &Flow, conflict: &Conflict) -> Option<Finding> {
    let first = flow.nodes[conflict.first].step.as_ref()?;
    let next = flow.nodes[conflict.next].step.as_ref()?;
    let control = first.control();
    let (registers, missing) = if first.is_variable {
        let read = if conflict.hazard == Hazard::WriteAfterRead { control.read_barrier } else { None };
        let missing = match read.or(control.write_barrier) {
            Some(barrier) => Missing::Wait { barrier },
            None => Missing::Barrier,
        };
        (conflict.registers, missing)
    } else {
        let needed = |register| timing::needed(conflict.hazard, first, next, register);
        let late: RegisterSet =
            conflict.registers.iter().filter(|register| needed(*register) > conflict.cycles).collect();
        let needed = late.iter().map(needed).max()?;
        (late, Missing::Cycles { needed, passed: conflict.cycles })
    };
    let path = search::path(flow, conflict).into_iter().map(|at| flow.pc(at)).collect();
    let (first, next) = (flow.pc(conflict.first), flow.pc(conflict.next));
    Some(Finding { hazard: conflict.hazard, registers, first, next, missing, path })
}

/// A result of fixed latency and its use, as the compiler spaced them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Spacing {
    /// The later instruction's access to the registers.
    pub hazard: Hazard,
    /// The registers that both name.
    pub registers: RegisterSet,
    /// The address of the earlier instruction.
    pub first: u64,
    /// The address of the later one.
    pub next: u64,
    /// The units that execute the two instructions.
    pub units: (Unit, Unit),
    /// The fewest cycles between them.
    pub passed: u8,
    /// The cycles that the table of latencies asks for.
    pub needed: u8,
}

/// Returns the cycles that the code keeps between results of fixed latency and their uses, by which the table
/// of latencies is measured.
pub fn spacings(arch: Arch, code: &[u8], base: u64) -> Vec<Spacing> {
    let flow = Flow::of(Listing::new(arch, code, base), base);
    let of = |conflict: &Conflict| {
        let first = flow.nodes[conflict.first].step.as_ref().filter(|first| !first.is_variable)?;
        let next = flow.nodes[conflict.next].step.as_ref()?;
        let register = conflict.registers.iter().next()?;
        Some(Spacing {
            hazard: conflict.hazard,
            registers: conflict.registers,
            first: flow.pc(conflict.first),
            next: flow.pc(conflict.next),
            units: (Unit::of(&first.instruction, register), Unit::of(&next.instruction, register)),
            passed: conflict.cycles,
            needed: conflict
                .registers
                .iter()
                .map(|r| timing::needed(conflict.hazard, first, next, r))
                .max()?,
        })
    };
    search::conflicts(&flow).iter().filter_map(of).collect()
}
