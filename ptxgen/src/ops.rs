//! Arithmetic, logic, comparison and conversion.

use half::{bf16, f16};

use crate::builder::Kernel;
use crate::reg::{Operand, Pred, Reg};
use crate::ty::{F16x2, Float, Int, Kind, Number, Ordered, Ty, Word};

/// Rounding of a float to an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Round {
    /// To the nearest, ties to even.
    Nearest,
    /// Towards zero.
    Zero,
    /// Towards negative infinity.
    Down,
    /// Towards positive infinity.
    Up,
}

/// The modes of [`Kernel::permute`]: which bytes of the pair `b:a`, byte 0 the lowest of `a`, the result takes
/// for a selector `s` of 0 to 3. Source: PTX ISA, "prmt".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permute {
    /// Four from byte `s` upwards (`.f4e`).
    Forward,
    /// Byte `s`, then those before it, byte 7 before byte 0 (`.b4e`).
    Backward,
    /// Byte `s` four times (`.rc8`).
    Byte,
    /// Bytes 0 to 3, those below `s` replaced by byte `s` (`.ecl`).
    ClampLeft,
    /// Bytes 0 to 3, those above `s` replaced by byte `s` (`.ecr`).
    ClampRight,
    /// Half `s` mod 2 of `a` twice (`.rc16`).
    Half,
}

impl Permute {
    const fn name(self) -> &'static str {
        match self {
            Permute::Forward => "f4e",
            Permute::Backward => "b4e",
            Permute::Byte => "rc8",
            Permute::ClampLeft => "ecl",
            Permute::ClampRight => "ecr",
            Permute::Half => "rc16",
        }
    }
}

impl Kernel {
    fn op1<T: Ty, D: Ty>(&self, op: &str, a: impl Operand<T>) -> Reg<D> {
        let d = self.reg();
        self.emit(format!("{op} {d}, {};", a.text()));
        d
    }

    fn op2<T: Ty, D: Ty>(&self, op: &str, a: impl Operand<T>, b: impl Operand<T>) -> Reg<D> {
        let d = self.reg();
        self.emit(format!("{op} {d}, {}, {};", a.text(), b.text()));
        d
    }

    /// `a + b`; floats round to nearest, integers wrap.
    pub fn add<T: Number>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("add{}.{}", T::ADD, T::NAME), a, b)
    }

    /// `a − b`.
    pub fn sub<T: Number>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("sub{}.{}", T::ADD, T::NAME), a, b)
    }

    /// `a × b`, the low half for integers.
    pub fn mul<T: Number>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("mul{}.{}", T::MUL, T::NAME), a, b)
    }

    /// `a × b + c`: fused for floats, low half for integers.
    pub fn mad<T: Number>(&self, a: impl Operand<T>, b: impl Operand<T>, c: impl Operand<T>) -> Reg<T> {
        let d = self.reg();
        self.mad_to(d, a, b, c);
        d
    }

    /// `d = a × b + c`, as [`Kernel::mad`], into an existing register.
    pub fn mad_to<T: Number>(&self, d: Reg<T>, a: impl Operand<T>, b: impl Operand<T>, c: impl Operand<T>) {
        self.emit(format!("{}{}.{} {d}, {}, {}, {};", T::MAD, T::MUL, T::NAME, a.text(), b.text(), c.text()));
    }

    /// `d = d + a`.
    pub fn add_to<T: Number>(&self, d: Reg<T>, a: impl Operand<T>) {
        self.emit(format!("add{}.{} {d}, {d}, {};", T::ADD, T::NAME, a.text()));
    }

    /// The high half of `a × b`.
    pub fn mul_hi<T: Int>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("mul.hi.{}", T::NAME), a, b)
    }

    /// The whole 64-bit product of two words.
    pub fn mul_wide<T: Word>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T::Wide> {
        self.op2::<T, T::Wide>(&format!("mul.wide.{}", T::NAME), a, b)
    }

    /// `a × b + c` with a 64-bit product and sum.
    pub fn mad_wide<T: Word>(
        &self,
        a: impl Operand<T>,
        b: impl Operand<T>,
        c: impl Operand<T::Wide>,
    ) -> Reg<T::Wide> {
        let d = self.reg();
        self.emit(format!("mad.wide.{} {d}, {}, {}, {};", T::NAME, a.text(), b.text(), c.text()));
        d
    }

    /// `a ÷ b`: rounded to nearest for floats, towards zero for integers (undefined for `b` = 0).
    pub fn div<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("div{}.{}", T::ADD, T::NAME), a, b)
    }

    /// The remainder of an integer division.
    pub fn rem<T: Int>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("rem.{}", T::NAME), a, b)
    }

    /// The smaller; of floats the one that is a number.
    pub fn min<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("min.{}", T::NAME), a, b)
    }

    /// The larger; of floats the one that is a number.
    pub fn max<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("max.{}", T::NAME), a, b)
    }

    /// `−a` of a float.
    pub fn neg<T: Float>(&self, a: impl Operand<T>) -> Reg<T> {
        self.op1::<T, T>(&format!("neg.{}", T::NAME), a)
    }

    /// `|a|` of a float.
    pub fn abs<T: Float>(&self, a: impl Operand<T>) -> Reg<T> {
        self.op1::<T, T>(&format!("abs.{}", T::NAME), a)
    }

    /// `1/a` within 1 ulp.
    pub fn rcp(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("rcp.approx.f32", a)
    }

    /// `1/√a` within 2 ulp.
    pub fn rsqrt(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("rsqrt.approx.f32", a)
    }

    /// `√a`, correctly rounded.
    pub fn sqrt(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("sqrt.rn.f32", a)
    }

    /// `√a` within 2 ulp.
    pub fn sqrt_approx(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("sqrt.approx.f32", a)
    }

    /// `tanh a`, relative error below 2^-11.
    pub fn tanh(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("tanh.approx.f32", a)
    }

    /// `1/a`, of which about 20 bits are good; the lower word is 0.
    pub fn rcp_approx_f64(&self, a: impl Operand<f64>) -> Reg<f64> {
        self.op1::<f64, f64>("rcp.approx.ftz.f64", a)
    }

    /// `1/√a`, of which about 20 bits are good; the lower word is 0.
    pub fn rsqrt_approx_f64(&self, a: impl Operand<f64>) -> Reg<f64> {
        self.op1::<f64, f64>("rsqrt.approx.ftz.f64", a)
    }

    /// `2^a` within 2 ulp.
    pub fn exp2(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("ex2.approx.f32", a)
    }

    /// `2^a` within 2 ulp in one instruction: 0 where that is less than the least normal number.
    pub fn exp2_flushed(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("ex2.approx.ftz.f32", a)
    }

    /// `log2 a`.
    pub fn log2(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("lg2.approx.f32", a)
    }

    /// `sin a` of radians, absolute error below 2^-20.5 within ±π; larger arguments lose more.
    pub fn sin(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("sin.approx.f32", a)
    }

    /// `cos a` of radians, as [`Kernel::sin`].
    pub fn cos(&self, a: impl Operand<f32>) -> Reg<f32> {
        self.op1::<f32, f32>("cos.approx.f32", a)
    }

    // Bits.

    /// Bitwise and.
    pub fn and<T: Int>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("and.{}", T::BITS), a, b)
    }

    /// Bitwise or.
    pub fn or<T: Int>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("or.{}", T::BITS), a, b)
    }

    /// Bitwise exclusive or.
    pub fn xor<T: Int>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        self.op2::<T, T>(&format!("xor.{}", T::BITS), a, b)
    }

    /// Bitwise complement.
    pub fn not<T: Int>(&self, a: impl Operand<T>) -> Reg<T> {
        self.op1::<T, T>(&format!("not.{}", T::BITS), a)
    }

    /// Shifts left; 0 past the width.
    pub fn shl<T: Int>(&self, a: impl Operand<T>, bits: impl Operand<u32>) -> Reg<T> {
        let d = self.reg();
        self.emit(format!("shl.{} {d}, {}, {};", T::BITS, a.text(), bits.text()));
        d
    }

    /// Shifts right, copying the sign of signed values.
    pub fn shr<T: Int>(&self, a: impl Operand<T>, bits: impl Operand<u32>) -> Reg<T> {
        let d = self.reg();
        self.emit(format!("shr.{} {d}, {}, {};", T::NAME, a.text(), bits.text()));
        d
    }

    /// The upper 32 bits of `hi:lo` shifted left by `bits` modulo 32 (`shf.l.wrap`); a rotation if both are
    /// the same.
    pub fn funnel_left(&self, lo: Reg<u32>, hi: Reg<u32>, bits: impl Operand<u32>) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("shf.l.wrap.b32 {d}, {lo}, {hi}, {};", bits.text()));
        d
    }

    /// The lower 32 bits of `hi:lo` shifted right by `bits` modulo 32 (`shf.r.wrap`).
    pub fn funnel_right(&self, lo: Reg<u32>, hi: Reg<u32>, bits: impl Operand<u32>) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("shf.r.wrap.b32 {d}, {lo}, {hi}, {};", bits.text()));
        d
    }

    /// Any bitwise function of three words: bit `a·4 + b·2 + c` of `table` is the result.
    pub fn lop3(
        &self,
        a: impl Operand<u32>,
        b: impl Operand<u32>,
        c: impl Operand<u32>,
        table: u8,
    ) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("lop3.b32 {d}, {}, {}, {}, {table:#04x};", a.text(), b.text(), c.text()));
        d
    }

    /// `(a & mask) | set` in one instruction.
    pub fn mask_or(&self, a: impl Operand<u32>, mask: impl Operand<u32>, set: impl Operand<u32>) -> Reg<u32> {
        self.lop3(a, mask, set, 0xea)
    }

    /// Four bytes picked from `b:a` by the nibbles of `selector`.
    pub fn prmt(&self, a: impl Operand<u32>, b: impl Operand<u32>, selector: impl Operand<u32>) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("prmt.b32 {d}, {}, {}, {};", a.text(), b.text(), selector.text()));
        d
    }

    /// Four bytes of `b:a` in the order that `mode` gives to the low two bits of `selector` (`prmt` with a
    /// mode).
    pub fn permute(
        &self,
        mode: Permute,
        a: impl Operand<u32>,
        b: impl Operand<u32>,
        selector: impl Operand<u32>,
    ) -> Reg<u32> {
        let d = self.reg();
        let mode = mode.name();
        self.emit(format!("prmt.b32.{mode} {d}, {}, {}, {};", a.text(), b.text(), selector.text()));
        d
    }

    /// Byte `index` of `a`, 0 to 3, sign-extended; one `prmt`.
    ///
    /// # Panics
    /// If `index` is above 3: a mistake in the program that writes the kernel.
    pub fn signed_byte(&self, a: Reg<u32>, index: u32) -> Reg<i32> {
        assert!(index < 4, "byte {index} of a word");
        // A nibble above 7 repeats the sign of its byte.
        self.bits(self.prmt(a, 0u32, 0x8880 + 0x1111 * index))
    }

    /// `len` bits of `a` from bit `from`, extended by the sign of signed types.
    pub fn bfe<T: Word>(
        &self,
        a: impl Operand<T>,
        from: impl Operand<u32>,
        len: impl Operand<u32>,
    ) -> Reg<T> {
        let d = self.reg();
        self.emit(format!("bfe.{} {d}, {}, {}, {};", T::NAME, a.text(), from.text(), len.text()));
        d
    }

    /// `into` with its `len` bits from bit `from` replaced by the low bits of `a`.
    pub fn bfi(
        &self,
        a: impl Operand<u32>,
        into: impl Operand<u32>,
        from: impl Operand<u32>,
        len: impl Operand<u32>,
    ) -> Reg<u32> {
        let d = self.reg();
        self.emit(format!("bfi.b32 {d}, {}, {}, {}, {};", a.text(), into.text(), from.text(), len.text()));
        d
    }

    /// The number of set bits.
    pub fn popc(&self, a: impl Operand<u32>) -> Reg<u32> {
        self.op1::<u32, u32>("popc.b32", a)
    }

    /// The number of leading zero bits.
    pub fn clz(&self, a: impl Operand<u32>) -> Reg<u32> {
        self.op1::<u32, u32>("clz.b32", a)
    }

    /// `c` plus the sum of four products of bytes; each word's bytes are signed or not as its type is.
    pub fn dp4a<A: Word, B: Word>(&self, a: Reg<A>, b: Reg<B>, c: impl Operand<i32>) -> Reg<i32> {
        let d = self.reg();
        self.emit(format!("dp4a.{}.{} {d}, {a}, {b}, {};", A::NAME, B::NAME, c.text()));
        d
    }

    // Comparison.

    fn compare<T: Ordered>(&self, how: &str, a: impl Operand<T>, b: impl Operand<T>) -> Pred {
        self.op2(&format!("setp.{how}.{}", T::NAME), a, b)
    }

    /// `a < b`; false if either is NaN, as all but [`Kernel::ne`].
    pub fn lt<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Pred {
        self.compare("lt", a, b)
    }

    /// `a ≤ b`.
    pub fn le<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Pred {
        self.compare("le", a, b)
    }

    /// `a > b`.
    pub fn gt<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Pred {
        self.compare("gt", a, b)
    }

    /// `a ≥ b`.
    pub fn ge<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Pred {
        self.compare("ge", a, b)
    }

    /// `a = b`.
    pub fn eq<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Pred {
        self.compare("eq", a, b)
    }

    /// `a ≠ b`; true if either is NaN.
    pub fn ne<T: Ordered>(&self, a: impl Operand<T>, b: impl Operand<T>) -> Pred {
        self.compare(if T::KIND == Kind::Float { "neu" } else { "ne" }, a, b)
    }

    /// Both.
    pub fn both(&self, a: Pred, b: Pred) -> Pred {
        self.op2("and.pred", a, b)
    }

    /// At least one.
    pub fn either(&self, a: Pred, b: Pred) -> Pred {
        self.op2("or.pred", a, b)
    }

    /// The opposite.
    pub fn unless(&self, a: Pred) -> Pred {
        self.op1("not.pred", a)
    }

    /// `a` where `p` holds, else `b`.
    pub fn select<T: Number>(&self, p: Pred, a: impl Operand<T>, b: impl Operand<T>) -> Reg<T> {
        let d = self.reg();
        let ty = match T::CLASS {
            crate::ty::Class::B16 => "b16",
            crate::ty::Class::B32 => "b32",
            crate::ty::Class::B64 => "b64",
            _ => T::NAME,
        };
        self.emit(format!("selp.{ty} {d}, {}, {}, {p};", a.text(), b.text()));
        d
    }

    // Conversion.

    /// `a` as another number type: integers to and from floats and between widths; floats round to nearest,
    /// and towards zero when they become integers, saturating at the integer's limits.
    pub fn convert<T: Number, D: Number>(&self, a: Reg<T>) -> Reg<D> {
        let rounding = match (T::KIND, D::KIND) {
            (Kind::Float, Kind::Float) if D::BYTES < T::BYTES => ".rn",
            (Kind::Unsigned | Kind::Signed, Kind::Float) => ".rn",
            (Kind::Float, Kind::Unsigned | Kind::Signed) => ".rzi",
            _ => "",
        };
        self.op1::<T, D>(&format!("cvt{rounding}.{}.{}", D::NAME, T::NAME), a)
    }

    /// A float as an integer, rounded as said; saturates at the integer's limits.
    pub fn round_to<T: Float, D: Int>(&self, a: Reg<T>, round: Round) -> Reg<D> {
        let how = match round {
            Round::Nearest => "rni",
            Round::Zero => "rzi",
            Round::Down => "rmi",
            Round::Up => "rpi",
        };
        self.op1::<T, D>(&format!("cvt.{how}.{}.{}", D::NAME, T::NAME), a)
    }

    /// A bf16 as f32, exactly.
    pub fn widen_bf16(&self, a: Reg<bf16>) -> Reg<f32> {
        let d = self.reg::<u32>();
        self.emit(format!("mov.b32 {d}, {{0, {a}}};"));
        self.bits(d)
    }

    /// The same bits as another type of the same width.
    ///
    /// # Panics
    /// If the widths differ: a mistake in the program that writes the kernel.
    pub fn bits<T: Ty, D: Ty>(&self, a: Reg<T>) -> Reg<D> {
        assert!(T::BYTES == D::BYTES && T::BYTES > 0, "{} and {} differ in width", T::NAME, D::NAME);
        if T::CLASS == D::CLASS {
            return Reg::new(a.id);
        }
        self.op1::<T, D>(&format!("mov.b{}", 8 * T::BYTES), a)
    }

    /// The low and the high half of a pair.
    pub fn unpack(&self, a: Reg<F16x2>) -> (Reg<f16>, Reg<f16>) {
        let (lo, hi) = (self.reg(), self.reg());
        self.emit(format!("mov.b32 {{{lo}, {hi}}}, {a};"));
        (lo, hi)
    }

    /// A pair of its low and its high half.
    pub fn pack(&self, lo: Reg<f16>, hi: Reg<f16>) -> Reg<F16x2> {
        let d = self.reg();
        self.emit(format!("mov.b32 {d}, {{{lo}, {hi}}};"));
        d
    }

    /// Two f32 rounded to the nearest f16 pair.
    pub fn pack_f32(&self, lo: impl Operand<f32>, hi: impl Operand<f32>) -> Reg<F16x2> {
        let d = self.reg();
        self.emit(format!("cvt.rn.f16x2.f32 {d}, {}, {};", hi.text(), lo.text()));
        d
    }
}
