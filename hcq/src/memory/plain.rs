//! Numbers as the bytes of a buffer.

/// Numbers and arrays of numbers: every pattern of bits is a value, and no byte is padding. A buffer holds
/// them as they lie in memory, little-endian on every CPU and GPU that is supported.
///
/// The trait is this crate's own and sealed, so that no version of another crate is part of the API; zerocopy's
/// traits prove what it says. Structs that derive those traits, and half floats, are written by
/// [`Buffer::write`](crate::Buffer::write) and read by [`Buffer::read`](crate::Buffer::read) as the bytes that
/// their own crate gives.
pub trait Plain: sealed::Bits {}

pub(crate) mod sealed {
    use zerocopy::{FromBytes, Immutable, IntoBytes};

    /// The layouts that zerocopy proves.
    pub trait Bits: FromBytes + IntoBytes + Immutable + Copy {}
}

macro_rules! plain {
    ($($number:ty)*) => { $(
        impl Plain for $number {}
        impl sealed::Bits for $number {}
    )* };
}
plain!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl<T: Plain, const N: usize> Plain for [T; N] {}
impl<T: Plain, const N: usize> sealed::Bits for [T; N] {}
