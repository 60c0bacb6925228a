//! `nvdiag esr --watch`: each fault once, through rotation and truncation, until it is interrupted or the log
//! ends.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use serde_json::Value;

/// The lines of a fault of channel `channel`, at `second`, as nvgpu prints them.
fn fault(second: u32, channel: u32) -> String {
    let line = |part: u32, site: &str, text: &str| {
        format!("[{second:5}.{part:06}] nvgpu: 17000000.gpu {site} [ERR]  {text}\n")
    };
    [
        line(1, "nvgpu_gr_intr_handle_sm_exception:365", "sm machine check err. gpc_id(0), tpc_id(0), offset(0)"),
        line(
            2,
            "gv11b_gr_intr_record_sm_error_state:1949",
            "sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), hww_global_esr 4,hww_warp_esr 15, hww_warp_esr_pc 0xff55a2a830",
        ),
        line(3, "nvgpu_gr_intr_handle_sm_exception:377", "sm hww global 0x00000004 warp 0x0000000f"),
        line(4, "gr_intr_handle_exception_interrupts:759", "set gr exception notifier"),
        line(
            5,
            "nvgpu_set_err_notifier_locked:143",
            &format!("error notifier set to 13 for ch {channel} owned by python3"),
        ),
    ]
    .concat()
}

/// A watch that is running.
struct Watch {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Watch {
    /// Starts one and waits until it reads.
    fn of(log: &str, stdin: Stdio) -> Self {
        let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
        command.args(["esr", "--watch", "--json", "--log", log]);
        let mut child =
            command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let mut err = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let first = err.next().expect("a line").expect("text");
        assert!(first.starts_with("nvdiag: following "), "{first}");
        Self { child, out, err }
    }

    /// The next report: the channels of its faults.
    fn report(&mut self) -> Vec<u64> {
        let line = self.out.next().expect("a report").expect("text");
        let document: Value = serde_json::from_str(&line).expect("one JSON document per line");
        assert_eq!(document["schema"], "nvdiag.esr/1");
        let faults = document["faults"].as_array().expect("faults");
        let channel = |fault: &Value| {
            fault["evidence"].as_array()?.iter().find_map(|line| {
                let text = line["text"].as_str()?;
                text.strip_prefix("error notifier set to 13 for ch ")?.split(' ').next()?.parse().ok()
            })
        };
        faults.iter().map(|fault| channel(fault).unwrap_or_else(|| panic!("no channel in {fault}"))).collect()
    }

    /// Interrupts it as ctrl-c does.
    fn interrupt(&self) {
        let sent = Command::new("kill").args(["-INT", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill starts").success());
    }

    /// Its exit code, when it has ended with nothing more to say.
    fn end(mut self) -> Option<i32> {
        assert!(self.out.next().is_none(), "a report too many");
        assert!(self.err.next().is_none(), "a complaint");
        self.child.wait().expect("it ends").code()
    }
}

fn append(path: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("written");
}

#[test]
fn a_file_is_followed_through_rotation_and_truncation_and_each_fault_is_told_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kern.log");
    append(&path, &fault(100, 500));
    let mut watch = Watch::of(&path.to_string_lossy(), Stdio::null());
    append(&path, &fault(200, 501));
    assert_eq!(watch.report(), [501], "what was there before is not told");
    fs::rename(&path, folder.path().join("kern.log.1")).expect("renamed");
    // Longer than the lines after the truncation below: a truncated file is recognized by its length.
    let other = "[  299.000001] usb 1-1: new device\n".repeat(100);
    append(&path, &(other + &fault(300, 502)));
    assert_eq!(watch.report(), [502]);
    File::create(&path).expect("truncated");
    append(&path, "[  399.000001] usb 1-1: new device\n");
    append(&path, &fault(400, 503));
    assert_eq!(watch.report(), [503]);
    watch.interrupt();
    assert_eq!(watch.end(), Some(1));
}

#[test]
fn a_pipe_is_followed_until_its_writer_is_gone() {
    let mut watch = Watch::of("-", Stdio::piped());
    let mut stdin = watch.child.stdin.take().expect("a pipe");
    stdin.write_all(fault(100, 500).as_bytes()).expect("written");
    assert_eq!(watch.report(), [500]);
    // The last fault ends with the pipe, in the middle of a line.
    stdin.write_all(fault(200, 501).trim_end().as_bytes()).expect("written");
    drop(stdin);
    assert_eq!(watch.report(), [501]);
    assert_eq!(watch.end(), Some(1));
}

#[test]
fn a_watch_that_saw_nothing_ends_with_nothing_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("kern.log");
    append(&path, &fault(100, 500));
    let watch = Watch::of(&path.to_string_lossy(), Stdio::null());
    watch.interrupt();
    assert_eq!(watch.end(), Some(0));
}
