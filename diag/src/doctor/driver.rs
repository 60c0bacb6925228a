//! Whether nvgpu runs on a Jetson: its modules, what loads them, its firmware and its nodes.
//!
//! Sources: nvgpu of L4T r36.4.3; for JetPack 7 the developer guide of r39.2 (NvLoadDisplayModulesService) and
//! what owners of boards posted. Nothing of r39.2 was seen on a board.

use crate::doctor::machine::{Access, Check, Machine, is_container, node};

/// The folder of the first GPU's nodes.
const NODES: &str = "/dev/nvgpu/igpu0";
/// The one that is there before the GPU has started.
const POWER: &str = "/dev/nvgpu/igpu0/power";
/// Its control node.
const CTRL: &str = "/dev/nvgpu/igpu0/ctrl";
/// The memory allocator's.
const NVMAP: &str = "/dev/nvmap";
/// JetPack 7: with this file modprobe loads none of the GPU's modules by itself.
const DENYLIST: &str = "/etc/modprobe.d/denylist-oot-modules.conf";
/// JetPack 7: what loads them instead.
const SERVICE: &str = "nv-load-display-modules";

/// Modules, firmware and nodes.
pub(super) fn checks(machine: &dyn Machine) -> Vec<Check> {
    let firmware = firmware(machine);
    let absent = if is_container(machine) {
        "give the nodes to the container: --device /dev/nvgpu --device /dev/nvmap --group-add video (docker, podman), or \
         --runtime nvidia"
    } else if firmware.is_some() {
        AFTER_START
    } else {
        "nvgpu makes it when the GPU has started: sudo dmesg | grep -i -e nvgpu -e firmware"
    };
    let absent_nvmap = if is_container(machine) {
        absent
    } else if machine.node("/sys/module/nvmap").is_some() {
        "devtmpfs and udev make it for the loaded module: sudo udevadm trigger; if it stays away: sudo dmesg | grep \
         -i nvmap"
    } else {
        "the nvmap module makes it: sudo modprobe nvmap"
    };
    let mut checks = vec![nvgpu(machine), nvmap(machine)];
    checks.extend(firmware);
    checks.push(node(machine, "control node", CTRL, Access::ReadWrite, absent));
    // Reading is enough: see `nvgpu_sys::open_nvmap`.
    checks.push(node(machine, "memory node", NVMAP, Access::Read, absent_nvmap));
    checks.extend(display(machine));
    checks
}

/// Remedy for a missing control node where there is firmware.
const AFTER_START: &str = "it is there once the GPU has started";

/// Checks of a software ga10b, which has nodes, and no modules.
pub(super) fn software(machine: &dyn Machine) -> Vec<Check> {
    let absent = "the library serves it: is it of this release?";
    let firmware = firmware(machine);
    let absent_ctrl = if firmware.is_some() { AFTER_START } else { absent };
    let mut checks: Vec<Check> = firmware.into_iter().collect();
    checks.push(node(machine, "control node", CTRL, Access::ReadWrite, absent_ctrl));
    checks.push(node(machine, "memory node", NVMAP, Access::Read, absent));
    checks
}

/// The command that loads a module; a container has the kernel of its host.
fn modprobe(machine: &dyn Machine, name: &str) -> String {
    let place = if is_container(machine) { "on the host: " } else { "" };
    format!("{place}sudo modprobe {name}")
}

/// Whether a module is there; one that is part of the kernel shows by its node alone.
fn loaded(machine: &dyn Machine, name: &str, served: &str) -> Option<Check> {
    const NAME: &str = "kernel module";
    if machine.node(&format!("/sys/module/{name}")).is_some() {
        // `live` in general; a module that is part of the kernel has no such file.
        let state = machine.read(&format!("/sys/module/{name}/initstate")).unwrap_or_default();
        return Some(match state.trim() {
            "coming" => {
                let log = format!("wait, and look again; if it stays so: sudo dmesg | grep -i {name}");
                Check::warning(NAME, format!("{name} is still loading (initstate coming)"), log)
            }
            "going" => {
                let found = format!("{name} is being unloaded (initstate going)");
                Check::bad(NAME, found, modprobe(machine, name))
            }
            _ => Check::good(NAME, format!("{name} is loaded")),
        });
    }
    if machine.node(served).is_some() {
        return Some(Check::good(NAME, format!("{name} serves {served}")));
    }
    let why = format!("whether {name} is loaded is not known: neither its initstate nor dev.txt was copied");
    (!machine.has_nodes()).then(|| Check::unknown(NAME, why))
}

fn nvmap(machine: &dyn Machine) -> Check {
    loaded(machine, "nvmap", NVMAP)
        .unwrap_or_else(|| Check::bad("kernel module", "nvmap is not loaded", modprobe(machine, "nvmap")))
}

fn nvgpu(machine: &dyn Machine) -> Check {
    if let Some(check) = loaded(machine, "nvgpu", CTRL) {
        return check;
    }
    match machine.node(DENYLIST) {
        Some(_) => Check::bad(
            "kernel module",
            format!(
                "nvgpu is not loaded: {DENYLIST} leaves that to the service {SERVICE}{}",
                variant(machine)
            ),
            format!("sudo systemctl restart {SERVICE}; what it did: journalctl -b -u {SERVICE}"),
        ),
        None => Check::bad("kernel module", "nvgpu is not loaded", modprobe(machine, "nvgpu")),
    }
}

/// Returns the choice of the service: `nvgpu-l4t` is Orin's, `openrm-l4t` Thor's. The name of its file below
/// `/run` begins as here (developer guide of r39.2); the whole of it is not confirmed.
fn variant(machine: &dyn Machine) -> String {
    let files = machine.list("/run").into_iter().filter(|name| name.starts_with("nvidia-gp"));
    let chosen = files.filter_map(|name| {
        let text = machine.read(&format!("/run/{name}"))?;
        let chosen = ["nvgpu-l4t", "openrm-l4t"].into_iter().find(|variant| text.contains(variant))?;
        Some(format!(", which chose {chosen} (/run/{name})"))
    });
    chosen.last().unwrap_or_default()
}

/// A GPU that did not start has `power` and no other node: the driver makes that one when it is loaded, and the
/// others when the firmware runs (`os/linux/driver_common.c`, `module.c`).
fn firmware(machine: &dyn Machine) -> Option<Check> {
    if machine.node(POWER).is_none() || machine.node(CTRL).is_some() {
        return None;
    }
    const PATH: &str = "/sys/module/firmware_class/parameters/path";
    let path = machine.read(PATH).unwrap_or_default();
    let path = path.trim();
    // The names that nvgpu requests (`os/linux/firmware.c`).
    let holds =
        ["nvidia/ga10b", "ga10b"].iter().any(|name| machine.node(&format!("{path}/{name}")).is_some());
    // NVIDIA-AI-IOT/jetson-ai-lab issue 427: the ISO of JetPack 7.2 names a folder that it does not make.
    let (why, mend) = match path.is_empty() || holds {
        true => (String::new(), String::new()),
        false if machine.is_copy() && machine.node(path).is_none() => (
            format!("; firmware_class.path is {path}, which was not copied"),
            format!("see whether {path} has nvidia/ga10b; "),
        ),
        false => (
            format!("; firmware_class.path is {path}, which has no ga10b"),
            format!(
                "fill {path} with the files of /usr/lib/firmware, or name that in /boot/extlinux/extlinux.conf; "
            ),
        ),
    };
    Some(Check::bad(
        "GPU firmware",
        format!("the GPU did not start: {NODES} has `power` alone{why}"),
        format!(
            "{mend}sudo dmesg | grep -i -e nvgpu -e firmware says why (`ACR bootstrap failed`); then switch the \
             board off and on: a warm reboot may not clear it"
        ),
    ))
}

/// The desktop driver beside nvgpu, which serves an Orin's display.
fn display(machine: &dyn Machine) -> Option<Check> {
    machine.node("/dev/nvidiactl").or_else(|| machine.node("/sys/module/nvidia"))?;
    let version = machine.read(rm_sys::VERSION_FILE).map_or(String::new(), |v| format!(" {}", v.trim()));
    Some(Check::good(
        "display driver",
        format!("nvidia{version} serves the display; /dev/nvidiactl is no GPU to compute on"),
    ))
}
