// @generated from tests/data/fault-tables.json by tests/it/tables.rs.

//! Source: the register headers of nvgpu, L4T r36.4.3; other chips from nvgpu's and nouveau's.

/// Error codes of a warp: `HWW_WARP_ESR` bits 15:0.
pub mod warp_esr {
    crate::names::names! {
        STACK_ERROR = 0x1 "of gm20b, gp10b, gv11b, gv100, tu104",
        API_STACK_ERROR = 0x2 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        RET_EMPTY_STACK_ERROR = 0x3 "of gm20b, gp10b",
        PC_WRAP = 0x4 "of gm20b, gp10b, gv11b, gv100, tu104",
        MISALIGNED_PC = 0x5 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        PC_OVERFLOW = 0x6 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        MISALIGNED_IMMC_ADDR = 0x7 "of gm20b, gp10b",
        MISALIGNED_REG = 0x8 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        ILLEGAL_INSTR_ENCODING = 0x9 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        ILLEGAL_SPH_INSTR_COMBO = 0xa "of gm20b, gp10b",
        ILLEGAL_INSTR_PARAM = 0xb "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        INVALID_CONST_ADDR = 0xc "of gm20b, gp10b",
        OOR_REG = 0xd "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        OOR_ADDR = 0xe "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        MISALIGNED_ADDR = 0xf "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        INVALID_ADDR_SPACE = 0x10 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        ILLEGAL_INSTR_PARAM2 = 0x11 "of gm20b, gp10b",
        INVALID_CONST_ADDR_LDC = 0x12 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        GEOMETRY_SM_ERROR = 0x13 "of gm20b, gp10b",
        DIVERGENT = 0x14 "of gm20b, gp10b",
        WARP_EXIT = 0x15 "of Fermi",
        STACK_OVERFLOW = 0x16 "of gm20b, gp10b, gv11b, gv100, tu104",
        MMU_FAULT = 0x17 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        TEX_FORMAT = 0x18 "of gv11b, gv100, tu104, ga100, ga10b",
        TEX_LAYOUT = 0x19 "of gv11b, gv100, tu104, ga100, ga10b",
        MMU_NACK = 0x20 "of gv11b, gv100, tu104, ga100, ga10b",
        ARRIVE = 0x21 "of ga100, ga10b",
        ;
        /// As the desktop driver prints them in Xid 13.
        XID_TEXTS {
            0x1 "Stack Error",
            0x2 "API Stack Error",
            0x5 "Misaligned PC",
            0x6 "PC Overflow",
            0x8 "Misaligned Register",
            0x9 "Illegal Instruction Encoding",
            0xb "Illegal Instruction Parameter",
            0xd "Out Of Range Register",
            0xe "Out Of Range Address",
            0xf "Misaligned Address",
            0x10 "Invalid Address Space",
            0x12 "Invalid Constant Address",
            0x16 "Stack Overflow",
            0x17 "MMU Fault",
            0x18 "TEX FORMAT Errors",
            0x19 "TEX LAYOUT Errors",
            0x20 "MMU NACK Errors",
        }
    }
}

/// Bits of an SM's `HWW_GLOBAL_ESR`, by their numbers.
pub mod global_esr {
    crate::names::names! {
        SM_TO_SM_FAULT = 0x0 "of gm20b, gp10b",
        L1_ERROR = 0x1 "of gm20b, gp10b",
        MULTIPLE_WARP_ERRORS = 0x2 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        PHYSICAL_STACK_OVERFLOW = 0x3 "of gm20b, gp10b",
        BPT_INT = 0x4 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        BPT_PAUSE = 0x5 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        SINGLE_STEP_COMPLETE = 0x6 "of gm20b, gp10b, gv11b, gv100, tu104, ga100, ga10b",
        ERROR_IN_TRAP = 0x8 "of gv11b, gv100, tu104, ga100, ga10b",
        POISON_DATA = 0xc "of ga100, ga10b",
        ECC_SEC_ERROR = 0x1d "of gp10b",
        ECC_DED_ERROR = 0x1e "of gp10b",
        TIMEOUT_ERROR = 0x1f "of gm20b, gp10b",
    }
}
