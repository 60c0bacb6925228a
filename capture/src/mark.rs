//! Marks: how a program that contains a software GPU reports to a tracer the calls that never reach the
//! kernel.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Option of `prctl(2)` that no kernel implements: the call fails without effect, and a tracer stops at it.
/// The second argument is the address of a [`TraceMark`].
pub const TRACE_MARK: u32 = 0x4e56_5452;

/// A call on a GPU node that is served inside the program: reported before it is served, and again after it
/// ([`END`](Self::END)).
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct TraceMark {
    /// [`IOCTL`](Self::IOCTL), [`OPEN`](Self::OPEN), ...
    pub kind: u32,
    /// Descriptor.
    pub fd: i32,
    /// Request of an `ioctl`; protection of an `mmap`.
    pub request: u32,
    /// Flags of `open` and `mmap`.
    pub flags: u32,
    /// Argument of an `ioctl`; length of an `mmap`.
    pub argument: u64,
    /// Address of the name of the open file, or of the path.
    pub name: u64,
    /// Its length.
    pub name_len: u64,
    /// Result of the call, errnos as negative numbers; offset of an `mmap` before it.
    pub result: i64,
}

impl TraceMark {
    /// The call that began was served.
    pub const END: u32 = 0;
    /// An `ioctl` begins.
    pub const IOCTL: u32 = 1;
    /// An `open` begins.
    pub const OPEN: u32 = 2;
    /// A `close` begins.
    pub const CLOSE: u32 = 3;
    /// An `mmap` begins.
    pub const MMAP: u32 = 4;
    /// Entries were put into a ring: `argument` is the address of a record ([`Record`](crate::Record)), `result` its
    /// length. It is reported once.
    pub const SUBMISSION: u32 = 5;
}
