//! `nvdiag core`: dumps that programs on the software GPU leave, and dumps of other makers.

use std::path::{Path, PathBuf};
use std::process::Command;

use core_dump::{Block, Call, Context, CoreDump, Device, Exception, Generator, Grid, Lane, Module, Sm, Warp};
use hcq::{Args, LaunchConfig, Selector};
use serde_json::Value;

/// `ptxas -O3 -lineinfo` of `lanes.ptx`: threads from 4 on fail at +0x210. R11 is the thread, R6 three times that
/// and 7, R7 the same with bits flipped, R2 and R3 the address; P0 holds in the threads that store.
const LANES: &[u8] = include_bytes!("../data/lanes.sm_87.cubin");

fn nvdiag(arguments: &[&str], file: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    let output = command.arg("core").arg(file).args(arguments).output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn json(arguments: &[&str], file: &Path) -> Value {
    let (code, out, err) = nvdiag(&[&["--json"], arguments].concat(), file);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    serde_json::from_str(&out).expect("one JSON document")
}

/// The program of [`lanes_leave_a_core`]: its last line is the error.
#[test]
#[ignore = "it is run by another test"]
fn program_whose_lanes_fail() {
    let device = hcq::Device::open(Selector::Sim).expect("a device");
    let kernel = device.load(LANES).expect("a program").kernel("lanes").expect("the kernel");
    let buffer = device.alloc(4096).expect("memory");
    let mut queue = device.queue().expect("a queue");
    // SAFETY: none: the launch is wrong on purpose, and touches the buffer of this process alone.
    unsafe { queue.launch(&kernel, LaunchConfig::new(3, 40), &Args::new().buffer_at(&buffer, 4)) }
        .expect("launched");
    let error =
        queue.submit().expect("submitted").wait(std::time::Duration::from_secs(60)).expect_err("a fault");
    println!("VA {:#x}\nFAULT {error}", buffer.va().raw() + 4);
}

/// Runs that program and returns its error, and the address that it passed to the kernel.
fn fault_of_lanes(folder: &Path) -> (String, u64) {
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "gpu_core::program_whose_lanes_fail", "--ignored", "--nocapture"])
        .env("HCQ_CORE", folder)
        .output()
        .expect("the test starts");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let line =
        |start: &str| text.lines().find_map(|line| line.strip_prefix(start)).expect("the line").to_owned();
    let va = u64::from_str_radix(&line("VA 0x"), 16).expect("an address");
    (line("FAULT "), va)
}

#[test]
fn a_core_that_cannot_be_written_is_told_in_the_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let (error, _) = fault_of_lanes(&folder.path().join("none"));
    assert!(error.contains("; no GPU core dump (HCQ_CORE): cannot write to"), "{error}");
    assert!(error.contains("No such file"), "{error}");
}

#[test]
fn lanes_leave_a_core() {
    let folder = tempfile::tempdir().expect("a folder");
    let (error, va) = fault_of_lanes(folder.path());
    let file = error.split_once("; GPU core dump in ").expect("the error names the file").1;
    let file = PathBuf::from(file);
    let document = json(&[], &file);
    assert_eq!(document["schema"], "nvdiag.core/1");
    let device = &document["devices"][0];
    assert_eq!((device["name"].as_str(), device["sm_type"].as_str()), (Some("ga10b"), Some("sm_87")));
    let grid = &device["grids"][0];
    assert_eq!((&grid["grid"], &grid["block"]), (&[3, 1, 1].into(), &[40, 1, 1].into()));
    assert_eq!(grid["kernel"]["function"], "lanes");
    let [sm] = device["sms"].as_array().expect("a list").as_slice() else { panic!("{device}") };
    assert_eq!(sm["exception"]["name"], "warp misaligned address");
    let [warp, other] = sm["warps"].as_array().expect("a list").as_slice() else { panic!("{sm}") };
    let (warp, other) = if warp["failed"] == true { (warp, other) } else { (other, warp) };
    assert_eq!((&warp["failed"], &other["failed"]), (&true.into(), &false.into()));
    assert_eq!((&warp["at"]["function"], &warp["at"]["offset"]), (&"lanes".into(), &"0x210".into()));
    assert_eq!(warp["at"]["source"][0]["file"], "kernels/lanes.cu");
    assert_eq!(warp["at"]["source"][0]["line"], 8);
    let instruction = warp["at"]["instruction"].as_str().expect("an instruction");
    assert!(instruction.contains("STG.E.64") && instruction.contains("R2"), "{instruction}");
    let base = if warp["warp"] == 0 { 0 } else { 32 };
    let lanes = warp["lanes"].as_array().expect("a list");
    assert_eq!(lanes.len(), if base == 0 { 32 } else { 8 });
    for (lane, view) in (0_u64..).zip(lanes) {
        let thread = base + lane;
        let register = |n: usize| {
            let text = view["registers"][n].as_str().expect("a register");
            u64::from_str_radix(&text[2..], 16).expect("a number")
        };
        let sum = 3 * thread + 7;
        assert_eq!((&view["lane"], &view["thread"]), (&lane.into(), &[thread, 0, 0].into()));
        assert_eq!((register(11), register(6), register(7)), (thread, sum, sum ^ 0x5a5a_0000));
        assert_eq!(register(2) | register(3) << 32, va + 8 * thread);
        assert_eq!((&view["predicates"][0], view["exception"].is_object()), (&(thread >= 4).into(), true));
    }
    assert!(other["lanes"].is_null(), "a summary");
    assert!(json(&["-v"], &file)["devices"][0]["sms"][0]["warps"][1]["lanes"].is_array());
    let (code, text, err) = nvdiag(&[], &file);
    assert_eq!((code, err.as_str()), (Some(1), ""));
    for words in ["warp misaligned address", "lanes+0x210", "kernels/lanes.cu:8", "R11", "other warps"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let dump = CoreDump::read(std::fs::read(&file).expect("the file").as_slice()).expect("a dump");
    let sm = dump.devices[0].sms.iter().find(|sm| !sm.blocks.is_empty()).expect("an SM");
    // cuda-gdb reads PT behind the predicates.
    let device = &dump.devices[0];
    assert_eq!((device.registers_per_lane, device.predicates_per_lane), (256, 8));
    let lane = &sm.blocks[0].warps[0].lanes[0];
    assert_eq!((lane.predicates.len(), lane.predicates.last()), (8, Some(&true)));
    assert_eq!(dump.devices[0].sms.len() as u32, dump.devices[0].sm_count, "debuggers ask for each");
    let cell =
        |n: usize| u32::from_le_bytes(sm.blocks[0].shared[4 * n..4 * n + 4].try_into().expect("4 bytes"));
    let first = if base == 0 { 0 } else { 32 };
    assert_eq!((cell(first), cell(first + 5)), (3 * first as u32 + 7, 3 * (first as u32 + 5) + 7));
    let module = &dump.devices[0].contexts[0].modules[0];
    assert_eq!(module.original.as_deref(), Some(LANES));
}

/// Each kind of fault leaves a file, and the kinds that an SM notices name their kernel.
#[test]
fn provoked_faults_leave_cores() {
    for (kind, exception) in [
        ("misaligned", "warp misaligned address"),
        ("oob", "warp illegal address"),
        ("illegal-instruction", "warp illegal instruction"),
        ("window", "warp invalid address space"),
        ("stack", "warp out-of-range address"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
        let command = command.args(["provoke", kind, "--device", "sim"]).env("HCQ_CORE", folder.path());
        assert!(command.output().expect("the binary starts").status.success(), "{kind}");
        let files: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").flatten().collect();
        let [file] = files.as_slice() else { panic!("{kind}: {files:?}") };
        let document = json(&[], &file.path());
        let sms = document["devices"][0]["sms"].as_array().expect("a list");
        let warp =
            sms.iter().flat_map(|sm| sm["warps"].as_array().expect("a list")).find(|w| w["failed"] == true);
        let warp = warp.unwrap_or_else(|| panic!("{kind}: {document}"));
        assert_eq!(warp["exception"]["name"], exception, "{kind}");
        assert!(warp["at"]["function"].is_string(), "{kind}");
    }
}

/// A device as a driver of CUDA describes it: registers of one lane, and return addresses.
fn other_makers() -> CoreDump {
    let call = |level, return_pc| Call { level, return_pc, offset: 0 };
    let lane = Lane {
        lane: 3,
        thread: [3, 1, 0],
        exception: Exception::WARP_ILLEGAL_ADDRESS,
        pc: 0x7000,
        registers: vec![1, 0xff],
        calls: vec![call(0, 0x9000), call(1, 0xa000)],
        ..Lane::default()
    };
    let failed =
        Warp { id: 5, valid: 8, active: 8, error_pc: Some(0x7000), lanes: vec![lane], ..Warp::default() };
    let trapped = Warp { id: 6, valid: 1, is_broken: true, ..Warp::default() };
    let block = Block { grid: 2, index: [1, 2, 3], warps: vec![failed, trapped], ..Block::default() };
    let sm = Sm { id: 9, blocks: vec![block], ..Sm::default() };
    let grid = Grid { id: 2, entry: 0x6000, grid: [4, 4, 4], block: [32, 2, 1], ..Grid::default() };
    let device = Device {
        name: "NVIDIA GPU".into(),
        sm_type: "sm_90".into(),
        sm_count: 132,
        contexts: vec![Context {
            modules: vec![Module { relocated: Some(b"damaged".to_vec()), ..Module::default() }],
            ..Context::default()
        }],
        grids: vec![grid],
        sms: vec![sm],
        ..Device::default()
    };
    let generator = Generator { name: "CUDA".into(), driver: [575, 51], cuda: [12, 9], time: 1_700_000_000 };
    CoreDump { generator: Some(generator), devices: vec![device], memory: Vec::new() }
}

fn saved(dump: &CoreDump) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), dump.to_bytes().expect("written")).expect("written");
    file
}

#[test]
fn a_dump_without_a_readable_cubin_is_told_by_addresses() {
    let file = saved(&other_makers());
    let (code, text, err) = nvdiag(&[], file.path());
    assert_eq!((code, err.as_str()), (Some(1), ""));
    for line in [
        "GPU core dump by CUDA, driver 575.51, CUDA 12.9, 2023-11-14T22:13:20Z",
        "device 0: NVIDIA GPU, sm_90, 132 SMs",
        "grid 2: 0x6000, 4 x 4 x 4 blocks of 32 x 2 x 1 threads, 0 registers",
        "SM 9 warp 5, block (1, 2, 3) of grid 2: warp illegal address",
        "  at           0x7000 (pc 0x7000)",
        "  called by    #1 0x9000",
        "  called by    #2 0xa000",
        "  lanes        failed 0x00000008, active 0x00000008, valid 0x00000008",
        "  threads      (3, 1, 0) in lane 3",
        "  R1    0x000000ff",
        "SM 9 warp 6, block (1, 2, 3) of grid 2: a breakpoint or a trap",
    ] {
        assert!(text.lines().any(|l| l == line), "{line:?} is missing: {text}");
    }
}

/// What silicon gives: an exception of an SM, no warps.
#[test]
fn an_sm_without_warps_is_told_by_its_pc() {
    let mut dump = other_makers();
    dump.devices[0].sms[0] = Sm {
        id: 9,
        exception: Exception::WARP_MISALIGNED_ADDRESS,
        error_pc: Some(0x7010),
        blocks: Vec::new(),
    };
    let (code, text, _) = nvdiag(&[], saved(&dump).path());
    assert_eq!(code, Some(1));
    assert!(
        text.contains("SM 9: warp misaligned address (CUDA_EXCEPTION_6)\n  at           0x7010"),
        "{text}"
    );
    assert!(text.contains("block, thread and registers are not known"), "{text}");
    dump.devices[0].sms.clear();
    let (code, text, _) = nvdiag(&[], saved(&dump).path());
    assert_eq!(code, Some(0));
    assert!(text.ends_with("no SM, warp or lane of this file has an exception\n"), "{text}");
}

#[test]
fn other_files_are_errors_with_a_reason() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let cut = tempfile::NamedTempFile::new().expect("a file");
    let bytes = other_makers().to_bytes().expect("written");
    std::fs::write(cut.path(), &bytes[..bytes.len() - 10]).expect("written");
    for (file, words) in [
        (data.join("lanes.sm_87.cubin"), "not a GPU core dump: a cubin: `nvdiag disasm` reads it"),
        (data.join("lanes.ptx"), "not a GPU core dump: no ELF object"),
        (cut.path().to_owned(), "the file is truncated: the section table ends at byte"),
        (PathBuf::from("/dev/zero"), "it is a device, and no regular file"),
        (PathBuf::from("/nonexistent"), "cannot read /nonexistent"),
    ] {
        let (code, out, err) = nvdiag(&[], &file);
        assert_eq!((code, out.as_str()), (Some(2), ""));
        assert!(err.contains(words), "{err}");
    }
}
