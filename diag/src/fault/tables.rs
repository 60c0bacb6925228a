//! Names and numbers of the hardware's and the drivers' error reports.
//!
//! Sources: the register headers of nvgpu (L4T r36.4.3), NVIDIA's manuals of GA100 for the front-end units
//! (inferred for ga10b), the open desktop driver for names of Xids and fault types, envytools for class-error
//! codes.

/// Error codes of a warp, `HWW_WARP_ESR` bits 15:0, of all generations.
pub const WARP_CODES: &[(u32, &str)] = &[
    (0x1, "STACK_ERROR"),
    (0x2, "API_STACK_ERROR"),
    (0x3, "RET_EMPTY_STACK_ERROR"),
    (0x4, "PC_WRAP"),
    (0x5, "MISALIGNED_PC"),
    (0x6, "PC_OVERFLOW"),
    (0x7, "MISALIGNED_IMMC_ADDR"),
    (0x8, "MISALIGNED_REG"),
    (0x9, "ILLEGAL_INSTR_ENCODING"),
    (0xa, "ILLEGAL_SPH_INSTR_COMBO"),
    (0xb, "ILLEGAL_INSTR_PARAM"),
    (0xc, "INVALID_CONST_ADDR"),
    (0xd, "OOR_REG"),
    (0xe, "OOR_ADDR"),
    (0xf, "MISALIGNED_ADDR"),
    (0x10, "INVALID_ADDR_SPACE"),
    (0x11, "ILLEGAL_INSTR_PARAM2"),
    (0x12, "INVALID_CONST_ADDR_LDC"),
    (0x13, "GEOMETRY_SM_ERROR"),
    (0x14, "DIVERGENT"),
    (0x15, "WARP_EXIT"),
    (0x16, "STACK_OVERFLOW"),
    (0x17, "MMU_FAULT"),
    (0x18, "TEX_FORMAT"),
    (0x19, "TEX_LAYOUT"),
    (0x20, "MMU_NACK"),
    (0x21, "ARRIVE"),
];

/// What the desktop driver calls the error codes of a warp.
pub const WARP_TEXTS: &[(u32, &str)] = &[
    (0x1, "Stack Error"),
    (0x2, "API Stack Error"),
    (0x5, "Misaligned PC"),
    (0x6, "PC Overflow"),
    (0x8, "Misaligned Register"),
    (0x9, "Illegal Instruction Encoding"),
    (0xb, "Illegal Instruction Parameter"),
    (0xd, "Out Of Range Register"),
    (0xe, "Out Of Range Address"),
    (0xf, "Misaligned Address"),
    (0x10, "Invalid Address Space"),
    (0x12, "Invalid Constant Address"),
    (0x16, "Stack Overflow"),
    (0x17, "MMU Fault"),
    (0x18, "TEX FORMAT Errors"),
    (0x19, "TEX LAYOUT Errors"),
    (0x20, "MMU NACK Errors"),
];

/// Bits of `HWW_GLOBAL_ESR`, of all generations.
pub const GLOBAL_BITS: &[(u32, &str)] = &[
    (0, "SM_TO_SM_FAULT"),
    (1, "L1_ERROR"),
    (2, "MULTIPLE_WARP_ERRORS"),
    (3, "PHYSICAL_STACK_OVERFLOW"),
    (4, "BPT_INT"),
    (5, "BPT_PAUSE"),
    (6, "SINGLE_STEP_COMPLETE"),
    (8, "ERROR_IN_TRAP"),
    (12, "POISON_DATA"),
    (29, "ECC_SEC_ERROR"),
    (30, "ECC_DED_ERROR"),
    (31, "TIMEOUT_ERROR"),
];

/// Fault types of the MMU as nvgpu prints them for ga10b.
pub const FAULT_TYPES: &[(u32, &str)] = &[
    (0, "invalid pde"),
    (1, "invalid pde size"),
    (2, "invalid pte"),
    (3, "limit violation"),
    (4, "unbound inst block"),
    (5, "priv violation"),
    (6, "write, ro violation"),
    (7, "read, wo violation"),
    (8, "pitch mask violation"),
    (9, "work creation"),
    (10, "unsupported aperture"),
    (11, "compression failure"),
    (12, "unsupported kind"),
    (13, "region violation"),
    (14, "poison"),
    (15, "atomic violation"),
];

/// The fault types that nvgpu prints otherwise for gv11b.
pub const FAULT_TYPES_OLD: &[(u32, &str)] = &[(6, "write"), (7, "read"), (15, "atomic")];

/// Fault types of the MMU as the desktop driver prints them.
pub const FAULT_TYPES_XID: &[(u32, &str)] = &[
    (0, "FAULT_PDE"),
    (1, "FAULT_PDE_SIZE"),
    (2, "FAULT_PTE"),
    (3, "FAULT_VA_LIMIT_VIOLATION"),
    (4, "FAULT_UNBOUND_INST_BLOCK"),
    (5, "FAULT_PRIV_VIOLATION"),
    (6, "FAULT_RO_VIOLATION"),
    (7, "FAULT_WO_VIOLATION"),
    (8, "FAULT_PITCH_MASK_VIOLATION"),
    (9, "FAULT_WORK_CREATION"),
    (10, "FAULT_UNSUPPORTED_APERTURE"),
    (11, "FAULT_COMPRESSION_FAILURE"),
    (12, "FAULT_UNSUPPORTED_KIND"),
    (13, "FAULT_REGION_VIOLATION"),
    (14, "FAULT_POISONED"),
    (15, "FAULT_ATOMIC_VIOLATION"),
];

/// Access types of the MMU as nvgpu prints them.
pub const ACCESS_TYPES: &[(u32, &str)] = &[
    (0, "virt read"),
    (1, "virt write"),
    (2, "virt atomic strong"),
    (3, "virt prefetch"),
    (4, "virt atomic weak"),
    (8, "phys read"),
    (9, "phys write"),
    (10, "phys atomic"),
    (11, "phys prefetch"),
];

/// Interrupt bits of the pushbuffer unit as nvgpu prints them.
pub const PBDMA_INTR_0: &[(u32, &str)] = &[
    (0, "MEMREQ timeout"),
    (1, "MEMACK_TIMEOUT"),
    (2, "MEMACK_EXTRA acks"),
    (3, "MEMDAT_TIMEOUT"),
    (4, "MEMDAT_EXTRA acks"),
    (5, "MEMFLUSH noack"),
    (6, "MEMOP noack"),
    (7, "LBCONNECT noack"),
    (8, "NONE - was LBREQ"),
    (9, "LBACK_TIMEOUT"),
    (10, "LBACK_EXTRA acks"),
    (11, "LBDAT_TIMEOUT"),
    (12, "LBDAT_EXTRA acks"),
    (13, "GPFIFO won't fit"),
    (14, "GPPTR invalid"),
    (15, "GPENTRY invalid"),
    (16, "GPCRC mismatch"),
    (17, "PBPTR get>put"),
    (18, "PBENTRY invld"),
    (19, "PBCRC mismatch"),
    (20, "NONE - was XBARC"),
    (21, "METHOD invld"),
    (22, "METHODCRC mismat"),
    (23, "DEVICE sw method"),
    (24, "[ENGINE]"),
    (25, "SEMAPHORE invlid"),
    (26, "ACQUIRE timeout"),
    (27, "PRI forbidden"),
    (28, "ILLEGAL SYNCPT"),
    (29, "[NO_CTXSW_SEG]"),
    (30, "PBSEG badsplit"),
    (31, "SIGNATURE bad"),
];

/// Bits of its second interrupt register.
pub const PBDMA_INTR_1: &[(u32, &str)] = &[
    (0, "hce_re_illegal_op"),
    (1, "hce_re_alignb"),
    (2, "hce_priv"),
    (3, "hce_illegal_mthd"),
    (4, "hce_illegal_class"),
    (31, "ctxnotvalid"),
];

/// Bits of the front end's exception register.
pub const FE_ESR: &[(u32, &str)] = &[
    (0, "INJECTED_BUNDLE_ERROR"),
    (1, "CLASS_SUBCH_MISMATCH"),
    (3, "SPECULATIVE_GO_IDLE"),
    (4, "ILLEGAL_FE_ATOMIC_SEQ"),
    (5, "ILLEGAL_SMC_MEM_PARTITIONING"),
];

/// Bits of the macro engine's exception register.
pub const MME_ESR: &[(u32, &str)] = &[
    (0, "MISSING_MACRO_DATA"),
    (1, "EXTRA_MACRO_DATA"),
    (2, "ILLEGAL_OPCODE"),
    (3, "BRANCH_IN_DELAY_SLOT"),
    (4, "MAX_INSTR_LIMIT"),
    (5, "INSTR_RAM_ACCESS_OUT_OF_BOUNDS"),
    (6, "DATA_RAM_ACCESS_OUT_OF_BOUNDS"),
    (7, "ILLEGAL_MME_METHOD"),
    (16, "DMA_DRAM_ACCESS_OUT_OF_BOUNDS"),
    (17, "DMA_READ_FIFOED_FROM_PB"),
    (18, "DMA_ILLEGAL_FIFO_CONFIG"),
    (19, "DMA_READ_FIFOED_OVERFLOW"),
    (20, "DMA_FIFO_RESIZED_WHEN_NONIDLE"),
    (29, "STOP_ON_TRAP"),
];

/// Bits of the memory-format unit's exception register.
pub const MEMFMT_ESR: &[(u32, &str)] = &[(0, "EXTRA_INLINE_DATA"), (1, "MISSING_INLINE_DATA")];

/// Codes of class errors.
pub const CLASS_ERRORS: &[(u32, &str)] = &[
    (3, "INVALID_OPERATION"),
    (4, "INVALID_VALUE"),
    (5, "INVALID_ENUM"),
    (8, "INVALID_OBJECT"),
    (9, "READ_ONLY_OBJECT"),
    (10, "SUPERVISOR_OBJECT"),
    (11, "INVALID_ADDRESS_ALIGNMENT"),
    (12, "INVALID_BITFIELD"),
    (13, "BEGIN_END_ACTIVE"),
    (14, "SEMANTIC_COLOR_BACK_OVER_LIMIT"),
    (15, "VIEWPORT_ID_NEEDS_GP"),
    (16, "RT_DOUBLE_BIND"),
    (17, "RT_TYPES_MISMATCH"),
    (18, "RT_PITCH_WITH_ZETA"),
    (21, "FP_TOO_FEW_REGS"),
    (22, "ZETA_FORMAT_CSAA_MISMATCH"),
    (23, "RT_PITCH_WITH_MSAA"),
    (24, "FP_INTERPOLANT_START_OVER_LIMIT"),
    (25, "SEMANTIC_LAYER_OVER_LIMIT"),
    (26, "RT_INVALID_ALIGNMENT"),
    (27, "SAMPLER_OVER_LIMIT"),
    (28, "TEXTURE_OVER_LIMIT"),
    (30, "GP_TOO_MANY_OUTPUTS"),
    (31, "RT_BPP128_WITH_MS8"),
    (33, "Z_OUT_OF_BOUNDS"),
    (35, "XY_OUT_OF_BOUNDS"),
    (36, "VP_ZERO_INPUTS"),
    (39, "CP_MORE_PARAMS_THAN_SHARED"),
    (40, "CP_NO_REG_SPACE_STRIPED"),
    (41, "CP_NO_REG_SPACE_PACKED"),
    (42, "CP_NOT_ENOUGH_WARPS"),
    (43, "CP_BLOCK_SIZE_MISMATCH"),
    (44, "CP_NOT_ENOUGH_LOCAL_WARPS"),
    (45, "CP_NOT_ENOUGH_STACK_WARPS"),
    (46, "CP_NO_BLOCKDIM_LATCH"),
    (49, "ENG2D_FORMAT_MISMATCH"),
    (51, "ENG2D_OPERATION_ILLEGAL_FOR_DST_FORMAT"),
    (52, "ENG2D_FORMAT_MISMATCH_B"),
    (63, "PRIMITIVE_ID_NEEDS_GP"),
    (68, "SEMANTIC_VIEWPORT_OVER_LIMIT"),
    (69, "SEMANTIC_COLOR_FRONT_OVER_LIMIT"),
    (70, "LAYER_ID_NEEDS_GP"),
    (71, "SEMANTIC_CLIP_OVER_LIMIT"),
    (72, "SEMANTIC_PTSZ_OVER_LIMIT"),
    (81, "M2MF_LINE_LENGTH_EXCEEDS_PITCH_IN"),
    (83, "M2MF_LINE_LENGTH_EXCEEDS_PITCH_OUT"),
    (152, "RT_PITCH_WITH_ZETA_GF100"),
    (165, "ENG2D_UNALIGNED_PITCH_GF100"),
];

/// Launch errors of the copy engine.
pub const COPY_ERRORS: &[(u32, &str)] = &[
    (0, "NO_ERR"),
    (1, "2D_LAYER_EXCEEDS_DEPTH"),
    (2, "INVALID_ALIGNMENT"),
    (3, "MEM2MEM_RECT_OUT_OF_BOUNDS"),
    (4, "SRC_LINE_ECXEEDS_PITCH"),
    (5, "SRC_LINE_EXCEEDS_NEG_PITCH"),
    (6, "DST_LINE_ECXEEDS_PITCH"),
    (7, "DST_LINE_EXCEEDS_NEG_PITCH"),
    (8, "BAD_SRC_PIXEL_COMP_REF"),
    (9, "INVALID_VALUE"),
    (10, "INVALID_UNUSED_FIELD"),
    (11, "INVALID_OPERATION"),
    (12, "NO_RESOURCES"),
    (13, "INVALID_CONFIG"),
    (14, "METHOD_BUFFER_ACCESS_FAULT"),
];

/// Codes a channel's error notifier holds under nvgpu.
pub const NOTIFIERS: &[(u32, &str)] = &[
    (8, "FIFO_ERROR_IDLE_TIMEOUT"),
    (12, "GR_ERROR_SW_METHOD"),
    (13, "GR_EXCEPTION"),
    (24, "GR_SEMAPHORE_TIMEOUT"),
    (25, "GR_ILLEGAL_NOTIFY"),
    (31, "FIFO_ERROR_MMU_ERR_FLT"),
    (32, "PBDMA_ERROR"),
    (37, "FECS_ERR_UNIMP_FIRMWARE_METHOD"),
    (43, "RESETCHANNEL_VERIF_ERROR"),
    (80, "PBDMA_PUSHBUFFER_CRC_MISMATCH"),
];

/// Numbers of the desktop driver's error lines.
pub const XIDS: &[(u32, &str)] = &[
    (8, "FIFO_ERROR_IDLE_TIMEOUT"),
    (12, "GR_ERROR_SW_METHOD"),
    (13, "GR_EXCEPTION"),
    (14, "FAKE_ERROR"),
    (16, "VBLANK_CALLBACK_TIMEOUT"),
    (19, "DISP_MISSED_NOTIFIER"),
    (20, "MPEG_ERROR_SW_METHOD"),
    (21, "ME_ERROR_SW_METHOD"),
    (22, "VP_ERROR_SW_METHOD"),
    (23, "RC_LOGGING_ENABLED"),
    (24, "GR_SEMAPHORE_TIMEOUT"),
    (25, "GR_ILLEGAL_NOTIFY"),
    (27, "VP_ERROR"),
    (28, "VP2_ERROR"),
    (29, "BSP_ERROR"),
    (30, "UNUSED_ERROR_30"),
    (31, "FIFO_ERROR_MMU_ERR_FLT"),
    (32, "PBDMA_ERROR"),
    (33, "SEC_ERROR"),
    (34, "MSVLD_ERROR"),
    (35, "MSPDEC_ERROR"),
    (36, "MSPPP_ERROR"),
    (37, "FECS_ERR_UNIMP_FIRMWARE_METHOD"),
    (39, "CE0_ERROR"),
    (40, "CE1_ERROR"),
    (41, "CE2_ERROR"),
    (42, "VIC_ERROR"),
    (43, "RESETCHANNEL_VERIF_ERROR"),
    (44, "GR_FAULT_DURING_CTXSW"),
    (45, "PREEMPTIVE_REMOVAL"),
    (47, "NVENC0_ERROR"),
    (48, "GPU_ECC_DBE"),
    (58, "FB_MEMORY_ERROR"),
    (59, "PMU_ERROR"),
    (60, "SEC2_ERROR"),
    (61, "PMU_BREAKPOINT"),
    (62, "PMU_HALT_ERROR"),
    (63, "INFOROM_PAGE_RETIREMENT_EVENT"),
    (64, "INFOROM_PAGE_RETIREMENT_FAILURE"),
    (65, "NVENC1_ERROR"),
    (68, "NVDEC0_ERROR"),
    (69, "GR_CLASS_ERROR"),
    (70, "CE3_ERROR"),
    (71, "CE4_ERROR"),
    (72, "CE5_ERROR"),
    (73, "NVENC2_ERROR"),
    (74, "NVLINK_ERROR"),
    (75, "CE6_ERROR"),
    (76, "CE7_ERROR"),
    (77, "CE8_ERROR"),
    (78, "VGPU_START_ERROR"),
    (79, "GPU_HAS_FALLEN_OFF_THE_BUS"),
    (80, "PBDMA_PUSHBUFFER_CRC_MISMATCH"),
    (81, "VGA_SUBSYSTEM_ERROR"),
    (82, "NVJPG0_ERROR"),
    (83, "NVDEC1_ERROR"),
    (84, "NVDEC2_ERROR"),
    (85, "CE9_ERROR"),
    (86, "OFA0_ERROR"),
    (87, "NVTELEMETRY_DRIVER_REPORT"),
    (88, "NVDEC3_ERROR"),
    (89, "NVDEC4_ERROR"),
    (90, "LTC_ERROR"),
    (91, "RESERVED_XID"),
    (92, "EXCESSIVE_SBE_INTERRUPTS"),
    (93, "INFOROM_ERASE_LIMIT_EXCEEDED"),
    (94, "CONTAINED_ERROR"),
    (95, "UNCONTAINED_ERROR"),
    (96, "NVDEC5_ERROR"),
    (97, "NVDEC6_ERROR"),
    (98, "NVDEC7_ERROR"),
    (99, "NVJPG1_ERROR"),
    (100, "NVJPG2_ERROR"),
    (101, "NVJPG3_ERROR"),
    (102, "NVJPG4_ERROR"),
    (103, "NVJPG5_ERROR"),
    (104, "NVJPG6_ERROR"),
    (105, "NVJPG7_ERROR"),
    (108, "NVLINK_REMOTE_TRANSLATION_ERROR"),
    (109, "CTXSW_TIMEOUT"),
    (110, "SEC_FAULT_ERROR"),
    (119, "GSP_RPC_TIMEOUT"),
    (120, "GSP_ERROR"),
    (121, "C2C_ERROR"),
    (122, "SPI_PMU_RPC_READ_FAIL"),
    (123, "SPI_PMU_RPC_WRITE_FAIL"),
    (124, "SPI_PMU_RPC_ERASE_FAIL"),
    (125, "INFOROM_FS_ERROR"),
    (126, "CE10_ERROR"),
    (127, "CE11_ERROR"),
    (128, "CE12_ERROR"),
    (129, "CE13_ERROR"),
    (130, "CE14_ERROR"),
    (131, "CE15_ERROR"),
    (132, "CE16_ERROR"),
    (133, "CE17_ERROR"),
    (134, "CE18_ERROR"),
    (135, "CE19_ERROR"),
    (136, "ALI_TRAINING_FAIL"),
    (137, "NVLINK_PRIV_ERR"),
    (138, "DLA_ERROR"),
    (139, "OFA1_ERROR"),
    (140, "UNRECOVERABLE_ECC_ERROR_ESCAPE"),
    (141, "FAST_PATH_ERROR"),
    (142, "NVENC3_ERROR"),
    (143, "GPU_INIT_ERROR"),
    (144, "NVLINK_SAW_ERROR"),
    (145, "NVLINK_RLW_ERROR"),
    (146, "NVLINK_TLW_ERROR"),
    (147, "NVLINK_TREX_ERROR"),
    (148, "NVLINK_NVLPW_CTRL_ERROR"),
    (149, "NVLINK_NETIR_ERROR"),
    (150, "NVLINK_MSE_ERROR"),
    (151, "KEY_ROTATION_ERROR"),
    (152, "RESERVED7_ERROR"),
    (153, "RESERVED8_ERROR"),
    (154, "GPU_RECOVERY_ACTION_CHANGED"),
    (155, "NVLINK_SW_DEFINED_ERROR"),
    (156, "RESOURCE_RETIREMENT_EVENT"),
    (157, "RESOURCE_RETIREMENT_FAILURE"),
    (158, "GPU_FATAL_TIMEOUT"),
    (159, "CHI_NON_DATA_ERROR"),
    (160, "CHANNEL_RETIREMENT_EVENT"),
    (161, "CHANNEL_RETIREMENT_FAILURE"),
    (162, "ISINK_REENGAGED"),
    (163, "ISINK_DISENGAGED"),
    (164, "ISINK_LOW_LIFETIME"),
    (165, "ISINK_ZERO_LIFETIME"),
    (166, "NVLINK_SECURE_NVLE_ERROR"),
    (167, "PCIE_FATAL_TIMEOUT"),
    (168, "REDUCED_GPU_MEMORY_CAPACITY"),
    (169, "SEC2_HALT_ERROR"),
    (170, "NVLINK_SECURE_ERROR"),
    (171, "UNCORRECTABLE_DRAM_ERROR"),
    (172, "UNCORRECTABLE_SRAM_ERROR"),
    (173, "C2C_FATAL_LINK_FAILURE"),
    (174, "RESETCHANNEL_KILL_PROCESS_SILENT"),
    (175, "MEMORY_SUBSYSTEM_ERROR"),
    (176, "PCIE_CORRECTABLE_ERROR_FAULT"),
];

/// Error codes that reads of registers return, bits 31:8.
pub const PRI_CODES: &[(u32, &str)] = &[
    (0xbad001, "host pri timeout error"),
    (0xbad002, "host pri decode error"),
    (0xbad00f, "host fecs error"),
    (0xbad0b0, "fb ack timeout error"),
    (0xbadf10, "client timeout"),
    (0xbadf11, "decode error (range not found)"),
    (0xbadf12, "client in reset"),
    (0xbadf13, "client floorswept"),
    (0xbadf14, "client stuck ack"),
    (0xbadf15, "client expected ack"),
    (0xbadf16, "fence error"),
    (0xbadf17, "subid error"),
    (0xbadf18, "rdata wait violation"),
    (0xbadf19, "write byte enable errror"),
    (0xbadf20, "orphan(gpc/fbp)"),
    (0xbadf21, "power ok timeout"),
    (0xbadf22, "orphan(gpc/fbp) powergated"),
    (0xbadf23, "target powergated"),
    (0xbadf24, "orphan gcgpc"),
    (0xbadf25, "decode gcgpc"),
    (0xbadf26, "local priv decode error"),
    (0xbadf27, "priv poisoned"),
    (0xbadf28, "trans type"),
    (0xbadf30, "priv ring dead"),
    (0xbadf31, "priv ring dead low power"),
    (0xbadf40, "trap"),
    (0xbadf41, "target mask violation"),
    (0xbadf50, "client error"),
    (0xbadf51, "priv level violation"),
    (0xbadf52, "indirect priv level violation"),
    (0xbadf53, "local priv ring error"),
    (0xbadf54, "falcon mem priv level violation"),
    (0xbadf55, "route error"),
    (0xbadf56, "custom error"),
    (0xbadf57, "source enable violation"),
    (0xbadf58, "unknown"),
    (0xbadf59, "indirect source enable violation"),
    (0xbadf60, "lock from security sensor"),
];

/// The name of `value` in `table`.
#[must_use]
pub fn name(table: &'static [(u32, &'static str)], value: u32) -> Option<&'static str> {
    table.iter().find(|(number, _)| *number == value).map(|(_, name)| *name)
}

/// The number that is called `name` in `table`; a name that was cut short counts if only one begins so.
#[must_use]
pub fn number(table: &'static [(u32, &'static str)], name: &str) -> Option<u32> {
    let name = name.trim();
    if let Some((number, _)) = table.iter().find(|(_, n)| *n == name) {
        return Some(*number);
    }
    let mut beginning = table.iter().filter(|(_, n)| !name.is_empty() && n.starts_with(name));
    match (beginning.next(), beginning.next()) {
        (Some((number, _)), None) => Some(*number),
        _ => None,
    }
}

/// The names of the bits that are set in `value`.
pub fn bit_names(table: &'static [(u32, &'static str)], value: u32) -> impl Iterator<Item = &'static str> {
    table.iter().filter(move |(bit, _)| value >> bit & 1 != 0).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_find_each_other() {
        for table in [WARP_CODES, GLOBAL_BITS, FAULT_TYPES, ACCESS_TYPES, XIDS, CLASS_ERRORS] {
            for (value, text) in table {
                assert_eq!((name(table, *value), number(table, text)), (Some(*text), Some(*value)));
            }
        }
        assert_eq!(number(ACCESS_TYPES, "virt atomic stron"), Some(2));
        assert_eq!(number(ACCESS_TYPES, "virt atomic"), None);
        assert_eq!(number(FAULT_TYPES, ""), None);
        assert_eq!(
            bit_names(GLOBAL_BITS, 0x1004).collect::<Vec<_>>(),
            ["MULTIPLE_WARP_ERRORS", "POISON_DATA"]
        );
    }
}
