//! No access is ever wider than the alignment of its address, whatever is known of base, index and stride.

use half::f16;
use proptest::prelude::*;
use ptxgen::{Cache, Element, F16x2, Kernel, Module, Multiple, Ptxas, Target};

/// One random pointer: the kernel's facts about it, and values of base and index that agree with them.
#[derive(Clone, Debug)]
struct Case {
    element: usize,
    base_align: u32,
    base_units: u64,
    index_of: u32,
    index_units: u32,
    stride: u32,
    offset: i64,
    count: u32,
}

fn cases() -> impl Strategy<Value = Case> {
    (
        (0..ELEMENTS.len(), 0u32..7, 0u64..1 << 20, 1u32..40),
        (
            0u32..1 << 16,
            prop_oneof![1u32..64, Just(210), Just(144), Just(34), Just(1680)],
            -64i64..64,
            1u32..20,
        ),
    )
        .prop_map(|((element, align, base_units, index_of), (index_units, stride, offset, count))| {
            Case { element, base_align: 1 << align, base_units, index_of, index_units, stride, offset, count }
        })
}

const ELEMENTS: [fn(&Kernel, &Case); 11] = [
    copy::<u8>,
    copy::<i8>,
    copy::<u16>,
    copy::<i16>,
    copy::<f16>,
    copy::<u32>,
    copy::<i32>,
    copy::<f32>,
    copy::<F16x2>,
    copy::<u64>,
    copy::<f64>,
];

/// Loads elements and stores them back at the same place.
fn copy<E: Element>(k: &Kernel, case: &Case) {
    let p = k.param_ptr::<E>("p", case.base_align);
    let index: Multiple = k.param_multiple("i", case.index_of);
    let at = k.at_stride(p, index, case.stride).plus_bytes(case.offset);
    let values = k.load_with(at, case.count, Cache::Default);
    k.store_n(at, &values);
    k.store(at, values[0]);
}

fn text(name: &str, case: &Case) -> (String, Kernel) {
    let k = Kernel::new(name);
    ELEMENTS[case.element](&k, case);
    let module = |k| {
        let mut module = Module::new(Target::Sm87);
        module.add(k);
        module.text()
    };
    let again = Kernel::new(name);
    ELEMENTS[case.element](&again, case);
    (module(k), again)
}

/// `(offset, width)` of each access to global memory in the text whose mnemonic is `op`.
fn accesses(text: &str, op: &str) -> Vec<(i64, u64)> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix(op)?.strip_prefix(".global."))
        .map(|line| {
            let (kind, rest) = line.split_once(' ').unwrap();
            let (lanes, ty) = match kind.split_once('.') {
                Some((v, ty)) => (v[1..].parse().unwrap(), ty),
                None => (1, kind),
            };
            let bits: u64 = ty.trim_start_matches(|c: char| c.is_ascii_alphabetic()).parse().unwrap();
            let place = &rest[rest.find('[').unwrap() + 1..rest.find(']').unwrap()];
            let offset = place.split_once('+').map_or(0, |(_, n)| n.parse().unwrap());
            (offset, lanes * bits / 8)
        })
        .collect()
}

proptest! {
    #[test]
    fn every_access_is_aligned_and_every_byte_is_moved_once(case in cases()) {
        let (text, _) = text("k", &case);
        let base = u64::from(case.base_align) * case.base_units + (1 << 32);
        let index = u64::from(case.index_of.saturating_mul(case.index_units));
        prop_assume!(index % u64::from(case.index_of) == 0);
        let size = [1, 1, 2, 2, 2, 4, 4, 4, 4, 8, 8][case.element];
        let mut stores = accesses(&text, "st");
        let loads = accesses(&text, "ld");
        for (offset, width) in loads.iter().chain(&stores) {
            let address = (base + index * u64::from(case.stride)).wrapping_add_signed(*offset);
            prop_assert_eq!(address % width, 0, "width {} at {:#x} in\n{}", width, address, text);
        }
        // The single store at the end is made of at most one access per byte.
        let first: u64 = size;
        let mut single = 0;
        while single < first {
            single += stores.pop().unwrap().1;
        }
        for moves in [loads, stores] {
            let mut at = case.offset;
            for (offset, width) in moves {
                prop_assert_eq!(offset, at, "gap or overlap in\n{}", text);
                at += width as i64;
            }
            prop_assert_eq!(at, case.offset + (u64::from(case.count) * size) as i64);
        }
    }
}

#[test]
fn random_accesses_assemble() {
    let ptxas = match Ptxas::find() {
        Ok(ptxas) => ptxas,
        Err(error) => return ga10b_oracles::missing("ptxas", error),
    };
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let cases: Vec<Case> = (0..120).map(|_| cases().new_tree(&mut runner).unwrap().current()).collect();
    for target in Target::ALL {
        let mut module = Module::new(target);
        for (i, case) in cases.iter().enumerate() {
            module.add(text(&format!("k{i}"), case).1);
        }
        ptxas.compile(&module.text(), target).unwrap();
    }
}

#[test]
fn known_alignment_gives_the_widest_access() {
    let k = Kernel::new("k");
    let p = k.param_ptr::<f32>("p", 16);
    let row = k.param::<u32>("row");
    let aligned = k.at_stride(p, row, 64);
    assert_eq!((aligned.alignment(), aligned.plus(1).alignment(), aligned.plus(2).alignment()), (16, 4, 8));
    let block = k.at_stride(p.cast::<u8>(), row, 210);
    assert_eq!((block.alignment(), block.plus(192).alignment(), block.plus(1).alignment()), (2, 2, 1));
    let eighth = k.at_stride(p.cast::<u8>(), k.scale(row, 8), 210);
    assert_eq!(eighth.alignment(), 16);
}
