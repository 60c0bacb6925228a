//! Arithmetic with addresses and with the facts proven of them.

use crate::builder::Kernel;
use crate::pointer::{Global, Multiple, Pointer, Shared, Space};
use crate::reg::{Operand, Pred, Reg};
use crate::ty::{Element, Int, Ordered, Ty};

impl Kernel {
    /// `value × factor` (32 bits), which is a multiple of what divides either.
    pub fn scale(&self, value: impl Into<Multiple>, factor: u32) -> Multiple {
        let value = value.into();
        let reg = self.mul(value.reg, factor);
        // Saturating keeps at least the power of two that both share in 32 bits: a saturated product is odd,
        // so fall back.
        let of = value
            .of
            .checked_mul(factor)
            .unwrap_or_else(|| 1 << (value.of.trailing_zeros() + factor.trailing_zeros()).min(31));
        Multiple { reg, of: of.max(1) }
    }

    /// `value ÷ 2^bits`, rounded down; a multiple of the known factor ÷ 2^bits.
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
        pointer.moved(base, step)
    }

    /// `pointer + row × pitch` elements where both are run-time values: the product is taken in 64 bits for
    /// global memory.
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
        pointer.moved(base, step)
    }

    /// An address in global memory from a number; the caller promises that it is a multiple of `align` bytes.
    ///
    /// # Panics
    /// If `align` is no power of two.
    pub fn pointer<E: Element>(&self, address: Reg<u64>, align: u32) -> Pointer<Global, E> {
        assert!(align.is_power_of_two(), "alignment {align} is no power of two");
        Pointer::aligned(address, align)
    }

    /// An address in shared memory from a number that [`Kernel::address`] returned; the caller promises that
    /// it is a multiple of `align` bytes.
    ///
    /// # Panics
    /// If `align` is no power of two.
    pub fn shared_pointer<E: Element>(&self, address: Reg<u32>, align: u32) -> Pointer<Shared, E> {
        assert!(align.is_power_of_two(), "alignment {align} is no power of two");
        Pointer::aligned(address, align)
    }

    /// `a` where `p` holds, else `b`; only facts proven of both stay proven.
    pub fn select_ptr<S: Space, E: Element>(
        &self,
        p: Pred,
        a: Pointer<S, E>,
        b: Pointer<S, E>,
    ) -> Pointer<S, E> {
        let (x, y) = (self.address(a), self.address(b));
        let base = self.reg::<S::Address>();
        self.emit(format!("selp.{} {base}, {x}, {y}, {p};", S::Address::BITS));
        Pointer::aligned(base, a.alignment().min(b.alignment()))
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
    pub fn before<S: Space, E: Element>(&self, pointer: Pointer<S, E>, end: Pointer<S, E>) -> Pred
    where
        S::Address: Ordered,
        Reg<S::Address>: Operand<S::Address>,
    {
        self.lt(self.address(pointer), self.address(end))
    }
}
