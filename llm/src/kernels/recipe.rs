//! The parameters of a kernel: enough to generate it again, and to decide whether it is committed.

use ptxgen::{Kernel, Module, Target};

use crate::kernels::links::linked;
use crate::kernels::prompt::gemm::{self, Output, TILES};
use crate::kernels::prompt::tile::ProductTile;
use crate::kernels::prompt::warpgroups;

/// The parameters of a kernel that multiplies a matrix with the tokens of a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The division of its work.
    pub tile: ProductTile,
    /// The use of the sums.
    pub output: Output,
}

impl Recipe {
    /// Name of the kernel.
    pub fn name(&self) -> String {
        self.tile.kernel_name(self.output)
    }

    /// Whether the kernel is committed.
    pub fn is_committed(&self) -> bool {
        match &self.tile {
            ProductTile::Warps(tile) => TILES.contains(tile),
            ProductTile::Warpgroups(tile) => warpgroups::TILES.contains(tile),
        }
    }

    /// Whether a kernel can be generated from it.
    pub fn is_valid(&self) -> bool {
        self.tile.is_valid()
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
        match self.tile {
            ProductTile::Warps(tile) => gemm::kernel(tile, self.output),
            ProductTile::Warpgroups(tile) => warpgroups::kernel(tile, self.output),
        }
    }
}
