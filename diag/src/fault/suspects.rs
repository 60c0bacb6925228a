//! Instructions that can raise an error of a warp, and how likely each is.

use nv_hw::fault::warp_esr;
use sass::Space;

use crate::fault::mmu::Access;
use crate::process_map::code::access_of;

/// Instructions of textures and surfaces.
const TEXTURES: [&str; 12] =
    ["TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SULD", "SUST", "SUATOM", "SURED", "SUQUERY", "TEXS"];

/// Whether it reads a constant at an address that the compiler chose.
fn is_fixed(text: &str) -> bool {
    text.rsplit_once("][").is_some_and(|(start, address)| start.contains("c[") && address.starts_with("0x"))
}

/// Whether an instruction, by its text, can raise the error of that code. Words that the decoder does not
/// know can, and so can all instructions for errors that are not of one kind of instruction.
pub(super) fn can_raise(error: u32, text: &str) -> bool {
    let mnemonic = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
    let name = mnemonic.split(['.', ';']).next().unwrap_or_default();
    if name.is_empty() || !name.starts_with(|c: char| c.is_ascii_uppercase()) {
        return true;
    }
    let access = access_of(text);
    let space = access.map(|(space, _)| space);
    let is_texture = TEXTURES.contains(&name);
    match error {
        warp_esr::MISALIGNED_ADDR => {
            access.is_some_and(|(_, bytes)| bytes > 1) && !is_fixed(text) || is_texture
        }
        warp_esr::INVALID_ADDR_SPACE => {
            matches!(space, Some(Space::Global | Space::Generic)) || is_texture || name == "ATOMS"
        }
        warp_esr::OOR_ADDR => {
            name == "LDGSTS"
                || name.ends_with("GMMA")
                || matches!(space, Some(Space::Shared | Space::Local | Space::Generic))
        }
        warp_esr::MMU_FAULT | warp_esr::MMU_NACK => {
            matches!(space, Some(Space::Global | Space::Generic | Space::Local | Space::Constant))
                || is_texture
                || text.contains("c[")
                || ["CCTL", "UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG"].contains(&name)
        }
        warp_esr::INVALID_CONST_ADDR_LDC => space == Some(Space::Constant),
        warp_esr::TEX_FORMAT | warp_esr::TEX_LAYOUT => is_texture,
        warp_esr::ARRIVE => mnemonic.contains("ARRIVE") || ["ATOMS", "ARRIVES", "SYNCS"].contains(&name),
        _ => true,
    }
}

/// Returns the rank of an instruction, by its text, as cause of an error: 0 for the likeliest, `None` where
/// it cannot have failed so. `access` is the kind of the access by the MMU.
pub(super) fn rank(error: u32, access: Option<Access>, text: &str) -> Option<u32> {
    if !can_raise(error, text) {
        return None;
    }
    let operation = text.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
    let name = operation.split(['.', ';']).next().unwrap_or_default();
    let memory = access_of(text);
    let is_texture = TEXTURES.contains(&name);
    let faulted = matches!(error, warp_esr::MMU_FAULT | warp_esr::MMU_NACK);
    if let Some(access) = access.filter(|_| faulted && (memory.is_some() || is_texture)) {
        let is_atomic = name.starts_with("ATOM") || matches!(name, "RED" | "SUATOM" | "SURED");
        let is_store = matches!(name, "ST" | "STG" | "STL" | "SUST");
        let agrees = match access {
            Access::Read => !is_store && !is_atomic,
            // Some chips name reductions writes.
            Access::Write => is_store || is_atomic,
            Access::Atomic => is_atomic,
            Access::Prefetch => true,
        };
        if !agrees {
            return None;
        }
    }
    let explicit = match memory {
        Some((Space::Global | Space::Generic, _)) => 0,
        _ if is_texture => 0,
        // Their addresses are rarely the program's own; operands in a constant bank are the driver's.
        Some((Space::Local, _)) if faulted => 1,
        Some((Space::Constant, _)) if faulted => 2,
        Some(_) => 0,
        None => 3,
    };
    // The wider an access, the fewer addresses are aligned to it.
    let narrow =
        memory.filter(|_| error == warp_esr::MISALIGNED_ADDR).map_or(0, |(_, bytes)| 16 / bytes.clamp(1, 16));
    Some(explicit * 32 + narrow)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_accesses_and_those_that_the_mmu_saw_come_first() {
        let misaligned = |text| rank(warp_esr::MISALIGNED_ADDR, None, text);
        let order = ["LDG.E.128 R8, [R2.64]", "STG.E.64 [R2.64], R4", "LDG.E R8, [R2.64]"].map(misaligned);
        assert!(order.iter().all(Option::is_some) && order.is_sorted() && order[0] < order[2], "{order:?}");
        let (load, store, atomic) = ("LDG.E R8, [R2.64]", "STG.E [R2.64], R4", "RED.E.ADD [R2.64], R4");
        for (access, expected) in [
            (Access::Read, [true, false, false]),
            (Access::Write, [false, true, true]),
            (Access::Atomic, [false, false, true]),
        ] {
            let found =
                [load, store, atomic].map(|text| rank(warp_esr::MMU_FAULT, Some(access), text).is_some());
            assert_eq!(found, expected, "{access:?}");
        }
        let any = |text| rank(warp_esr::MMU_FAULT, None, text);
        assert!(any(load) < any("LDL R0, [R1]") && any("LDL R0, [R1]") < any("FADD R2, R3, c[0x0][0x160]"));
        assert_eq!(any("FADD R2, R3, R4"), None);
    }

    #[test]
    fn an_addition_does_not_access_memory() {
        for (error, text, can) in [
            (warp_esr::MISALIGNED_ADDR, "LDG.E.128 R8, [R2.64]", true),
            (warp_esr::MISALIGNED_ADDR, "LDG.E.U8 R8, [R2.64]", false),
            (warp_esr::MISALIGNED_ADDR, "IMAD R4, R0, 0x4, RZ", false),
            (warp_esr::MISALIGNED_ADDR, "ULDC.64 UR4, c[0x0][0x118]", false),
            (warp_esr::MISALIGNED_ADDR, "LDC.64 R4, c[0x3][R0+0x8]", true),
            (warp_esr::INVALID_ADDR_SPACE, "@!P0 ST.E desc[UR4][R2.64], R4", true),
            (warp_esr::INVALID_ADDR_SPACE, "LDS R0, [R4]", false),
            (warp_esr::OOR_ADDR, "LDS R0, [R4]", true),
            (warp_esr::OOR_ADDR, "STG.E [R2.64], R4", false),
            (warp_esr::OOR_ADDR, "HGMMA.64x64x16.F32 R24, gdesc[UR8], R24, gsb0", true),
            (warp_esr::MMU_FAULT, "STG.E [R2.64], R4", true),
            (warp_esr::MMU_FAULT, "FADD R2, R3, R4", false),
            (warp_esr::INVALID_CONST_ADDR_LDC, "LDC R2, c[0x0][R4]", true),
            (warp_esr::ARRIVE, "BAR.SYNC 0x0", false),
            (warp_esr::ILLEGAL_INSTR_ENCODING, "FADD R2, R3, R4", true),
            (warp_esr::MISALIGNED_ADDR, "0x0f: operation code 0xb60 is unknown on sm_87", true),
        ] {
            assert_eq!(can_raise(error, text), can, "{error:#x} {text}");
        }
    }
}
