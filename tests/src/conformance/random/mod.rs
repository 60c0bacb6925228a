//! Random programs: straight lines of operations, written as PTX through `ptxgen` and evaluated exactly on
//! the CPU.
//!
//! A program runs as one block of [`THREADS`] threads. Each thread loads [`INPUTS`] words and stores the
//! result of every operation, so that a difference names the operation that made it. An operation takes four
//! words (earlier results and inputs) and a constant and gives one word; its two meanings, the PTX it writes
//! and what it computes, stand side by side in the table of its family.

mod block;
mod convert;
mod float;
mod integer;
mod operation;

use hcq::LaunchConfig;
use ptxgen::{Kernel, Module, Named, Params, Ptr, Reg, Special, Target, kernel_params};

use crate::conformance::case::{BufferNumber, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::random::operation::{BlockOp, LaneOp, Memory, Site, Words};
use crate::conformance::tolerance::Tolerance;

pub use operation::THREADS;

/// Words that each thread loads.
pub const INPUTS: usize = 8;
/// Operations of a program.
pub const STEPS: usize = 40;

#[derive(Clone, Copy, Debug)]
enum Op {
    Lane(&'static LaneOp),
    Block(&'static BlockOp),
}

/// A group of programs that use the same kind of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Integer arithmetic, logic, bit fields, byte permutation, dot products, division.
    Integer,
    /// f32, f64 and pairs of f16: sums, products, fused, minima, quotients, roots, comparisons.
    Float,
    /// Between all integer and float types, in all roundings.
    Conversion,
    /// Shuffles, votes and reductions of warps.
    Warp,
    /// Exchange through shared memory, of bytes to 64-bit words.
    Shared,
    /// Atomics on global and shared memory whose result does not depend on the order.
    Atomic,
}

impl Family {
    /// All of them.
    pub const ALL: [Family; 6] =
        [Family::Integer, Family::Float, Family::Conversion, Family::Warp, Family::Shared, Family::Atomic];

    /// Its name, that of its cubins.
    pub const fn name(self) -> &'static str {
        match self {
            Family::Integer => "integer",
            Family::Float => "float",
            Family::Conversion => "conversion",
            Family::Warp => "warp",
            Family::Shared => "shared",
            Family::Atomic => "atomic",
        }
    }

    /// Its committed module, for sm_87 and sm_90.
    fn cubins(self) -> [&'static [u8]; 2] {
        match self {
            Family::Integer => cubins!("../../../kernels/conformance/integer"),
            Family::Float => cubins!("../../../kernels/conformance/float"),
            Family::Conversion => cubins!("../../../kernels/conformance/conversion"),
            Family::Warp => cubins!("../../../kernels/conformance/warp"),
            Family::Shared => cubins!("../../../kernels/conformance/shared"),
            Family::Atomic => cubins!("../../../kernels/conformance/atomic"),
        }
    }

    /// Number of its programs.
    pub const fn programs(self) -> usize {
        match self {
            Family::Integer | Family::Float => 16,
            _ => 8,
        }
    }

    /// One random operation of the family.
    fn draw(self, noise: &mut Noise) -> Op {
        let mixed = |noise: &mut Noise, own: &'static [BlockOp]| {
            // As many integer operations between them, so that what is exchanged differs from thread to
            // thread.
            if noise.below(2) == 0 {
                Op::Lane(&integer::OPS[noise.below(integer::OPS.len())])
            } else {
                Op::Block(&own[noise.below(own.len())])
            }
        };
        let lane = |noise: &mut Noise, own: &'static [LaneOp]| Op::Lane(&own[noise.below(own.len())]);
        match self {
            Family::Integer => lane(noise, integer::OPS),
            Family::Float => lane(noise, float::OPS),
            Family::Conversion => lane(noise, convert::OPS),
            Family::Warp => mixed(noise, block::WARP),
            Family::Shared => mixed(noise, block::SHARED),
            Family::Atomic => mixed(noise, block::ATOMIC),
        }
    }

    /// An input word that suits it.
    fn input(self, noise: &mut Noise) -> u32 {
        match self {
            Family::Float => noise.float(),
            Family::Conversion => noise.mixed(),
            _ => noise.integer(),
        }
    }
}

/// One operation of a program.
#[derive(Clone, Copy, Debug)]
struct Step {
    op: Op,
    /// Inputs below [`INPUTS`], results of earlier steps above.
    from: [usize; 4],
    constant: u32,
}

/// A random program.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its family.
    pub family: Family,
    /// The number that it and its inputs follow from.
    pub seed: u64,
    steps: Vec<Step>,
}

/// The results of a program, as far as they are defined.
#[derive(Debug)]
pub struct Outcome {
    /// Results, those of step `s` and thread `t` at `s` × [`THREADS`] + `t`.
    pub results: Vec<Option<u32>>,
    /// The table that atomics work on.
    pub table: Vec<u32>,
}

impl Program {
    /// Number `index` of `family`.
    pub fn new(family: Family, index: usize) -> Self {
        let seed = 1000 * family as u64 + index as u64;
        let mut noise = Noise::new(seed);
        let steps = (0..STEPS)
            .map(|step| {
                let known = INPUTS + step;
                let from = [(); 4].map(|()| match noise.below(4) {
                    0 => noise.below(INPUTS),
                    1 => noise.below(known),
                    _ => known - 1 - noise.below(known.min(6)),
                });
                Step { op: family.draw(&mut noise), from, constant: noise.bits() }
            })
            .collect();
        Self { family, seed, steps }
    }

    /// All programs of a family.
    pub fn all(family: Family) -> Vec<Self> {
        (0..family.programs()).map(|index| Self::new(family, index)).collect()
    }

    /// The kernel's name.
    pub fn name(&self) -> String {
        format!("{}_{}", self.family.name(), self.seed)
    }

    /// Name of the computation of step `step`.
    pub fn step_name(&self, step: usize) -> &'static str {
        match self.steps[step].op {
            Op::Lane(op) => op.name,
            Op::Block(op) => op.name,
        }
    }

    /// The words that its threads load, input `i` of thread `t` at `i` × [`THREADS`] + `t`.
    pub fn inputs(&self) -> Vec<u32> {
        let mut noise = Noise::new(!self.seed);
        (0..INPUTS * THREADS).map(|_| self.family.input(&mut noise)).collect()
    }

    /// The content of the table before.
    pub fn table(&self) -> Vec<u32> {
        let mut noise = Noise::new(self.seed << 32 | 1);
        (0..STEPS * THREADS).map(|_| noise.integer()).collect()
    }

    /// The kernel, taking pointers to the inputs, the results and the table.
    pub fn kernel(&self) -> Kernel {
        let k = Kernel::new(&self.name());
        k.max_threads(THREADS as u32);
        let p = Buffers::declare(&k);
        let thread = k.special(Special::TidX);
        let uses_block = self.steps.iter().any(|s| matches!(s.op, Op::Block(_)));
        let shared = uses_block.then(|| k.shared::<u32>(2 * THREADS as u32));
        let (input, output) = (k.at(p.input, thread), k.at(p.output, thread));
        let row = |n: usize| (n * THREADS) as i64;
        let mut values: Vec<Reg<u32>> = (0..INPUTS).map(|i| k.load(input.plus(row(i)))).collect();
        for (number, step) in self.steps.iter().enumerate() {
            k.comment(&format!("step {number}: {}", self.step_name(number)));
            let from = step.from.map(|i| values[i]);
            let value = match (step.op, shared) {
                (Op::Block(op), Some(shared)) => {
                    let site = Site { thread, shared, row: p.table.plus(row(number)) };
                    (op.emit)(&k, &site, from, step.constant)
                }
                (Op::Block(_), None) => unreachable!("shared memory is there if any step is a block's"),
                (Op::Lane(op), _) => (op.emit)(&k, from, step.constant),
            };
            k.store(output.plus(row(number)), value);
            values.push(value);
        }
        k
    }

    /// Computes on the CPU the results of the kernel.
    pub fn evaluate(&self, inputs: &[u32], table: &[u32]) -> Outcome {
        let mut table = table.to_vec();
        let mut values: Vec<Vec<Option<u32>>> =
            inputs.chunks(THREADS).map(|row| row.iter().copied().map(Some).collect()).collect();
        for (number, step) in self.steps.iter().enumerate() {
            let known = |t: usize| -> Option<Words> {
                let [a, b, c, d] = step.from.map(|i| values[i][t]);
                Some([a?, b?, c?, d?])
            };
            let row = match step.op {
                Op::Lane(op) => {
                    (0..THREADS).map(|t| known(t).and_then(|w| (op.eval)(w, step.constant))).collect()
                }
                Op::Block(op) => {
                    // Families with block operations have no operation whose value is not laid down.
                    let words: Vec<Words> = (0..THREADS).map(|t| known(t).unwrap_or_default()).collect();
                    let mut memory = Memory::new(&mut table[number * THREADS..][..THREADS]);
                    (op.eval)(&mut memory, &words, step.constant).into_iter().map(Some).collect()
                }
            };
            values.push(row);
        }
        Outcome { results: values.split_off(INPUTS).concat(), table }
    }
}

/// The modules that are committed for `target`: one per family.
pub fn modules(target: Target) -> Vec<Named> {
    Family::ALL
        .into_iter()
        .map(|family| {
            let mut module = Module::new(target);
            for program in Program::all(family) {
                module.add(program.kernel());
            }
            Named { name: family.name().to_owned(), module }
        })
        .collect()
}

kernel_params! {
    /// All programs.
    struct Buffers { input: Ptr<u32, 16>, output: Ptr<u32, 16>, table: Ptr<u32, 16> }
}

/// A program as a case: its first buffer holds the inputs, the second the results, the third the table.
pub fn case(program: Program) -> Case {
    let (inputs, table) = (program.inputs(), program.table());
    let outcome = program.evaluate(&inputs, &table);
    let known = |words: &[u32]| words.iter().copied().map(Some).collect::<Vec<_>>();
    let expected = vec![known(&inputs), outcome.results, known(&outcome.table)];
    Case {
        family: program.family.name(),
        program: program.name(),
        seed: program.seed,
        cubins: program.family.cubins(),
        kernel: program.name(),
        config: LaunchConfig::new(1, THREADS as u32),
        launches: vec![
            Buffers { input: BufferNumber(0), output: BufferNumber(1), table: BufferNumber(2) }.args(),
        ],
        buffers: vec![inputs, vec![0xdead_beef; STEPS * THREADS], table],
        expected: Some(expected),
        place: Box::new(move |_, word| {
            let (step, thread) = (word / THREADS, word % THREADS);
            let what = if step < STEPS { program.step_name(step) } else { "inputs" };
            let what = format!("step {step}, thread {thread}: {what}");
            Some(Place { what, tolerance: Tolerance::Exact })
        }),
        ..Case::blank()
    }
}

/// All random programs.
pub fn cases() -> Vec<Case> {
    Family::ALL.into_iter().flat_map(Program::all).map(case).collect()
}
