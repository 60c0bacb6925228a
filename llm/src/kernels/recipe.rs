//! A kernel by what it is made of: enough to write it again, and to know whether it is among the committed ones.

use ptxgen::{Kernel, Module, Target};

use super::format::Format;
use super::gemm::{self, Output, TILES, Tile};
use super::matvec::{self, Epilogue};
use super::step::{self, Variant};

/// What a kernel is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipe {
    /// A whole decode step.
    Step(Variant, step::Shape),
    /// Matrix times vector.
    Matvec(Format, Epilogue, matvec::Shape),
    /// Matrix times many vectors.
    Gemm(Tile, Output),
}

impl Recipe {
    /// Name of the kernel.
    pub fn name(&self) -> String {
        match self {
            Recipe::Step(variant, shape) => variant.kernel_name(*shape),
            Recipe::Matvec(format, epilogue, shape) => shape.kernel_name(*format, *epilogue),
            Recipe::Gemm(tile, output) => tile.kernel_name(*output),
        }
    }

    /// Whether the kernel is committed.
    pub fn is_committed(&self) -> bool {
        match self {
            Recipe::Step(_, shape) => *shape == step::Shape::default(),
            Recipe::Matvec(_, _, shape) => *shape == matvec::Shape::default(),
            Recipe::Gemm(tile, _) => TILES.contains(tile),
        }
    }

    /// Whether a kernel can be made of it.
    pub fn is_valid(&self) -> bool {
        match self {
            Recipe::Step(_, shape) => shape.is_valid(),
            Recipe::Matvec(_, epilogue, shape) => shape.is_valid(*epilogue),
            Recipe::Gemm(tile, _) => tile.is_valid(),
        }
    }

    /// The text of a module with this kernel alone.
    ///
    /// # Panics
    /// If it is not valid.
    pub fn ptx(&self, target: Target) -> String {
        let mut module = Module::new(target);
        module.add(self.kernel());
        module.text()
    }

    fn kernel(&self) -> Kernel {
        assert!(self.is_valid(), "{self:?} makes no kernel");
        match self {
            Recipe::Step(variant, shape) => step::kernel(variant, *shape),
            Recipe::Matvec(format, epilogue, shape) => matvec::kernel(*format, *epilogue, *shape),
            Recipe::Gemm(tile, output) => gemm::kernel(*tile, *output),
        }
    }
}
