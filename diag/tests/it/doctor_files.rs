//! `nvdiag doctor --root` where files are not as they should be: existing files are not reported as absent,
//! unknown facts are not asserted, and nothing waits.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::stat::Mode;
use nvdiag::doctor::{Machine, Node, Unread, examine};
use serde_json::Value;

use crate::machines::{self, machine, write};

/// Exit code, stdout and stderr; the program is not waited for longer than a minute.
fn doctor(root: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(["doctor", "--json", "--root"]).arg(root).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut program = command.spawn().expect("the binary starts");
    let began = Instant::now();
    while program.try_wait().expect("a child of ours").is_none() {
        if began.elapsed() > Duration::from_mins(1) {
            program.kill().expect("a child of ours");
            panic!("it waits for a file");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let run = program.wait_with_output().expect("its output");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (run.status.code(), text(run.stdout), text(run.stderr))
}

/// Status and finding of a check.
fn check(root: &Path, name: &str) -> (String, String) {
    let (_, out, err) = doctor(root);
    let document: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    let mut checks = document["checks"].as_array().expect("checks").iter();
    let found = checks.find(|c| c["name"] == name).unwrap_or_else(|| panic!("no {name}: {out}"));
    let text = |key: &str| found[key].as_str().expect("text").to_owned();
    (text("status"), text("found"))
}

/// Replaces a file by something else.
fn replace(root: &Path, path: &str, make: impl FnOnce(&Path)) {
    let path = root.join(path);
    let _ = fs::remove_file(&path);
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    make(&path);
}

fn pipe(path: &Path) {
    nix::unistd::mkfifo(path, Mode::S_IRUSR | Mode::S_IWUSR).expect("a pipe");
}

fn folder(path: &Path) {
    fs::create_dir(path).expect("a folder");
}

#[test]
fn a_pipe_in_the_place_of_a_file_is_named_and_not_waited_for() {
    const SAID: &str = "cannot be read: it is a pipe, and no regular file";
    for (path, name) in [
        ("etc/nv_tegra_release", "L4T release"),
        ("proc/sys/kernel/osrelease", "L4T release"),
        ("proc/device-tree/compatible", "chip"),
        ("dev/kmsg", "kernel log"),
        ("proc/meminfo", "CMA"),
        ("proc/meminfo", "memory"),
        ("etc/nvpmodel.conf", "power mode"),
        ("var/lib/nvpmodel/status", "power mode"),
        ("sys/class/devfreq/17000000.gpu/cur_freq", "GPU clock"),
        ("sys/kernel/debug/bpmp/debug/clk/emc/rate", "EMC clock"),
        ("sys/kernel/mm/transparent_hugepage/enabled", "huge pages"),
    ] {
        let dir = machine("r36.4-agx");
        write(dir.path(), "/sys/kernel/debug/bpmp/debug/clk/emc/max_rate", "3199000000\n");
        replace(dir.path(), path, pipe);
        let (status, found) = check(dir.path(), name);
        assert!(found.contains(SAID), "{path}: {found}");
        // The release is in a file of its own.
        assert!(status == "unknown" || path.ends_with("osrelease"), "{path}: {status}");
    }
    // Without these no finding about nodes would be right.
    for path in ["dev.txt", "proc/self/status"] {
        let dir = machine("r36.4-agx");
        replace(dir.path(), path, pipe);
        let (code, out, err) = doctor(dir.path());
        assert_eq!((code, out.as_str()), (Some(2), ""), "{path}");
        assert!(err.contains(path) && err.contains(SAID), "{path}: {err}");
    }
}

#[test]
fn a_release_file_that_names_none_is_not_said_to_be_absent() {
    let names_none: [&[u8]; 5] = [
        b"",
        b"\x00\xff\x1b[31m\x9f",
        b"R-36 (release), REVISION: 4.3\n",
        b"# R99999999999999999999 (release), REVISION: 4.3\n",
        b"# R36 (release), REVISION: -1\n",
    ];
    let told = |make: &dyn Fn(&Path)| {
        let dir = machine("r36.4-agx");
        replace(dir.path(), "etc/nv_tegra_release", make);
        check(dir.path(), "L4T release")
    };
    for text in names_none {
        let (status, found) = told(&|path| fs::write(path, text).expect("written"));
        assert_eq!(status, "unknown", "{found}");
        assert!(found.starts_with("/etc/nv_tegra_release is there, and names no release; kernel 5.15"));
    }
    let cannot = |make: &dyn Fn(&Path), why: &str| {
        let (status, found) = told(make);
        assert_eq!(status, "unknown", "{found}");
        assert!(found.starts_with(&format!("/etc/nv_tegra_release cannot be read: {why}")), "{found}");
    };
    cannot(&folder, "it is a folder");
    cannot(&|path| symlink("nv_tegra_release", path).expect("a link"), "Too many levels");
    cannot(&|path| symlink("/etc", path).expect("a link"), "it is a folder");
    let dir = machine("r36.4-agx");
    fs::remove_file(dir.path().join("etc/nv_tegra_release")).expect("removed");
    let (status, found) = check(dir.path(), "L4T release");
    assert_eq!((status.as_str(), found.starts_with("no /etc/nv_tegra_release")), ("good", true), "{found}");
}

/// Text of the release's file, of a release as a table names it.
fn release_file(name: &str) -> String {
    let (major, revision) = name.trim_start_matches('r').split_once('.').expect("r36.4.3");
    let revision = if revision.contains('.') { revision.to_owned() } else { format!("{revision}.0") };
    format!("# R{major} (release), REVISION: {revision}, GCID: 1\n")
}

#[test]
fn the_source_of_a_driver_was_read_for_the_releases_of_the_table_alone() {
    let table = Path::new(env!("CARGO_MANIFEST_DIR")).join("../nvgpu-sys/tests/data/releases.json");
    let table: Value = serde_json::from_slice(&fs::read(table).expect("the table")).expect("JSON");
    let read = table["sources"].as_object().expect("releases").keys().filter(|name| *name != "rel-36");
    let mut releases: Vec<&str> = read.map(String::as_str).collect();
    assert!(releases.contains(&"r36.4.3") && releases.contains(&"r35.6.0"));
    releases.extend(["r36.1", "r36.2.1", "r36.4.4", "r36.4.7", "r36.6", "r34.1", "r35.6.1", "r32.7.1"]);
    let dir = machine("r36.4-agx");
    for name in releases {
        write(dir.path(), "/etc/nv_tegra_release", &release_file(name));
        let (status, found) = check(dir.path(), "L4T release");
        let of_table = table["sources"].get(name).is_some();
        let told = match (name.starts_with("r36"), of_table) {
            (true, true) => ("good", "examined: the source of its driver"),
            (true, false) => ("unknown", "not examined"),
            (false, true) => ("bad", "its nvgpu has no NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT"),
            (false, false) => ("bad", "not among those that were compared, r35.1 to r35.6.0"),
        };
        assert_eq!((status.as_str(), found.contains(told.1)), (told.0, true), "{name}: {found}");
        assert_eq!(found.contains("JetPack 4"), name == "r32.7.1", "{name}: {found}");
    }
}

/// A way to damage a machine's files: the check that reads them, its status, and a part of its finding.
type Case = (fn(&Path), &'static str, &'static str, &'static str);

fn each_is_said<const N: usize>(cases: [Case; N]) {
    for (break_it, name, status, said) in cases {
        let dir = machine("r36.4-agx");
        break_it(dir.path());
        let (is, found) = check(dir.path(), name);
        assert_eq!((is.as_str(), found.contains(said)), (status, true), "{said}: {found}");
    }
}

#[test]
fn what_cannot_be_read_or_cannot_be_is_a_doubt_that_names_the_file() {
    let cases: [Case; 9] = [
        (
            |r| replace(r, "proc/meminfo", folder),
            "CMA",
            "unknown",
            "/proc/meminfo cannot be read: it is a folder",
        ),
        (
            |r| write(r, "/proc/meminfo", "CmaTotal: many kB\nCmaFree: 99999999999999999999 kB\n"),
            "CMA",
            "unknown",
            "/proc/meminfo states no size of CmaFree: \"99999999999999999999 kB\"",
        ),
        (
            |r| write(r, "/proc/meminfo", "MemTotal: 1 kB\nMemAvailable: 2 kB\n"),
            "memory",
            "unknown",
            "states more MemAvailable than MemTotal",
        ),
        (
            |r| write(r, "/proc/meminfo", "MemTotal: 1 kB\n"),
            "CMA",
            "unknown",
            "has no contiguous memory area",
        ),
        (
            |r| replace(r, "etc/nvpmodel.conf", folder),
            "power mode",
            "unknown",
            "/etc/nvpmodel.conf cannot be read",
        ),
        (
            |r| write(r, "/var/lib/nvpmodel/status", "pmode:9999 fmode:quiet\n"),
            "power mode",
            "unknown",
            "/etc/nvpmodel.conf lists no such mode",
        ),
        (
            |r| fs::remove_file(r.join("proc/sys/kernel/osrelease")).expect("removed"),
            "L4T release",
            "good",
            "/proc/sys/kernel/osrelease is not there",
        ),
        (
            |r| write(r, "/sys/class/devfreq/17000000.gpu/cur_freq", "18446744073709551615\n"),
            "GPU clock",
            "unknown",
            "cur_freq states no clock in Hz: \"18446744073709551615\"",
        ),
        (
            |r| write(r, "/sys/class/devfreq/17000000.gpu/max_freq", "0\n"),
            "GPU clock",
            "unknown",
            "the lowest allowed is above the highest",
        ),
    ];
    each_is_said(cases);
}

#[test]
fn an_empty_file_or_one_of_no_text_is_a_doubt_and_no_fact() {
    each_is_said([
        (|r| write(r, "/proc/meminfo", ""), "CMA", "unknown", "/proc/meminfo is empty or damaged"),
        (
            |r| write(r, "/proc/meminfo", "\u{1}\u{2}\n"),
            "memory",
            "unknown",
            "/proc/meminfo is empty or damaged",
        ),
        (|r| write(r, "/dev/kmsg", "\n"), "kernel log", "unknown", "/dev/kmsg cannot be read: it is empty"),
        (
            |r| write(r, "/dev/kmsg", "\0\u{1}x"),
            "kernel log",
            "unknown",
            "/dev/kmsg cannot be read: it is no text",
        ),
        (
            |r| write(r, "/sys/kernel/mm/transparent_hugepage/enabled", ""),
            "huge pages",
            "unknown",
            "transparent_hugepage/enabled names no choice: \"\"",
        ),
        (
            |r| write(r, "/sys/devices/system/cpu/cpufreq/policy4/scaling_governor", ""),
            "CPU governor",
            "unknown",
            "policy4/scaling_governor names none: \"\"",
        ),
        (
            |r| fs::remove_file(r.join("var/lib/nvpmodel/status")).expect("removed"),
            "power mode",
            "unknown",
            "the board's default counts, 2 (MODE_30W), tpc_pg_mask 0xf0",
        ),
    ]);
}

#[test]
fn the_device_tree_of_another_maker_is_no_jetson_whatever_files_were_left() {
    let dir = machine("r36.4-agx");
    fs::remove_file(dir.path().join("dev.txt")).expect("removed");
    let names = "raspberrypi,5-model-b\0brcm,bcm2712\0";
    write(dir.path(), "/proc/device-tree/compatible", names);
    let (code, out, _) = doctor(dir.path());
    let document: Value = serde_json::from_str(&out).expect("JSON");
    // nvidia.ko is among the files left over.
    assert_eq!((code, &document["platform"]), (Some(1), &"desktop".into()));
    fs::remove_dir_all(dir.path().join("sys/module/nvidia")).expect("removed");
    let (status, found) = check(dir.path(), "GPU");
    assert_eq!(status, "bad");
    assert!(found.ends_with("; the device tree names raspberrypi,5-model-b"), "{found}");
}

#[test]
fn a_listing_has_modes_as_stat_prints_them_one_node_a_line_and_says_what_is_no_device() {
    let ctrl = |mode: &str| {
        let dir = machine("r36.4-agx");
        let lines = format!("{mode} 0 44 /dev/nvgpu/igpu0/ctrl\ncrw-rw---- 0 44 /dev/nvmap\n");
        write(dir.path(), "dev.txt", &lines);
        check(dir.path(), "control node")
    };
    for (mode, found) in [
        ("crw-rw-rw-", "/dev/nvgpu/igpu0/ctrl can be opened"),
        ("crwsrwsrwt", "/dev/nvgpu/igpu0/ctrl can be opened"),
        ("crwSrwSrwT", "/dev/nvgpu/igpu0/ctrl can be opened"),
        ("crwS--S--T", "/dev/nvgpu/igpu0/ctrl may not be opened (mode 600, group video)"),
        ("crwx--x--t", "/dev/nvgpu/igpu0/ctrl may not be opened (mode 711, group video)"),
        ("-rw-rw-rw-", "/dev/nvgpu/igpu0/ctrl is there, and is no device"),
        ("drwxrwxrwx", "/dev/nvgpu/igpu0/ctrl is there, and is no device"),
    ] {
        assert_eq!(ctrl(mode).1, found, "{mode}");
    }
    // Without a listing regular files stand for the nodes, and folders do not.
    let dir = machine("r36.4-agx");
    fs::remove_file(dir.path().join("dev.txt")).expect("removed");
    write(dir.path(), "/dev/nvgpu/igpu0/ctrl/x", "");
    assert_eq!(check(dir.path(), "control node").1, "/dev/nvgpu/igpu0/ctrl is there, and is no device");
    for (line, said) in [
        ("crw-rw---- 0 44 /dev/nvmap", "line 2: /dev/nvmap is there twice"),
        ("crw-rw---t- 0 44 /dev/x", "line 2: not as stat"),
        ("crw-rw-rws 0 44 /dev/x", "line 2: not as stat"),
        ("xrw-rw-rw- 0 44 /dev/x", "line 2: not as stat"),
    ] {
        write(dir.path(), "dev.txt", &format!("crw-rw-rw- 0 44 /dev/nvmap\n{line}\n"));
        let (code, _, err) = doctor(dir.path());
        assert_eq!(code, Some(2), "{line}");
        assert!(err.contains(said), "{line}: {err}");
    }
}

#[test]
fn what_a_file_holds_is_nothing_that_a_terminal_obeys() {
    for name in machines::names() {
        let dir = machine(&name);
        write(dir.path(), "/proc/device-tree/model", "\u{1b}]0;a title\u{7}\u{9b}31m\0");
        let (_, out, _) = doctor(dir.path());
        let document: Value = serde_json::from_str(&out).expect("JSON");
        let checks = document["checks"].as_array().expect("checks").iter();
        let texts = checks.flat_map(|check| [&check["found"], &check["remedy"]]).filter_map(Value::as_str);
        assert!(texts.into_iter().all(|text| !text.contains(char::is_control)), "{name}: {out}");
    }
}

#[test]
fn a_software_gpu_that_did_not_start_is_told_so_as_a_board_is() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "/proc/self/maps", "7f0000000000-7f0000001000 r-xp 0 00:00 0 /lib/libnvgpu_sim.so\n");
    write(dir.path(), "dev.txt", "crw-rw-rw- 0 0 /dev/nvgpu/igpu0/power\ncrw-rw-rw- 0 0 /dev/nvmap\n");
    let (status, found) = check(dir.path(), "GPU firmware");
    assert_eq!((status.as_str(), found.contains("`power` alone")), ("bad", true), "{found}");
    let (_, out, _) = doctor(dir.path());
    assert!(!out.contains("is it of this release"), "{out}");
}

#[test]
fn what_a_copy_lacks_is_a_doubt_and_blames_nothing_on_the_machine() {
    let gone = |root: &Path, path: &str| fs::remove_file(root.join(path)).expect("removed");
    let cases: [Case; 8] = [
        (|r| write(r, "proc/self/status", ""), "memory node", "unknown", "whose groups count"),
        (
            |r| fs::remove_file(r.join("proc/self/status")).expect("removed"),
            "control node",
            "unknown",
            "whose groups count",
        ),
        (|r| write(r, "dev.txt", "\n"), "memory node", "unknown", "dev.txt is missing"),
        (|r| fs::remove_file(r.join("dev.txt")).expect("removed"), "control node", "unknown", "dev.txt"),
        (
            |r| write(r, "proc/sys/kernel/dmesg_restrict", "0\n"),
            "kernel log",
            "unknown",
            "dev/kmsg is missing from the copy",
        ),
        (
            |r| write(r, "proc/self/status", "Uid:\t0\t0\t0\t0\n"),
            "kernel log",
            "unknown",
            "dev/kmsg is missing from the copy",
        ),
        (|r| write(r, "sys/module/nvgpu/initstate", "coming\n"), "kernel module", "warning", "still loading"),
        (|r| write(r, "sys/module/nvgpu/initstate", "going\n"), "kernel module", "bad", "being unloaded"),
    ];
    each_is_said(cases);
    let dir = machine("r36.4-agx");
    gone(dir.path(), "dev.txt");
    fs::remove_dir_all(dir.path().join("sys/module/nvgpu")).expect("removed");
    assert_eq!(check(dir.path(), "kernel module").0, "unknown");
    write(dir.path(), "proc/self/status", "Name: a program\n");
    let (code, _, err) = doctor(dir.path());
    assert_eq!((code, err.contains("proc/self/status has no line of Uid:")), (Some(2), true), "{err}");
    let dir = machine("r39.2-nano-no-firmware");
    let (_, found) = check(dir.path(), "GPU firmware");
    assert!(found.ends_with("firmware_class.path is /etc/firmware, which was not copied"), "{found}");
    write(dir.path(), "/etc/firmware/other", "");
    let (_, found) = check(dir.path(), "GPU firmware");
    assert!(found.ends_with("firmware_class.path is /etc/firmware, which has no ga10b"), "{found}");
    gone(dir.path(), "etc/firmware/other");
    // No placeholder where the modes are not known.
    let dir = machine("r36.4-agx");
    gone(dir.path(), "etc/nvpmodel.conf");
    let (_, out, _) = doctor(dir.path());
    assert!(out.contains("by its number in /etc/nvpmodel.conf") && !out.contains("-m N"), "{out}");
}

#[test]
fn a_jetson_of_which_the_release_alone_was_copied_is_a_jetson() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "/etc/nv_tegra_release", &release_file("r36.4.3"));
    let (code, out, _) = doctor(dir.path());
    let document: Value = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &document["platform"]), (Some(0), &"jetson".into()));
    let told = ("unknown".to_owned(), "the device tree is missing from the copy".to_owned());
    assert_eq!(check(dir.path(), "chip"), told);
}

/// A machine that keeps the paths that are asked for.
struct Recorder {
    files: machines::Files,
    asked: RefCell<BTreeSet<String>>,
}

impl Machine for Recorder {
    fn text(&self, path: &str) -> Result<String, Unread> {
        self.asked.borrow_mut().insert(path.to_owned());
        Ok(self.files.get(path).ok_or(Unread::Absent)?.join("\n"))
    }

    fn list(&self, path: &str) -> Vec<String> {
        let below = self.files.keys().filter_map(|file| file.strip_prefix(path)?.strip_prefix('/'));
        below.filter_map(|rest| rest.split('/').next()).map(str::to_owned).collect()
    }

    fn node(&self, path: &str) -> Option<Node> {
        self.asked.borrow_mut().insert(path.to_owned());
        let is_there = self.files.keys().any(|file| file.starts_with(path));
        is_there.then_some(Node {
            mode: 0o660,
            uid: 0,
            gid: 44,
            readable: false,
            usable: false,
            device: true,
        })
    }

    fn faults(&self) -> Result<u64, Unread> {
        Err(Unread::Absent)
    }
}

/// The words of a shell that a pattern with braces stands for.
fn expanded(pattern: &str) -> Vec<String> {
    let Some((before, rest)) = pattern.split_once('{') else { return vec![pattern.to_owned()] };
    let (inside, after) = rest.split_once('}').expect("a brace that closes");
    inside.split(',').flat_map(|word| expanded(&format!("{before}{word}{after}"))).collect()
}

/// Whether a path, or a file below it, is one that a pattern with stars names.
fn names(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('/');
    path.split('/').all(|name| {
        parts.next().is_some_and(|part| match part.split_once('*') {
            Some((start, end)) => name.starts_with(start) && name.ends_with(end),
            None => part == name,
        })
    })
}

#[test]
fn the_recipe_copies_every_file_that_is_read() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/nvdiag-doctor.md");
    let page = fs::read_to_string(page).expect("the page");
    let (_, recipe) = page.split_once("cp -L --parents ").expect("the recipe");
    let recipe = recipe.split_once(". 2>/dev/null").expect("its end").0.replace("\\\n", " ");
    let copied: Vec<String> = recipe.split_whitespace().flat_map(expanded).collect();
    // Nodes are listed; the rest the page leaves to the owner, or is another name of the same, or of this process.
    let others = ["/etc/group", "/etc/passwd", "/sys/firmware/devicetree/base/compatible", "/proc/self/maps"];
    let mut asked = BTreeSet::new();
    for name in machines::names() {
        let recorder = Recorder { files: machines::files(&name), asked: RefCell::default() };
        let _ = examine(&recorder);
        asked.append(&mut recorder.asked.into_inner());
    }
    // A folder of firmware that a file names.
    asked.retain(|path| !path.starts_with("/dev/") && !path.ends_with("ga10b"));
    let lacks: Vec<_> = asked
        .iter()
        .filter(|path| !others.contains(&path.as_str()) && !copied.iter().any(|pattern| names(pattern, path)))
        .collect();
    assert!(asked.len() > 30 && lacks.is_empty(), "{} are read, the recipe lacks {lacks:?}", asked.len());
}
