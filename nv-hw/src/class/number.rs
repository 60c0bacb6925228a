//! Numbers of classes.
//!
//! Source: the file names and first definitions of the class headers of NVIDIA's open-gpu-doc and open GPU
//! kernel modules.

use crate::names::{self, names};

names! {
    FERMI_TWOD_A = 0x902d,
    KEPLER_DMA_COPY_A = 0xa0b5,
    KEPLER_INLINE_TO_MEMORY_B = 0xa140,
    MAXWELL_CHANNEL_GPFIFO_A = 0xb06f,
    MAXWELL_DMA_COPY_A = 0xb0b5,
    MAXWELL_B = 0xb197,
    MAXWELL_COMPUTE_B = 0xb1c0,
    PASCAL_CHANNEL_GPFIFO_A = 0xc06f,
    PASCAL_A = 0xc097,
    PASCAL_DMA_COPY_A = 0xc0b5,
    PASCAL_COMPUTE_A = 0xc0c0,
    PASCAL_COMPUTE_B = 0xc1c0,
    VOLTA_CHANNEL_GPFIFO_A = 0xc36f,
    VOLTA_A = 0xc397,
    VOLTA_DMA_COPY_A = 0xc3b5,
    VOLTA_COMPUTE_A = 0xc3c0,
    TURING_CHANNEL_GPFIFO_A = 0xc46f,
    NVC4B7_VIDEO_ENCODER = 0xc4b7,
    AMPERE_CHANNEL_GPFIFO_A = 0xc56f,
    TURING_A = 0xc597,
    TURING_DMA_COPY_A = 0xc5b5,
    TURING_COMPUTE_A = 0xc5c0,
    AMPERE_SMC_PARTITION_REF = 0xc637,
    AMPERE_DMA_COPY_A = 0xc6b5,
    AMPERE_COMPUTE_A = 0xc6c0,
    AMPERE_CHANNEL_GPFIFO_B = 0xc76f,
    AMPERE_B = 0xc797,
    AMPERE_DMA_COPY_B = 0xc7b5,
    AMPERE_COMPUTE_B = 0xc7c0,
    HOPPER_CHANNEL_GPFIFO_A = 0xc86f,
    HOPPER_DMA_COPY_A = 0xc8b5,
    BLACKWELL_CHANNEL_GPFIFO_A = 0xc96f,
    BLACKWELL_DMA_COPY_A = 0xc9b5,
    ADA_COMPUTE_A = 0xc9c0,
    BLACKWELL_CHANNEL_GPFIFO_B = 0xca6f,
    BLACKWELL_DMA_COPY_B = 0xcab5,
    HOPPER_COMPUTE_A = 0xcbc0,
    BLACKWELL_COMPUTE_A = 0xcdc0,
    BLACKWELL_COMPUTE_B = 0xcec0,
}

/// The name of a class.
#[must_use]
pub fn name(class: u32) -> Option<&'static str> {
    names::name(NAMES, class)
}

/// Purpose of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The host interface: what every channel understands, whatever the subchannel.
    Host,
    /// Compute.
    Compute,
    /// Copy engines.
    Copy,
    /// Three-dimensional graphics.
    Graphics,
    /// Two-dimensional graphics.
    TwoD,
    /// Words of the pushbuffer written to memory.
    InlineToMemory,
}

impl Kind {
    /// By the low byte of a class number; the high byte is the generation.
    #[must_use]
    pub const fn of(class: u32) -> Option<Self> {
        match class & 0xff {
            0x2d => Some(Self::TwoD),
            0x40 => Some(Self::InlineToMemory),
            0x6f => Some(Self::Host),
            0x97 => Some(Self::Graphics),
            0xb5 => Some(Self::Copy),
            0xc0 => Some(Self::Compute),
            _ => None,
        }
    }
}

/// The compute capability, 86 for 8.6, of the first GPUs with a compute class.
#[must_use]
pub const fn compute_capability(class: u32) -> Option<u32> {
    match class {
        PASCAL_COMPUTE_A => Some(60),
        PASCAL_COMPUTE_B => Some(61),
        VOLTA_COMPUTE_A => Some(70),
        TURING_COMPUTE_A => Some(75),
        AMPERE_COMPUTE_A => Some(80),
        AMPERE_COMPUTE_B => Some(86),
        ADA_COMPUTE_A => Some(89),
        HOPPER_COMPUTE_A => Some(90),
        _ => None,
    }
}
