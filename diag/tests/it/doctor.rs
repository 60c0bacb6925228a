//! `nvdiag doctor` on made-up machines: one that is right, and each way to be wrong.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

use crate::machines::{self, machine, write};
use crate::snapshot;

fn set_mode(root: &Path, path: &str, mode: u32) {
    let path = root.join(path.trim_start_matches('/'));
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("changed");
}

/// An Orin as it should be.
fn orin() -> TempDir {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path();
    for (path, text) in [
        ("/proc/device-tree/compatible", "nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0"),
        ("/proc/device-tree/model", "NVIDIA Jetson AGX Orin Developer Kit\0"),
        ("/proc/sys/kernel/osrelease", "5.15.148-tegra\n"),
        ("/etc/nv_tegra_release", "# R36 (release), REVISION: 4.3, GCID: 1, BOARD: generic\n"),
        ("/sys/module/nvgpu/refcnt", "1\n"),
        ("/sys/module/nvmap/refcnt", "1\n"),
        ("/dev/nvgpu/igpu0/ctrl", ""),
        ("/dev/nvmap", ""),
        ("/proc/self/status", "Uid:\t4711\t4711\t4711\t4711\nGid:\t9\t9\t9\t9\nGroups:\t9\n"),
        ("/dev/kmsg", "6,1,1000,-;Booting Linux\n"),
        ("/var/lib/nvpmodel/status", "pmode:0000 fmode:quiet\n"),
        ("/etc/nvpmodel.conf", "< POWER_MODEL ID=0 NAME=MAXN >\n< POWER_MODEL ID=2 NAME=MODE_30W >\n"),
        ("/sys/class/devfreq/17000000.gpu/cur_freq", "1300500000\n"),
        ("/sys/class/devfreq/17000000.gpu/min_freq", "1300500000\n"),
        ("/sys/class/devfreq/17000000.gpu/max_freq", "1300500000\n"),
        ("/sys/class/devfreq/17000000.gpu/available_frequencies", "306000000 624750000 1300500000\n"),
        ("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance\n"),
        ("/sys/kernel/debug/bpmp/debug/clk/emc/rate", "3199000000\n"),
        ("/sys/kernel/debug/bpmp/debug/clk/emc/max_rate", "3199000000\n"),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
        (
            "/proc/meminfo",
            "MemTotal: 64330592 kB\nMemAvailable: 60000000 kB\nCmaTotal: 262144 kB\nCmaFree: 200000 kB\n",
        ),
        ("/etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
    ] {
        write(root, path, text);
    }
    for node in ["/dev/nvgpu/igpu0/ctrl", "/dev/nvmap"] {
        set_mode(root, node, 0o666);
    }
    dir
}

fn nvdiag(root: &Path, more: &[&str]) -> std::process::Output {
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"));
    command.args(["doctor", "--root"]).arg(root).args(more).output().expect("the binary starts")
}

fn doctor(root: &Path) -> (i32, Value) {
    let output = nvdiag(root, &["--json"]);
    let document = serde_json::from_slice(&output.stdout).expect("one JSON document");
    (output.status.code().expect("no signal"), document)
}

/// The checks that are not good: name, status, remedy.
fn trouble(document: &Value) -> Vec<(String, String, String)> {
    let text = |v: &Value| v.as_str().unwrap_or("").to_owned();
    let checks = document["checks"].as_array().expect("checks").iter();
    checks
        .filter(|c| c["status"] != "good")
        .map(|c| (text(&c["name"]), text(&c["status"]), text(&c["remedy"])))
        .collect()
}

#[test]
fn an_orin_that_is_right_has_nothing_to_say() {
    let dir = orin();
    let (code, document) = doctor(dir.path());
    assert_eq!((code, trouble(&document)), (0, Vec::new()));
    assert_eq!((&document["schema"], &document["platform"]), (&"nvdiag.doctor/1".into(), &"jetson".into()));
}

/// A way to break an Orin: the check that finds it, its status, and a part of its remedy.
type Case = (fn(&Path), &'static str, &'static str, &'static str);

fn each_is_found<const N: usize>(cases: [Case; N]) {
    for (break_it, name, status, remedy) in cases {
        let dir = orin();
        break_it(dir.path());
        let (code, document) = doctor(dir.path());
        let found = trouble(&document);
        assert_eq!(code, i32::from(status == "bad"), "{name}: {found:?}");
        assert_eq!(found.len(), 1, "{name}: {found:?}");
        assert_eq!((found[0].0.as_str(), found[0].1.as_str()), (name, status));
        assert!(found[0].2.contains(remedy), "{name}: {found:?}");
    }
}

#[test]
fn each_way_to_be_wrong_is_found_with_its_remedy() {
    let cases: [Case; 11] = [
        (|r| fs::remove_file(r.join("dev/nvmap")).expect("removed"), "memory node", "bad", "udevadm trigger"),
        (
            |r| set_mode(r, "/dev/nvmap", 0o600),
            "memory node",
            "bad",
            "udev rule such as KERNEL==\"nvmap\", GROUP",
        ),
        (
            |r| write(r, "/proc/device-tree/compatible", "nvidia,tegra194\0"),
            "chip",
            "bad",
            "that of Orin alone",
        ),
        (
            |r| write(r, "/etc/nv_tegra_release", "# R35 (release), REVISION: 4.1\n"),
            "L4T release",
            "bad",
            "JetPack 6",
        ),
        (
            |r| write(r, "/var/lib/nvpmodel/status", "pmode:0002 fmode:quiet\n"),
            "power mode",
            "warning",
            "nvpmodel -m 0",
        ),
        (
            |r| write(r, "/sys/class/devfreq/17000000.gpu/min_freq", "306000000\n"),
            "GPU clock",
            "warning",
            "jetson_clocks",
        ),
        (
            |r| {
                for file in ["cur_freq", "min_freq", "max_freq"] {
                    write(r, &format!("/sys/class/devfreq/17000000.gpu/{file}"), "624750000\n");
                }
            },
            "GPU clock",
            "warning",
            "something else lowered max_freq",
        ),
        (
            |r| {
                for (file, text) in
                    [("governor", "schedutil"), ("min_freq", "729600"), ("max_freq", "2201600")]
                {
                    write(r, &format!("/sys/devices/system/cpu/cpufreq/policy4/scaling_{file}"), text);
                }
            },
            "CPU governor",
            "warning",
            "jetson_clocks",
        ),
        (
            |r| write(r, "/sys/kernel/debug/bpmp/debug/clk/emc/rate", "2133000000\n"),
            "EMC clock",
            "warning",
            "jetson_clocks",
        ),
        (
            |r| write(r, "/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n"),
            "huge pages",
            "warning",
            "madvise",
        ),
        (
            |r| {
                write(
                    r,
                    "/dev/kmsg",
                    "nvgpu: 17000000.gpu f:1 [ERR]  sm hww global 0x00000004 warp 0x00000010\n",
                );
            },
            "kernel log",
            "warning",
            "nvdiag esr",
        ),
    ];
    each_is_found(cases);
}

#[test]
fn a_node_a_mask_and_a_governor_that_are_wrong_have_remedies_that_change_them() {
    each_is_found([
        (
            |r| set_mode(r, "/dev/nvgpu/igpu0/ctrl", 0o600),
            "control node",
            "bad",
            "such as SUBSYSTEM==\"nvidia-gpu-v2\", KERNEL==\"ctrl\", GROUP=\"video\", MODE=\"0660\", then sudo udevadm",
        ),
        (
            |r| {
                write(r, "/sys/class/devfreq/17000000.gpu/device/tpc_pg_mask", "240\n");
                let mode = "< POWER_MODEL ID=0 NAME=MAXN >\nTPC_POWER_GATING TPC_PG_MASK 0\n";
                write(r, "/etc/nvpmodel.conf", &format!("{mode}< POWER_MODEL ID=2 NAME=MODE_30W >\n"));
            },
            "power mode",
            "warning",
            "nvpmodel -m 0 sets it again",
        ),
        (
            |r| write(r, "/sys/devices/system/cpu/cpufreq/policy4/scaling_governor", "powersave\n"),
            "CPU governor",
            "warning",
            "jetson_clocks pins the clocks",
        ),
    ]);
}

#[test]
fn the_largest_power_mode_is_known_by_its_name_not_its_number() {
    let dir = orin();
    // An Orin Nano.
    let modes = "< POWER_MODEL ID=0 NAME=15W >\n< POWER_MODEL ID=1 NAME=25W >\n";
    write(dir.path(), "/etc/nvpmodel.conf", &format!("{modes}< POWER_MODEL ID=2 NAME=MAXN_SUPER >\n"));
    write(dir.path(), "/var/lib/nvpmodel/status", "pmode:0000 fmode:quiet\n");
    let (_, document) = doctor(dir.path());
    let found = trouble(&document);
    assert_eq!((found.len(), found[0].0.as_str()), (1, "power mode"), "{found:?}");
    assert!(found[0].2.contains("nvpmodel -m 2 (MAXN_SUPER"), "{found:?}");
    write(dir.path(), "/var/lib/nvpmodel/status", "pmode:0002 fmode:quiet\n");
    assert_eq!(trouble(&doctor(dir.path()).1), Vec::new());
}

#[test]
fn the_group_to_join_is_named() {
    let dir = orin();
    let node = dir.path().join("dev/nvmap");
    // Only root may give a file away; others have a group of their own.
    let _ = std::os::unix::fs::chown(&node, None, Some(44));
    let gid = fs::metadata(&node).expect("there").gid();
    write(dir.path(), "/etc/group", &format!("root:x:0:\nvideo:x:{gid}:someone\n"));
    set_mode(dir.path(), "/dev/nvmap", 0o660);
    let (_, document) = doctor(dir.path());
    assert!(trouble(&document)[0].2.starts_with("sudo usermod -aG video"), "{document}");
}

#[test]
fn a_desktop_machine_is_checked_for_its_driver() {
    let dir = tempfile::tempdir().expect("a folder");
    let root = dir.path();
    for (path, text) in [
        ("/sys/module/nvidia/version", "580.159.04\n"),
        ("/dev/nvidiactl", ""),
        ("/dev/nvidia0", ""),
        ("/dev/kmsg", "6,1,1000,-;Booting Linux\n"),
        (
            "/proc/driver/nvidia/gpus/0000:00:06.0/information",
            "Model: \t\t NVIDIA H200\nGPU Excluded:\t No\n",
        ),
        ("/sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
        ("/proc/meminfo", "MemTotal: 64330592 kB\nMemAvailable: 60000000 kB\n"),
    ] {
        write(root, path, text);
    }
    set_mode(root, "/dev/nvidiactl", 0o666);
    set_mode(root, "/dev/nvidia0", 0o666);
    let (code, document) = doctor(root);
    assert_eq!((code, trouble(&document)), (0, Vec::new()));
    assert_eq!(document["platform"], "desktop");
    write(root, "/sys/module/nvidia/version", "560.35.03\n");
    let (code, document) = doctor(root);
    assert_eq!(code, 1);
    assert_eq!(trouble(&document)[0].0, "driver");
}

#[test]
fn a_machine_without_a_gpu_is_pointed_to_the_software_one() {
    let dir = tempfile::tempdir().expect("a folder");
    write(dir.path(), "dev.txt", "crw-rw-rw- 0 0 /dev/null\n");
    let (code, document) = doctor(dir.path());
    assert_eq!((code, &document["platform"]), (1, &"neither".into()));
    assert!(trouble(&document)[0].2.contains("HCQ_DEVICE=sim"));
    // A copy of nothing is no finding about a machine.
    fs::remove_file(dir.path().join("dev.txt")).expect("removed");
    let (code, document) = doctor(dir.path());
    assert_eq!((code, trouble(&document)[0].1.as_str()), (0, "unknown"));
    let text = nvdiag(dir.path(), &[]).stdout;
    assert!(text.starts_with(b"a copy that does not identify its machine\n"));
}

#[test]
fn clocks_that_jetson_clocks_pinned_are_steady_under_any_governor() {
    let dir = orin();
    for (file, text) in [("governor", "schedutil"), ("min_freq", "2201600"), ("max_freq", "2201600")] {
        let path = format!("/sys/devices/system/cpu/cpufreq/policy4/scaling_{file}");
        write(dir.path(), &path, text);
    }
    assert_eq!(trouble(&doctor(dir.path()).1), Vec::new());
}

#[test]
fn the_kernel_log_has_the_faults_of_the_gpu_alone() {
    let dir = orin();
    let smmu = "arm-smmu 12000000.iommu: Unhandled context fault: fsr=0x80000402, iova=0x2fffdc000, \
                fsynr=0x110011, cbfrsynra=0x1400, cb=7\n";
    write(dir.path(), "/dev/kmsg", smmu);
    assert_eq!(trouble(&doctor(dir.path()).1), Vec::new());
    let trap = "nvgpu: 17000000.gpu f:1 [ERR]  sm hww global 0x00000004 warp 0x00000010\n";
    write(dir.path(), "/dev/kmsg", &format!("{smmu}{trap}"));
    let (_, document) = doctor(dir.path());
    assert!(document.to_string().contains("holds 1 GPU fault since boot"), "{document}");
}

#[test]
fn the_clock_of_the_largest_mode_is_not_blamed_on_the_mode_unless_it_caps() {
    let dir = orin();
    for file in ["cur_freq", "min_freq", "max_freq"] {
        write(dir.path(), &format!("/sys/class/devfreq/17000000.gpu/{file}"), "624750000\n");
    }
    let remedy = |limit: &str| {
        let modes = format!("< POWER_MODEL ID=0 NAME=15W >\nGPU MAX_FREQ {limit}\n< PM_CONFIG DEFAULT=0 >\n");
        write(dir.path(), "/etc/nvpmodel.conf", &modes);
        trouble(&doctor(dir.path()).1)[0].2.clone()
    };
    assert_eq!(remedy("624750000"), "the power mode caps the clock, and is the largest of this board");
    assert!(remedy("-1").contains("sudo nvpmodel -m 0 sets it again"));
    assert!(remedy("918000000").starts_with("not the power mode"));
}

#[test]
fn a_container_is_mended_from_its_host() {
    let remedies = |listing: &str| {
        let dir = machine("r39.2-container");
        write(dir.path(), "dev.txt", listing);
        fs::remove_dir_all(dir.path().join("sys/module/nvmap")).expect("removed");
        trouble(&doctor(dir.path()).1).into_iter().map(|(_, _, remedy)| remedy).collect::<Vec<_>>()
    };
    assert!(remedies("crw-rw-rw- 0 0 /dev/null\n").contains(&"on the host: sudo modprobe nvmap".to_owned()));
    let found = remedies("crw-rw---- 0 777 /dev/nvgpu/igpu0/ctrl\ncrw------- 0 0 /dev/nvmap\n");
    let group = "--group-add 777 among the options of the container (docker, podman)";
    assert!(found.contains(&group.to_owned()), "{found:?}");
    assert!(found.iter().any(|remedy| remedy.contains("a udev rule of the host such as")), "{found:?}");
}

/// Every machine of `tests/data/machines`: the whole text that its owner reads.
#[test]
fn what_each_machine_is_told() {
    let mut differ = Vec::new();
    for name in machines::names() {
        let dir = machine(&name);
        let output = nvdiag(dir.path(), &[]);
        let actual = String::from_utf8(output.stdout).expect("UTF-8");
        let compare = || snapshot::settings("doctor").bind(|| insta::assert_snapshot!(name.as_str(), actual));
        if std::panic::catch_unwind(compare).is_err() {
            differ.push(name);
        }
    }
    assert!(differ.is_empty(), "{differ:?} differ, as shown above");
}

/// Name and status of the checks of a machine that are not good.
fn not_good(name: &str) -> Vec<(String, String)> {
    let dir = machine(name);
    trouble(&doctor(dir.path()).1).into_iter().map(|(check, status, _)| (check, status)).collect()
}

#[test]
fn healthy_boards_of_both_releases_have_nothing_bad_and_no_warning() {
    for (name, unknown) in [
        ("r36.4-nano-super", &["L4T release"][..]),
        // Without root.
        ("r36.5-nx", &["EMC clock"]),
        ("r39.2-agx", &["EMC clock"]),
        // devfreq comes later, the mode of most watts is the largest.
        ("r39.2-nano", &["L4T release", "GPU clock", "EMC clock"]),
        ("r39.3-agx", &["L4T release", "EMC clock"]),
        ("nixos-agx", &["power mode", "EMC clock"]),
    ] {
        let found = not_good(name);
        assert!(
            found.iter().map(|(check, _)| check.as_str()).eq(unknown.iter().copied()),
            "{name}: {found:?}"
        );
        assert!(found.iter().all(|(_, status)| status == "unknown"), "{name}: {found:?}");
    }
}

#[test]
fn a_module_that_is_missing_is_bad_where_nothing_serves_its_node() {
    for (module, node) in [("nvgpu", "/dev/nvgpu/igpu0/ctrl"), ("nvmap", "/dev/nvmap")] {
        let dir = orin();
        fs::remove_dir_all(dir.path().join(format!("sys/module/{module}"))).expect("removed");
        // A kernel that it is part of.
        assert_eq!(trouble(&doctor(dir.path()).1), Vec::new());
        fs::remove_file(dir.path().join(&node[1..])).expect("removed");
        let found = trouble(&doctor(dir.path()).1);
        assert_eq!(found[0], ("kernel module".into(), "bad".into(), format!("sudo modprobe {module}")));
    }
}

#[test]
fn what_is_wrong_is_bad_and_nothing_else_is() {
    for (name, bad) in [
        ("r36.4-agx", &[][..]),
        ("r36.4-no-group", &["control node", "memory node"]),
        ("r39.2-nx-denied", &["kernel module", "control node"]),
        ("r39.2-nano-no-firmware", &["GPU firmware", "control node"]),
        ("r39.2-container", &["control node", "memory node"]),
        ("r35.4-agx", &["L4T release"]),
        ("r35.4-xavier", &["chip"]),
        ("r32.7-nano", &["chip"]),
        ("r39.2-thor", &["chip"]),
    ] {
        let found = not_good(name);
        let is_bad = found.iter().filter(|(_, status)| status == "bad").map(|(check, _)| check.as_str());
        assert!(is_bad.eq(bad.iter().copied()), "{name}: {found:?}");
    }
}

#[test]
fn a_copied_machine_has_the_permissions_of_its_listing_and_its_user() {
    let dir = machine("r36.5-nx");
    let bad = |listing: &str, status: &str| {
        write(dir.path(), "dev.txt", listing);
        write(dir.path(), "/proc/self/status", status);
        let found = trouble(&doctor(dir.path()).1);
        found
            .into_iter()
            .filter(|(_, status, _)| status == "bad")
            .map(|(check, ..)| check)
            .collect::<Vec<_>>()
    };
    let user = |uid: u32, groups: &str| {
        format!("Uid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t9\t9\t9\t9\nGroups:\t{groups}\n")
    };
    let nodes =
        |ctrl: &str, nvmap: &str| format!("{ctrl} 7 44 /dev/nvgpu/igpu0/ctrl\n{nvmap} 7 44 /dev/nvmap\n");
    let both = ["control node", "memory node"];
    let group = nodes("crw-rw----", "cr--r-----");
    assert_eq!(bad(&group, &user(1000, "44")), [""; 0]);
    assert_eq!(bad(&group, &user(1000, "45")), both);
    assert_eq!(bad(&group, &user(0, "")), [""; 0]);
    // Its owner.
    assert_eq!(bad(&group, &user(7, "")), ["memory node"; 0]);
    // A control node has to be written, too.
    assert_eq!(bad(&nodes("cr--r-----", "c---------"), &user(1000, "44")), both);
    assert_eq!(bad(&nodes("crw-rw-rw-", "cr--r--r--"), ""), [""; 0]);
    assert_eq!(bad("crw-rw-rw- 0 0 /dev/null", &user(1000, "44")), both);
}

#[test]
fn a_listing_that_is_none_is_named_with_its_line() {
    let dir = machine("r36.5-nx");
    for line in
        ["crw-rw---- root video /dev/nvmap", "/dev/nvmap", "rw 0 44 /dev/nvmap", "crw-rw---- 0 44 /tmp/x"]
    {
        write(dir.path(), "dev.txt", &format!("crw-rw---- 0 44 /dev/nvgpu/igpu0/ctrl\n{line}\n"));
        let output = nvdiag(dir.path(), &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{error}");
        assert!(
            error.contains("dev.txt") && error.contains("line 2: not as stat -c '%A %u %g %n'"),
            "{error}"
        );
    }
}
