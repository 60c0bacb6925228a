//! Limits of the process, in a process of its own.

use std::process::Command;

use hcq::{Device, Error, MemoryError, Selector};
use nix::sys::resource::{Resource, setrlimit};

/// Set for the process that has the limit.
const LIMITED: &str = "HCQ_TEST_LIMITED";
const MIB: u64 = 1 << 20;

#[test]
fn an_allocation_over_the_limit_of_the_process_is_no_lack_of_gpu_memory() {
    if std::env::var_os(LIMITED).is_some() {
        return allocate_under_a_limit();
    }
    let test = "limits::an_allocation_over_the_limit_of_the_process_is_no_lack_of_gpu_memory";
    let own = std::env::current_exe().unwrap();
    let ended = Command::new(own).args(["--exact", test, "--nocapture"]).env(LIMITED, "1").output().unwrap();
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

fn allocate_under_a_limit() {
    let device = Device::open(Selector::Sim).unwrap();
    let mut buffers = vec![device.alloc(MIB).unwrap()];
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
    let limit = (4096 * pages).next_multiple_of(MIB) + 256 * MIB;
    setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
    let error = loop {
        match device.alloc(16 * MIB) {
            Ok(buffer) => buffers.push(buffer),
            Err(error) => break error,
        }
        assert!(buffers.len() < 32, "the limit is 256 MiB away");
    };
    let text = error.to_string();
    assert!(
        matches!(error, Error::Memory(MemoryError::ProcessLimit { len, limit: l, .. }) if (len, l) == (16 * MIB, limit)),
        "{error:?}"
    );
    let start = "cannot map 16 MiB for a buffer into the process, which may map ";
    assert!(text.starts_with(start) && text.contains("RLIMIT_AS") && !text.contains("free"), "{text}");
    assert!(error.hint().is_some_and(|hint| hint.contains("ulimit -v")), "{error:?}");
    buffers.truncate(1);
    device.alloc(16 * MIB).unwrap().write(0, &[1; 64]).unwrap();
}
