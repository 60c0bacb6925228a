//! Cache control of a launch: invalidates before it, the flush after it, and the selection of samplers.

use crate::image::{Qmd, layout};

bitflags::bitflags! {
    /// Caches invalidated before a grid starts.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Invalidate: u8 {
        /// `INVALIDATE_TEXTURE_HEADER_CACHE`.
        const TEXTURE_HEADER = 1 << 0;
        /// `INVALIDATE_TEXTURE_SAMPLER_CACHE`.
        const TEXTURE_SAMPLER = 1 << 1;
        /// `INVALIDATE_TEXTURE_DATA_CACHE`.
        const TEXTURE_DATA = 1 << 2;
        /// `INVALIDATE_SHADER_DATA_CACHE`: the L1; needed when another kernel, a copy or the CPU wrote the
        /// inputs.
        const SHADER_DATA = 1 << 3;
        /// `INVALIDATE_INSTRUCTION_CACHE`: needed when code memory was rewritten.
        const INSTRUCTION = 1 << 4;
        /// `INVALIDATE_SHADER_CONSTANT_CACHE`.
        const SHADER_CONSTANT = 1 << 5;
    }
}

/// Caches flushed after a grid, before its releases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Membar {
    /// Nothing.
    #[default]
    None,
    /// `L1_SYSMEMBAR`: writes are visible to the whole system, the CPU included.
    System,
    /// `L1_MEMBAR`: writes are visible to the GPU.
    Device,
}

impl Membar {
    pub(crate) const fn number(self) -> u32 {
        match self {
            Self::None => 0,
            Self::System => 1,
            Self::Device => 3,
        }
    }

    pub(crate) const fn from_number(number: u32) -> Option<Self> {
        match number {
            0 => Some(Self::None),
            1 => Some(Self::System),
            3 => Some(Self::Device),
            _ => None,
        }
    }
}

/// Selection of a texture instruction's sampler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SamplerIndex {
    /// `INDEPENDENTLY`: by an index of its own.
    Independently = 0,
    /// `VIA_HEADER_INDEX`: by the index of the texture header.
    #[default]
    ViaHeaderIndex = 1,
}

impl Qmd {
    /// Sets the caches flushed after the grid.
    pub fn set_membar(&mut self, membar: Membar) {
        self.put(layout(self.version()).membar, membar.number());
    }

    /// Lets the scheduler begin with the dependent QMD while the membar of this one is on its way
    /// (`CWD_MEMBAR_TASK_CHASING_ENABLE`), or not. On an H200 a link takes 0.07 us less; the dependent sees
    /// the grid's writes all the same. Does nothing where the layout has no such field (v3.0).
    pub fn set_task_chasing(&mut self, on: bool) {
        if let Some(field) = layout(self.version()).task_chasing {
            self.put(field, on.into());
        }
    }
}
