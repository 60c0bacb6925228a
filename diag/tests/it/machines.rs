//! The machines of `tests/data/machines`, as folders that `nvdiag doctor --root` reads.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// Lines of each file, by path.
pub type Files = BTreeMap<String, Vec<String>>;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/machines")
}

/// Names of all machines.
pub fn names() -> Vec<String> {
    let entries = fs::read_dir(folder()).expect("the machines").map(|entry| entry.expect("an entry").path());
    let texts = entries.filter(|path| path.extension().is_some_and(|end| end == "txt"));
    let mut names: Vec<String> =
        texts.map(|path| path.file_stem().expect("a name").to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

pub fn files(name: &str) -> Files {
    let text = fs::read_to_string(folder().join(format!("{name}.txt"))).expect("a machine");
    let mut all = match text.lines().next().and_then(|line| line.strip_prefix("= ")) {
        Some(base) => files(base),
        None => Files::new(),
    };
    let mut own = Files::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '='])) {
        if let Some(gone) = line.strip_prefix("! ") {
            all.retain(|path, _| path != gone && !path.starts_with(&format!("{gone}/")));
            continue;
        }
        let (path, line) = line.split_once(':').unwrap_or_else(|| panic!("{name}: {line:?}"));
        let line = line.strip_prefix(' ').unwrap_or(line).replace("\\0", "\0");
        own.entry(path.to_owned()).or_default().push(line);
    }
    all.extend(own);
    all
}

/// A machine's files in a folder.
pub fn machine(name: &str) -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    for (path, lines) in files(name) {
        write(dir.path(), &path, &(lines.join("\n") + "\n"));
    }
    dir
}

pub fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    fs::write(path, text).expect("written");
}
