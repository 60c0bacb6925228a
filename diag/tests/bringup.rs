//! The steps of a bring-up: all pass on the software ga10b, and for each there is a fault that makes that one
//! fail and no other.

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use ga10b_sim::{Defects, Sim, SimConfig};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvdiag::bringup::outcome::{Status, StepResult};
use nvdiag::bringup::plan::STEPS;
use nvdiag::bringup::rig::Rig;
use nvdiag::bringup::steps::{pointless, run};
use nvdiag::doctor::{Machine, Node};
use nvgpu_sys::{Layer, NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE, Request, Sys, nvgpu_gpu_characteristics};

/// What is wrong with the driver, or with the GPU.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    None,
    /// The hardware's.
    Defect(Defects),
    /// A request is refused.
    Refused(&'static str, Errno),
    /// The nodes may not be opened.
    NoPermission,
    /// The characteristics lack I/O coherence.
    NotCoherent,
    /// The number of SMs.
    Sms(u32),
    /// New memory has another content than zeros.
    NotZeroed,
    /// A reservation is somewhere else.
    Elsewhere,
    /// The register page is of another class.
    RegisterClass,
    /// The driver's time is ahead by so many ns.
    TimeAhead(u64),
    /// A GPU that was idle does not wake up.
    Asleep,
    /// No more than so many channels at once.
    ChannelsAtOnce(u32),
    /// No more than so many channels ever: those that are closed do not come back.
    ChannelsEver(u32),
}

#[derive(Debug, Default)]
struct Seen {
    channels: u32,
    channels_ever: u32,
    last_close: Option<Instant>,
}

/// The software ga10b with a fault in its driver.
#[derive(Debug)]
struct Faulty {
    sim: Arc<Sim>,
    fault: Fault,
    seen: Mutex<Seen>,
}

impl Faulty {
    fn new(fault: Fault) -> Arc<Self> {
        let defects = match fault {
            Fault::Defect(defects) => defects,
            _ => Defects::empty(),
        };
        let sim = Sim::new(SimConfig { defects, ..SimConfig::default() });
        Arc::new(Self { sim, fault, seen: Mutex::default() })
    }

    fn seen(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is(&self, fd: BorrowedFd<'_>, part: &str) -> bool {
        self.sim.descriptor_name(fd).is_some_and(|name| name.contains(part))
    }

    /// Why a request is refused before the driver sees it.
    fn refusal(&self, name: &str) -> Option<Errno> {
        let mut seen = self.seen();
        let opens = name == "NVGPU_GPU_IOCTL_OPEN_CHANNEL";
        match self.fault {
            Fault::Refused(refused, errno) if refused == name => return Some(errno),
            Fault::ChannelsAtOnce(most) if opens && seen.channels == most => return Some(Errno::ENOMEM),
            Fault::ChannelsEver(most) if opens && seen.channels_ever == most => return Some(Errno::ENOMEM),
            _ => {}
        }
        if opens {
            seen.channels += 1;
            seen.channels_ever += 1;
        }
        None
    }

    /// Changes what the driver has answered.
    fn spoil(&self, name: &str, arg: &mut [u8]) {
        let word = |arg: &[u8], at: usize| u64::from_ne_bytes(arg[at..at + 8].try_into().expect("8 bytes"));
        match (self.fault, name) {
            (Fault::NotCoherent, "NVGPU_GPU_IOCTL_GET_CHARACTERISTICS") => {
                let at = word(arg, 8) as usize + offset_of!(nvgpu_gpu_characteristics, flags);
                let flags = std::ptr::with_exposed_provenance_mut::<u64>(at);
                // SAFETY: the caller's buffer is as long as the struct, which the driver has just written.
                unsafe { *flags &= !NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE };
            }
            (Fault::Sms(count), "NVGPU_GPU_IOCTL_NUM_VSMS") => arg[..4].copy_from_slice(&count.to_ne_bytes()),
            (Fault::Elsewhere, "NVGPU_AS_IOCTL_ALLOC_SPACE") => {
                let at = offset_of!(nvgpu_sys::nvgpu_as_alloc_space_args, o_a);
                let moved = word(arg, at) + 0x1000;
                arg[at..at + 8].copy_from_slice(&moved.to_ne_bytes());
            }
            (Fault::TimeAhead(ns), "NVGPU_GPU_IOCTL_GET_GPU_TIME") => {
                let ahead = word(arg, 0) + ns;
                arg[..8].copy_from_slice(&ahead.to_ne_bytes());
            }
            _ => {}
        }
    }
}

// SAFETY: every call is passed on to an implementation, or refused; what is changed in answers is written to
// memory that the driver has just written.
unsafe impl Layer for Faulty {
    fn below(&self) -> &dyn Sys {
        &*self.sim
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        let idle = self.seen().last_close.is_some_and(|at| at.elapsed() > Duration::from_secs(1));
        match self.fault {
            Fault::NoPermission => Err(Errno::EACCES),
            Fault::Asleep if idle => Err(Errno::ENODEV),
            _ => self.sim.open(path, flags),
        }
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let name = Request::find(request).map_or("unknown", |r| r.name);
        if let Some(errno) = self.refusal(name) {
            return Err(errno);
        }
        // SAFETY: passed on from the caller.
        let answer = unsafe { self.sim.ioctl(fd, request, arg) }?;
        self.spoil(name, arg);
        Ok(answer)
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        // SAFETY: passed on from the caller.
        let at = unsafe { self.sim.mmap(len, prot, flags, fd, offset) }?;
        let registers = self.is(fd, "ctrl");
        let first = match self.fault {
            Fault::NotZeroed if !registers => 1,
            Fault::RegisterClass if registers => 0xc361,
            _ => return Ok(at),
        };
        // SAFETY: the mapping is at least a page of writable memory.
        unsafe { at.cast::<u32>().write_volatile(first) };
        Ok(at)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        let channel = self.is(fd.as_fd(), "nvhost-17000000.gpu");
        let mut seen = self.seen();
        seen.channels -= u32::from(channel);
        seen.last_close = Some(Instant::now());
        drop(seen);
        self.sim.close(fd)
    }
}

/// A machine that says nothing: the software ga10b is asked for nothing.
struct Silent;

impl Machine for Silent {
    fn read(&self, _: &str) -> Option<String> {
        None
    }

    fn list(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn node(&self, _: &str) -> Option<Node> {
        None
    }

    fn faults(&self) -> Option<u64> {
        None
    }
}

/// Runs all steps as the program does, each on a machine of its own with the same fault.
fn all(fault: Fault) -> Vec<StepResult> {
    let mut done = Vec::new();
    for step in &STEPS {
        let result = pointless(step, &done).unwrap_or_else(|| {
            let sys = Faulty::new(fault);
            let sim = sys.sim.clone();
            let mut rig = Rig::through(sys, &Silent, Box::new(move || Some(sim.kernel_log())));
            rig.soak = Duration::from_millis(200);
            run(step, &rig)
        });
        done.push(result);
    }
    done
}

/// Whether the fault makes that step fail and no other, and says `found`.
fn fails(number: u32, fault: Fault, found: &str) {
    let results = all(fault);
    let failed: Vec<u32> = results.iter().filter(|r| r.status == Status::Failed).map(|r| r.number).collect();
    assert_eq!(failed, [number], "{fault:?}: {results:#?}");
    let result = &results[number as usize - 1];
    let reason = result.reason.as_deref().unwrap_or_default();
    assert!(reason.contains(found), "{fault:?}: {reason}");
    assert!(result.remedy.as_deref().is_some_and(|remedy| !remedy.is_empty()), "{fault:?}");
}

macro_rules! faults {
    ($($name:ident: $number:literal, $fault:expr, $found:literal;)*) => {
        $(#[test] fn $name() { fails($number, $fault, $found); })*

        #[test]
        fn there_is_a_fault_for_every_step() {
            assert_eq!([$($number),*], STEPS.map(|step| step.number));
        }
    };
}

faults! {
    step_01_no_permission: 1, Fault::NoPermission, "EACCES";
    step_02_no_coherence: 2, Fault::NotCoherent, "I/O coherence";
    step_03_half_a_tpc: 3, Fault::Sms(15), "15 SMs";
    step_04_memory_with_a_past: 4, Fault::NotZeroed, "not zeroed: word 0";
    step_05_another_address: 5, Fault::Elsewhere, "asked for 0xfe00000000, got 0xfe00001000";
    step_06_other_registers: 6, Fault::RegisterClass, "the first word is 0xc361";
    step_07_no_ring: 7, Fault::Refused("NVGPU_IOCTL_CHANNEL_SETUP_BIND", Errno::ENOMEM), "SETUP_BIND";
    step_08_no_preemption: 8, Fault::Refused("NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE", Errno::EINVAL), "EINVAL";
    step_09_another_clock: 9, Fault::TimeAhead(5_000_000_000), "5.0 s apart";
    step_10_windows: 10, Fault::Defect(Defects::WINDOWS), "sked exception";
    step_11_copies: 11, Fault::Defect(Defects::COPIES), "4 KiB: byte 0xfff is 0x00";
    step_12_stores: 12, Fault::Defect(Defects::GLOBAL_STORES), "the host signals the end: thread 0 stored";
    step_13_local_stores: 13, Fault::Defect(Defects::LOCAL_STORES), "found their stack changed";
    step_14_no_flush: 14, Fault::Refused("NVGPU_GPU_IOCTL_FLUSH_L2", Errno::EINVAL), "with HCQ_GPU_CACHE=on";
    step_15_atomics: 15, Fault::Defect(Defects::ATOMICS), "increments that return the old value";
    step_16_dependents: 16, Fault::Defect(Defects::DEPENDENTS), "a chain of 300 launches";
    step_17_sleep: 17, Fault::Asleep, "without a device";
    step_18_two_channels: 18, Fault::ChannelsAtOnce(2), "cannot be opened while a kernel runs";
    step_19_no_records: 19, Fault::Refused("NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE", Errno::EINVAL), "not a misaligned address";
    step_20_functions: 20, Fault::Defect(Defects::FUNCTIONS), "engine operations: token";
    step_21_lost_channels: 21, Fault::ChannelsEver(20), "the other client: number 20";
}

#[test]
fn without_a_fault_all_steps_pass() {
    for result in all(Fault::None) {
        assert_eq!(result.status, Status::Passed, "{result:#?}");
    }
}

fn nvdiag(args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    let output = command.arg("bringup").args(args).env_remove("HCQ_DEVICE").output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn the_program_leaves_a_file_that_it_reads_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.tar.gz");
    let path = path.to_str().expect("UTF-8");
    let (code, out, err) = nvdiag(&["--device", "sim", "--soak", "1", "--host", "a machine", "-o", path]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("21 passed, 0 failed, 0 skipped"), "{out}");
    let listed = out.split_once("the file holds, and nothing else:").expect("a list").1;
    for entry in ["bringup.json", "gpu.json", "machine.json", "kernel-log.txt", "written: "] {
        assert!(listed.contains(entry), "{entry}: {listed}");
    }
    let bytes = std::fs::read(path).expect("the file");
    let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&bytes[..]));
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut entry, &mut text).expect("UTF-8");
        assert!(!text.contains("per_device_identifier"), "a serial number in {text}");
    }
    let (code, shown, err) = nvdiag(&["--read", path]);
    assert_eq!((code, err.as_str()), (0, ""), "{shown}");
    assert!(shown.contains("machine a machine") && shown.contains("21 passed"), "{shown}");
    assert!(shown.contains("launch and wait") && shown.contains("embedded model, tg4"), "{shown}");
    let (code, json, _) = nvdiag(&["--read", path, "--json"]);
    let document: serde_json::Value = serde_json::from_str(&json).expect("one JSON document");
    assert_eq!((code, &document["schema"]), (0, &"nvdiag.bringup/1".into()));
    assert_eq!(document["steps"].as_array().map(Vec::len), Some(21));
}

#[test]
fn one_step_alone_and_a_failed_one() {
    let (code, out, _) = nvdiag(&["--device", "sim", "--only", "12"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("HCQ_CONSERVATIVE=1: passes too") && !out.contains("written"), "{out}");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    // No ga10b: its SMs are another version.
    command.args(["bringup", "--device", "sim", "--only", "2", "--json"]).env("NVGPU_SIM_ARCH", "sm_89");
    let output = command.output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON document");
    assert_eq!(document["steps"][0]["status"], "failed");
    assert_eq!(document["steps"][0]["reason"], "SM version 0x809, not 0x807");
}

#[test]
fn bad_usage_and_bad_files_are_named() {
    assert_eq!(nvdiag(&["--only", "22"]).0, 2);
    assert_eq!(nvdiag(&["--from", "0"]).0, 2);
    assert_eq!(nvdiag(&["--read", "no-such-file"]).0, 2);
    let (code, out, err) = nvdiag(&["--read", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("it is no tar.gz file"), "{err}");
    let (code, out, _) = nvdiag(&["--list"]);
    assert_eq!(code, 0);
    assert!(out.contains("21  beside other work: a long run beside other users of the GPU"), "{out}");
}

#[test]
fn a_report_has_its_file_before_the_steps_and_replaces_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let missing = folder.path().join("no/such/report.tar.gz");
    let (code, out, err) = nvdiag(&["--device", "sim", "-o", missing.to_str().expect("UTF-8")]);
    assert_eq!((code, out.as_str()), (2, ""), "no step has run");
    assert!(err.contains("no/such/report.tar.gz"), "{err}");
    for _ in 0..2 {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
        command
            .current_dir(folder.path())
            .args(["bringup", "--device", "sim", "--from", "21", "--soak", "1"]);
        assert!(command.args(["--host", "h"]).output().expect("it starts").status.success());
    }
    let mut names: Vec<_> =
        folder.path().read_dir().expect("readable").map(|e| e.expect("an entry").file_name()).collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    assert!(names[0].to_string_lossy().ends_with("-2.tar.gz"), "{names:?}");
}
