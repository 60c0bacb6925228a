//! Operations among threads: shuffles, votes, reductions, exchange through shared memory, atomics.

use ptxgen::{Atomic, Element, Global, Kernel, Pointer, Reduce, Reg, Shared, Shuffle, Special};

use crate::conformance::random::integer::{fold, folded, wide, wide_of};
use crate::conformance::random::operation::{BlockOp, Memory, Regs, Site, THREADS, Words};

/// Each lane's word, computed from its warp's.
fn by_warp(words: &[Words], of: impl Fn(&[Words], usize) -> u32) -> Vec<u32> {
    words.chunks(32).flat_map(|warp| (0..warp.len()).map(|lane| of(warp, lane)).collect::<Vec<_>>()).collect()
}

fn shuffle_amount(constant: u32) -> u32 {
    constant & 31
}

pub(super) const WARP: &[BlockOp] = &[
    BlockOp {
        name: "shfl.sync.bfly",
        emit: |k, _, [a, ..], n| k.shuffle(a, Shuffle::Xor(shuffle_amount(n))),
        eval: |_, words, n| by_warp(words, |warp, lane| warp[lane ^ shuffle_amount(n) as usize][0]),
    },
    BlockOp {
        name: "shfl.sync.down",
        emit: |k, _, [a, ..], n| k.shuffle(a, Shuffle::Down(shuffle_amount(n))),
        eval: |_, words, n| {
            by_warp(words, |warp, lane| warp.get(lane + shuffle_amount(n) as usize).unwrap_or(&warp[lane])[0])
        },
    },
    BlockOp {
        name: "shfl.sync.up",
        emit: |k, _, [a, ..], n| k.shuffle(a, Shuffle::Up(shuffle_amount(n))),
        eval: |_, words, n| {
            by_warp(words, |warp, lane| warp[lane.checked_sub(shuffle_amount(n) as usize).unwrap_or(lane)][0])
        },
    },
    BlockOp {
        name: "shfl.sync.idx",
        emit: |k, _, [a, b, ..], _| k.broadcast(a, b),
        eval: |_, words, _| by_warp(words, |warp, lane| warp[(warp[lane][1] & 31) as usize][0]),
    },
    BlockOp {
        name: "sum over the warp",
        emit: |k, _, [a, ..], _| k.warp_sum(a),
        eval: |_, words, _| by_warp(words, |warp, _| warp.iter().fold(0, |s, w| s.wrapping_add(w[0]))),
    },
    BlockOp {
        name: "sum of f32 over the warp",
        emit: |k, _, [a, ..], _| {
            // Integers of 16 bits as floats: sums of 32 of them are exact.
            let small = k.convert::<u32, f32>(k.and(a, 0xffff));
            k.bits(k.warp_sum(small))
        },
        eval: |_, words, _| {
            by_warp(words, |warp, _| warp.iter().map(|w| (w[0] & 0xffff) as f32).sum::<f32>().to_bits())
        },
    },
    BlockOp {
        name: "largest of the warp",
        emit: |k, _, [a, ..], _| k.bits(k.warp_max(k.bits::<u32, i32>(a))),
        eval: |_, words, _| {
            by_warp(words, |warp, _| warp.iter().map(|w| w[0] as i32).max().unwrap_or_default() as u32)
        },
    },
    BlockOp {
        name: "redux.sync.add.u32",
        emit: |k, _, [a, ..], _| k.reduce(a, Reduce::Add),
        eval: |_, words, _| by_warp(words, |warp, _| warp.iter().fold(0, |s, w| s.wrapping_add(w[0]))),
    },
    BlockOp {
        name: "redux.sync.min.s32",
        emit: |k, _, [a, ..], _| k.bits(k.reduce(k.bits::<u32, i32>(a), Reduce::Min)),
        eval: |_, words, _| {
            by_warp(words, |warp, _| warp.iter().map(|w| w[0] as i32).min().unwrap_or_default() as u32)
        },
    },
    BlockOp {
        name: "redux.sync.max.u32",
        emit: |k, _, [a, ..], _| k.reduce(a, Reduce::Max),
        eval: |_, words, _| by_warp(words, |warp, _| warp.iter().map(|w| w[0]).max().unwrap_or_default()),
    },
    BlockOp {
        name: "vote.sync.ballot",
        emit: |k, _, [a, b, ..], _| k.ballot(k.lt(a, b)),
        eval: |_, words, _| {
            by_warp(words, |warp, _| (0..32).filter(|&i| warp[i][0] < warp[i][1]).fold(0, |m, i| m | 1 << i))
        },
    },
    BlockOp {
        name: "vote.sync.any",
        emit: |k, _, [a, b, c, d], _| k.select(k.any(k.lt(k.shl(a, 5), k.shr(b, 4))), c, d),
        eval: |_, words, _| {
            by_warp(words, |warp, lane| {
                let any = warp.iter().any(|w| w[0] << 5 < w[1] >> 4);
                if any { warp[lane][2] } else { warp[lane][3] }
            })
        },
    },
    BlockOp {
        name: "vote.sync.all",
        emit: |k, _, [a, b, c, d], _| k.select(k.all(k.ge(a, k.shr(b, 6))), c, d),
        eval: |_, words, _| {
            by_warp(words, |warp, lane| {
                let all = warp.iter().all(|w| w[0] >= w[1] >> 6);
                if all { warp[lane][2] } else { warp[lane][3] }
            })
        },
    },
    BlockOp {
        name: "lane masks",
        emit: |k, _, [a, ..], n| {
            let mask = [Special::LaneMaskLt, Special::LaneMaskLe, Special::LaneMaskGt, Special::LaneMaskGe];
            k.xor(a, k.special(mask[(n & 3) as usize]))
        },
        eval: |_, words, n| {
            by_warp(words, |warp, lane| {
                let eq = 1_u32 << lane;
                let mask = [eq - 1, eq | (eq - 1), !(eq | (eq - 1)), !(eq - 1)];
                warp[lane][0] ^ mask[(n & 3) as usize]
            })
        },
    },
];

/// Writes `value` to the thread's element, reads that of thread `from`; no thread continues before all have
/// read.
fn exchange<E: Element>(k: &Kernel, site: &Site, value: Reg<E::Value>, from: Reg<u32>) -> Reg<E::Value> {
    let shared: Pointer<Shared, E> = site.shared.cast();
    k.store(k.at(shared, site.thread), value);
    k.sync_threads();
    let got = k.load(k.at(shared, from));
    k.sync_threads();
    got
}

/// The thread that a word names.
fn thread_of(word: u32) -> usize {
    word as usize % THREADS
}

pub(super) const SHARED: &[BlockOp] = &[
    BlockOp {
        name: "reversal through shared memory",
        emit: |k, site, [a, ..], _| exchange::<u32>(k, site, a, k.sub(THREADS as u32 - 1, site.thread)),
        eval: |_, words, _| words.iter().rev().map(|w| w[0]).collect(),
    },
    BlockOp {
        name: "rotation through shared memory",
        emit: |k, site, [a, ..], n| {
            let from = k.and(k.add(site.thread, n & 255), THREADS as u32 - 1);
            exchange::<u32>(k, site, a, from)
        },
        eval: |_, words, n| (0..words.len()).map(|t| words[(t + (n & 255) as usize) % THREADS][0]).collect(),
    },
    BlockOp {
        name: "gather from shared memory",
        emit: |k, site, [a, b, ..], _| exchange::<u32>(k, site, a, k.and(b, THREADS as u32 - 1)),
        eval: |_, words, _| words.iter().map(|w| words[thread_of(w[1])][0]).collect(),
    },
    BlockOp {
        name: "gather of signed bytes",
        emit: |k, site, [a, b, ..], _| {
            let from = k.and(b, THREADS as u32 - 1);
            k.bits(exchange::<i8>(k, site, k.bits(a), from))
        },
        eval: |_, words, _| words.iter().map(|w| words[thread_of(w[1])][0] as i8 as u32).collect(),
    },
    BlockOp {
        name: "gather of 16-bit words",
        emit: |k, site, [a, b, ..], _| {
            let from = k.and(b, THREADS as u32 - 1);
            k.convert::<u16, u32>(exchange::<u16>(k, site, k.convert::<u32, u16>(a), from))
        },
        eval: |_, words, _| words.iter().map(|w| words[thread_of(w[1])][0] & 0xffff).collect(),
    },
    BlockOp {
        name: "gather of 64-bit words",
        emit: |k, site, [a, b, c, _], _| {
            let from = k.and(c, THREADS as u32 - 1);
            fold(k, exchange::<u64>(k, site, wide(k, a, b), from))
        },
        eval: |_, words, _| {
            words
                .iter()
                .map(|w| {
                    let [lo, hi, ..] = words[thread_of(w[2])];
                    folded(wide_of(lo, hi))
                })
                .collect()
        },
    },
    BlockOp {
        name: "sums of neighbours by divergent halves",
        emit: |k, site, [a, b, ..], n| {
            let sum = k.var(b);
            k.store(k.at(site.shared, site.thread), a);
            k.sync_threads();
            k.if_else(
                k.lt(k.and(a, 0xff), n & 0xff),
                || k.add_to(sum, k.load(k.at(site.shared, k.xor(site.thread, 1)))),
                || k.add_to(sum, k.load(k.at(site.shared, k.xor(site.thread, 2)))),
            );
            k.sync_threads();
            k.var(sum)
        },
        eval: |_, words, n| {
            (0..words.len())
                .map(|t| {
                    let other = if words[t][0] & 0xff < n & 0xff { t ^ 1 } else { t ^ 2 };
                    words[t][1].wrapping_add(words[other][0])
                })
                .collect()
        },
    },
    BlockOp {
        name: "sum in a loop of data's length",
        emit: |k, site, [a, b, ..], _| {
            let sum = k.var(b);
            k.store(k.at(site.shared, site.thread), a);
            k.sync_threads();
            k.for_::<u32>(0, k.and(b, 7), 1, |i| {
                let from = k.and(k.add(site.thread, i), THREADS as u32 - 1);
                k.add_to(sum, k.load(k.at(site.shared, from)));
            });
            k.sync_threads();
            k.var(sum)
        },
        eval: |_, words, _| {
            (0..words.len())
                .map(|t| {
                    (0..words[t][1] as usize & 7)
                        .fold(words[t][1], |s, i| s.wrapping_add(words[(t + i) % THREADS][0]))
                })
                .collect()
        },
    },
];

/// Words that all threads contend for.
const CONTENDED: u32 = 32;

/// The value that an atomic leaves in memory.
fn apply(op: Atomic, old: u32, value: u32, signed: bool) -> u32 {
    let (a, b) = (old as i32, value as i32);
    match op {
        Atomic::Add => old.wrapping_add(value),
        Atomic::Min if signed => a.min(b) as u32,
        Atomic::Max if signed => a.max(b) as u32,
        Atomic::Min => old.min(value),
        Atomic::Max => old.max(value),
        Atomic::And => old & value,
        Atomic::Or => old | value,
        Atomic::Xor => old ^ value,
        Atomic::Exchange => value,
    }
}

/// All threads on few words of global memory; the table shows the result.
fn contend(k: &Kernel, site: &Site, [a, b, ..]: Regs, op: Atomic, signed: bool) -> Reg<u32> {
    let at = k.at(site.row, k.and(a, CONTENDED - 1));
    if signed {
        k.atomic::<Global, i32>(at.cast(), op, k.bits::<u32, i32>(b));
    } else {
        k.atomic(at, op, b);
    }
    b
}

fn contended(memory: &mut Memory<'_>, words: &[Words], op: Atomic, signed: bool) -> Vec<u32> {
    for w in words {
        let old = &mut memory.row[(w[0] % CONTENDED) as usize];
        *old = apply(op, *old, w[1], signed);
    }
    words.iter().map(|w| w[1]).collect()
}

/// All threads on few words of shared memory, which all read afterwards.
fn contend_shared(k: &Kernel, site: &Site, [a, b, ..]: Regs, op: Atomic, signed: bool) -> Reg<u32> {
    let mine = k.at(site.shared, site.thread);
    k.store(mine, k.load(k.at(site.row, site.thread)));
    k.sync_threads();
    let at = k.at(site.shared, k.and(a, CONTENDED - 1));
    if signed {
        k.atomic::<Shared, i32>(at.cast(), op, k.bits::<u32, i32>(b));
    } else {
        k.atomic(at, op, b);
    }
    k.sync_threads();
    let got = k.load(k.at(site.shared, k.and(site.thread, CONTENDED - 1)));
    k.sync_threads();
    got
}

fn contended_shared(memory: &mut Memory<'_>, words: &[Words], op: Atomic, signed: bool) -> Vec<u32> {
    let mut shared = memory.row.to_vec();
    for w in words {
        let old = &mut shared[(w[0] % CONTENDED) as usize];
        *old = apply(op, *old, w[1], signed);
    }
    (0..words.len()).map(|t| shared[t % CONTENDED as usize]).collect()
}

/// Each thread on its own word; what was there before is the result.
fn own(k: &Kernel, site: &Site, [a, ..]: Regs, op: Atomic, signed: bool) -> Reg<u32> {
    let at = k.at(site.row, site.thread);
    if signed {
        k.bits(k.atomic::<Global, i32>(at.cast(), op, k.bits::<u32, i32>(a)))
    } else {
        k.atomic(at, op, a)
    }
}

fn owned(memory: &mut Memory<'_>, words: &[Words], op: Atomic, signed: bool) -> Vec<u32> {
    let before = memory.row.to_vec();
    for (old, w) in memory.row.iter_mut().zip(words) {
        *old = apply(op, *old, w[0], signed);
    }
    before
}

macro_rules! atomics {
    ($($name:literal: $emit:ident $eval:ident $op:ident $signed:literal;)* others $($other:expr),*) => {
        &[
            $(BlockOp {
                name: $name,
                emit: |k, site, regs, _| $emit(k, site, regs, Atomic::$op, $signed),
                eval: |memory, words, _| $eval(memory, words, Atomic::$op, $signed),
            },)*
            $($other),*
        ]
    };
}

pub(super) const ATOMIC: &[BlockOp] = atomics! {
    "red.global.add.u32": contend contended Add false;
    "red.global.min.u32": contend contended Min false;
    "red.global.max.u32": contend contended Max false;
    "red.global.min.s32": contend contended Min true;
    "red.global.max.s32": contend contended Max true;
    "red.global.and.b32": contend contended And false;
    "red.global.or.b32": contend contended Or false;
    "red.global.xor.b32": contend contended Xor false;
    "atom.shared.add.u32": contend_shared contended_shared Add false;
    "atom.shared.min.u32": contend_shared contended_shared Min false;
    "atom.shared.max.s32": contend_shared contended_shared Max true;
    "atom.shared.and.b32": contend_shared contended_shared And false;
    "atom.shared.or.b32": contend_shared contended_shared Or false;
    "atom.shared.xor.b32": contend_shared contended_shared Xor false;
    "atom.global.add.u32": own owned Add false;
    "atom.global.min.u32": own owned Min false;
    "atom.global.max.u32": own owned Max false;
    "atom.global.min.s32": own owned Min true;
    "atom.global.max.s32": own owned Max true;
    "atom.global.and.b32": own owned And false;
    "atom.global.or.b32": own owned Or false;
    "atom.global.xor.b32": own owned Xor false;
    "atom.global.exch.b32": own owned Exchange false;
    others
    BlockOp {
        name: "atom.global.cas.b32",
        emit: |k, site, [a, b, ..], n| {
            // Half of the threads expect what is there.
            let at = k.at(site.row, site.thread);
            let old = k.load(at);
            let expected = k.select(k.lt(k.and(a, 0xff), n & 0xff), old, b);
            k.compare_and_swap(at, expected, a)
        },
        eval: |memory, words, n| {
            let before = memory.row.to_vec();
            for (old, w) in memory.row.iter_mut().zip(words) {
                let expected = if w[0] & 0xff < n & 0xff { *old } else { w[1] };
                if *old == expected {
                    *old = w[0];
                }
            }
            before
        },
    },
    BlockOp {
        name: "red.global.add.u64",
        emit: |k, site, [a, b, c, _], _| {
            let at: Pointer<Global, u64> = site.row.cast();
            k.atomic(k.at(at, k.and(c, CONTENDED - 1)), Atomic::Add, wide(k, a, b));
            c
        },
        eval: |memory, words, _| {
            for w in words {
                let at = 2 * (w[2] % CONTENDED) as usize;
                let sum = wide_of(memory.row[at], memory.row[at + 1]).wrapping_add(wide_of(w[0], w[1]));
                (memory.row[at], memory.row[at + 1]) = (sum as u32, (sum >> 32) as u32);
            }
            words.iter().map(|w| w[2]).collect()
        },
    }
};
