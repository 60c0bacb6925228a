//! Places of an operation's operands in its word, and how they read.

use crate::operand::{Operand, Source};
use crate::word::Word;

/// The source roles.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    A,
    B,
    C,
}

/// Place of a source's bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// No such source.
    None,
    /// R at bits 24 to 31.
    R24,
    /// R at bits 32 to 39.
    R32,
    /// R at bits 64 to 71.
    R64,
    /// UR at bits 24 to 29.
    U24,
    /// UR at bits 32 to 37.
    U32,
    /// UR at bits 64 to 69.
    U64,
    /// 32 bits at 32.
    Imm32,
    /// An unsigned field.
    Bits(u8, u8),
    /// Bank at bits 54 to 58, word offset at 40 to 53; bit 91 makes it bindless.
    Const,
    /// Bank at bits 54 to 58, byte offset at 38 to 53.
    ConstBytes,
}

/// Place of the destination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dst {
    /// No register is written.
    None,
    /// R at bits 16 to 23.
    R,
    /// UR at bits 16 to 21.
    U,
}

/// Rule by which the operand form (bits 9 to 11) chooses the places of the sources.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// B only: forms 1, 4, 5, 6.
    One,
    /// A and B: forms 1, 4, 5, 6.
    Two,
    /// A and a second source, in slot32 in form 1 and in the slot of C otherwise: forms 1, 2, 3, 7.
    TwoC,
    /// As [`Shape::TwoC`], but the second source of form 1 is in slot64.
    TwoC64,
    /// A, B and C: forms 1 to 7.
    Three,
    /// A and B as [`Shape::Two`]; C is always the register in slot64.
    TwoAndR64,
    /// The row holds one fixed 12-bit code.
    Fixed(Place, Place, Place),
}

/// Type of the sources, which decides how modifiers and immediates read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// 32-bit integers, immediates unsigned.
    Bits,
    /// 32-bit integers, immediates signed.
    Int,
    /// fp32.
    F32,
    /// fp64: immediates are the upper half.
    F64,
    /// Pairs of 16-bit floats with lane selects.
    Half,
    /// Pairs of 16-bit floats without lane selects.
    HalfMma,
}

/// The operands of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Operands {
    pub(crate) shape: Shape,
    pub(crate) dst: Dst,
    pub(crate) kind: Kind,
    /// Uniform datapath: registers, guard and predicates are the warp's.
    pub(crate) uniform: bool,
    /// Sources that can be negated: bit 0 is A, 1 is B, 2 is C.
    pub(crate) neg: u8,
    /// Sources whose absolute value can be taken.
    pub(crate) abs: u8,
    /// A negation prints as `~`.
    pub(crate) inverts: bool,
    /// A negation prints as `~` when bit 74 (`.X`) is set.
    pub(crate) x_inverts: bool,
    /// Bit that makes half-precision immediates bf16.
    pub(crate) bf16_bit: Option<u8>,
    /// The bf16 bit exists on SM 9.0 only.
    pub(crate) bf16_new: bool,
    /// Bit that crosses the halves of B (`.H0_NH1`).
    pub(crate) crossed_bit: Option<u8>,
    /// Forms whose constant prints with a blank between bank and offset, as a bit mask.
    pub(crate) spaced: u8,
}

impl Operands {
    /// 32-bit operands without modifiers, the destination in R.
    pub(crate) const fn new(shape: Shape) -> Self {
        Self {
            shape,
            dst: Dst::R,
            kind: Kind::Bits,
            uniform: false,
            neg: 0,
            abs: 0,
            inverts: false,
            x_inverts: false,
            bf16_bit: None,
            bf16_new: false,
            crossed_bit: None,
            spaced: 0,
        }
    }

    /// The bits that negate a source and take its absolute value, where it can carry them.
    pub(crate) fn modifiers(&self, role: Role, place: Place) -> (Option<u32>, Option<u32>) {
        let Some((neg, abs)) = place.modifier_bits(self.kind) else { return (None, None) };
        let has = |mask: u8| mask >> role as u8 & 1 != 0;
        (has(self.neg).then_some(neg), has(self.abs).then_some(abs))
    }

    /// The places of A, B and C in a word.
    pub(crate) const fn places(&self, word: Word) -> [Place; 3] {
        use Place::{Const, Imm32, None, R24, R32, R64, U24, U32, U64};
        let [a, r32, r64] = if self.uniform { [U24, U32, U64] } else { [R24, R32, R64] };
        // Place at bit 32, by form.
        let slot32 = match word.form() {
            2 | 4 => Imm32,
            3 | 5 => Const,
            6 | 7 => U32,
            _ => r32,
        };
        match self.shape {
            Shape::One => [None, slot32, None],
            Shape::Two | Shape::TwoC => [a, slot32, None],
            Shape::TwoC64 => [a, if word.form() == 1 { r64 } else { slot32 }, None],
            Shape::TwoAndR64 => [a, slot32, r64],
            Shape::Three => match word.form() {
                2 | 3 | 7 => [a, r64, slot32],
                _ => [a, slot32, r64],
            },
            Shape::Fixed(a, b, c) => [a, b, c],
        }
    }

    /// The sources A, B and C of a word, with the modifiers of their slots.
    pub(crate) fn sources(&self, word: Word) -> [Option<Source>; 3] {
        let places = self.places(word);
        [Role::A, Role::B, Role::C].map(|role| {
            let place = places[role as usize];
            let operand = place.operand(word)?;
            let (neg, abs) = self.modifiers(role, place);
            let holds = |bit: Option<u32>| bit.is_some_and(|bit| word.bit(bit));
            Some(Source { operand, neg: holds(neg), abs: holds(abs) })
        })
    }
}

impl Place {
    /// Returns the operand at this place, without modifiers.
    pub(crate) fn operand(self, word: Word) -> Option<Operand> {
        let reg = |lo| Operand::Reg(word.bits(lo, 8) as u8);
        let ureg = |lo| Operand::UReg(word.bits(lo, 6) as u8);
        Some(match self {
            Self::None => return None,
            Self::R24 => reg(24),
            Self::R32 => reg(32),
            Self::R64 => reg(64),
            Self::U24 => ureg(24),
            Self::U32 => ureg(32),
            Self::U64 => ureg(64),
            Self::Imm32 => Operand::Imm(word.bits(32, 32) as u32),
            Self::Bits(lo, width) => Operand::Imm(word.bits(u32::from(lo), u32::from(width)) as u32),
            Self::Const => {
                let offset = word.sbits(40, 14) as i32 * 4;
                if word.bit(91) {
                    Operand::BindlessConst { ureg: word.bits(32, 6) as u8, offset }
                } else {
                    Operand::Const { bank: word.bits(54, 5) as u8, offset }
                }
            }
            Self::ConstBytes => {
                Operand::Const { bank: word.bits(54, 5) as u8, offset: word.sbits(38, 16) as i32 }
            }
        })
    }

    /// The bits that negate this place and take its absolute value.
    pub(crate) const fn modifier_bits(self, kind: Kind) -> Option<(u32, u32)> {
        let half = matches!(kind, Kind::Half | Kind::HalfMma);
        match self {
            Self::R24 | Self::U24 => Some((72, 73)),
            Self::R32 | Self::U32 | Self::Const => Some((63, 62)),
            Self::R64 | Self::U64 if half => Some((84, 83)),
            Self::R64 | Self::U64 => Some((75, 74)),
            Self::None | Self::Imm32 | Self::Bits(..) | Self::ConstBytes => None,
        }
    }

    /// The bits the place reads.
    pub(crate) const fn mask(self, word: Word) -> u128 {
        match self {
            Self::None => 0,
            Self::R24 => 0xff << 24,
            Self::R32 => 0xff << 32,
            Self::R64 => 0xff << 64,
            Self::U24 => 0x3f << 24,
            Self::U32 => 0x3f << 32,
            Self::U64 => 0x3f << 64,
            Self::Imm32 => 0xffff_ffff << 32,
            Self::Bits(lo, width) => ((1 << width) - 1) << lo,
            Self::Const if word.bit(91) => 0x3f << 32 | 0x3fff << 40,
            Self::Const => 0x7_ffff << 40,
            Self::ConstBytes => 0x1f_ffff << 38,
        }
    }
}
