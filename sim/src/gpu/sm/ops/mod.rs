//! Operations of instructions: one module per subject, each with their lowering and execution.

mod address;
mod atomic;
mod bits;
pub(super) mod bulk;
pub(super) mod control;
mod convert;
mod double;
mod float;
mod half;
mod hopper;
mod integer;
mod lea;
mod matrix;
pub(super) mod memory;
mod mufu;
pub(super) mod object;
mod page;
pub(super) mod special;
mod tensor;
pub(super) mod tile;
pub(super) mod warpgroup;
mod whole;

use sass::Word;

use crate::gpu::sm::fault::esr;
use crate::gpu::sm::lower::{Lower, Refusal};
use address::Space;

/// Whether the instruction belongs to the uniform datapath: it runs once per warp, on uniform registers and
/// predicates.
pub(super) fn is_uniform(w: Word) -> bool {
    // VOTEU (0x086) lies among them but is guarded per lane; S2UR, SYNCS.EXCH, UBLKCP, UBLKPF and USETMAXREG
    // lie elsewhere.
    matches!(w.bits(0, 9), 0x080..=0x0bf) && w.bits(0, 9) != 0x086
        || matches!(w.op12(), 0x9c3 | 0x5b2 | 0x3ba | 0x3bc | 0x9c8)
}

/// Lowers the instruction by its operation code: the 12-bit ones first, then those whose upper three bits are
/// the operand form.
pub(super) fn lower(l: &mut Lower<'_>) -> Result<(), Refusal> {
    lower_fixed(l).unwrap_or_else(|| lower_by_form(l))
}

/// Lowers an instruction with one 12-bit code; `None` for others.
fn lower_fixed(l: &mut Lower<'_>) -> Option<Result<(), Refusal>> {
    use {control as c, hopper as n, memory as m, special as s};
    Some(match l.w.op12() {
        0x801 | 0x918 | 0x91a | 0x9af | 0x9ab | 0x98f | 0xd8f => c::nop(l),
        // FENCE.VIEW.ASYNC, CGAERRBAR; the end of a stretch that WARPSYNC.COLLECTIVE began, whose lanes
        // already go together.
        0x3c6 | 0x5ab | 0x91b => c::nop(l),
        0x805 => s::cs2r(l),
        0x806 => s::vote(l, false),
        0x886 => s::vote(l, true),
        0x919 => s::s2r(l),
        0x9c3 => s::s2ur(l),
        0x882 | 0xc82 => m::umov(l),
        0xab9 | 0xabb | 0x8b8 => m::uldc(l),
        0xb82 => m::ldc(l),
        0x381 | 0x981 => whole::load_wide(l, Space::Global),
        0x980 | 0x380 => whole::load_wide(l, Space::Generic),
        0x386 | 0x986 => whole::store_wide(l, Space::Global),
        0x385 | 0x985 => whole::store_wide(l, Space::Generic),
        0x3a8 | 0x9a8 => atomic::atom(l, false),
        0x38a | 0x98a => atomic::atom(l, true),
        0x3a9 => atomic::cas(l, false),
        0x38b => atomic::cas(l, true),
        0x98e => atomic::red(l),
        0x9a2 => atomic::float_atom(l, true),
        0x9a3 => atomic::float_atom(l, false),
        0x9a6 => atomic::float_red(l),
        0x38c | 0x98c => atomic::atoms(l),
        0x38d => atomic::atoms_cas(l),
        0xf8c if l.bits(73, 3) == 2 => object::atoms_arrive(l),
        0xf8c => atomic::atoms_count(l),
        0x9b0 => object::arrives(l),
        0x992 => m::membar(l),
        0x83b => tile::ldsm(l),
        0xfae | 0xdae => tile::ldgsts(l),
        0x3aa | 0x9aa => tile::qspc(l),
        0x984 => m::lds(l),
        0x388 | 0x988 => m::sts(l),
        0x983 => m::ldl(l),
        0x387 | 0x987 => m::stl(l),
        0x389 | 0x589 | 0x989 | 0xf89 => s::shfl(l),
        0x3a1 => s::match_(l),
        0x3c4 => s::redux(l),
        0x3c2 | 0x2ca => s::r2ur(l),
        0x31c => c::b2r(l),
        0xb1d | 0x91d | 0x51d | 0x31d => c::bar(l),
        0x941 => c::bsync(l),
        0x942 => c::break_(l),
        0x943 | 0x343 | 0x944 | 0x344 => c::call(l),
        0x945 => c::bssy(l),
        0x946 | 0x95d | 0x35d => c::yield_(l),
        0x947 => c::bra(l),
        0x949 => c::brx(l),
        0x94d => c::exit(l),
        0x950 => c::ret(l),
        0x95c => c::bpt(l),
        0x348 | 0x948 | 0xb48 | 0xd48 => c::warpsync(l),
        0x352 | 0x353 => n::rpcmov(l),
        0x5a7 | 0x5b2 | 0x9a7 | 0x9b1 => object::syncs(l),
        0x82f => n::elect(l),
        0x3ba => bulk::copy(l),
        0x9c5 => warpgroup::wait(l),
        0x9c8 => warpgroup::set_registers(l),
        0x9f0 => warpgroup::multiply_shared(l),
        0xdf0..=0xdf3 | 0x9f1..=0x9f3 => warpgroup::other_product(l),
        // UBLKPF; ACQBULK and PREEXIT: a dependent launch starts when the one before it has ended. Checks see to
        // it that a kernel is right where it starts before that.
        0x3bc | 0x82e | 0x82d => c::nop(l),
        0x355 | 0xf55 | 0x356 | 0x956 | 0xb56 | 0xd56 | 0xf56 => c::bmov(l),
        _ => return None,
    })
}

/// Lowers an instruction whose code is its lower nine bits.
fn lower_by_form(l: &mut Lower<'_>) -> Result<(), Refusal> {
    use {convert as v, double as d, float as f, half as h, hopper as n, integer as i, special as s};
    match l.bits(0, 9) {
        0x002 => i::mov(l),
        0x003 | 0x083 => s::p2r(l),
        0x004 | 0x084 => s::r2p(l),
        0x007 | 0x087 => i::sel(l),
        0x008 => f::fsel(l),
        0x009 => f::fmnmx(l),
        0x00a => f::fset(l),
        0x00b => f::fsetp(l),
        0x00c | 0x08c => i::isetp(l),
        0x010 | 0x090 => i::iadd3(l),
        0x097 => n::iadd3_pairs(l),
        0x011 | 0x091 => lea::lea(l),
        0x012 | 0x092 => bits::lop3(l),
        0x013 => i::iabs(l),
        0x014 => i::vabsdiff(l),
        0x015 => i::vabsdiff4(l),
        0x016 | 0x096 => bits::prmt(l),
        0x017 => i::imnmx(l),
        0x019 | 0x099 => bits::shf(l),
        0x01a | 0x09a => bits::sgxt(l),
        0x01b | 0x09b => bits::bmsk(l),
        0x01c | 0x09c | 0x01d | 0x01f => s::plop3(l),
        0x020 => f::fmul(l),
        0x021 => f::fadd(l),
        0x023 => f::ffma(l),
        0x024 | 0x0a4 => i::imad(l),
        0x025 | 0x0a5 => i::imad_wide(l, false),
        0x027 => i::imad_wide(l, true),
        0x026 => i::idp(l),
        0x028 => d::dmul(l),
        0x029 => d::dadd(l),
        0x02a => d::dsetp(l),
        0x02b => d::dfma(l),
        0x030 => h::hadd2(l),
        0x031 => h::hfma2(l, true),
        0x032 => h::hmul2(l),
        0x033 => h::hset2(l),
        0x034 => h::hsetp2(l),
        0x035 => h::hfma2(l, false),
        0x036 => n::viadd(l),
        0x037 => matrix::imma_op(l),
        0x03a => matrix::movm(l),
        0x03c => tensor::hmma_op(l),
        0x03d => matrix::bmma_op(l),
        0x03f => matrix::dmma_op(l),
        0x03e => v::f2fp(l),
        0x040 => h::hmnmx2(l),
        0x043 => v::f2ip(l),
        0x045 => v::i2fp(l),
        0x046 => n::viaddmnmx(l),
        0x048 => n::vimnmx(l),
        0x104 => v::f2f(l, false),
        0x105 => v::f2i(l, false),
        0x106 => v::i2f(l, false),
        0x107 => v::frnd(l, false),
        0x108 => mufu::mufu(l),
        0x110 => v::f2f(l, true),
        0x111 => v::f2i(l, true),
        0x112 => v::i2f(l, true),
        0x113 => v::frnd(l, true),
        0x038 => i::i2i(l),
        0x039 => i::i2ip(l),
        0x0bd | 0x100 => bits::flo(l),
        0x0be | 0x101 => bits::brev(l),
        0x0bf | 0x109 => bits::popc(l),
        0x102 => f::fchk(l),
        _ => Err(esr::ILLEGAL_INSTR_ENCODING),
    }
}
