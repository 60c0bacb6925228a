//! Every struct and number of the crate against `data/nvgpu-abi.json`, a table compiled from the kernel's own
//! headers.
//!
//! The compiler lays the structs out and reports each field; the table says where the driver has it. Every
//! row of the table has its struct or number here.

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{align_of, offset_of, size_of, size_of_val};

use nvgpu_sys::*;
use serde_json::Value;
use zerocopy::FromZeros;

mod releases;

/// A struct as the compiler laid it out. Offsets and sizes in bytes.
#[derive(Debug)]
struct Struct {
    name: &'static str,
    size: usize,
    align: usize,
    fields: Vec<Field>,
}

/// A field of a [`Struct`].
#[derive(Debug)]
struct Field {
    name: &'static str,
    offset: usize,
    size: usize,
    /// Of the integer, or of an array's elements; `None` for a struct.
    signed: Option<bool>,
}

/// Tells signed integers from unsigned ones.
trait Signed {
    /// `None` for a struct.
    fn signed(&self) -> Option<bool>;
}

macro_rules! signed {
    ($($ty:ty => $signed:expr),* $(,)?) => { $( impl Signed for $ty {
        fn signed(&self) -> Option<bool> {
            $signed
        }
    } )* };
}
signed! {
    u8 => Some(false), u16 => Some(false), u32 => Some(false), u64 => Some(false),
    i8 => Some(true), i16 => Some(true), i32 => Some(true), i64 => Some(true),
    nvgpu_fence => None,
    nvgpu_ctxsw_trace_filter => None,
    nvgpu_gpu_get_cpu_time_correlation_sample => None,
}
impl<T: Signed, const N: usize> Signed for [T; N] {
    fn signed(&self) -> Option<bool> {
        self[0].signed()
    }
}

macro_rules! row {
    ($ty:ident { $($field:ident),* $(,)? }) => {{
        let value = $ty::new_zeroed();
        Struct {
            name: stringify!($ty),
            size: size_of::<$ty>(),
            align: align_of::<$ty>(),
            fields: vec![ $( Field {
                name: stringify!($field),
                offset: offset_of!($ty, $field),
                size: size_of_val(&{ value.$field }),
                signed: Signed::signed(&{ value.$field }),
            } ),* ],
        }
    }};
}

const BINDINGS: &str = include_str!("../../../src/bindings.rs");

/// Every struct of the bindings. The generator of the bindings writes the list.
fn structs() -> BTreeMap<&'static str, Struct> {
    let rows = include!("rows.rs");
    assert_eq!(rows.len(), BINDINGS.matches("\npub struct ").count(), "rows.rs is not of these bindings");
    rows.into_iter().map(|s| (s.name, s)).collect()
}

/// Every number of the bindings: `pub const NAME: type = value;`.
fn numbers() -> BTreeMap<&'static str, i128> {
    let parts = |line: &'static str| {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        let value = rest.split_once(" = ")?.1.strip_suffix(';')?;
        Some((name, value.parse().unwrap_or_else(|_| panic!("not a number: {line}"))))
    };
    BINDINGS.lines().filter_map(parts).collect()
}

fn abi() -> Value {
    serde_json::from_str(include_str!("../../data/nvgpu-abi.json")).expect("the table is valid JSON")
}

fn usize_of(value: &Value, key: &str) -> usize {
    value[key]
        .as_u64()
        .and_then(|n| n.try_into().ok())
        .unwrap_or_else(|| panic!("{key} is no size in {value}"))
}

/// A field of the table: its path joined with `_`, its offset, size, sign and, for a bit-field, its bit.
#[derive(Debug)]
struct Row {
    path: String,
    offset: usize,
    size: usize,
    signed: Option<bool>,
    bit: Option<usize>,
}

/// The integers a field of the table is made of, and the paths of the structs and unions around them.
fn leaves(field: &Value, prefix: &str, rows: &mut Vec<Row>, containers: &mut Vec<Row>) {
    let path = match field["name"].as_str() {
        Some(name) if prefix.is_empty() => name.to_owned(),
        Some(name) => format!("{prefix}_{name}"),
        None => prefix.to_owned(),
    };
    let row = Row {
        path: path.clone(),
        offset: usize_of(field, "offset"),
        size: usize_of(field, "size"),
        signed: field["signed"].as_bool(),
        bit: field["bit_offset"].as_u64().map(|bit| bit.try_into().expect("a small number")),
    };
    match field["fields"].as_array() {
        None => rows.push(row),
        Some(inner) => {
            if field["name"].is_string() {
                containers.push(row);
            }
            inner.iter().for_each(|f| leaves(f, &path, rows, containers));
        }
    }
}

#[test]
fn every_struct_has_the_drivers_layout() {
    let abi = abi();
    let table = abi["structs"].as_object().expect("structs");
    let ours = structs();
    let missing: Vec<_> = table.keys().filter(|name| !ours.contains_key(name.as_str())).collect();
    assert!(missing.is_empty(), "structs of nvgpu-abi.json that the crate lacks: {missing:?}");
    let extra: Vec<_> = ours.keys().filter(|name| !table.contains_key(**name)).collect();
    assert!(extra.is_empty(), "structs of the crate that nvgpu-abi.json lacks: {extra:?}");

    for (name, row) in table {
        let our = &ours[name.as_str()];
        assert_eq!(
            (our.size, our.align),
            (usize_of(row, "size"), usize_of(row, "align")),
            "size, align of {name}"
        );
        let (mut fields, mut containers) = (Vec::new(), Vec::new());
        row["fields"].as_array().expect("fields").iter().for_each(|f| {
            leaves(f, "", &mut fields, &mut containers);
        });

        let mut named = BTreeSet::new();
        for row in &fields {
            if row.bit.is_some() {
                continue; // the_bits_of_l2_fb_args_are_the_drivers
            }
            let field = our.fields.iter().find(|f| f.name.trim_end_matches('_') == row.path);
            if let Some(f) = field {
                assert_eq!(
                    (f.offset, f.size, f.signed),
                    (row.offset, row.size, row.signed),
                    "{name}.{}",
                    row.path
                );
                named.insert(f.name);
            } else {
                let overlay = OVERLAYS.iter().find(|o| o.container == name && o.name == row.path);
                let o = overlay.unwrap_or_else(|| panic!("{name} has no field {}", row.path));
                assert_eq!((o.offset, o.size), (row.offset, row.size), "{name}.{}", row.path);
            }
        }
        for row in &containers {
            if let Some(f) = our.fields.iter().find(|f| f.name == row.path) {
                assert_eq!((f.offset, f.size), (row.offset, row.size), "{name}.{}", row.path);
                named.insert(f.name);
            }
        }
        for f in &our.fields {
            let padding = f.name.starts_with("_pad");
            let bits = name == "nvgpu_gpu_l2_fb_args" && f.name == "flags";
            assert!(padding || bits || named.contains(f.name), "{name}.{} is not in the table", f.name);
        }
    }
    for o in OVERLAYS {
        assert!(table.contains_key(o.container), "{o:?} names no struct of the table");
    }
}

#[test]
fn the_bits_of_l2_fb_args_are_the_drivers() {
    let abi = abi();
    let fields = abi["structs"]["nvgpu_gpu_l2_fb_args"]["fields"].as_array().expect("fields").clone();
    let bits: BTreeMap<&str, u64> =
        fields.iter().filter_map(|f| Some((f["name"].as_str()?, 1 << f["bit_offset"].as_u64()?))).collect();
    type Args = nvgpu_gpu_l2_fb_args;
    let ours = [
        ("l2_flush", u64::from(Args::L2_FLUSH)),
        ("l2_invalidate", u64::from(Args::L2_INVALIDATE)),
        ("fb_flush", u64::from(Args::FB_FLUSH)),
    ];
    assert_eq!(bits, ours.into());
}

#[test]
fn every_number_is_the_drivers() {
    let abi = abi();
    let mut table: BTreeMap<&str, i128> = BTreeMap::new();
    for (name, row) in abi["constants"].as_object().expect("constants") {
        let signed = row["value"].as_i64().map(i128::from).or(row["value"].as_u64().map(i128::from));
        table.insert(name, signed.unwrap_or_else(|| panic!("{name} is no integer")));
    }
    for (name, row) in abi["ioctls"].as_object().expect("ioctls") {
        table.insert(name, row["request"].as_u64().expect("a request number").into());
    }
    let mut ours = numbers();
    // The header writes a negative int; the field it is stored in is a u64 that the driver compares with the
    // u32.
    let elem_size = ours.get_mut("NVMAP_ELEM_SIZE_U64").expect("NVMAP_ELEM_SIZE_U64");
    assert_eq!(
        Some(*elem_size),
        abi["constants"]["NVMAP_ELEM_SIZE_U64"]["value_u32"].as_u64().map(i128::from)
    );
    *elem_size -= 1 << 32;
    let missing: Vec<_> = table.keys().filter(|name| !ours.contains_key(*name)).collect();
    assert!(missing.is_empty(), "numbers of nvgpu-abi.json that the crate lacks: {missing:?}");
    for (name, value) in &ours {
        assert_eq!(table.get(name), Some(value), "{name}: nvgpu-abi.json, and the crate");
    }
}

#[test]
fn every_request_has_a_type_of_the_right_size() {
    let abi = abi();
    let table: BTreeMap<&str, (u64, u64)> = abi["ioctls"]
        .as_object()
        .expect("ioctls")
        .iter()
        .map(|(name, row)| (name.as_str(), (row["request"].as_u64().unwrap(), row["size"].as_u64().unwrap())))
        .collect();
    let ours: BTreeMap<&str, (u64, u64)> =
        REQUESTS.iter().map(|r| (r.name, (u64::from(r.request), r.size as u64))).collect();
    for (name, row) in &table {
        let our = ours.get(name).unwrap_or_else(|| panic!("no type implements Ioctl for {name}"));
        // FREE's handle travels as a value; its number carries no size.
        let size = if *name == NvmapIocFree::NAME { 4 } else { row.1 };
        assert_eq!(*our, (row.0, size), "{name}");
    }
    let extra: Vec<_> = ours.keys().filter(|name| !table.contains_key(*name)).collect();
    assert!(extra.is_empty(), "requests of the crate that nvgpu-abi.json lacks: {extra:?}");
}
