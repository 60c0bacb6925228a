//! Checks of a Jetson.
//!
//! Sources: nvgpu of L4T r36.4.3 (nodes, devfreq names), NVIDIA's developer guide (power modes), public sysfs
//! tables.

use crate::doctor::machine::{Check, Machine};
use crate::doctor::machine::{compatible, meminfo, node};
use crate::size::size;

/// The control node of the first GPU.
const CTRL: &str = "/dev/nvgpu/igpu0/ctrl";
/// The memory allocator's.
const NVMAP: &str = "/dev/nvmap";
/// The L4T release whose structs `nvgpu-sys` holds.
const RELEASE: &str = "R36";
/// What contiguous memory the driver wants to find: its own buffers and firmware.
const CMA_WANTED: u64 = 32 << 20;

pub(super) fn checks(machine: &dyn Machine) -> Vec<Check> {
    let mut checks =
        vec![chip(machine), release(machine), module(machine, "nvgpu"), module(machine, "nvmap")];
    let absent =
        "the nvgpu module makes it: sudo modprobe nvgpu, then `nvdiag esr` explains why it could not start";
    checks.push(node(machine, "control node", CTRL, absent));
    checks.push(node(machine, "memory node", NVMAP, "the nvmap module makes it: sudo modprobe nvmap"));
    checks.push(power_mode(machine));
    checks.push(clock(machine));
    checks.push(cpu_governor(machine));
    checks.push(memory_clock(machine));
    checks.push(contiguous_memory(machine));
    checks
}

/// Checks of a software ga10b, which has nodes, and neither modules nor clocks.
pub(super) fn software(machine: &dyn Machine) -> Vec<Check> {
    let absent = "the library serves it: is it of this release?";
    vec![node(machine, "control node", CTRL, absent), node(machine, "memory node", NVMAP, absent)]
}

fn chip(machine: &dyn Machine) -> Check {
    const NAME: &str = "chip";
    let Some(names) = compatible(machine) else {
        return Check::unknown(NAME, "no device tree");
    };
    let model = machine.read("/proc/device-tree/model").unwrap_or_default();
    let model = model.trim_end_matches('\0').trim();
    match names.contains("tegra234") {
        true => Check::good(NAME, format!("tegra234 with ga10b: {model}")),
        false => Check::bad(
            NAME,
            format!("{model} ({names})"),
            "this toolkit drives the GPU of Orin (tegra234) alone",
        ),
    }
}

fn release(machine: &dyn Machine) -> Check {
    const NAME: &str = "L4T release";
    let kernel = machine.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let kernel = kernel.trim();
    match release_of(machine) {
        Some(release) => {
            let found = format!("{release}, kernel {kernel}");
            match release.split('.').next() == Some(RELEASE) {
                true => Check::good(NAME, found),
                false => Check::bad(
                    NAME,
                    found,
                    "the driver's structs are those of R36 (JetPack 6): install JetPack 6",
                ),
            }
        }
        // Distributions other than NVIDIA's have no such file; the kernel of R36 is 5.15.
        None if kernel.starts_with("5.15") => {
            Check::good(NAME, format!("no /etc/nv_tegra_release; kernel {kernel} is that of R36"))
        }
        None => Check::warning(
            NAME,
            format!("no /etc/nv_tegra_release; kernel {kernel}"),
            "make sure that nvgpu is that of L4T R36: ENOTTY from its requests means that it is not",
        ),
    }
}

fn module(machine: &dyn Machine, name: &'static str) -> Check {
    let loaded = machine.node(&format!("/sys/module/{name}")).is_some();
    match loaded {
        true => Check::good("kernel module", format!("{name} is loaded")),
        false => {
            Check::bad("kernel module", format!("{name} is not loaded"), format!("sudo modprobe {name}"))
        }
    }
}

/// The power modes that `nvpmodel` knows on this board, by number and name. Numbers differ between boards.
fn power_modes(machine: &dyn Machine) -> Vec<(u32, String)> {
    let modes = machine.read("/etc/nvpmodel.conf").unwrap_or_default();
    let mode = |line: &str| {
        let (number, rest) = line.strip_prefix("< POWER_MODEL ID=")?.split_once(' ')?;
        let name = rest.trim().trim_start_matches("NAME=").trim_end_matches('>').trim();
        Some((number.trim().parse().ok()?, name.to_owned()))
    };
    modes.lines().filter_map(mode).collect()
}

/// `nvpmodel` keeps the mode that was set last in a file, `pmode:0002 ...`: its number, and its name where
/// the modes are listed.
pub(super) fn power_mode_of(machine: &dyn Machine) -> Option<(u32, Option<String>)> {
    let status = machine.read("/var/lib/nvpmodel/status")?;
    let id = status.split("pmode:").nth(1)?.get(..4)?.parse::<u32>().ok()?;
    let name = power_modes(machine).into_iter().find(|mode| mode.0 == id);
    Some((id, name.map(|mode| mode.1)))
}

/// Release of L4T as NVIDIA's own distribution states it, `R36.4.3`.
pub(super) fn release_of(machine: &dyn Machine) -> Option<String> {
    let text = machine.read("/etc/nv_tegra_release")?;
    let line = text.lines().next()?.trim_start_matches("# ");
    let major = line.split([',', ' ']).find(|w| !w.is_empty())?;
    let revision = line.split("REVISION:").nth(1).and_then(|r| r.split(',').next()).unwrap_or("").trim();
    Some(format!("{major}.{revision}"))
}

/// What the thermal zone at the GPU shows.
pub(super) fn gpu_celsius(machine: &dyn Machine) -> Option<f64> {
    const FOLDER: &str = "/sys/class/thermal";
    machine.list(FOLDER).iter().find_map(|zone| {
        let kind = machine.read(&format!("{FOLDER}/{zone}/type"))?;
        // gpu-thermal on JetPack 6, GPU-therm before.
        if !kind.trim().to_ascii_lowercase().starts_with("gpu") {
            return None;
        }
        let milli: f64 = machine.read(&format!("{FOLDER}/{zone}/temp"))?.trim().parse().ok()?;
        Some(milli / 1000.0)
    })
}

fn power_mode(machine: &dyn Machine) -> Check {
    const NAME: &str = "power mode";
    let Some((id, name)) = power_mode_of(machine) else {
        return Check::unknown(
            NAME,
            "nvpmodel has not stored one (/var/lib/nvpmodel/status): the board's default counts",
        );
    };
    let found = format!("{id}{}", name.as_ref().map_or(String::new(), |n| format!(" ({n})")));
    if name.as_deref().is_some_and(|name| name.starts_with("MAXN")) {
        return Check::good(NAME, found);
    }
    let Some((full, full_name)) = full_mode(machine) else {
        return Check::unknown(NAME, format!("{found}: /etc/nvpmodel.conf names no mode without limits"));
    };
    Check::warning(
        NAME,
        format!("{found}: fewer SMs or lower clocks than the chip has"),
        format!("sudo nvpmodel -m {full} ({full_name}; it may request a reboot)"),
    )
}

/// The mode without limits, if `nvpmodel` lists one: MAXN_SUPER where there is one, else MAXN.
fn full_mode(machine: &dyn Machine) -> Option<(u32, String)> {
    let full = power_modes(machine).into_iter().filter(|(_, name)| name.starts_with("MAXN"));
    full.max_by_key(|(_, name)| name.len())
}

/// The GPU's clock as devfreq has it.
fn clock(machine: &dyn Machine) -> Check {
    const NAME: &str = "GPU clock";
    const FOLDER: &str = "/sys/class/devfreq";
    let device = machine
        .list(FOLDER)
        .into_iter()
        .find(|name| [".gpu", ".ga10b", ".gv11b", ".gp10b"].iter().any(|end| name.ends_with(end)));
    let Some(device) = device else {
        return Check::unknown(NAME, "devfreq does not list the GPU");
    };
    let hz = |file: &str| machine.read(&format!("{FOLDER}/{device}/{file}"))?.trim().parse::<u64>().ok();
    let (Some(now), Some(min), Some(max)) = (hz("cur_freq"), hz("min_freq"), hz("max_freq")) else {
        return Check::unknown(NAME, format!("{FOLDER}/{device} cannot be read"));
    };
    let top = machine.read(&format!("{FOLDER}/{device}/available_frequencies"));
    let top =
        top.and_then(|t| t.split_whitespace().filter_map(|w| w.parse::<u64>().ok()).max()).unwrap_or(max);
    let mhz = |hz: u64| hz / 1_000_000;
    let found =
        format!("{} MHz now, {} to {} MHz allowed, {} MHz possible", mhz(now), mhz(min), mhz(max), mhz(top));
    if max < top {
        let mode = full_mode(machine).map_or("N".to_owned(), |mode| mode.0.to_string());
        return Check::warning(
            NAME,
            found,
            format!("the power mode caps the clock: sudo nvpmodel -m {mode}"),
        );
    }
    match min < max {
        true => Check::warning(
            NAME,
            found,
            "for steady latency pin it: sudo jetson_clocks (short launches otherwise run at the low clock)",
        ),
        false => Check::good(NAME, found),
    }
}

fn cpu_governor(machine: &dyn Machine) -> Check {
    const NAME: &str = "CPU governor";
    const FOLDER: &str = "/sys/devices/system/cpu/cpufreq";
    let mut governors: Vec<String> = machine
        .list(FOLDER)
        .iter()
        .filter(|name| name.starts_with("policy"))
        .filter_map(|name| machine.read(&format!("{FOLDER}/{name}/scaling_governor")))
        .map(|text| text.trim().to_owned())
        .collect();
    governors.sort();
    governors.dedup();
    match governors.as_slice() {
        [] => Check::unknown(NAME, "cpufreq reports nothing"),
        [one] if one == "performance" => Check::good(NAME, one.clone()),
        some => Check::warning(
            NAME,
            some.join(", "),
            "launches are submitted by the CPU: sudo jetson_clocks sets performance",
        ),
    }
}

fn memory_clock(machine: &dyn Machine) -> Check {
    const NAME: &str = "EMC clock";
    const FOLDER: &str = "/sys/kernel/debug/bpmp/debug/clk/emc";
    let hz = |file: &str| machine.read(&format!("{FOLDER}/{file}"))?.trim().parse::<u64>().ok();
    match (hz("rate"), hz("max_rate")) {
        (Some(now), Some(max)) => {
            let found = format!("{} of {} MHz", now / 1_000_000, max / 1_000_000);
            match now < max {
                true => Check::warning(
                    NAME,
                    found,
                    "memory speed bounds most kernels: sudo jetson_clocks pins it",
                ),
                false => Check::good(NAME, found),
            }
        }
        _ => Check::unknown(NAME, format!("{FOLDER} can be read by root alone")),
    }
}

fn contiguous_memory(machine: &dyn Machine) -> Check {
    const NAME: &str = "CMA";
    match (meminfo(machine, "CmaFree"), meminfo(machine, "CmaTotal")) {
        (Some(free), Some(total)) => {
            let found = format!("{} of {} free", size(free), size(total));
            match free < CMA_WANTED {
                true => Check::warning(
                    NAME,
                    found,
                    "the driver's contiguous buffers come from here: raise cma= on the kernel command line, or reboot",
                ),
                false => Check::good(NAME, found),
            }
        }
        _ => Check::unknown(NAME, "the kernel has no contiguous memory area"),
    }
}
