//! Products of matrices in shared memory by four warps (HGMMA of sm_90a), and registers that move between
//! warps.
//!
//! Each warp computes its own quarter of the rows when it comes to the instruction; the check of races finds
//! reads of a sum, or writes of a factor, before WARPGROUP.DEPBAR.
//!
//! A factor is named by a descriptor of 64 bits: the address of its first row in bits 0 to 13, the distance
//! between groups of eight rows in bits 32 to 45, both in units of 16 bytes, the base offset of the swizzle
//! in bits 49 to 51 and its width in bits 62 and 63. Source: PTX ISA, "Matrix Descriptor Format".

use crate::gpu::sm::core::{Core, Flow};
use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lanes::each;
use crate::gpu::sm::lower::{Lower, Refusal};
use crate::gpu::sm::micro_op::{MicroOp, warp_ops};
use crate::gpu::sm::ops::half::widen;
use crate::gpu::sm::ops::tensor::{ELEMENTS, Fragments, HALF, Rules, exact, fast, result};
use crate::gpu::sm::slots::{NO_PREDICATE, NOT, UNIFORM_PREDICATES, ZERO};

/// Bytes of a row of shared memory that the widest swizzle permutes.
const ROW: u32 = 128;
/// Rows of a group.
const GROUP: u32 = 8;
/// Rows of a warp.
const WARP_ROWS: u32 = 16;
/// Pieces of 16 bytes that one product takes of a row.
const PIECES: [u32; 2] = [0, 16];

/// Rows of one factor, swizzled by 128 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Factor {
    /// Offset of the first row into shared memory.
    start: u32,
    /// Bytes from one group of eight rows to the next.
    group: u32,
}

impl Factor {
    /// Factor of a descriptor; the error names a setting that is not modelled.
    fn new([lower, upper]: [u32; 2]) -> Result<Self, &'static str> {
        if upper >> 30 != 1 {
            return Err("a factor in shared memory that is not swizzled by 128 bytes");
        }
        if upper >> 17 & 7 != 0 {
            return Err("a factor whose swizzle has a base offset");
        }
        Ok(Factor { start: (lower & 0x3fff) << 4, group: (upper & 0x3fff) << 4 })
    }

    /// The place of a byte of a row, from the factor's first value on.
    fn place(self, row: u32, byte: u32) -> u32 {
        let at = self.start + row / GROUP * self.group + row % GROUP * ROW + byte;
        // Sixteenths of 128 bytes change places by the number of the 128 bytes.
        at ^ (at >> 7 & 7) << 4
    }
}

/// A product: what its registers say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Product {
    a: Factor,
    b: Factor,
    /// The warp's first row of A.
    first_row: u32,
    columns: u32,
}

impl Product {
    /// The product that [`MultiplyShared`] is about to compute.
    pub fn of(core: &Core<'_>, op: &MicroOp) -> Result<Self, &'static str> {
        let pair = |slot: u16| [core.uniform(slot), core.uniform(slot + 1)];
        Ok(Product {
            a: Factor::new(pair(op.a))?,
            b: Factor::new(pair(op.a + 2))?,
            first_row: core.warp.index % 4 * WARP_ROWS,
            columns: op.k[0],
        })
    }

    /// The pieces of 16 bytes that the warp reads.
    pub fn pieces(&self) -> impl Iterator<Item = u32> + use<> {
        let rows = |factor: Factor, first: u32, count: u32| {
            (first..first + count).flat_map(move |row| PIECES.map(|byte| factor.place(row, byte)))
        };
        rows(self.a, self.first_row, WARP_ROWS).chain(rows(self.b, 0, self.columns))
    }

    /// A place outside shared memory of which the warp reads, if there is one.
    fn outside(&self, shared_bytes: u32) -> Option<u32> {
        self.pieces().find(|at| at + 16 > shared_bytes)
    }
}

/// The word at an offset into shared memory; [`Product::outside`] said that there is one.
#[inline(always)]
fn word(core: &Core<'_>, at: u32) -> u32 {
    core.block.shared.get((at / ROW) as usize).map_or(0, |row| row.0[(at % ROW / 4) as usize])
}

/// A lane's four values of its row: as in the fragments of a warp's own products, 2t, 2t + 1, 2t + 8 and 2t +
/// 9.
#[inline(always)]
fn values(core: &Core<'_>, factor: Factor, row: impl Fn(u32) -> u32) -> [[f32; 32]; ELEMENTS] {
    let mut all = [[0f32; 32]; ELEMENTS];
    for half in 0..2 {
        let words = each(|lane| {
            let lane = lane as u32;
            word(core, factor.place(row(lane / 4), 16 * half + 4 * (lane % 4)))
        });
        let first = 2 * half as usize;
        all[first] = each(|i| widen(words[i] & 0xffff));
        all[first + 1] = each(|i| widen(words[i] >> 16));
    }
    all
}

warp_ops! {
    /// HGMMA of f16 with sums of f32; A: the first of both descriptors' uniform registers; k: 0 columns, 1
    /// bits kept, 2 depth at once (0: fp32 arithmetic). Ps: whether the sums so far are added.
    MultiplyShared(core, op) {
        if core.mask != u32::MAX {
            return core.unsupported("a matrix instruction with inactive lanes");
        }
        let product = match Product::of(core, op) {
            Ok(product) => product,
            Err(what) => return core.unsupported(what),
        };
        if let Some(at) = product.outside(core.env.launch.shared_bytes) {
            return core.raise(esr::OOR_ADDR, core.mask, Some(at.into()), None);
        }
        let adds = core.pred(op.ps[0]) != 0 && op.c != ZERO;
        let rules = Rules { kept: op.k[1] as i32, half: false };
        let row = product.first_row;
        let a = [values(core, product.a, |g| row + g), values(core, product.a, |g| row + g + GROUP)];
        let mut f = Fragments { a, b: [[0.0; 32]; ELEMENTS], count: ELEMENTS, per: 2, acc: [[0.0; 32]; 4] };
        for block in 0..product.columns / GROUP {
            f.b = values(core, product.b, |g| GROUP * block + g);
            for r in 0..4 {
                let c = core.src(if adds { op.c + (4 * block + r) as u16 } else { ZERO });
                f.acc[r as usize] = each(|i| f32::from_bits(c[i]));
            }
            let sums = match op.k[2] {
                0 => fast(&f, false),
                depth => exact(&mut core.room, &f, HALF, rules, depth as usize),
            };
            for r in 0..4 {
                let x = &sums[r as usize];
                core.put(op.d + (4 * block + r) as u16, &each(|i| result(x[i])));
            }
        }
        Flow::Next
    }

    /// The other products.
    OtherProduct(core, _) {
        core.unsupported("a warpgroup's product other than of f16 in shared memory, in rows, with sums of f32")
    }

    /// USETMAXREG.DEALLOC: registers above the first k[0] go to the block's pool.
    ReleaseRegisters(core, op) {
        let (has, left) = (core.warp.registers, op.k[0]);
        if left > has {
            return core.unsupported("a warp gives registers back until it has more than before");
        }
        core.block.spare_registers += has - left;
        core.warp.registers = left;
        Flow::Next
    }

    /// USETMAXREG.TRY_ALLOC: Pd = the pool had enough for k[0] registers. If not, other warps run first.
    ClaimRegisters(core, op) {
        let (has, wanted) = (core.warp.registers, op.k[0]);
        if wanted < has {
            return core.unsupported("a warp claims fewer registers than it has");
        }
        let enough = wanted - has <= core.block.spare_registers;
        core.put_pred(op.pd[0], if enough { u32::MAX } else { 0 });
        if !enough {
            core.pc += 1;
            return Flow::Rest;
        }
        core.block.spare_registers -= wanted - has;
        core.warp.registers = wanted;
        Flow::Next
    }
}

/// HGMMA with both factors in shared memory.
pub(super) fn multiply_shared(l: &mut Lower<'_>) -> Result<(), Refusal> {
    // Signs, transposition, sparsity, other types and depths.
    let changed = l.bits(61, 3) | l.bits(72, 2) | l.bits(58, 2) | l.bits(76, 2);
    if changed != 0 || !l.bit(75) {
        return other_product(l);
    }
    let columns = GROUP * (l.bits(53, 5) + 1);
    let registers = columns / 2;
    let (d, c) = (l.bits(16, 8), l.bits(64, 8));
    (l.op.d, l.op.c) = (l.reg(d, 1)?, l.reg(c, 1)?);
    l.reg(d + registers - 1, 1)?;
    if c != 255 {
        l.reg(c + registers - 1, 1)?;
    }
    l.op.a = l.ureg(l.bits(24, 6), 4)?;
    // Stored inverted: 0 is the predicate that is always true.
    let adds = UNIFORM_PREDICATES + (l.bits(87, 3) as u8 ^ 7);
    l.op.ps[0] = adds | if l.bit(90) { NOT } else { 0 };
    let (kept, depth) = if l.target.exact_mma { (25, 16) } else { (0, 0) };
    l.op.k = [columns, kept, depth, 0, 0, 0];
    l.run::<MultiplyShared>();
    Ok(())
}

/// A product that is not modelled: reported when it is executed.
pub(super) fn other_product(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.run::<OtherProduct>();
    Ok(())
}

/// WARPGROUP: products have ended when they have begun.
pub(super) fn wait(l: &mut Lower<'_>) -> Result<(), Refusal> {
    crate::gpu::sm::ops::control::nop(l)
}

/// USETMAXREG. Code may name the registers of the launch and those that some warp claims.
pub(super) fn set_registers(l: &mut Lower<'_>) -> Result<(), Refusal> {
    l.op.k[0] = l.bits(32, 10);
    if l.bit(73) {
        l.code.claimed = l.code.claimed.max(l.op.k[0]);
        l.pd();
        l.run::<ClaimRegisters>();
    } else {
        l.op.pd[0] = NO_PREDICATE;
        l.run::<ReleaseRegisters>();
    }
    Ok(())
}
