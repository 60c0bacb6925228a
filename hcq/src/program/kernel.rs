//! Kernels of loaded programs.

use std::fmt;
use std::sync::Arc;

use crate::address::GpuVa;
use crate::cubin::loader::KernelInfo;
use crate::cubin::resources::Parameter;
use crate::error::Error;
use crate::program::image::Image;
use crate::program::occupancy::Occupancy;
use crate::program::scratch;
use crate::shape::LaunchConfig;
use crate::submission::uses::Uses;

/// A kernel of a loaded program.
#[derive(Clone)]
pub struct Kernel {
    image: Arc<Image>,
    index: usize,
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Kernel({} at {})", self.name(), self.address())
    }
}

impl Kernel {
    /// The kernel of that number in `image`, which has one.
    pub(crate) fn new(image: &Arc<Image>, index: usize) -> Self {
        Self { image: image.clone(), index }
    }

    pub(crate) fn image(&self) -> &Arc<Image> {
        &self.image
    }

    pub(crate) fn info(&self) -> &KernelInfo {
        &self.image.kernels()[self.index]
    }

    pub(crate) fn uses(&self) -> &Uses {
        self.image.uses(self.index)
    }

    /// Its number in the image.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    /// Its name, mangled where the compiler mangled it.
    pub fn name(&self) -> &str {
        &self.info().name
    }

    /// Registers per thread.
    pub fn registers(&self) -> u32 {
        self.info().registers
    }

    /// Bytes of static shared memory per block. On sm_90 this includes the KiB that is reserved there.
    pub fn static_shared(&self) -> u32 {
        self.info().static_shared
    }

    /// Bytes of stack per thread.
    pub fn local_bytes(&self) -> u32 {
        self.info().stack
    }

    /// Bytes of parameters.
    pub fn param_bytes(&self) -> u32 {
        self.info().param_bytes
    }

    /// The parameters, in order. None where the cubin has no list of them: then launches are checked by
    /// [`param_bytes`](Self::param_bytes) alone.
    pub fn parameters(&self) -> &[Parameter] {
        &self.info().parameters
    }

    /// Most threads per block: what the code was compiled for, and what its registers leave room for.
    pub fn max_threads(&self) -> u32 {
        let sm = self.image.device_sm();
        let by_registers =
            qmd::Target::from_sm(sm).map_or(1024, |t| 32 * t.warps_by_registers(self.registers()));
        self.info().max_threads.min(by_registers)
    }

    /// The number of blocks of `threads` threads with `dynamic_shared` bytes of shared memory beyond the
    /// static ones that an SM holds at once. A grid whose blocks wait for each other must not be larger than
    /// that times the SMs. None for blocks that cannot be launched: of no threads, or more than
    /// [`Self::max_threads`].
    pub fn blocks_per_sm(&self, threads: u32, dynamic_shared: u32) -> u32 {
        if !(1..=self.max_threads()).contains(&threads) {
            return 0;
        }
        self.occupancy(threads, dynamic_shared).map_or(0, |o| o.blocks_per_sm)
    }

    /// The occupancy of an SM by such blocks, and its limit; `None` for an SM whose limits are not known.
    pub fn occupancy(&self, threads: u32, dynamic_shared: u32) -> Option<Occupancy> {
        let target = qmd::Target::from_sm(self.image.device_sm())?;
        let reserved = if self.image.sm() >= 90 { qmd::RESERVED_SHARED_BYTES } else { 0 };
        let shared = self.static_shared().saturating_sub(reserved).saturating_add(dynamic_shared);
        Some(Occupancy::of(target, threads, self.registers(), shared))
    }

    /// Whether its code has `griddepcontrol.wait` (`ACQBULK`), which a launch needs that begins before the
    /// one it follows has ended. Functions that it calls are not searched.
    pub fn waits_for_grids(&self) -> bool {
        self.image.has_grid_wait(self.index)
    }

    /// GPU address of the code.
    pub fn address(&self) -> GpuVa {
        GpuVa::inside(self.image.base().raw() + self.info().code.offset)
    }

    /// Bytes of code.
    pub fn code_bytes(&self) -> u64 {
        self.info().code.len
    }

    /// Bytes of local memory per thread that the launch must provide.
    pub(crate) fn local_per_thread(&self) -> u32 {
        scratch::per_thread(self.info().stack)
    }

    /// Blocks for which each of `sm_count` SMs sets shared memory apart in a launch of `config`, at least one.
    pub(crate) fn blocks_apart(&self, config: &LaunchConfig, sm_count: u32) -> u32 {
        if config.blocks_per_sm > 0 {
            return config.blocks_per_sm;
        }
        let threads = config.block.iter().fold(1_u32, |n, side| n.saturating_mul(*side));
        let blocks = config.grid.iter().fold(1_u64, |n, side| n.saturating_mul((*side).into()));
        let share = blocks.div_ceil(sm_count.max(1).into());
        // Bounded by a number of 32 bits.
        share.min(self.blocks_per_sm(threads, config.dynamic_shared).into()).max(1) as u32
    }

    /// The launch descriptor for `config`, with shared memory for `blocks` blocks on an SM; bank 0 is left
    /// open.
    pub(crate) fn descriptor(
        &self,
        target: qmd::Target,
        config: &LaunchConfig,
        blocks: u32,
    ) -> Result<qmd::Qmd, Error> {
        let k = self.info();
        let shared = qmd::SharedMemory::new(k.static_shared, config.dynamic_shared);
        let mut launch = qmd::Launch::new(target)
            .program(self.address().raw(), k.code.len)
            .grid(config.grid)
            .block(config.block)
            .registers(k.registers)
            .barriers(k.barriers)
            .shared(shared)
            .local(0, self.local_per_thread())
            .invalidate(qmd::Invalidate::SHADER_DATA)
            .membar(qmd::Membar::System);
        if blocks > 1 {
            // Each with the part that is kept back per block, which v4.0 counts already.
            let kept_back = match target.version() {
                qmd::Version::V04 => 0,
                _ => u64::from(qmd::RESERVED_SHARED_BYTES),
            };
            let block = shared.bytes_on(target) + kept_back;
            let all = block.saturating_mul(blocks.into()).min(target.max_shared_bytes().into());
            // Bounded by a number of 32 bits.
            launch = launch.carve_out(all as u32);
        }
        for (bank, extent) in &k.banks {
            let va = self.image.base().raw() + extent.offset;
            let len = extent.len.min(u64::from(qmd::CONSTANT_BUFFER_MAX)) as u32;
            launch = launch.constant_buffer(*bank, qmd::ConstantBuffer::new(va, len));
        }
        launch.build().map_err(|source| Error::qmd(&k.name, source))
    }
}
