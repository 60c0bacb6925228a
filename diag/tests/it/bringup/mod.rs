//! The steps of a bring-up: all pass on the software ga10b, and for each there is a fault that makes that one
//! fail and no other.

mod llm_demo;
mod what_if;

use std::ffi::{CStr, c_void};
use std::mem::offset_of;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use assert_cmd::Command;
use ga10b_sim::{Defects, Sim, SimConfig};
use hcq::DeviceOptions;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvdiag::bringup::llm_demo::LlmDemo;
use nvdiag::bringup::outcome::{Fact, Status, StepResult};
use nvdiag::bringup::plan::{STEPS, Step, find};
use nvdiag::bringup::rig::Rig;
use nvdiag::bringup::settings::{Bases, Stage};
use nvdiag::bringup::steps::{pointless, run, try_settings};
use nvdiag::doctor::{Machine, Node, Unread};
use nvgpu_sys::{Layer, NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE, Request, Sys, nvgpu_gpu_characteristics};

use crate::installed;

/// Defect of the driver, or of the GPU.
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
    /// The chip is another one.
    Chip(&'static str),
    /// The register page cannot be mapped.
    NoRegisters,
    /// The host engine looks for new entries in another page than USERD.
    OtherUserd,
    /// The driver's time is ahead by so many ns.
    TimeAhead(u64),
    /// A GPU that was idle does not wake up.
    Asleep,
    /// No more than so many channels at once.
    ChannelsAtOnce(u32),
    /// No more than so many channels ever: those that are closed do not come back.
    ChannelsEver(u32),
    /// Result of `llm-demo`: the script of that name.
    Model(&'static str),
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

    /// Changes the driver's answers.
    fn spoil(&self, name: &str, arg: &mut [u8]) {
        let word = |arg: &[u8], at: usize| u64::from_ne_bytes(arg[at..at + 8].try_into().expect("8 bytes"));
        match (self.fault, name) {
            (Fault::NotCoherent, "NVGPU_GPU_IOCTL_GET_CHARACTERISTICS") => {
                let at = word(arg, 8) as usize + offset_of!(nvgpu_gpu_characteristics, flags);
                let flags = std::ptr::with_exposed_provenance_mut::<u64>(at);
                // SAFETY: the caller's buffer is as long as the struct, which the driver has just written.
                unsafe { *flags &= !NVGPU_GPU_FLAGS_SUPPORT_IO_COHERENCE };
            }
            (Fault::Chip(name), "NVGPU_GPU_IOCTL_GET_CHARACTERISTICS") => {
                let at = word(arg, 8) as usize + offset_of!(nvgpu_gpu_characteristics, chipname);
                let chip = std::ptr::with_exposed_provenance_mut::<[u8; 8]>(at);
                let mut text = [0; 8];
                text[..name.len()].copy_from_slice(name.as_bytes());
                // SAFETY: as above.
                unsafe { *chip = text };
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
        let idle = self.seen().last_close.is_some_and(|at| at.elapsed() > Duration::from_millis(600));
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
        if self.fault == Fault::OtherUserd && name == "NVGPU_IOCTL_CHANNEL_SETUP_BIND" {
            let [ring, userd] = [
                offset_of!(nvgpu_sys::nvgpu_channel_setup_bind_args, gpfifo_dmabuf_fd),
                offset_of!(nvgpu_sys::nvgpu_channel_setup_bind_args, userd_dmabuf_fd),
            ];
            arg.copy_within(ring..ring + 4, userd);
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
        let registers = self.is(fd, "ctrl");
        if registers && self.fault == Fault::NoRegisters {
            return Err(Errno::EPERM);
        }
        // SAFETY: passed on from the caller.
        let at = unsafe { self.sim.mmap(len, prot, flags, fd, offset) }?;
        if !registers && self.fault == Fault::NotZeroed {
            // SAFETY: the mapping is at least a page of writable memory.
            unsafe { at.cast::<u32>().write_volatile(1) };
        }
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

/// A machine without facts: the software ga10b needs none.
struct Silent;

impl Machine for Silent {
    fn text(&self, _: &str) -> Result<String, Unread> {
        Err(Unread::Absent)
    }

    fn list(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn node(&self, _: &str) -> Option<Node> {
        None
    }

    fn faults(&self) -> Result<u64, Unread> {
        Err(Unread::Absent)
    }
}

/// Runs a step as the program does, on a machine of its own with a fault.
fn one(step: &Step, fault: Fault) -> StepResult {
    let sys = Faulty::new(fault);
    let sim = sys.sim.clone();
    let mut rig = Rig::through(sys, &Silent, Box::new(move || sim.readable_kernel_log()));
    let script = if let Fault::Model(name) = fault { name } else { "good" };
    (rig.soak, rig.llm_demo) = (Duration::from_millis(200), Some(LlmDemo::new(installed::script(script))));
    run(step, &rig)
}

/// Runs all steps, each on a machine with the same fault.
fn all(fault: Fault) -> Vec<StepResult> {
    let mut done = Vec::new();
    for step in &STEPS {
        let result = pointless(step, &done);
        done.push(result.unwrap_or_else(|| one(step, fault)));
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
    step_02_another_chip: 2, Fault::Chip("gv11b"), "the chip is gv11b, a Jetson Xavier";
    step_03_no_count: 3, Fault::Refused("NVGPU_GPU_IOCTL_NUM_VSMS", Errno::EINVAL), "NUM_VSMS";
    step_04_memory_with_a_past: 4, Fault::NotZeroed, "not zeroed: word 0";
    step_05_another_address: 5, Fault::Elsewhere, "asked for 0xfe00000000, got 0xfe00001000";
    step_06_no_registers: 6, Fault::NoRegisters, "the register page cannot be mapped";
    step_07_no_ring: 7, Fault::Refused("NVGPU_IOCTL_CHANNEL_SETUP_BIND", Errno::ENOMEM), "SETUP_BIND";
    step_08_no_objects: 8, Fault::Refused("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX", Errno::EINVAL), "the compute object";
    step_09_other_userd: 9, Fault::OtherUserd, "the semaphore was not written within 3s";
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
    step_20_past_the_bounds: 20, Fault::Model("past-bounds"), "engine batch: llm-demo verify found a difference";
    step_21_lost_channels: 21, Fault::ChannelsEver(20), "the other client: number 21";
}

#[test]
fn without_a_fault_all_steps_pass() {
    for result in all(Fault::None) {
        assert_eq!(result.status, Status::Passed, "{result:#?}");
    }
}

#[test]
fn links_between_launches_that_do_nothing_are_named_though_no_profile_leaves_them_out() {
    let sim = Sim::new(SimConfig { defects: Defects::DEPENDENTS, ..SimConfig::default() });
    let rig = Rig::software(sim, &Silent);
    let settings = Bases::of(&DeviceOptions::default()).default;
    let failure = try_settings(&rig, settings, false).failure.expect("the chain does not end");
    assert_eq!(failure.stage, Stage::Chain, "{failure:?}");
    assert_eq!(try_settings(&rig, settings, true).failure, None);
}

/// The fact of that name.
fn fact<'a>(result: &'a StepResult, name: &str) -> &'a Fact {
    let found = result.notes.facts.iter().find(|fact| fact.name == name);
    found.unwrap_or_else(|| panic!("no fact {name}: {result:#?}"))
}

/// Returns the facts of a step that were not as expected.
fn differing(result: &StepResult) -> Vec<&str> {
    result.notes.facts.iter().filter(|fact| fact.differs()).map(|fact| fact.name.as_str()).collect()
}

fn step(number: u32) -> &'static Step {
    find(number).expect("a step")
}

const CILP: &str = "preemption between instructions (CILP)";

#[test]
fn what_differs_and_does_no_harm_is_a_fact() {
    for (number, fault, name, value) in [
        (2, Fault::NotCoherent, "I/O coherence", "no (flags"),
        (2, Fault::Chip("ga10x"), "chip", "ga10x"),
        (3, Fault::Sms(15), "SMs", "15: "),
        (
            8,
            Fault::Refused("NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE", Errno::EINVAL),
            CILP,
            "offered and refused",
        ),
        (9, Fault::TimeAhead(5_000_000_000), "time of the release", "50"),
    ] {
        let result = one(step(number), fault);
        assert_eq!(result.status, Status::Passed, "{fault:?}: {result:#?}");
        assert_eq!(differing(&result), [name], "{fault:?}");
        assert!(fact(&result, name).value.starts_with(value), "{fault:?}: {result:#?}");
    }
}

#[test]
fn what_to_try_is_about_what_the_driver_answered() {
    const OTHER_RELEASE: &str = "nvgpu or nvmap of another release";
    const BUSY: &str = "another program runs a kernel that cannot be preempted";
    let objects = "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX";
    for (number, request, errno, remedy) in [
        (2, "NVGPU_GPU_IOCTL_GET_CHARACTERISTICS", Errno::ENOTTY, OTHER_RELEASE),
        (4, "NVMAP_IOC_ALLOC", Errno::ENOTTY, OTHER_RELEASE),
        (6, "NVGPU_GPU_IOCTL_OPEN_TSG", Errno::ENOTTY, OTHER_RELEASE),
        (8, objects, Errno::ENOTTY, OTHER_RELEASE),
        (8, objects, Errno::EBUSY, BUSY),
        (8, objects, Errno::EINVAL, step(8).remedy),
        (12, "NVGPU_GPU_IOCTL_OPEN_TSG", Errno::ENOTTY, OTHER_RELEASE),
        (19, objects, Errno::ENOTTY, OTHER_RELEASE),
        (19, objects, Errno::EINVAL, step(19).remedy),
    ] {
        let result = one(step(number), Fault::Refused(request, errno));
        let found = result.remedy.as_deref().unwrap_or_default();
        assert!(found.starts_with(remedy), "{number}, {errno}: {result:#?}");
        assert_eq!(found.contains("EBUSY") || found.contains(BUSY), errno == Errno::EBUSY, "{found}");
    }
}

fn nvdiag(args: &[&str]) -> (i32, String, String) {
    nvdiag_at(&installed::nvdiag(Some("good")), args)
}

/// The same, installed somewhere, and with nothing else in `PATH`.
fn nvdiag_at(program: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(program);
    command.env("PATH", "/usr/bin:/bin");
    let output = command.arg("bringup").args(args).env_remove("HCQ_DEVICE").output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code().expect("no signal"), text(output.stdout), text(output.stderr))
}

#[test]
fn the_program_leaves_a_file_that_it_reads_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.tar.gz");
    let path = path.to_str().expect("UTF-8");
    let profile = folder.path().join("profile.txt");
    let profile = profile.to_str().expect("UTF-8");
    let all = ["--device", "sim", "--soak", "1", "--host", "a machine", "-o", path, "--profile", profile];
    let (code, out, err) = nvdiag(&all);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    assert!(out.contains("21 passed, 0 failed, 0 skipped\n"), "{out}");
    assert!(
        out.contains("10 of 10 work") && out.contains("to use: the defaults, but preemption = cilp"),
        "{out}"
    );
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
    assert_eq!((code, &document["schema"]), (0, &"nvdiag.bringup/2".into()));
    assert_eq!(document["settings"]["cells"].as_array().map(Vec::len), Some(10));
    assert_eq!(document["settings"]["chosen"]["preemption"], "cilp");
    assert_eq!(document["steps"].as_array().map(Vec::len), Some(21));
}

#[test]
fn one_step_alone_and_a_failed_one() {
    let (code, out, _) = nvdiag(&["--device", "sim", "--only", "12"]);
    assert_eq!(code, 0, "{out}");
    assert!(out.contains("HCQ_CONSERVATIVE=1: passes too") && !out.contains("written"), "{out}");
    let run = |variable: &str, value: &str, args: &[&str]| {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
        let output = command.args(["bringup", "--device", "sim"]).args(args).env(variable, value).output();
        let output = output.expect("it starts");
        (output.status.code(), String::from_utf8(output.stdout).expect("UTF-8"))
    };
    let (code, out) = run("NVGPU_SIM_WHATIF", "only-power", &["--only", "1", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!((code, &document["steps"][0]["status"]), (Some(1), &"failed".into()));
    // SMs of another version, which the kernels are there for too: a fact, with a mark and its source.
    let (code, out) = run("NVGPU_SIM_ARCH", "sm_89", &["--only", "2"]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("    ! SM version: 0x809\n        expected: 0x807 (an AGX Orin: "), "{out}");
    assert!(out.ends_with("1 passed, 0 failed, 0 skipped; 1 fact is not as expected (!)\n"), "{out}");
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
        let mut command = Command::new(installed::nvdiag(Some("good")));
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
