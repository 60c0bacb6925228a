//! Which instructions can raise an error of a warp.

use crate::fault::sm::code;
use crate::process_map::code::{Space, access_of};

/// Instructions of textures and surfaces.
const TEXTURES: [&str; 12] =
    ["TEX", "TLD", "TLD4", "TMML", "TXD", "TXQ", "SULD", "SUST", "SUATOM", "SURED", "SUQUERY", "TEXS"];

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
        code::MISALIGNED_ADDR => access.is_some_and(|(_, bytes)| bytes > 1) || is_texture,
        code::INVALID_ADDR_SPACE => {
            matches!(space, Some(Space::Global | Space::Generic)) || is_texture || name == "ATOMS"
        }
        code::OOR_ADDR => {
            name == "LDGSTS" || matches!(space, Some(Space::Shared | Space::Local | Space::Generic))
        }
        code::MMU_FAULT | code::MMU_NACK => {
            matches!(space, Some(Space::Global | Space::Generic | Space::Local | Space::Constant))
                || is_texture
                || text.contains("c[")
                || ["CCTL", "UBLKCP", "UBLKRED", "UTMALDG", "UTMASTG", "UTMAREDG"].contains(&name)
        }
        code::INVALID_CONST_ADDR_LDC => space == Some(Space::Constant),
        code::TEX_FORMAT | code::TEX_LAYOUT => is_texture,
        code::ARRIVE => mnemonic.contains("ARRIVE") || ["ATOMS", "ARRIVES", "SYNCS"].contains(&name),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_addition_does_not_access_memory() {
        for (error, text, can) in [
            (code::MISALIGNED_ADDR, "LDG.E.128 R8, [R2.64]", true),
            (code::MISALIGNED_ADDR, "LDG.E.U8 R8, [R2.64]", false),
            (code::MISALIGNED_ADDR, "IMAD R4, R0, 0x4, RZ", false),
            (code::INVALID_ADDR_SPACE, "@!P0 ST.E desc[UR4][R2.64], R4", true),
            (code::INVALID_ADDR_SPACE, "LDS R0, [R4]", false),
            (code::OOR_ADDR, "LDS R0, [R4]", true),
            (code::OOR_ADDR, "STG.E [R2.64], R4", false),
            (code::MMU_FAULT, "STG.E [R2.64], R4", true),
            (code::MMU_FAULT, "FADD R2, R3, R4", false),
            (code::INVALID_CONST_ADDR_LDC, "LDC R2, c[0x0][R4]", true),
            (code::ARRIVE, "BAR.SYNC 0x0", false),
            (code::ILLEGAL_INSTR_ENCODING, "FADD R2, R3, R4", true),
            (code::MISALIGNED_ADDR, "0x0f: operation code 0xb60 is unknown on sm_87", true),
        ] {
            assert_eq!(can_raise(error, text), can, "{error:#x} {text}");
        }
    }
}
