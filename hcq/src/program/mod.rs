//! Programs: cubins loaded into GPU memory, and the kernels in them.

use std::fmt;
use std::sync::Arc;

use crate::backend::MemoryKind;
use crate::device::shared::Shared;
use crate::error::Error;
use crate::launch::constant_bank::BankLayout;
use crate::program::cubin::error::CubinError;
use crate::program::image::Image;
use crate::program::kernel::Kernel;
use crate::program::loader::Cubin;

pub mod cubin;
pub(crate) mod image;
pub(crate) mod kernel;
pub(crate) mod loader;
pub(crate) mod occupancy;
pub(crate) mod registry;
pub(crate) mod stack;
#[cfg(test)]
mod tests;

/// The SM version of Tegra's GPUs, which NVIDIA's binary compatibility of desktop GPUs does not include.
const TEGRA: u32 = 87;

/// Code runs on its own SM version and on later ones of the same major version; code for desktop GPUs does
/// not run on Tegra's, nor the other way round ("Binary Compatibility", CUDA C++ Programming Guide).
fn runs_on(code: u32, device: u32) -> bool {
    let same_family = (code == TEGRA) == (device == TEGRA);
    code / 10 == device / 10 && code % 10 <= device % 10 && same_family
}

/// A loaded cubin. Cloning is cheap; the memory goes back when the last clone, the last [`Kernel`] and the
/// last submission that runs one are gone.
#[derive(Clone)]
pub struct Program {
    image: Arc<Image>,
}

impl fmt::Debug for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Program({:?})", self.image)
    }
}

impl Program {
    pub(crate) fn load(shared: &Shared, bytes: &[u8]) -> Result<Self, Error> {
        shared.core.alive()?;
        let cubin = Cubin::parse(bytes, |sm| BankLayout::of_sm(sm).map(|l| l.parameters))?;
        let device = shared.core.info().sm_number();
        if !runs_on(cubin.sm, device) {
            return Err(CubinError::WrongSm { code: cubin.sm, device }.into());
        }
        let len = cubin.len();
        let memory = shared.alloc(len, MemoryKind::Device, "program")?;
        shared.core.observer().loaded(memory.va(), &cubin.parts, &cubin.kernels, bytes);
        let image = Arc::new(Image::new(cubin, device, memory, &shared.limbo)?);
        let mut padded = image.content().to_vec();
        padded.resize(len as usize, 0);
        shared.upload(image.memory(), 0, &padded)?;
        shared.register(&image);
        Ok(Self { image })
    }

    /// The largest stack of the kernels in a cubin, in bytes per thread, as
    /// [`Kernel::local_bytes`] gives it; without loading it.
    ///
    /// # Errors
    /// [`Error::Cubin`].
    pub fn largest_stack(cubin: &[u8]) -> Result<u32, Error> {
        let cubin = Cubin::parse(cubin, |sm| BankLayout::of_sm(sm).map(|l| l.parameters))?;
        Ok(cubin.kernels.iter().map(|kernel| kernel.stack).max().unwrap_or(0))
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// [`Error::NoKernel`] lists the names there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let kernels = self.image.kernels();
        match kernels.iter().position(|k| k.name == name) {
            Some(index) => Ok(Kernel::new(&self.image, index)),
            None => Err(Error::NoKernel {
                name: name.to_owned(),
                available: kernels.iter().map(|k| k.name.clone()).collect(),
            }),
        }
    }

    /// All kernels, in the order of the symbol table.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel> {
        (0..self.image.kernels().len()).map(|index| Kernel::new(&self.image, index))
    }
}
