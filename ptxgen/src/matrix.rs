//! Matrix tiles that the lanes of a warp hold together: loaded by `ldmatrix`, multiplied by `mma.sync` on the
//! tensor cores.
//!
//! All forms here name the whole warp: every lane must reach them.

use half::f16;

use crate::builder::Kernel;
use crate::pointer::{Pointer, Shared};
use crate::reg::Reg;
use crate::ty::F16x2;

/// The left factor of [`Kernel::multiply`], 16 rows of 16 values.
///
/// With `g` = lane / 4 and `t` = lane % 4 a lane holds the pairs of columns 2t, 2t + 1 in rows g and g + 8,
/// then those of columns 2t + 8, 2t + 9. Source: PTX ISA, "Matrix fragments for mma.m16n8k16".
#[derive(Clone, Copy, Debug)]
pub struct TileA(pub [Reg<F16x2>; 4]);

/// The right factor, 16 values of 8 columns: a lane holds of column g the pairs 2t, 2t + 1 and 2t + 8, 2t +
/// 9.
#[derive(Clone, Copy, Debug)]
pub struct TileB(pub [Reg<F16x2>; 2]);

/// The sum of products, 16 rows of 8 columns: a lane holds columns 2t, 2t + 1 of row g, then of row g + 8.
#[derive(Clone, Copy, Debug)]
pub struct Accumulator(pub [Reg<f32>; 4]);

/// The left factor of [`Kernel::multiply_bytes`], 16 rows of 32 signed bytes, four to a register.
///
/// With `g` = lane / 4 and `t` = lane % 4 a lane holds columns 4t to 4t + 3 of rows g and g + 8, then columns
/// 4t + 16 to 4t + 19 of both. Source: PTX ISA, "Matrix fragments for mma.m16n8k32".
#[derive(Clone, Copy, Debug)]
pub struct ByteA(pub [Reg<u32>; 4]);

/// The right factor, 32 signed bytes of 8 columns: a lane holds of column g the rows 4t to 4t + 3, then 4t + 16
/// to 4t + 19.
#[derive(Clone, Copy, Debug)]
pub struct ByteB(pub [Reg<u32>; 2]);

/// The sum of products of bytes, 16 rows of 8 columns, laid out as [`Accumulator`].
#[derive(Clone, Copy, Debug)]
pub struct IntAccumulator(pub [Reg<i32>; 4]);

/// Arrangement in which a lane receives the matrices that it loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transpose {
    /// Register i: row g of matrix i, columns 2t and 2t + 1.
    No,
    /// Register i: column g of matrix i, rows 2t and 2t + 1.
    Yes,
}

impl Kernel {
    /// Four new registers for [`Kernel::load_matrices`].
    pub fn matrices(&self) -> [Reg<F16x2>; 4] {
        std::array::from_fn(|_| self.reg())
    }

    /// Loads four 8 x 8 matrices from shared memory, one into each register: lane 8i + r gives the address of
    /// row r of matrix i, 16 bytes long.
    ///
    /// # Panics
    /// If the address is not proven to be a multiple of 16 bytes: a mistake in the program that writes the
    /// kernel.
    pub fn load_matrices(&self, to: [Reg<F16x2>; 4], row: Pointer<Shared, f16>, transpose: Transpose) {
        assert!(
            row.alignment() >= 16,
            "a row of a matrix lies at a multiple of {} bytes only",
            row.alignment()
        );
        let trans = match transpose {
            Transpose::No => "",
            Transpose::Yes => ".trans",
        };
        let [a, b, c, d] = to;
        let place = row.text(0);
        self.emit(format!(
            "ldmatrix.sync.aligned.m8n8.x4{trans}.shared.b16 {{{a}, {b}, {c}, {d}}}, {place};"
        ));
    }

    /// An accumulator of zeros.
    pub fn accumulator(&self) -> Accumulator {
        Accumulator(std::array::from_fn(|_| self.var(0f32)))
    }

    /// `sum = a × b + sum`, in single precision.
    pub fn multiply(&self, sum: Accumulator, a: TileA, b: TileB) {
        let ([s0, s1, s2, s3], [a0, a1, a2, a3], [b0, b1]) = (sum.0, a.0, b.0);
        let sum = format!("{{{s0}, {s1}, {s2}, {s3}}}");
        self.emit(format!(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {sum}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {sum};"
        ));
    }

    /// An integer accumulator of zeros.
    pub fn int_accumulator(&self) -> IntAccumulator {
        IntAccumulator(std::array::from_fn(|_| self.var(0i32)))
    }

    /// `sum = a × b + sum` of signed bytes; the sum wraps in 32 bits (`mma.sync.m16n8k32`).
    pub fn multiply_bytes(&self, sum: IntAccumulator, a: ByteA, b: ByteB) {
        let ([s0, s1, s2, s3], [a0, a1, a2, a3], [b0, b1]) = (sum.0, a.0, b.0);
        let sum = format!("{{{s0}, {s1}, {s2}, {s3}}}");
        self.emit(format!(
            "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {sum}, {{{a0}, {a1}, {a2}, {a3}}}, {{{b0}, {b1}}}, {sum};"
        ));
    }
}
