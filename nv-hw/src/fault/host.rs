// @generated from tests/data/fault-tables.json by tests/it/tables.rs.

//! Source: the register headers of nvgpu, L4T r36.4.3.

/// Bits of the pushbuffer unit's interrupt register `INTR_0` that ga10b reports, by their numbers.
pub mod pbdma_intr_0 {
    crate::names::names! {
        GPFIFO = 0xd,
        GPPTR = 0xe,
        GPENTRY = 0xf,
        GPCRC = 0x10,
        PBPTR = 0x11,
        PBENTRY = 0x12,
        PBCRC = 0x13,
        METHOD = 0x15,
        DEVICE = 0x17,
        ENG_RESET = 0x18,
        SEMAPHORE = 0x19,
        ACQUIRE = 0x1a,
        PRI = 0x1b,
        PBSEG = 0x1e,
        SIGNATURE = 0x1f,
        ;
        /// All bits as nvgpu prints them.
        TEXTS {
            0x0 "MEMREQ timeout",
            0x1 "MEMACK_TIMEOUT",
            0x2 "MEMACK_EXTRA acks",
            0x3 "MEMDAT_TIMEOUT",
            0x4 "MEMDAT_EXTRA acks",
            0x5 "MEMFLUSH noack",
            0x6 "MEMOP noack",
            0x7 "LBCONNECT noack",
            0x8 "NONE - was LBREQ",
            0x9 "LBACK_TIMEOUT",
            0xa "LBACK_EXTRA acks",
            0xb "LBDAT_TIMEOUT",
            0xc "LBDAT_EXTRA acks",
            0xd "GPFIFO won't fit",
            0xe "GPPTR invalid",
            0xf "GPENTRY invalid",
            0x10 "GPCRC mismatch",
            0x11 "PBPTR get>put",
            0x12 "PBENTRY invld",
            0x13 "PBCRC mismatch",
            0x14 "NONE - was XBARC",
            0x15 "METHOD invld",
            0x16 "METHODCRC mismat",
            0x17 "DEVICE sw method",
            0x18 "[ENGINE]",
            0x19 "SEMAPHORE invlid",
            0x1a "ACQUIRE timeout",
            0x1b "PRI forbidden",
            0x1c "ILLEGAL SYNCPT",
            0x1d "[NO_CTXSW_SEG]",
            0x1e "PBSEG badsplit",
            0x1f "SIGNATURE bad",
        }
    }
}

/// Bits of the pushbuffer unit's interrupt register `INTR_1`, by their numbers.
pub mod pbdma_intr_1 {
    crate::names::names! {
        HCE_RE_ILLEGAL_OP = 0x0,
        HCE_RE_ALIGNB = 0x1,
        HCE_PRIV = 0x2,
        HCE_ILLEGAL_MTHD = 0x3,
        HCE_ILLEGAL_CLASS = 0x4,
        CTXNOTVALID = 0x1f,
        ;
        /// As nvgpu's header names them.
        TEXTS {
            0x0 "hce_re_illegal_op",
            0x1 "hce_re_alignb",
            0x2 "hce_priv",
            0x3 "hce_illegal_mthd",
            0x4 "hce_illegal_class",
            0x1f "ctxnotvalid",
        }
    }
}

/// Bits of a copy engine's interrupt register, by their numbers.
pub mod ce_intr {
    crate::names::names! {
        BLOCKPIPE = 0x0,
        NONBLOCKPIPE = 0x1,
        LAUNCHERR = 0x2,
        INVALID_CONFIG = 0x3,
        MTHD_BUFFER_FAULT = 0x4,
        FBUF_CRC_FAIL = 0x5,
        FBUF_MAGIC_CHK_FAIL = 0x6,
        POISON_ERROR = 0x7,
        STALLING_DEBUG = 0x1f,
    }
}

/// Launch errors of a copy engine: `NV_CE_LAUNCHERR`.
pub mod ce_launch_error {
    crate::names::names! {
        NO_ERR = 0x0,
        _2D_LAYER_EXCEEDS_DEPTH = 0x1,
        INVALID_ALIGNMENT = 0x2,
        MEM2MEM_RECT_OUT_OF_BOUNDS = 0x3,
        SRC_LINE_ECXEEDS_PITCH = 0x4,
        SRC_LINE_EXCEEDS_NEG_PITCH = 0x5,
        DST_LINE_ECXEEDS_PITCH = 0x6,
        DST_LINE_EXCEEDS_NEG_PITCH = 0x7,
        BAD_SRC_PIXEL_COMP_REF = 0x8,
        INVALID_VALUE = 0x9,
        INVALID_UNUSED_FIELD = 0xa,
        INVALID_OPERATION = 0xb,
        NO_RESOURCES = 0xc,
        INVALID_CONFIG = 0xd,
        METHOD_BUFFER_ACCESS_FAULT = 0xe,
    }
}
