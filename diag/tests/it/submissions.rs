//! `nvdiag trace --submissions`: shows exactly the submissions, for every program and every way of reading.
//!
//! Where programs cannot be traced (another machine's emulator) the tests say so and pass.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::{Value, json};

/// Folder of the build: this test is in `deps` under it.
fn build_folder() -> PathBuf {
    let mut path = std::env::current_exe().expect("this test");
    path.pop();
    path.pop();
    path
}

fn library(name: &str) -> String {
    let places = [build_folder().join("deps").join(name), build_folder().join(name)];
    let found = places.iter().find(|path| path.exists()).unwrap_or_else(|| panic!("{name} is not built"));
    found.to_string_lossy().into_owned()
}

fn nvdiag(arguments: &[&str]) -> Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(arguments).output().expect("the binary starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Held by a test that keeps all cores busy, and by one that compares polled with fetched entries.
static CORES: std::sync::Mutex<()> = std::sync::Mutex::new(());

/// Whether programs can be traced here.
fn can_trace() -> bool {
    let run = nvdiag(&["trace", "--", "true"]);
    if !run.status.success() {
        ga10b_oracles::skipped(format_args!("programs cannot be traced here: {}", text(&run.stderr).trim()));
    }
    run.status.success()
}

/// Way in which a program gets its GPU, and in which its submissions are reported.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// The software ga10b of hcq, which reports the entries it fetches.
    Inside,
    /// libnvgpu_sim.so, which does too.
    Preloaded,
    /// libnvgpu_sim.so, whose rings libnvdiag_capture.so polls.
    Polled,
}

/// Traces a program; its own output, and the trace.
fn trace(way: Way, options: &[&str], program: &[&str]) -> (Output, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let out = folder.path().join("out").to_string_lossy().into_owned();
    let (sim, capture) = (library("libnvgpu_sim.so"), library("libnvdiag_capture.so"));
    let environment = match way {
        Way::Inside => vec!["HCQ_DEVICE=sim".to_owned()],
        Way::Preloaded => vec!["HCQ_DEVICE=nvgpu".to_owned(), format!("LD_PRELOAD={sim}")],
        Way::Polled => vec![
            "HCQ_DEVICE=nvgpu".to_owned(),
            format!("LD_PRELOAD={capture}:{sim}"),
            "NVGPU_SIM_SUBMISSIONS=0".to_owned(),
        ],
    };
    let environment: Vec<&str> = environment.iter().map(String::as_str).collect();
    let all =
        [&["trace", "--submissions", "-o", &out], options, &["--", "env"], &environment, program].concat();
    let run = nvdiag(&all);
    (run, std::fs::read_to_string(out).unwrap_or_default())
}

/// The submissions of a trace in JSON.
fn submissions(trace: &str) -> Vec<Value> {
    let lines = trace.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON lines"));
    lines.filter(|event| event["call"] == "submission").collect()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

/// The work of a kind in a submission, in order.
fn work<'v>(event: &'v Value, kind: &str) -> Vec<&'v Value> {
    let entries = list(&event["decoded"]["entries"]).iter();
    entries.flat_map(|entry| list(&entry["work"])).filter(|work| work["kind"] == kind).collect()
}

/// The program that prints its own submissions.
fn submits() -> String {
    build_folder().join("examples/submits").to_string_lossy().into_owned()
}

/// The client in C, which does not use this project.
fn client(folder: &Path) -> String {
    let program = folder.join("client").to_string_lossy().into_owned();
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O1", "-o", &program, "-I", &format!("{root}/nvgpu-sys/include")]);
    let built = compiler.arg(format!("{root}/sim/preload/tests/programs/client.c")).output().expect("cc");
    assert!(built.status.success(), "{}", text(&built.stderr));
    program
}

#[test]
fn launches_are_those_that_the_program_says_it_submitted() {
    if !can_trace() {
        return;
    }
    for way in [Way::Inside, Way::Preloaded, Way::Polled] {
        let (run, trace) = trace(way, &["--json"], &[&submits(), "20", "7"]);
        assert_eq!(run.status.code(), Some(7), "{way:?}: {}", text(&run.stderr));
        let said: Vec<Value> =
            text(&run.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        assert_eq!(said.len(), 22);
        let mut by_channel: BTreeMap<u64, Vec<Value>> = BTreeMap::new();
        for event in submissions(&trace) {
            for launch in work(&event, "launch") {
                assert_eq!(launch["kernel"], "vadd_f32", "{way:?}");
                assert_eq!(
                    (&launch["arguments_size_bytes"], &launch["arguments"][3]),
                    (&json!(28), &json!(1))
                );
                assert_eq!(
                    (&launch["source"], &launch["error"]),
                    (&json!("memory"), &Value::Null),
                    "{way:?}"
                );
                let (qmd, what) = (&launch["qmd"], &launch["qmd"]["launch"]);
                assert_eq!((&qmd["version"], &qmd["problems"]), (&json!("3.0"), &json!([])));
                let seen = json!({ "grid": what["grid"], "block": what["block"],
                    "registers": what["registers"], "program": what["program"] });
                by_channel
                    .entry(event["channel"]["number"].as_u64().expect("a number"))
                    .or_default()
                    .push(seen);
            }
        }
        let said_of = |queue: u64| -> Vec<Value> {
            let of = said.iter().filter(|launch| launch["queue"] == queue).cloned();
            of.map(|mut launch| {
                launch.as_object_mut().expect("an object").remove("queue");
                launch
            })
            .collect()
        };
        let seen: Vec<&Vec<Value>> = by_channel.values().collect();
        assert_eq!(seen.len(), 2, "{way:?}");
        let expected = [said_of(1), said_of(2)];
        let ordered = seen[0] == &expected[0] && seen[1] == &expected[1];
        let swapped = seen[0] == &expected[1] && seen[1] == &expected[0];
        assert!(ordered || swapped, "{way:?}: {seen:?} and not {expected:?}");
    }
}

#[test]
fn entries_methods_and_semaphores_of_a_client_in_c_are_those_of_its_source() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = client(folder.path());
    for way in [Way::Preloaded, Way::Polled] {
        let (run, trace) = trace(way, &["--json"], &[&program]);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        let found = submissions(&trace);
        let entries: Vec<&Value> =
            found.iter().flat_map(|event| list(&event["decoded"]["entries"])).collect();
        let [first, second] = entries.as_slice() else { panic!("{way:?}: {trace}") };
        let channel = json!({ "number": 1, "class": "0xc76f", "handle": "0x1ff", "ring_entries": 512 });
        assert_eq!((&found[0]["channel"], &found[0]["not_seen"]), (&channel, &json!(0)));
        assert_eq!(found[0]["decoded"]["class_name"], "AMPERE_CHANNEL_GPFIFO_B");
        for (index, words, entry) in [(0, 17, first), (1, 15, second)] {
            assert_eq!((&entry["index"], &entry["action"]), (&json!(index), &json!("fetch")));
            assert_eq!((&entry["size_bytes"], &entry["read_bytes"]), (&json!(words * 4), &json!(words * 4)));
            assert_eq!(entry["problems"], json!([]));
        }
        // The second segment follows the first, as `submit` of the client has it.
        let address = |entry: &Value| {
            let text =
                entry["address"].as_str().and_then(|text| text.strip_prefix("0x")).expect("an address");
            u64::from_str_radix(text, 16).expect("a number")
        };
        assert_eq!(address(second), address(first) + 17 * 4);
        let writes: Vec<&Value> = list(&first["commands"]).iter().flat_map(|c| list(&c["writes"])).collect();
        let names: Vec<&str> = writes.iter().filter_map(|write| write["name"].as_str()).collect();
        let expected = [
            "SET_OBJECT",
            "OFFSET_IN_UPPER",
            "OFFSET_IN_LOWER",
            "OFFSET_OUT_UPPER",
            "OFFSET_OUT_LOWER",
            "LINE_LENGTH_IN",
            "LAUNCH_DMA",
            "SEM_ADDR_LO",
            "SEM_ADDR_HI",
            "SEM_PAYLOAD_LO",
            "SEM_PAYLOAD_HI",
            "SEM_EXECUTE",
        ];
        assert_eq!(names, expected);
        let values: Vec<&str> =
            [0, 5, 6, 9, 11].iter().filter_map(|i| writes[*i]["value"].as_str()).collect();
        assert_eq!(values, ["0xc7b5", "0x100000", "0x182", "0x7", "0x2100001"]);
        let copy = &first["work"][0];
        assert_eq!(
            (&copy["kind"], &copy["size_bytes"], &copy["lines"]),
            (&json!("copy"), &json!(1 << 20), &json!(1))
        );
        for (entry, payload) in [(first, "0x7"), (second, "0x8")] {
            let [.., semaphore] = list(&entry["work"]) else { panic!("{entry}") };
            let shown = ["unit", "operation", "payload"].map(|key| &semaphore[key]);
            assert_eq!(shown, [&json!("host"), &json!("RELEASE"), &json!(payload)]);
            assert_eq!(semaphore["options"], json!(["RELEASE_WFI=EN", "RELEASE_TIMESTAMP=EN"]));
        }
    }
}

/// The lines of a trace without what says which entries came together: on a busy machine a poll finds the
/// entries of two submissions.
fn entry_by_entry(lines: &[String]) -> Vec<String> {
    let of_line = |line: &String| match serde_json::from_str::<Value>(line) {
        Ok(event) if event["call"] == "submission" => {
            list(&event["decoded"]["entries"]).iter().map(ToString::to_string).collect()
        }
        Err(_) if line.starts_with("submission to queue") => Vec::new(),
        _ => vec![line.clone()],
    };
    lines.iter().flat_map(of_line).collect()
}

/// A line for each launch, copy and semaphore, without calls; and the arguments where more is asked for.
#[test]
fn each_launch_is_a_line_with_its_kernel_and_each_copy_and_semaphore_is_one() {
    if !can_trace() {
        return;
    }
    let (run, lines) = trace(Way::Inside, &[], &[&submits(), "2"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let said: Vec<Value> =
        text(&run.stdout).lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let launches: Vec<&str> = lines.lines().filter(|line| line.contains(" launch ")).collect();
    assert_eq!(launches.len(), said.len(), "{lines}");
    for (line, said) in launches.iter().zip(&said) {
        let [queue, grid, block] = [&said["queue"], &said["grid"][0], &said["block"][0]];
        let end = format!("launch  vadd_f32  grid {grid}x1x1  block {block}x1x1  shared 0 B  arguments 28 B");
        assert!(line.contains(&format!(" queue {queue} ")) && line.contains(&end), "{line}");
    }
    let acquires: Vec<&str> = lines.lines().filter(|line| line.contains(" acquire ")).collect();
    assert_eq!(acquires.len(), 1, "{lines}");
    let (_, fence) = acquires[0].split_once("acquire ").expect("an acquire");
    let (address, payload) = fence.trim_end_matches("  host").split_once(" >= ").expect("a timeline");
    let release = format!("  releases {address} = {payload}");
    assert!(acquires[0].contains(" queue 2 ") && lines.matches(&release).count() == 1, "{lines}");
    assert!(lines.lines().all(|line| line.contains(" queue ")), "{lines}");
    assert!(!lines.contains("SEND_PCAS_A"), "{lines}");

    let (_, all) = trace(Way::Preloaded, &["-v"], &[&submits(), "1"]);
    for part in ["ioctl(", "SEND_PCAS_A", "CTA_RASTER_WIDTH", "MAP_SHARED", "PROT_READ|PROT_WRITE"] {
        assert!(all.contains(part), "{part} in {all}");
    }
    let arguments = all.lines().find(|line| line.contains(" arguments (0x")).expect("the arguments");
    assert!(arguments.ends_with(", 1)") && arguments.matches("0x").count() == 3, "{arguments}");
}

#[test]
fn a_time_line_has_queues_as_rows_and_fences_as_arrows() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.json");
    let option = ["--perfetto", &file.to_string_lossy()].map(str::to_owned);
    let (run, _) = trace(Way::Preloaded, &[&option[0], &option[1]], &[&submits(), "3"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let written = std::fs::read(&file).expect("a time line");
    let events: Vec<Value> = serde_json::from_slice(&written).expect("one JSON document");
    let row_of = |name: &str| {
        let is_it = |event: &&Value| {
            event["ph"] == "M" && event["args"]["name"].as_str().is_some_and(|row| row.starts_with(name))
        };
        events.iter().find(is_it).map(|event| event["tid"].clone()).unwrap_or_else(|| panic!("no {name}"))
    };
    let slices = |row: &Value, name: &str| {
        events.iter().filter(|e| e["ph"] == "X" && e["tid"] == *row && e["name"] == name).count()
    };
    let (first, second) = (row_of("queue 1"), row_of("queue 2"));
    assert_eq!((slices(&first, "vadd_f32"), slices(&second, "vadd_f32")), (3, 2));
    assert_eq!(slices(&row_of("thread "), "NVGPU_IOCTL_CHANNEL_SETUP_BIND"), 2);
    // The second queue waits for the first.
    let ends = |phase: &str| -> Vec<&Value> {
        events.iter().filter(|e| e["cat"] == "fence" && e["ph"] == phase).map(|e| &e["tid"]).collect()
    };
    assert_eq!((ends("s"), ends("f")), (vec![&first], vec![&second]));
    let full = nvdiag(&["trace", "--perfetto", "/dev/full", "--", "true"]);
    assert_eq!(full.status.code(), Some(2));
    assert!(text(&full.stderr).contains("cannot write /dev/full"), "{}", text(&full.stderr));
}

#[test]
fn two_runs_are_the_same_once_what_varies_has_names() {
    let _cores = CORES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = client(folder.path());
    for format in [&["-v", "--normalize"][..], &["--normalize", "--json"]] {
        let runs = [Way::Preloaded, Way::Preloaded, Way::Polled].map(|way| {
            let (run, trace) = trace(way, format, &[&program]);
            assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
            // The first line of JSON is the header, with the command.
            trace.lines().filter(|line| !line.contains("\"schema\"")).map(str::to_owned).collect::<Vec<_>>()
        });
        assert!(runs[0].len() > 20, "{:?}", runs[0]);
        assert_eq!(runs[0], runs[1]);
        let [fetched, polled] = [&runs[0], &runs[2]].map(|lines| entry_by_entry(lines));
        assert!(fetched.len() > 20, "{fetched:?}");
        assert_eq!(fetched, polled, "polled as fetched");
    }
    let [one, two] = ["3", "4"].map(|count| trace(Way::Inside, &["--normalize"], &[&submits(), count]).1);
    assert!(one.contains("vadd_f32  grid 3x1x1"), "{one}");
    assert_ne!(one, two, "another number of launches is no normal difference");
}

#[test]
fn saved_qmds_are_compared_and_past_the_limit_entries_are_counted() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let qmds = folder.path().join("qmds");
    let saved = ["--qmd", &qmds.to_string_lossy(), "--json"].map(str::to_owned);
    let saved: Vec<&str> = saved.iter().map(String::as_str).collect();
    let (run, _) = trace(Way::Inside, &saved, &[&submits(), "2"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&qmds).expect("the folder").map(|entry| entry.expect("a file").path()).collect();
    files.sort();
    assert_eq!(files.len(), 4);
    let names: Vec<String> = files.iter().map(|path| path.to_string_lossy().into_owned()).collect();
    let diff = nvdiag(&["qmd", "--diff", &names[0], &names[1]]);
    assert_eq!(diff.status.code(), Some(1), "{}", text(&diff.stderr));
    assert!(text(&diff.stdout).contains("CTA_RASTER_WIDTH"), "{}", text(&diff.stdout));

    let count = |options: &[&str]| {
        let (run, trace) = trace(Way::Inside, options, &[&submits(), "30"]);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
        let found = submissions(&trace);
        let sum = |key: &str| found.iter().filter_map(|event| event[key].as_u64()).sum::<u64>();
        let read: usize = found.iter().map(|event| list(&event["entries"]).len()).sum();
        (read as u64, sum("not_read"))
    };
    let (all, none) = count(&["--json"]);
    let (some, rest) = count(&["--json", "--submission-limit", "4"]);
    assert_eq!((none, some, some + rest), (0, 5, all), "four of the first queue, and the one of the second");
}

#[test]
fn a_log_shows_the_same_again_and_damage_is_shown_in_its_place() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let log = folder.path().join("log").to_string_lossy().into_owned();
    let (run, live) = trace(Way::Inside, &["-v", "--log", &log], &[&submits(), "2"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run.stderr));
    let again = nvdiag(&["trace", "--submissions", "-v", "--replay", &log]);
    assert_eq!((again.status.code(), text(&again.stdout)), (Some(0), live.clone()));
    assert!(live.contains("(memory)\n") && live.contains("SEND_SIGNALING_PCAS2_B"), "{live}");

    // The first segment begins with a header that does not exist.
    let written = std::fs::read_to_string(&log).expect("a log");
    let at = written.find("\"bytes\":\"").expect("a segment") + "\"bytes\":\"".len();
    let damaged = [&written[..at], "000000c0", &written[at + 8..]].concat();
    std::fs::write(&log, damaged).expect("written");
    let shown = text(&nvdiag(&["trace", "--submissions", "-v", "--replay", &log]).stdout);
    assert!(shown.contains("the channel stops (PBENTRY)"), "{shown}");
    // Later launches, in the same segment and in others, are there.
    let launches = |text: &str| text.matches("SEND_SIGNALING_PCAS2_B").count();
    assert_eq!(launches(&shown), launches(&live));

    let cut = text(&nvdiag(&["trace", "--submissions", "-v", "--replay", &log, "--normalize"]).stdout);
    assert!(cut.contains("QMD v3.0 at A") && !cut.contains("QMD v3.0 at 0x"), "{cut}");
    let calls = nvdiag(&["trace", "--replay", &log]).stdout;
    assert!(!text(&calls).contains("launch"), "{}", text(&calls));
}

#[test]
fn a_missing_library_is_told_where_it_was_needed_and_nowhere_else() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = client(folder.path());
    let preload = format!("LD_PRELOAD={}", library("libnvgpu_sim.so"));
    // Beside this one no library lies.
    let alone = crate::installed::nvdiag(None);
    let why = |program: &[&str]| {
        let mut command = Command::new(&alone);
        let run = command.args(["trace", "--submissions", "--summary", "--"]).args(program).output();
        text(&run.expect("the binary starts").stderr)
    };
    let missing = "libnvdiag_capture.so is neither beside nvdiag nor in ../lib";
    for program in [&["true"][..], &["env", "NVGPU_SIM_SUBMISSIONS=1", &preload, &program]] {
        assert!(!why(program).contains("libnvdiag_capture"), "{}", why(program));
    }
    let told = why(&["env", "NVGPU_SIM_SUBMISSIONS=0", &preload, &program]);
    assert!(told.contains(missing) && told.contains("try: cargo build -p ga10b-capture-preload"), "{told}");
}

#[test]
fn what_cannot_be_done_is_refused() {
    let run = nvdiag(&["trace", "--submissions", "--pid", "1"]);
    assert_eq!(run.status.code(), Some(2));
    let run = nvdiag(&["trace", "--qmd", "/nonexistent/folder", "--", "true"]);
    assert_eq!(run.status.code(), Some(2));
    assert!(text(&run.stderr).contains("--submissions --qmd DIR"), "{}", text(&run.stderr));
}

#[test]
fn a_channel_whose_ring_nobody_reads_is_named() {
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = client(folder.path());
    let preload = format!("LD_PRELOAD={}", library("libnvgpu_sim.so"));
    let traced = |reports: &str| {
        let reports = format!("NVGPU_SIM_SUBMISSIONS={reports}");
        nvdiag(&["trace", "--submissions", "--summary", "--", "env", &reports, &preload, &program])
    };
    let silent = traced("0");
    let why = text(&silent.stderr);
    assert!(why.contains("1 channel, whose submissions are not seen: libnvdiag_capture.so"), "{why}");
    let seen = traced("1");
    assert!(!text(&seen.stderr).contains("not seen"), "{}", text(&seen.stderr));
    // They are no calls.
    let last = |run: &Output| text(&run.stdout).lines().last().unwrap_or_default().to_owned();
    let (calls, with) = (last(&silent), last(&seen));
    assert!(with.starts_with(&format!("{calls}; ")) && with.contains(" submission"), "{calls}: {with}");
}

#[test]
fn threads_that_make_channels_at_once_run_to_their_end() {
    let _cores = CORES.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if !can_trace() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("maps").to_string_lossy().into_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/maps.c");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O1", "-pthread", "-o", &program, "-I"]);
    compiler.args([concat!(env!("CARGO_MANIFEST_DIR"), "/../nvgpu-sys/include"), source]);
    let built = compiler.output().expect("cc");
    assert!(built.status.success(), "{}", text(&built.stderr));
    let (run, _) = trace(Way::Polled, &["--summary"], &["timeout", "60", &program]);
    assert_eq!(
        (run.status.code(), text(&run.stdout)),
        (Some(0), "done\n".to_owned()),
        "{}",
        text(&run.stderr)
    );
}
