//! A program that knows nothing of the software device runs on it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Folder of the build: this test lies in `deps` under it.
fn build_folder() -> PathBuf {
    let mut path = std::env::current_exe().unwrap();
    path.pop();
    path.pop();
    path
}

fn library() -> PathBuf {
    let folder = build_folder();
    let places = [folder.join("deps/libnvgpu_sim.so"), folder.join("libnvgpu_sim.so")];
    places.into_iter().find(|p| p.exists()).expect("libnvgpu_sim.so is not built")
}

#[test]
fn a_program_finds_the_gpu_through_the_c_library() {
    let program = build_folder().join("examples/first_semaphore");
    let run =
        Command::new(&program).env("LD_PRELOAD", library()).env("NVGPU_SIM_VERBOSE", "1").output().unwrap();
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{error}");
    assert_eq!(String::from_utf8_lossy(&run.stdout), "token 511 semaphore 7 time true\n");
}

#[test]
fn a_program_without_a_gpu_is_left_alone() {
    let run = Command::new("cat").arg("/proc/self/comm").env("LD_PRELOAD", library()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&run.stdout), "cat\n");
}

#[test]
fn a_pointer_that_leads_nowhere_is_an_error_of_the_call() {
    let program = build_folder().join("examples/bad_pointers");
    let run = Command::new(&program).env("LD_PRELOAD", library()).output().unwrap();
    assert!(run.status.success(), "{}: {}", run.status, String::from_utf8_lossy(&run.stderr));
    // As the kernel answers: the driver has no `read`, `write` and `poll`. Files that it cannot poll are
    // ready at once, and reading them is `EINVAL`, whatever the pointer; a vector is read first.
    let wanted = "\
open: EFAULT
openat: EFAULT
access: EFAULT
ioctl: EFAULT
poll: EFAULT
poll of nothing: 0
poll of too many: EINVAL
poll of no descriptor: 1
revents of no descriptor: 0
ppoll: EFAULT
ppoll, time: EFAULT
ppoll, mask: EFAULT
ppoll, good: 1
select: EFAULT
read: EINVAL
readv: EFAULT
write: EINVAL
fstat: EFAULT
munmap: EINVAL
mmap: 0
";
    assert_eq!(String::from_utf8_lossy(&run.stdout), wanted);
}

/// A file of this folder's `programs`.
fn source(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/programs").join(name)
}

/// Returns the output of a program in another language on the software device.
fn output_of(program: &mut Command) -> String {
    let run = program.env("LD_PRELOAD", library()).output().unwrap();
    let output = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(run.status.success(), "{}: {output}{}", run.status, String::from_utf8_lossy(&run.stderr));
    output
}

#[test]
fn nodes_are_found_in_every_way_that_python_looks_for_them() {
    let wanted = "\
stat crw-rw---- 3 crw-rw---- 13 drwxr-xr-x
access True False False
list ['as', 'channel', 'ctrl', 'ctxsw'] ['/dev/nvgpu/igpu0/ctrl']
scan [('igpu0', True, True)]
path True
fstat crw-rw---- 3
open crw-rw---- 13
ioctl 0 328 0x170
hint there 0
noreplace there errno 17
second errno 16
fixed there
replaced True there
null errno 1
";
    assert_eq!(output_of(Command::new("python3").arg(source("paths.py"))), wanted);
}

#[test]
fn what_ifs_change_the_nodes_and_a_name_that_means_nothing_is_an_error() {
    let look = "import os; print(os.listdir('/dev/nvgpu/igpu0'), os.path.exists('/dev/nvhost-ctrl-gpu'), \
                os.path.exists('/dev/nvidiactl'))";
    let seen = |what_if: &str| {
        output_of(Command::new("python3").args(["-c", look]).env("NVGPU_SIM_WHATIF", what_if))
    };
    assert_eq!(seen("only-power"), "['power'] False False\n");
    assert!(seen("display-driver").ends_with(" True True\n"));
    let program = build_folder().join("examples/first_semaphore");
    let run = |what_if: &str| {
        let mut program = Command::new(&program);
        program.env("LD_PRELOAD", library()).env("NVGPU_SIM_WHATIF", what_if).output().unwrap()
    };
    assert!(run("late-gp-get,doorbell-class").status.success());
    let wrong = run("enotty=NVGPU_NONE");
    let error = String::from_utf8_lossy(&wrong.stderr);
    let said = "libnvgpu_sim.so: NVGPU_SIM_WHATIF=enotty=NVGPU_NONE: expected a list of doorbell-class";
    assert!(!wrong.status.success() && error.matches(said).count() == 1, "{error}");
}

/// Compiles a C program of this folder with the ABI's header.
fn compiled(folder: &Path, name: &str) -> PathBuf {
    let program = folder.join(name);
    let headers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../nvgpu-sys/include");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I"]).arg(headers);
    let source = source(&format!("{name}.c"));
    let compiled = compiler.arg("-o").arg(&program).arg(source).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    program
}

#[test]
fn a_client_in_c_copies_and_sees_its_fault() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "client");
    let wanted = "\
characteristics of 328 bytes
window at 0xfe00000000
semaphore 7, 0 wrong words
semaphore 7, notifier 31
";
    assert_eq!(output_of(&mut Command::new(program)), wanted);
}

/// Paths, flags and calls on descriptors as the kernel answers for character devices whose driver has `ioctl` and
/// `mmap` operations only.
#[test]
fn nodes_are_files_as_the_kernel_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "nodes");
    let wanted = include_str!("../programs/nodes.txt");
    assert_eq!(output_of(&mut Command::new(program)), wanted);
}

#[test]
fn ls_and_find_list_the_folder() {
    let listed = output_of(Command::new("ls").arg("/dev/nvgpu/igpu0").env("LC_ALL", "C"));
    assert_eq!(listed.lines().count(), 13, "{listed}");
    let found = output_of(Command::new("find").args(["/dev/nvgpu", "-name", "c*"]));
    let mut found: Vec<_> = found.lines().collect();
    found.sort_unstable();
    assert_eq!(found, ["/dev/nvgpu/igpu0/channel", "/dev/nvgpu/igpu0/ctrl", "/dev/nvgpu/igpu0/ctxsw"]);
}

/// No child waits for a lock of a thread that only the parent has.
#[test]
fn a_fork_has_no_gpu_and_everything_else() {
    let folder = tempfile::tempdir().unwrap();
    let program = compiled(folder.path(), "forks");
    let run = Command::new(program).env("LD_PRELOAD", library()).output().unwrap();
    let wanted = "\
fork: ctrl ENODEV, nvmap ENODEV, open ENODEV, mmap ENODEV, poll of a pipe ok, close ok
parent: ok
vfork: inherited ENODEV, opened ok
posix_spawn: inherited ENODEV, opened ok
parent: ok
0 of 200 children failed
";
    assert_eq!(String::from_utf8_lossy(&run.stdout), wanted);
    let error = String::from_utf8_lossy(&run.stderr);
    assert!(error.starts_with("libnvgpu_sim.so: a forked child has no software GPU: "), "{error}");
    let foreign =
        "libnvgpu_sim.so: NVGPU_GPU_IOCTL_GET_CHARACTERISTICS on a descriptor that another process opened";
    assert_eq!(error.lines().filter(|line| line.starts_with(foreign)).count(), 2, "{error}");
}

/// Output and errors of the program that notes two pieces and copies `bytes` bytes.
fn noted_copy(check: &str, bytes: &str) -> (String, String) {
    let program = build_folder().join("examples/noted_copy");
    let run = Command::new(program)
        .arg(bytes)
        .env("LD_PRELOAD", library())
        .env("NVGPU_SIM_CHECK", check)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(run.status.success(), "{error}");
    (String::from_utf8_lossy(&run.stdout).into_owned(), error)
}

#[test]
fn a_program_notes_its_pieces_and_a_copy_past_one_is_found() {
    assert_eq!(noted_copy("", "101"), ("notes 0, copied 101 bytes\n".to_owned(), String::new()));
    assert_eq!(noted_copy("race", "101"), ("notes 1, copied 101 bytes\n".to_owned(), String::new()));
    assert_eq!(noted_copy("memory", "100"), ("notes 2, copied 100 bytes\n".to_owned(), String::new()));
    let (_, found) = noted_copy("memory", "101");
    assert!(
        found
            .starts_with("ga10b: a copy reads global memory outside every buffer: copy of 101 bytes from 0x"),
        "{found}"
    );
    assert!(found.contains(": at the end of buffer `source` (100 bytes at 0x"), "{found}");
    assert_eq!(found.lines().count(), 1, "{found}");
}

/// The header, in C: without the library the functions are null.
#[test]
fn a_c_program_asks_whether_anybody_listens() {
    let folder = tempfile::tempdir().unwrap();
    let (source, program) = (folder.path().join("asks.c"), folder.path().join("asks"));
    let code = "#include \"nvgpu_sim.h\"\n#include <stdio.h>\n\
        int main(void) { printf(\"%d %d\\n\", nvgpu_sim_notes ? nvgpu_sim_notes() : -1,\n\
        nvgpu_sim_piece ? nvgpu_sim_piece(0, 4096, 16, NVGPU_SIM_BUFFER, NVGPU_SIM_READ_WRITE, \"x\") : -2); return 0; }\n";
    std::fs::write(&source, code).unwrap();
    let header = concat!(env!("CARGO_MANIFEST_DIR"), "/include");
    let built = Command::new("cc")
        .args(["-Wall", "-Werror", "-fPIE", "-pie", "-I", header])
        .arg(&source)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let said = |change: &dyn Fn(&mut Command)| {
        let mut command = Command::new(&program);
        change(&mut command);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert_eq!(said(&|_| ()), "-1 -2\n");
    let checked = |command: &mut Command| {
        command.env("LD_PRELOAD", library()).env("NVGPU_SIM_CHECK", "memory");
    };
    assert_eq!(said(&checked), "2 -1\n");
}
