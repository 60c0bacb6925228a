//! The step kernels that are generated: one per type.

use crate::kernels::format::Format;
use crate::kernels::step::shape::Shape;

/// A step kernel, by the formats that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The module.
    pub module: &'static str,
    /// Last part of the kernel's name.
    pub name: &'static str,
    /// The formats that matrices may have.
    pub formats: &'static [Format],
}

/// The step kernels, the more special ones first.
pub const VARIANTS: &[Variant] = &[
    Variant { module: "step_f32", name: "f32", formats: &[Format::F32] },
    Variant { module: "step_f16", name: "f16", formats: &[Format::F16] },
    Variant { module: "step_bf16", name: "bf16", formats: &[Format::Bf16] },
];

impl Variant {
    /// The kernel's name.
    pub fn kernel_name(&self, shape: Shape) -> String {
        format!("step_{}{}", self.name, shape.suffix())
    }

    /// The first that takes all of `formats`.
    pub fn for_formats(formats: &[Format]) -> Option<Self> {
        VARIANTS.iter().copied().find(|v| formats.iter().all(|f| v.formats.contains(f)))
    }
}
