//! The parameters that `kernel_params!` declares in a kernel, and the arguments that it passes to a launch.

use ptxgen::{
    Contract, Declared, Kernel, Late, Module, Multiple, Nullable, Params, Ptr, Reg, Target, kernel_params,
};

kernel_params! {
    /// One of each type.
    struct All(with_rows: bool) {
        x: Ptr<f32, 16>, marks: Nullable, len: Multiple = 4,
        rows: Option<u32> = with_rows.then_some(()),
        shares: Late<u32>,
        at: Option<Late<Multiple>> = with_rows.then_some(32),
        factor: f32, first: i32, big: u64, low: i64, exact: f64,
    }
}

/// An argument as a list of a driver would have it.
#[derive(Debug, PartialEq)]
enum Item {
    Buffer(usize),
    Bytes(Vec<u8>),
}

impl From<usize> for Item {
    fn from(buffer: usize) -> Self {
        Self::Buffer(buffer)
    }
}

macro_rules! numbers {
    ($($ty:ty)*) => { $(
        impl From<$ty> for Item {
            fn from(value: $ty) -> Self {
                Self::Bytes(value.to_le_bytes().to_vec())
            }
        }
    )* };
}
numbers!(u32 i32 u64 i64 f32 f64);

fn shares(k: &Kernel, p: Declared<All>) -> Reg<u32> {
    p.shares.load(k)
}

#[test]
fn parameters_are_listed_in_order_and_the_late_ones_loaded_where_they_are_used() {
    let k = Kernel::new("all");
    let p = All::declare(&k, true);
    k.comment("body");
    let (rows, at) = (p.rows.unwrap(), p.at.unwrap().load(&k));
    assert_eq!((p.x.alignment(), p.len.of(), at.of()), (16, 4, 32));
    k.store(p.x.cast::<u32>(), k.add(rows, shares(&k, p)));
    let listed: Vec<_> = k.params().into_iter().map(|p| (p.name, p.ty, p.contract)).collect();
    let expected = [
        ("all_x", "u64", Contract::Aligned(16)),
        ("all_marks", "u64", Contract::Any),
        ("all_len", "u32", Contract::MultipleOf(4)),
        ("all_rows", "u32", Contract::Any),
        ("all_shares", "u32", Contract::Any),
        ("all_at", "u32", Contract::MultipleOf(32)),
        ("all_factor", "f32", Contract::Any),
        ("all_first", "s32", Contract::Any),
        ("all_big", "u64", Contract::Any),
        ("all_low", "s64", Contract::Any),
        ("all_exact", "f64", Contract::Any),
    ];
    assert_eq!(listed, expected.map(|(name, ty, contract)| (name.to_owned(), ty, contract)));
    let mut module = Module::new(Target::Sm87);
    module.add(k);
    let text = module.text();
    let (before, after) = text.split_once("// body").unwrap();
    let loads = |text: &str| text.matches("ld.param").count();
    assert_eq!((loads(before), loads(after)), (9, 2));
    assert!(after.find("[all_at]").unwrap() < after.find("[all_shares]").unwrap());
}

#[test]
fn a_parameter_that_a_kernel_lacks_is_neither_listed_nor_passed() {
    let k = Kernel::new("all");
    let p = All::declare(&k, false);
    assert!(p.rows.is_none() && p.at.is_none());
    assert_eq!(k.params().len(), 9);
    let args: Vec<Item> = All {
        exact: 6.0,
        low: -5,
        big: 4,
        first: -3,
        factor: 2.0,
        at: None,
        shares: 1,
        rows: None,
        len: 8,
        marks: None,
        x: 7usize,
    }
    .args();
    let bytes = |bytes: &[u8]| Item::Bytes(bytes.to_vec());
    let expected = [
        Item::Buffer(7),
        bytes(&[0; 8]),
        bytes(&8u32.to_le_bytes()),
        bytes(&1u32.to_le_bytes()),
        bytes(&2f32.to_le_bytes()),
        bytes(&(-3i32).to_le_bytes()),
        bytes(&4u64.to_le_bytes()),
        bytes(&(-5i64).to_le_bytes()),
        bytes(&6f64.to_le_bytes()),
    ];
    assert_eq!(args, expected);
}

#[test]
fn all_parameters_are_passed_with_an_address_in_place_of_null() {
    let (rows, at, marks) = (Some(9), Some(64), Some(3));
    let (factor, first, big, low, exact) = (2.0, -3, 4, -5, 6.0);
    let all = All { x: 7usize, marks, len: 8, rows, shares: 1, at, factor, first, big, low, exact };
    let args: Vec<Item> = all.args();
    assert_eq!(args.len(), 11);
    assert_eq!(args[1], Item::Buffer(3));
    assert_eq!(args[3], Item::Bytes(9u32.to_le_bytes().to_vec()));
    assert_eq!(args[5], Item::Bytes(64u32.to_le_bytes().to_vec()));
}
