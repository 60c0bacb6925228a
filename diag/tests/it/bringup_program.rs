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
use nvdiag::bringup::{bundle, plan};

use crate::installed;

/// Time limit of an operation that takes milliseconds.
const SOON: Duration = Duration::from_secs(20);

fn nvdiag(args: &[&str]) -> Command {
    let mut command = Command::new(installed::nvdiag(Some("good")));
    command.arg("bringup").args(args).env("PATH", "/usr/bin:/bin");
    for variable in ["HCQ_DEVICE", "HCQ_CONSERVATIVE", "HCQ_PROFILE"] {
        command.env_remove(variable);
    }
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

/// A running bring-up, in step 17, which takes two seconds. It finds signals as a terminal leaves them, but for
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

/// Whether a process runs. One that has ended and was not waited for does not.
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
fn two_signals_at_once_are_one_as_timeout_sends_them() {
    let folder = tempfile::tempdir().expect("a folder");
    let report = folder.path().join("report");
    let (mut program, mut out, _) = in_step_17(&report, None);
    let pid = Pid::from_raw(program.id().cast_signed());
    for _ in 0..2 {
        kill(pid, Signal::SIGTERM).expect("it runs");
        // So that the second is not merged with the first.
        std::thread::sleep(Duration::from_millis(2));
    }
    let mut rest = String::new();
    out.read_to_string(&mut rest).expect("UTF-8");
    assert_eq!(program.wait().expect("it ends").code(), Some(143), "{rest}");
    assert!(rest.contains("interrupted in step 17 by SIGTERM\n"), "{rest}");
    let interrupted = read(&report).results.interrupted.and_then(|interrupted| interrupted.signal);
    assert_eq!(interrupted.as_deref(), Some("SIGTERM"));
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
fn a_program_that_is_killed_takes_llm_demo_along() {
    let mut command = Command::new(installed::nvdiag(Some("hangs")));
    command.args(["bringup", "--device", "sim", "--only", "20"]).stdout(Stdio::null());
    let mut program = command.spawn().expect("it starts");
    let child_of = |parent: i32| {
        let children = fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).ok()?;
        children.split_whitespace().next()?.parse::<i32>().ok()
    };
    let llm_demo = within_soon(|| {
        let llm_demo = child_of(child_of(program.id().cast_signed())?)?;
        let arguments = fs::read_to_string(format!("/proc/{llm_demo}/cmdline")).ok()?;
        arguments.starts_with("sleep").then_some(llm_demo)
    });
    program.kill().expect("it runs");
    program.wait().expect("it ends");
    within_soon(|| (!runs(llm_demo)).then_some(()));
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
        assert!(
            remedy.contains("a node of the driver is missing") && remedy.contains("modprobe nvgpu"),
            "{remedy}"
        );
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
        (["--profile", "-"], "--profile takes a file's name"),
        (["--profile", pipe], "is a pipe, and no regular file"),
        (["--soak", "1e30"], "whole seconds, 1 to 604800"),
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

/// `nvdiag bringup --bisect` on a software ga10b with what-ifs, and a profile in use or none: its output, its exit
/// code, and the profile that it leaves.
fn bisect(what_if: &str, in_use: &str) -> (Option<i32>, serde_json::Value, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let (asked, profile) = (folder.path().join("asked"), folder.path().join("it's a profile"));
    fs::write(&asked, in_use).expect("a file");
    let path = |path: &Path| path.to_str().expect("UTF-8").to_owned();
    let used = if in_use.is_empty() { String::new() } else { path(&asked) };
    let environment = [("NVGPU_SIM_WHATIF", what_if), ("HCQ_PROFILE", &used)];
    let arguments = ["--device", "sim", "--bisect", "--profile", &path(&profile)];
    // Both at a time: most of it is waiting for settings that do not work. The text's profile is not looked at.
    let other = ["--device", "sim", "--bisect", "--profile", &path(&folder.path().join("the text's"))];
    let ((code, json, err), (_, text, _)) = std::thread::scope(|scope| {
        let text = scope.spawn(|| run_with(&other, &environment));
        let document = run_with(&[&arguments[..], &["--json"]].concat(), &environment);
        (document, text.join().expect("a run"))
    });
    let document = serde_json::from_str(&json).expect("one JSON document");
    let quoted = path(&profile).replace('\'', r"'\''");
    assert!(err.contains(&format!("to use these settings: export HCQ_PROFILE='{quoted}'")), "{err}");
    (code, document, text, fs::read_to_string(&profile).expect("a profile"))
}

#[test]
fn a_profile_is_written_where_nothing_can_be_printed() {
    let folder = tempfile::tempdir().expect("a folder");
    let named = folder.path().join("named");
    let usual = ["--device", "sim", "--bisect", "--host", "h"];
    let asked = [&usual[..], &["--no-report", "--profile", named.to_str().expect("UTF-8")]].concat();
    for arguments in [&usual[..], &asked] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = nvdiag(arguments);
        let (code, _, err) =
            text(&command.current_dir(folder.path()).stdout(writer).output().expect("it starts"));
        assert_eq!((code, err.as_str()), (Some(0), ""), "{arguments:?}");
        let files = folder.path().read_dir().expect("readable").map(|entry| entry.expect("an entry").path());
        let [file] = &files.collect::<Vec<_>>()[..] else { panic!("{arguments:?} leaves another number") };
        let profile = fs::read_to_string(file).expect("a profile");
        assert!(profile.contains("preemption = cilp"), "{arguments:?}: {profile:?}");
        fs::remove_file(file).expect("a file");
    }
}

/// The cells with and without those settings, which have to be those that fail at a stage and those that work.
fn failing(document: &serde_json::Value, name: &str, value: &str, stage: &str) {
    let cells = document["settings"]["cells"].as_array().expect("cells");
    assert_eq!(cells.len(), 10);
    for cell in cells {
        let is_dead = cell["settings"][name] == value;
        let failed = cell["failure"]["stage"].as_str();
        assert_eq!(failed, is_dead.then_some(stage), "{cell}");
    }
    assert!(cells.iter().any(|cell| cell["settings"][name] == value));
}

#[test]
fn settings_that_are_dead_are_found_and_left_out() {
    for (what_if, name, value) in
        [("stale-write-combined", "command-memory", "write-combined"), ("dead-veid-0", "subcontext", "sync")]
    {
        let in_use = format!("{name} = {value}");
        let (code, document, text, profile) = bisect(what_if, &in_use);
        assert_eq!(code, Some(0), "{text}");
        failing(&document, name, value, "submission");
        assert!(text.contains(&format!("the settings in use do not work: {in_use}\n")), "{text}");
        // The dead setting is not a change that is needed: the defaults work.
        assert!(text.contains("to use: the defaults, but preemption = cilp\n"), "{text}");
        assert!(text.contains("8 of 10 work") && !text.contains("passed"), "{text}");
        assert!(!profile.contains(&in_use) && profile.contains("preemption = cilp"), "{profile}");
    }
}

#[test]
fn cilp_is_in_a_profile_if_it_is_proven_alone() {
    let (code, document, text, profile) = bisect("cilp-refused", "preemption = cilp");
    assert_eq!(code, Some(0), "{text}");
    failing(&document, "preemption", "cilp", "preemption");
    assert!(text.contains("the settings in use do not work: preemption = cilp\n"), "{text}");
    assert!(text.contains("to use: the defaults\n"), "{text}");
    assert!(profile.contains("preemption = wfi\n"), "{profile}");
    let (_, document, text, _) = bisect("", "");
    assert!(document["settings"]["cells"].as_array().is_some_and(|cells| cells.len() == 10));
    assert!(text.contains("another context's launch ended inside a running kernel, after"), "{text}");
}

#[test]
fn the_profile_is_one_that_hcq_takes() {
    let folder = tempfile::tempdir().expect("a folder");
    let arguments = ["--device", "sim", "--bisect", "--host", "h"];
    for _ in 0..2 {
        let output = nvdiag(&arguments).current_dir(folder.path()).output().expect("it starts");
        assert_eq!(output.status.code(), Some(0));
    }
    let names = folder.path().read_dir().expect("readable").map(|entry| entry.expect("an entry").path());
    let mut names: Vec<PathBuf> = names.collect();
    names.sort();
    assert!(names.len() == 2 && names[0].to_string_lossy().ends_with("-2.txt"), "{names:?}");
    let profile = names[1].to_str().expect("UTF-8");
    assert!(profile.contains("/bringup-profile-h-"), "{profile}");
    let (code, out, _) = run_with(&["--device", "sim", "--only", "12"], &[("HCQ_PROFILE", profile)]);
    assert_eq!(code, Some(0), "{out}");
    for (setting, expected) in [("/nowhere/profile", "cannot be used"), (profile, "")] {
        let (code, _, err) = run_with(&["--device", "sim", "--only", "2"], &[("HCQ_PROFILE", setting)]);
        assert_eq!(code == Some(2), !expected.is_empty(), "{err}");
    }
    let (code, out, err) = run(&["--device", "rm", "--bisect"]);
    assert_eq!((code, out.as_str()), (Some(2), ""));
    assert!(err.contains("a Jetson's driver"), "{err}");
}

#[test]
fn a_profile_replaces_a_profile_and_nothing_else() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let asked = ["--device", "sim", "--bisect", "--profile", path.to_str().expect("UTF-8")];
    for content in ["# Notes\nsubcontext = async\n", "first boot\n", "\n"] {
        fs::write(&path, content).expect("a file");
        let (code, out, err) = run(&asked);
        assert_eq!((code, out.as_str()), (Some(2), ""), "{content}");
        assert!(err.contains("is not a profile"), "{err}");
        assert_eq!(fs::read_to_string(&path).expect("the file"), content);
    }
    for content in ["", "subcontext = async # what ran\n", "# Settings that nvdiag bringup has tried: x\n"] {
        fs::write(&path, content).expect("a file");
        assert_eq!(run(&asked).0, Some(0), "{content}");
        let left = fs::read_to_string(&path).expect("the file");
        assert!(left.starts_with("# Settings that nvdiag bringup has tried: nvdiag "), "{left}");
    }
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    let (code, _, err) = run(&[&asked[..], &["-o", link.to_str().expect("UTF-8")]].concat());
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("name one file"), "{err}");
}

#[test]
fn write_combined_memory_that_is_stale_costs_neither_the_first_kernel_nor_conservative_mode() {
    let (code, out, _) =
        run_with(&["--device", "sim", "--only", "12"], &[("NVGPU_SIM_WHATIF", "stale-write-combined")]);
    assert_eq!(code, Some(0), "{out}");
    assert!(out.contains("HCQ_CONSERVATIVE=1: passes too"), "{out}");
}

#[test]
fn the_table_of_steps_in_the_docs_is_that_of_the_plan() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/nvdiag-bringup.md");
    let docs = fs::read_to_string(path).expect("the docs");
    let is_row = |line: &&str| line.starts_with("| ") && line[2..].starts_with(|c: char| c.is_ascii_digit());
    let row = |step: &plan::Step| {
        let plan::Step { number, title, proves, expects, .. } = step;
        format!("| {number} | {title} | {proves} | {expects} | {} |", step.if_not())
    };
    let rows: Vec<String> = plan::STEPS.iter().map(row).collect();
    if std::env::var_os("UPDATE").is_some() {
        let first = docs.lines().position(|line| is_row(&line)).expect("a table");
        let mut lines: Vec<&str> = docs.lines().filter(|line| !is_row(line)).collect();
        lines.splice(first..first, rows.iter().map(String::as_str));
        fs::write(path, lines.join("\n") + "\n").expect("the docs");
        return;
    }
    let found: Vec<&str> = docs.lines().filter(is_row).collect();
    assert_eq!(found, rows, "UPDATE=1 cargo test -p nvdiag --test it bringup_program writes it");
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
    let (_, out, _) = run_with(&["--device", "nvgpu", "--only", "10"], &environment);
    assert!(out.contains("not seen") && out.contains("has no lines in the kernel log"), "{out}");
    assert!(!out.contains("sudo"), "{out}");
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
