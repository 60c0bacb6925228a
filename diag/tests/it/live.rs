//! `esr --pid` and `vamap --pid` on a process of its own whose GPU is the software ga10b, through hcq and
//! through `libnvgpu_sim.so`.
//!
//! Where descriptors of other processes cannot be copied (an emulator, a strict kernel) the tests say so and
//! pass.

#![allow(unsafe_code, reason = "launching is unsafe")]

use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use hcq::{Args, Device, Error, LaunchConfig, Selector};
use nvdiag::provoke::{IMAGES, Kind};
use serde_json::Value;

/// Names the device that [`the_other_process`] opens; without it that test does nothing.
const CHILD: &str = "NVDIAG_TEST_DEVICE";
/// Names a second device that it opens.
const SECOND: &str = "NVDIAG_TEST_SECOND_DEVICE";
/// Bytes of the buffer that the other process has, and of the one on its second device.
const LARGE: u64 = 9 << 20;
const OTHER: u64 = 3 << 20;

/// Process that the tests below inspect: a device whose kernel has faulted, kept until stdin ends.
#[test]
fn the_other_process() {
    let Ok(device) = std::env::var(CHILD) else { return };
    let selector: Selector = device.parse().expect("a device");
    let device = Device::open(selector).expect("a device");
    let second = std::env::var(SECOND).is_ok().then(|| Device::open(selector).expect("a second device"));
    let of_second = second.as_ref().map(|second| {
        let buffer = second.alloc(OTHER).expect("memory");
        (buffer, second.load(IMAGES).expect("a program"), second.queue().expect("a queue"))
    });
    let buffer = device.alloc(LARGE).expect("memory");
    let program = device.load(IMAGES).expect("a program");
    let kernel = program.kernel(Kind::Misaligned.kernel()).expect("a kernel");
    let mut queue = device.queue().expect("a queue");
    let out = device.alloc(4096).expect("memory");
    let args = Args::new().u64(buffer.va().raw() + 4).buffer(&out);
    // SAFETY: the kernel loads from `buffer`, or rather does not, since that is misaligned.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args) }.expect("launched");
    let end = queue.submit().expect("submitted").wait(Duration::from_secs(20));
    assert!(matches!(end, Err(Error::Fault(_))), "{end:?}");
    println!("\nready {:#x}", buffer.va().raw());
    let _ = std::io::stdin().read(&mut [0]);
    drop(of_second);
}

/// A running process.
struct Other {
    child: Child,
    /// Address of its buffer.
    buffer: u64,
}

impl Other {
    /// Starts it; `None` where programs of this build cannot be started.
    fn start(device: &str, variables: &[(&str, &Path)]) -> Option<Self> {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["live::the_other_process", "--exact", "--nocapture"]).env(CHILD, device);
        command.envs(variables.iter().copied());
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn();
        let Ok(mut child) = child else {
            ga10b_oracles::skipped("programs of this build cannot be started here");
            return None;
        };
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let ready = lines.map_while(Result::ok).find_map(|line| {
            let address = line.strip_prefix("ready 0x")?.to_owned();
            u64::from_str_radix(&address, 16).ok()
        });
        Some(Self { buffer: ready.expect("it said that it is ready"), child })
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // A test that failed may have left it stopped.
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGCONT);
        let _ = self.child.wait();
    }
}

fn nvdiag(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(arguments).env_remove("HCQ_MAP_DIR").output().expect("the binary starts")
}

/// Its document; `None` where descriptors cannot be copied.
fn document(run: &Output, code: i32) -> Option<Value> {
    let error = String::from_utf8_lossy(&run.stderr);
    if error.contains("this kernel cannot") || error.contains("right to trace") {
        ga10b_oracles::skipped(error);
        return None;
    }
    assert_eq!(run.status.code(), Some(code), "{error}");
    Some(serde_json::from_slice(&run.stdout).expect("one JSON document"))
}

/// Inspects the other process in both ways.
fn look_at(other: &Other, has_map: bool) {
    let Some(faults) = document(&nvdiag(&["esr", "--json", "--pid", &other.pid()]), 1) else { return };
    assert_eq!(faults["found"], 1, "{faults}");
    let fault = &faults["faults"][0];
    assert_eq!(fault["what"]["name"], "MISALIGNED_ADDR");
    assert!(faults["source"].as_str().is_some_and(|s| s.ends_with("on the software ga10b")), "{faults}");
    if has_map {
        let code = &fault["code"][0];
        assert_eq!(code["function"], Kind::Misaligned.kernel());
        let listing = code["listing"].as_array().expect("a listing");
        let here = listing.iter().find(|line| line["here"] == true).expect("the instruction");
        assert!(here["text"].as_str().is_some_and(|text| text.starts_with("LDG.E.128")), "{here}");
    }

    // The pid is enough to read the mappings, too.
    let notes = fault["notes"].to_string();
    let from = if has_map { "the one that the process keeps" } else { "that of the process now" };
    assert!(notes.contains("the address map is") && notes.contains(from), "{notes}");

    // Twice: the first inspection leaves nothing that disturbs the second.
    for _ in 0..2 {
        let map = document(&nvdiag(&["vamap", "--json", "--pid", &other.pid()]), 0).expect("copied before");
        assert_eq!(map["process"]["pid"].to_string(), other.pid(), "{map}");
        let host = map["host"].as_array().expect("what the CPU sees");
        assert!(host.iter().any(|range| range["name"] == "[stack]"), "{map}");
        assert_eq!(map["regions"].as_array().map(Vec::len), Some(1), "{map}");
        assert!(map["untold"].as_array().is_some_and(|u| u.iter().any(|u| u == "memory kinds")), "{map}");
        let number = |value: &Value| u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok();
        let holds = |mapping: &&Value| {
            let (start, len) =
                (number(&mapping["va"]).unwrap_or(0), mapping["size_bytes"].as_u64().unwrap_or(0));
            start <= other.buffer && other.buffer + LARGE <= start + len
        };
        let mappings = map["mappings"].as_array().expect("mappings");
        let ours = mappings.iter().find(holds).unwrap_or_else(|| panic!("{:#x} in {map}", other.buffer));
        assert_eq!((&ours["page_bytes"], &ours["kind"]), (&Value::from(4096), &Value::Null), "{ours}");
    }
}

/// Two devices of a process have an address space each, with the same addresses in both.
#[test]
fn each_address_space_of_a_process_is_a_map_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    let yes = Path::new("1");
    let library = library();
    let shown = [("NVGPU_SIM_VISIBLE", yes), ("LD_PRELOAD", library.as_path())];
    let variables = [&shown[..], &[(SECOND, yes), ("HCQ_MAP_DIR", folder.path())]].concat();
    let Some(other) = Other::start("nvgpu", &variables) else { return };
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let svg = file("map.svg");
    let run = nvdiag(&["vamap", "--pid", &other.pid(), "--json", "--svg", &svg]);
    let Some(map) = document(&run, 0) else { return };
    assert_eq!(map["schema"], "nvdiag.vamap/2");
    assert_eq!(map["process"]["pid"].to_string(), other.pid(), "{map}");
    assert!(map["buffers"].is_array() && map["host"].is_array(), "{map}");
    let sizes = |map: &Value| {
        let spaces = map["spaces"].as_array().expect("address spaces").iter();
        let sizes = |space: &Value| {
            let mappings = space["mappings"].as_array().expect("mappings");
            mappings.iter().filter_map(|m| m["size_bytes"].as_u64()).collect::<Vec<_>>()
        };
        spaces.map(sizes).collect::<Vec<_>>()
    };
    // The driver joins what is mapped side by side.
    let largest = |sizes: &Vec<u64>| sizes.iter().copied().max().expect("mappings");
    let mut all: Vec<u64> = sizes(&map).iter().map(largest).collect();
    all.sort_unstable();
    assert!(all.len() == 2 && (OTHER..LARGE).contains(&all[0]) && all[1] >= LARGE, "{map}");
    for space in map["spaces"].as_array().expect("address spaces") {
        assert_eq!(
            (space["regions"].as_array().map(Vec::len), space["remarks"].as_array().map(Vec::len)),
            (Some(1), Some(0))
        );
    }
    let picture = std::fs::read_to_string(&svg).expect("a picture");
    assert!(
        picture.contains("Address space 1 of 2") && picture.contains("Address space 2 of 2"),
        "{picture}"
    );
    let text = String::from_utf8(nvdiag(&["vamap", "--pid", &other.pid()]).stdout).expect("UTF-8");
    assert_eq!((text.matches("Totals").count(), text.contains("overlaps")), (2, false), "{text}");
    // What was saved is shown, used and refused as what it is; the file of hcq has both devices, too.
    let saved = file("saved.json");
    std::fs::write(&saved, map.to_string()).expect("written");
    let own = file(&format!("{}.json", other.pid()));
    let written: Value = serde_json::from_slice(&std::fs::read(&own).expect("a map")).expect("JSON");
    assert_eq!(written["schema"], "nvdiag.map/2");
    let [first, second] = &sizes(&written)[..] else { panic!("{written}") };
    let of_test = |sizes: &[u64]| [LARGE, OTHER].map(|size| sizes.contains(&size));
    assert_eq!((of_test(first), of_test(second)), ([false, true], [true, false]), "oldest first");
    for path in [&saved, &own] {
        let shown = nvdiag(&["vamap", path]);
        let text = String::from_utf8_lossy(&shown.stdout).into_owned();
        assert_eq!((shown.status.code(), text.matches("Totals").count()), (Some(0), 2), "{text}");
        let refused = nvdiag(&["vamap", "--diff", path, path]);
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && error.contains("2 address spaces"), "{error}");
        let svg = file("fault.svg");
        let fault = nvdiag(&["esr", "--warp-esr", "f", "--map", path, "--svg", &svg]);
        assert_eq!(fault.status.code(), Some(1), "{fault:?}");
        assert!(std::fs::read_to_string(&svg).expect("a picture").contains("Address space 2 of 2"));
    }
    let fault = document(&nvdiag(&["esr", "--json", "--pid", &other.pid()]), 1).expect("copied before");
    assert_eq!(fault["faults"][0]["code"][0]["function"], Kind::Misaligned.kernel(), "{fault}");
}

/// The records of a process can be drawn and written as a page.
#[test]
fn a_process_on_the_software_ga10b_is_drawn_and_written_as_a_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let visible = Path::new("1");
    let Some(other) = Other::start("sim", &[("NVGPU_SIM_VISIBLE", visible)]) else { return };
    let file = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (svg, html) = (file("map.svg"), file("report.html"));
    let run = nvdiag(&["esr", "--pid", &other.pid(), "--svg", &svg, "--html", &html, "--json"]);
    let Some(faults) = document(&run, 1) else { return };
    assert_eq!(faults["faults"][0]["what"]["name"], "MISALIGNED_ADDR");
    let svg = std::fs::read_to_string(svg).expect("a picture");
    let picture = roxmltree::Document::parse(&svg).expect("XML");
    let words: String = picture.descendants().filter_map(|node| node.text()).collect::<Vec<_>>().join(" ");
    for part in ["MISALIGNED_ADDR", "9 MiB", "shared memory"] {
        assert!(words.contains(part), "{part} in {words}");
    }
    let html = std::fs::read_to_string(html).expect("a page");
    for part in ["MISALIGNED_ADDR", "<svg ", "channel groups of", "likely causes"] {
        assert!(html.to_lowercase().contains(&part.to_lowercase()), "{part} in {html}");
    }
    // A folder that is not there: nothing is printed as if it had been drawn.
    let nowhere = file("nowhere/map.svg");
    let run = nvdiag(&["esr", "--pid", &other.pid(), "--svg", &nowhere]);
    assert_eq!(run.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&run.stderr).contains("nowhere"), "{run:?}");
}

#[test]
fn a_process_on_the_software_ga10b_of_hcq_is_read_from_outside() {
    let maps = tempfile::tempdir().expect("a folder");
    let variables = [("NVGPU_SIM_VISIBLE", Path::new("1")), ("HCQ_MAP_DIR", maps.path())];
    let Some(other) = Other::start("sim", &variables) else { return };
    look_at(&other, true);
}

fn library() -> PathBuf {
    let mut folder = std::env::current_exe().expect("this test");
    folder.pop();
    let name = "libnvgpu_sim.so";
    let places = [folder.join(name), folder.join("..").join(name)];
    places.into_iter().find(|path| path.exists()).expect("libnvgpu_sim.so is not built")
}

#[test]
fn a_process_on_the_preloaded_device_is_read_from_outside() {
    let library = library();
    let variables = [("NVGPU_SIM_VISIBLE", Path::new("1")), ("LD_PRELOAD", library.as_path())];
    let Some(other) = Other::start("nvgpu", &variables) else { return };
    look_at(&other, false);
}

#[test]
fn a_process_that_does_not_show_its_software_device_is_told_how_to() {
    let Some(other) = Other::start("sim", &[]) else { return };
    for command in ["esr", "vamap"] {
        let run = nvdiag(&[command, "--pid", &other.pid()]);
        let error = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{error}");
        assert!(error.contains("NVGPU_SIM_VISIBLE=1") || error.contains("this kernel cannot"), "{error}");
    }
}

/// The error of `esr --pid` and of `vamap --pid`, at once; `None` where this kernel has no pidfds.
fn refusals(pid: u32) -> Option<[String; 2]> {
    let mut all = ["esr", "vamap"].map(|command| {
        let began = Instant::now();
        let run = nvdiag(&[command, "--pid", &pid.to_string()]);
        let error = String::from_utf8_lossy(&run.stderr).into_owned();
        assert_eq!(run.status.code(), Some(2), "{error}");
        assert!(began.elapsed() < Duration::from_secs(9), "{:?}: {error}", began.elapsed());
        error
    });
    match all.iter_mut().find(|error| error.contains("this kernel cannot")) {
        Some(error) => {
            ga10b_oracles::skipped(error);
            None
        }
        None => Some(all),
    }
}

/// Waits until a process is in a state of `/proc/PID/stat`.
fn wait_state(pid: u32, state: char) {
    let began = Instant::now();
    let is_there = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
        stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(state))
    };
    while !is_there() {
        assert!(began.elapsed() < Duration::from_secs(20), "it is not in state {state}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_stopped_process_is_called_so_and_not_waited_for() {
    use nix::sys::signal::{Signal, kill};
    let Some(other) = Other::start("sim", &[("NVGPU_SIM_VISIBLE", Path::new("1"))]) else { return };
    let pid = nix::unistd::Pid::from_raw(other.child.id().cast_signed());
    kill(pid, Signal::SIGSTOP).expect("it runs");
    wait_state(other.child.id(), 'T');
    let refused = refusals(other.child.id());
    kill(pid, Signal::SIGCONT).expect("it is there");
    for error in refused.into_iter().flatten() {
        assert!(
            error.contains("is stopped (state T") && error.contains(&format!("kill -CONT {pid}")),
            "{error}"
        );
    }
    // It answers as before.
    look_at(&other, false);
}

#[test]
fn a_process_without_a_software_device_is_not_told_to_set_what_it_has_set() {
    let mut command = Command::new("sleep");
    let mut child = command.arg("600").env("NVGPU_SIM_VISIBLE", "1").spawn().expect("a program");
    let refused = refusals(child.id());
    child.kill().expect("it runs");
    wait_state(child.id(), 'Z');
    let ended = refusals(child.id());
    child.wait().expect("it ended");
    for error in refused.into_iter().flatten() {
        assert!(error.contains("was started with NVGPU_SIM_VISIBLE=1"), "{error}");
        assert!(!error.contains("has to be"), "{error}");
    }
    for error in ended.into_iter().flatten() {
        assert!(error.contains("has ended: its state is Z") && !error.contains("NVGPU"), "{error}");
    }
}

#[test]
fn processes_that_are_gone_or_none_are_told_apart() {
    for command in ["esr", "vamap"] {
        // Numbers of processes end at 2^22.
        let run = nvdiag(&[command, "--pid", "4194305"]);
        let error = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{error}");
        assert!(
            error.contains("there is no process 4194305") || error.contains("this kernel cannot"),
            "{error}"
        );
        let run = nvdiag(&[command, "--pid", "0"]);
        let error = String::from_utf8_lossy(&run.stderr);
        assert_eq!(run.status.code(), Some(2), "{error}");
    }
}

#[test]
fn a_visitor_changes_nothing_and_makes_nothing() {
    use nix::errno::Errno;
    use nix::fcntl::OFlag;
    use nvgpu_sys::{Sys, call, nvgpu_alloc_as_args};
    use std::os::fd::AsFd;

    let config = ga10b_sim::SimConfig { visible: true, ..Default::default() };
    let sim = ga10b_sim::Sim::new(config);
    let remote = ga10b_sim::Remote::connect(std::process::id()).expect("visible");
    assert_eq!(remote.open(c"/dev/nvmap", OFlag::O_RDWR).err(), Some(Errno::EACCES));
    let ctrl = sim.open(c"/dev/nvgpu/igpu0/ctrl", OFlag::O_RDWR).expect("a node");
    let name = remote.descriptor_name(ctrl.as_fd()).expect("answered");
    assert_eq!(name.as_deref(), Some("/dev/nvgpu/igpu0/ctrl"));
    let gpu = nvgpu_sys::characteristics(&remote, ctrl.as_fd()).expect("told");
    assert_eq!(gpu.sm_arch_sm_version, 0x807);
    // SAFETY: the struct holds no addresses.
    let made = unsafe { call(&remote, ctrl.as_fd(), &mut nvgpu_alloc_as_args::default()) };
    assert_eq!(made.expect_err("refused").errno, Errno::EPERM);
    let file = std::fs::File::open("/dev/null").expect("a file");
    assert_eq!(remote.descriptor_name(file.as_fd()), Ok(None));
    // The machine ends while another process inspects it.
    drop(sim);
    assert!(nvgpu_sys::characteristics(&remote, ctrl.as_fd()).is_err());
}
