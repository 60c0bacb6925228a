//! The Tegra chips of Jetson boards, as the device tree names them.

use std::fmt;

/// A Tegra chip and the GPU in it. Of these, nvgpu's backend drives that of Orin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tegra {
    /// The chip, `tegra234`: the device tree's compatible names hold `nvidia,tegra234`.
    pub chip: &'static str,
    /// Its GPU, `ga10b`.
    pub gpu: &'static str,
    /// The boards that have it, `Orin`.
    pub boards: &'static str,
    /// SM version of the GPU, 87 for 8.7.
    pub sm: u32,
}

/// Chips and boards: device trees that owners posted (rbonghi/jetson_stats issues 48, 291, 711, 864). GPUs: the
/// compatible names of nvgpu (`os/linux/module.c` of r36.4.3 and of r32.7.1); gb10b: aristocratos/btop pull
/// request 1538. SM versions: NVIDIA's table of compute capabilities. Nothing was read from a board.
const TEGRAS: [Tegra; 5] = [
    Tegra { chip: "tegra210", gpu: "gm20b", boards: "Jetson Nano or TX1", sm: 53 },
    Tegra { chip: "tegra186", gpu: "gp10b", boards: "TX2", sm: 62 },
    Tegra { chip: "tegra194", gpu: "gv11b", boards: "Xavier", sm: 72 },
    Tegra { chip: "tegra234", gpu: "ga10b", boards: "Orin", sm: 87 },
    Tegra { chip: "tegra264", gpu: "gb10b", boards: "Thor", sm: 110 },
];

/// Thor's SM version as CUDA 12 numbers it; CUDA 13 has 110.
const THOR_IN_CUDA_12: u32 = 101;

impl Tegra {
    /// The chip that a device tree names: `compatible` is the file's content, names that end in NUL.
    pub fn in_device_tree(compatible: &[u8]) -> Option<Self> {
        let names = |tegra: &Self| {
            compatible
                .split(|byte| *byte == 0)
                .any(|name| name.strip_prefix(b"nvidia,") == Some(tegra.chip.as_bytes()))
        };
        TEGRAS.into_iter().find(names)
    }

    /// The chip whose GPU has SMs of this version.
    pub(crate) fn of_sm(sm: u32) -> Option<Self> {
        let sm = if sm == THOR_IN_CUDA_12 { 110 } else { sm };
        TEGRAS.into_iter().find(|tegra| tegra.sm == sm)
    }

    /// Whether its GPU is one that the backend of nvgpu drives.
    #[must_use]
    pub fn is_orin(self) -> bool {
        self.chip == "tegra234"
    }
}

impl fmt::Display for Tegra {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} ({})", self.gpu, self.boards, self.chip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chips_are_told_by_whole_names_and_by_sm() {
        let of = |names: &[u8]| Tegra::in_device_tree(names).map(|tegra| tegra.gpu);
        assert_eq!(of(b"nvidia,p3737-0000+p3701-0005\0nvidia,tegra234\0nvidia,tegra23x\0"), Some("ga10b"));
        assert_eq!(of(b"nvidia,p4071-0000+p3834-0008\0nvidia,p3834-0008\0nvidia,tegra264\0"), Some("gb10b"));
        for none in [&b"nvidia,tegra23x\0"[..], b"nvidia,tegra2345\0", b"xnvidia,tegra234\0", b""] {
            assert_eq!(of(none), None);
        }
        for (sm, gpu) in [(72, "gv11b"), (87, "ga10b"), (101, "gb10b"), (110, "gb10b")] {
            assert_eq!(Tegra::of_sm(sm).map(|tegra| tegra.gpu), Some(gpu));
        }
        assert_eq!(Tegra::of_sm(120), None);
        assert!(TEGRAS.into_iter().filter(|tegra| tegra.is_orin()).map(|tegra| tegra.sm).eq([87]));
    }
}
