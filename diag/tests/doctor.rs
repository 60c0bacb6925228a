//! `nvdiag doctor` on made-up machines: one that is right, and each way to be wrong.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;
use tempfile::TempDir;

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path.trim_start_matches('/'));
    fs::create_dir_all(path.parent().expect("a folder")).expect("created");
    fs::write(path, text).expect("written");
}

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

fn doctor(root: &Path) -> (i32, Value) {
    let output = Command::new(assert_cmd::cargo::cargo_bin!("nvdiag"))
        .args(["doctor", "--json", "--root"])
        .arg(root)
        .output()
        .expect("the binary starts");
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

#[test]
fn each_way_to_be_wrong_is_found_with_its_remedy() {
    type Break = fn(&Path);
    let cases: [(Break, &str, &str, &str); 12] = [
        (
            |r| fs::remove_dir_all(r.join("sys/module/nvgpu")).expect("removed"),
            "kernel module",
            "bad",
            "modprobe nvgpu",
        ),
        (|r| fs::remove_file(r.join("dev/nvmap")).expect("removed"), "memory node", "bad", "modprobe nvmap"),
        (|r| set_mode(r, "/dev/nvmap", 0o600), "memory node", "bad", "udev rule"),
        (|r| write(r, "/proc/device-tree/compatible", "nvidia,tegra194\0"), "chip", "bad", "tegra234"),
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
            |r| write(r, "/sys/class/devfreq/17000000.gpu/max_freq", "624750000\n"),
            "GPU clock",
            "warning",
            "nvpmodel",
        ),
        (
            |r| write(r, "/sys/devices/system/cpu/cpufreq/policy4/scaling_governor", "schedutil\n"),
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
        ("/dev/kmsg", ""),
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
    let (code, document) = doctor(dir.path());
    assert_eq!((code, &document["platform"]), (1, &"neither".into()));
    assert!(trouble(&document)[0].2.contains("HCQ_DEVICE=sim"));
}
