//! `nvdiag report`: what its archive holds, and what it does not.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use flate2::read::GzDecoder;
use nvdiag::doctor::{Machine, Node, Unread};
use nvdiag::machine_report::{Redactor, SUBJECTS};
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;
use serde_json::Value;

use crate::machines::{self, machine, write};

/// Exit code, stdout and stderr.
fn nvdiag(arguments: &[&str], root: &Path) -> (Option<i32>, String, String) {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(arguments).arg("--root").arg(root).current_dir(root).stdin(Stdio::null());
    let run = command.output().expect("the binary starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    (run.status.code(), text(run.stdout), text(run.stderr))
}

/// Names and texts of an archive.
fn unpacked(path: &Path) -> BTreeMap<String, String> {
    let mut archive = tar::Archive::new(GzDecoder::new(fs::File::open(path).expect("written")));
    let mut entries = BTreeMap::new();
    for entry in archive.entries().expect("an archive") {
        let mut entry = entry.expect("an entry");
        let header = entry.header();
        assert_eq!((header.uid().ok(), header.gid().ok(), header.mtime().ok()), (Some(0), Some(0), Some(0)));
        let (name, mut text) = (entry.path().expect("a name").display().to_string(), String::new());
        entry.read_to_string(&mut text).expect("text");
        assert!(entries.insert(name, text).is_none(), "twice");
    }
    entries
}

/// The report of a machine.
fn report(root: &Path) -> (Option<i32>, BTreeMap<String, String>) {
    let file = root.join("out.tar.gz");
    let (code, out, err) = nvdiag(&["report", "--yes", "-o", "out.tar.gz"], root);
    assert_eq!(err, "", "{out}");
    (code, unpacked(&file))
}

/// A machine in which everything private is named.
const SECRETS: [&str; 10] = [
    "bench-17",
    "carol",
    "Carol Example",
    "48:b0:2d:aa:bb:cc",
    "10.20.30.40",
    "fd12:3456::9",
    "1652224012345",
    "0f1e2d3c-1111-2222-3333-0123456789ab",
    "quiet-secret",
    "dora",
];

fn with_secrets(name: &str) -> tempfile::TempDir {
    let machine = machine(name);
    let root = machine.path();
    write(root, "/etc/hostname", "bench-17.example.org\n");
    write(
        root,
        "/etc/passwd",
        "root:x:0:0::/root:/bin/sh\ncarol:x:1000:1000:Carol Example,,,:/home/carol:/bin/sh\n",
    );
    write(root, "/etc/group", "video:x:44:carol\n");
    write(
        root,
        "/proc/self/status",
        "Name:\tcarol-prog\nUid:\t1000\t1000\t1000\t1000\nGid:\t1000\t1000\t1000\t1000\n",
    );
    write(root, "/run/.containerenv", "name=\"carol-box\"\n");
    fs::create_dir_all(root.join("home/dora")).expect("made");
    write(
        root,
        "/dev/kmsg",
        "6,1,1,-;Kernel command line: root=UUID=0f1e2d3c-1111-2222-3333-0123456789ab quiet-secret\n\
         6,2,2,-;systemd[1]: Hostname set to <bench-17.example.org>.\n\
         6,3,3,-;eth0: 48:b0:2d:aa:bb:cc 10.20.30.40 fd12:3456::9\n\
         6,4,4,-;NVRM: GPU Board Serial Number: 1652224012345\n\
         6,5,5,-;Out of memory: Killed process 77 (train) in /home/dora/train, uid of carol\n\
         3,6,6,-;NVRM: Xid (PCI:0000:01:00): 31, pid=77, name=carol-train, Ch 00000008, intr 10000000. MMU Fault: \
         ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @ 0x7f12_34560000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_READ\n",
    );
    machine
}

#[test]
fn nothing_private_is_in_the_archive_and_what_was_replaced_is_counted() {
    let machine = with_secrets("r36.4-agx");
    let (_, entries) = report(machine.path());
    for secret in SECRETS {
        for (name, text) in &entries {
            assert!(!text.to_lowercase().contains(&secret.to_lowercase()), "{secret} in {name}: {text}");
        }
    }
    assert!(entries["kernel-log.txt"].contains("Xid (PCI:0000:01:00): 31, pid=77"), "{entries:?}");
    assert!(entries["faults.txt"].contains("0x7f1234560000"), "{}", entries["faults.txt"]);
    let manifest: Value = serde_json::from_str(&entries["manifest.json"]).expect("JSON");
    for kind in ["name", "MAC address", "IP address", "serial number", "command line", "home folder"] {
        assert!(manifest["replaced"][kind].as_u64().is_some_and(|count| count > 0), "{kind}: {manifest}");
    }
}

#[test]
fn the_list_is_whole_and_names_what_the_machine_lacks() {
    let machine = with_secrets("r36.4-agx");
    write(machine.path(), "/sys/class/hwmon/hwmon3/name", "soctherm_oc\n");
    write(machine.path(), "/sys/class/hwmon/hwmon3/oc3_event_cnt", "42\n");
    fs::create_dir_all(machine.path().join("sys/class/devfreq/17000000.gpu/trans_stat")).expect("no file");
    let (_, entries) = report(machine.path());
    assert_eq!(entries["machine/sys/class/hwmon/hwmon3/oc3_event_cnt"], "42\n");
    let manifest: Value = serde_json::from_str(&entries["manifest.json"]).expect("JSON");
    assert_eq!(manifest["schema"], "nvdiag.report/1");
    let listed = manifest["entries"].as_array().expect("entries").iter();
    let listed: BTreeMap<_, _> = listed
        .map(|e| (e["name"].as_str().expect("a name"), e["size_bytes"].as_u64().expect("a size")))
        .collect();
    let held = entries.iter().filter(|(name, _)| *name != "manifest.json");
    assert_eq!(listed, held.map(|(name, text)| (name.as_str(), text.len() as u64)).collect());
    let absent = manifest["absent"].as_array().expect("absent");
    let why =
        |path: &str| absent.iter().find(|a| a["path"] == path).map(|a| a["why"].as_str().expect("words"));
    assert_eq!(why("/sys/bus/pci/devices/*/aer_dev_*"), Some("is not there"));
    let folder = why("/sys/class/devfreq/17000000.gpu/trans_stat");
    assert!(folder.is_some_and(|why| why.contains("a folder")), "{folder:?}");
    assert!(absent.iter().all(|a| !a["source"].as_str().expect("a source").is_empty()));
}

#[test]
fn it_is_listed_before_it_is_written_and_written_only_when_that_is_wanted() {
    let machine = machine("r39.2-nano");
    let root = machine.path();
    let archives = || {
        fs::read_dir(root)
            .expect("listed")
            .flatten()
            .filter(|e| e.path().extension().is_some_and(|e| e == "gz"))
            .count()
    };
    let (code, out, err) = nvdiag(&["report"], root);
    assert_eq!((code, out.as_str(), archives()), (Some(2), "", 0));
    assert!(err.contains("--list") && err.contains("--yes"), "{err}");
    let (code, out, _) = nvdiag(&["report", "--list"], root);
    assert_eq!((code, archives()), (Some(0), 0));
    for told in ["manifest.json", "doctor.txt", "temperatures", "not on this machine: ", "PCIe errors"] {
        assert!(out.contains(told), "{told}: {out}");
    }
    assert!(!out.contains("written"), "{out}");
    let (code, out, _) = nvdiag(&["report", "--list", "--json"], root);
    let document: Value = serde_json::from_str(&out).expect("one document");
    assert_eq!((code, &document["file"]), (Some(0), &Value::Null));
    let (code, out, _) = nvdiag(&["report", "--yes"], root);
    assert_eq!((code, archives()), (Some(0), 1));
    let (list, written) = out.split_once("written: nvdiag-report-").expect("the list, then the file");
    assert!(list.contains("doctor.json") && written.trim_end().ends_with(".tar.gz"), "{out}");
    write(root, "notes.txt", "mine");
    let (code, _, err) = nvdiag(&["report", "--yes", "-o", "notes.txt"], root);
    assert_eq!(code, Some(2));
    assert!(err.contains("is not a tar.gz file"), "{err}");
}

#[test]
fn module_libraries_and_firmware_that_do_not_fit_are_named() {
    const LIBRARIES: &str = "/usr/lib/x86_64-linux-gnu";
    let root = tempfile::tempdir().expect("a folder");
    let root = root.path();
    write(root, "/sys/module/nvidia/version", "580.159.04\n");
    write(root, &format!("{LIBRARIES}/libcuda.so.1"), "");
    write(root, &format!("{LIBRARIES}/libcuda.so.580.159.04"), "");
    write(root, &format!("{LIBRARIES}/libnvidia-ml.so.580.159.04"), "");
    let information = "/proc/driver/nvidia/gpus/0000:01:00.0/information";
    write(root, information, "Model: \t NVIDIA X\nGPU Firmware: \t 580.159.04\n");
    let mismatches = || {
        let (code, out, err) = nvdiag(&["report", "--list", "--json"], root);
        let document: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
        let texts = document["versions"]["mismatches"].as_array().expect("a list").iter();
        (code, texts.map(|text| text.as_str().expect("text").to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(mismatches(), (Some(0), vec![]));
    // An older copy beside the right one is not loaded.
    write(root, &format!("{LIBRARIES}/libcuda.so.570.86.15"), "");
    assert_eq!(mismatches(), (Some(0), vec![]));
    fs::remove_file(root.join(format!("{}/libcuda.so.580.159.04", &LIBRARIES[1..]))).expect("there");
    let (code, texts) = mismatches();
    assert_eq!((code, texts.len()), (Some(1), 1), "{texts:?}");
    assert!(
        texts[0].contains("580.159.04, and libcuda.so is not: ") && texts[0].contains("570.86.15"),
        "{texts:?}"
    );
    write(root, information, "GPU Firmware: \t 570.86.15\n");
    assert!(mismatches().1[1].contains("runs firmware 570.86.15"), "{:?}", mismatches());
    // A Jetson's module of the display is of no library that computes.
    write(root, "/sys/module/nvgpu/initstate", "live\n");
    assert_eq!(mismatches(), (Some(0), vec![]));
}

/// Statuses and findings of a machine, but of its log, which is a file of its own, and of groups by name.
fn findings(root: &Path) -> Vec<String> {
    let (_, out, _) = nvdiag(&["doctor", "--json"], root);
    let document: Value = serde_json::from_str(&out).expect("JSON");
    let checks = document["checks"].as_array().expect("checks").iter();
    checks
        .filter(|check| check["name"] != "kernel log")
        .map(|check| format!("{} {} {}", check["name"], check["status"], check["found"]))
        .map(|text| text.replace("group video", "group 44").replace("group render", "group 104"))
        .collect()
}

#[test]
fn doctor_finds_the_same_in_the_unpacked_archive() {
    for name in machines::names().iter().filter(|name| !name.contains("no-firmware")) {
        let machine = machine(name);
        let (_, entries) = report(machine.path());
        let copy = tempfile::tempdir().expect("a folder");
        for (path, text) in
            entries.iter().filter_map(|(name, text)| Some((name.strip_prefix("machine/")?, text)))
        {
            write(copy.path(), path, text);
        }
        assert_eq!(findings(copy.path()), findings(machine.path()), "{name}");
    }
}

#[test]
fn faults_of_public_logs_are_the_same_without_what_is_private() {
    let data = |name: &str| Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(name);
    let mut faults = String::new();
    let packed = fs::File::open(data("nvgpu-faults.txt.gz")).expect("there");
    GzDecoder::new(packed).read_to_string(&mut faults).expect("text");
    let read = |name| fs::read_to_string(data(name)).expect("text");
    for log in [faults, read("h200-xid.txt"), read("kernel-log-samples.txt")] {
        let verdicts = |log: &str| {
            let mut session = Session::new(ProcessMap::default(), 1000);
            session.feed(log.as_bytes());
            let list = session.finish("log");
            list.faults.iter().map(|fault| fault.verdict.clone()).collect::<Vec<_>>()
        };
        let private = Redactor::new(["carol", "bench-17"]).text(&log);
        let (all, same) = (verdicts(&log), verdicts(&private));
        assert!(!all.is_empty());
        assert_eq!(all, same);
    }
}

/// A machine that answers every path with the same text, and every folder with the same names.
struct Everything;

impl Machine for Everything {
    fn text(&self, _path: &str) -> Result<String, Unread> {
        Ok("x".repeat(1 << 20))
    }

    fn list(&self, _path: &str) -> Vec<String> {
        (0..10_000).map(|number| format!("policy{number}:in_err_ecc_freq_count_label")).collect()
    }

    fn node(&self, _path: &str) -> Option<Node> {
        None
    }

    fn faults(&self) -> Result<u64, Unread> {
        Ok(0)
    }
}

#[test]
fn a_machine_of_too_many_files_is_bounded() {
    let collected = nvdiag::machine_report::collect(&Everything, &mut Redactor::default());
    let bytes: usize = collected.files.iter().map(|file| file.text.len()).sum();
    assert!((32 << 20..=64 << 20).contains(&bytes), "{bytes}");
    assert!(collected.absent.iter().any(|absent| absent.why.starts_with("left out")));
}

#[test]
fn the_page_names_every_subject_and_source() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/nvdiag-report.md");
    let page = fs::read_to_string(page).expect("the page").split_whitespace().collect::<Vec<_>>().join(" ");
    for subject in SUBJECTS {
        assert!(page.contains(subject.name) && page.contains(subject.source), "{subject:?}");
        for path in subject.paths {
            assert!(page.contains(path), "{path}");
        }
    }
}
