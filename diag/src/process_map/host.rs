//! CPU mappings of a process: addresses there mean nothing to the GPU.

use serde::{Deserialize, Serialize};

use crate::hex::Hex;

/// A range of a process's own address space.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRange {
    /// Mapped object: a file, `[heap]`, `[stack]`; empty for anonymous memory.
    #[serde(default)]
    pub name: String,
    /// Its first address.
    pub start: Hex,
    /// Address after its last.
    pub end: Hex,
}

impl HostRange {
    /// The ranges of `/proc/PID/maps`; neighbours of one name are one range. Lines of another form are left
    /// out.
    #[must_use]
    pub fn read(maps: &str) -> Vec<Self> {
        let mut ranges: Vec<Self> = Vec::new();
        for line in maps.lines() {
            let Some((start, rest)) = line.split_once('-') else { continue };
            let mut fields = rest.splitn(6, ' ');
            let end = fields.next().unwrap_or_default();
            let address = |text| u64::from_str_radix(text, 16);
            let (Ok(start), Ok(end)) = (address(start), address(end)) else { continue };
            let name = fields.nth(4).unwrap_or_default().trim();
            match ranges.last_mut() {
                Some(last) if last.end.0 == start && last.name == name => last.end = Hex(end),
                _ => ranges.push(Self { name: name.to_owned(), start: Hex(start), end: Hex(end) }),
            }
        }
        ranges
    }

    /// Whether it holds that address.
    #[must_use]
    pub const fn contains(&self, address: u64) -> bool {
        self.start.0 <= address && address < self.end.0
    }

    /// The range in words.
    #[must_use]
    pub fn words(&self) -> String {
        let name = if self.name.is_empty() { "anonymous memory" } else { &self.name };
        format!("{name} at {}..{}", self.start, self.end)
    }
}

/// Whether an address is where Linux puts programs, libraries, heaps and stacks, and nvgpu puts no buffers:
/// its addresses have 40 bits.
#[must_use]
pub const fn is_like_host(address: u64) -> bool {
    matches!(address >> 40, 0x55..=0x56 | 0x7e..=0x7f | 0xaa | 0xff)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_read() {
        let maps = "55d0c8a00000-55d0c8a21000 r-xp 00000000 fe:01 5505 /usr/bin/my program\n\
                    55d0c8a21000-55d0c8a30000 rw-p 00021000 fe:01 5505 /usr/bin/my program\n\
                    55d0ca000000-55d0ca021000 rw-p 00000000 00:00 0 [heap]\n\
                    7f0000000000-7f0000001000 rw-p 00000000 00:00 0 \n\
                    no range\n";
        let ranges = HostRange::read(maps);
        let names: Vec<&str> = ranges.iter().map(|range| range.name.as_str()).collect();
        assert_eq!(names, ["/usr/bin/my program", "[heap]", ""]);
        assert_eq!((ranges[0].start, ranges[0].end), (Hex(0x55d0_c8a0_0000), Hex(0x55d0_c8a3_0000)));
        assert!(ranges[1].contains(0x55d0_ca00_0000) && !ranges[1].contains(0x55d0_ca02_1000));
        assert_eq!(ranges[2].words(), "anonymous memory at 0x7f0000000000..0x7f0000001000");
    }

    #[test]
    fn addresses_of_the_gpu_are_not_like_those_of_programs() {
        for host in [0x55d0_ca00_0000, 0x7ffd_0000_1000, 0xaaab_0000_0000, 0xffff_8000_0000] {
            assert!(is_like_host(host), "{host:#x}");
        }
        for gpu in [0, 0x1000, 0x10_0000_0000, 0xfe_0020_0000, 0xff_ffa0_0000] {
            assert!(!is_like_host(gpu), "{gpu:#x}");
        }
    }
}
