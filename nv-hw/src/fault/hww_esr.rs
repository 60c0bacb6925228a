//! Layout of an SM's exception registers, and where they are.
//!
//! Source: the register headers of nvgpu, L4T r36.4.3. ga10b's has no names for the two upper fields; those of
//! gv11b, gv100 and tu104 do.

use super::sm::global_esr::{BPT_INT, BPT_PAUSE, SINGLE_STEP_COMPLETE};
use crate::field::Field;

/// Error code in `HWW_WARP_ESR`, one of [`warp_esr`](super::warp_esr).
pub const ERROR: Field = Field::new("ERROR", 15, 0, super::sm::warp_esr::NAMES);
/// The warp that failed, in `HWW_WARP_ESR`.
pub const WARP_ID: Field = Field::new("WARP_ID", 23, 16, &[]);
/// Type of an address error in `HWW_WARP_ESR`: 0 for none; what the others mean is not documented.
pub const ADDR_ERROR_TYPE: Field = Field::new("ADDR_ERROR_TYPE", 27, 24, &[]);

/// Bits of `HWW_GLOBAL_ESR` that are no errors.
pub const NO_LOCK_DOWN: u32 = 1 << BPT_INT | 1 << BPT_PAUSE | 1 << SINGLE_STEP_COMPLETE;

/// Bytes between the registers of two GPCs, on chips up to Ampere and Ada.
pub const GPC_STRIDE: u32 = 0x8000;
/// Bytes between the registers of two TPCs.
pub const TPC_STRIDE: u32 = 0x800;
/// Bytes between the registers of two SMs.
pub const SM_STRIDE: u32 = 0x80;

/// Bits of `HWW_GLOBAL_ESR` that nvgpu has ga10b report.
pub const GLOBAL_REPORT_MASK: u32 = 0x1174;
/// Bits of `HWW_WARP_ESR` that nvgpu has ga10b report: most bits have the numbers of the codes.
pub const WARP_REPORT_MASK: u32 = 0x0f85_eb64;
