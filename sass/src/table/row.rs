//! Rows of the tables.

use crate::arch::{Arch, Encoding};
use crate::opcode::Opcode;
use crate::operands::{Dst, Kind, Operands, Place, Shape};
use crate::table::item::{Arg, Mod};

/// The architectures of a row.
const SM80: u8 = 1;
const SM89: u8 = 2;
const SM8X: u8 = SM80 | SM89;
const SM9X: u8 = 4;

/// One row: how to recognise an operation and where its operands are.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) opcode: Opcode,
    /// Low 9 bits of the operation code, or all 12 for [`Shape::Fixed`].
    code: u16,
    archs: u8,
    /// Forms that exist, as a bit mask.
    forms: u8,
    /// Values of bit 91 that the row accepts, as a bit mask; 0 = the form decides.
    bit91: u8,
    pub(crate) operands: Operands,
    /// Printed mnemonic.
    pub(crate) name: &'static str,
    /// Printed modifiers, in order.
    pub(crate) mods: &'static [Mod],
    /// Printed arguments, in order.
    pub(crate) args: &'static [Arg],
    /// Only the name is known: any operand bits are accepted and none are printed.
    pub(crate) name_only: bool,
    /// The number of registers of its operands is not known.
    pub(crate) widths_unknown: bool,
}

/// The forms of a three-source operation that always keeps C in slot64.
pub(crate) const NO_SLOT64_B: u8 = 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6;

/// A row of the ALU kind: `base9` plus an operand form.
pub(crate) const fn alu(opcode: Opcode, base9: u16, shape: Shape) -> Row {
    let forms = match shape {
        Shape::One | Shape::Two | Shape::TwoAndR64 => 1 << 1 | 1 << 4 | 1 << 5 | 1 << 6,
        Shape::TwoC | Shape::TwoC64 => 1 << 1 | 1 << 2 | 1 << 3 | 1 << 7,
        Shape::Three => 0xfe,
        Shape::Fixed(..) => 0,
    };
    Row {
        opcode,
        code: base9,
        archs: SM8X | SM9X,
        forms,
        bit91: 0,
        operands: Operands::new(shape),
        name: opcode.mnemonic(),
        mods: &[],
        args: &[],
        name_only: false,
        widths_unknown: false,
    }
}

/// A row of the uniform datapath.
pub(crate) const fn ualu(opcode: Opcode, base9: u16, shape: Shape) -> Row {
    let forms = match shape {
        Shape::Three => 1 << 1 | 1 << 2 | 1 << 4,
        _ => 1 << 1 | 1 << 4,
    };
    Row { forms, ..alu(opcode, base9, shape) }.uniform().to(Dst::U)
}

/// A row with one 12-bit code, without a destination.
pub(crate) const fn fixed(opcode: Opcode, op12: u16, a: Place, b: Place, c: Place) -> Row {
    Row { code: op12, bit91: 1, ..alu(opcode, 0, Shape::Fixed(a, b, c)) }.to(Dst::None)
}

impl Row {
    /// Limits the row to SM 8.x.
    pub(crate) const fn sm8x(self) -> Self {
        Self { archs: SM8X, ..self }
    }

    /// Limits the row to SM 8.0 to 8.7.
    pub(crate) const fn before_sm89(self) -> Self {
        Self { archs: SM80, ..self }
    }

    /// Limits the row to SM 8.9 and later.
    pub(crate) const fn since_sm89(self) -> Self {
        Self { archs: SM89 | SM9X, ..self }
    }

    /// Limits the row to SM 8.9.
    pub(crate) const fn sm89(self) -> Self {
        Self { archs: SM89, ..self }
    }

    /// Limits the row to SM 9.0.
    pub(crate) const fn sm9x(self) -> Self {
        Self { archs: SM9X, ..self }
    }

    /// Limits the operand forms.
    pub(crate) const fn forms(self, forms: u8) -> Self {
        Self { forms, ..self }
    }

    /// Names the destination.
    pub(crate) const fn to(self, dst: Dst) -> Self {
        Self { operands: Operands { dst, ..self.operands }, ..self }
    }

    /// Bit 91 must be set.
    pub(crate) const fn bit91(self) -> Self {
        Self { bit91: 2, ..self }
    }

    /// Bit 91 may be either.
    pub(crate) const fn bit91_free(self) -> Self {
        Self { bit91: 3, ..self }
    }

    /// Sets the type of the sources.
    pub(crate) const fn kind(self, kind: Kind) -> Self {
        Self { operands: Operands { kind, ..self.operands }, ..self }
    }

    /// Names the sources that can be negated (bit 0 is A).
    pub(crate) const fn neg(self, neg: u8) -> Self {
        Self { operands: Operands { neg, ..self.operands }, ..self }
    }

    /// Names the sources that can be made absolute (bit 0 is A).
    pub(crate) const fn abs(self, abs: u8) -> Self {
        Self { operands: Operands { abs, ..self.operands }, ..self }
    }

    /// A uniform-datapath operation with a fixed code.
    pub(crate) const fn uniform(self) -> Self {
        Self { operands: Operands { uniform: true, ..self.operands }, ..self }
    }

    /// Prints another name than the operation's.
    pub(crate) const fn name(self, name: &'static str) -> Self {
        Self { name, ..self }
    }

    /// Names the printed modifiers.
    pub(crate) const fn mods(self, mods: &'static [Mod]) -> Self {
        Self { mods, ..self }
    }

    /// Names the printed arguments.
    pub(crate) const fn args(self, args: &'static [Arg]) -> Self {
        Self { args, ..self }
    }

    /// Negation is a bitwise not.
    pub(crate) const fn inverts(self) -> Self {
        Self { operands: Operands { inverts: true, ..self.operands }, ..self }
    }

    /// Negation is a bitwise not in the `.X` form.
    pub(crate) const fn x_inverts(self) -> Self {
        Self { operands: Operands { x_inverts: true, ..self.operands }, ..self }
    }

    /// Immediates are bf16 when `bit` is set.
    pub(crate) const fn bf16(self, bit: u8) -> Self {
        Self { operands: Operands { bf16_bit: Some(bit), ..self.operands }, ..self }
    }

    /// Immediates are bf16 when `bit` is set, on SM 9.0.
    pub(crate) const fn bf16_sm9x(self, bit: u8) -> Self {
        Self { operands: Operands { bf16_bit: Some(bit), bf16_new: true, ..self.operands }, ..self }
    }

    /// `bit` crosses the halves of B.
    pub(crate) const fn crossed(self, bit: u8) -> Self {
        Self { operands: Operands { crossed_bit: Some(bit), ..self.operands }, ..self }
    }

    /// The constant of this form prints with a blank between bank and offset.
    pub(crate) const fn spaced(self, form: u8) -> Self {
        Self { operands: Operands { spaced: 1 << form, ..self.operands }, ..self }
    }

    /// Only the name is known.
    pub(crate) const fn name_only(self) -> Self {
        Self { name_only: true, ..self }
    }

    /// The number of registers of its operands is not known.
    pub(crate) const fn widths_unknown(self) -> Self {
        Self { widths_unknown: true, ..self }
    }

    pub(crate) const fn knows(&self, arch: Arch) -> bool {
        let bit = match (arch, arch.encoding()) {
            (Arch::Sm89, _) => SM89,
            (_, Encoding::Sm8x) => SM80,
            (_, Encoding::Sm9x) => SM9X,
        };
        self.archs & bit != 0
    }

    /// The 12-bit codes of the row, each with the values of bit 91 it takes.
    pub(crate) fn codes(&self) -> impl Iterator<Item = (u16, bool)> {
        let single = matches!(self.operands.shape, Shape::Fixed(..));
        let forms = (1..8).filter(move |form| !single && self.forms >> form & 1 != 0);
        let codes = forms.map(|form| (self.code | form << 9, form)).chain(single.then_some((self.code, 0)));
        codes.flat_map(move |(code, form)| {
            [false, true]
                .into_iter()
                .filter(move |&bit91| self.takes_bit91(form, bit91))
                .map(move |bit91| (code, bit91))
        })
    }

    fn takes_bit91(&self, form: u16, bit91: bool) -> bool {
        match (self.bit91, self.operands.uniform, form) {
            (0, true, _) | (0, false, 6 | 7) => bit91,
            (0, false, 3 | 5) => true,
            (0, false, _) => !bit91,
            (mask, ..) => mask >> u8::from(bit91) & 1 != 0,
        }
    }
}
