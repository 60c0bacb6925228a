//! Checks of a machine with the desktop driver.

use rm_sys::{Release, Version};

use crate::doctor::machine::{Access, Check, Machine, node};

pub(super) fn checks(machine: &dyn Machine) -> Vec<Check> {
    let mut checks = vec![driver(machine)];
    let absent =
        "the driver makes it: sudo modprobe nvidia, or nvidia-modprobe -c 0; in a container, pass it through";
    checks.push(node(machine, "control node", "/dev/nvidiactl", Access::ReadWrite, absent));
    let cards: Vec<String> = machine
        .list("/dev")
        .into_iter()
        .filter(|name| {
            name.strip_prefix("nvidia")
                .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
        })
        .collect();
    if cards.is_empty() {
        checks.push(Check::bad("card node", "/dev/nvidia0 is not there", absent));
    }
    for card in cards {
        checks.push(node(machine, "card node", &format!("/dev/{card}"), Access::ReadWrite, absent));
    }
    checks.extend(cards_by_model(machine));
    checks
}

fn driver(machine: &dyn Machine) -> Check {
    const NAME: &str = "driver";
    let text =
        [rm_sys::VERSION_FILE, rm_sys::VERSION_TEXT_FILE].into_iter().find_map(|path| machine.read(path));
    let Some(text) = text else {
        return Check::bad(
            NAME,
            "the nvidia kernel module is not loaded",
            "install NVIDIA's driver, then sudo modprobe nvidia",
        );
    };
    let version = match Version::in_text(&text) {
        Ok(version) => version,
        Err(error) => return Check::bad(NAME, error.to_string(), "install a released driver"),
    };
    match Release::of(version) {
        Ok(_) => Check::good(NAME, format!("{version}, whose structs are known")),
        Err(error) => Check::bad(
            NAME,
            error.to_string(),
            "install a driver of one of these branches; HCQ_DEVICE=sim works without",
        ),
    }
}

/// The driver's own list of GPUs.
fn cards_by_model(machine: &dyn Machine) -> Vec<Check> {
    const FOLDER: &str = "/proc/driver/nvidia/gpus";
    let found = machine.list(FOLDER).into_iter().map(|address| {
        let text = machine.read(&format!("{FOLDER}/{address}/information")).unwrap_or_default();
        let field = |key: &str| text.lines().find_map(|l| l.strip_prefix(key)).map(|v| v.trim().to_owned());
        let model = field("Model:").unwrap_or_else(|| "an unnamed GPU".to_owned());
        match field("GPU Excluded:").as_deref() {
            Some("Yes") => Check::bad(
                "GPU",
                format!("{model} at {address} is excluded from use"),
                "lift NVreg_ExcludedGpus of the module",
            ),
            _ => Check::good("GPU", format!("{model} at {address}")),
        }
    });
    found.collect()
}
