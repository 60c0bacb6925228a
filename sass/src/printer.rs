//! Writes text out of the bits of a word and records which of them it read: numbers, registers, predicates
//! and sources.

use std::fmt::{self, Write};

use crate::arch::{Arch, Encoding};
use crate::number::{bf16_text, f16_text, f32_text, f64_text};
use crate::operand::{Operand, Source};
use crate::operands::{Kind, Operands, Place, Role, Shape};
use crate::registers::{Register, RegisterSet};
use crate::word::Word;

/// Marks a field value that has no meaning.
pub(crate) const NO: &str = "?";

/// A field whose value has no meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) lo: u32,
    pub(crate) width: u32,
}

/// Writes the text of one word and records which of its bits it read.
#[derive(Debug)]
pub(crate) struct Printer<'a> {
    pub(crate) operands: &'static Operands,
    pub(crate) arch: Arch,
    pub(crate) word: Word,
    pub(crate) pc: u64,
    used: u128,
    /// Predicates and uniform registers that the word reads besides its sources.
    pub(crate) read: RegisterSet,
    /// Predicates that it writes.
    pub(crate) written: RegisterSet,
    out: Option<&'a mut String>,
    /// Arguments written so far.
    arguments: u32,
}

impl<'a> Printer<'a> {
    pub(crate) fn new(
        operands: &'static Operands,
        arch: Arch,
        word: Word,
        pc: u64,
        out: Option<&'a mut String>,
    ) -> Self {
        // Operation code, guard, bit 91 (which chose the row) and the scheduling field.
        let used = 0xffff | 1 << 91 | ((1 << 21) - 1) << 105;
        Self {
            operands,
            arch,
            word,
            pc,
            used,
            read: RegisterSet::EMPTY,
            written: RegisterSet::EMPTY,
            out,
            arguments: 0,
        }
    }

    /// Bits that differ from 0 although nothing reads them.
    pub(crate) fn unread(&self) -> u128 {
        self.word.0 & !self.used
    }

    pub(crate) fn bits(&mut self, lo: u8, width: u8) -> u64 {
        self.used |= ((1 << width) - 1) << lo;
        self.word.bits(u32::from(lo), u32::from(width))
    }

    pub(crate) fn sbits(&mut self, lo: u8, width: u8) -> i64 {
        self.used |= ((1 << width) - 1) << lo;
        self.word.sbits(u32::from(lo), u32::from(width))
    }

    pub(crate) fn bit(&mut self, n: u8) -> bool {
        self.bits(n, 1) != 0
    }

    /// Whether text is needed: numbers need not be made otherwise.
    pub(crate) fn wants_text(&self) -> bool {
        self.out.is_some()
    }

    pub(crate) fn put(&mut self, text: &str) {
        if let Some(out) = &mut self.out {
            out.push_str(text);
        }
    }

    pub(crate) fn put_fmt(&mut self, text: fmt::Arguments<'_>) {
        if let Some(out) = &mut self.out {
            // Writing to a String cannot fail.
            let _ = out.write_fmt(text);
        }
    }

    /// Begins an argument.
    pub(crate) fn next(&mut self) {
        self.put(if self.arguments == 0 { " " } else { ", " });
        self.arguments += 1;
    }

    /// Puts the name of the value of the field at `lo`.
    pub(crate) fn pick(&mut self, lo: u8, width: u8, names: &[&'static str]) -> Result<(), Refused> {
        let value = self.bits(lo, width);
        self.name(names, value, lo, width)
    }

    /// Puts the name of a field's value.
    pub(crate) fn name(
        &mut self,
        names: &[&'static str],
        value: u64,
        lo: u8,
        width: u8,
    ) -> Result<(), Refused> {
        match usize::try_from(value).ok().and_then(|value| names.get(value)) {
            Some(&text) if text != NO => {
                self.put(text);
                Ok(())
            }
            _ => refused(lo, width),
        }
    }

    pub(crate) fn reg(&mut self, lo: u8) {
        match self.bits(lo, 8) {
            255 => self.put("RZ"),
            n => self.put_fmt(format_args!("R{n}")),
        }
    }

    /// A uniform register that is read, the first of `count`.
    pub(crate) fn ureg_read(&mut self, lo: u8, count: u8) {
        self.read_uregs(self.word.bits(lo.into(), 6) as u8, count);
        self.ureg(lo);
    }

    /// Notes uniform registers that are read.
    pub(crate) fn read_uregs(&mut self, first: u8, count: u8) {
        self.read.insert_uniform_group(first, count);
    }

    pub(crate) fn ureg(&mut self, lo: u8) {
        match self.bits(lo, 6) {
            63 => self.put("URZ"),
            n => self.put_fmt(format_args!("UR{n}")),
        }
    }

    /// A predicate that is read.
    pub(crate) fn predicate_read(&mut self, index: u8, uniform: bool) {
        self.read.insert(if uniform { Register::Up(index) } else { Register::P(index) });
        self.predicate(index, uniform);
    }

    /// A predicate that is written.
    pub(crate) fn predicate_written(&mut self, index: u8, uniform: bool) {
        self.written.insert(if uniform { Register::Up(index) } else { Register::P(index) });
        self.predicate(index, uniform);
    }

    fn predicate(&mut self, index: u8, uniform: bool) {
        self.put(if uniform { "UP" } else { "P" });
        if index == 7 { self.put("T") } else { self.put_fmt(format_args!("{index}")) }
    }

    pub(crate) fn predicate_source(&mut self, lo: u8, uniform: bool) {
        if self.bit(lo + 3) {
            self.put("!");
        }
        let index = self.bits(lo, 3) as u8;
        self.predicate_read(index, uniform);
    }

    /// A predicate source stored as its complement, not printed when it is PT.
    pub(crate) fn stored_inverted(&mut self, lo: u8, uniform: bool) {
        let value = self.bits(lo, 4) as u8;
        if value != 0 {
            self.next();
            if value & 8 != 0 {
                self.put("!");
            }
            self.predicate_read(value & 7 ^ 7, uniform);
        }
    }

    /// A source as an argument.
    pub(crate) fn source(&mut self, role: Role) -> Result<(), Refused> {
        self.next();
        let place = self.operands.places(self.word)[role as usize];
        match self.operands.kind {
            Kind::Half | Kind::HalfMma => self.half_source(role, place),
            kind => {
                let spaced = self.operands.spaced >> self.word.form() & 1 != 0;
                self.plain_source(role, place, kind, spaced);
                Ok(())
            }
        }
    }

    /// A source that is not a pair; `spaced` puts a blank between constant bank and offset.
    pub(crate) fn plain_source(&mut self, role: Role, place: Place, kind: Kind, spaced: bool) {
        let Some(Source { operand, neg, abs }) = self.read(role, place) else { return };
        if neg {
            let inverts = self.operands.inverts || self.operands.x_inverts && self.bit(74);
            self.put(if inverts { "~" } else { "-" });
        }
        self.put(if abs { "|" } else { "" });
        match operand {
            Operand::Imm(value) => self.immediate(kind, value),
            operand => self.operand(operand, if spaced { " " } else { "" }),
        }
        self.put(if abs { "|" } else { "" });
        self.reuse(role, place);
    }

    /// Reads a place and its modifiers.
    fn read(&mut self, role: Role, place: Place) -> Option<Source> {
        let operand = place.operand(self.word)?;
        self.used |= place.mask(self.word);
        let (neg, abs) = self.operands.modifiers(role, place);
        let mut take = |bit: Option<u32>| bit.is_some_and(|bit| self.bit(bit as u8));
        Some(Source { operand, neg: take(neg), abs: take(abs) })
    }

    /// A register, uniform register or constant; `gap` is printed between bank and offset.
    pub(crate) fn operand(&mut self, operand: Operand, gap: &str) {
        match operand {
            Operand::Reg(255) => self.put("RZ"),
            Operand::Reg(n) => self.put_fmt(format_args!("R{n}")),
            Operand::UReg(63) => self.put("URZ"),
            Operand::UReg(n) => self.put_fmt(format_args!("UR{n}")),
            Operand::Imm(value) => self.put_fmt(format_args!("{value:#x}")),
            Operand::Const { bank, offset } => {
                self.put_fmt(format_args!("c[{bank:#x}]{gap}["));
                self.signed_hex(i64::from(offset));
                self.put("]");
            }
            Operand::BindlessConst { ureg, offset } => {
                self.put("cx[");
                self.operand(Operand::UReg(ureg), "");
                self.put_fmt(format_args!("]{gap}[{:#x}]", offset & 0xffff));
            }
        }
    }

    /// An immediate source.
    pub(crate) fn immediate(&mut self, kind: Kind, value: u32) {
        if !self.wants_text() {
            return;
        }
        match kind {
            Kind::Bits => self.put_fmt(format_args!("{value:#x}")),
            Kind::Int => self.signed_hex(i64::from(value as i32)),
            Kind::F32 => self.put(&f32_text(value)),
            Kind::F64 => self.put(&f64_text(value)),
            Kind::Half | Kind::HalfMma => {
                let exists = self.arch.encoding() == Encoding::Sm9x || !self.operands.bf16_new;
                let bf16 = exists && self.operands.bf16_bit.is_some_and(|bit| self.bit(bit));
                let text = if bf16 { bf16_text } else { f16_text };
                let (high, low) = (text((value >> 16) as u16), text(value as u16));
                self.put_fmt(format_args!("{high}, {low}"));
            }
        }
    }

    pub(crate) fn signed_hex(&mut self, value: i64) {
        self.put_fmt(format_args!("{}{:#x}", if value < 0 { "-" } else { "" }, value.unsigned_abs()));
    }

    fn reuse(&mut self, role: Role, place: Place) {
        if matches!(place, Place::R24 | Place::R32 | Place::R64) {
            // The second source of an adder or compare sits in the slot of C.
            let second_is_c = matches!(self.operands.shape, Shape::TwoC | Shape::TwoC64);
            let bit = match role {
                Role::A => 122,
                Role::B if !second_is_c => 123,
                Role::B | Role::C => 124,
            };
            if self.bit(bit) {
                self.put(".reuse");
            }
        }
    }

    /// A pair of halves with its lane select.
    fn half_source(&mut self, role: Role, place: Place) -> Result<(), Refused> {
        let Some(Source { operand, neg, abs }) = self.read(role, place) else { return Ok(()) };
        if let Operand::Imm(value) = operand {
            self.immediate(self.operands.kind, value);
            return Ok(());
        }
        self.put(if neg { "-" } else { "" });
        self.put(if abs { "|" } else { "" });
        let constant = matches!(operand, Operand::Const { .. } | Operand::BindlessConst { .. });
        self.operand(operand, if self.operands.kind == Kind::Half { " " } else { "" });
        self.put(if abs && !constant { "|" } else { "" });
        self.reuse(role, place);
        if self.operands.kind == Kind::Half {
            let select = match place {
                Place::R24 => 74,
                Place::R64 => 81,
                _ => 60,
            };
            let crossed =
                select == 60 && role == Role::B && self.operands.crossed_bit.is_some_and(|bit| self.bit(bit));
            let value = if crossed { 4 } else { self.bits(select, 2) as usize };
            if value == 1 && self.arch.encoding() == Encoding::Sm9x {
                return refused(select, 2);
            }
            self.put(["", ".F32", ".H0_H0", ".H1_H1", ".H0_NH1"][value]);
        }
        self.put(if abs && constant { "|" } else { "" });
        Ok(())
    }

    /// The address `pc + 16 + offset` of a branch.
    pub(crate) fn target(&mut self) {
        let target = self.pc.wrapping_add(16).wrapping_add_signed(self.branch_offset());
        self.signed_hex(target as i64);
    }

    /// A branch offset in bytes.
    pub(crate) fn branch_offset(&mut self) -> i64 {
        self.used |= offset_mask(self.arch);
        offset(self.arch, self.word)
    }
}

fn offset_mask(arch: Arch) -> u128 {
    let low = match arch.encoding() {
        Encoding::Sm8x => 0,
        Encoding::Sm9x => 0xff << 16,
    };
    low | ((1 << 48) - 1) << 34
}

/// The branch offset of a word, in bytes: stored in units of 4 at bits 34 to 81; SM 9.0 keeps 8 more low bits
/// at 16 to 23.
pub(crate) fn offset(arch: Arch, word: Word) -> i64 {
    match arch.encoding() {
        Encoding::Sm8x => word.sbits(34, 48) * 4,
        Encoding::Sm9x => (word.sbits(34, 48) << 8 | word.bits(16, 8) as i64) * 4,
    }
}

/// The refusal of a field.
pub(crate) fn refused(lo: u8, width: u8) -> Result<(), Refused> {
    Err(Refused { lo: u32::from(lo), width: u32::from(width) })
}
