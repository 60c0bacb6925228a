//! Loads and stores.

use crate::gpu::sm::code::PoolWord;
use crate::gpu::sm::constants::read_word;
use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::guest;
use crate::gpu::sm::launch::{Access, MemoryFault};
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::MicroOp;
use crate::gpu::sm::micro_op::{Op, warp_ops};
use crate::gpu::sm::slots::ZERO;
use crate::gpu::sm::tlb::Miss;

use crate::gpu::sm::ops::address::{self, Checked, Pattern, Space};
use crate::gpu::sm::ops::page;

/// Loads `W` bytes per lane into the registers from `d` on.
#[inline(always)]
fn load<const W: usize, const SIGNED: bool>(core: &mut Core<'_>, d: u16, at: &Checked) {
    let first = at.host[0] as *const u8;
    let mut t = [[0u32; 32]; 4];
    if W < 4 {
        let mut raw = [0u32; 32];
        // Neighbouring narrow values: whole words around them, then the part of the access.
        let words = W * 4 + 1;
        let shift = at.host[0] & 7;
        if at.pattern == Pattern::Contiguous {
            let mut block = [0u64; 9];
            // SAFETY: `Checked` states that all these addresses are valid; the first and last word lie in the
            // same 8 bytes as a valid address, so in the same page.
            unsafe {
                let start = first.sub(shift as usize);
                guest::load_block(start, &mut block[..words - 1]);
                if shift != 0 {
                    block[words - 1] = guest::load_u64(start.add(8 * (words - 1)));
                }
            }
            for i in 0..words - 1 {
                let part = if shift == 0 {
                    block[i]
                } else {
                    block[i] >> (8 * shift) | block[i + 1] << (64 - 8 * shift)
                };
                for j in 0..8 / W {
                    raw[i * (8 / W) + j] = (part >> (8 * W * j)) as u32;
                }
            }
        } else if at.pattern == Pattern::Broadcast {
            // SAFETY: `Checked`.
            raw = [unsafe {
                if W == 1 { guest::load_u8(first).into() } else { guest::load_u16(first).into() }
            }; 32];
        } else {
            for i in 0..32 {
                let p = at.host[i] as *const u8;
                // SAFETY: `Checked`.
                raw[i] = unsafe { if W == 1 { guest::load_u8(p).into() } else { guest::load_u16(p).into() } };
            }
        }
        let unused = 32 - 8 * W as u32;
        for i in 0..32 {
            let up = raw[i] << unused;
            t[0][i] = if SIGNED { ((up as i32) >> unused) as u32 } else { up >> unused };
        }
    } else if at.pattern == Pattern::Contiguous && at.host[0] & 7 == 0 {
        for i in 0..4 * W {
            // SAFETY: `Checked`; aligned as just tested.
            let v = unsafe { guest::load_u64(first.add(8 * i)) };
            for (j, part) in [v as u32, (v >> 32) as u32].into_iter().enumerate() {
                let word = 2 * i + j;
                t[word % (W / 4)][word / (W / 4)] = part;
            }
        }
    } else if at.pattern == Pattern::Broadcast {
        // SAFETY: `Checked`.
        let words: [u32; 4] = unsafe { guest::load_words::<W>(first) };
        t = [[words[0]; 32], [words[1]; 32], [words[2]; 32], [words[3]; 32]];
    } else {
        for i in 0..32 {
            // SAFETY: `Checked`.
            let words = unsafe { guest::load_words::<W>(at.host[i] as *const u8) };
            for (row, word) in t[..W / 4].iter_mut().zip(words) {
                row[i] = word;
            }
        }
    }
    for (w, row) in t[..W.div_ceil(4)].iter().enumerate() {
        core.put(d + w as u16, row);
    }
}

/// Stores `W` bytes per lane from the registers from `s` on.
#[inline(always)]
fn store<const W: usize>(core: &Core<'_>, s: u16, at: &Checked) {
    let first = at.host[0] as *mut u8;
    if W >= 4 && at.pattern == Pattern::Contiguous && at.host[0] & 7 == 0 {
        for i in 0..4 * W {
            let word = |n: usize| u64::from(core.lane(s + (n % (W / 4)) as u16, n / (W / 4)));
            // SAFETY: `Checked`; aligned as just tested.
            unsafe { guest::store_u64(first.add(8 * i), word(2 * i) | word(2 * i + 1) << 32) };
        }
        return;
    }
    let mut left = core.mask;
    while left != 0 {
        let i = left.trailing_zeros() as usize;
        left &= left - 1;
        let p = at.host[i] as *mut u8;
        // SAFETY: `Checked`.
        unsafe {
            match W {
                1 => guest::store_u8(p, core.lane(s, i) as u8),
                2 => guest::store_u16(p, core.lane(s, i) as u16),
                _ => {
                    let word = |w: usize| if w < W / 4 { core.lane(s + w as u16, i) } else { 0 };
                    guest::store_words::<W>(p, [word(0), word(1), word(2), word(3)]);
                }
            }
        }
    }
}

/// Addresses of a global or generic access: register pair (or, k[2], one register) plus uniform pair B plus
/// offset k[1]:k[0].
#[inline(always)]
pub(crate) fn addresses(core: &Core<'_>, op: &MicroOp) -> [u64; 32] {
    let mut offset = u64::from(op.k[0]) | u64::from(op.k[1]) << 32;
    if op.b != ZERO {
        offset = offset.wrapping_add(u64::from(core.uniform(op.b)) | u64::from(core.uniform(op.b + 1)) << 32);
    }
    let lo = core.src(op.a);
    let mut t = [0u64; 32];
    if op.k[2] != 0 {
        for i in 0..32 {
            t[i] = u64::from(lo[i]).wrapping_add(offset);
        }
    } else {
        let hi = core.src(op.a + 1);
        for i in 0..32 {
            t[i] = (u64::from(lo[i]) | u64::from(hi[i]) << 32).wrapping_add(offset);
        }
    }
    t
}

/// Offsets of a shared or local access: register A times scale k[2], plus uniform register B, plus k[0].
#[inline(always)]
pub(crate) fn offsets(core: &Core<'_>, op: &MicroOp) -> [u32; 32] {
    let base = core.uniform(op.b).wrapping_add(op.k[0]);
    let a = core.src(op.a);
    let mut t = [0u32; 32];
    for i in 0..32 {
        t[i] = (a[i] << (op.k[2] & 31)).wrapping_add(base);
    }
    t
}

const GLOBAL: u8 = 0;
const GENERIC: u8 = 1;
const SHARED: u8 = 2;
const LOCAL: u8 = 3;

#[inline(always)]
fn check<const SPACE: u8>(
    core: &mut Core<'_>,
    op: &MicroOp,
    width: u64,
    access: Access,
) -> Result<Checked, Flow> {
    match SPACE {
        GLOBAL => address::global(core, addresses(core, op), width, access, Space::Global),
        GENERIC => address::global(core, addresses(core, op), width, access, Space::Generic),
        SHARED => address::shared(core, &offsets(core, op), width),
        _ => address::local(core, &offsets(core, op), width),
    }
}

#[inline(always)]
fn load_checked<const SPACE: u8, const W: usize, const SIGNED: bool>(
    core: &mut Core<'_>,
    op: &MicroOp,
) -> Flow {
    match check::<SPACE>(core, op, W as u64, Access::Read) {
        Ok(at) => {
            load::<W, SIGNED>(core, op.d, &at);
            Flow::Next
        }
        Err(flow) => flow,
    }
}

#[inline(always)]
fn store_checked<const SPACE: u8, const W: usize>(core: &mut Core<'_>, op: &MicroOp) -> Flow {
    match check::<SPACE>(core, op, W as u64, Access::Write) {
        Ok(at) => {
            store::<W>(core, op.c, &at);
            Flow::Next
        }
        Err(flow) => flow,
    }
}

/// A load of which the lanes are not all in one page that is at hand.
#[inline(never)]
fn load_apart<const SPACE: u8, const W: usize, const SIGNED: bool>(
    core: &mut Core<'_>,
    op: &MicroOp,
) -> Flow {
    load_checked::<SPACE, W, SIGNED>(core, op)
}

/// The same of a store.
#[inline(never)]
fn store_apart<const SPACE: u8, const W: usize>(core: &mut Core<'_>, op: &MicroOp) -> Flow {
    store_checked::<SPACE, W>(core, op)
}

/// A load; ps[0] takes lanes away.
struct Load<const SPACE: u8, const W: usize, const SIGNED: bool>;

impl<const SPACE: u8, const W: usize, const SIGNED: bool> Op for Load<SPACE, W, SIGNED> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        if op.ps[0] != 7 {
            core.mask &= core.pred(op.ps[0]);
            if core.mask == 0 {
                return Flow::Next;
            }
        }
        if matches!(SPACE, GLOBAL | GENERIC)
            && let Some(page) = page::find::<W>(core, op, Access::Read)
        {
            page::load::<W, SIGNED>(core, op.d, &page);
            return Flow::Next;
        }
        if matches!(SPACE, GLOBAL | GENERIC) {
            return load_apart::<SPACE, W, SIGNED>(core, op);
        }
        load_checked::<SPACE, W, SIGNED>(core, op)
    }
}

/// A store of the registers from C on.
struct Store<const SPACE: u8, const W: usize>;

impl<const SPACE: u8, const W: usize> Op for Store<SPACE, W> {
    #[inline(always)]
    fn run(core: &mut Core<'_>, op: &MicroOp) -> Flow {
        if matches!(SPACE, GLOBAL | GENERIC)
            && let Some(page) = page::find::<W>(core, op, Access::Write)
        {
            page::store::<W>(core, op.c, &page);
            return Flow::Next;
        }
        if matches!(SPACE, GLOBAL | GENERIC) {
            return store_apart::<SPACE, W>(core, op);
        }
        store_checked::<SPACE, W>(core, op)
    }
}

/// An aligned word of a constant bank, at guest address `va`.
fn constant(core: &mut Core<'_>, va: u64) -> Result<u32, MemoryFault> {
    match core.tlb.find(va, Access::Read) {
        // SAFETY: the entry covers the page of `va`, which is readable and aligned as the guest address is.
        Ok(entry) => Ok(unsafe { guest::load_u32(entry.host.add((va - entry.va) as usize)) }),
        Err(Miss::Mmu(fault)) => Err(fault),
        // Banks have no windows in them.
        Err(Miss::Shared | Miss::Local) => read_word(core.env.memory, va, Access::Read),
    }
}

warp_ops! {
    /// Constant load with a register index; k: 0 bank, 1 offset, 2 width in bytes, 3 signed.
    LoadConst(core, op) {
        let (bank, width) = (op.k[0] as usize, op.k[2]);
        let a = core.src(op.a);
        let Some(bound) = core.env.launch.banks.get(bank).copied().flatten() else {
            return core.raise(esr::INVALID_CONST_ADDR_LDC, core.mask, None, None);
        };
        let mut t = [[0u32; 32]; 4];
        for i in 0..32 {
            if core.mask >> i & 1 == 0 {
                continue;
            }
            let at = a[i].wrapping_add(op.k[1]);
            if at & (width - 1) != 0 {
                return core.raise(esr::MISALIGNED_ADDR, 1 << i, Some(u64::from(at)), None);
            }
            if u64::from(at) + u64::from(width) > u64::from(bound.len) {
                return core.raise(esr::INVALID_CONST_ADDR_LDC, 1 << i, Some(u64::from(at)), None);
            }
            for w in 0..width.div_ceil(4) {
                let word = (at & !3) + 4 * w;
                match constant(core, bound.va + u64::from(word)) {
                    Ok(x) => t[w as usize][i] = x,
                    Err(fault) => return core.raise(esr::MMU_FAULT, 1 << i, Some(fault.va), Some(fault)),
                }
            }
            if width < 4 {
                let (down, unused) = (8 * (at & 3), 32 - 8 * width);
                let up = t[0][i] >> down << unused;
                t[0][i] = if op.k[3] != 0 { ((up as i32) >> unused) as u32 } else { up >> unused };
            }
        }
        for w in 0..width.div_ceil(4) as u16 {
            core.put(op.d + w, &t[usize::from(w)]);
        }
        Flow::Next
    }

    /// Orders this thread's accesses before it with those after it, for everyone.
    Fence(_core, _) {
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        Flow::Next
    }

    /// UR <- B, k[0] registers of it.
    MoveUniform(core, op) {
        for w in 0..op.k[0] as u16 {
            let value = core.src(op.b + w);
            core.put(op.d + w, &value);
        }
        Flow::Next
    }
}

/// The width in bytes and signedness of a memory type field.
fn width(l: &Lower<'_>) -> Result<(u32, bool), Refusal> {
    Ok(match l.bits(73, 3) {
        0 => (1, false),
        1 => (1, true),
        2 => (2, false),
        3 => (2, true),
        4 => (4, false),
        5 => (8, false),
        6 => (16, false),
        _ => return Err(esr::ILLEGAL_INSTR_PARAM),
    })
}

/// Sets A, B and the offset of a 64-bit address. `ur` is the place of the uniform register, `descriptor` the
/// bit that makes it a descriptor only. Bit 90 makes the address register a pair in loads and stores; where it has
/// another meaning, the register always is one.
pub(super) fn wide_address(l: &mut Lower<'_>, ur: u32, descriptor: u32, offset: i64) -> Result<(), Refusal> {
    let attached = l.bit(91);
    let wide = if attached {
        l.bit(90) || !matches!(l.bits(0, 9), 0x180 | 0x181 | 0x185 | 0x186)
    } else {
        l.bit(72)
    };
    l.op.a = l.reg(l.bits(24, 8), if wide { 2 } else { 1 })?;
    l.op.b = if attached && !l.bit(descriptor) { l.ureg(l.bits(ur, 6), 2)? } else { ZERO };
    (l.op.k[0], l.op.k[1]) = (offset as u32, (offset >> 32) as u32);
    l.op.k[2] = u32::from(!wide);
    Ok(())
}

/// Sets A, B, the scale and the offset of a shared or local address.
pub(super) fn narrow_address(l: &mut Lower<'_>, ur: u32, scaled: bool) -> Result<(), Refusal> {
    l.op.a = l.reg(l.bits(24, 8), 1)?;
    l.op.b = if l.bit(91) { l.ureg(l.bits(ur, 6), 1)? } else { ZERO };
    l.op.k[0] = l.w.sbits(40, 24) as u32;
    l.op.k[2] = if scaled { [0, 2, 3, 4][l.bits(78, 2) as usize] } else { 0 };
    Ok(())
}

macro_rules! by_width {
    ($l:expr, $ty:ident, $space:expr) => {
        match width($l)? {
            (1, false) => $l.run::<$ty<$space, 1, false>>(),
            (1, true) => $l.run::<$ty<$space, 1, true>>(),
            (2, false) => $l.run::<$ty<$space, 2, false>>(),
            (2, true) => $l.run::<$ty<$space, 2, true>>(),
            (4, _) => $l.run::<$ty<$space, 4, false>>(),
            (8, _) => $l.run::<$ty<$space, 8, false>>(),
            _ => $l.run::<$ty<$space, 16, false>>(),
        }
    };
}

macro_rules! by_store_width {
    ($l:expr, $space:expr) => {
        match width($l)?.0 {
            1 => $l.run::<Store<$space, 1>>(),
            2 => $l.run::<Store<$space, 2>>(),
            4 => $l.run::<Store<$space, 4>>(),
            8 => $l.run::<Store<$space, 8>>(),
            _ => $l.run::<Store<$space, 16>>(),
        }
    };
}

/// LDG and LD.
pub(super) fn load_wide(l: &mut Lower<'_>, space: Space) -> Result<(), Refusal> {
    let registers = width(l)?.0.div_ceil(4);
    l.dst(registers)?;
    if space == Space::Global && l.bits(81, 3) != 7 {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    let long = space == Space::Generic && !l.bit(91);
    let offset = if long { l.w.sbits(32, 32) } else { l.w.sbits(40, 24) };
    wide_address(l, 32, 76, offset)?;
    // The predicate is stored inverted.
    let p = l.bits(64, 4) as u8;
    l.op.ps[0] = ((p & 7) ^ 7) | if p & 8 != 0 { crate::gpu::sm::slots::NOT } else { 0 };
    match space {
        Space::Global => by_width!(l, Load, GLOBAL),
        Space::Generic => by_width!(l, Load, GENERIC),
    }
    Ok(())
}

/// STG and ST.
pub(super) fn store_wide(l: &mut Lower<'_>, space: Space) -> Result<(), Refusal> {
    let registers = width(l)?.0.div_ceil(4);
    let long = space == Space::Generic && !l.bit(91);
    let (offset, data) = if long { (l.w.sbits(32, 32), 64) } else { (l.w.sbits(40, 24), 32) };
    wide_address(l, 64, 76, offset)?;
    l.op.c = l.reg(l.bits(data, 8), registers)?;
    match space {
        Space::Global => by_store_width!(l, GLOBAL),
        Space::Generic => by_store_width!(l, GENERIC),
    }
    Ok(())
}

pub(super) fn lds(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(width(l)?.0.div_ceil(4))?;
    narrow_address(l, 32, true)?;
    by_width!(l, Load, SHARED);
    Ok(())
}

pub(super) fn sts(l: &mut Lower<'_>) -> Result<(), Refusal> {
    narrow_address(l, 64, true)?;
    l.op.c = l.reg(l.bits(32, 8), width(l)?.0.div_ceil(4))?;
    by_store_width!(l, SHARED);
    Ok(())
}

pub(super) fn ldl(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(width(l)?.0.div_ceil(4))?;
    narrow_address(l, 32, false)?;
    by_width!(l, Load, LOCAL);
    Ok(())
}

pub(super) fn stl(l: &mut Lower<'_>) -> Result<(), Refusal> {
    narrow_address(l, 64, false)?;
    l.op.c = l.reg(l.bits(32, 8), width(l)?.0.div_ceil(4))?;
    by_store_width!(l, LOCAL);
    Ok(())
}

pub(super) fn ldc(l: &mut Lower<'_>) -> Result<(), Refusal> {
    if l.bits(78, 2) != 0 || l.bit(91) {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    let (bytes, signed) = width(l)?;
    l.dst(bytes.div_ceil(4))?;
    l.a(1)?;
    l.op.k = [l.bits(54, 5), l.w.sbits(38, 16) as u32, bytes, u32::from(signed), 0, 0];
    l.run::<LoadConst>();
    Ok(())
}

pub(super) fn uldc(l: &mut Lower<'_>) -> Result<(), Refusal> {
    let (bytes, signed) = width(l)?;
    let indexed = l.w.op12() == 0xabb;
    if l.bit(91) && !indexed {
        return Err(esr::ILLEGAL_INSTR_PARAM);
    }
    let registers = bytes.div_ceil(4);
    l.dst(registers)?;
    let offset = l.w.sbits(38, 16) as i32;
    if indexed {
        l.op.a = l.ureg(l.bits(24, 6), 1)?;
        l.op.k = [l.bits(54, 5), offset as u32, bytes, u32::from(signed), 0, 0];
        l.run::<LoadConst>();
        return Ok(());
    }
    if bytes < 4 {
        l.op.a = l.pool(&[PoolWord::Imm(offset as u32)]);
        l.op.k = [l.bits(54, 5), 0, bytes, u32::from(signed), 0, 0];
        l.run::<LoadConst>();
        return Ok(());
    }
    l.op.b = l.constant(l.bits(54, 5), offset, registers);
    l.op.k[0] = registers;
    l.run::<MoveUniform>();
    Ok(())
}

pub(super) fn umov(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.dst(1)?;
    l.op.b = if l.w.form() == 6 { l.ureg(l.bits(32, 6), 1)? } else { l.imm(l.bits(32, 32)) };
    l.op.k[0] = 1;
    l.run::<MoveUniform>();
    Ok(())
}

pub(super) fn membar(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.run::<Fence>();
    Ok(())
}
