//! f64 arithmetic on every triple of special values: NaNs of several payloads and signs, infinities, zeros, a
//! subnormal.
//!
//! The bits of a NaN are specified nowhere; here two devices decide it.

use hcq::LaunchConfig;
use ptxgen::{Kernel, Module, Named, Params, Ptr, Reg, Special, Target, kernel_params};

use crate::conformance::case::{BufferNumber, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::tolerance::Tolerance;

/// The values that operands take.
const VALUES: [u64; 12] = [
    0x3ff8_0000_0000_0000,
    0x8000_0000_0000_0000,
    0x0000_0000_0000_0000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0x7ff8_0000_1111_0001,
    0xfff8_0000_2222_0002,
    0x7ff0_0000_3333_0003,
    0xfff4_0000_4444_0004,
    0x8000_0000_5555_0005,
    0x7fef_ffff_ffff_ffff,
    0x7fff_ffff_ffff_ffff,
];
const BLOCK: u32 = 192;
const BLOCKS: u32 = 9;
const TRIPLES: usize = (BLOCK * BLOCKS) as usize;
const _: () = assert!(VALUES.len() * VALUES.len() * VALUES.len() == TRIPLES);

/// An operation on up to three numbers.
struct Operation {
    name: &'static str,
    emit: fn(&Kernel, [Reg<f64>; 3]) -> Reg<f64>,
}

const OPERATIONS: [Operation; 14] = [
    Operation { name: "add_f64", emit: |k, [a, b, _]| k.add(a, b) },
    Operation { name: "sub_f64", emit: |k, [a, b, _]| k.sub(a, b) },
    Operation { name: "add_f64_of_absolutes", emit: |k, [a, b, _]| k.add(k.abs(a), k.neg(k.abs(b))) },
    Operation { name: "mul_f64", emit: |k, [a, b, _]| k.mul(a, b) },
    Operation { name: "mul_f64_negated", emit: |k, [a, b, _]| k.mul(k.neg(a), b) },
    Operation { name: "fma_f64", emit: |k, [a, b, c]| k.mad(a, b, c) },
    Operation { name: "fma_f64_negated", emit: |k, [a, b, c]| k.mad(k.neg(a), b, k.neg(c)) },
    Operation { name: "neg_f64", emit: |k, [a, ..]| k.neg(a) },
    Operation { name: "abs_f64", emit: |k, [a, ..]| k.abs(a) },
    Operation { name: "min_f64", emit: |k, [a, b, _]| k.min(a, b) },
    Operation { name: "max_f64", emit: |k, [a, b, _]| k.max(a, b) },
    Operation { name: "div_f64", emit: |k, [a, b, _]| k.div(a, b) },
    Operation { name: "through_f32", emit: |k, [a, ..]| k.convert(k.convert::<f64, f32>(a)) },
    Operation { name: "fma_f64_of_sum", emit: |k, [a, b, c]| k.mad(k.add(a, c), b, c) },
];

kernel_params! {
    /// All kernels.
    struct Operands { input: Ptr<u64, 16>, output: Ptr<u64, 16> }
}

/// The module that is committed for `target`: one kernel per operation.
pub(super) fn module(target: Target) -> Named {
    let mut module = Module::new(target);
    for operation in &OPERATIONS {
        let k = Kernel::new(operation.name);
        let p = Operands::declare(&k);
        let i = k.mad(k.special(Special::CtaidX), BLOCK, k.special(Special::TidX));
        let from = k.at(p.input, k.mul(i, 3));
        let operands = [0, 1, 2].map(|n| k.bits(k.load(from.plus(n))));
        k.store(k.at(p.output, i), k.bits((operation.emit)(&k, operands)));
        module.add(k);
    }
    Named { name: "edges".to_owned(), module }
}

/// The operands of thread `i`.
fn triple(i: usize) -> [u64; 3] {
    let n = VALUES.len();
    [VALUES[i % n], VALUES[i / n % n], VALUES[i / n / n]]
}

/// All operations.
pub fn cases() -> Vec<Case> {
    let inputs: Vec<u32> = (0..TRIPLES).flat_map(triple).flat_map(|x| [x as u32, (x >> 32) as u32]).collect();
    OPERATIONS
        .iter()
        .map(|operation| Case {
            family: "f64, special values",
            program: operation.name.to_owned(),
            seed: 0,
            cubins: cubins!("../../kernels/conformance/edges"),
            kernel: operation.name.to_owned(),
            config: LaunchConfig::new(BLOCKS, BLOCK),
            launches: vec![Operands { input: BufferNumber(0), output: BufferNumber(1) }.args()],
            buffers: vec![inputs.clone(), vec![0xdead_beef; 2 * TRIPLES]],
            place: Box::new(move |buffer, word| {
                let [a, b, c] = triple(if buffer == 1 { word / 2 } else { word / 6 });
                let what = format!("{}({a:016x}, {b:016x}, {c:016x})", operation.name);
                Some(Place { what, tolerance: Tolerance::Exact })
            }),
            ..Case::blank()
        })
        .collect()
}
