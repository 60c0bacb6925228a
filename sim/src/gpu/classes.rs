//! Classes and runlists of ga10b.

use nv_hw::class::*;

/// Classes that the driver and the engines of ga10b take.
pub(crate) const CLASSES: &[u32] = &[
    AMPERE_COMPUTE_B,
    TURING_COMPUTE_A,
    VOLTA_COMPUTE_A,
    PASCAL_COMPUTE_A,
    MAXWELL_COMPUTE_B,
    AMPERE_B,
    TURING_A,
    VOLTA_A,
    PASCAL_A,
    MAXWELL_B,
    AMPERE_DMA_COPY_B,
    TURING_DMA_COPY_A,
    VOLTA_DMA_COPY_A,
    PASCAL_DMA_COPY_A,
    MAXWELL_DMA_COPY_A,
    KEPLER_DMA_COPY_A,
    AMPERE_CHANNEL_GPFIFO_B,
    TURING_CHANNEL_GPFIFO_A,
    VOLTA_CHANNEL_GPFIFO_A,
    PASCAL_CHANNEL_GPFIFO_A,
    MAXWELL_CHANNEL_GPFIFO_A,
    FERMI_TWOD_A,
    KEPLER_INLINE_TO_MEMORY_B,
    AMPERE_SMC_PARTITION_REF,
    NVC4B7_VIDEO_ENCODER,
];
/// The runlist of graphics, compute and a copy engine of their own.
pub(crate) const GRAPHICS_RUNLIST: u32 = 0;
