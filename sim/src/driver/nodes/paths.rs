//! Paths of the device nodes, as a Jetson with r36 has them.

/// What a path names.
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

/// What `path` names on this machine, if it is the driver's.
pub(crate) fn place(path: &str) -> Option<Place> {
    let number = |i: usize| Place::Node { minor: i as u32 };
    match path.strip_suffix('/').unwrap_or(path) {
        "/dev/nvgpu" => return Some(Place::Folder(&["igpu0"])),
        GPU => return Some(Place::Folder(&NODES)),
        _ => (),
    }
    match path {
        "/dev/nvmap" => Some(number(NODES.len())),
        "/dev/host1x-fence" => Some(number(NODES.len() + 1)),
        _ => NODES.iter().position(|node| *node == self::node(path).unwrap_or_default()).map(number),
    }
}

/// Name of a node of the GPU: both ways in which r36 calls them.
pub(crate) fn node(path: &str) -> Option<&str> {
    if path == "/dev/nvhost-gpu" {
        return Some("channel");
    }
    let new = path.strip_prefix(GPU).and_then(|rest| rest.strip_prefix('/'));
    new.or_else(|| path.strip_prefix("/dev/nvhost-")?.strip_suffix("-gpu"))
}

#[cfg(test)]
mod tests {
    use super::*;

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
