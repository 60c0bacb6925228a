//! The requests of hcq and nvdiag to nvgpu and nvmap, against the table of releases of nvgpu-sys.
//!
//! That crate's tests say that all it declares is the same in each release it is for. Here: which requests and
//! constants the programs use, and what JetPack 5 has instead, as docs/orin.md lists it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use nvgpu_sys::REQUESTS;
use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;

/// The releases of JetPack 5 whose headers of nvgpu are in the table. The one of nvmap is in another repository.
const JETPACK_5: [&str; 6] = ["r35.1", "r35.2.1", "r35.3", "r35.4", "r35.5.0", "r35.6.0"];
/// The newest release of JetPack 6 in the table.
const NEWEST: &str = "r36.4.3";
/// Sources that send requests. A tracer names requests that it only reads, so its folder is not among them.
const CLIENTS: [&str; 4] = ["hcq/src", "diag/src/bringup", "diag/src/cmd", "nvgpu-sys/src/query.rs"];

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace's folder").to_owned()
}

/// Every identifier of a file, or of the files below a folder; tests apart.
fn identifiers(path: &Path, found: &mut BTreeSet<String>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            identifiers(&entry.unwrap().path(), found);
        }
    } else if path.extension().is_some_and(|e| e == "rs")
        && !path.components().any(|c| c.as_os_str() == "tests")
    {
        let tokens: TokenStream = fs::read_to_string(path).unwrap().parse().expect("Rust");
        collect(tokens, found);
    }
}

fn collect(tokens: TokenStream, found: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Ident(name) => {
                found.insert(name.to_string());
            }
            TokenTree::Group(group) => collect(group.stream(), found),
            _ => {}
        }
    }
}

/// The request of each type that implements `Ioctl`, from the lists `type => REQUEST` of nvgpu-sys.
fn types() -> BTreeMap<String, String> {
    let source = fs::read_to_string(workspace().join("nvgpu-sys/src/requests.rs")).unwrap();
    let row = |line: &str| {
        let (name, request) = line.strip_prefix("    ")?.strip_suffix(',')?.split_once(" => ")?;
        let name = name.split('(').next()?;
        request.starts_with("NV").then(|| (name.to_owned(), request.to_owned()))
    };
    let mut types: BTreeMap<_, _> = source.lines().filter_map(row).collect();
    types.insert("NvmapIocFree".to_owned(), "NVMAP_IOC_FREE".to_owned());
    assert_eq!(types.values().collect::<BTreeSet<_>>().len(), REQUESTS.len(), "a request has no row");
    types
}

/// The requests that the programs send, and the constants that they use.
fn used() -> (BTreeSet<String>, BTreeSet<String>) {
    let mut names = BTreeSet::new();
    for client in CLIENTS {
        identifiers(&workspace().join(client), &mut names);
    }
    let requests = types().into_iter().filter(|(name, _)| names.contains(name)).map(|(_, r)| r).collect();
    let constants =
        names.into_iter().filter(|n| n.starts_with("NVGPU_") || n.starts_with("NVMAP_")).collect();
    (requests, constants)
}

fn table() -> Value {
    let path = workspace().join("nvgpu-sys/tests/data/releases.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The entry of a release under a name, if there is one.
fn entry<'a>(table: &'a Value, kind: &str, name: &str, release: &str) -> Option<&'a Value> {
    let holds = |e: &&Value| {
        let set = e["in"].as_str().expect("the name of a set");
        table["sets"][set].as_array().expect("a set").iter().any(|r| r == release)
    };
    table[kind][name].as_array()?.iter().find(holds)
}

/// A request as the table of the documentation has it: its number, or that there is none.
fn shown(entry: Option<&Value>) -> String {
    entry.map_or("none".to_owned(), |e| format!("`{:#010x}`", e["number"].as_u64().expect("a number")))
}

/// A row of docs/orin.md for each request that we use and that a release of JetPack 5 has otherwise.
fn rows(table: &Value) -> Vec<String> {
    let (requests, _) = used();
    let mut rows = Vec::new();
    for request in requests.iter().filter(|r| r.starts_with("NVGPU_")) {
        let ours = shown(entry(table, "requests", request, NEWEST));
        let theirs: BTreeSet<_> =
            JETPACK_5.iter().map(|release| shown(entry(table, "requests", request, release))).collect();
        if theirs != BTreeSet::from([ours.clone()]) {
            let theirs: Vec<_> = theirs.into_iter().collect();
            rows.push(format!("| `{request}` | {ours} | {} |", theirs.join(", ")));
        }
    }
    rows
}

#[test]
fn the_programs_use_requests_and_constants_of_the_table() {
    let table = table();
    let (requests, constants) = used();
    for request in
        ["NVGPU_GPU_IOCTL_GET_CHARACTERISTICS", "NVGPU_IOCTL_CHANNEL_SETUP_BIND", "NVMAP_IOC_ALLOC"]
    {
        assert!(requests.contains(request), "{request} is not found in the sources");
    }
    for request in &requests {
        let ours = REQUESTS.iter().find(|r| r.name == request).expect("a request of nvgpu-sys");
        let theirs = entry(&table, "requests", request, NEWEST).unwrap_or_else(|| panic!("no {request}"));
        assert_eq!(theirs["number"].as_u64(), Some(u64::from(ours.request)), "{request}");
    }
    for constant in constants.iter().filter(|c| !REQUESTS.iter().any(|r| r.name == *c)) {
        assert!(entry(&table, "constants", constant, NEWEST).is_some(), "no {constant}");
    }
}

#[test]
fn the_documentation_lists_the_requests_by_which_jetpack_5_is_refused() {
    let rows = rows(&table());
    assert!(!rows.is_empty(), "JetPack 5 has every request");
    let docs = fs::read_to_string(workspace().join("docs/orin.md")).unwrap();
    let listed: Vec<_> = docs.lines().filter(|l| l.starts_with("| `NVGPU_") && l.contains("`0x")).collect();
    assert_eq!(listed, rows, "docs/orin.md, Releases; these are the rows:\n{}", rows.join("\n"));
}

#[test]
fn every_constant_that_the_programs_use_means_the_same_in_jetpack_5_but_the_documented_ones() {
    let table = table();
    let (_, constants) = used();
    let differs = |name: &&String| {
        let ours = entry(&table, "constants", name, NEWEST).map(|e| &e["value"]);
        let differs = |release| entry(&table, "constants", name, release).map(|e| &e["value"]) != ours;
        name.starts_with("NVGPU_") && JETPACK_5.into_iter().any(differs)
    };
    let docs = fs::read_to_string(workspace().join("docs/orin.md")).unwrap();
    for name in constants.iter().filter(differs) {
        assert!(docs.contains(&format!("`{name}`")), "docs/orin.md, Releases, does not name {name}");
    }
}

/// The size that the driver answers tells JetPack 5 from 6 before any field is read: the fields behind the
/// first four are elsewhere.
#[test]
fn characteristics_of_312_bytes_are_those_of_jetpack_5_with_fields_elsewhere() {
    let table = table();
    let layout = |release| entry(&table, "structs", "nvgpu_gpu_characteristics", release).expect("a struct");
    let ours = layout(NEWEST);
    assert_eq!(ours["size"], size_of::<nvgpu_sys::nvgpu_gpu_characteristics>());
    for release in JETPACK_5 {
        let theirs = layout(release);
        assert_eq!(theirs["size"], 312, "{release}");
        assert_eq!(theirs["fields"]["num_gpc"], ours["fields"]["num_gpc"], "{release}");
        assert_ne!(theirs["fields"]["compute_class"], ours["fields"]["compute_class"], "{release}");
    }
}
