//! MMU faults in the kernel log: the only place where the driver reports their address.

use crate::backend::MmuError;

/// Fault types of the GMMU, by number, as the driver prints them.
const FAULT_TYPES: [&str; 16] = [
    "invalid pde",
    "invalid pde size",
    "invalid pte",
    "limit violation",
    "unbound inst block",
    "priv violation",
    "write, ro violation",
    "read, wo violation",
    "pitch mask violation",
    "work creation",
    "unsupported aperture",
    "compression failure",
    "unsupported kind",
    "region violation",
    "poison",
    "atomic violation",
];

/// The last MMU fault in `lines`.
pub(super) fn last(lines: &[String]) -> Option<MmuError> {
    lines.iter().rev().find_map(|line| {
        let rest = line.split_once("[MMU FAULT]")?.1.split_once("fault addr:")?.1.trim_start();
        let hex = rest.strip_prefix("0x")?;
        let digits = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let va = u64::from_str_radix(&hex[..digits], 16).ok()?;
        // Two of the texts contain a comma, so the field ends at the next key.
        let kind = rest.split_once("fault type:").and_then(|(_, r)| r.split_once(", access type:"));
        let kind = kind.and_then(|(text, _)| FAULT_TYPES.iter().position(|t| *t == text.trim()));
        Some(MmuError { va, kind: kind.map(|k| k as u32), store: None })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mmu_fault_is_found_in_the_log() {
        let lines = [
            "nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:297 [ERR]  [MMU FAULT] mmu engine id:  64, ch id:  511, fault addr: 0xdead000, fault addr aperture: 0, fault type: write, ro violation, access type: virt write, ".to_owned(),
            "nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:305 [ERR]  [MMU FAULT] protected mode: 0, client type: gpc, ".to_owned(),
        ];
        assert_eq!(last(&lines), Some(MmuError { va: 0xdead000, kind: Some(6), store: None }));
        assert_eq!(last(&lines[1..]), None);
    }
}
