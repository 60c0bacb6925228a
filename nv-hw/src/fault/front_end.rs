// @generated from tests/data/fault-tables.json by tests/it/tables.rs.

//! Source: NVIDIA's manuals of GA100, inferred for ga10b; class errors from envytools.

/// Bits of the front end's exception register, by their numbers.
pub mod fe_esr {
    crate::names::names! {
        INJECTED_BUNDLE_ERROR = 0x0,
        CLASS_SUBCH_MISMATCH = 0x1,
        SPECULATIVE_GO_IDLE = 0x3,
        ILLEGAL_FE_ATOMIC_SEQ = 0x4,
        ILLEGAL_SMC_MEM_PARTITIONING = 0x5,
    }
}

/// Bits of the macro engine's exception register, by their numbers.
pub mod mme_esr {
    crate::names::names! {
        MISSING_MACRO_DATA = 0x0,
        EXTRA_MACRO_DATA = 0x1,
        ILLEGAL_OPCODE = 0x2,
        BRANCH_IN_DELAY_SLOT = 0x3,
        MAX_INSTR_LIMIT = 0x4,
        INSTR_RAM_ACCESS_OUT_OF_BOUNDS = 0x5,
        DATA_RAM_ACCESS_OUT_OF_BOUNDS = 0x6,
        ILLEGAL_MME_METHOD = 0x7,
        DMA_DRAM_ACCESS_OUT_OF_BOUNDS = 0x10,
        DMA_READ_FIFOED_FROM_PB = 0x11,
        DMA_ILLEGAL_FIFO_CONFIG = 0x12,
        DMA_READ_FIFOED_OVERFLOW = 0x13,
        DMA_FIFO_RESIZED_WHEN_NONIDLE = 0x14,
        STOP_ON_TRAP = 0x1d,
    }
}

/// Bits of the memory-format unit's exception register, by their numbers.
pub mod memfmt_esr {
    crate::names::names! {
        EXTRA_INLINE_DATA = 0x0,
        MISSING_INLINE_DATA = 0x1,
    }
}

/// Codes of class errors.
pub mod class_error {
    crate::names::names! {
        INVALID_OPERATION = 0x3,
        INVALID_VALUE = 0x4,
        INVALID_ENUM = 0x5,
        INVALID_OBJECT = 0x8,
        READ_ONLY_OBJECT = 0x9,
        SUPERVISOR_OBJECT = 0xa,
        INVALID_ADDRESS_ALIGNMENT = 0xb,
        INVALID_BITFIELD = 0xc,
        BEGIN_END_ACTIVE = 0xd,
        SEMANTIC_COLOR_BACK_OVER_LIMIT = 0xe,
        VIEWPORT_ID_NEEDS_GP = 0xf,
        RT_DOUBLE_BIND = 0x10,
        RT_TYPES_MISMATCH = 0x11,
        RT_PITCH_WITH_ZETA = 0x12,
        FP_TOO_FEW_REGS = 0x15,
        ZETA_FORMAT_CSAA_MISMATCH = 0x16,
        RT_PITCH_WITH_MSAA = 0x17,
        FP_INTERPOLANT_START_OVER_LIMIT = 0x18,
        SEMANTIC_LAYER_OVER_LIMIT = 0x19,
        RT_INVALID_ALIGNMENT = 0x1a,
        SAMPLER_OVER_LIMIT = 0x1b,
        TEXTURE_OVER_LIMIT = 0x1c,
        GP_TOO_MANY_OUTPUTS = 0x1e,
        RT_BPP128_WITH_MS8 = 0x1f,
        Z_OUT_OF_BOUNDS = 0x21,
        XY_OUT_OF_BOUNDS = 0x23,
        VP_ZERO_INPUTS = 0x24,
        CP_MORE_PARAMS_THAN_SHARED = 0x27,
        CP_NO_REG_SPACE_STRIPED = 0x28,
        CP_NO_REG_SPACE_PACKED = 0x29,
        CP_NOT_ENOUGH_WARPS = 0x2a,
        CP_BLOCK_SIZE_MISMATCH = 0x2b,
        CP_NOT_ENOUGH_LOCAL_WARPS = 0x2c,
        CP_NOT_ENOUGH_STACK_WARPS = 0x2d,
        CP_NO_BLOCKDIM_LATCH = 0x2e,
        ENG2D_FORMAT_MISMATCH = 0x31,
        ENG2D_OPERATION_ILLEGAL_FOR_DST_FORMAT = 0x33,
        ENG2D_FORMAT_MISMATCH_B = 0x34,
        PRIMITIVE_ID_NEEDS_GP = 0x3f,
        SEMANTIC_VIEWPORT_OVER_LIMIT = 0x44,
        SEMANTIC_COLOR_FRONT_OVER_LIMIT = 0x45,
        LAYER_ID_NEEDS_GP = 0x46,
        SEMANTIC_CLIP_OVER_LIMIT = 0x47,
        SEMANTIC_PTSZ_OVER_LIMIT = 0x48,
        M2MF_LINE_LENGTH_EXCEEDS_PITCH_IN = 0x51,
        M2MF_LINE_LENGTH_EXCEEDS_PITCH_OUT = 0x53,
        RT_PITCH_WITH_ZETA_GF100 = 0x98,
        ENG2D_UNALIGNED_PITCH_GF100 = 0xa5,
    }
}
