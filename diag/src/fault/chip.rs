//! Which architecture the lines of a fault speak of.

use crate::fault::incident::Incident;
use crate::kernel_log::Entry;

/// Devices as nvgpu names them, by the end of the name or by the whole, with their compute capability. Trees of
/// r36 call every GPU `gpu`; its address tells Orin (and Xavier, which r36 does not support) from the Nano.
const TEGRA: [(&str, u32); 7] = [
    ("ga10b", 87),
    ("17000000.gpu", 87),
    ("gv11b", 72),
    ("gp10b", 62),
    ("gm20b", 53),
    ("57000000.gpu", 53),
    ("gk20a", 32),
];

/// Compute classes that the desktop driver prints, from the open kernel modules' class headers.
const CLASSES: [(u64, u32); 8] = [
    (0xc0c0, 60),
    (0xc1c0, 61),
    (0xc3c0, 70),
    (0xc5c0, 75),
    (0xc6c0, 80),
    (0xc7c0, 86),
    (0xc9c0, 89),
    (0xcbc0, 90),
];

/// Compute capability of the device, 87 for 8.7; `None` where the lines do not tell it.
pub(super) fn compute_capability(incident: &Incident) -> Option<u32> {
    let by_name = |entry: &Entry| {
        let device = entry.device.as_deref()?;
        TEGRA.iter().find(|(name, _)| device.ends_with(name)).map(|(_, sm)| *sm)
    };
    let by_class = |entry: &Entry| {
        let class = entry.fields.number("class").filter(|_| entry.xid.is_some())?;
        CLASSES.iter().find(|(known, _)| *known == class).map(|(_, sm)| *sm)
    };
    incident.entries.iter().find_map(|entry| by_name(entry).or_else(|| by_class(entry)))
}
