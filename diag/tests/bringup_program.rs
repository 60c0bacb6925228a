//! `nvdiag bringup` as a program: signals, files that are none, settings, and nvgpu's nodes in a library.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigHandler, Signal, kill, signal};
use nix::sys::stat::Mode;
use nix::unistd::{Pid, mkfifo};
use nvdiag::bringup::bundle;

/// How long something may take that takes milliseconds.
const SOON: Duration = Duration::from_secs(20);

fn nvdiag(args: &[&str]) -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.arg("bringup").args(args).env_remove("HCQ_DEVICE").env_remove("HCQ_CONSERVATIVE");
    command
}

fn text(output: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

fn run(args: &[&str]) -> (Option<i32>, String, String) {
    run_with(args, &[])
}

fn run_with(args: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String, String) {
    text(&nvdiag(args).envs(environment.iter().copied()).output().expect("it starts"))
}

/// A running bring-up, in step 17, which takes four seconds. It finds signals as a terminal leaves them, but for
/// `ignored`.
fn in_step_17(report: &Path, ignored: Option<Signal>) -> (Child, BufReader<ChildStdout>, i32) {
    let mut command = nvdiag(&["--device", "sim", "--from", "16", "-o", report.to_str().expect("UTF-8")]);
    // SAFETY: sets actions of signals, which a new process may do before it becomes another program.
    unsafe {
        command.pre_exec(move || {
            for heard in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
                let action = if ignored == Some(heard) { SigHandler::SigIgn } else { SigHandler::SigDfl };
                signal(heard, action)?;
            }
            Ok(())
        })
    };
    let mut program = command.stdout(Stdio::piped()).spawn().expect("it starts");
    let mut out = BufReader::new(program.stdout.take().expect("a pipe"));
    let mut line = String::new();
    while !line.starts_with("16  ok") {
        line.clear();
        assert_ne!(out.read_line(&mut line).expect("readable"), 0, "it ended");
    }
    let children = format!("/proc/{0}/task/{0}/children", program.id());
    let child = within_soon(|| {
        let children = fs::read_to_string(&children).expect("readable");
        let child: i32 = children.split_whitespace().next()?.parse().ok()?;
        // The one of step 16 has gone, or is about to.
        let arguments = fs::read_to_string(format!("/proc/{child}/cmdline")).ok()?;
        arguments.contains("--step-here\u{0}17").then_some(child)
    });
    (program, out, child)
}

fn within_soon<T>(mut get: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        match get() {
            Some(found) => return found,
            None => assert!(began.elapsed() < SOON, "it does not happen"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Whether a process runs. One that has ended and that nobody waits for does not.
fn runs(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    status.rsplit(") ").next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with('Z'))
}

fn read(path: &Path) -> bundle::Contents {
    bundle::read(fs::File::open(path).expect("the file")).expect("a report")
}

#[test]
fn a_signal_ends_the_step_and_leaves_a_report_of_those_before() {
    let folder = tempfile::tempdir().expect("a folder");
    for (sent, name) in [(Signal::SIGINT, "SIGINT"), (Signal::SIGTERM, "SIGTERM"), (Signal::SIGHUP, "SIGHUP")]
    {
        let report = folder.path().join(name);
        let (mut program, mut out, child) = in_step_17(&report, None);
        kill(Pid::from_raw(program.id().cast_signed()), sent).expect("it runs");
        let mut rest = String::new();
        out.read_to_string(&mut rest).expect("UTF-8");
        let status = program.wait().expect("it ends");
        assert_eq!(status.code(), Some(128 + sent as i32), "{rest}");
        assert!(rest.contains(&format!("interrupted in step 17 by {name}\n")), "{rest}");
        assert!(rest.contains("written: "), "{rest}");
        assert!(!runs(child), "{name}: the step runs on");
        let contents = read(&report);
        let done: Vec<u32> = contents.results.steps.iter().map(|step| step.number).collect();
        assert_eq!(done, [16], "{name}");
        let (code, shown, _) = run(&["--read", report.to_str().expect("UTF-8")]);
        assert_eq!(code, Some(0));
        assert!(shown.contains(&format!("interrupted in step 17 by {name}")), "{shown}");
    }
}

#[test]
fn a_program_that_is_killed_takes_its_step_along_and_leaves_what_it_had() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    let (mut program, _out, child) = in_step_17(&report, None);
    program.kill().expect("it runs");
    program.wait().expect("it ends");
    within_soon(|| (!runs(child)).then_some(()));
    let results = read(&report).results;
    assert_eq!(results.steps.iter().map(|step| step.number).collect::<Vec<_>>(), [16]);
    let (_, shown, _) = run(&["--read", report.to_str().expect("UTF-8")]);
    assert!(shown.contains("interrupted in step 17 without a signal: the program was killed"), "{shown}");
}

#[test]
fn a_step_whose_program_has_ended_already_does_not_begin() {
    let (code, out, err) = run(&["--device", "sim", "--step-here", "17", "--parent", "1"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("the process that asked for the step has ended"), "{err}");
}

#[test]
fn a_signal_that_the_program_was_started_to_ignore_stays_ignored() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    // As `nohup` does.
    let (mut program, _out, child) = in_step_17(&report, Some(Signal::SIGHUP));
    kill(Pid::from_raw(program.id().cast_signed()), Signal::SIGHUP).expect("it runs");
    std::thread::sleep(Duration::from_millis(200));
    assert!(runs(child) && program.try_wait().expect("a child of ours").is_none());
    kill(Pid::from_raw(program.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    assert_eq!(program.wait().expect("it ends").code(), Some(143));
}

#[test]
fn a_missing_node_is_named_as_one() {
    if Path::new("/dev/nvgpu").exists() {
        return;
    }
    for step in ["1", "2", "4", "12"] {
        let (code, out, _) = run(&["--device", "nvgpu", "--only", step, "--json"]);
        let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
        let remedy = document["steps"][0]["remedy"].as_str().expect("a remedy");
        assert_eq!(code, Some(1));
        match step {
            // It names each of them.
            "1" => assert!(remedy.contains("nvdiag doctor"), "{remedy}"),
            _ => assert!(
                remedy.contains("a node of the driver is missing") && remedy.contains("modprobe nvgpu")
            ),
        }
        assert!(!remedy.contains("L4T release"), "{remedy}");
    }
}

#[test]
fn a_desktop_driver_that_is_not_there_is_named_as_one() {
    if Path::new("/dev/nvidiactl").exists() {
        return;
    }
    let (code, out, _) = run(&["--device", "rm", "--only", "2", "--json"]);
    let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
    let remedy = document["steps"][0]["remedy"].as_str().expect("a remedy");
    assert_eq!(code, Some(1));
    assert!(remedy.contains("desktop driver") && remedy.contains("modprobe"), "{remedy}");
    assert!(!remedy.contains("L4T"), "{remedy}");
}

#[test]
fn settings_that_mean_nothing_are_bad_usage() {
    for (variable, value, expected) in [
        ("NVGPU_SIM_SMS", "3", "an even number"),
        ("NVGPU_SIM_MEMORY", "lots", "a number of bytes"),
        ("HCQ_CONSERVATIVE", "nonsense", "0 or 1"),
        ("HCQ_GPU_CACHE", "perhaps", "off or on"),
    ] {
        let (code, out, err) = run_with(&["--device", "sim", "--only", "2"], &[(variable, value)]);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{variable}: {err}");
        assert!(err.contains(variable) && err.contains(value) && err.contains(expected), "{err}");
    }
    let (code, _, err) = run_with(&["--device", "sim", "--only", "2"], &[("NVGPU_SIM_SM", "2")]);
    assert_eq!(code, Some(0));
    assert_eq!(err.matches("NVGPU_SIM_SM is no setting").count(), 1, "{err}");
    assert!(err.contains("is NVGPU_SIM_SMS meant?"), "{err}");
}

#[test]
fn a_report_is_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let pipe = folder.path().join("pipe");
    mkfifo(&pipe, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
    let pipe = pipe.to_str().expect("UTF-8");
    for (args, said) in [
        (["--read", pipe], "is a pipe, and no regular file"),
        (["-o", pipe], "is a pipe, and no regular file"),
        (["-o", "/dev/null"], "is a device, and no regular file"),
        (["-o", "/"], "is a folder, and no regular file"),
        (["-o", "/dev/stdout"], "/dev/stdout takes what this command prints"),
        (["-o", "/dev/stderr"], "/dev/stderr takes what this command prints"),
        (["-o", "/dev/nvdiag-report"], "is in /dev, whose files are lost with the next boot"),
        (["-o", "-"], "-o takes a file's name"),
        (["--host", ""], "at least one visible character"),
        (["--host", " \t"], "at least one visible character"),
    ] {
        let device = ["--device", "sim"];
        let args = if args[0] == "--read" { args.to_vec() } else { [&device[..], &args].concat() };
        let mut command = nvdiag(&args);
        command.current_dir(folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut program = command.spawn().expect("it starts");
        let status = within_soon(|| program.try_wait().expect("a child of ours"));
        let (_, out, err) = text(&program.wait_with_output().expect("its output"));
        assert_eq!((status.code(), out.as_str()), (Some(2), ""), "{args:?}");
        assert!(err.contains(said), "{args:?}: {err}");
    }
    assert!(!folder.path().join("-").exists());
    let mixed = folder.path().join("mixed");
    let mut command = nvdiag(&["--device", "sim", "--from", "21", "--json", "-o", "/dev/stdout"]);
    let output = command.stdout(fs::File::create(&mixed).expect("a file")).output().expect("it starts");
    let (code, _, err) = text(&output);
    assert_eq!(code, Some(2));
    assert!(err.contains("/dev/stdout takes what this command prints"), "{err}");
    assert_eq!(fs::read(&mixed).expect("the file"), b"");
    let mut command = nvdiag(&["--device", "sim", "--from", "21", "-o", mixed.to_str().expect("UTF-8")]);
    let appended = fs::OpenOptions::new().append(true).open(&mixed).expect("a file");
    let (code, _, err) = text(&command.stdout(appended).output().expect("it starts"));
    assert_eq!(code, Some(2));
    assert!(err.contains("takes what this command prints"), "{err}");
}

#[test]
fn a_report_is_completed_where_nothing_can_be_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    for (json, is_full, expected) in
        [(false, false, Some(0)), (true, false, Some(0)), (false, true, Some(2)), (true, true, Some(2))]
    {
        let mut args = vec!["--device", "sim", "--from", "21", "--soak", "1", "-o"];
        args.push(report.to_str().expect("UTF-8"));
        args.extend(json.then_some("--json"));
        let mut command = nvdiag(&args);
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let full = fs::OpenOptions::new().write(true).open("/dev/full").expect("a device");
        command.stdout(if is_full { Stdio::from(full) } else { Stdio::from(writer) });
        let (code, _, err) = text(&command.output().expect("it starts"));
        assert_eq!(code, expected, "json {json}, full {is_full}: {err}");
        let contents = read(&report);
        assert_eq!(contents.results.interrupted, None, "json {json}, full {is_full}");
        assert_eq!(contents.results.steps.iter().map(|step| step.number).collect::<Vec<_>>(), [21]);
        assert_eq!(contents.entries.len(), 4);
        fs::remove_file(&report).expect("the file");
    }
}

/// `libnvgpu_sim.so`, which Cargo builds along with the tests.
fn library() -> PathBuf {
    let folder = Path::new(assert_cmd::cargo::cargo_bin!("nvdiag")).parent().expect("a folder");
    let places = [folder.join("deps/libnvgpu_sim.so"), folder.join("libnvgpu_sim.so")];
    places.into_iter().find(|path| path.exists()).expect("libnvgpu_sim.so is not built")
}

#[test]
fn nodes_that_a_library_serves_are_those_of_the_software_ga10b() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    let library = library();
    let environment = [("LD_PRELOAD", library.to_str().expect("UTF-8"))];
    for step in ["1", "3", "14"] {
        let (code, out, err) = run_with(&["--device", "nvgpu", "--only", step], &environment);
        assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
        assert!(out.starts_with("bring-up through nvgpu (the software ga10b), "), "{out}");
        assert!(step != "1" || out.contains("its nodes are part of libnvgpu_sim.so"), "{out}");
        assert!(step != "14" || out.contains("exchanges inside a kernel: 1000 in"), "{out}");
    }
    let from_21 = ["--device", "nvgpu", "--from", "21", "--soak", "1", "-o", report.to_str().expect("UTF-8")];
    let (code, out, _) = run_with(&from_21, &environment);
    assert_eq!(code, Some(0), "{out}");
    assert!(read(&report).results.software);
    let mut doctor = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    let (code, out, err) = text(&doctor.arg("doctor").envs(environment).output().expect("it starts"));
    assert_eq!((code, err.as_str()), (Some(0), ""), "{out}");
    assert!(out.starts_with("a software ga10b: libnvgpu_sim.so is part of this process"), "{out}");
    let (code, out, _) =
        run_with(&["--device", "nvgpu", "--only", "2"], &[environment[0], ("NVGPU_SIM_SMS", "3")]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
}
