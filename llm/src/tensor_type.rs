//! Tensor types: their numbers in a file, their blocks, their sizes.

use std::fmt;

/// Declares the table of types once: variant, number in the file, values per block, bytes per block.
macro_rules! ggml_types {
    ($($(#[$doc:meta])* $name:ident = $id:literal, $text:literal, $values:literal, $bytes:literal;)*) => {
        /// The type of a tensor's values, as ggml numbers them.
        ///
        /// Source: `enum ggml_type` and the block structs of ggml (`ggml.h`, `ggml-common.h`).
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[non_exhaustive]
        pub enum GgmlType { $($(#[$doc])* $name,)* }

        impl GgmlType {
            /// Every type in the table, in the order of their numbers.
            pub const ALL: &'static [GgmlType] = &[$(GgmlType::$name,)*];

            /// The type a file means by `id`; `None` if the table has no such number.
            pub const fn from_id(id: u32) -> Option<Self> {
                match id { $($id => Some(Self::$name),)* _ => None }
            }

            /// The number of this type in a file.
            pub const fn id(self) -> u32 {
                match self { $(Self::$name => $id,)* }
            }

            /// The name ggml prints, for example `Q6_K`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text,)* }
            }

            /// Number of values in one block.
            pub const fn block_values(self) -> u64 {
                match self { $(Self::$name => $values,)* }
            }

            /// Number of bytes of one block.
            pub const fn block_bytes(self) -> u64 {
                match self { $(Self::$name => $bytes,)* }
            }
        }
    };
}

ggml_types! {
    /// 32-bit floating point.
    F32 = 0, "F32", 1, 4;
    /// 16-bit IEEE floating point.
    F16 = 1, "F16", 1, 2;
    /// 4 bits, one scale per 32.
    Q4_0 = 2, "Q4_0", 32, 18;
    /// 4 bits, scale and minimum per 32.
    Q4_1 = 3, "Q4_1", 32, 20;
    /// 5 bits, one scale per 32.
    Q5_0 = 6, "Q5_0", 32, 22;
    /// 5 bits, scale and minimum per 32.
    Q5_1 = 7, "Q5_1", 32, 24;
    /// 8 bits, one scale per 32.
    Q8_0 = 8, "Q8_0", 32, 34;
    /// 8 bits, scale and sum per 32 (activations).
    Q8_1 = 9, "Q8_1", 32, 36;
    /// 2 bits in super-blocks of 256.
    Q2K = 10, "Q2_K", 256, 84;
    /// 3 bits in super-blocks of 256.
    Q3K = 11, "Q3_K", 256, 110;
    /// 4 bits in super-blocks of 256, 6-bit scales and minima per 32.
    Q4K = 12, "Q4_K", 256, 144;
    /// 5 bits in super-blocks of 256, 6-bit scales and minima per 32.
    Q5K = 13, "Q5_K", 256, 176;
    /// 6 bits in super-blocks of 256, 8-bit scales per 16.
    Q6K = 14, "Q6_K", 256, 210;
    /// 8 bits in super-blocks of 256 (activations).
    Q8K = 15, "Q8_K", 256, 292;
    /// 2.06 bits by codebook.
    Iq2Xxs = 16, "IQ2_XXS", 256, 66;
    /// 2.31 bits by codebook.
    Iq2Xs = 17, "IQ2_XS", 256, 74;
    /// 3.06 bits by codebook.
    Iq3Xxs = 18, "IQ3_XXS", 256, 98;
    /// 1.56 bits by codebook.
    Iq1S = 19, "IQ1_S", 256, 50;
    /// 4 bits, not linear, per 32.
    Iq4Nl = 20, "IQ4_NL", 32, 18;
    /// 3.44 bits by codebook.
    Iq3S = 21, "IQ3_S", 256, 110;
    /// 2.56 bits by codebook.
    Iq2S = 22, "IQ2_S", 256, 82;
    /// 4.25 bits, not linear.
    Iq4Xs = 23, "IQ4_XS", 256, 136;
    /// 8-bit integers.
    I8 = 24, "I8", 1, 1;
    /// 16-bit integers.
    I16 = 25, "I16", 1, 2;
    /// 32-bit integers.
    I32 = 26, "I32", 1, 4;
    /// 64-bit integers.
    I64 = 27, "I64", 1, 8;
    /// 64-bit floating point.
    F64 = 28, "F64", 1, 8;
    /// 1.75 bits by codebook.
    Iq1M = 29, "IQ1_M", 256, 56;
    /// 16-bit brain floating point: the upper half of an `f32`.
    Bf16 = 30, "BF16", 1, 2;
    /// Ternary, 1.69 bits.
    Tq1_0 = 34, "TQ1_0", 256, 54;
    /// Ternary, 2.06 bits.
    Tq2_0 = 35, "TQ2_0", 256, 66;
    /// 4-bit floating point, one exponent per 32.
    Mxfp4 = 39, "MXFP4", 32, 17;
    /// 4-bit floating point, one 8-bit scale per 16.
    Nvfp4 = 40, "NVFP4", 64, 36;
    /// One bit.
    Q1_0 = 41, "Q1_0", 128, 18;
}

impl GgmlType {
    /// The type called `name`, in any case.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|t| t.name().eq_ignore_ascii_case(name))
    }

    /// Bytes that `values` values take; `None` if they are not whole blocks or do not fit 64 bits.
    pub const fn bytes_for(self, values: u64) -> Option<u64> {
        if values.is_multiple_of(self.block_values()) {
            (values / self.block_values()).checked_mul(self.block_bytes())
        } else {
            None
        }
    }
}

impl fmt::Display for GgmlType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
