//! The modelled chip: instruction set, limits and floor plan.

use sass::Arch;

/// SMs of a TPC and TPCs of a GPC.
const SMS_PER_TPC: u32 = 2;
const TPCS_PER_GPC: u32 = 4;
/// SMs of the largest chip.
pub(crate) const MOST_SMS: u32 = 16;

/// A chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chip {
    /// Instruction set, limits and launch descriptors.
    pub(crate) arch: Arch,
    /// SMs: whole TPCs, at least one, at most eight.
    pub(crate) sms: u32,
}

impl Chip {
    /// A chip with `sms` SMs, rounded to a number that the hardware can have.
    pub(crate) fn new(arch: Arch, sms: u32) -> Self {
        let sms = sms.clamp(SMS_PER_TPC, MOST_SMS).next_multiple_of(SMS_PER_TPC);
        Self { arch, sms }
    }

    /// TPCs.
    pub(crate) fn tpcs(self) -> u32 {
        self.sms / SMS_PER_TPC
    }

    /// GPCs.
    pub(crate) fn gpcs(self) -> u32 {
        self.tpcs().div_ceil(TPCS_PER_GPC)
    }

    /// TPCs of a whole GPC.
    pub(crate) fn tpcs_per_gpc(self) -> u32 {
        self.tpcs().min(TPCS_PER_GPC)
    }

    /// One bit for each TPC of GPC number `gpc`.
    pub(crate) fn tpc_mask(self, gpc: u32) -> u32 {
        (1 << self.tpcs().saturating_sub(gpc * TPCS_PER_GPC).min(TPCS_PER_GPC)) - 1
    }

    /// Warps that a TPC holds.
    pub(crate) fn warps_per_tpc(self) -> u32 {
        self.arch.max_warps() * SMS_PER_TPC
    }
}

/// Place of an SM in the chip.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmPlace {
    /// GPC.
    pub(crate) gpc: u32,
    /// TPC in the GPC.
    pub(crate) tpc: u32,
    /// SM in the TPC.
    pub(crate) sm: u32,
}

impl SmPlace {
    /// Returns the position of SM number `id`.
    pub(crate) fn of(id: u32) -> Self {
        let tpc = id / SMS_PER_TPC;
        Self { gpc: tpc / TPCS_PER_GPC, tpc: tpc % TPCS_PER_GPC, sm: id % SMS_PER_TPC }
    }

    /// Number of the TPC in the chip.
    pub(crate) fn global_tpc(self) -> u32 {
        self.gpc * TPCS_PER_GPC + self.tpc
    }

    /// Number of the SM in its GPC.
    pub(crate) fn in_gpc(self) -> u32 {
        self.tpc * SMS_PER_TPC + self.sm
    }
}
