//! The crate against `data/releases.json`: requests, structs and constants of both drivers in each release of
//! Jetson Linux, as a compiler laid out the headers of `tools/abi-releases.py`.

use std::collections::BTreeMap;

use nvgpu_sys::{OVERLAYS, REQUESTS};
use serde_json::Value;

use super::{numbers, structs};

/// The releases that the crate is for and whose headers can be had. Of r36.5 and r39.2 they cannot. The crate has
/// what all of them have alike, and nothing that only some have.
const CLAIMED: [&str; 7] = ["r36.2", "r36.3", "r36.3.1", "r36.4", "r36.4.1", "r36.4.2", "r36.4.3"];

fn table() -> Value {
    serde_json::from_str(include_str!("../../data/releases.json")).expect("the table is valid JSON")
}

/// The entries of one kind, as a release has them.
fn of_release<'a>(table: &'a Value, kind: &str, release: &str) -> BTreeMap<&'a str, &'a Value> {
    let holds = |entry: &Value| {
        let set = entry["in"].as_str().expect("the name of a set");
        table["sets"][set].as_array().expect("a set").iter().any(|r| r == release)
    };
    let entries = table[kind].as_object().expect("entries by name");
    let of = |(name, variants): (&'a String, &'a Value)| {
        let mut found = variants.as_array().expect("variants").iter().filter(|e| holds(e));
        let entry = found.next()?;
        assert!(found.next().is_none(), "{release} has {name} twice");
        Some((name.as_str(), entry))
    };
    entries.iter().filter_map(of).collect()
}

#[test]
fn the_table_has_each_release_that_the_crate_is_for_with_both_drivers() {
    let table = table();
    for release in CLAIMED {
        let sources = &table["sources"][release];
        assert!(sources["nvgpu"].is_string() && sources["nvmap"].is_string(), "{release}: {sources}");
    }
}

#[test]
fn every_number_is_the_same_in_each_release() {
    let table = table();
    let ours = numbers();
    for release in CLAIMED {
        let constants = of_release(&table, "constants", release);
        let requests = of_release(&table, "requests", release);
        for (name, value) in &ours {
            let theirs = match (constants.get(name), requests.get(name)) {
                (Some(entry), None) => &entry["value"],
                (None, Some(entry)) => &entry["number"],
                _ => panic!("releases.json: {release} of CLAIMED lacks {name}"),
            };
            let theirs = theirs.as_i64().map(i128::from).or(theirs.as_u64().map(i128::from));
            // The header writes a negative int where the driver compares a u32.
            let theirs = theirs.map(|n| if *name == "NVMAP_ELEM_SIZE_U64" { n + (1 << 32) } else { n });
            assert_eq!(theirs, Some(*value), "{name} in {release}");
        }
    }
}

#[test]
fn every_request_takes_the_same_struct_in_each_release() {
    let table = table();
    for release in CLAIMED {
        let requests = of_release(&table, "requests", release);
        let layouts = of_release(&table, "structs", release);
        for request in REQUESTS {
            let entry = requests
                .get(request.name)
                .unwrap_or_else(|| panic!("releases.json: {release} of CLAIMED lacks {}", request.name));
            let argument = entry["argument"].as_str().expect("the argument's name");
            // A struct's size is also that of the crate's type; others are bare integers.
            if let Some(layout) = layouts.get(argument) {
                assert_eq!(
                    layout["size"].as_u64(),
                    Some(request.size as u64),
                    "{} in {release}",
                    request.name
                );
            }
        }
        // Only requests of the domain scheduler, which the crate leaves out, have no type here.
        let unknown =
            |name: &&&str| !REQUESTS.iter().any(|r| r.name == **name) && !name.starts_with("NVGPU_NVS_");
        assert_eq!(requests.keys().find(unknown), None, "{release}");
    }
}

#[test]
fn every_field_is_at_the_same_place_in_each_release() {
    let table = table();
    let ours = structs();
    for release in CLAIMED {
        let layouts = of_release(&table, "structs", release);
        for (name, our) in &ours {
            let layout = layouts
                .get(name)
                .unwrap_or_else(|| panic!("releases.json: {release} of CLAIMED lacks {name}"));
            assert_eq!(layout["size"].as_u64(), Some(our.size as u64), "{name} in {release}");
            for (path, place) in layout["fields"].as_object().expect("fields") {
                let at = |i: usize| place[i].as_u64().map(|n| usize::try_from(n).expect("a small number"));
                if at(2).is_some() {
                    continue; // A bit of nvgpu_gpu_l2_fb_args; its test is beside that of the other table.
                }
                let path = path.replace('.', "_");
                let overlay = OVERLAYS.iter().find(|o| o.container == *name && o.name == path);
                let field = our.fields.iter().find(|f| f.name.trim_end_matches('_') == path);
                let here = field.map(|f| (f.offset, f.size)).or(overlay.map(|o| (o.offset, o.size)));
                assert_eq!(here, at(0).zip(at(1)), "{name}.{path} in {release}");
            }
        }
    }
}
