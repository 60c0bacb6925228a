//! A program that knows nothing of the software device runs on it.

use std::path::PathBuf;
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
    // As the kernel answers: a pipe's read end is not written to, whatever the pointer.
    let wanted = "\
open: EFAULT
openat: EFAULT
access: EFAULT
ioctl: EFAULT
poll: EFAULT
poll of nothing: 0
poll of too many: EINVAL
poll of no descriptor: 0
revents of no descriptor: 0
ppoll: EFAULT
ppoll, time: EFAULT
ppoll, mask: EFAULT
ppoll, good: 0
select: EFAULT
read: EAGAIN
readv: EFAULT
write: EBADF
fstat: EFAULT
munmap: EINVAL
mmap: 0
";
    assert_eq!(String::from_utf8_lossy(&run.stdout), wanted);
}
