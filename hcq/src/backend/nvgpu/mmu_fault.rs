//! MMU faults in the kernel log: the only place where the driver reports their address.

use nv_hw::fault::fault_type;

use crate::backend::MmuError;

/// The last MMU fault of channel number `channel` in `lines`, which are those of every process.
pub(super) fn last(lines: &[String], channel: u32) -> Option<MmuError> {
    lines.iter().rev().find_map(|line| {
        let rest = line.split_once("[MMU FAULT]")?.1;
        let (owner, rest) = rest.split_once("ch id:")?.1.split_once(',')?;
        if owner.trim().parse() != Ok(channel) {
            return None;
        }
        let rest = rest.split_once("fault addr:")?.1.trim_start();
        let hex = rest.strip_prefix("0x")?;
        let digits = hex.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(hex.len());
        let va = u64::from_str_radix(&hex[..digits], 16).ok()?;
        // Two of the texts contain a comma, so the field ends at the next key.
        let kind = rest.split_once("fault type:").and_then(|(_, r)| r.split_once(", access type:"));
        let kind = kind.and_then(|(text, _)| nv_hw::number(fault_type::TEXTS, text));
        let access = rest.split_once("access type:").map(|(_, r)| r.trim_start());
        let store = access.and_then(|text| match text.split([',', ' ']).nth(1)? {
            "read" | "prefetch" => Some(false),
            "write" => Some(true),
            // An atomic access is both.
            _ => None,
        });
        Some(MmuError { va, kind, store })
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
        assert_eq!(last(&lines, 511), Some(MmuError { va: 0xdead000, kind: Some(6), store: Some(true) }));
        assert_eq!(last(&lines[1..], 511), None);
    }

    #[test]
    fn the_fault_of_another_process_s_channel_is_not_taken_for_ours() {
        let line = |channel: u32, va: u64, access: &str| {
            format!(
                "[MMU FAULT] mmu engine id:  64, ch id:  {channel}, fault addr: {va:#x}, fault addr aperture: 0, fault type: invalid pte, access type: {access}, "
            )
        };
        let lines = [
            line(510, 0x1000, "virt read"),
            line(51, 0x2000, "virt write"),
            line(509, 0x3000, "virt atomic strong"),
        ];
        assert_eq!(last(&lines, 510), Some(MmuError { va: 0x1000, kind: Some(2), store: Some(false) }));
        assert_eq!(last(&lines, 509), Some(MmuError { va: 0x3000, kind: Some(2), store: None }));
        assert_eq!(last(&lines, 511), None);
    }
}
