//! Checks of a Jetson.

use hcq::Tegra;

use crate::doctor::machine::{Check, Machine, Unread, compatible, free_of, is_container};
use crate::doctor::{driver, release, speed};
use crate::size::size;

/// Contiguous memory that the driver needs: for its own buffers and firmware.
const CMA_WANTED: u64 = 32 << 20;

pub(super) fn checks(machine: &dyn Machine) -> Vec<Check> {
    let (chip, driven) = chip(machine);
    if !driven {
        // Other checks would be for a driver that cannot be used.
        return vec![chip, release::fact(machine)];
    }
    let mut checks = vec![chip, release::check(machine)];
    checks.extend(driver::checks(machine));
    checks.push(speed::power_mode(machine));
    checks.push(speed::gpu_clock(machine));
    checks.push(speed::cpu_governor(machine));
    checks.push(speed::memory_clock(machine));
    checks.push(contiguous_memory(machine));
    checks
}

/// The chip, and whether its GPU may be one that is driven.
fn chip(machine: &dyn Machine) -> (Check, bool) {
    const NAME: &str = "chip";
    const ORIN_ALONE: &str =
        "of Tegra's GPUs that of Orin alone is driven; HCQ_DEVICE=sim runs everything on the software ga10b";
    let names = match compatible(machine) {
        Ok(names) => names,
        Err(Unread::Absent) => {
            let why = match machine.is_copy() && !is_container(machine) {
                true => "the device tree is missing from the copy",
                false => "no device tree (a container hides it)",
            };
            return (Check::unknown(NAME, why), true);
        }
        Err(unread) => return (Check::unknown(NAME, format!("the device tree {unread}")), true),
    };
    if names.trim_matches(['\0', '\n']).is_empty() {
        return (Check::unknown(NAME, "the device tree names no chip"), true);
    }
    let model = machine.read("/proc/device-tree/model").unwrap_or_default();
    let model = model.trim_matches(|c: char| c == '\0' || c.is_whitespace());
    match Tegra::in_device_tree(names.as_bytes()) {
        Some(tegra) if tegra.is_orin() => (Check::good(NAME, format!("{tegra}: {model}")), true),
        Some(tegra) => {
            let (major, minor) = (tegra.sm / 10, tegra.sm % 10);
            let found = format!("{tegra}, SM {major}.{minor}: {model}");
            (Check::bad(NAME, found, ORIN_ALONE), false)
        }
        None => {
            let names = names.replace('\0', " ");
            (Check::bad(NAME, format!("{model} ({})", names.trim()), ORIN_ALONE), false)
        }
    }
}

fn contiguous_memory(machine: &dyn Machine) -> Check {
    const NAME: &str = "CMA";
    match free_of(machine, "CmaFree", "CmaTotal") {
        Ok(Some((free, total))) => {
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
        Ok(None) => Check::unknown(NAME, "the kernel has no contiguous memory area"),
        Err(why) => Check::unknown(NAME, why),
    }
}
