//! `nvdiag check`: mistakes of programs and of kernels, on the software GPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

/// Folder of the kernels of docs/find-a-race.md.
fn kernels() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/find-a-race")
}

fn nvdiag() -> Command {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    for variable in ["HCQ_DEVICE", "NVGPU_SIM_SEED", "LD_PRELOAD", "NVGPU_SIM_ARCH"] {
        command.env_remove(variable);
    }
    command.current_dir(kernels());
    command
}

/// Runs `nvdiag check`.
fn check(arguments: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } =
        nvdiag().arg("check").args(arguments).output().expect("it starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    (status.code().expect("no signal"), text(stdout), text(stderr))
}

/// The options of a kernel that sums four blocks.
const SUM: [&str; 10] = [
    "--grid",
    "4",
    "--block",
    "256",
    "--arg",
    "buffer:4096:ramp.f32",
    "--arg",
    "buffer:16",
    "--arg",
    "u32:1024",
];

fn sum(cubin: &'static str, more: &[&str]) -> (i32, String, String) {
    check(&[&[cubin], &SUM[..], more].concat())
}

fn submits() -> String {
    let folder = assert_cmd::cargo::cargo_bin!("nvdiag").parent().expect("a folder").join("examples");
    folder.join("submits").to_string_lossy().into_owned()
}

/// The page, with what its commands print now: those of its blocks of code that begin with `$ nvdiag check`.
fn printed_anew(page: &str) -> String {
    let mut anew = String::new();
    let mut lines = page.lines().peekable();
    while let Some(line) = lines.next() {
        anew += &format!("{line}\n");
        let Some(words) = line.strip_prefix("$ nvdiag check ") else { continue };
        let mut command = words.to_owned();
        while let Some(start) = command.strip_suffix('\\') {
            let rest = lines.next().expect("the command goes on");
            anew += &format!("{rest}\n");
            command = format!("{start}{}", rest.trim_start());
        }
        let (_, out, err) = check(&command.split_whitespace().collect::<Vec<_>>());
        assert!(out.ends_with('\n'), "{command}: {err}");
        anew += &out;
        while lines.next_if(|line| !line.starts_with("```") && !line.starts_with("$ ")).is_some() {}
    }
    anew
}

/// `UPDATE=1` writes the page anew.
#[test]
fn the_page_shows_what_its_commands_print() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/find-a-race.md");
    let page = fs::read_to_string(&path).expect("the page");
    for kernel in ["block_sum.cu", "block_sum_mended.cu"] {
        let source = fs::read_to_string(kernels().join(kernel)).expect("a kernel");
        assert!(page.contains(&source), "the page does not show {kernel} as it is");
    }
    assert!(page.matches("$ nvdiag check ").count() >= 3, "the page has its commands");
    let anew = printed_anew(&page);
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, anew).expect("written");
    } else {
        assert!(anew == page, "docs/find-a-race.md differs: UPDATE=1 writes it anew\n{anew}");
    }
}

#[test]
fn a_race_is_found_by_its_lines_and_the_mended_kernel_is_clean() {
    let (code, out, err) = sum("block_sum.cubin", &[]);
    assert_eq!((code, err.as_str()), (3, ""), "{out}");
    for words in [
        "========= race: ",
        "block_sum.cu:8",
        "by thread (",
        "the other access: ",
        "block_sum.cu:5",
        "ERROR SUMMARY: ",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let (code, out, err) = sum("block_sum_mended.cubin", &["--print", "1:f32"]);
    assert_eq!((code, err.as_str()), (0, ""), "{out}");
    // Sums of 0..256, 256..512 and so on.
    assert!(out.starts_with("arg 1, 4 of 4 f32:\n       0  32640 98176 163712 229248\n"), "{out}");
    assert!(out.ends_with("========= ERROR SUMMARY: 0 errors\n"), "{out}");
    assert_eq!(sum("block_sum.cubin", &["--error-exitcode", "0"]).0, 0);
    assert_eq!(sum("block_sum.cubin", &["--checks", "memory"]).0, 0);
}

#[test]
fn seeds_are_runs_and_json_is_one_document() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("report.json");
    let (code, out, err) = sum("block_sum.cubin", &["--json", "--seeds", "1..3", "--print", "1"]);
    assert_eq!(code, 3, "{err}");
    assert!(err.contains("arg 1, 4 of 4 u32:"), "the kernel's output is on stderr: {err}");
    let document: Value = serde_json::from_str(&out).expect("one JSON document");
    assert_eq!(document["schema"], "nvdiag.check/1");
    let seeds: Vec<_> = document["runs"].as_array().expect("runs").iter().map(|run| &run["seed"]).collect();
    assert_eq!(seeds, [1, 2, 3]);
    let found = document["findings"].as_array().expect("findings");
    assert_eq!(document["errors"], found.len());
    let race = found.iter().find(|found| found["check"] == "race").expect("the race");
    assert!(race["at"]["source"].as_str().is_some_and(|at| at.ends_with("block_sum.cu:8")), "{race:#}");
    assert!(race["at"]["offset"].as_str().is_some_and(|at| at.starts_with("0x")), "{race:#}");
    assert!(race["at"]["thread"][0].is_u64() && race["other"]["thread"][0].is_u64(), "{race:#}");
    let (code, out, _) =
        sum("block_sum.cubin", &["--json", "--report", &path.to_string_lossy(), "--print", "1"]);
    assert_eq!(code, 3);
    assert!(out.starts_with("arg 1, ") && !out.contains("schema"), "{out}");
    let written: Value = serde_json::from_slice(&fs::read(&path).expect("written")).expect("JSON");
    assert_eq!(written["schema"], "nvdiag.check/1");
}

#[test]
fn programs_on_hcq_run_on_the_software_gpu_that_they_contain() {
    let (code, out, err) = check(&["--checks", "init", "--", &submits(), "2"]);
    assert_eq!(code, 3, "{err}");
    assert!(out.starts_with("{\"queue\":1"), "the program's output is left as it is: {out}");
    assert!(out.contains("========= NVDIAG CHECK init; 4 launches\n"), "{out}");
    assert!(out.contains("========= init: ") && out.contains(" in vadd_f32: LDG"), "{out}");
    let (code, out, _) = check(&["--checks", "memory", "--", &submits(), "1", "7"]);
    assert_eq!(code, 7, "without mistakes the code is the program's: {out}");
    assert!(out.contains("========= the program ended with code 7\n"), "{out}");
}

#[test]
fn programs_on_the_drivers_interface_run_on_the_preloaded_library() {
    // `env` contains no software GPU: what it starts makes system calls.
    for options in [&["--", "env"][..], &["--device", "nvgpu", "--"]] {
        let (code, out, err) = check(&[&["--checks", "init"], options, &[&submits(), "2"]].concat());
        assert_eq!(code, 3, "{out}{err}");
        assert!(out.contains("init; 4 launches\n") && out.contains("========= init: "), "{out}");
        assert!(!err.contains("ga10b: "), "findings are handed over, not printed: {err}");
    }
}

#[test]
fn ends_of_programs_are_told() {
    for (script, code, told) in [
        ("exit 5", 5, "the program ended with code 5"),
        ("kill -SEGV $$", 139, "was ended by signal 11 (SIGSEGV)"),
        ("exit 0", 0, "no launch was seen"),
    ] {
        let (ended, out, err) = check(&["--", "sh", "-c", script]);
        assert_eq!(ended, code, "{script}: {out}");
        assert!(out.contains(told), "{script}: {out}");
        assert!(err.contains("no launch was seen"), "{script}: {err}");
    }
    // A program that crashes after its mistakes: they are not lost.
    let script = format!("{} 2 >/dev/null; kill -SEGV $$", submits());
    let (code, out, _) = check(&["--checks", "init", "--", "sh", "-c", &script]);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("(SIGSEGV)") && out.contains("========= init: "), "{out}");
}

#[test]
fn a_signal_ends_the_program_and_the_report_follows() {
    let mut command = nvdiag();
    let child = command.args(["check", "--", "sleep", "100"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = child.spawn().expect("it starts");
    std::thread::sleep(Duration::from_millis(500));
    let began = Instant::now();
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGTERM).expect("it runs");
    let run = child.wait_with_output().expect("it ends");
    let out = String::from_utf8_lossy(&run.stdout).into_owned();
    assert!(began.elapsed() < Duration::from_secs(50), "{out}");
    assert_eq!(run.status.code(), Some(128 + 15), "{out}");
    assert!(out.contains("signal 15 (SIGTERM)") && out.contains("ERROR SUMMARY: 0 errors"), "{out}");
}

#[test]
fn a_fault_of_a_kernel_is_a_mistake() {
    // The last of the arguments is the number of values, four times as many as there are.
    let arguments = [
        "block_sum_mended.cubin",
        "--checks",
        "sync",
        "--grid",
        "40000",
        "--block",
        "256",
        "--arg",
        "buffer:4096",
        "--arg",
        "buffer:16",
        "--arg",
        "u32:100000000",
    ];
    let (code, out, _) = check(&arguments);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("========= fault: "), "{out}");
    // What a check has found is not told a second time.
    let checked = arguments.map(|word| if word == "sync" { "sync,memory" } else { word });
    let (code, out, _) = check(&checked);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("========= memory: reads ") && !out.contains("fault: "), "{out}");
}

#[test]
fn a_kernel_that_outlasts_the_deadline_is_a_mistake() {
    // It polls a flag that nothing sets.
    let cubin = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/kernels/suite.sm_87.cubin");
    let (code, out, _) = check(&[
        &cubin.to_string_lossy(),
        "--kernel",
        "await",
        "--deadline",
        "1",
        "--grid",
        "1",
        "--block",
        "1",
        "--arg",
        "buffer:64:zero",
        "--arg",
        "buffer:64",
        "--arg",
        "u32:4294967295",
    ]);
    assert_eq!(code, 3, "{out}");
    assert!(out.contains("========= fault: a launch had not ended when the program did"), "{out}");
}

#[test]
fn mistakes_of_the_command_line_are_answered_with_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("written");
        path.to_string_lossy().into_owned()
    };
    let ptx = write("k.ptx", "//\n.version 8.5\n.target sm_86, debug\n.address_size 64\n");
    let source = write("k.cu", "__global__ void k() {}\n");
    let text = write("notes.txt", "keep this\n");
    let program = assert_cmd::cargo::cargo_bin!("nvdiag").to_string_lossy().into_owned();
    let turing = format!("{}/tests/data/find-a-race/none.cubin", env!("CARGO_MANIFEST_DIR"));
    for (arguments, told) in [
        (vec![ptx.as_str()], "ptxas -arch=sm_86 -lineinfo"),
        (vec![&source], "nvcc -cubin -arch=sm_87 -lineinfo"),
        (vec![&program], "nvdiag check -- "),
        (vec![&text], "cannot use"),
        (vec![&turing], "cannot read"),
        (vec!["--", "no-such-program"], "there is no program no-such-program"),
        (vec!["--grid", "2", "--", "true"], "--grid is of a kernel"),
        (vec!["block_sum.cubin"], "takes 3 parameters (of 8, 8, 4 bytes), and 0 are given"),
        (
            vec!["block_sum.cubin", "--arg", "buffer:4", "--arg", "u32:1", "--arg", "u32:1"],
            "parameter 1 of block_sum has 8 bytes, and u32 4",
        ),
        (vec!["block_sum.cubin", "--kernel", "other"], "there are: block_sum"),
        (vec!["block_sum.cubin", "--arg", "half:1"], "expected buffer:BYTES"),
        (vec!["--checks", "races", "--", "true"], "no check is called"),
        (vec!["--seeds", "3..1", "--", "true"], "as in 1..8"),
        (vec!["--report", &text, "--", "true"], "not a report of nvdiag check"),
        (vec![], "Usage: nvdiag check"),
    ] {
        let (code, out, err) = check(&arguments);
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {err}");
        assert!(err.contains(told), "{arguments:?}: {told}: {err}");
    }
    assert_eq!(fs::read_to_string(text).expect("it is there"), "keep this\n");
    let (code, _, err) = sum("block_sum.cubin", &["--print", "2"]);
    assert!(code == 2 && err.contains("argument 2 is no buffer"), "{err}");
}

#[test]
fn cubins_of_each_architecture_run_on_their_sms() {
    let cubins = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
    for sm in [80, 87, 90] {
        let cubin = cubins.join(format!("provoke.sm_{sm}.cubin")).to_string_lossy().into_owned();
        let kernel = ["--kernel", "load_vector", "--block", "1", "--json"];
        let arguments = ["--arg", "buffer:64:ramp", "--arg", "buffer:64"];
        let (code, out, err) = check(&[&[cubin.as_str()], &kernel[..], &arguments[..]].concat());
        let document: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("sm_{sm}: {err}"));
        assert_eq!((code, &document["runs"][0]["launches"]), (0, &1.into()), "sm_{sm}: {document:#}");
    }
}
