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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::backend::tests::Books;
    use crate::observer::Unobserved;
    use crate::options::DeviceOptions;

    /// The kernel, blocks and threads for a copy of `len` bytes between these offsets of two buffers.
    fn choice(from_bytes: Option<u64>, [from, to, len]: [u64; 3]) -> Option<(String, u32, u32)> {
        let options = DeviceOptions { kernel_copies_from: from_bytes, ..DeviceOptions::default() };
        let shared = Shared::new(Books::new(usize::MAX), Arc::new(Unobserved), options).unwrap();
        let buffer = || {
            let memory = shared.alloc(1 << 20, MemoryKind::Device, "test").unwrap();
            Buffer::new(&shared, memory)
        };
        let (source, destination) = (buffer(), buffer());
        let copy = for_copy(&shared, (&source, from), (&destination, to), len).unwrap()?;
        let Launch { kernel, config, parameters } = copy.launch();
        let ends = [source.va().raw() + from, destination.va().raw() + to, len];
        assert_eq!(parameters, ends.map(u64::to_le_bytes).as_flattened());
        assert_eq!((config.grid[1..].to_vec(), config.block[1..].to_vec()), (vec![1; 2], vec![1; 2]));
        Some((kernel.name().to_owned(), config.grid[0], config.block[0]))
    }

    #[test]
    fn a_kernel_copies_where_it_is_asked_to_from_as_many_bytes_as_it_can() {
        let by = |kernel: &str, blocks| Some((kernel.to_owned(), blocks, 256));
        // As it was asked for: from 4096 bytes on.
        let of = |copy| choice(Some(4096), copy);
        assert_eq!(of([0, 0, 4095]), None);
        assert_eq!(of([0, 0, 4096]), by("copy", 1));
        assert_eq!(of([0, 16, 4097]), by("copy", 2));
        assert_eq!(of([3, 19, 8192]), by("copy", 2), "equally far from a vector's start");
        assert_eq!(of([0, 8, 8192]), by("realign", 2));
        // What the kernels can do at least.
        let of = |copy| choice(Some(0), copy);
        assert_eq!((of([0, 0, 15]), of([0, 0, 16])), (None, by("copy", 1)));
        assert_eq!((of([0, 1, 63]), of([0, 1, 64])), (None, by("realign", 1)));
        // A GPU whose memory is the CPU's leaves them to the engine.
        assert_eq!(choice(None, [0, 0, 1 << 20]), None);
    }
}
