//! The arguments of a launch.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::error::{Error, LaunchError};
use crate::objects::buffer::{Buffer, BufferAt};
use crate::objects::shared::Shared;
use crate::program::kernel::Kernel;

/// Largest alignment of an argument: parameters occupy 4 KiB at most.
const MAX_ALIGN: usize = 4096;

/// The arguments of a launch, laid out as the compiler lays out parameters: each at its natural alignment.
///
/// A launch compares each with the parameter of its number, by size and place, where the cubin lists them. One
/// argument with the bytes of all parameters, a struct that a program has packed, is taken for all of them.
///
/// Holds the buffers it names, so that they live as long as it does.
#[derive(Clone, Default)]
pub struct Args {
    bytes: Vec<u8>,
    /// Where in the bytes each argument is.
    places: Vec<Range<usize>>,
    /// Buffers, and which arguments their addresses are.
    buffers: Vec<(usize, Buffer)>,
    /// The first alignment that is none.
    misaligned: Option<usize>,
}

impl fmt::Debug for Args {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Args({} bytes, {} buffers)", self.bytes.len(), self.buffers.len())
    }
}

/// One argument of a launch, made of a [`Buffer`], of a place in one or of a number. [`Args`] are collected from
/// them.
///
/// With `ptxgen`, a struct of its `kernel_params!` lists the arguments by name:
///
/// ```
/// use hcq::{Args, Buffer, Device, Selector};
/// use ptxgen::{Params, Ptr, kernel_params};
///
/// kernel_params! {
///     /// Parameters of `scale`.
///     struct Scale { x: Ptr<f32, 16>, count: u32, factor: f32 }
/// }
///
/// let device = Device::open(Selector::Sim)?;
/// let x = device.alloc(4096)?;
/// let args: Args = Scale { x: &x, count: 1024, factor: 0.5 }.args();
/// assert_eq!(args.as_bytes(), Args::new().buffer(&x).u32(1024).f32(0.5).as_bytes());
/// // A part of a buffer.
/// let args: Args = Scale { x: x.at(1024), count: 768, factor: 0.5 }.args();
/// assert_eq!(args.as_bytes()[..8], (x.va().raw() + 1024).to_le_bytes());
/// # Ok::<(), hcq::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Argument<'a>(Value<'a>);

#[derive(Clone, Copy, Debug)]
enum Value<'a> {
    Place(BufferAt<'a>),
    Bytes4([u8; 4]),
    Bytes8([u8; 8]),
}

impl<'a> From<BufferAt<'a>> for Argument<'a> {
    fn from(place: BufferAt<'a>) -> Self {
        Self(Value::Place(place))
    }
}

impl<'a> From<&'a Buffer> for Argument<'a> {
    fn from(buffer: &'a Buffer) -> Self {
        buffer.at(0).into()
    }
}

macro_rules! numbers {
    ($($ty:ty => $bytes:ident),*) => { $(
        impl From<$ty> for Argument<'_> {
            fn from(value: $ty) -> Self {
                Self(Value::$bytes(value.to_le_bytes()))
            }
        }
    )* };
}
numbers!(u32 => Bytes4, i32 => Bytes4, f32 => Bytes4, u64 => Bytes8, i64 => Bytes8, f64 => Bytes8);

impl<'a> FromIterator<Argument<'a>> for Args {
    fn from_iter<I: IntoIterator<Item = Argument<'a>>>(arguments: I) -> Self {
        arguments.into_iter().fold(Self::new(), |args, Argument(value)| match value {
            Value::Place(BufferAt { buffer, offset }) => args.buffer_at(buffer, offset),
            Value::Bytes4(bytes) => args.bytes(&bytes, 4),
            Value::Bytes8(bytes) => args.bytes(&bytes, 8),
        })
    }
}

impl Args {
    /// No arguments.
    pub fn new() -> Self {
        Self::default()
    }

    /// Forgets all arguments and the buffers that they name; keeps the memory of the list for others.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.buffers.clear();
        self.misaligned = None;
    }

    /// The address of a buffer, and the promise to keep it.
    #[must_use]
    pub fn buffer(self, buffer: &Buffer) -> Self {
        self.buffer_at(buffer, 0)
    }

    /// The address `byte_offset` bytes into a buffer, and the promise to keep it.
    ///
    /// An offset past the end is passed as it is: what a kernel may do with its arguments is the launch's
    /// promise.
    #[must_use]
    pub fn buffer_at(mut self, buffer: &Buffer, byte_offset: u64) -> Self {
        self.buffers.push((self.places.len(), buffer.clone()));
        self.u64(buffer.va().raw().wrapping_add(byte_offset))
    }

    /// A 32-bit unsigned integer.
    #[must_use]
    pub fn u32(self, value: u32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// A 32-bit signed integer.
    #[must_use]
    pub fn i32(self, value: i32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// A 64-bit unsigned integer.
    #[must_use]
    pub fn u64(self, value: u64) -> Self {
        self.bytes(&value.to_le_bytes(), 8)
    }

    /// A 32-bit float.
    #[must_use]
    pub fn f32(self, value: f32) -> Self {
        self.bytes(&value.to_le_bytes(), 4)
    }

    /// A value of any other type: its bytes, at a multiple of `align`, a power of two up to 4096. With
    /// another alignment every launch with these arguments is refused ([`LaunchError::Alignment`]).
    #[must_use]
    pub fn bytes(mut self, value: &[u8], align: usize) -> Self {
        if align.is_power_of_two() && align <= MAX_ALIGN {
            self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        } else {
            self.misaligned.get_or_insert(align);
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.places.push(at..self.bytes.len());
        self
    }

    /// The parameter block so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The buffers named so far.
    pub(crate) fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.buffers.iter().map(|(_, buffer)| buffer)
    }

    /// Where in the parameter block each argument is.
    pub(crate) fn places(&self) -> &[Range<usize>] {
        &self.places
    }

    /// The buffers named so far, each with the number of the argument that is its address.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = (usize, &Buffer)> {
        self.buffers.iter().map(|(index, buffer)| (*index, buffer))
    }

    /// Refuses arguments that are not those of the kernel, where its parameters are known.
    pub(crate) fn fit(&self, kernel: &Kernel) -> Result<(), Error> {
        let parameters = kernel.parameters();
        let whole = 0..kernel.param_bytes() as usize;
        if parameters.is_empty() || matches!(&self.places[..], [all] if *all == whole) {
            return Ok(());
        }
        let name = || kernel.name().to_owned();
        if parameters.len() != self.places.len() {
            let sizes = parameters.iter().map(|parameter| parameter.size_bytes).collect();
            let error = LaunchError::ArgumentCount { kernel: name(), sizes, given: self.places.len() };
            return Err(Error::Launch(error));
        }
        for (index, (place, parameter)) in self.places.iter().zip(parameters).enumerate() {
            let (expected, given) = (parameter.size_bytes as usize, place.len());
            if expected != given {
                let error = LaunchError::ArgumentWidth { kernel: name(), index, expected, given };
                return Err(Error::Launch(error));
            }
            let (expected, given) = (usize::from(parameter.offset), place.start);
            if expected != given {
                let error = LaunchError::ArgumentPlace { kernel: name(), index, expected, given };
                return Err(Error::Launch(error));
            }
        }
        Ok(())
    }

    /// Refuses arguments that no kernel of the device can take.
    pub(crate) fn check(&self, shared: &Arc<Shared>) -> Result<(), Error> {
        match self.misaligned {
            Some(align) => Err(Error::Launch(LaunchError::Alignment { align, limit: MAX_ALIGN })),
            None => Buffer::check_device(shared, self.buffers()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_take_their_natural_alignment() {
        let args = Args::new().u32(1).u64(2).f32(1.0).i32(-1).bytes(&[7; 3], 1).u32(9);
        assert_eq!(args.as_bytes().len(), 32);
        assert_eq!(args.as_bytes()[8], 2);
        assert_eq!(args.as_bytes()[16..20], 1.0f32.to_le_bytes());
        assert_eq!(args.as_bytes()[24..28], [7, 7, 7, 0]);
        assert_eq!(args.as_bytes()[28], 9);
        assert_eq!(args.places(), [0..4, 8..16, 16..20, 20..24, 24..27, 28..32]);
    }

    #[test]
    fn a_list_that_is_cleared_is_empty_and_takes_no_new_memory() {
        let mut args = Args::new().u64(1).u32(2).bytes(&[7], 3);
        let before = (args.bytes.as_ptr(), args.places.as_ptr());
        args.clear();
        assert_eq!((args.as_bytes(), args.places().len(), args.misaligned), (&[][..], 0, None));
        let args = args.u64(3).u32(4);
        assert_eq!((args.bytes.as_ptr(), args.places.as_ptr()), before);
        assert_eq!(args.as_bytes(), Args::new().u64(3).u32(4).as_bytes());
    }

    #[test]
    fn arguments_are_collected_as_they_are_added() {
        let list = [1u32.into(), 2u64.into(), (-3i32).into(), (-4i64).into(), 5f32.into(), 6f64.into()];
        let args = Args::from_iter::<[Argument<'_>; 6]>(list);
        let added = Args::new().u32(1).u64(2).i32(-3).bytes(&(-4i64).to_le_bytes(), 8).f32(5.0);
        assert_eq!(args.as_bytes(), added.bytes(&6f64.to_le_bytes(), 8).as_bytes());
    }

    #[test]
    fn an_alignment_that_is_none_allocates_nothing_and_is_remembered() {
        for align in [0, 3, 8192, 1 << 40, usize::MAX] {
            let args = Args::new().u32(1).bytes(&[7], align).bytes(&[7], 5);
            assert_eq!(args.misaligned, Some(align));
            assert_eq!(args.as_bytes().len(), 6);
        }
        assert_eq!(Args::new().u32(1).bytes(&[7], 4096).as_bytes().len(), 4097);
    }
}
