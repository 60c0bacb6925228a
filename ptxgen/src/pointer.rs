//! Pointers that carry a proven alignment.

use std::fmt;
use std::marker::PhantomData;

use crate::alignment::Alignment;
use crate::reg::Reg;
use crate::ty::{Element, Int};

/// A state space that pointers point into.
pub trait Space: Copy + 'static {
    /// As instructions spell it.
    const NAME: &'static str;
    /// Type of addresses.
    type Address: Int;
}

/// Global memory, 64-bit addresses.
#[derive(Clone, Copy, Debug)]
pub struct Global;
/// Shared memory of the block, 32-bit addresses from the start of its window.
#[derive(Clone, Copy, Debug)]
pub struct Shared;

impl Space for Global {
    const NAME: &'static str = "global";
    type Address = u64;
}
impl Space for Shared {
    const NAME: &'static str = "shared";
    type Address = u32;
}

/// An unsigned value known to be a multiple of a constant.
#[derive(Clone, Copy, Debug)]
pub struct Multiple {
    pub(crate) reg: Reg<u32>,
    pub(crate) of: u32,
}

impl Multiple {
    pub(crate) fn promised(reg: Reg<u32>, of: u32) -> Self {
        Self { reg, of }
    }

    /// The value itself.
    pub fn reg(self) -> Reg<u32> {
        self.reg
    }

    /// Returns its divisor. Only its power of two is certain once 32-bit arithmetic may have wrapped, and
    /// only that is used.
    pub fn of(self) -> u32 {
        self.of
    }
}

impl From<Reg<u32>> for Multiple {
    fn from(reg: Reg<u32>) -> Self {
        Self { reg, of: 1 }
    }
}

/// An address in `S` of elements `E`, as a register plus a constant, with its alignment facts.
pub struct Pointer<S: Space, E> {
    pub(crate) base: Reg<S::Address>,
    pub(crate) offset: i64,
    alignment: Alignment,
    element: PhantomData<E>,
}

impl<S: Space, E> Clone for Pointer<S, E> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<S: Space, E> Copy for Pointer<S, E> {}

impl<S: Space, E: Element> fmt::Debug for Pointer<S, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {} aligned to {}", S::NAME, E::MEMORY, self.text(0), self.alignment())
    }
}

impl<S: Space, E: Element> Pointer<S, E> {
    pub(crate) fn aligned(base: Reg<S::Address>, align: u32) -> Self {
        Self { base, offset: 0, alignment: Alignment::to(align), element: PhantomData }
    }

    /// The address in `base`, which is this one and an unknown multiple of `stride` bytes.
    pub(crate) fn moved(self, base: Reg<S::Address>, stride: u64) -> Self {
        Self { base, alignment: self.alignment.plus_multiple_of(stride), ..self }
    }

    /// The same address seen as elements of another type.
    pub fn cast<F: Element>(self) -> Pointer<S, F> {
        Pointer { base: self.base, offset: self.offset, alignment: self.alignment, element: PhantomData }
    }

    /// `elements` further; costs no instruction.
    pub fn plus(self, elements: i64) -> Self {
        self.plus_bytes(elements * i64::from(E::SIZE))
    }

    /// `bytes` further; costs no instruction.
    pub fn plus_bytes(self, bytes: i64) -> Self {
        Self { offset: self.offset + bytes, alignment: self.alignment.plus(bytes), ..self }
    }

    /// The largest power of two, in bytes, that certainly divides the address.
    pub fn alignment(&self) -> u32 {
        self.alignment.proven()
    }

    pub(crate) fn facts(&self) -> Alignment {
        self.alignment
    }

    /// `[register+offset]`, `bytes` further.
    pub(crate) fn text(&self, bytes: i64) -> String {
        match self.offset + bytes {
            0 => format!("[{}]", self.base),
            n => format!("[{}+{n}]", self.base),
        }
    }
}
