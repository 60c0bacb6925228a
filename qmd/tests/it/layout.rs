//! The field tables against the table made from NVIDIA's headers (`tests/data/qmd-fields.json`).

use std::collections::BTreeSet;

use qmd::{Field, Version, field, fields};
use serde_json::Value;

fn table(version: Version) -> Value {
    let text = include_str!("../data/qmd-fields.json");
    let all: Value = serde_json::from_str(text).expect("the table is JSON");
    let name = match version {
        Version::V03 => "QMDV03_00",
        Version::V04 => "QMDV04_00",
    };
    all["layouts"][name].clone()
}

const VERSIONS: [Version; 2] = [Version::V03, Version::V04];

fn number(value: &Value) -> u16 {
    u16::try_from(value.as_u64().expect("a number")).expect("a bit number")
}

#[test]
fn every_row_of_the_table_has_its_field_with_the_same_bits() {
    for version in VERSIONS {
        let table = table(version);
        let rows = table["fields"].as_object().expect("rows");
        for (name, row) in rows {
            let field = field(version, name).unwrap_or_else(|| panic!("{version} has no {name}"));
            let bits = row.get("bits").or_else(|| row.get("base")).expect("bits or base");
            assert_eq!((field.hi(), field.lo()), (number(&bits[0]), number(&bits[1])), "{name}");
            let (lo, width) = (u32::from(field.lo()), u32::from(field.hi() - field.lo() + 1));
            assert_eq!((field.word(), field.shift()), (lo as usize / 32, lo % 32), "{name}");
            let max = ((1u64 << width) - 1) as u32;
            assert_eq!((u32::from(field.width()), field.max()), (width, max), "{name}");
            assert_eq!(field.mask(), max << (lo % 32), "{name}");
            let count = row.get("count").map_or(1, number);
            let stride = row.get("stride").map_or(0, number);
            assert_eq!((u16::from(field.count()), field.stride()), (count, stride), "{name}");
            let mut values = BTreeSet::new();
            for (value, n) in row.get("enum").and_then(Value::as_object).into_iter().flatten() {
                values.insert((value.as_str(), u32::from(number(n))));
            }
            assert_eq!(field.values().iter().copied().collect::<BTreeSet<_>>(), values, "{name}");
        }
        let ours: BTreeSet<&str> = fields(version).iter().map(|f| f.name()).collect();
        assert_eq!(ours.len(), fields(version).len(), "a name is used twice");
        assert_eq!(ours, rows.keys().map(String::as_str).collect(), "{version}");
        assert_eq!(version.size() as u64, table["size_bytes"].as_u64().expect("size"));
        assert_eq!(u64::from(version.major()), table["major"].as_u64().expect("major"));
    }
}

/// Every bit by the field that owns it, found without the crate's own arithmetic.
fn owners(version: Version) -> Vec<Vec<Field>> {
    let mut owners = vec![Vec::new(); version.size() * 8];
    for field in fields(version) {
        for i in 0..field.count() {
            let element = field.element(i).expect("below the count");
            assert_eq!((element.index(), element.count()), (i, 1), "{}", field.name());
            for bit in element.lo()..=element.hi() {
                owners[usize::from(bit)].push(element);
            }
        }
        assert!(field.element(field.count()).is_none());
    }
    owners
}

#[test]
fn no_two_fields_overlap_and_the_unnamed_bits_are_those_of_the_table() {
    for version in VERSIONS {
        let owners = owners(version);
        let mut unnamed = vec![false; owners.len()];
        for range in table(version)["unnamed_bit_ranges"].as_array().expect("ranges") {
            for bit in number(&range[1])..=number(&range[0]) {
                unnamed[usize::from(bit)] = true;
            }
        }
        for (bit, fields) in owners.iter().enumerate() {
            assert!(fields.len() <= 1, "{version} bit {bit}: {fields:?}");
            assert_eq!(fields.is_empty(), unnamed[bit], "{version} bit {bit}");
        }
    }
}
