//! The pieces of which a row's text is made: modifiers of the mnemonic and arguments, each with the bits
//! it reads.

use crate::printer::{Printer, Refused};

/// A modifier.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Mod {
    /// Text that is always there.
    Always(&'static str),
    /// Printed when the bit is set.
    On(u8, &'static str),
    /// Printed when the bit is clear.
    Off(u8, &'static str),
    /// The field (lowest bit, width) chooses; values past the end are refused like
    /// [`NO`](crate::printer::NO).
    Pick(u8, u8, &'static [&'static str]),
    /// As `Pick`, over several fields put together, the first one lowest.
    Gather(&'static [(u8, u8)], &'static [&'static str]),
    /// Applies when the bit is set.
    If(u8, &'static [Mod]),
    /// Applies when the bit is clear.
    Unless(u8, &'static [Mod]),
    /// Applies on SM 8.x.
    On8x(&'static [Mod]),
    /// Applies on SM 9.0.
    On9x(&'static [Mod]),
    /// Anything else.
    By(fn(&mut Printer<'_>) -> Result<(), Refused>),
}

/// An argument.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Arg {
    /// The destination register.
    D,
    /// Source A with its modifiers.
    A,
    /// Source B.
    B,
    /// Source C.
    C,
    /// R in the 8 bits at this bit, without modifiers.
    R(u8),
    /// UR in the 6 bits at this bit.
    U(u8),
    /// A predicate register (the warp's in uniform rows).
    Pd(u8),
    /// The same, not printed when it is PT.
    PdOpt(u8),
    /// A predicate and the bit above it, which inverts.
    Ps(u8),
    /// The same, not printed when it is PT.
    PsOpt(u8),
    /// A predicate stored inverted, 0 = PT and not printed.
    PsStoredInverted(u8),
    /// The same with a uniform predicate.
    UpStoredInverted(u8),
    /// An unsigned field in hexadecimal.
    Hex(u8, u8),
    /// The same, not printed when it is 0.
    HexOpt(u8, u8),
    /// The name of the value of a field (lowest bit, width).
    Named(u8, u8, &'static [&'static str]),
    /// Fixed text.
    Text(&'static str),
    /// An argument followed by modifiers.
    With(&'static Arg, &'static [Mod]),
    /// Applies when the bit is set.
    If(u8, &'static [Arg]),
    /// Applies when the bit is clear.
    Unless(u8, &'static [Arg]),
    /// Prints nothing: the field (lowest bit, width) must hold one of these values.
    Holds(u8, u8, &'static [u64]),
    /// Anything else.
    By(fn(&mut Printer<'_>) -> Result<(), Refused>),
}
