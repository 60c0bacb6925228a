//! The library as `tools/c-library.sh` installs it, and programs that are compiled against it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use tempfile::TempDir;

/// The folder of this crate.
pub fn folder() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The archive that cargo has built, in the folder of this test.
fn archive() -> PathBuf {
    let test = std::env::current_exe().expect("this test");
    test.parent().expect("the folder of the build").join("libhcq_c.a")
}

/// Runs a command that has to succeed.
#[track_caller]
pub fn succeed(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    output
}

/// Whether a tool is there; without it a test prints that it skipped.
pub fn has(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("skipped: no {tool}");
    }
    found
}

/// The prefix that the library is installed below, once for all tests. The folder moves after it is made: what is
/// installed names none.
pub fn prefix() -> &'static Path {
    static FOLDER: OnceLock<TempDir> = OnceLock::new();
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let folder = FOLDER.get_or_init(|| tempfile::tempdir().unwrap());
        let (first, moved) = (folder.path().join("first"), folder.path().join("hcq"));
        succeed(Command::new(folder_of_tools().join("c-library.sh")).arg(archive()).arg(&first));
        fs::rename(first, &moved).unwrap();
        moved
    })
}

fn folder_of_tools() -> PathBuf {
    folder().join("../tools")
}

/// Languages that programs are written in, with the warnings that are errors.
const C: &[&str] = &["-std=c11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"];
const CPP: &[&str] = &["-std=c++17", "-pedantic", "-Wall", "-Wextra", "-Werror", "-O1", "-g"];

/// A string literal of C, as the value of a macro.
fn macro_of(name: &str, path: &Path) -> String {
    format!("-D{name}=\"{}\"", path.canonicalize().unwrap().display())
}

/// Compiles `source`, a path in this crate, as `name`, with further flags.
pub fn compile(source: &str, name: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (folder().join(source), prefix().join(name));
    let is_c = source.extension().is_some_and(|e| e == "c");
    let (variable, otherwise, own) = if is_c { ("CC", "cc", C) } else { ("CXX", "c++", CPP) };
    let mut compiler = Command::new(std::env::var_os(variable).unwrap_or_else(|| otherwise.into()));
    let lib = prefix().join("lib");
    compiler.args(own).arg("-I").arg(prefix().join("include"));
    compiler.arg(macro_of("KERNELS", &folder().join("../hcq/examples/kernels")));
    compiler.arg(macro_of("ENDINGS", &folder().join("../hcq/tests/kernels/endings.sm_87.cubin")));
    compiler.arg(source).arg("-o").arg(&program).arg("-L").arg(&lib).arg("-lhcq").args(flags);
    compiler.arg(format!("-Wl,-rpath,{}", lib.display()));
    succeed(&mut compiler);
    program
}

/// A command whose device is the software GPU, configured by nothing else.
pub fn on_sim(program: impl AsRef<std::ffi::OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env("HCQ_DEVICE", "sim");
    command
}

/// The standard output of a program that has to succeed.
#[track_caller]
pub fn text_of(command: &mut Command) -> String {
    String::from_utf8_lossy(&succeed(command).stdout).into_owned()
}

/// Runs a program under valgrind: no error, and nothing that is lost.
#[track_caller]
pub fn under_valgrind(program: &Path) -> String {
    let mut valgrind = on_sim("valgrind");
    // Threads of the software GPU poll: each gets its share of the one processor that valgrind has.
    valgrind.args(["-q", "--error-exitcode=99", "--fair-sched=yes", "--leak-check=full"]);
    valgrind.args(["--show-leak-kinds=definite,indirect", "--errors-for-leak-kinds=definite,indirect"]);
    text_of(valgrind.arg(program))
}

/// Flags of the sanitizers.
pub const SANITIZERS: &[&str] = &["-fsanitize=address,undefined", "-fno-sanitize-recover=all"];
