//! Lowering of one decoded instruction word to one [`MicroOp`].
//!
//! This module holds what all operations share: operand fields, register checks, guards. The meaning of each
//! operation is in [`ops`](crate::gpu::sm::ops). The decoder has accepted the word before, so fields without
//! meaning do not arrive here.

use sass::{Encoding, Word};

use crate::gpu::sm::code::{Code, PoolWord};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::micro_op::{MicroOp, Op, entry};
use crate::gpu::sm::slots::{NO_PREDICATE, NOT, UNIFORM_PREDICATES, ZERO};
use crate::gpu::sm::target::Target;

/// Why an instruction cannot be lowered: the warp error code that it raises when it is executed.
pub(crate) type Refusal = u32;

/// A source operand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Src {
    pub slot: u16,
    pub neg: bool,
    pub abs: bool,
    /// The field of a half-precision operand that selects lanes.
    pub swizzle: u8,
    pub immediate: bool,
}

/// Origin of a source role's value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Reg32,
    Reg64,
    Imm,
    Const,
    Uniform,
}

/// The instruction being lowered.
pub(crate) struct Lower<'a> {
    pub w: Word,
    pub va: u64,
    pub target: Target,
    pub op: MicroOp,
    pub branch: Option<u64>,
    pub ends: bool,
    /// The operation belongs to the uniform datapath.
    pub uniform: bool,
    pub code: &'a mut Code,
}

impl Lower<'_> {
    /// Takes `O` as the operation.
    pub fn run<O: Op>(&mut self) {
        self.op.run = entry::<O>(self.target.isa);
    }

    /// Sets words of `op.k` from number `at` on.
    pub fn set_k(&mut self, at: usize, values: &[u32]) {
        self.op.k[at..at + values.len()].copy_from_slice(values);
    }

    /// An unsigned field.
    pub fn bits(&self, lo: u32, width: u32) -> u32 {
        self.w.bits(lo, width) as u32
    }

    /// One bit.
    pub fn bit(&self, n: u32) -> bool {
        self.w.bit(n)
    }

    /// A bit as 0 or 1.
    pub fn flag(&self, n: u32) -> u32 {
        u32::from(self.w.bit(n))
    }

    /// All ones if the bit is set.
    pub fn mask(&self, n: u32) -> u32 {
        0u32.wrapping_sub(self.flag(n))
    }

    /// The slot of a register group of `width` registers that is read.
    pub fn reg(&self, n: u32, width: u32) -> Result<u16, Refusal> {
        if n == 255 {
            return Ok(ZERO);
        }
        if !n.is_multiple_of(width) {
            return Err(esr::MISALIGNED_REG);
        }
        if n + width > self.target.registers {
            return Err(esr::OOR_REG);
        }
        Ok(n as u16)
    }

    /// The slot of a register group that is written.
    pub fn reg_out(&self, n: u32, width: u32) -> Result<u16, Refusal> {
        if n == 255 { Ok(self.code.layout.trash()) } else { self.reg(n, width) }
    }

    /// The slot of a uniform register group that is read.
    pub fn ureg(&mut self, n: u32, width: u32) -> Result<u16, Refusal> {
        if n == 63 {
            return Ok(ZERO);
        }
        if !n.is_multiple_of(width) {
            return Err(esr::MISALIGNED_REG);
        }
        // Whatever the width: some operations read or write pairs that they name by their first register.
        let named = &mut self.code.layout.uniforms;
        *named = (*named).max((n as u16 + 4).min(64));
        Ok(self.code.layout.uniform() + n as u16)
    }

    /// Sets the destination, [16,24).
    pub fn dst(&mut self, width: u32) -> Result<(), Refusal> {
        self.op.d = if self.uniform { self.udst(width)? } else { self.reg_out(self.bits(16, 8), width)? };
        Ok(())
    }

    /// The uniform destination, [16,22).
    pub fn udst(&mut self, width: u32) -> Result<u16, Refusal> {
        let n = self.bits(16, 6);
        if n == 63 { Ok(self.code.layout.trash()) } else { self.ureg(n, width) }
    }

    /// Sets source A, [24,32), and gives its modifiers.
    pub fn a(&mut self, width: u32) -> Result<Src, Refusal> {
        let slot = if self.uniform {
            self.ureg(self.bits(24, 6), width)?
        } else {
            self.reg(self.bits(24, 8), width)?
        };
        self.op.a = slot;
        let swizzle = self.bits(74, 2) as u8;
        Ok(Src { slot, neg: self.bit(72), abs: self.bit(73), swizzle, immediate: false })
    }

    /// Sets source B as the operand form places it.
    pub fn b(&mut self, width: u32) -> Result<Src, Refusal> {
        let place = match self.w.form() {
            1 => Place::Reg32,
            4 => Place::Imm,
            5 => Place::Const,
            6 => Place::Uniform,
            _ => Place::Reg64,
        };
        let src = self.source(place, width)?;
        self.op.b = src.slot;
        Ok(src)
    }

    /// Sets source C as the operand form places it.
    pub fn c(&mut self, width: u32) -> Result<Src, Refusal> {
        let place = match self.w.form() {
            2 => Place::Imm,
            3 => Place::Const,
            7 => Place::Uniform,
            _ => Place::Reg64,
        };
        let src = self.source(place, width)?;
        self.op.c = src.slot;
        Ok(src)
    }

    /// Sets source B from the second operand of the operations that take it from slot32 in the register form
    /// and as C otherwise.
    pub fn b_or_c(&mut self, width: u32) -> Result<Src, Refusal> {
        let src = if self.w.form() == 1 || matches!(self.w.form(), 4..=6) {
            self.b(width)?
        } else {
            self.c(width)?
        };
        self.op.b = src.slot;
        self.op.c = ZERO;
        Ok(src)
    }

    fn source(&mut self, place: Place, width: u32) -> Result<Src, Refusal> {
        let mut src = Src {
            slot: ZERO,
            neg: self.bit(63),
            abs: self.bit(62),
            swizzle: self.bits(60, 2) as u8,
            immediate: false,
        };
        src.slot = match place {
            Place::Reg32 if self.uniform => self.ureg(self.bits(32, 6), width)?,
            Place::Reg32 => self.reg(self.bits(32, 8), width)?,
            Place::Uniform => self.ureg(self.bits(32, 6), width)?,
            Place::Reg64 => {
                src.neg = self.bit(75);
                src.abs = self.bit(74);
                src.swizzle = self.bits(81, 2) as u8;
                if self.uniform {
                    self.ureg(self.bits(64, 6), width)?
                } else {
                    self.reg(self.bits(64, 8), width)?
                }
            }
            Place::Imm => {
                src = Src { slot: ZERO, neg: false, abs: false, swizzle: 0, immediate: true };
                let imm = self.bits(32, 32);
                if width == 2 { self.pool(&[PoolWord::Imm(0), PoolWord::Imm(imm)]) } else { self.imm(imm) }
            }
            Place::Const => {
                if self.bit(91) {
                    return Err(esr::ILLEGAL_INSTR_PARAM);
                }
                self.constant(self.bits(54, 5), self.w.sbits(40, 14) as i32 * 4, width)
            }
        };
        Ok(src)
    }

    /// The slots of `width` words of a constant bank.
    pub fn constant(&mut self, bank: u32, offset: i32, width: u32) -> u16 {
        let words: Vec<PoolWord> =
            (0..width as i32).map(|i| PoolWord::Const { bank: bank as u8, offset: offset + 4 * i }).collect();
        self.pool(&words)
    }

    /// The slot of an immediate.
    pub fn imm(&mut self, x: u32) -> u16 {
        self.pool(&[PoolWord::Imm(x)])
    }

    /// Neighbouring slots with these words.
    pub fn pool(&mut self, words: &[PoolWord]) -> u16 {
        self.code.pool_slot(words)
    }

    /// The predicate source in the three bits from `lo`, inverted if bit `neg` is set.
    pub fn pred(&self, lo: u32, neg: u32) -> u8 {
        let base = if self.uniform { UNIFORM_PREDICATES } else { 0 };
        (self.bits(lo, 3) as u8 + base) | if self.bit(neg) { NOT } else { 0 }
    }

    /// The predicate source Ps, [87,91).
    pub fn ps(&self) -> u8 {
        self.pred(87, 90)
    }

    /// The predicate destination in the three bits from `lo`.
    pub fn pred_out(&self, lo: u32) -> u8 {
        let base = if self.uniform { UNIFORM_PREDICATES } else { 0 };
        match self.bits(lo, 3) as u8 {
            7 => NO_PREDICATE,
            n => n + base,
        }
    }

    /// Sets both predicate destinations, [81,84) and [84,87).
    pub fn pds(&mut self) {
        self.op.pd = [self.pred_out(81), self.pred_out(84)];
    }

    /// The field [81,84) as the only predicate destination.
    pub fn pd(&mut self) {
        self.op.pd[0] = self.pred_out(81);
    }

    /// The branch target of a field of instruction words relative to the next instruction.
    pub fn relative(&self) -> u64 {
        let offset = match self.target.arch.encoding() {
            Encoding::Sm8x => self.w.sbits(34, 48) << 2,
            Encoding::Sm9x => (self.w.sbits(34, 48) << 8 | self.w.bits(16, 8) as i64) << 2,
        };
        self.va.wrapping_add(16).wrapping_add_signed(offset)
    }
}
