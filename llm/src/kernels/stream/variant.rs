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

/// The types with a codebook, and those that files mix them with.
const WITH_CODEBOOK: [Format; 11] = [
    Format::Q8_0,
    Format::Q4K,
    Format::Q5K,
    Format::Q6K,
    Format::Q2K,
    Format::Iq2Xxs,
    Format::Iq2Xs,
    Format::Iq2S,
    Format::Iq3Xxs,
    Format::Iq3S,
    Format::Iq1M,
];

/// All kernels.
pub const VARIANTS: [Variant; 7] = [
    gated("stream_q6_k", &[Format::Q6K]),
    gated("stream_q4_k", &[Format::Q4K, Format::Q6K]),
    gated("stream_q8_0", &[Format::Q8_0]),
    gated("stream_f16", &[Format::F16]),
    gated("stream", &Format::WITHOUT_CODEBOOK),
    gated("stream_codebook", &WITH_CODEBOOK),
    Variant { module: "stream_plain", formats: &Format::WITHOUT_CODEBOOK, style: Style::Plain },
];

impl Variant {
    /// The first kernel for layers of `style` that takes all of `formats`; `None` if some have a codebook, and
    /// layers are plain or others are numbers or Q4_0.
    pub fn of(style: Style, formats: &[Format]) -> Option<&'static Self> {
        VARIANTS.iter().find(|v| v.style == style && formats.iter().all(|f| v.formats.contains(f)))
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
        let of_style = |style: Style, formats: &[Format]| Variant::of(style, formats).map(|v| v.module);
        let of = |formats: &[Format]| of_style(Style::Gated, formats).unwrap_or_default();
        assert_eq!(of(&[Format::Q6K, Format::Q6K]), "stream_q6_k");
        assert_eq!(of(&[Format::Q6K, Format::Q4K]), "stream_q4_k");
        assert_eq!(of(&[Format::Q4K]), "stream_q4_k");
        assert_eq!(of(&[Format::Q8_0]), "stream_q8_0");
        assert_eq!(of(&[Format::F16]), "stream_f16");
        assert_eq!(of(&[Format::F16, Format::Q8_0]), "stream");
        assert_eq!(of(&[Format::Q5K, Format::Q6K]), "stream");
        for format in Format::WITHOUT_CODEBOOK {
            assert_eq!(of_style(Style::Plain, &[format]), Some("stream_plain"));
        }
        for format in Format::WITH_CODEBOOK {
            assert_eq!(of(&[Format::Q4K, format, Format::Q2K]), "stream_codebook");
            assert_eq!(of_style(Style::Gated, &[Format::F16, format]), None);
            assert_eq!(of_style(Style::Plain, &[format]), None);
        }
    }
}
