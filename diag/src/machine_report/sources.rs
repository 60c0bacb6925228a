//! The files that a report copies, each with where its name and meaning are stated.
//!
//! Nothing is here that wakes a GPU or waits for one: a report is made when it hangs. So `power` below
//! `/proc/driver/nvidia/gpus` is not, which asks the GPU's firmware, and no command is run.

/// Part of a file that is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All of it.
    Whole,
    /// The lines that begin so.
    Lines(&'static [&'static str]),
    /// That it is there.
    Presence,
}

/// Files of one subject.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The subject.
    pub name: &'static str,
    /// Paths, absolute; `*` stands for any part of a name.
    pub paths: &'static [&'static str],
    /// Part that is copied of each.
    pub kept: Kept,
    /// Where these files are described, or made.
    pub source: &'static str,
}

const fn whole(name: &'static str, paths: &'static [&'static str], source: &'static str) -> Subject {
    Subject { name, paths, kept: Kept::Whole, source }
}

/// All files, by subject.
pub const SUBJECTS: &[Subject] = &[
    whole(
        "kernel",
        &["/proc/sys/kernel/osrelease", "/proc/sys/kernel/dmesg_restrict"],
        "kernel: admin-guide/sysctl/kernel.rst",
    ),
    whole(
        "kernel modules",
        &[
            "/sys/module/nvidia*/version",
            "/sys/module/nvidia*/srcversion",
            "/sys/module/nvidia*/initstate",
            "/sys/module/nvgpu/version",
            "/sys/module/nvgpu/srcversion",
            "/sys/module/nvgpu/initstate",
            "/sys/module/nvmap/srcversion",
            "/sys/module/nvmap/initstate",
            "/sys/module/host1x*/srcversion",
        ],
        "kernel: kernel/module/main.c (modinfo_attrs)",
    ),
    whole(
        "desktop driver",
        &[
            "/proc/driver/nvidia/version",
            "/proc/driver/nvidia/params",
            "/proc/driver/nvidia/gpus/*/information",
        ],
        "NVIDIA/open-gpu-kernel-modules: kernel-open/nvidia/nv-procfs.c",
    ),
    whole(
        "board and release",
        &[
            "/proc/device-tree/compatible",
            "/proc/device-tree/model",
            "/etc/nv_tegra_release",
            "/etc/modprobe.d/denylist-oot-modules.conf",
            "/run/nvidia-gp*",
            "/sys/module/firmware_class/parameters/path",
        ],
        "docs/nvdiag-doctor.md, sources; kernel: driver-api/firmware/fw_search_path.rst",
    ),
    whole(
        "power mode",
        &["/etc/nvpmodel.conf", "/var/lib/nvpmodel/status"],
        "developer guide of Jetson Linux r36.4: platform power and performance, nvpmodel",
    ),
    whole(
        "PCIe errors",
        &["/sys/bus/pci/devices/*/aer_dev_*", "/sys/bus/pci/devices/*/aer_rootport_total_err_*"],
        "kernel: ABI/testing/sysfs-bus-pci-devices-aer_stats",
    ),
    whole(
        "PCIe links",
        &[
            "/sys/bus/pci/drivers/nvidia/*:*/device",
            "/sys/bus/pci/drivers/nvidia/*:*/*_link_speed",
            "/sys/bus/pci/drivers/nvidia/*:*/*_link_width",
        ],
        "kernel: ABI/testing/sysfs-bus-pci",
    ),
    whole(
        "temperatures",
        &[
            "/sys/class/thermal/thermal_zone*/type",
            "/sys/class/thermal/thermal_zone*/temp",
            "/sys/class/thermal/thermal_zone*/trip_point_*_temp",
            "/sys/class/thermal/thermal_zone*/trip_point_*_type",
            "/sys/class/thermal/cooling_device*/type",
            "/sys/class/thermal/cooling_device*/cur_state",
            "/sys/class/thermal/cooling_device*/max_state",
        ],
        "kernel: ABI/testing/sysfs-class-thermal",
    ),
    whole(
        "clocks",
        &[
            "/sys/class/devfreq/*/*_freq",
            "/sys/class/devfreq/*/available_frequencies",
            "/sys/class/devfreq/*/governor",
            "/sys/class/devfreq/*/trans_stat",
            "/sys/class/devfreq/*/device/*_pg_mask",
            "/sys/devices/system/cpu/cpufreq/policy*/scaling_governor",
            "/sys/devices/system/cpu/cpufreq/policy*/scaling_*_freq",
            "/sys/kernel/debug/bpmp/debug/clk/emc/rate",
            "/sys/kernel/debug/bpmp/debug/clk/emc/max_rate",
        ],
        "kernel: ABI/testing/sysfs-class-devfreq, admin-guide/pm/cpufreq.rst; nvgpu r36.4.3: os/linux/sysfs.c; \
         developer guide of Jetson Linux r36.4: clocks of BPMP",
    ),
    whole(
        "over-current",
        &["/sys/class/hwmon/*/name", "/sys/class/hwmon/*/oc*_event_cnt", "/sys/class/hwmon/*/oc*_throt_en"],
        "linux-nv-oot r36: drivers/thermal/tegra234-oc-event.c; kernel: hwmon/sysfs-interface.rst",
    ),
    whole(
        "power readings",
        &[
            "/sys/class/hwmon/*/in*_label",
            "/sys/class/hwmon/*/in*_input",
            "/sys/class/hwmon/*/curr*_input",
            "/sys/class/hwmon/*/curr*_max*",
            "/sys/class/hwmon/*/curr*_crit*",
        ],
        "kernel: hwmon/ina3221.rst, hwmon/sysfs-interface.rst",
    ),
    whole(
        "ECC",
        &[
            "/sys/devices/system/edac/mc/mc*/ce_count",
            "/sys/devices/system/edac/mc/mc*/ue_count",
            "/sys/class/devfreq/*/device/*_ecc_*_count",
        ],
        "kernel: ABI/testing/sysfs-devices-edac; nvgpu r36.4.3: os/linux/ecc_sysfs.c, common/gr/gr_ecc.c",
    ),
    whole(
        "memory",
        &["/proc/meminfo", "/sys/kernel/mm/transparent_hugepage/enabled"],
        "kernel: filesystems/proc.rst, admin-guide/mm/transhuge.rst",
    ),
    Subject {
        name: "groups of the user",
        paths: &["/proc/self/status"],
        kept: Kept::Lines(&["Uid:", "Gid:", "Groups:"]),
        source: "kernel: filesystems/proc.rst",
    },
    Subject {
        name: "container",
        paths: &["/.dockerenv", "/run/.containerenv"],
        // The latter names the container and its image.
        kept: Kept::Presence,
        source: "docker and podman make them",
    },
];
