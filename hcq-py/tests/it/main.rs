//! The package in Python: its tests (`tests/python`), with the library that cargo has built, and its types.
//!
//! `PYTHON` names the interpreter, else it is `python3`; it needs numpy and pytest, and mypy for the types.

use std::ffi::OsString;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use ga10b_oracles::missing;
use tempfile::TempDir;

/// The folder of this crate.
fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The library that cargo has built, in the folder of this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.parent().expect("the folder of the build").join("libhcq_py.so")
}

/// A folder with the package, as a wheel has it.
fn package() -> TempDir {
    let folder_of_package = tempfile::tempdir().unwrap();
    let hcq = folder_of_package.path().join("hcq");
    std::fs::create_dir(&hcq).unwrap();
    for entry in std::fs::read_dir(folder().join("python/hcq")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            symlink(&path, hcq.join(path.file_name().unwrap())).unwrap();
        }
    }
    symlink(library(), hcq.join("_hcq.abi3.so")).unwrap();
    folder_of_package
}

/// An interpreter that has `modules`; without one the test skips.
fn python(modules: &str) -> Option<OsString> {
    let python = std::env::var_os("PYTHON").unwrap_or_else(|| "python3".into());
    let found = Command::new(&python).args(["-c", &format!("import {modules}")]).output();
    if found.is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    missing(&format!("{} with {modules}", python.to_string_lossy()), "PYTHON names a Python");
    None
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").current_dir(folder()).output().unwrap();
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
}

#[test]
fn the_tests_in_python_pass() {
    let Some(python) = python("numpy, pytest") else { return };
    let package = package();
    let mut pytest = Command::new(python);
    pytest.args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/python"]);
    run(pytest.env("PYTHONPATH", package.path()).env("HCQ_DEVICE", "sim"));
}

#[test]
fn the_types_are_those_of_the_library_and_the_examples_keep_them() {
    let Some(python) = python("numpy, mypy") else { return };
    let package = package();
    let cache = tempfile::tempdir().unwrap();
    let mypy = |module: &str| {
        let mut command = Command::new(&python);
        command.args(["-m", module]).env("PYTHONPATH", package.path()).env("MYPYPATH", package.path());
        command.env("MYPY_CACHE_DIR", cache.path());
        command
    };
    let mut examples: Vec<PathBuf> =
        std::fs::read_dir(folder().join("examples")).unwrap().map(|entry| entry.unwrap().path()).collect();
    examples.retain(|path| path.extension().is_some_and(|e| e == "py"));
    run(mypy("mypy").arg("--strict").arg(package.path().join("hcq")).args(examples));
    let allowed = folder().join("tests/stubs-allowed.txt");
    let mut stubtest = mypy("mypy.stubtest");
    run(stubtest.args(["hcq", "--ignore-unused-allowlist", "--allowlist"]).arg(allowed));
}
