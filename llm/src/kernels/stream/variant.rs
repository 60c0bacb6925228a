//! For which types of weights there are kernels. A kernel for few types is faster with these: its code is
//! shorter, and what a phase executes once is fetched in time.

use crate::kernels::format::Format;

/// A kernel for some types of weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variant {
    /// The module that it is alone in.
    pub module: &'static str,
    /// The types.
    pub formats: &'static [Format],
    /// The features of the layers.
    pub style: Style,
}

/// The features of layers that a kernel takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// RMS norms, and a gate in the feed-forward block.
    Gated,
    /// Layer norms, GELU without a gate, biases of all products, learned positions.
    Plain,
}

const fn gated(module: &'static str, formats: &'static [Format]) -> Variant {
    Variant { module, formats, style: Style::Gated }
}

/// All kernels; the last one of each style takes every type.
pub const VARIANTS: [Variant; 6] = [
    gated("stream_q6_k", &[Format::Q6K]),
    gated("stream_q4_k", &[Format::Q4K, Format::Q6K]),
    gated("stream_q8_0", &[Format::Q8_0]),
    gated("stream_f16", &[Format::F16]),
    gated("stream", &Format::ALL),
    Variant { module: "stream_plain", formats: &Format::ALL, style: Style::Plain },
];

impl Variant {
    /// The first kernel for layers of `style` that takes all of `formats`.
    pub fn of(style: Style, formats: &[Format]) -> &'static Self {
        let takes = |v: &&Self| v.style == style && formats.iter().all(|f| v.formats.contains(f));
        VARIANTS.iter().find(takes).unwrap_or(&VARIANTS[VARIANTS.len() - 1])
    }

    /// The quantized types.
    pub(super) fn quantized(&self) -> impl Iterator<Item = Format> + Clone {
        self.formats.iter().copied().filter(|f| f.is_quantized())
    }

    /// The types that are not quantized.
    pub(super) fn numbers(&self) -> impl Iterator<Item = Format> + Clone {
        self.formats.iter().copied().filter(|f| !f.is_quantized())
    }

    /// Whether types have minima of units.
    pub(super) fn has_minima(&self) -> bool {
        self.formats.iter().any(|f| f.has_unit_minimum())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_gets_the_kernel_for_the_fewest_types() {
        let of = |formats: &[Format]| Variant::of(Style::Gated, formats).module;
        assert_eq!(of(&[Format::Q6K, Format::Q6K]), "stream_q6_k");
        assert_eq!(of(&[Format::Q6K, Format::Q4K]), "stream_q4_k");
        assert_eq!(of(&[Format::Q4K]), "stream_q4_k");
        assert_eq!(of(&[Format::Q8_0]), "stream_q8_0");
        assert_eq!(of(&[Format::F16]), "stream_f16");
        assert_eq!(of(&[Format::F16, Format::Q8_0]), "stream");
        assert_eq!(of(&[Format::Q5K, Format::Q6K]), "stream");
        for format in Format::ALL {
            assert_eq!(Variant::of(Style::Plain, &[format]).module, "stream_plain");
        }
    }
}
