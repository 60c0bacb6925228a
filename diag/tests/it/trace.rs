//! `nvdiag trace` on programs that make a known number of calls: none is lost, and logs read back.
//!
//! Where programs cannot be traced (another machine's emulator) the tests say so and pass.

use std::path::PathBuf;
use std::process::{Command, Output};

use nvdiag::trace::decode::decode;
use nvdiag::trace::{Call, Event, LogReader};
use nvgpu_sys::REQUESTS;

/// Why the example may make other requests than this test knows.
const OLD: &str = "gpu_calls is of an older build: cargo build --profile ci -p nvdiag --examples";

/// Folder of the build: this test is in `deps` under it.
fn build_folder() -> PathBuf {
    let mut path = std::env::current_exe().expect("this test");
    path.pop();
    path.pop();
    path
}

fn example() -> String {
    build_folder().join("examples/gpu_calls").to_string_lossy().into_owned()
}

fn nvdiag(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(arguments).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether programs can be traced here.
fn can_trace() -> bool {
    // An emulator runs this test, but not the programs it starts.
    let run = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag")).args(["trace", "--", "true"]).output();
    let why = match run {
        Ok(run) if run.status.success() => return true,
        Ok(run) => text(&run.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    ga10b_oracles::skipped(format_args!("programs cannot be traced here: {why}"));
    false
}

fn log(path: &std::path::Path) -> Vec<Event> {
    let file = std::io::BufReader::new(std::fs::File::open(path).expect("a log"));
    let reader = LogReader::new(file).expect("a log");
    reader.collect::<Result<_, _>>().expect("events")
}

fn ioctls(events: &[Event]) -> Vec<(&Event, u64)> {
    let request = |event: &Event| match &event.call {
        Call::Ioctl { request, .. } => Some(request.0),
        _ => None,
    };
    events.iter().filter_map(|event| Some((event, request(event)?))).collect()
}

#[test]
fn every_request_of_threads_and_children_is_seen() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let (log_path, program) = (path.to_string_lossy().into_owned(), example());
    let run = nvdiag(&[
        "trace",
        "--node",
        "/dev/zero",
        "--log",
        &log_path,
        "--summary",
        "--",
        &program,
        "/dev/zero",
    ]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let events = log(&path);
    let seen = ioctls(&events);
    let out = text(&run.stdout);
    let expected: usize = out.lines().find_map(|line| line.parse().ok()).expect("the program's own count");
    assert_eq!(seen.len(), expected, "{out}");
    assert_eq!(expected, REQUESTS.len() * 3 + 1, "{OLD}");
    assert!(out.contains(&format!("{expected} of them ioctl, 1 of those of unknown requests")), "{out}");
    let main = seen[0].0.tid;
    let threads: std::collections::BTreeSet<_> = seen.iter().map(|(event, _)| event.tid).collect();
    let processes: std::collections::BTreeSet<_> = seen.iter().map(|(event, _)| event.pid).collect();
    assert_eq!((threads.len(), processes.len()), (3, 2));
    for thread in threads {
        let own: Vec<_> = seen.iter().filter(|(event, _)| event.tid == thread).collect();
        let requests: Vec<u64> = own.iter().map(|(_, request)| *request).take(REQUESTS.len()).collect();
        let all: Vec<u64> = REQUESTS.iter().map(|r| r.request.into()).collect();
        assert_eq!(requests, all);
        for ((event, _), request) in own.iter().zip(REQUESTS) {
            assert_eq!(decode(event).expect("an ioctl").name, request.name);
            assert!(event.result < 0 && event.duration_ns.is_some());
        }
    }
    let opens = events.iter().filter(|e| matches!(&e.call, Call::Open { path, .. } if path == "/dev/zero"));
    assert_eq!(opens.count(), 2);
    assert!(events.iter().any(|e| matches!(e.call, Call::Dup { .. }) && e.tid == main));
    assert!(events.iter().filter(|e| matches!(e.call, Call::Close { .. })).count() >= 2);
}

#[test]
fn what_a_library_asks_of_the_software_gpu_is_what_it_says_it_asked() {
    if !can_trace() {
        return;
    }
    let library = [build_folder().join("deps/libnvgpu_sim.so"), build_folder().join("libnvgpu_sim.so")];
    let library = library.iter().find(|path| path.exists()).expect("libnvgpu_sim.so is not built");
    let folder = tempfile::tempdir().expect("a folder");
    let (outer, inner) = (folder.path().join("outer"), folder.path().join("inner"));
    let preload = format!("LD_PRELOAD={}", library.display());
    let (outer_path, inner_path) =
        (outer.to_string_lossy().into_owned(), inner.to_string_lossy().into_owned());
    let program = example();
    // The tracer has the library report its calls.
    let arguments = ["trace", "--log", &outer_path, "--", "env", &preload, &program];
    let run = nvdiag(&[&arguments[..], &["--device", &inner_path]].concat());
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let (outside, inside) = (log(&outer), log(&inner));
    let kind = |events: &[Event]| -> Vec<String> {
        let name = |event: &Event| match &event.call {
            Call::Ioctl { request, fd, .. } => format!("ioctl {request} on {fd} = {}", event.result),
            Call::Open { path, .. } => format!("open {path} = {}", event.result),
            Call::Close { fd, .. } => format!("close {fd}"),
            Call::Mmap { fd, length, .. } => format!("mmap {fd} {length}"),
            Call::Dup { fd, .. } => format!("dup {fd}"),
            Call::Submission(_) => "submission".to_owned(),
        };
        events.iter().map(name).collect()
    };
    assert_eq!(kind(&outside), kind(&inside));
    for (outside, inside) in ioctls(&outside).iter().zip(ioctls(&inside)) {
        let bytes = |event: &Event| match &event.call {
            Call::Ioctl { input, output, .. } => (input.clone(), output.clone()),
            _ => Default::default(),
        };
        assert_eq!(bytes(outside.0), bytes(inside.0));
        assert!(decode(outside.0).expect("an ioctl").known);
    }
    assert!(ioctls(&outside).len() > 20, "{}", ioctls(&outside).len());
    let shown = text(&run.stdout);
    assert!(shown.contains("NVGPU_IOCTL_CHANNEL_SETUP_BIND"), "{shown}");
    assert!(shown.contains("nvhost-ga10b-fd"), "{shown}");

    let again = nvdiag(&["trace", "--replay", &outer_path]);
    assert_eq!(again.status.code(), Some(0));
    let replayed = text(&again.stdout);
    assert_eq!(replayed.lines().count(), shown.lines().filter(|line| *line != "3.5").count());
    assert!(shown.contains(&replayed[..replayed.find("\n").unwrap_or(0)]));
    let json = nvdiag(&["--json", "trace", "--replay", &outer_path]);
    for line in text(&json.stdout).lines() {
        let value: serde_json::Value = serde_json::from_str(line).expect("JSON lines");
        assert!(value["schema"].is_string() || value["call"].is_string());
    }
}

#[test]
fn how_a_program_ends_is_told() {
    if !can_trace() {
        return;
    }
    let run = nvdiag(&["trace", "--", "sh", "-c", "exit 7"]);
    assert_eq!(run.status.code(), Some(7));
    assert!(text(&run.stderr).contains("ended with code 7"));
    let run = nvdiag(&["trace", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(run.status.code(), Some(128 + 9));
    assert!(text(&run.stderr).contains("signal 9 ended the program"));
    let run = nvdiag(&["trace", "--", "no-such-program-anywhere"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("there is no program no-such-program-anywhere"));
    for (arguments, why) in [
        (&["trace"][..], "required arguments"),
        (&["trace", "--", "/etc/passwd"], "/etc/passwd is not executable"),
        (&["trace", "--pid", "4194305"], "there is no process 4194305"),
        (
            &["trace", "-o", "/dev/full", "--node", "/dev/zero", "--", "head", "-c1", "/dev/zero"],
            "cannot write /dev/full",
        ),
    ] {
        let run = nvdiag(arguments);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}");
        assert!(text(&run.stderr).contains(why), "{arguments:?}: {}", text(&run.stderr));
    }
}

#[test]
fn a_program_without_calls_is_explained() {
    if !can_trace() {
        return;
    }
    let run = nvdiag(&["trace", "--summary", "--", "true"]);
    assert_eq!(run.status.code(), Some(0));
    let why = text(&run.stderr);
    assert!(
        why.contains("made no call on a GPU's node") && why.contains("LD_PRELOAD=libnvgpu_sim.so"),
        "{why}"
    );
    // A trace with calls needs no explanation.
    let run = nvdiag(&["trace", "--node", "/dev/zero", "--summary", "--", "head", "-c", "1", "/dev/zero"]);
    assert_eq!(text(&run.stderr), "");
}

#[test]
fn what_is_left_of_a_damaged_log_is_shown() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("log");
    let line = |fd: i32| {
        format!(
            "{{\"start_ns\":1,\"duration_ns\":2,\"pid\":3,\"tid\":3,\"result\":0,\"call\":\"close\",\"fd\":{fd},\"node\":\"/dev/nvmap\"}}\n"
        )
    };
    let header =
        "{\"schema\":\"nvdiag.trace/1\",\"arch\":\"aarch64\",\"command\":[\"x\"],\"method\":\"ptrace\"}\n";
    let replay = |log: &[u8]| {
        std::fs::write(&path, log).expect("written");
        let run = nvdiag(&["trace", "--replay", &path.to_string_lossy()]);
        (run.status.code(), text(&run.stdout).lines().count(), text(&run.stderr))
    };
    let whole = [header, &line(7), &line(8), &line(9)].concat();
    assert_eq!(replay(whole.as_bytes()), (Some(0), 3, String::new()));
    let damaged = whole.replacen("\"fd\":8", "\"fd\":x", 1);
    let (code, lines, why) = replay(damaged.as_bytes());
    assert_eq!((code, lines), (Some(1), 2), "{why}");
    assert!(why.contains("2 calls could be read, 1 line is left out; line 3"), "{why}");
    let mut not_text = whole.clone().into_bytes();
    not_text[header.len() + 5] = 0xff;
    let (code, lines, why) = replay(&not_text);
    assert_eq!((code, lines), (Some(1), 2), "{why}");
    let (code, lines, why) = replay(&whole.as_bytes()[..whole.len() - 9]);
    assert_eq!((code, lines), (Some(1), 2), "{why}");
    let (code, lines, why) = replay(b"no log\n");
    assert_eq!((code, lines), (Some(2), 0), "{why}");
}

#[test]
fn a_running_process_is_followed_until_it_ends() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (log_path, go) = (folder.path().join("log"), folder.path().join("go"));
    let script =
        format!("while [ ! -e '{}' ]; do sleep 0.05; done; exec '{}' /dev/zero", go.display(), example());
    let mut program =
        Command::new("sh").args(["-c", &script]).stdout(std::process::Stdio::null()).spawn().expect("sh");
    let pid = program.id().to_string();
    let tracer = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"))
        .args(["trace", "--node", "/dev/zero", "--pid", &pid, "--log"])
        .arg(&log_path)
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .expect("the binary starts");
    // The program waits for a file, so it may be attached to at any time before that.
    let status = format!("/proc/{pid}/status");
    let mut attached = false;
    for _ in 0..200 {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        attached = text.lines().any(|line| line.starts_with("TracerPid:") && !line.ends_with("\t0"));
        if attached {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    std::fs::write(&go, "").expect("written");
    program.wait().expect("it ends");
    let run = tracer.wait_with_output().expect("it ends");
    if !attached {
        let why = text(&run.stderr);
        ga10b_oracles::skipped(format_args!("running processes cannot be traced here: {}", why.trim()));
        return;
    }
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    assert_eq!(ioctls(&log(&log_path)).len(), REQUESTS.len() * 3 + 1, "{OLD}");
}

#[test]
fn files_that_would_overwrite_each_other_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (log, link, new) = (path("log"), path("link"), path("new"));
    let header = "{\"schema\":\"nvdiag.trace/1\",\"arch\":\"a\",\"command\":[],\"method\":\"ptrace\"}\n";
    std::fs::write(&log, header).expect("written");
    std::fs::hard_link(&log, &link).expect("linked");
    for arguments in [
        &["trace", "--replay", &log, "-o", &link][..],
        &["trace", "--log", &log, "-o", &link, "--", "true"],
        &["trace", "--log", &new, "-o", &format!("{}/./new", folder.path().display()), "--", "true"],
    ] {
        let run = nvdiag(arguments);
        assert_eq!(run.status.code(), Some(2), "{arguments:?}");
        assert!(text(&run.stderr).contains("are the same file"), "{}", text(&run.stderr));
    }
    assert_eq!(std::fs::read_to_string(&log).expect("the log"), header);
    assert!(!std::path::Path::new(&new).exists());
    // If nothing is lost, one name is enough for both.
    let run = nvdiag(&["trace", "--replay", &log, "--json", "-o", "/dev/full"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("cannot write /dev/full"), "{}", text(&run.stderr));
}

#[test]
fn a_full_disk_ends_the_trace_and_not_the_program() {
    if !can_trace() {
        return;
    }
    let script = "i=0; while [ $i -lt 30 ]; do head -c1 /dev/zero; i=$((i+1)); done >/dev/null; echo end >&2";
    let program = ["--node", "/dev/zero", "--", "sh", "-c", script];
    let run = nvdiag(&[&["trace", "--log", "/dev/full"][..], &program].concat());
    let why = text(&run.stderr);
    assert_eq!(run.status.code(), Some(2));
    assert!(why.contains("end\n") && why.contains("cannot write /dev/full"), "{why}");
    assert!(text(&run.stdout).lines().count() >= 30);
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    let run = command.arg("trace").args(program).stdout(full).output().expect("the binary starts");
    let why = text(&run.stderr);
    assert_eq!(run.status.code(), Some(2));
    assert!(why.contains("end\n") && why.contains("cannot write to stdout"), "{why}");
}

#[test]
fn a_signal_ends_trace_and_program_and_what_was_seen_is_kept() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGKILL] {
        let [log_path, out] = ["log", "out"].map(|name| folder.path().join(format!("{name}{signal}")));
        let mut tracer = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"))
            .args(["trace", "--node", "/dev/zero", "--log"])
            .arg(&log_path)
            .arg("-o")
            .arg(&out)
            .args(["--", "sh", "-c", "head -c1 /dev/zero; exec sleep 1000"])
            .stdout(std::process::Stdio::null())
            .spawn()
            .expect("the binary starts");
        // Events are in the files while the program runs.
        let is_there = || {
            let lines = |path| std::fs::read_to_string(path).unwrap_or_default().lines().count();
            lines(&log_path) >= 2 && lines(&out) >= 1
        };
        let found = (0..200).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            is_there()
        });
        assert!(found, "nothing was written in ten seconds");
        let pid = nix::unistd::Pid::from_raw(i32::try_from(tracer.id()).expect("a number"));
        nix::sys::signal::kill(pid, nix::sys::signal::Signal::try_from(signal).expect("a signal"))
            .expect("sent");
        let status = tracer.wait().expect("it ends");
        let expected = (signal != libc::SIGKILL).then_some(128 + signal);
        assert_eq!(status.code(), expected);
        assert!(log(&log_path).iter().any(|event| matches!(&event.call, Call::Open { .. })));
    }
}
