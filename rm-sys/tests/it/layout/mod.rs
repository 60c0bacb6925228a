//! Every struct and number of the crate against `data/rm-abi.json`, a table compiled from the driver's own
//! headers.
//!
//! The compiler lays the structs out and reports each field; the table has the driver's layout. No row of the
//! table is left out: one that the crate lacks belongs to a family of [`LEFT_OUT`].

mod left_out;

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{offset_of, size_of, size_of_val};

use rm_sys::*;
use serde_json::Value;
use zerocopy::FromZeros;

use left_out::LEFT_OUT;

/// A struct as the compiler laid it out. Offsets and sizes in bytes.
#[derive(Debug)]
struct Struct {
    name: &'static str,
    size: usize,
    fields: Vec<Field>,
}

/// A field of a [`Struct`].
#[derive(Debug)]
struct Field {
    name: &'static str,
    offset: usize,
    size: usize,
}

macro_rules! row {
    ($ty:ident { $($field:ident),* $(,)? }) => {{
        let value = $ty::new_zeroed();
        Struct {
            name: stringify!($ty),
            size: size_of::<$ty>(),
            fields: vec![ $( Field {
                name: stringify!($field),
                offset: offset_of!($ty, $field),
                size: size_of_val(&{ value.$field }),
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
fn numbers() -> BTreeMap<&'static str, u64> {
    let parts = |line: &'static str| {
        let (name, rest) = line.strip_prefix("pub const ")?.split_once(": ")?;
        let value = rest.split_once(" = ")?.1.strip_suffix(';')?;
        Some((name, value.parse().unwrap_or_else(|_| panic!("not a number: {line}"))))
    };
    BINDINGS.lines().filter_map(parts).collect()
}

/// Whether the crate leaves a number or bit field of the table out.
fn is_left_out(name: &str) -> bool {
    LEFT_OUT.iter().any(|family| name.starts_with(family))
}

fn abi() -> Value {
    serde_json::from_str(include_str!("../../data/rm-abi.json")).expect("the table is valid JSON")
}

fn usize_of(value: &Value) -> usize {
    value.as_u64().and_then(|n| n.try_into().ok()).unwrap_or_else(|| panic!("{value} is no size"))
}

fn rows_of<'a>(abi: &'a Value, section: &str) -> &'a serde_json::Map<String, Value> {
    abi[section].as_object().unwrap_or_else(|| panic!("the table has {section}"))
}

/// Compares one struct with its row: `[name, offset, size, count, element size]` for each field.
fn compare(our: &Struct, row: &Value) {
    assert_eq!(our.size, usize_of(&row["size"]), "size of {}", our.name);
    let mut named = BTreeSet::new();
    for field in row["fields"].as_array().expect("fields") {
        let path = field[0].as_str().expect("a name").replace('.', "_");
        if path == "gpuNameString_unicode" {
            continue; // lies over gpuNameString_ascii, and the request here asks for ASCII
        }
        let found = our.fields.iter().find(|f| f.name.trim_end_matches('_') == path);
        let f = found.unwrap_or_else(|| panic!("{} has no field {path}", our.name));
        assert_eq!((f.offset, f.size), (usize_of(&field[1]), usize_of(&field[2])), "{}.{path}", our.name);
        named.insert(f.name);
    }
    for f in &our.fields {
        assert!(
            f.name.starts_with("_pad") || named.contains(f.name),
            "{}.{} is not in the table",
            our.name,
            f.name
        );
    }
}

/// The struct that `release` uses for `name`: the newest layout named after it or an older release, below 580
/// counted from 535 and above from 580.
fn variant<'a>(
    ours: &'a BTreeMap<&str, Struct>,
    name: &str,
    row: &Value,
    release: Release,
) -> Option<&'a Struct> {
    let size = usize_of(&row["size"]);
    let family: &[Release] = if release < Release::R580 { &Release::ALL[..3] } else { &Release::ALL[4..] };
    family
        .iter()
        .rev()
        .filter(|r| **r <= release)
        .filter_map(|r| ours.get(format!("{name}_R{}", r.major()).as_str()))
        .find(|s| s.size == size)
}

#[test]
fn every_struct_has_the_drivers_layout() {
    let abi = abi();
    let ours = structs();
    let mut checked = BTreeSet::new();
    for (name, row) in rows_of(&abi, "structs") {
        let our = ours.get(name.as_str()).unwrap_or_else(|| panic!("the crate lacks {name}"));
        compare(our, row);
        checked.insert(our.name);
        // Structs that only occur inside others, listed with the array they are elements of.
        for (array, fields) in row["element_fields"].as_object().into_iter().flatten() {
            let list = row["fields"].as_array().expect("fields");
            let element = list.iter().find(|f| f[0] == array.as_str()).expect("the array of the elements");
            let inline: Vec<_> = ours.values().filter(|s| is_element(s, &element[4], fields)).collect();
            assert!(!inline.is_empty(), "{name}.{array} has elements of an unknown struct");
            checked.extend(inline.iter().map(|s| s.name));
        }
    }
    for (name, releases) in rows_of(&abi, "struct_variants") {
        for (version, row) in releases.as_object().expect("releases") {
            if row.is_null() {
                continue; // the release does not have the struct
            }
            let major = version.split('.').next().and_then(|m| m.parse::<u32>().ok()).expect("a release");
            let release = Release::ALL.into_iter().find(|r| r.major() == major).expect("a known release");
            let our = variant(&ours, name, row, release)
                .unwrap_or_else(|| panic!("the crate lacks {name} of release {major}"));
            compare(our, row);
            checked.insert(our.name);
        }
    }
    let extra: Vec<_> = ours.keys().filter(|name| !checked.contains(*name)).collect();
    assert!(extra.is_empty(), "structs of the crate that the table lacks: {extra:?}");
}

/// Whether a struct is the element type of an array.
fn is_element(our: &Struct, size: &Value, fields: &Value) -> bool {
    let fields = fields.as_array().expect("fields");
    our.size == usize_of(size)
        && fields.iter().all(|field| {
            let path = field[0].as_str().expect("a name").replace('.', "_");
            let at = (usize_of(&field[1]), usize_of(&field[2]));
            our.fields.iter().any(|f| f.name == path && (f.offset, f.size) == at)
        })
}

#[test]
fn every_number_is_the_drivers() {
    let abi = abi();
    let mut table: BTreeMap<String, u64> = BTreeMap::new();
    let number = |value: &Value| value.as_u64().unwrap_or_else(|| panic!("{value} is no number"));
    let hex = |value: &Value| {
        let text =
            value.as_str().and_then(|t| t.strip_prefix("0x")).unwrap_or_else(|| panic!("{value} is not hex"));
        u64::from_str_radix(text, 16).expect("a hex number")
    };
    for (name, value) in rows_of(&abi, "constants") {
        table.insert(name.clone(), number(value));
    }
    for (name, value) in rows_of(&abi, "status_codes") {
        table.insert(name.clone(), hex(value));
    }
    for (section, key) in [("classes", "id"), ("controls", "cmd"), ("uvm_ioctls", "nr")] {
        for (name, row) in rows_of(&abi, section) {
            table.insert(name.clone(), number(&row[key]));
        }
    }
    for (name, row) in rows_of(&abi, "escapes") {
        let name = if name == "NV_ESC_RM_ALLOC(access form)" { "NV_ESC_RM_ALLOC_ACCESS" } else { name };
        let value =
            if row["request_hex"].is_string() { hex(&row["request_hex"]) } else { number(&row["nr"]) };
        table.insert(name.to_owned(), value);
    }
    let ours = numbers();
    let missing: Vec<_> =
        table.keys().filter(|name| !ours.contains_key(name.as_str()) && !is_left_out(name)).collect();
    assert!(missing.is_empty(), "numbers of the table that the crate lacks: {missing:?}");
    for (name, value) in &ours {
        assert_eq!(table.get(*name), Some(value), "{name}");
        assert!(!is_left_out(name), "{name} belongs to a family that is left out");
    }
}

#[test]
fn every_family_that_is_left_out_has_rows() {
    let abi = abi();
    let rows = ["constants", "bitfields"].map(|section| rows_of(&abi, section));
    for family in LEFT_OUT {
        assert!(rows.iter().any(|rows| rows.keys().any(|name| name.starts_with(family))), "{family}");
    }
}

#[test]
fn every_request_control_and_class_has_its_struct() {
    let abi = abi();
    let check = |section: &str, size_key: &str, number_key: &str, ours: &[Entry]| {
        let mut rows = 0;
        for (name, row) in rows_of(&abi, section) {
            let size = row[size_key].as_u64().unwrap_or(0);
            if size == 0 && section != "classes" {
                continue; // takes no struct
            }
            rows += 1;
            let name = if name == "NV_ESC_RM_ALLOC(access form)" { "NV_ESC_RM_ALLOC_ACCESS" } else { name };
            let our =
                ours.iter().find(|e| e.name == name).unwrap_or_else(|| panic!("{section} lacks {name}"));
            assert_eq!(our.size as u64, size, "{name}");
            if let Some(number) = row[number_key].as_u64() {
                assert_eq!(u64::from(our.number & number_mask(section)), number, "{name}");
            }
        }
        assert_eq!(rows, ours.len(), "{section} of the crate that the table lacks");
    };
    check("escapes", "size", "nr", ESCAPES);
    check("uvm_ioctls", "size", "nr", UVM);
    check("controls", "size", "cmd", CONTROLS);
    check("classes", "size", "id", CLASSES);
}

/// Escapes are listed by their number alone; the rest of the request is the size and direction.
fn number_mask(section: &str) -> u32 {
    if section == "escapes" { 0xff } else { u32::MAX }
}

#[test]
fn every_bit_field_and_status_is_the_drivers() {
    let abi = abi();
    let table: BTreeMap<String, (u64, u64)> = rows_of(&abi, "bitfields")
        .iter()
        .filter(|(name, _)| !is_left_out(name))
        .map(|(name, bits)| {
            (name.clone(), (bits[0].as_u64().expect("a bit"), bits[1].as_u64().expect("a bit")))
        })
        .collect();
    let ours: BTreeMap<String, (u64, u64)> =
        BITFIELDS.iter().map(|(n, b)| ((*n).to_owned(), (b.hi.into(), b.lo.into()))).collect();
    assert_eq!(ours, table);
    let statuses: BTreeSet<&str> = STATUSES.iter().map(|(name, _)| *name).collect();
    assert_eq!(statuses, rows_of(&abi, "status_codes").keys().map(String::as_str).collect());
}
