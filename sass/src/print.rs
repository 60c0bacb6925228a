//! Prints a word by its row of the tables, and thereby checks it: the decoder discards the text, and a part
//! that cannot be printed, or is not read while printing, makes the word malformed.

use crate::arch::Encoding;
use crate::operands::{Dst, Role};
use crate::printer::{Printer, Refused, refused};
use crate::table::item::{Arg, Mod};
use crate::table::row::Row;

impl Printer<'_> {
    /// Guard, mnemonic, modifiers, arguments.
    pub(crate) fn line(&mut self, row: &Row) -> Result<(), Refused> {
        let (index, neg) = (self.word.bits(12, 3) as u8, self.word.bit(15));
        if index != 7 || neg {
            self.put(if neg { "@!" } else { "@" });
            self.predicate_read(index, self.operands.uniform);
            self.put(" ");
        }
        self.put(row.name);
        self.mods(row.mods)?;
        self.args(row.args)
    }

    fn mods(&mut self, mods: &'static [Mod]) -> Result<(), Refused> {
        mods.iter().try_for_each(|item| self.modifier(*item))
    }

    fn modifier(&mut self, item: Mod) -> Result<(), Refused> {
        match item {
            Mod::Always(text) => self.put(text),
            Mod::On(bit, text) => {
                if self.bit(bit) {
                    self.put(text);
                }
            }
            Mod::Off(bit, text) => {
                if !self.bit(bit) {
                    self.put(text);
                }
            }
            Mod::Pick(lo, width, names) => self.pick(lo, width, names)?,
            Mod::Gather(fields, names) => {
                let (mut value, mut at) = (0, 0);
                for &(lo, width) in fields {
                    value |= self.bits(lo, width) << at;
                    at += width;
                }
                let (lo, width) = fields[0];
                self.name(names, value, lo, width)?;
            }
            Mod::If(bit, mods) => {
                if self.bit(bit) {
                    self.mods(mods)?;
                }
            }
            Mod::Unless(bit, mods) => {
                if !self.bit(bit) {
                    self.mods(mods)?;
                }
            }
            Mod::On8x(mods) if self.arch.encoding() == Encoding::Sm8x => self.mods(mods)?,
            Mod::On9x(mods) if self.arch.encoding() == Encoding::Sm9x => self.mods(mods)?,
            Mod::On8x(_) | Mod::On9x(_) => {}
            Mod::By(print) => print(self)?,
        }
        Ok(())
    }

    fn args(&mut self, args: &'static [Arg]) -> Result<(), Refused> {
        args.iter().try_for_each(|item| self.argument(*item))
    }

    /// The name of a field's value, as an argument.
    fn named(&mut self, lo: u8, width: u8, names: &[&'static str]) -> Result<(), Refused> {
        self.next();
        self.pick(lo, width, names)
    }

    fn argument(&mut self, item: Arg) -> Result<(), Refused> {
        let uniform = self.operands.uniform;
        match item {
            Arg::D => {
                self.next();
                match self.operands.dst {
                    Dst::U => self.ureg(16),
                    Dst::R | Dst::None => self.reg(16),
                }
            }
            Arg::A => self.source(Role::A)?,
            Arg::B => self.source(Role::B)?,
            Arg::C => self.source(Role::C)?,
            Arg::R(lo) => {
                self.next();
                self.reg(lo);
            }
            Arg::U(lo) => {
                self.next();
                // Its width is the operation's business: `effects` knows it as a source.
                self.ureg(lo);
            }
            Arg::Pd(lo) => {
                let index = self.bits(lo, 3) as u8;
                self.next();
                self.predicate_written(index, uniform);
            }
            Arg::PdOpt(lo) => {
                let index = self.bits(lo, 3) as u8;
                if index != 7 {
                    self.next();
                    self.predicate_written(index, uniform);
                }
            }
            Arg::Ps(lo) => {
                self.next();
                self.predicate_source(lo, uniform);
            }
            Arg::PsOpt(lo) => {
                if self.bits(lo, 4) != 7 {
                    self.next();
                    self.predicate_source(lo, uniform);
                }
            }
            Arg::PsStoredInverted(lo) => self.stored_inverted(lo, false),
            Arg::UpStoredInverted(lo) => self.stored_inverted(lo, true),
            Arg::Hex(lo, width) => {
                let value = self.bits(lo, width);
                self.next();
                self.put_fmt(format_args!("{value:#x}"));
            }
            Arg::HexOpt(lo, width) => {
                if self.bits(lo, width) != 0 {
                    self.argument(Arg::Hex(lo, width))?;
                }
            }
            Arg::Named(lo, width, names) => self.named(lo, width, names)?,
            Arg::Text(text) => {
                self.next();
                self.put(text);
            }
            Arg::With(arg, mods) => {
                self.argument(*arg)?;
                self.mods(mods)?;
            }
            Arg::If(bit, args) => {
                let args = if self.bit(bit) { args } else { &[] };
                self.args(args)?;
            }
            Arg::Unless(bit, args) => {
                let args = if !self.bit(bit) { args } else { &[] };
                self.args(args)?;
            }
            Arg::Holds(lo, width, expected) => {
                if !expected.contains(&self.bits(lo, width)) {
                    return refused(lo, width);
                }
            }
            Arg::By(print) => print(self)?,
        }
        Ok(())
    }
}
