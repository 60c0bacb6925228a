//! An SM's exception registers.

use nv_hw::fault::hww_esr::{self, GPC_STRIDE, SM_STRIDE, TPC_STRIDE};
use nv_hw::fault::{global_esr, warp_esr};
use serde::Serialize;

use crate::hex::Hex;

/// Position of an SM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Place {
    /// GPC.
    pub gpc: u32,
    /// TPC in the GPC.
    pub tpc: u32,
    /// SM in the TPC; absent on chips with one, and if the line does not name it.
    pub sm: Option<u32>,
}

/// Strides between the registers of GPCs and TPCs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strides {
    /// Up to Ampere and Ada, ga10b among them.
    Ampere,
    /// Hopper and later; worked out from public logs that name the SM beside its register addresses.
    Hopper,
}

impl Place {
    /// From the `offset` of nvgpu's lines: `gpc * 0x8000 + tpc * 0x800 + sm * 0x80`.
    #[must_use]
    pub const fn from_offset(offset: u32) -> Self {
        Self {
            gpc: offset / GPC_STRIDE,
            tpc: offset % GPC_STRIDE / TPC_STRIDE,
            sm: Some(offset % TPC_STRIDE / SM_STRIDE),
        }
    }

    /// The `offset` of nvgpu's lines.
    #[must_use]
    pub fn offset(self) -> Option<u32> {
        let parts = [
            self.gpc.checked_mul(GPC_STRIDE)?,
            self.tpc.checked_mul(TPC_STRIDE)?,
            self.sm?.checked_mul(SM_STRIDE)?,
        ];
        parts.into_iter().try_fold(0_u32, u32::checked_add)
    }

    /// From the address of an SM's `HWW_WARP_ESR`.
    #[must_use]
    pub fn from_register(address: u32, strides: Strides) -> Option<Self> {
        let (base, gpc_stride, tpc_stride) = match strides {
            Strides::Ampere => (0x50_4000, GPC_STRIDE, TPC_STRIDE),
            Strides::Hopper => (0x50_5000, 0x1_0000, 0x1000),
        };
        if address < base || address >= 0x58_0000 + 0x10_0000 {
            return None;
        }
        let rest = address - base;
        let place = |sm| Some(Self { gpc: rest / gpc_stride, tpc: rest % gpc_stride / tpc_stride, sm });
        match rest % tpc_stride {
            0x730 => place(Some(0)),
            0x7b0 => place(Some(1)),
            // Before Volta a TPC had one SM, and its registers were elsewhere.
            0x648 => place(None),
            _ => None,
        }
    }
}

/// The warp error register, taken apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WarpEsr {
    /// The register.
    pub value: Hex,
    /// Error code, bits 15:0.
    pub code: u32,
    /// Its name.
    pub name: Option<&'static str>,
    /// The warp that failed, bits 23:16. The header of ga10b does not define it; earlier and later chips do.
    pub warp: u32,
    /// Type of an address error, bits 27:24, 0 for none; the others are not documented.
    pub address_error_type: u32,
}

impl WarpEsr {
    /// Takes a register apart.
    #[must_use]
    pub fn new(value: u32) -> Self {
        Self {
            value: Hex(value.into()),
            code: hww_esr::ERROR.of(value),
            name: hww_esr::ERROR.value_name(hww_esr::ERROR.of(value)),
            warp: hww_esr::WARP_ID.of(value),
            address_error_type: hww_esr::ADDR_ERROR_TYPE.of(value),
        }
    }
}

/// The SM-wide error register, taken apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GlobalEsr {
    /// The register.
    pub value: Hex,
    /// Names of the bits that are set.
    pub bits: Vec<String>,
}

impl GlobalEsr {
    /// Takes a register apart; a bit without a name shows as its number.
    #[must_use]
    pub fn new(value: u32) -> Self {
        let bits = (0..32).filter(|bit| value >> bit & 1 != 0);
        let bits = bits
            .map(|bit| nv_hw::name(global_esr::NAMES, bit).map_or(format!("bit {bit}"), str::to_owned))
            .collect();
        Self { value: Hex(value.into()), bits }
    }

    /// Whether anything but breakpoints and pauses is set.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.value.0 as u32 & !hww_esr::NO_LOCK_DOWN != 0
    }
}

/// One SM's record of an exception.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SmRecord {
    /// Position.
    pub place: Option<Place>,
    /// Its number over the whole chip.
    pub sm_id: Option<u32>,
    /// The warp error.
    pub warp_esr: WarpEsr,
    /// The SM-wide error.
    pub global_esr: GlobalEsr,
    /// Program counter of the warp that failed; absent on desktop drivers, whose log does not print it.
    pub pc: Option<Hex>,
    /// The address it accessed, if the driver reports it: an offset for shared and local memory.
    pub address: Option<Hex>,
    /// Inconsistencies of the record.
    pub notes: Vec<String>,
}

impl SmRecord {
    /// A record from register values.
    #[must_use]
    pub fn new(warp_esr: u32, global_esr: u32, pc: Option<u64>) -> Self {
        Self {
            warp_esr: WarpEsr::new(warp_esr),
            global_esr: GlobalEsr::new(global_esr),
            pc: pc.map(Hex),
            ..Self::default()
        }
    }

    /// Whether this SM failed, rather than being stopped because another one did.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.warp_esr.code != 0 || self.global_esr.is_error()
    }
}

/// Returns the meaning of a warp error code for the author of the kernel.
#[must_use]
pub const fn words(code: u32) -> &'static str {
    match code {
        0 => "no warp error: a breakpoint, a pause, or a record that was cleared",
        warp_esr::API_STACK_ERROR => "the call stack is used up, or calls and returns do not match",
        warp_esr::MISALIGNED_PC => "a jump to an address that is not a multiple of 16",
        warp_esr::PC_OVERFLOW => "the program counter left the program",
        warp_esr::MISALIGNED_REG => "a wide operand in a register that is not aligned to its width",
        warp_esr::ILLEGAL_INSTR_ENCODING => "what lies at the program counter is not an instruction",
        warp_esr::ILLEGAL_INSTR_PARAM => "an instruction with operands or modifiers it does not take",
        warp_esr::OOR_REG => "a register or barrier beyond those the launch grants",
        warp_esr::OOR_ADDR => "a shared- or local-memory address beyond the size the launch grants",
        warp_esr::MISALIGNED_ADDR => "an access that is not aligned to its width",
        warp_esr::INVALID_ADDR_SPACE => "an access of one memory space with an address of another",
        warp_esr::INVALID_CONST_ADDR_LDC => "a constant bank that is not bound, or is read past its end",
        warp_esr::MMU_FAULT => "an access to an address that the MMU does not translate",
        warp_esr::TEX_FORMAT => "a texture or surface of a format that the instruction does not take",
        warp_esr::TEX_LAYOUT => "a texture or surface of a layout that the instruction does not take",
        warp_esr::MMU_NACK => {
            "the MMU refused an access and notified the SM; the first MMU fault before it is the cause"
        }
        warp_esr::ARRIVE => "more arrivals at an asynchronous barrier than it expects",
        warp_esr::STACK_ERROR | warp_esr::STACK_OVERFLOW => "the hardware stack overflowed",
        warp_esr::RET_EMPTY_STACK_ERROR => "a return without a call",
        warp_esr::PC_WRAP => "the program counter wrapped around",
        warp_esr::MISALIGNED_IMMC_ADDR | warp_esr::INVALID_CONST_ADDR => {
            "a constant address that is misaligned or not bound"
        }
        warp_esr::ILLEGAL_SPH_INSTR_COMBO => "an instruction that this shader stage does not have",
        warp_esr::ILLEGAL_INSTR_PARAM2 => "an instruction with a parameter it does not take",
        warp_esr::GEOMETRY_SM_ERROR => "an error of a geometry shader",
        warp_esr::DIVERGENT => "divergence where none is allowed",
        warp_esr::WARP_EXIT => "a warp ended where it may not",
        _ => "an error code that is not documented",
    }
}

/// The code the desktop driver means by its text.
#[must_use]
pub fn code_of_text(text: &str) -> Option<u32> {
    nv_hw::number(warp_esr::XID_TEXTS, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_and_places_are_the_same_thing() {
        for gpc in 0..2 {
            for tpc in 0..4 {
                for sm in 0..2 {
                    let place = Place { gpc, tpc, sm: Some(sm) };
                    assert_eq!(place.offset().map(Place::from_offset), Some(place));
                    let register = 0x50_4730 + gpc * 0x8000 + tpc * 0x800 + sm * 0x80;
                    assert_eq!(Place::from_register(register, Strides::Ampere), Some(place));
                    let register = 0x50_5730 + gpc * 0x1_0000 + tpc * 0x1000 + sm * 0x80;
                    assert_eq!(Place::from_register(register, Strides::Hopper), Some(place));
                }
            }
        }
    }

    #[test]
    fn registers_of_public_logs_name_the_sm_their_text_names() {
        let turing = Place::from_register(0x50_c7b0, Strides::Ampere);
        assert_eq!(turing, Some(Place { gpc: 1, tpc: 0, sm: Some(1) }));
        let hopper = Place::from_register(0x57_c730, Strides::Hopper);
        assert_eq!(hopper, Some(Place { gpc: 7, tpc: 7, sm: Some(0) }));
        let blackwell = Place::from_register(0x56_d730, Strides::Hopper);
        assert_eq!(blackwell, Some(Place { gpc: 6, tpc: 8, sm: Some(0) }));
        assert_eq!(
            Place::from_register(0x50_4648, Strides::Ampere),
            Some(Place { gpc: 0, tpc: 0, sm: None })
        );
    }

    #[test]
    fn the_warp_error_has_three_fields() {
        let esr = WarpEsr::new(0x081e_0017);
        assert_eq!((esr.code, esr.name, esr.warp, esr.address_error_type), (0x17, Some("MMU_FAULT"), 30, 8));
        assert_eq!(GlobalEsr::new(0x1004).bits, ["MULTIPLE_WARP_ERRORS", "POISON_DATA"]);
        assert!(!GlobalEsr::new(0x20).is_error());
    }
}
