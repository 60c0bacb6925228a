//! Programs: cubins loaded into GPU memory, and the kernels in them.

use std::fmt;
use std::sync::Arc;

use crate::backend::MemoryKind;
use crate::constant_bank::BankLayout;
use crate::cubin::error::CubinError;
use crate::cubin::loader::Cubin;
use crate::error::{Error, ProgramError};
use crate::fault::core_file;
use crate::objects::shared::Shared;
use crate::program::image::Image;
use crate::program::images::{Images, runs_on};
use crate::program::kernel::Kernel;

#[cfg(test)]
mod tests;

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
    pub(crate) fn load(shared: &Shared, images: Images<'_>) -> Result<Self, Error> {
        shared.core.alive()?;
        let device = shared.core.info().sm_number();
        let bytes = match images.all() {
            [one] => one,
            _ => images.for_sm(device)?,
        };
        let cubin = Cubin::parse(bytes, |sm| BankLayout::of_sm(sm).map(|l| l.parameters))?;
        if !runs_on(cubin.sm, device) {
            return Err(CubinError::WrongSm { code: cubin.sm, device }.into());
        }
        let len = cubin.len();
        let memory = shared.alloc(len, MemoryKind::Device, "program")?;
        shared.core.observer().loaded(memory.va(), &cubin.parts, &cubin.kernels, bytes);
        let file = core_file::is_asked_for().then(|| bytes.into());
        let image = Arc::new(Image::new(cubin, file, device, memory, &shared.limbo)?);
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
    /// [`ProgramError::Cubin`].
    pub fn largest_stack(cubin: &[u8]) -> Result<u32, Error> {
        let cubin = Cubin::parse(cubin, |sm| BankLayout::of_sm(sm).map(|l| l.parameters))?;
        Ok(cubin.kernels.iter().map(|kernel| kernel.stack).max().unwrap_or(0))
    }

    /// The kernel of that name.
    ///
    /// # Errors
    /// [`ProgramError::NoKernel`] lists the names there are.
    pub fn kernel(&self, name: &str) -> Result<Kernel, Error> {
        let kernels = self.image.kernels();
        match kernels.iter().position(|k| k.name == name) {
            Some(index) => Ok(Kernel::new(&self.image, index)),
            None => Err(Error::Program(ProgramError::NoKernel {
                name: name.to_owned(),
                available: kernels.iter().map(|k| k.name.clone()).collect(),
            })),
        }
    }

    /// All kernels, in the order of the symbol table.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel> {
        (0..self.image.kernels().len()).map(|index| Kernel::new(&self.image, index))
    }
}
