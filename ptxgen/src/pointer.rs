//! Pointers that carry what is proven about their alignment.
//!
//! A fact is "the address is `residue` modulo `modulus`", `modulus` a power of two. It starts at a parameter or a shared
//! array, survives constant offsets exactly, and weakens when a run-time index is added: adding `index × stride` keeps only
//! what the stride (and what is known of the index) leaves. Nothing is ever assumed beyond that, so the width of an access
//! chosen from it cannot fault.

use std::fmt;
use std::marker::PhantomData;

use crate::builder::Kernel;
use crate::reg::{Operand, Reg};
use crate::ty::{Element, Int, Ty};

/// What is proven of an address: it is `residue` modulo `modulus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    modulus: u32,
    residue: u32,
}

impl Alignment {
    /// Beyond this nothing is of use; facts are kept up to it.
    const MAX: u32 = 1 << 16;

    /// A multiple of `align`, a power of two.
    pub(crate) fn to(align: u32) -> Self {
        debug_assert!(align.is_power_of_two());
        Self { modulus: align.min(Self::MAX), residue: 0 }
    }

    /// After adding exactly `bytes`.
    pub fn plus(self, bytes: i64) -> Self {
        let m = i64::from(self.modulus);
        let residue = (i64::from(self.residue) + bytes.rem_euclid(m)).rem_euclid(m);
        // A residue is below the modulus, hence fits.
        Self { residue: residue as u32, ..self }
    }

    /// After adding an unknown multiple of `stride` bytes.
    pub fn plus_multiple_of(self, stride: u64) -> Self {
        let kept = 1u32 << stride.trailing_zeros().min(Self::MAX.trailing_zeros());
        let modulus = self.modulus.min(kept);
        Self { modulus, residue: self.residue % modulus }
    }

    /// The largest power of two that certainly divides the address.
    pub fn proven(self) -> u32 {
        if self.residue == 0 { self.modulus } else { 1 << self.residue.trailing_zeros() }
    }
}

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
    reg: Reg<u32>,
    of: u32,
}

impl Multiple {
    pub(crate) fn promised(reg: Reg<u32>, of: u32) -> Self {
        Self { reg, of }
    }

    /// The value itself.
    pub fn reg(self) -> Reg<u32> {
        self.reg
    }

    /// What divides it. Only its power of two is certain once 32-bit arithmetic may have wrapped, and only that is used.
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
    base: Reg<S::Address>,
    offset: i64,
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

impl Kernel {
    /// `value × factor` (32 bits), which is a multiple of what divides either.
    pub fn scale(&self, value: impl Into<Multiple>, factor: u32) -> Multiple {
        let value = value.into();
        let reg = self.mul(value.reg, factor);
        // Saturating keeps at least the power of two that both share in 32 bits: a saturated product is odd, so fall back.
        let of = value
            .of
            .checked_mul(factor)
            .unwrap_or_else(|| 1 << (value.of.trailing_zeros() + factor.trailing_zeros()).min(31));
        Multiple { reg, of: of.max(1) }
    }

    /// `value ÷ 2^bits`, rounded down; a multiple of what is left of the known factor.
    pub fn halve(&self, value: impl Into<Multiple>, bits: u32) -> Multiple {
        let value = value.into();
        Multiple { reg: self.shr(value.reg, bits), of: 1 << value.of.trailing_zeros().saturating_sub(bits) }
    }

    /// `a + b` (32 bits), a multiple of what divides both.
    pub fn sum(&self, a: impl Into<Multiple>, b: impl Into<Multiple>) -> Multiple {
        let (a, b) = (a.into(), b.into());
        Multiple { reg: self.add(a.reg, b.reg), of: 1 << (a.of.trailing_zeros().min(b.of.trailing_zeros())) }
    }

    /// `value + constant` (32 bits) for a constant, a multiple of what divides both.
    pub fn plus(&self, value: impl Into<Multiple>, constant: u32) -> Multiple {
        let value = value.into();
        let of = value.of.trailing_zeros().min(constant.trailing_zeros()).min(31);
        Multiple { reg: self.add(value.reg, constant), of: 1 << of }
    }

    /// `pointer + index` elements. The index is unsigned; the sum is taken in the width of the address.
    pub fn at<S: Space, E: Element>(
        &self,
        pointer: Pointer<S, E>,
        index: impl Into<Multiple>,
    ) -> Pointer<S, E> {
        self.at_stride(pointer, index, E::SIZE)
    }

    /// `pointer + index × stride` bytes.
    pub fn at_stride<S: Space, E: Element>(
        &self,
        pointer: Pointer<S, E>,
        index: impl Into<Multiple>,
        stride: u32,
    ) -> Pointer<S, E> {
        let index = index.into();
        let base = self.reg::<S::Address>();
        if S::Address::BYTES == 8 {
            self.emit(format!("mad.wide.u32 {base}, {}, {stride}, {};", index.reg, pointer.base));
        } else {
            self.emit(format!("mad.lo.u32 {base}, {}, {stride}, {};", index.reg, pointer.base));
        }
        let step = (1u64 << index.of.trailing_zeros()) * (1u64 << stride.trailing_zeros().min(31));
        Pointer { base, alignment: pointer.alignment.plus_multiple_of(step), ..pointer }
    }

    /// `pointer + row × pitch` elements where both are run-time values: the product is taken in 64 bits for global memory.
    pub fn row<S: Space, E: Element>(
        &self,
        pointer: Pointer<S, E>,
        row: impl Into<Multiple>,
        pitch: impl Into<Multiple>,
    ) -> Pointer<S, E> {
        let (row, pitch) = (row.into(), pitch.into());
        let base = self.reg::<S::Address>();
        if S::Address::BYTES == 8 {
            let elements = self.mul_wide(row.reg, pitch.reg);
            self.emit(format!("mad.lo.u64 {base}, {elements}, {}, {};", E::SIZE, pointer.base));
        } else {
            let elements = self.mul(row.reg, pitch.reg);
            self.emit(format!("mad.lo.u32 {base}, {elements}, {}, {};", E::SIZE, pointer.base));
        }
        let step = (1u64 << row.of.trailing_zeros())
            * (1u64 << pitch.of.trailing_zeros().min(24))
            * u64::from(E::SIZE);
        Pointer { base, alignment: pointer.alignment.plus_multiple_of(step), ..pointer }
    }

    /// An address in global memory that came as a number; whoever made the number promises that it is a multiple of
    /// `align` bytes.
    ///
    /// # Panics
    /// If `align` is no power of two.
    pub fn pointer<E: Element>(&self, address: Reg<u64>, align: u32) -> Pointer<Global, E> {
        assert!(align.is_power_of_two(), "alignment {align} is no power of two");
        Pointer::aligned(address, align)
    }

    /// An address in shared memory that [`Kernel::address`] gave; whoever kept the number promises that it is a multiple of
    /// `align` bytes.
    ///
    /// # Panics
    /// If `align` is no power of two.
    pub fn shared_pointer<E: Element>(&self, address: Reg<u32>, align: u32) -> Pointer<Shared, E> {
        assert!(align.is_power_of_two(), "alignment {align} is no power of two");
        Pointer::aligned(address, align)
    }

    /// `a` where `p` holds, else `b`; only what is proven of both stays proven.
    pub fn select_ptr<S: Space, E: Element>(
        &self,
        p: crate::Pred,
        a: Pointer<S, E>,
        b: Pointer<S, E>,
    ) -> Pointer<S, E> {
        let (x, y) = (self.address(a), self.address(b));
        let base = self.reg::<S::Address>();
        self.emit(format!("selp.{} {base}, {x}, {y}, {p};", S::Address::BITS));
        Pointer {
            base,
            offset: 0,
            alignment: Alignment::to(a.alignment().min(b.alignment())),
            element: PhantomData,
        }
    }

    /// The address as a number.
    pub fn address<S: Space, E: Element>(&self, pointer: Pointer<S, E>) -> Reg<S::Address> {
        if pointer.offset == 0 {
            return pointer.base;
        }
        let d = self.reg::<S::Address>();
        // The offset is written in decimal; addition wraps, so a negative one is right in either width.
        self.emit(format!(
            "add.{} {d}, {}, {};",
            S::Address::NAME.replace('u', "s"),
            pointer.base,
            pointer.offset
        ));
        d
    }

    /// Whether `pointer`'s address is below `end`'s.
    pub fn before<S: Space, E: Element>(&self, pointer: Pointer<S, E>, end: Pointer<S, E>) -> crate::Pred
    where
        S::Address: crate::ty::Ordered,
        Reg<S::Address>: Operand<S::Address>,
    {
        self.lt(self.address(pointer), self.address(end))
    }
}
