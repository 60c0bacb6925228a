//! Content of memory that nothing wrote, when the model checks for it.

/// The value of every word that nothing wrote. It is a NaN as f32, as f64, as a pair of f16 and of bf16, and
/// no address, so that results show it. Under [`Checks::INIT`](crate::Checks::INIT) a
/// [`Memory`](crate::sm::Memory) of your own should hold it wherever nothing was written.
pub const POISON: u32 = 0xfff5_fdf7;
