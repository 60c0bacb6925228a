//! Tests that every copy of an operation, and each of its fast paths, agrees with the plain one.

use std::cell::UnsafeCell;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use proptest::prelude::*;
use sass::{Arch, Word};

use crate::clock::{Clock, Time};
use crate::defects::Defects;
use crate::findings::Checks;
use crate::gpu::sm::code::{Code, PoolWord};
use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::environment::Environment;
use crate::gpu::sm::lanes::{Isa, Lanes};
use crate::gpu::sm::launch::{Access, Launch, Memory, MemoryFault, Span, Windows};
use crate::gpu::sm::target::Target;
use crate::gpu::sm::translate::lower;
use crate::gpu::sm::warp::Warp;

const BASE: u64 = 0x4_ffff_8000;
const BYTES: u64 = 0x1_0000;
const GUARD: u128 = 7 << 12;

/// One page at [`BASE`], which a 32-bit border crosses.
struct Page(Box<[UnsafeCell<u128>]>);

// SAFETY: one thread uses it.
unsafe impl Sync for Page {}

// SAFETY: the cells live as long as the page and are accessed through the interpreter only.
unsafe impl Memory for Page {
    fn translate(&self, va: u64, access: Access) -> Result<Span, MemoryFault> {
        if va.wrapping_sub(BASE) >= BYTES {
            return Err(MemoryFault { va, access, kind: 2 });
        }
        let host = NonNull::new(self.0.as_ptr().cast::<u8>().cast_mut()).expect("not null");
        Ok(Span { va: BASE, len: BYTES, host, writable: true })
    }

    fn generation(&self) -> u64 {
        0
    }
}

impl Page {
    fn new() -> Self {
        let word = |i: u128| UnsafeCell::new(i.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        Page((1..=u128::from(BYTES / 16)).map(word).collect())
    }

    fn words(&self) -> Vec<u128> {
        // SAFETY: nothing runs.
        self.0.iter().map(|w| unsafe { *w.get() }).collect()
    }
}

/// The copies that this host can run.
fn copies() -> Vec<Isa> {
    #[cfg(target_arch = "x86_64")]
    match Isa::detect() {
        Isa::Avx512 => return vec![Isa::Baseline, Isa::Avx2, Isa::Avx512],
        Isa::Avx2 => return vec![Isa::Baseline, Isa::Avx2],
        Isa::Baseline => {}
    }
    vec![Isa::Baseline]
}

/// Result of a run: registers 0 to 31, predicates, counters of one run, memory.
type Outcome = (Vec<[u32; 32]>, Vec<u32>, [u64; 4], Vec<u128>);

/// Runs one instruction `times` with these registers and P0, P1, and returns the result of the last run.
fn run(isa: Isa, word: u128, registers: &[[u32; 32]], preds: [u32; 2], mask: u32, times: u32) -> Outcome {
    let launch = Launch {
        arch: Arch::Sm87,
        program: 0,
        grid: [1; 3],
        block: [32, 1, 1],
        registers: 32,
        shared_bytes: 0,
        local_bytes: 0,
        barriers: 1,
        banks: [None; 8],
        windows: Windows { shared_base: 0xfe00_0000, local_base: 0xff00_0000 },
        grid_id: 0,
        sm_count: 1,
        max_warps_per_sm: 48,
        shared_bytes_per_sm: 0x1_0000,
    };
    let target = Target {
        arch: Arch::Sm87,
        isa,
        registers: 32,
        barriers: 1,
        exact_mma: true,
        defects: Defects::empty(),
    };
    let mut code = Code::new(32);
    let op = lower(&mut code, target, 0, Word(word)).op;
    let pool: Arc<[Lanes]> = code
        .pool
        .iter()
        .map(|word| match word {
            PoolWord::Imm(x) => Lanes::splat(*x),
            PoolWord::Const { .. } => panic!("no constants here"),
        })
        .collect();
    let (page, clock, stop) = (Page::new(), Clock::new(&Time::Host), AtomicBool::new(false));
    let env = Environment {
        launch: &launch,
        memory: &page,
        target,
        l2: None,
        checks: Checks::empty(),
        clock: &clock,
        stop: &stop,
        failed: AtomicBool::new(false),
        hurry: AtomicBool::new(false),
    };
    let mut core = Core::new(&env);
    core.bind(&pool, &code.map);
    let mut before = core.counters;
    for _ in 0..times {
        core.warp = Warp::default();
        core.warp.start(0, 32, code.layout, Lanes::ZERO);
        for (slot, value) in core.warp.file.iter_mut().zip(registers) {
            slot.0 = *value;
        }
        core.warp.preds[..2].copy_from_slice(&preds);
        core.attach();
        (core.mask, core.active) = (mask, u32::MAX);
        before = core.counters;
        // SAFETY: `copies` names what this host has.
        let flow = unsafe { (op.run)(&mut core, &op) };
        assert_eq!(flow, Flow::Next, "{:?}", core.fault);
    }
    let counted = |f: fn(&crate::gpu::sm::counters::Counters) -> u64| f(&core.counters) - f(&before);
    let counters = [
        counted(|c| c.global_loads),
        counted(|c| c.global_load_sectors),
        counted(|c| c.global_stores),
        counted(|c| c.global_store_sectors),
    ];
    let file = core.warp.file[..32].iter().map(|lanes| lanes.0).collect();
    (file, core.warp.preds[..7].to_vec(), counters, page.words())
}

/// `OP R8, R4, R5, R6` with other bits, and predicates that are not written.
fn word(code: u128, more: u128) -> u128 {
    code | GUARD | 8 << 16 | 4 << 24 | 5 << 32 | 6 << 64 | 7 << 81 | 7 << 87 | more
}

/// A PRMT with an immediate selector, `c` its third register.
fn prmt(selector: u32, c: u128) -> u128 {
    0x816 | GUARD | 8 << 16 | 4 << 24 | u128::from(selector) << 32 | c << 64
}

fn prmt_model(a: u32, selector: u32, c: u32) -> u32 {
    let bytes = (u64::from(c) << 32 | u64::from(a)).to_le_bytes();
    let pick = |i: u32| {
        let (byte, sign) = (bytes[(selector >> (4 * i) & 7) as usize], selector >> (4 * i) & 8 != 0);
        u32::from(if !sign {
            byte
        } else if byte & 0x80 != 0 {
            0xff
        } else {
            0
        }) << (8 * i)
    };
    (0..4).fold(0, |d, i| d | pick(i))
}

fn filled(seed: u32) -> Vec<[u32; 32]> {
    let mut x = seed | 1;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        // Corners among arbitrary values.
        match x >> 28 {
            0 => u32::MAX,
            1 => 0,
            2 => 0x8000_0000,
            _ => x,
        }
    };
    (0..32).map(|_| std::array::from_fn(|_| next())).collect()
}

/// Lanes outside `mask` keep the register's value.
fn expected(registers: &[[u32; 32]], mask: u32, f: impl Fn(usize) -> u32) -> [u32; 32] {
    std::array::from_fn(|i| if mask >> i & 1 != 0 { f(i) } else { registers[8][i] })
}

#[test]
fn a_byte_gather_with_any_selector_is_that_of_the_manual() {
    let registers = filled(0x1234);
    for isa in copies() {
        for selector in (0..0x1_0000).step_by(7) {
            for c in [6u128, 255] {
                let file = run(isa, prmt(selector, c), &registers, [0; 2], u32::MAX, 1).0;
                let model = expected(&registers, u32::MAX, |i| {
                    prmt_model(registers[4][i], selector, if c == 255 { 0 } else { registers[6][i] })
                });
                assert_eq!(file[8], model, "{isa:?} {selector:#06x} {c}");
            }
        }
    }
}

proptest! {
    #[test]
    fn sums_shifts_and_logic_are_those_of_a_model(
        seed: u32, mask in prop_oneof![Just(u32::MAX), 1..=u32::MAX], preds: [u32; 2], shift in 0u32..32, lut: u8,
    ) {
        let registers = filled(seed);
        let [a, b, c] = [4, 5, 6].map(|r: usize| registers[r]);
        let carry = |i: usize| preds[0] >> i & 1;
        let lea = |shifted: u32, i: usize| u64::from(shifted) + u64::from(b[i]);
        let table = |i: usize| (0..32).fold(0, |d, n| {
            let at = (a[i] >> n & 1) << 2 | (b[i] >> n & 1) << 1 | (c[i] >> n & 1);
            d | u32::from(lut >> at & 1) << n
        });
        let wide = |i: usize| (u64::from(c[i]) << 32 | u64::from(a[i])) << shift;
        let no_pd0 = !(7u128 << 81);
        type Model<'a> = &'a dyn Fn(usize) -> (u32, Option<bool>);
        // Word, lane by lane the result, and what P1 becomes.
        let cases: [(u128, Model<'_>); 7] = [
            // IADD3 R8, P1, R4, R5, RZ
            (word(0x210, 0xff << 64 | 15 << 77 | 7 << 84 | 15 << 87) & no_pd0 | 1 << 81, &|i| {
                let (sum, over) = a[i].overflowing_add(b[i]);
                (sum, Some(over))
            }),
            // IADD3.X R8, R4, R5, R6, P0, !PT
            (word(0x210, 1 << 74 | 15 << 77 | 7 << 84) & !(15 << 87), &|i| {
                (a[i].wrapping_add(b[i]).wrapping_add(c[i]).wrapping_add(carry(i)), None)
            }),
            // LEA R8, P1, R4, R5, shift
            (word(0x211, u128::from(shift) << 75 | 15 << 87 | 255 << 64) & no_pd0 | 1 << 81, &|i| {
                let sum = lea(a[i] << shift, i);
                (sum as u32, Some(sum >> 32 != 0))
            }),
            // LEA.HI R8, P1, R4, R5, R6, shift
            (word(0x211, u128::from(shift) << 75 | 1 << 80 | 15 << 87) & no_pd0 | 1 << 81, &|i| {
                let sum = lea((wide(i) >> 32) as u32, i);
                (sum as u32, Some(sum >> 32 != 0))
            }),
            // LEA.HI.SX32 R8, P1, R4, R5, shift
            (word(0x211, u128::from(shift) << 75 | 1 << 80 | 1 << 73 | 15 << 87 | 255 << 64) & no_pd0 | 1 << 81, &|i| {
                let sum = lea(((i64::from(a[i] as i32) << shift) >> 32) as u32, i);
                (sum as u32, Some(sum >> 32 != 0))
            }),
            // LEA.HI.X R8, R4, R5, R6, shift, P0
            (word(0x211, u128::from(shift) << 75 | 1 << 80 | 1 << 74) & !(15 << 87), &|i| {
                (((wide(i) >> 32) as u32).wrapping_add(b[i]).wrapping_add(carry(i)), None)
            }),
            // LOP3.LUT R8, R4, R5, R6, lut, !PT
            (word(0x212, u128::from(lut) << 72 | 15 << 87), &|i| (table(i), None)),
        ];
        for isa in copies() {
            for (n, (word, model)) in cases.iter().enumerate() {
                let (file, after, ..) = run(isa, *word, &registers, preds, mask, 1);
                prop_assert_eq!(file[8], expected(&registers, mask, |i| model(i).0), "{:?} case {}", isa, n);
                let p1 = (0..32).fold(0, |p, i| {
                    let old = preds[1] >> i & 1 != 0;
                    let new = if mask >> i & 1 != 0 { model(i).1.unwrap_or(old) } else { old };
                    p | u32::from(new) << i
                });
                prop_assert_eq!(after[1], p1, "{:?} case {}", isa, n);
            }
        }
    }

    #[test]
    fn a_butterfly_exchanges_lanes_that_execute(
        seed: u32, mask in prop_oneof![Just(u32::MAX), 1..=u32::MAX], by in 0u32..32,
    ) {
        let registers = filled(seed);
        // SHFL.BFLY P1, R8, R4, by, 0x1f
        let word = 0xf89 | GUARD | 8 << 16 | 4 << 24 | 0x1f << 40 | u128::from(by) << 53 | 3 << 58 | 1 << 81;
        for isa in copies() {
            let (file, after, ..) = run(isa, word, &registers, [0; 2], mask, 1);
            let model = expected(&registers, mask, |i| {
                let from = i ^ by as usize;
                if mask >> from & 1 != 0 { registers[4][from] } else { 0 }
            });
            prop_assert_eq!(file[8], model, "{:?}", isa);
            prop_assert_eq!(after[1], mask);
        }
    }

    /// The first run of a kernel translates, the second finds its page: both do the same, and so does each copy.
    #[test]
    fn an_access_within_one_page_is_that_of_the_slow_way(
        mask in prop_oneof![Just(u32::MAX), 1..=u32::MAX, (0u32..32).prop_map(|n| u32::MAX >> n)],
        width in 0u32..7,
        start in 0u64..BYTES,
        stride in prop_oneof![Just(0u64), Just(1), Just(1), 2u64..40, Just(100)],
        scatter in prop_oneof![Just(0u64), Just(0), 1u64..64],
        seed: u32,
        stores: bool,
    ) {
        let bytes = [1u64, 1, 2, 2, 4, 8, 16][width as usize];
        let mut registers = filled(seed);
        for i in 0..32u64 {
            let jump = ((i * 0x9e37) >> 3) % 61 * scatter;
            let at = (start / bytes + i * stride + jump) * bytes % BYTES;
            let va = BASE + at / bytes * bytes;
            let unused = mask >> i & 1 == 0;
            registers[4][i as usize] = if unused { seed } else { va as u32 };
            registers[5][i as usize] = if unused { !seed } else { (va >> 32) as u32 };
        }
        // LDG.E R8, [R4.64], or STG.E [R4.64], R8
        let kind = u128::from(width) << 73;
        let word = if stores {
            0x386 | GUARD | 4 << 24 | 8 << 32 | 1 << 72 | kind
        } else {
            0x381 | GUARD | 8 << 16 | 4 << 24 | 1 << 72 | kind | 7 << 81
        };
        let mut first: Option<Outcome> = None;
        for isa in copies() {
            for times in [1, 2] {
                let outcome = run(isa, word, &registers, [0; 2], mask, times);
                let first = first.get_or_insert_with(|| outcome.clone());
                prop_assert!(outcome == *first, "{:?}, run {}", isa, times);
            }
        }
    }
}
