//! Accesses that `ptxgen` splits by proven alignment move the right bytes on the device, and nothing faults.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one; needs a `ptxas`.

use std::time::Duration;

use half::f16;
use hcq::{Args, LaunchConfig};
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use ptxgen::{Cache, Element, F16x2, Kernel, Module, Ptxas, Target};

use crate::open;

/// A copy of `count` elements from `p + offset + index * stride`, where `p` is a multiple of `align` and
/// `index` one of `of`.
#[derive(Clone, Debug)]
struct Case {
    element: usize,
    align: u32,
    units: u64,
    of: u32,
    times: u32,
    stride: u32,
    offset: i64,
    count: u32,
}

/// Writes the kernel of a case.
type Body = fn(&Kernel, &Case);

/// Element types: their sizes in bytes and the kernels that copy them.
const ELEMENTS: [(u32, Body); 11] = [
    (1, copy::<u8>),
    (1, copy::<i8>),
    (2, copy::<u16>),
    (2, copy::<i16>),
    (2, copy::<f16>),
    (4, copy::<u32>),
    (4, copy::<i32>),
    (4, copy::<f32>),
    (4, copy::<F16x2>),
    (8, copy::<u64>),
    (8, copy::<f64>),
];

fn copy<E: Element>(k: &Kernel, case: &Case) {
    let (from, to) = (k.param_ptr::<E>("from", case.align), k.param_ptr::<E>("to", case.align));
    let index = k.param_multiple("index", case.of);
    let values = k.load_with(
        k.at_stride(from, index, case.stride).plus_bytes(case.offset),
        case.count,
        Cache::Default,
    );
    k.store_n(k.at_stride(to, index, case.stride).plus_bytes(case.offset), &values);
}

fn cases() -> impl Strategy<Value = Case> {
    let stride = prop_oneof![1u32..64, Just(210), Just(144), Just(34)];
    ((0..ELEMENTS.len(), 0u32..6, 0u64..32, 1u32..20), (0u32..6, stride, -64i64..64, 1u32..20)).prop_map(
        |((element, align, units, of), (times, stride, offset, count))| Case {
            element,
            align: 1 << align,
            units,
            of,
            times,
            stride,
            offset,
            count,
        },
    )
}

/// Start of the random pointers, in bytes; far enough in for the negative offsets.
const BASE: u64 = 256;
const LEN: usize = 64 << 10;

#[test]
fn split_accesses_move_the_right_bytes() {
    let Ok(ptxas) = Ptxas::find() else {
        eprintln!("skipped: no ptxas");
        return;
    };
    let device = open::device();
    let target = Target::from_sm(device.info().sm_number()).unwrap();
    let mut runner = TestRunner::deterministic();
    let cases: Vec<Case> = (0..60).map(|_| cases().new_tree(&mut runner).unwrap().current()).collect();
    let mut module = Module::new(target);
    for (i, case) in cases.iter().enumerate() {
        let k = Kernel::new(&format!("copy{i}"));
        ELEMENTS[case.element].1(&k, case);
        module.add(k);
    }
    let program = device.load(&ptxas.compile(&module.text(), target).unwrap()).unwrap();
    let bytes: Vec<u8> = (0..LEN as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    let (from, to) = (device.alloc(LEN as u64).unwrap(), device.alloc(LEN as u64).unwrap());
    from.write(0, &bytes).unwrap();
    let mut queue = device.queue().unwrap();
    for (i, case) in cases.iter().enumerate() {
        let kernel = program.kernel(&format!("copy{i}")).unwrap();
        to.write(0, &vec![0; LEN]).unwrap();
        let base = BASE + u64::from(case.align) * case.units;
        let args = Args::new().buffer_at(&from, base).buffer_at(&to, base).u32(case.of * case.times);
        // SAFETY: base, index and count keep every access inside the two buffers.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args) }.unwrap();
        queue.submit().unwrap().wait(Duration::from_secs(60)).unwrap();
        let mut found = vec![0; LEN];
        to.read(0, &mut found).unwrap();
        let start = base + u64::from(case.of * case.times) * u64::from(case.stride);
        let start = start.checked_add_signed(case.offset).unwrap() as usize;
        let end = start + (case.count * ELEMENTS[case.element].0) as usize;
        let mut wanted = vec![0; LEN];
        wanted[start..end].copy_from_slice(&bytes[start..end]);
        assert!(found == wanted, "{case:?}");
    }
}
