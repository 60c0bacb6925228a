//! Large copies between buffers in a GPU's own memory, done by a kernel: all its SMs together move several
//! times what one copy engine does.

use zerocopy::{Immutable, IntoBytes};

use crate::backend::MemoryKind;
use crate::cubin::CubinError;
use crate::error::{Error, ProgramError};
use crate::info::BackendKind;
use crate::launch::qmd_cache::Launch;
use crate::objects::buffer::Buffer;
use crate::objects::program::Program;
use crate::objects::shared::Shared;
use crate::program::images::Images;
use crate::program::kernel::Kernel;
use crate::shape::LaunchConfig;

/// `hcq/kernels/copy.ptx`, compiled for the first part of each major version, which later ones of that version
/// run, and for Tegra, to which that does not extend.
const IMAGES: Images<'_> = images!("../../kernels/copy", sm_80, sm_87, sm_90);
/// Threads of a block, each of which moves one vector. On an H200 that is faster than fewer or more threads, and
/// than more vectors for each.
const THREADS: u32 = 256;
/// A vector.
const ALIGN: u64 = 16;
/// Bytes that a block moves.
const TILE: u64 = THREADS as u64 * ALIGN;
/// The fewest bytes that the kernel for unequal alignment copies.
const LEAST_REALIGNED: u64 = 64;
/// Least bytes of a copy by a kernel, unless options say otherwise. On an H200 a copy engine takes longer
/// from here: 5.1 against 4.6 us, the wait included.
const FROM: u64 = 64 << 10;
/// More blocks than this in one launch are left to the engine: 8 TiB.
const MAX_BLOCKS: u64 = 1 << 31;

/// The parameters of both kernels.
#[derive(Immutable, IntoBytes)]
#[repr(C)]
struct Parameters {
    src: u64,
    dst: u64,
    len: u64,
}

/// A copy as a launch.
pub(crate) struct CopyLaunch {
    kernel: Kernel,
    config: LaunchConfig,
    parameters: Parameters,
}

impl CopyLaunch {
    /// As a queue records it.
    pub fn launch(&self) -> Launch<'_> {
        Launch { kernel: &self.kernel, config: self.config, parameters: self.parameters.as_bytes() }
    }
}

/// The launch that makes a copy, if a kernel should; offsets and length are inside the buffers.
pub(crate) fn for_copy(
    shared: &Shared,
    (source, from): (&Buffer, u64),
    (destination, to): (&Buffer, u64),
    len: u64,
) -> Result<Option<CopyLaunch>, Error> {
    let least = match shared.core.options.kernel_copies_from {
        Some(least) => least,
        // The memory of the others is one; sim executes engine copies faster than kernels.
        None if shared.core.info().backend != BackendKind::Rm => return Ok(None),
        None if [source, destination].iter().any(|b| b.kind() != MemoryKind::Device) => return Ok(None),
        None => FROM,
    };
    let (from, to) = (source.va().raw() + from, destination.va().raw() + to);
    let blocks = len.div_ceil(TILE);
    let is_aligned = from % ALIGN == to % ALIGN;
    if len < least.max(if is_aligned { ALIGN } else { LEAST_REALIGNED }) || blocks >= MAX_BLOCKS {
        return Ok(None);
    }
    let Some([copy, realign]) = shared.copy_kernels(|| load(shared))? else { return Ok(None) };
    let kernel = if is_aligned { copy } else { realign };
    let config = LaunchConfig::new(blocks as u32, THREADS);
    Ok(Some(CopyLaunch { kernel, config, parameters: Parameters { src: from, dst: to, len } }))
}

/// The kernels for equal and for unequal alignment, where there is code for the GPU.
fn load(shared: &Shared) -> Result<Option<[Kernel; 2]>, Error> {
    match Program::load(shared, IMAGES) {
        Ok(program) => Ok(Some([program.kernel("copy")?, program.kernel("realign")?])),
        Err(Error::Program(ProgramError::Cubin(CubinError::NoneFits { .. }))) => Ok(None),
        Err(other) => Err(other),
    }
}
