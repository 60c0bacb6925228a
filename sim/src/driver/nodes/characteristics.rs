//! Values of `GET_CHARACTERISTICS` on an Orin AGX 64 GB.

use crate::gpu::chip::Chip;
use crate::what_if::{WhatIf, WhatIfs};
use nv_hw::class;
use nvgpu_sys::*;
use sass::Arch;
use zerocopy::IntoBytes;

/// Top clock of the GPU in Hz.
pub(super) const MAX_HZ: u64 = 1_300_000_000;
/// Every byte of a field that is not known here.
const UNKNOWN: u8 = 0x5a;
/// Flags as a real machine shows them to a caller without `CAP_SYS_NICE`.
const FLAGS: u64 = 0x01bf_5fff_7f5d_035d;

/// The characteristics, for the open of the control node number `instance`; `cilp` when kernels can be
/// preempted between instructions.
pub(super) fn of(chip: Chip, cilp: bool, instance: u64) -> nvgpu_gpu_characteristics {
    let sm = chip.arch.sm();
    let sm_arch_sm_version = ((sm / 10) << 8) | (sm % 10);
    // ga10b reports another version of its shader programs than of its SMs.
    let sm_arch_spa_version = if chip.arch == Arch::Sm87 { 0x806 } else { sm_arch_sm_version };
    let mut chipname = [0; 8];
    chipname[..5].copy_from_slice(b"ga10b");
    nvgpu_gpu_characteristics {
        arch: 0x170,
        impl_: 0xb,
        rev: 0xa1,
        num_gpc: chip.gpcs(),
        numa_domain_id: NVGPU_GPU_CHARACTERISTICS_NO_NUMA_INFO,
        L2_cache_size: 4 << 20,
        num_tpc_per_gpc: chip.tpcs_per_gpc(),
        bus_type: NVGPU_GPU_BUS_TYPE_AXI,
        compression_page_size: 0x1_0000,
        pde_coverage_bit_count: 47,
        flags: FLAGS,
        twod_class: class::FERMI_TWOD_A,
        threed_class: class::AMPERE_B,
        compute_class: class::AMPERE_COMPUTE_B,
        gpfifo_class: class::AMPERE_CHANNEL_GPFIFO_B,
        inline_to_memory_class: class::KEPLER_INLINE_TO_MEMORY_B,
        dma_copy_class: class::AMPERE_DMA_COPY_B,
        gpc_mask: (1 << chip.gpcs()) - 1,
        sm_arch_sm_version,
        sm_arch_spa_version,
        // ga10b's constant is 0x60: the warps of a TPC.
        sm_arch_warp_count: chip.warps_per_tpc(),
        gpu_ioctl_nr_last: NVGPU_GPU_IOCTL_LAST as i16,
        tsg_ioctl_nr_last: NVGPU_TSG_IOCTL_LAST as i16,
        dbg_gpu_ioctl_nr_last: NVGPU_DBG_GPU_IOCTL_LAST as i16,
        ioctl_channel_nr_last: NVGPU_IOCTL_CHANNEL_LAST as i16,
        as_ioctl_nr_last: NVGPU_AS_IOCTL_LAST as i16,
        gpu_va_bit_count: 40,
        max_fbps_count: 2,
        fbp_en_mask: 3,
        max_ltc_per_fbp: 1,
        max_lts_per_ltc: 4,
        max_gpc_count: 2,
        chipname,
        num_ltc: 2,
        lts_per_ltc: 4,
        map_buffer_batch_limit: 256,
        max_freq: MAX_HZ,
        graphics_preemption_mode_flags: NVGPU_GRAPHICS_PREEMPTION_MODE_WFI
            | NVGPU_GRAPHICS_PREEMPTION_MODE_GFXP,
        compute_preemption_mode_flags: NVGPU_COMPUTE_PREEMPTION_MODE_WFI
            | NVGPU_COMPUTE_PREEMPTION_MODE_CTA
            | if cilp { NVGPU_COMPUTE_PREEMPTION_MODE_CILP } else { 0 },
        default_graphics_preempt_mode: NVGPU_GRAPHICS_PREEMPTION_MODE_WFI,
        default_compute_preempt_mode: NVGPU_COMPUTE_PREEMPTION_MODE_WFI,
        reg_ops_limit: 1024,
        event_ioctl_nr_last: NVGPU_EVENT_IOCTL_LAST as i16,
        ctxsw_ioctl_nr_last: NVGPU_CTXSW_IOCTL_LAST as i16,
        prof_ioctl_nr_last: NVGPU_PROFILER_IOCTL_LAST as i16,
        nvs_ioctl_nr_last: 3,
        max_ctxsw_ring_buffer_size: 524_288,
        per_device_identifier: 0x5147_0a10_b000_0001,
        // PES of a GPC, whatever is left of them (`GPU_LIT_NUM_PES_PER_GPC`).
        num_ppc_per_gpc: 2,
        max_veid_count_per_tsg: 64,
        max_gpfifo_entries: 1 << 28,
        max_dbg_tsg_timeslice: 4_000_000,
        device_instance_id: instance,
        ..Default::default()
    }
}

/// The bytes of the characteristics as another release of the driver has them: without the last fields of these,
/// or with more behind them, which no client of these knows.
pub(super) fn sized(all: nvgpu_gpu_characteristics, what_if: &WhatIfs) -> Vec<u8> {
    let mut bytes = all.as_bytes().to_vec();
    if what_if.has(WhatIf::CHARACTERISTICS_400) {
        bytes.resize(400, UNKNOWN);
    } else if what_if.has(WhatIf::CHARACTERISTICS_312) {
        bytes.truncate(312);
    }
    bytes
}

/// The answer of `ZCULL_GET_INFO` (`nvgpu_gr_zcull_init` and `gm20b_gr_get_zcull_info`; constants of
/// `hw_gr_ga10b.h`). The model has one ZCULL bank for each TPC, as the driver requires, and no ZCULL memory: 0
/// aliquots.
pub(super) fn zcull(chip: Chip) -> nvgpu_gpu_zcull_get_info_args {
    // Of each GPC that the chip can have.
    const HEADER_BYTES: u32 = 0x20;
    const SUBREGION_HEADER_BYTES: u32 = 0xc0;
    const BYTES_PER_ALIQUOT: u32 = 0x20;
    const MOST_GPCS: u32 = 2;
    let tpcs = chip.tpcs();
    nvgpu_gpu_zcull_get_info_args {
        width_align_pixels: tpcs * 16,
        height_align_pixels: 32,
        pixel_squares_by_aliquots: tpcs * 16 * 16 * tpcs / (chip.gpcs() * chip.tpcs_per_gpc()),
        aliquot_total: 0,
        region_byte_multiplier: chip.gpcs() * BYTES_PER_ALIQUOT,
        region_header_size: MOST_GPCS * HEADER_BYTES,
        subregion_header_size: MOST_GPCS * SUBREGION_HEADER_BYTES,
        subregion_width_align_pixels: tpcs * 16,
        subregion_height_align_pixels: 64,
        subregion_count: 16,
    }
}
