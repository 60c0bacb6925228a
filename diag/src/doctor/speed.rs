//! Speed of a Jetson: power mode and clocks.
//!
//! Sources: nvgpu of L4T r36.4.3 (names in sysfs), NVIDIA's developer guide (power modes), files of boards with r36
//! and r39.2 that owners posted (rbonghi/jetson_stats 867, 889).

use crate::doctor::machine::{Check, Machine, Unread, excerpt, is_container, is_root};

const DEVFREQ: &str = "/sys/class/devfreq";
/// The power modes.
const MODES: &str = "/etc/nvpmodel.conf";
/// The mode that was set last.
const MODE: &str = "/var/lib/nvpmodel/status";
/// In Hz: no clock of a chip is this fast.
const NO_CLOCK: u64 = 10_000_000_000;
/// The governor that keeps a clock at its limit.
const PERFORMANCE: &str = "performance";

/// The power modes that `nvpmodel` knows on this board, by number and name. Numbers differ between boards.
fn power_modes(machine: &dyn Machine) -> Vec<(u32, String)> {
    let modes = machine.read(MODES).unwrap_or_default();
    let mode = |line: &str| {
        let (number, rest) = line.trim().strip_prefix("< POWER_MODEL ID=")?.split_once(' ')?;
        let name = rest.trim().trim_start_matches("NAME=").trim_end_matches('>').trim();
        Some((number.trim().parse().ok()?, name.to_owned()))
    };
    modes.lines().filter_map(mode).collect()
}

/// `nvpmodel` keeps the mode that was set last in a file, `pmode:0002 ...`: its number, and its name where
/// the modes are listed.
pub(super) fn power_mode_of(machine: &dyn Machine) -> Option<(u32, Option<String>)> {
    let status = machine.read(MODE)?;
    let id = status.split("pmode:").nth(1)?.get(..4)?.parse::<u32>().ok()?;
    let name = power_modes(machine).into_iter().find(|mode| mode.0 == id);
    Some((id, name.map(|mode| mode.1)))
}

/// The largest mode that `nvpmodel` lists: MAXN_SUPER where there is one, else MAXN, else the one of most watts.
fn full_mode(machine: &dyn Machine) -> Option<(u32, String)> {
    let rank = |name: &str| match name.starts_with("MAXN") {
        true => Some((1, name.len())),
        false => watts(name).map(|watts| (0, watts)),
    };
    power_modes(machine)
        .into_iter()
        .filter_map(|mode| Some((rank(&mode.1)?, mode)))
        .max_by_key(|(rank, _)| *rank)
        .map(|(_, mode)| mode)
}

/// The value that a power mode gives to a parameter, `GPU MAX_FREQ`.
fn setting(machine: &dyn Machine, mode: u32, parameter: &str) -> Option<i64> {
    let modes = machine.read(MODES)?;
    let begins = |line: &&str| line.trim().starts_with(&format!("< POWER_MODEL ID={mode} "));
    let lines = modes.lines().skip_while(|line| !begins(line)).skip(1);
    let mut own = lines.take_while(|line| !line.trim().starts_with('<'));
    own.find_map(|line| line.trim().strip_prefix(parameter)?.trim().parse().ok())
}

/// The mode of a board on which none was set, as `nvpmodel` lists it: `, 2 (MODE_30W)`.
fn default_mode(machine: &dyn Machine) -> Option<String> {
    let modes = machine.read(MODES)?;
    let number = modes.lines().find_map(|line| line.trim().strip_prefix("< PM_CONFIG DEFAULT="))?;
    let id: u32 = number.trim_end_matches('>').trim().parse().ok()?;
    let name = power_modes(machine).into_iter().find(|mode| mode.0 == id)?.1;
    Some(format!(", {id} ({name})"))
}

/// The watts in a mode's name: 30 of `MODE_30W`.
fn watts(name: &str) -> Option<usize> {
    name.split('_').find_map(|word| word.strip_suffix('W')?.parse().ok())
}

pub(super) fn power_mode(machine: &dyn Machine) -> Check {
    const NAME: &str = "power mode";
    let Some((id, name)) = power_mode_of(machine) else {
        let found = match machine.text(MODE) {
            Err(Unread::Absent) if is_container(machine) => {
                format!("a container does not have {MODE}{}", gated(machine))
            }
            Err(Unread::Absent) => {
                let default = default_mode(machine).unwrap_or_default();
                let gated = gated(machine);
                format!("nvpmodel has not stored one ({MODE}): the board's default counts{default}{gated}")
            }
            Err(unread) => format!("{MODE} {unread}"),
            Ok(text) => format!("{MODE} names none: {}", excerpt(&text)),
        };
        return Check::unknown(NAME, found);
    };
    let named = name.as_ref().map_or(String::new(), |n| format!(" ({n})"));
    let found = format!("{id}{named}{}", gated(machine));
    if let Err(unread) = machine.text(MODES) {
        return Check::unknown(NAME, format!("{found}: {MODES} {unread}"));
    }
    let Some((full, full_name)) = full_mode(machine) else {
        return Check::unknown(NAME, format!("{found}: {MODES} names no mode without limits"));
    };
    if id == full {
        // A chip whose TPCs are fused off has a mask of 0 in every mode.
        let wanted = setting(machine, id, "TPC_POWER_GATING TPC_PG_MASK");
        let wanted = wanted.and_then(|mask| u32::try_from(mask).ok());
        return match wanted.filter(|wanted| mask(machine, "tpc_pg_mask").unwrap_or(0) & !wanted != 0) {
            Some(wanted) => Check::warning(
                NAME,
                format!(
                    "{found}: more is off than the TPC_PG_MASK {wanted:#x} that {MODES} has for this mode"
                ),
                format!("sudo nvpmodel -m {id} sets it again (it may request a reboot)"),
            ),
            None => Check::good(NAME, found),
        };
    }
    if name.is_none() {
        return Check::unknown(NAME, format!("{found}: {MODES} lists no such mode"));
    }
    Check::warning(
        NAME,
        format!("{found}: fewer SMs or lower clocks than the chip has"),
        format!("sudo nvpmodel -m {full} ({full_name}; it may request a reboot)"),
    )
}

/// Returns the parts that the driver keeps switched off, by its own masks; empty where they are 0.
fn gated(machine: &dyn Machine) -> String {
    ["tpc_pg_mask", "gpc_pg_mask"]
        .into_iter()
        .filter_map(|file| Some(format!(", {file} {:#x}", mask(machine, file).filter(|mask| *mask != 0)?)))
        .collect()
}

/// A mask of the driver's.
fn mask(machine: &dyn Machine, file: &str) -> Option<u32> {
    machine.read(&format!("{DEVFREQ}/{}/device/{file}", gpu(machine)?))?.trim().parse().ok()
}

/// The GPU's name among the devices of devfreq: `17000000.gpu` on r36 and r39, `17000000.ga10b` before.
fn gpu(machine: &dyn Machine) -> Option<String> {
    machine.list(DEVFREQ).into_iter().find(|name| [".gpu", ".ga10b"].iter().any(|end| name.ends_with(end)))
}

/// The clock in Hz that a file states, or why that is not known.
fn clock(machine: &dyn Machine, path: &str) -> Result<u64, String> {
    let text = machine.text(path).map_err(|unread| format!("{path} {unread}"))?;
    let hz = text.trim().parse().ok().filter(|hz| *hz < NO_CLOCK);
    hz.ok_or_else(|| format!("{path} states no clock in Hz: {}", excerpt(&text)))
}

/// The GPU's clock as devfreq has it.
pub(super) fn gpu_clock(machine: &dyn Machine) -> Check {
    const NAME: &str = "GPU clock";
    let Some(device) = gpu(machine) else {
        return Check::unknown(
            NAME,
            format!("the GPU is not in {DEVFREQ} yet: after boot it can take a while to appear"),
        );
    };
    let text = |file: &str| Some(machine.read(&format!("{DEVFREQ}/{device}/{file}"))?.trim().to_owned());
    let hz = |file: &str| clock(machine, &format!("{DEVFREQ}/{device}/{file}"));
    let clocks = || Ok::<_, String>((hz("cur_freq")?, hz("min_freq")?, hz("max_freq")?));
    let (now, min, max) = match clocks() {
        Ok(clocks) => clocks,
        Err(why) => return Check::unknown(NAME, why),
    };
    let possible = text("available_frequencies").unwrap_or_default();
    let top = possible
        .split_whitespace()
        .filter_map(|w| w.parse().ok())
        .filter(|hz| *hz < NO_CLOCK)
        .max()
        .unwrap_or(max);
    let governor = text("governor").unwrap_or_default();
    let mhz = |hz: u64| hz / 1_000_000;
    let mut found =
        format!("{} MHz now, {} to {} MHz allowed, {} MHz possible", mhz(now), mhz(min), mhz(max), mhz(top));
    if !governor.is_empty() {
        found.push_str(&format!(", governor {governor}"));
    }
    if min > max {
        return Check::unknown(NAME, format!("{found}: the lowest allowed is above the highest"));
    }
    if max < top {
        return Check::warning(NAME, found, uncapped(machine, max));
    }
    match min < max && governor != PERFORMANCE {
        true => Check::warning(
            NAME,
            found,
            "for steady latency pin it: sudo jetson_clocks (short launches otherwise run at the low clock)",
        ),
        false => Check::good(NAME, found),
    }
}

/// The remedy for a clock that may not rise above `max` Hz.
fn uncapped(machine: &dyn Machine, max: u64) -> String {
    let Some((full, _)) = full_mode(machine) else {
        return format!("the power mode caps the clock: nvpmodel -m sets one by its number in {MODES}");
    };
    if power_mode_of(machine).is_none_or(|(set, _)| set != full) {
        return format!("the power mode caps the clock: sudo nvpmodel -m {full}");
    }
    // -1 is no limit.
    let limit = setting(machine, full, "GPU MAX_FREQ").and_then(|hz| u64::try_from(hz).ok());
    match limit.is_some_and(|limit| limit <= max) {
        true => "the power mode caps the clock, and is the largest of this board".to_owned(),
        false => format!(
            "not the power mode: something else lowered max_freq (a user, a service, an nvpmodel.service that \
             failed); sudo nvpmodel -m {full} sets it again"
        ),
    }
}

/// The CPU's clocks: `jetson_clocks` leaves the governor, and pins the lowest allowed clock to the highest.
pub(super) fn cpu_governor(machine: &dyn Machine) -> Check {
    const NAME: &str = "CPU governor";
    const FOLDER: &str = "/sys/devices/system/cpu/cpufreq";
    let (mut governors, mut steady) = (Vec::new(), true);
    for policy in machine.list(FOLDER).iter().filter(|name| name.starts_with("policy")) {
        let value = |file: &str| machine.read(&format!("{FOLDER}/{policy}/{file}"));
        let khz = |file: &str| value(file)?.trim().parse::<u64>().ok();
        let Some(text) = value("scaling_governor") else { continue };
        let governor = text.trim().to_owned();
        if governor.is_empty() || !governor.bytes().all(|byte| byte.is_ascii_graphic()) {
            let found = format!("{FOLDER}/{policy}/scaling_governor names none: {}", excerpt(&text));
            return Check::unknown(NAME, found);
        }
        let pinned = khz("scaling_min_freq").is_some_and(|min| khz("scaling_max_freq") == Some(min));
        steady &= pinned || governor == PERFORMANCE;
        governors.push(governor);
    }
    governors.sort();
    governors.dedup();
    let found = governors.join(", ");
    match (governors.as_slice(), steady) {
        ([], _) => Check::unknown(NAME, "cpufreq reports nothing"),
        ([one], true) if one == PERFORMANCE => Check::good(NAME, found),
        (_, true) => Check::good(NAME, format!("{found}; the clocks are pinned")),
        (_, false) => Check::warning(
            NAME,
            found,
            "launches are submitted by the CPU: sudo jetson_clocks pins the clocks",
        ),
    }
}

pub(super) fn memory_clock(machine: &dyn Machine) -> Check {
    const NAME: &str = "EMC clock";
    const FOLDER: &str = "/sys/kernel/debug/bpmp/debug/clk/emc";
    let (now, max) = (format!("{FOLDER}/rate"), format!("{FOLDER}/max_rate"));
    let hidden = |path: &&String| matches!(machine.text(path), Err(Unread::Absent | Unread::Forbidden));
    if [&now, &max].iter().any(hidden) {
        let why =
            if is_root(machine) { "is not there: is debugfs mounted?" } else { "can be read by root alone" };
        return Check::unknown(NAME, format!("{FOLDER} {why}"));
    }
    match (clock(machine, &now), clock(machine, &max)) {
        (Ok(now), Ok(max)) => {
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
        (Err(why), _) | (_, Err(why)) => Check::unknown(NAME, why),
    }
}

/// Returns the temperature of the thermal zone at the GPU.
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
