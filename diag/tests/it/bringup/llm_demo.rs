//! `llm-demo` as a child that is killed, hangs, fails or prints something else: an error that names it, in time.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use ga10b_sim::{Sim, SimConfig};
use hcq::Selector;
use nvdiag::bringup::figures::{self, Measured};
use nvdiag::bringup::llm_demo::{Bench, Error, INSTALL, LlmDemo, NOT_INSTALLED};
use nvdiag::bringup::outcome::Status;
use nvdiag::bringup::report::Bringup;
use nvdiag::bringup::rig::Rig;
use nvdiag::bringup::steps::run;

use super::installed::{self, script};
use super::{Silent, fact, nvdiag_at, step};

/// A script that has as long as a hanging one needs to be noticed.
fn program(name: &str) -> LlmDemo {
    LlmDemo { limit: Duration::from_millis(700), ..LlmDemo::new(script(name)) }
}

fn rig(llm_demo: Option<LlmDemo>) -> Rig<'static> {
    let mut rig = Rig::software(Sim::new(SimConfig::default()), &Silent);
    (rig.llm_demo, rig.soak) = (llm_demo, Duration::from_millis(200));
    rig
}

const TESTS: Bench = Bench { prompt: 8, decode: 4, repeats: 3, engine: Some("batch") };

#[test]
fn what_a_good_one_prints_is_read() {
    let good = program("good");
    assert_eq!(good.verify(Selector::Sim, "batch", 8).expect("within bounds"), "NMSE 1.250e-06");
    good.same_tokens(Selector::Sim, 4).expect("the same tokens");
    let figures = good.bench(Selector::Sim, &TESTS).expect("figures");
    let figure = &figures[0];
    assert_eq!((figures.len(), figure.name.as_str(), figure.p50), (1, "embedded model, tg4", 20.0));
    assert_eq!((figure.worst, figure.unit.as_str()), (19.5, "tokens/s"));
}

#[test]
fn what_goes_wrong_with_the_child_is_an_error_with_a_name() {
    for (name, said) in [
        ("past-bounds", " found a difference: "),
        (
            "fails",
            ": its process ended with exit status: 1: llm-demo: cannot open the device \"sim\": no memory",
        ),
        ("killed", ": its process was ended by signal 9"),
        ("hangs", ": its process did not end within 700ms and was killed"),
        ("hangs-in-a-child", ": its process did not end within 700ms and was killed"),
        ("floods", ": its process did not end within 700ms and was killed"),
        ("garbage", " printed something else than a result: "),
        ("silent", " printed something else than a result: "),
    ] {
        let began = Instant::now();
        let llm_demo = program(name);
        let errors: [Option<Error>; 3] = [
            llm_demo.verify(Selector::Sim, "stream", 8).err(),
            llm_demo.same_tokens(Selector::Sim, 4).err(),
            llm_demo.bench(Selector::Sim, &TESTS).err(),
        ];
        for (error, command) in errors.into_iter().zip(["verify", "verify --greedy", "bench"]) {
            let text = error.unwrap_or_else(|| panic!("{name}, {command}")).to_string();
            assert!(text.starts_with(&format!("llm-demo {command}{said}")), "{name}: {text}");
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{name}: {:?}", began.elapsed());
    }
    let missing = program("no-such-file").bench(Selector::Sim, &TESTS);
    assert!(matches!(missing, Err(Error::Start("bench", _))), "{missing:?}");
    assert!(matches!(program("no-program").bench(Selector::Sim, &TESTS), Err(Error::Start(..))));
}

#[test]
fn measurements_of_another_form_are_refused_by_what_is_wrong() {
    for (name, said) in [
        ("other-schema", "its schema is llm-demo.bench/9, and llm-demo.bench/2 is read"),
        ("no-rate", "a rate of tg4 that is none"),
        ("no-test", "no test"),
    ] {
        let text = program(name).bench(Selector::Sim, &TESTS).expect_err(name).to_string();
        assert!(text.ends_with(said), "{name}: {text}");
    }
}

#[test]
fn who_leaves_a_child_behind_is_not_waited_for() {
    let began = Instant::now();
    let figures = program("leaves-a-child").bench(Selector::Sim, &TESTS).expect("what it printed");
    assert_eq!(figures[0].p50, 1.5);
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}

#[test]
fn what_a_difference_is_stands_in_the_error() {
    let steps = program("past-bounds").verify(Selector::Sim, "stream", 8).expect_err("a difference");
    assert!(steps.to_string().ends_with(": NMSE 7.500e-01 at most 1.0e-05; PAST THE BOUNDS"), "{steps}");
    let tokens = program("past-bounds").same_tokens(Selector::Sim, 4).expect_err("a difference").to_string();
    assert!(
        tokens.contains("stream chose 3") && tokens.ends_with("DIFFERENT after 3 of 4 tokens"),
        "{tokens}"
    );
}

#[test]
fn steps_without_the_program_are_not_run_and_no_failure() {
    for number in [20, 21] {
        let result = run(step(number), &rig(None));
        assert_eq!(result.status, Status::Skipped, "{result:#?}");
        assert_eq!(
            (result.reason.as_deref(), result.remedy.as_deref()),
            (Some(NOT_INSTALLED), Some(INSTALL))
        );
    }
    let Measured { figures, unmeasured } = figures::measure(&rig(None)).expect("a device");
    assert!(figures.iter().any(|figure| figure.name == "launch and wait"), "{figures:?}");
    assert_eq!(
        unmeasured.as_deref(),
        Some("tokens per second: not run: llm-demo is not installed beside nvdiag")
    );
}

#[test]
fn figures_of_launches_remain_where_the_child_hangs() {
    let Measured { figures, unmeasured } = figures::measure(&rig(Some(program("hangs")))).expect("a device");
    assert!(figures.iter().all(|figure| figure.unit != "tokens/s") && figures.len() == 6, "{figures:?}");
    let why = unmeasured.expect("no tokens per second");
    assert!(why.starts_with("tokens per second: llm-demo bench: its process did not end"), "{why}");
}

#[test]
fn the_steps_say_what_the_program_found() {
    let result = run(step(20), &rig(Some(program("good"))));
    assert_eq!(result.status, Status::Passed, "{result:#?}");
    let said = "8 steps within the bounds of the CPU reference, NMSE 1.250e-06, ";
    assert!(fact(&result, "batch").value.starts_with(said), "{result:#?}");
    assert!(fact(&result, "stream").value.starts_with(said), "{result:#?}");
    let result = run(step(21), &rig(Some(program("fails"))));
    assert_eq!(result.status, Status::Failed, "{result:#?}");
    let reason = result.reason.unwrap_or_default();
    assert!(reason.starts_with("round 0: llm-demo verify --greedy: its process ended with"), "{reason}");
}

#[test]
fn it_is_looked_for_beside_the_program_and_then_in_path() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    for (name, mode) in [("own", 0o755), ("first", 0o644), ("second", 0o755)] {
        fs::create_dir(at(name)).expect("a folder");
        fs::write(at(name).join("llm-demo"), "").expect("a file");
        fs::set_permissions(at(name).join("llm-demo"), fs::Permissions::from_mode(mode))
            .expect("its own file");
    }
    fs::create_dir_all(at("third/llm-demo")).expect("a folder");
    let find = |own: Option<&Path>, path: &str| {
        LlmDemo::find(own, OsStr::new(path))
            .map(|found| found.file.strip_prefix(folder.path()).unwrap().to_owned())
    };
    let [first, second, third] = ["first", "second", "third"].map(|name| at(name).display().to_string());
    assert_eq!(find(Some(&at("own")), &second).as_deref(), Some(Path::new("own/llm-demo")));
    // One that may not be started is none, nor is a folder.
    let path = format!("{first}:{third}:{second}");
    assert_eq!(find(Some(&at("first")), &path).as_deref(), Some(Path::new("second/llm-demo")));
    // The second by a relative name.
    let up = "../".repeat(std::env::current_dir().expect("a folder").components().count());
    let relative = format!("{up}{}", second.trim_start_matches('/'));
    assert!(Path::new(&relative).join("llm-demo").exists(), "{relative}");
    for path in ["", ".", &relative, &first, &third] {
        assert_eq!(find(None, path), None, "{path}");
    }
}

#[test]
fn a_report_says_that_the_program_is_not_installed() {
    let all = ["--device", "sim", "--from", "20", "--no-report", "--json"];
    let (code, out, err) = nvdiag_at(&installed::nvdiag(None), &all);
    assert_eq!(code, 0, "{err}");
    let document: serde_json::Value = serde_json::from_str(&out).expect("one JSON document");
    for step in document["steps"].as_array().expect("steps") {
        assert_eq!((&step["status"], &step["reason"]), (&"skipped".into(), &NOT_INSTALLED.into()));
    }
    assert_eq!(document["figures"].as_array().map(Vec::len), Some(6));
    let bringup: Bringup = serde_json::from_value(document).expect("a report");
    assert!(bringup.unmeasured.is_some_and(|why| why.ends_with(NOT_INSTALLED)));
    let (_, out, _) = nvdiag_at(&installed::nvdiag(None), &all[..5]);
    assert!(out.contains(&format!("because: {NOT_INSTALLED}\n")), "{out}");
    assert!(
        out.contains("not measured: tokens per second: not run") && !out.contains("--soak says"),
        "{out}"
    );
    assert!(out.ends_with("0 passed, 0 failed, 2 skipped\n"), "{out}");
}

#[test]
fn a_step_of_the_program_fails_where_the_child_does() {
    let (code, out, _) = nvdiag_at(
        &installed::nvdiag(Some("past-bounds")),
        &["--device", "sim", "--from", "20", "--no-report"],
    );
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("found: engine batch: llm-demo verify found a difference: NMSE"), "{out}");
    assert!(
        out.contains("because: it rests on step 20, which did not pass") && !out.contains("Figures"),
        "{out}"
    );
    let (code, out, _) = nvdiag_at(&installed::nvdiag(Some("garbage")), &["--device", "sim", "--only", "20"]);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("llm-demo verify printed something else than a result"), "{out}");
    assert!(!out.contains('\u{1b}'), "what a terminal obeys: {out:?}");
}
