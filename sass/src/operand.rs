//! Operands: the places that an instruction reads, and the modifiers of the value read.

/// Origin of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A register of the thread; 255 is RZ and reads 0.
    Reg(u8),
    /// A register of the warp (uniform register); 63 is URZ and reads 0.
    UReg(u8),
    /// 32 raw bits. fp64 operations take them as the upper half of the value, half-precision ones as two
    /// halves.
    Imm(u32),
    /// A constant bank.
    Const {
        /// Bank number, 0 to 31.
        bank: u8,
        /// Byte offset in the bank.
        offset: i32,
    },
    /// A constant buffer whose descriptor a uniform register pair holds.
    BindlessConst {
        /// First register of the pair.
        ureg: u8,
        /// Byte offset in the buffer.
        offset: i32,
    },
}

/// A source with the modifiers its slot carries. `abs` applies before `neg`.
///
/// The operation decides the meaning of `neg`: a sign for floats, two's complement for integers, a bitwise
/// not for `FLO`, `POPC` and the `.X` forms of `IADD3`, `IMAD` and `LEA`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Source {
    /// Origin of the value.
    pub operand: Operand,
    /// The value is negated or inverted.
    pub neg: bool,
    /// The absolute value is taken.
    pub abs: bool,
}

impl Source {
    /// A source without modifiers.
    pub const fn plain(operand: Operand) -> Self {
        Self { operand, neg: false, abs: false }
    }
}

/// The predicate that decides which threads execute an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Guard {
    /// Predicate register 0 to 6, or 7 for the one that is always true.
    pub index: u8,
    /// The predicate is inverted.
    pub neg: bool,
    /// The predicate is one of the warp's (UP0 to UP6).
    pub uniform: bool,
}

impl Guard {
    /// Whether the instruction executes whatever the predicates hold.
    pub const fn is_always(self) -> bool {
        self.index == 7 && !self.neg
    }
}
