//! Printing of the addresses of memory operations.

use crate::arch::Encoding;
use crate::printer::{Printer, Refused, refused};

/// One bracketed address `[R+UR+offset]`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Address {
    /// Place of the signed byte offset.
    offset: (u8, u8),
    /// Place of a uniform register that is added.
    uniform: Option<u8>,
    /// Place of the scale of the register.
    scale: Option<u8>,
    /// Text after the register.
    suffix: &'static str,
}

impl Address {
    /// `[R+offset]` with the usual 24-bit offset.
    pub(super) const PLAIN: Self = Self { offset: (40, 24), uniform: None, scale: None, suffix: "" };

    pub(super) const fn offset(self, lo: u8, width: u8) -> Self {
        Self { offset: (lo, width), ..self }
    }

    const fn suffix(self, suffix: &'static str) -> Self {
        Self { suffix, ..self }
    }

    /// A 32-bit register, if there is one.
    pub(super) const fn narrow(self, p: &Printer<'_>) -> Self {
        if p.word.bits(24, 8) == 255 { self } else { self.suffix(".U32") }
    }

    const fn scaled(self) -> Self {
        Self { scale: Some(78), ..self }
    }

    pub(super) const fn uniform(self, lo: u8) -> Self {
        Self { uniform: Some(lo), ..self }
    }

    /// Adds the uniform register when bit 91 is set.
    const fn uniform_if_91(self, p: &Printer<'_>, lo: u8) -> Self {
        if p.word.bit(91) { self.uniform(lo) } else { self }
    }

    /// Puts the address, its register at bits 24 to 31.
    pub(super) fn put(self, p: &mut Printer<'_>) {
        p.put("[");
        let register = p.bits(24, 8);
        let scale = self.scale.map_or(0, |lo| p.bits(lo, 2));
        let scale = if register == 255 && self.uniform.is_none() { 0 } else { scale };
        let offset = p.sbits(self.offset.0, self.offset.1);
        let named = register != 255 || scale != 0 || !self.suffix.is_empty();
        let mut plus = "";
        if named || self.uniform.is_none() && offset == 0 {
            p.reg(24);
            p.put(["", ".X4", ".X8", ".X16"][scale as usize]);
            p.put(self.suffix);
            plus = "+";
        }
        if let Some(lo) = self.uniform {
            p.put(plus);
            p.ureg_read(lo, if self.suffix.is_empty() { 1 } else { 2 });
            plus = "+";
        }
        if offset != 0 {
            p.put(plus);
            p.signed_hex(offset);
        }
        p.put("]");
    }
}

/// A global address. Bit 91 attaches the uniform register pair at `ureg`: a memory descriptor when bit
/// `descriptor` is set, else a part of the address. Bit `pair_bit` makes the register 64 bits wide.
/// SM 8.x hides the descriptor unless bit 101 is set.
fn global(
    p: &mut Printer<'_>,
    ureg: u8,
    pair_bit: u8,
    descriptor: u8,
    offset: (u8, u8),
) -> Result<(), Refused> {
    p.next();
    let address = Address::PLAIN.offset(offset.0, offset.1);
    if !p.word.bit(91) {
        address.put(p);
        return Ok(());
    }
    if !p.word.bit(72) {
        return refused(72, 1);
    }
    let (pair, described, shown) = (p.bit(pair_bit), p.bit(descriptor), p.bit(101));
    if described && !pair {
        return refused(pair_bit, 1);
    }
    let suffix = if pair { ".64" } else { ".U32" };
    if shown || described && p.arch.encoding() == Encoding::Sm9x {
        p.put("desc[");
        p.ureg_read(ureg, 2);
        p.put("]");
        address.suffix(".64").put(p);
    } else if described {
        // The descriptor's register is there but not shown.
        let first = p.bits(ureg, 6) as u8;
        p.read_uregs(first, 2);
        address.suffix(suffix).put(p);
    } else {
        address.suffix(suffix).uniform(ureg).put(p);
    }
    Ok(())
}

/// A load's address.
pub(super) fn global_load(p: &mut Printer<'_>) -> Result<(), Refused> {
    global(p, 32, 90, 76, (40, 24))
}

/// The address of a generic load: 32 offset bits where no uniform register takes their place.
pub(super) fn generic_load(p: &mut Printer<'_>) -> Result<(), Refused> {
    let offset = if p.word.bit(91) { (40, 24) } else { (32, 32) };
    global(p, 32, 90, 76, offset)
}

/// A store's address.
pub(super) fn global_store(p: &mut Printer<'_>) -> Result<(), Refused> {
    global(p, 64, 90, 76, (40, 24))
}

/// The address of a generic store that takes its data from slot64.
pub(super) fn generic_store(p: &mut Printer<'_>) -> Result<(), Refused> {
    global(p, 64, 90, 76, (32, 32))
}

/// The address of an atomic operation.
pub(super) fn atomic(p: &mut Printer<'_>) -> Result<(), Refused> {
    global(p, 64, 70, 71, (40, 24))
}

/// The address of an atomic operation without result.
pub(super) fn reduction(p: &mut Printer<'_>) -> Result<(), Refused> {
    global(p, 64, 90, 71, (40, 24))
}

/// The address of an atomic operation without descriptor.
pub(super) fn plain(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    Address::PLAIN.put(p);
    Ok(())
}

/// A shared-memory load: scaled register, uniform register at 32.
pub(super) fn shared_load(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    Address::PLAIN.scaled().uniform_if_91(p, 32).put(p);
    Ok(())
}

/// A shared-memory store or atomic: scaled register, uniform register at 64.
pub(super) fn shared_store(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    Address::PLAIN.scaled().uniform_if_91(p, 64).put(p);
    Ok(())
}

/// Register and uniform register at 32.
pub(super) fn with_uniform_32(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    Address::PLAIN.uniform_if_91(p, 32).put(p);
    Ok(())
}

/// Register and uniform register at 64.
pub(super) fn with_uniform_64(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    Address::PLAIN.uniform_if_91(p, 64).put(p);
    Ok(())
}

/// Uniform register at 24 in the place of the address register.
pub(super) fn uniform(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    p.put("[");
    p.ureg(24);
    let offset = p.sbits(40, 24);
    if offset != 0 {
        p.put("+");
        p.signed_hex(offset);
    }
    p.put("]");
    Ok(())
}

/// The shared address of `LDGSTS`, without what adds nothing.
fn shared_destination(p: &mut Printer<'_>, uniform: bool) {
    p.put("[");
    let offset = p.sbits(44, 20);
    let mut plus = "";
    if p.bits(16, 8) != 255 || !uniform && offset == 0 {
        p.reg(16);
        plus = "+";
    }
    if uniform {
        p.put(plus);
        p.ureg_read(64, 1);
        plus = "+";
    }
    if offset != 0 {
        p.put(plus);
        p.signed_hex(offset);
    }
    p.put("]");
}

/// The two addresses of `LDGSTS`: shared destination with its register at 16, global source.
pub(super) fn global_to_shared(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    let uniform_destination = p.word.form() == 6;
    shared_destination(p, uniform_destination);
    p.next();
    let (described, shown) = (p.bit(76), p.bit(101));
    if !p.bit(70) {
        return refused(70, 1);
    }
    let address = Address::PLAIN.offset(32, 12).suffix(".64");
    if shown || described && p.arch.encoding() == Encoding::Sm9x {
        // The descriptor follows the register that the shared address adds.
        let descriptor = p.bits(64, 6) + u64::from(uniform_destination);
        p.read_uregs(descriptor as u8, 2);
        p.put_fmt(format_args!("desc[UR{descriptor}]"));
        address.put(p);
    } else if described || uniform_destination {
        let first = p.bits(64, 6) as u8 + u8::from(uniform_destination);
        p.read_uregs(first, if described { 2 } else { 0 });
        address.put(p);
    } else {
        address.uniform(64).put(p);
    }
    Ok(())
}

/// A constant with a register index: `c[bank][R+offset]`.
pub(super) fn indexed_constant(p: &mut Printer<'_>) -> Result<(), Refused> {
    p.next();
    let bank = p.bits(54, 5);
    p.put_fmt(format_args!("c[{bank:#x}]"));
    Address::PLAIN.offset(38, 16).put(p);
    Ok(())
}
