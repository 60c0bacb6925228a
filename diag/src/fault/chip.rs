//! The architecture that the lines of a fault name.

use crate::fault::incident::Incident;
use crate::kernel_log::Entry;

/// Devices as nvgpu names them, by the end of the name or by the whole, with their compute capability. Trees
/// of r36 call every GPU `gpu`; its address distinguishes Orin (and Xavier, which r36 does not support) from
/// the Nano.
const TEGRA: [(&str, u32); 7] = [
    ("ga10b", 87),
    ("17000000.gpu", 87),
    ("gv11b", 72),
    ("gp10b", 62),
    ("gm20b", 53),
    ("57000000.gpu", 53),
    ("gk20a", 32),
];

/// Compute capability of the device, 87 for 8.7; `None` where the lines do not have it.
pub(super) fn compute_capability(incident: &Incident) -> Option<u32> {
    let by_name = |entry: &Entry| {
        let device = entry.device.as_deref()?;
        TEGRA.iter().find(|(name, _)| device.ends_with(name)).map(|(_, sm)| *sm)
    };
    let by_class = |entry: &Entry| {
        let class = entry.fields.number("class").filter(|_| entry.xid.is_some())?;
        nv_hw::class::compute_capability(u32::try_from(class).ok()?)
    };
    incident.entries.iter().find_map(|entry| by_name(entry).or_else(|| by_class(entry)))
}
