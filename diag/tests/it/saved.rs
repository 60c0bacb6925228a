//! `nvdiag watch`, `list` and `show`: saved faults, also while the disk is full, and of a process on the
//! software ga10b.

#![allow(unsafe_code, reason = "launching is unsafe")]

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::time::Duration;

use hcq::{Args, Device, Error, LaunchConfig, Selector};
use nvdiag::provoke::{IMAGES, Kind};
use serde_json::Value;

/// A name that no process has.
const NOBODY: &str = "no\u{fffd}body";

/// The lines of a fault at `second`, at the program counter `pc`, as nvgpu prints them.
fn fault(second: u32, pc: u64) -> String {
    let line = |part: u32, site: &str, text: &str| {
        format!("[{second:5}.{part:06}] nvgpu: 17000000.gpu {site} [ERR]  {text}\n")
    };
    [
        line(
            1,
            "gv11b_gr_intr_record_sm_error_state:1949",
            &format!("sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), hww_global_esr 4,hww_warp_esr 15, hww_warp_esr_pc {pc:#x}"),
        ),
        line(2, "nvgpu_gr_intr_handle_sm_exception:377", "sm hww global 0x00000004 warp 0x0000000f"),
        line(
            3,
            "nvgpu_set_err_notifier_locked:143",
            &format!("error notifier set to 13 for ch 505 owned by {NOBODY}"),
        ),
    ]
    .concat()
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

fn nvdiag() -> PathBuf {
    assert_cmd::cargo::cargo_bin!("nvdiag").to_owned()
}

/// A folder with a log that is watched and a folder of saved faults.
struct Watch {
    folder: tempfile::TempDir,
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Watch {
    fn log(&self) -> PathBuf {
        self.folder.path().join("kern.log")
    }

    fn faults(&self) -> PathBuf {
        self.folder.path().join("faults")
    }

    /// Starts one, by `command` with the arguments of the program after it.
    fn start(command: &mut Command, more: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let (log, faults) = (folder.path().join("kern.log"), folder.path().join("faults"));
        append(&log, &fault(100, 0x1000));
        command.args(["watch", "--json", "--log"]).arg(&log).arg("--save").arg(&faults).args(more);
        command.env_remove("HCQ_MAP_DIR").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut err = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let first = err.next().expect("a line").expect("text");
        assert!(first.starts_with("nvdiag: following "), "{first}");
        Self { folder, child, out, err }
    }

    /// The next fault that was saved.
    fn saved(&mut self) -> Value {
        let line = self.out.next().expect("a line").expect("text");
        let document: Value = serde_json::from_str(&line).expect("one JSON document per line");
        assert_eq!(document["schema"], "nvdiag.saved/1");
        document
    }

    fn complaint(&mut self) -> String {
        self.err.next().expect("a line").expect("text")
    }

    /// Ends it as systemd does, and returns its exit code.
    fn end(&mut self) -> Option<i32> {
        let sent = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
        let code = self.child.wait().expect("it ends").code();
        assert!(self.out.next().is_none(), "a fault too many");
        code
    }

    /// Returns the output of `list` or `show`.
    fn ask(&self, arguments: &[&str]) -> (i32, String) {
        let run = Command::new(nvdiag()).args(arguments).arg("--dir").arg(self.faults()).output();
        let run = run.expect("the binary starts");
        let text = String::from_utf8_lossy(&run.stdout).into_owned() + &String::from_utf8_lossy(&run.stderr);
        (run.status.code().expect("no signal"), text)
    }

    fn list(&self) -> Value {
        let (code, text) = self.ask(&["list", "--json"]);
        assert_eq!(code, 0, "{text}");
        serde_json::from_str(&text).expect("one JSON document")
    }

    fn file(&self, saved: &Value, name: &str) -> String {
        let folder = Path::new(saved["folder"].as_str().expect("a folder"));
        fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn faults_are_saved_listed_and_shown() {
    let mut watch = Watch::start(&mut Command::new(nvdiag()), &[]);
    append(&watch.log(), &("[  199.000001] usb 1-1: new device\n".to_owned() + &fault(200, 0x2000)));
    let first = watch.saved();
    assert_eq!((&first["number"], &first["count"]), (&1.into(), &1.into()), "{first}");
    assert_eq!(first["processes"][0]["comm"], NOBODY);
    assert!(first["notes"].to_string().contains("is called no\u{fffd}body any more"), "{first}");
    // Through rotation.
    fs::rename(watch.log(), watch.folder.path().join("kern.log.1")).expect("renamed");
    append(&watch.log(), &fault(300, 0x3000));
    let second = watch.saved();
    assert_eq!(second["number"], 2);
    assert_eq!(watch.end(), Some(1));

    let log = watch.file(&first, "log.txt");
    assert!(log.contains("new device") && log.contains("pc 0x2000") && !log.contains("pc 0x1000"), "{log}");
    let log = Path::new(first["folder"].as_str().expect("a folder")).join("log.txt");
    let again = Command::new(nvdiag()).args(["esr", "--log"]).arg(log).output().expect("the binary starts");
    assert_eq!(
        String::from_utf8_lossy(&again.stdout).lines().next(),
        watch.file(&first, "report.txt").lines().next()
    );

    let list = watch.list();
    assert_eq!(list["schema"], "nvdiag.saved-list/1");
    let numbers: Vec<_> =
        list["faults"].as_array().expect("faults").iter().map(|f| f["number"].clone()).collect();
    assert_eq!(numbers, [1, 2], "the newest is last");
    let (code, text) = watch.ask(&["show", "last"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("pc 0x3000") && text.contains("report.json ("), "{text}");
    let (_, text) = watch.ask(&["show", "1", "--json"]);
    let document: Value = serde_json::from_str(&text).expect("one JSON document");
    assert_eq!(document["report"]["faults"][0]["what"]["name"], "MISALIGNED_ADDR");
    let (code, text) = watch.ask(&["show", "3"]);
    assert_eq!(code, 2);
    assert!(text.contains("there is no fault 3"), "{text}");
    fs::write(watch.faults().join("000001/entry.json"), "{").expect("written");
    let (code, text) = watch.ask(&["list"]);
    assert_eq!(code, 0, "a damaged fault does not hide the others");
    assert!(text.contains("1 fault cannot be read") && text.contains("     2  "), "{text}");
}

#[test]
fn equal_faults_are_counted_and_errors_without_a_fault_are_saved_too() {
    let mut watch = Watch::start(&mut Command::new(nvdiag()), &["--keep", "2"]);
    append(&watch.log(), &fault(200, 0x2000));
    watch.saved();
    append(&watch.log(), &fault(201, 0x2000));
    append(&watch.log(), &fault(300, 0x3000));
    // Saved after the equal one was counted.
    watch.saved();
    assert_eq!(watch.list()["faults"][0]["count"], 2);
    let error = "nvgpu: 17000000.gpu nvgpu_acr_bootstrap_hs_acr:123  [ERR]  ACR bootstrap failed\n";
    append(&watch.log(), &format!("[  400.000001] {error}"));
    assert_eq!(watch.saved()["number"], 3);
    let odd = "nvgpu: 17000000.gpu ga10b_new_function:77   [ERR]  flux capacitor 0x12 of unit 3\n";
    // Beside a fault that is only counted.
    append(&watch.log(), &(fault(500, 0x3000) + &format!("[  500.000009] {odd}")));
    let saved = watch.saved();
    assert!(watch.file(&saved, "report.txt").contains("flux capacitor"), "{saved}");
    append(&watch.log(), &format!("[  501.000001] {odd}"));
    assert_eq!(watch.end(), Some(1));
    let list = watch.list();
    let found: Vec<_> = list["faults"]
        .as_array()
        .expect("faults")
        .iter()
        .map(|f| (f["number"].clone(), f["count"].clone()))
        .collect();
    assert_eq!(found, [(3.into(), 1.into()), (4.into(), 2.into())], "the newest two are kept: {list}");
}

#[test]
fn a_flood_does_not_remove_what_came_before_it() {
    let mut watch = Watch::start(&mut Command::new(nvdiag()), &[]);
    let all: String = (0..30).map(|n| fault(200 + n, 0x2000 + u64::from(n) * 16)).collect();
    append(&watch.log(), &(all + &fault(300, 0x9000)));
    for number in 1..=20 {
        assert_eq!(watch.saved()["number"], number);
    }
    let mut more = 0;
    while more < 11 {
        let line = watch.complaint();
        let count = line
            .strip_prefix("nvdiag: ")
            .and_then(|l| l.strip_suffix(" more seen and not saved: over 20 in a minute"));
        more += count.and_then(|count| count.parse::<u32>().ok()).unwrap_or_else(|| panic!("{line}"));
    }
    assert_eq!(more, 11);
    let first = watch.faults().join("000001/report.txt");
    assert!(fs::read_to_string(first).expect("a report").contains("pc 0x2000\n"), "the first ones are saved");
    assert_eq!(watch.end(), Some(1));
    assert_eq!(watch.list()["faults"].as_array().map(Vec::len), Some(20));
}

#[test]
fn a_fault_waits_for_a_folder_that_is_gone() {
    let mut watch = Watch::start(&mut Command::new(nvdiag()), &[]);
    append(&watch.log(), &fault(200, 0x2000));
    watch.saved();
    fs::remove_dir_all(watch.faults()).expect("removed");
    File::create(watch.faults()).expect("a file in its place");
    append(&watch.log(), &fault(300, 0x3000));
    let why = watch.complaint();
    assert!(why.contains("cannot save yet: an access that is not aligned"), "{why}");
    fs::remove_file(watch.faults()).expect("removed");
    append(&watch.log(), &fault(400, 0x4000));
    let pc = |watch: &Watch, saved: &Value| watch.file(saved, "report.txt").contains("pc 0x3000");
    let first = watch.saved();
    assert!(pc(&watch, &first), "the one that waited comes first: {first}");
    let second = watch.saved();
    assert!(!pc(&watch, &second) && second["number"] == 2, "{second}");
    assert_eq!(watch.end(), Some(1));
}

#[test]
fn a_disk_that_fills_up_leaves_nothing_incomplete_and_loses_nothing() {
    // Files of at most 600 bytes stand for a disk that is full after them.
    let limited = "trap '' XFSZ; exec prlimit --fsize=600:unlimited \"$@\"";
    let mut command = Command::new("sh");
    command.args(["-c", limited, "sh"]).arg(nvdiag());
    if !Command::new("prlimit").arg("--version").output().is_ok_and(|run| run.status.success()) {
        ga10b_oracles::skipped("prlimit is not installed");
        return;
    }
    let mut watch = Watch::start(&mut command, &[]);
    append(&watch.log(), &fault(200, 0x2000));
    assert!(watch.complaint().contains("cannot save yet"));
    let left: Vec<_> =
        fs::read_dir(watch.faults()).expect("a folder").flatten().map(|e| e.file_name()).collect();
    assert_eq!(left, [".lock"]);
    let pid = watch.child.id().to_string();
    let lifted = Command::new("prlimit").args(["--pid", &pid, "--fsize=unlimited"]).status();
    assert!(lifted.expect("prlimit starts").success());
    // Waiting faults are saved at the end.
    let sent = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(sent.expect("kill starts").success());
    assert_eq!(watch.saved()["number"], 1);
    assert_eq!(watch.child.wait().expect("it ends").code(), Some(1));
    assert_eq!(watch.list()["faults"].as_array().map(Vec::len), Some(1));
}

#[test]
fn what_cannot_be_saved_to_is_refused_at_the_start() {
    let watch = Watch::start(&mut Command::new(nvdiag()), &[]);
    let start = |folder: &Path| {
        let mut command = Command::new(nvdiag());
        command.args(["watch", "--log"]).arg(watch.log()).arg("--save").arg(folder);
        let run = command.stdin(Stdio::null()).output().expect("the binary starts");
        (run.status.code(), String::from_utf8_lossy(&run.stderr).into_owned())
    };
    let (code, why) = start(&watch.faults());
    assert_eq!(code, Some(2));
    assert!(why.contains("another nvdiag watch saves to"), "{why}");
    let (code, why) = start(&watch.log().join("below"));
    assert_eq!(code, Some(2));
    assert!(why.contains("cannot save faults to"), "{why}");
    let run = Command::new(nvdiag()).args(["list", "--dir", "/no/such/folder"]).output().expect("it starts");
    assert_eq!(run.status.code(), Some(2));
    assert_eq!(watch.ask(&["show", "last"]).0, 2, "an empty folder has no last one");
    let (code, text) = watch.ask(&["list"]);
    assert!(code == 0 && text.starts_with("no faults are saved in "), "{text}");
}

/// Makes the next test's other process fault; without it that test does nothing.
const CHILD: &str = "NVDIAG_TEST_FAULT";

/// Process that the test below watches: a kernel that faults, in a process that lives until stdin ends.
#[test]
fn the_other_process() {
    if std::env::var_os(CHILD).is_none() {
        return;
    }
    let device = Device::open(Selector::Sim).expect("a device");
    let program = device.load(IMAGES).expect("a program");
    let kernel = program.kernel(Kind::Misaligned.kernel()).expect("a kernel");
    let mut queue = device.queue().expect("a queue");
    let out = device.alloc(4096).expect("memory");
    let args = Args::new().u64(out.va().raw() + 4).buffer(&out);
    // SAFETY: the kernel loads from `out`, or rather does not, since that is misaligned.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args) }.expect("launched");
    let end = queue.submit().expect("submitted").wait(Duration::from_secs(20));
    assert!(matches!(end, Err(Error::Fault(_))), "{end:?}");
    let _ = std::io::stdin().read(&mut [0]);
}

/// Runs the other process until its fault is saved. Its driver's log is that of a watch: at once, or after the
/// process has ended.
fn run_on_sim(lives: bool) -> Option<(Watch, Value, u32)> {
    let maps = tempfile::tempdir().expect("a folder");
    let mut watch = Watch::start(&mut Command::new(nvdiag()), &["--maps", &maps.path().to_string_lossy()]);
    let messages = if lives { watch.log() } else { watch.folder.path().join("messages") };
    let log = OpenOptions::new().append(true).create(true).open(&messages).expect("a log");
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.args(["saved::the_other_process", "--exact", "--nocapture"]).env(CHILD, "1");
    command.envs([("NVGPU_SIM_VISIBLE", "1"), ("NVGPU_SIM_VERBOSE", "1")]).env("HCQ_MAP_DIR", maps.path());
    let stdin = if lives { Stdio::piped() } else { Stdio::null() };
    let Ok(mut child) = command.stdin(stdin).stdout(Stdio::null()).stderr(log).spawn() else {
        ga10b_oracles::skipped("programs of this build cannot be started here");
        return None;
    };
    let pid = child.id();
    if !lives {
        child.wait().expect("it ends");
        append(&watch.log(), &fs::read_to_string(messages).expect("a log"));
    }
    let saved = watch.saved();
    drop(child.stdin.take());
    child.wait().expect("it ends");
    Some((watch, saved, pid))
}

#[test]
fn a_process_on_the_software_ga10b_is_kept_with_its_map_and_its_code() {
    let Some((watch, saved, pid)) = run_on_sim(true) else { return };
    assert_eq!(saved["processes"][0]["pid"], pid, "{saved}");
    let own = std::env::current_exe().expect("this test");
    assert_eq!(saved["processes"][0]["exe"], *own.to_string_lossy());
    assert!(watch.file(&saved, &format!("{pid}.cmdline")).contains("saved::the_other_process\n--exact\n"));
    assert!(watch.file(&saved, &format!("{pid}.maps")).contains("[stack]"));
    assert!(watch.file(&saved, &format!("{pid}.status")).starts_with("Name:"));
    let report: Value = serde_json::from_str(&watch.file(&saved, "report.json")).expect("JSON");
    assert_eq!(report["faults"][0]["code"][0]["function"], Kind::Misaligned.kernel(), "{report}");
    let map: Value = serde_json::from_str(&watch.file(&saved, &format!("{pid}.map.json"))).expect("JSON");
    assert_eq!(map["process"]["pid"], pid);
    assert!(map["modules"][0]["code"].as_str().is_some_and(|code| !code.is_empty()), "programs are kept");
}

#[test]
fn a_process_that_has_ended_is_kept_with_the_map_that_it_left() {
    let Some((watch, saved, pid)) = run_on_sim(false) else { return };
    let report: Value = serde_json::from_str(&watch.file(&saved, "report.json")).expect("JSON");
    assert_eq!(report["faults"][0]["code"][0]["function"], Kind::Misaligned.kernel(), "{report}");
    assert!(saved["notes"].to_string().contains(&format!("process {pid} has ended")), "{saved}");
}
