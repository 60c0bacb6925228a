//! The constants of chips in their power modes, as a table.
//!
//! Sources: NVIDIA's data sheets of the modules (SMs, highest clocks, memory bandwidth), and the
//! `nvpmodel` files of Jetson Linux, which each chip names: `TPC_PG_MASK` (two SMs per bit that is 0, of 8),
//! `GPU MAX_FREQ` and `EMC MAX_FREQ`. Files without `super` are those of release 35, the others those that came
//! with JetPack 6.1 and 6.2; LineageOS' `android_device_nvidia_concord` has copies of all. The GPU's driver takes
//! the nearest clock of its table (624.75 MHz for 612). Compare with `nvpmodel -q --verbose` on the board: modes
//! differ by release. Bandwidth follows from the memory's clock: 3199 MHz on 256 bits are 204.8 GB/s.

use crate::roofline::Machine;

/// A chip or a module.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Chip {
    /// Name on the command line.
    pub key: &'static str,
    /// Name in reports.
    pub title: &'static str,
    /// The source of the power modes.
    pub source: &'static str,
    /// Level-2 cache in bytes.
    pub l2_bytes: u64,
    /// Power modes, the one with the highest clocks first.
    modes: &'static [Mode],
}

/// A power mode: name, SMs, clock of the GPU in MHz, DRAM bandwidth in GB/s.
type Mode = (&'static str, f64, f64, f64);

// Bandwidth of 256, 128 and 64 bits at 3199 MHz, and at 2133 MHz.
const FULL_256: f64 = 204.8;
const FULL_128: f64 = 102.4;
const FULL_64: f64 = 51.2;
const LOW_256: f64 = 136.5;
const LOW_128: f64 = 68.3;
const LOW_64: f64 = 34.1;

/// All chips.
pub const CHIPS: [Chip; 7] = [
    Chip {
        key: "orin-agx-64",
        title: "AGX Orin 64 GB",
        source: "nvpmodel_p3701_0000.conf",
        l2_bytes: 4 << 20,
        modes: &[
            ("MAXN", 16.0, 1300.5, FULL_256),
            ("50W", 16.0, 816.0, FULL_256),
            ("30W", 8.0, 612.0, FULL_256),
            ("15W", 6.0, 408.0, LOW_256),
        ],
    },
    Chip {
        key: "orin-agx-32",
        title: "AGX Orin 32 GB",
        source: "nvpmodel_p3701_0004.conf",
        l2_bytes: 4 << 20,
        modes: &[
            ("MAXN", 14.0, 930.75, FULL_256),
            ("40W", 14.0, 816.0, FULL_256),
            ("30W", 8.0, 612.0, FULL_256),
            ("15W", 6.0, 408.0, LOW_256),
        ],
    },
    Chip {
        key: "orin-nx-16",
        title: "Orin NX 16 GB",
        source: "nvpmodel_p3767_0000_super.conf; MAXN: nvpmodel_p3767_0000.conf",
        l2_bytes: 2 << 20,
        modes: &[
            ("MAXN_SUPER", 8.0, 1173.0, FULL_128),
            ("40W", 8.0, 1173.0, FULL_128),
            ("MAXN", 8.0, 918.0, FULL_128),
            ("25W", 8.0, 408.0, FULL_128),
            ("15W", 4.0, 612.0, FULL_128),
            ("10W", 4.0, 612.0, LOW_128),
        ],
    },
    Chip {
        key: "orin-nx-8",
        title: "Orin NX 8 GB",
        source: "nvpmodel_p3767_0001_super.conf; MAXN: nvpmodel_p3767_0001.conf",
        l2_bytes: 2 << 20,
        modes: &[
            ("MAXN_SUPER", 8.0, 1173.0, FULL_128),
            ("40W", 8.0, 1173.0, FULL_128),
            ("MAXN", 8.0, 765.0, FULL_128),
            ("20W", 8.0, 408.0, FULL_128),
            ("15W", 4.0, 612.0, FULL_128),
            ("10W", 4.0, 612.0, LOW_128),
        ],
    },
    Chip {
        key: "orin-nano-8",
        title: "Orin Nano 8 GB",
        source: "nvpmodel_p3767_0003_super.conf; 7W: nvpmodel_p3767_0003.conf",
        l2_bytes: 2 << 20,
        modes: &[
            ("MAXN_SUPER", 8.0, 1020.0, FULL_128),
            ("25W", 8.0, 918.0, FULL_128),
            ("15W", 8.0, 612.0, LOW_128),
            ("7W", 4.0, 408.0, LOW_128),
        ],
    },
    Chip {
        key: "orin-nano-4",
        title: "Orin Nano 4 GB",
        source: "nvpmodel_p3767_0004_super.conf; 7W: nvpmodel_p3767_0004.conf",
        l2_bytes: 2 << 20,
        modes: &[
            ("MAXN_SUPER", 4.0, 1020.0, FULL_64),
            ("25W", 4.0, 1020.0, FULL_64),
            ("10W", 4.0, 612.0, LOW_64),
            ("7W_AI", 4.0, 408.0, LOW_64),
            ("7W_CPU", 4.0, 306.0, LOW_64),
        ],
    },
    Chip {
        key: "h100",
        title: "H100",
        source: "NVIDIA's data sheet (SXM5, 80 GB); the clock as it was measured",
        l2_bytes: 50 << 20,
        modes: &[("1980 MHz", 132.0, 1980.0, 3350.0)],
    },
];

impl Chip {
    /// The machine of each power mode.
    #[must_use]
    pub fn machines(&self) -> Vec<Machine> {
        self.modes.iter().map(|(name, sms, mhz, gbps)| Machine::new(name, *sms, *mhz, *gbps)).collect()
    }

    /// The chip without name on the command line.
    #[must_use]
    pub const fn usual() -> Self {
        CHIPS[0]
    }
}

impl std::str::FromStr for Chip {
    type Err = String;

    fn from_str(key: &str) -> Result<Self, String> {
        let found = CHIPS.into_iter().find(|chip| chip.key == key);
        found.ok_or_else(|| format!("expected one of {}", CHIPS.map(|chip| chip.key).join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_name_chips_whose_first_mode_has_all_sms() {
        for chip in CHIPS {
            assert_eq!(chip.key.parse::<Chip>().expect("its key").title, chip.title);
            let machines = chip.machines();
            assert!(machines.iter().all(|m| m.sms <= machines[0].sms && m.gbps <= machines[0].gbps));
            assert!(machines.iter().all(|m| m.mhz <= machines[0].mhz));
        }
        assert!("orin".parse::<Chip>().is_err());
    }

    /// `TPC_PG_MASK` of the files leaves two SMs for each bit that is 0.
    #[test]
    fn modes_have_the_sms_that_their_masks_leave() {
        let masks: [(&str, &[(&str, u32)]); 4] = [
            ("orin-agx-64", &[("MAXN", 0), ("50W", 0), ("30W", 240), ("15W", 248)]),
            ("orin-agx-32", &[("MAXN", 128), ("40W", 128), ("30W", 240), ("15W", 248)]),
            ("orin-nx-16", &[("MAXN_SUPER", 240), ("25W", 240), ("15W", 252), ("10W", 252)]),
            ("orin-nano-8", &[("25W", 240), ("15W", 240), ("7W", 252)]),
        ];
        for (key, masks) in masks {
            let machines = key.parse::<Chip>().expect("a key").machines();
            for (name, mask) in masks {
                let machine = machines.iter().find(|m| m.name == *name).expect("a mode");
                assert_eq!(machine.sms, f64::from(2 * (8 - mask.count_ones())), "{key} {name}");
            }
        }
    }
}
