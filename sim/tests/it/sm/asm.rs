//! Instruction words put together by hand: only those that the tests need around the instructions they are
//! about.

/// Control bits that any scheduler accepts: stall 15, no barriers.
pub const CONTROL: u128 = 15 << 105 | 7 << 110 | 7 << 113;
/// Guarded by PT, and PT in the predicate source at [87,91).
pub const ALWAYS: u128 = 7 << 12;
const PS: u128 = 7 << 87;

pub const NOP: u128 = 0x918 | ALWAYS | CONTROL;
pub const EXIT: u128 = 0x94d | ALWAYS | PS | CONTROL;

/// `MOV Rd, imm`
pub fn mov(d: u8, imm: u32) -> u128 {
    0x802 | ALWAYS | CONTROL | u128::from(d) << 16 | u128::from(imm) << 32 | 0xf << 72
}

/// `S2R Rd, special`
pub fn s2r(d: u8, special: u8) -> u128 {
    0x919 | ALWAYS | CONTROL | u128::from(d) << 16 | u128::from(special) << 72
}

/// `IMAD.WIDE.U32 Rd, Ra, imm, Rc`
pub fn mad_wide(d: u8, a: u8, imm: u32, c: u8) -> u128 {
    0x825
        | ALWAYS
        | CONTROL
        | u128::from(d) << 16
        | u128::from(a) << 24
        | u128::from(imm) << 32
        | u128::from(c) << 64
        | 7 << 81
        | 15 << 87
}

/// `LDG.E.128 Rd, [Ra+offset]`
pub fn ldg128(d: u8, a: u8, offset: u32) -> u128 {
    ldg(d, a, offset, 6)
}

/// `LDG.E.<type> Rd, [Ra+offset]`
pub fn ldg(d: u8, a: u8, offset: u32, ty: u8) -> u128 {
    0x381
        | ALWAYS
        | CONTROL
        | u128::from(d) << 16
        | u128::from(a) << 24
        | u128::from(offset & 0xff_ffff) << 40
        | 1 << 72
        | u128::from(ty) << 73
        | 7 << 81
        | 1 << 84
}

/// `STG.E [Ra+offset], Rb`
pub fn stg(a: u8, offset: u32, b: u8) -> u128 {
    0x386
        | ALWAYS
        | CONTROL
        | u128::from(a) << 24
        | u128::from(b) << 32
        | u128::from(offset & 0xff_ffff) << 40
        | 1 << 72
        | 4 << 73
        | 1 << 84
}

/// `STS [offset], Rb`
pub fn sts(offset: u32, b: u8) -> u128 {
    0x388 | ALWAYS | CONTROL | 255 << 24 | u128::from(b) << 32 | u128::from(offset) << 40 | 4 << 73
}

/// `R2P PR, Ra, 0x7f`
pub fn r2p(a: u8) -> u128 {
    0x804 | ALWAYS | CONTROL | u128::from(a) << 24 | 0x7f << 32
}

/// `P2R Rd, PR, RZ, 0x7f`
pub fn p2r(d: u8) -> u128 {
    0x803 | ALWAYS | CONTROL | u128::from(d) << 16 | 255 << 24 | 0x7f << 32
}

/// `MOV Rd, c[bank][offset]`
pub fn mov_const(d: u8, bank: u8, offset: u32) -> u128 {
    0xa02
        | ALWAYS
        | CONTROL
        | u128::from(d) << 16
        | u128::from(offset / 4) << 40
        | u128::from(bank) << 54
        | 0xf << 72
}

/// `LDS Rd, [Ra+offset]`
pub fn lds(d: u8, a: u8, offset: u32) -> u128 {
    0x984 | ALWAYS | CONTROL | u128::from(d) << 16 | u128::from(a) << 24 | u128::from(offset) << 40 | 4 << 73
}

/// `LDL Rd, [Ra+offset]`
pub fn ldl(d: u8, a: u8, offset: u32) -> u128 {
    0x983
        | ALWAYS
        | CONTROL
        | u128::from(d) << 16
        | u128::from(a) << 24
        | u128::from(offset) << 40
        | 4 << 73
        | 1 << 84
}

/// `BRA` by an offset in bytes from the next instruction.
pub fn branch(offset: i64) -> u128 {
    0x947 | ALWAYS | CONTROL | PS | (u128::from((offset / 4) as u64 & 0xffff_ffff_ffff)) << 34
}

/// `CALL.ABS.NOINC Ra`
pub fn call_register(a: u8) -> u128 {
    0x343 | ALWAYS | CONTROL | PS | u128::from(a) << 24 | 1 << 86
}

/// `BPT.TRAP 0x1`
pub const TRAP: u128 = 0x95c | ALWAYS | CONTROL | 1 << 34 | 3 << 84;

/// `BAR.SYNC.DEFER_BLOCKING id`
pub fn bar(id: u8) -> u128 {
    0xb1d | ALWAYS | CONTROL | u128::from(id) << 54 | 1 << 80
}

/// `WARPSYNC mask`
pub fn warpsync(mask: u32) -> u128 {
    0x948 | ALWAYS | CONTROL | PS | u128::from(mask) << 32
}

/// `ISETP.LT.U32.AND P0, PT, Ra, imm, PT`
pub fn isetp_lt(a: u8, imm: u32) -> u128 {
    0x80c | ALWAYS | CONTROL | u128::from(a) << 24 | u128::from(imm) << 32 | 1 << 76 | 7 << 84 | PS | 7 << 68
}

/// The instruction guarded by P0.
pub fn if_p0(word: u128) -> u128 {
    word & !(15 << 12)
}
