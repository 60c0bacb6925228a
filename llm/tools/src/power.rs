//! Power mode and clocks of a Jetson, on which every figure depends.
//!
//! Sources: the GPU's devfreq node, nvpmodel's status file, and the clock tree of the power processor in
//! debugfs (root only). Files that cannot be read are absent.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Power mode and clocks at a point in time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Power {
    /// Number of the mode in nvpmodel (AGX Orin: 0 is MAXN, 2 the default of 30 W).
    pub mode: Option<u32>,
    /// Clock of the GPU, in Hz.
    pub gpu_hz: Option<u64>,
    /// Highest clock of the GPU in this mode, in Hz.
    pub gpu_max_hz: Option<u64>,
    /// Clock of the memory controller, in Hz.
    pub emc_hz: Option<u64>,
}

impl Power {
    /// Reads the files below `root`, which is `/` outside of tests.
    pub fn read(root: &Path) -> Self {
        let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse().ok();
        let gpu = fs::read_dir(root.join("sys/class/devfreq")).ok().and_then(|nodes| {
            let is_gpu = |name: &str| name.ends_with(".gpu") || name.ends_with(".ga10b");
            nodes.flatten().map(|n| n.path()).find(|p| p.to_str().is_some_and(is_gpu))
        });
        let status = fs::read_to_string(root.join("var/lib/nvpmodel/status")).ok();
        let mode = status.and_then(|text| text.trim().strip_prefix("pmode:")?.parse().ok());
        Self {
            mode,
            gpu_hz: gpu.as_ref().and_then(|node| number(&node.join("cur_freq"))),
            gpu_max_hz: gpu.as_ref().and_then(|node| number(&node.join("max_freq"))),
            emc_hz: number(&root.join("sys/kernel/debug/bpmp/debug/clk/emc/rate")),
        }
    }

    /// Whether nothing could be read.
    pub fn is_unknown(&self) -> bool {
        *self == Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_jetson_shows_its_mode_and_clocks() {
        let root = tempfile::tempdir().expect("a temporary directory");
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("created");
            fs::write(path, text).expect("written");
        };
        put("sys/class/devfreq/17000000.gpu/cur_freq", "624750000\n");
        put("sys/class/devfreq/17000000.gpu/max_freq", "1300500000\n");
        put("sys/class/devfreq/other/cur_freq", "1\n");
        put("var/lib/nvpmodel/status", "pmode:0002");
        let power = Power::read(root.path());
        let expected =
            Power { mode: Some(2), gpu_hz: Some(624_750_000), gpu_max_hz: Some(1_300_500_000), emc_hz: None };
        assert_eq!(power, expected);
    }

    #[test]
    fn elsewhere_nothing_is_known() {
        let root = tempfile::tempdir().expect("a temporary directory");
        assert!(Power::read(root.path()).is_unknown());
    }
}
