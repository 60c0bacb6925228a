//! Paths of the device nodes, as a Jetson with r36 has them.

use crate::what_if::{WhatIf, WhatIfs};

/// A path of the driver's: a folder or a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A folder that holds nodes only, and the names in it.
    Folder(&'static [&'static str]),
    /// A character device.
    Node {
        /// Its minor number. The kernel gives major numbers out when it boots.
        minor: u32,
    },
}

/// The folder of the one integrated GPU.
const GPU: &str = "/dev/nvgpu/igpu0";

/// Nodes in [`GPU`], in the order in which the driver makes them (`os/linux/ioctl.c`).
const NODES: [&str; 13] = [
    "power",
    "as",
    "channel",
    "ctrl",
    "ctxsw",
    "dbg",
    "prof",
    "prof-ctx",
    "prof-dev",
    "sched",
    "nvsched",
    "nvsched_ctrl_fifo",
    "tsg",
];

/// The nodes that there are before the GPU has had power once, under both names.
const POWER: &[&str] = NODES.split_at(1).0;
/// The control node of a desktop or display driver, and its minor number.
const DISPLAY: (&str, u32) = ("/dev/nvidiactl", 255);

/// Returns the driver's node or folder at `path`, if it is one on this machine.
pub(crate) fn place(path: &str, what_if: &WhatIfs) -> Option<Place> {
    let number = |i: usize| Place::Node { minor: i as u32 };
    let nodes = nodes(what_if);
    match path.strip_suffix('/').unwrap_or(path) {
        "/dev/nvgpu" => return Some(Place::Folder(&["igpu0"])),
        GPU => return Some(Place::Folder(nodes)),
        _ => (),
    }
    match node(path, what_if)? {
        "nvmap" => Some(number(NODES.len())),
        "host1x-fence" => Some(number(NODES.len() + 1)),
        "nvidiactl" => Some(Place::Node { minor: DISPLAY.1 }),
        name => nodes.iter().position(|node| *node == name).map(number),
    }
}

/// Nodes of the GPU. The driver makes `power` when the module is loaded, and the others once the GPU has got
/// power (`gk20a_power_node_init`, `gk20a_user_nodes_init`, os/linux/ioctl.c, r36.4.3).
fn nodes(what_if: &WhatIfs) -> &'static [&'static str] {
    if what_if.has(WhatIf::ONLY_POWER) { POWER } else { &NODES }
}

/// Name of a node, by any path that it has: r36 has two for each of the GPU.
pub(crate) fn node(path: &str, what_if: &WhatIfs) -> Option<&'static str> {
    match path {
        "/dev/nvmap" => return Some("nvmap"),
        "/dev/host1x-fence" => return Some("host1x-fence"),
        _ if path == DISPLAY.0 && what_if.has(WhatIf::DISPLAY_DRIVER) => return Some("nvidiactl"),
        _ => (),
    }
    let new = path.strip_prefix(GPU).and_then(|rest| rest.strip_prefix('/'));
    let old = || path.strip_prefix("/dev/nvhost-")?.strip_suffix("-gpu");
    let name = if path == "/dev/nvhost-gpu" { "channel" } else { new.or_else(old)? };
    nodes(what_if).iter().copied().find(|node| *node == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(path: &str) -> Option<Place> {
        super::place(path, &WhatIfs::default())
    }

    #[test]
    fn both_names_of_a_node_are_one() {
        assert_eq!(place("/dev/nvgpu/igpu0/channel"), place("/dev/nvhost-gpu"));
        assert_eq!(place("/dev/nvgpu/igpu0/ctrl"), place("/dev/nvhost-ctrl-gpu"));
        assert_eq!(place("/dev/nvgpu/igpu0/ctrl"), Some(Place::Node { minor: 3 }));
        for other in
            ["/dev/nvgpu/igpu1/ctrl", "/dev/nvhost--gpu", "/dev/nvgpu/igpu0/x", "/dev/nvmap/", "/dev", ""]
        {
            assert_eq!(place(other), None, "{other}");
        }
        assert_eq!(place("/dev/nvgpu/"), Some(Place::Folder(&["igpu0"])));
    }
}
