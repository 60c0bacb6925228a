//! The parameters of a kernel: enough to generate it again, and to decide whether it is committed.

use ptxgen::{Kernel, Module, Target};

use crate::kernels::format::Format;
use crate::kernels::links::linked;
use crate::kernels::operations::matvec::{self, Epilogue};
use crate::kernels::prompt::gemm::{self, Output, TILES};
use crate::kernels::prompt::tile::ProductTile;
use crate::kernels::prompt::warpgroups;

/// The parameters of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// Matrix times vector.
    Matvec(Format, Epilogue, matvec::Shape),
    /// Matrix times many vectors.
    Gemm(ProductTile, Output),
}

impl Recipe {
    /// Name of the kernel.
    pub fn name(&self) -> String {
        match self {
            Recipe::Matvec(format, epilogue, shape) => shape.kernel_name(*format, *epilogue),
            Recipe::Gemm(tile, output) => tile.kernel_name(*output),
        }
    }

    /// Whether the kernel is committed.
    pub fn is_committed(&self) -> bool {
        match self {
            Recipe::Matvec(_, _, shape) => *shape == matvec::Shape::default(),
            Recipe::Gemm(ProductTile::Warps(tile), _) => TILES.contains(tile),
            Recipe::Gemm(ProductTile::Warpgroups(tile), _) => warpgroups::TILES.contains(tile),
        }
    }

    /// Whether a kernel can be generated from it.
    pub fn is_valid(&self) -> bool {
        match self {
            Recipe::Matvec(_, epilogue, shape) => shape.is_valid(*epilogue),
            Recipe::Gemm(tile, _) => tile.is_valid(),
        }
    }

    /// The PTX of a module with this kernel alone.
    ///
    /// # Panics
    /// If the recipe is not valid.
    pub fn ptx(&self, target: Target) -> String {
        let mut module = Module::new(target);
        module.add(linked(self.kernel(), target));
        module.text()
    }

    fn kernel(&self) -> Kernel {
        assert!(self.is_valid(), "{self:?} makes no kernel");
        match self {
            Recipe::Matvec(format, epilogue, shape) => matvec::kernel(*format, *epilogue, *shape),
            Recipe::Gemm(ProductTile::Warps(tile), output) => gemm::kernel(*tile, *output),
            Recipe::Gemm(ProductTile::Warpgroups(tile), output) => warpgroups::kernel(*tile, *output),
        }
    }
}
