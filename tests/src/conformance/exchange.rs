//! Exchange beside plain loads and stores: rings that asynchronous and bulk copies fill, packets of 128 bits
//! between blocks, named barriers, reductions and byte products. The CPU says what is right.
//!
//! Code for the ga10b fills its rings by `cp.async`, code for Hopper by bulk copies too; both do the same.

use hcq::LaunchConfig;
use ptxgen::{
    ByteA, ByteB, Cache, Evict, IntAccumulator, Kernel, Mbarrier, Module, Named, Permute, Pointer, Poll,
    Reduce, Reg, Shared, Special, Target,
};

use crate::conformance::case::{Arg, Case, Place};
use crate::conformance::cubins::cubins;
use crate::conformance::noise::Noise;
use crate::conformance::tolerance::Tolerance;

/// The writer of a ring.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fill {
    /// A warp of `cp.async`, and arrivals that wait for them.
    Asynchronous,
    /// Bulk copies of one thread.
    Bulk,
}

/// Warps that read a ring; one more fills it.
const READERS: u32 = 4;
const SLOTS: u32 = 3;
const SLOT_BYTES: u32 = 1024;
/// Slots' contents that a block reads.
const FILLS: u32 = 20;
const RING_BLOCKS: u32 = 6;
/// The factor of a reader's result before it adds a word.
const FACTOR: u32 = 0x0101_0107;

/// Rounds of the exchange of packets, and of named barriers.
const ROUNDS: u32 = 60;
/// Words of other kernels' inputs and outputs per thread.
const WORDS: usize = 8;
const RESULTS: usize = 16;
const BLOCKS: u32 = 8;
const BLOCK: u32 = 64;

const MODES: [Permute; 6] = [
    Permute::Forward,
    Permute::Backward,
    Permute::Byte,
    Permute::ClampLeft,
    Permute::ClampRight,
    Permute::Half,
];

/// The way in which code for `target` waits for a phase.
fn poll(target: Target) -> Poll {
    if target >= Target::Sm90 { Poll::Try } else { Poll::Sleep(20) }
}

/// The module that is committed for `target`.
pub(super) fn module(target: Target) -> Named {
    let mut module = Module::new(target);
    module.add(ring("ring_async", Fill::Asynchronous, poll(target)));
    let fill = if target >= Target::Sm90 { Fill::Bulk } else { Fill::Asynchronous };
    module.add(ring("ring", fill, poll(target)));
    module.add(packets());
    module.add(named());
    module.add(words());
    module.add(products());
    Named { name: "exchange".to_owned(), module }
}

/// The objects of slot `slot`: full, and empty.
#[derive(Clone, Copy)]
struct Ring {
    slots: Pointer<Shared, u8>,
    full: Pointer<Shared, Mbarrier>,
    empty: Pointer<Shared, Mbarrier>,
}

/// Goes through the ring's fills: `body` gets the number, the slot and its parity.
fn each_fill(k: &Kernel, body: impl FnOnce(Reg<u32>, Reg<u32>, Reg<u32>)) {
    let (slot, parity) = (k.var(0u32), k.var(0u32));
    k.for_(0u32, FILLS, 1u32, |fill| {
        body(fill, slot, parity);
        k.add_to(slot, 1u32);
        k.if_(k.eq(slot, SLOTS), || {
            k.set(slot, 0u32);
            k.set(parity, k.xor(parity, 1u32));
        });
    });
}

/// A block of readers folds what one warp copies to shared memory for them, slot by slot.
fn ring(name: &str, fill: Fill, poll: Poll) -> Kernel {
    let k = Kernel::new(name);
    k.max_threads(32 * (READERS + 1));
    let (data, out) = (k.param_ptr::<u8>("data", 16), k.param_ptr::<u32>("out", 16));
    let ring = Ring { slots: k.shared(SLOTS * SLOT_BYTES), full: k.shared(SLOTS), empty: k.shared(SLOTS) };
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let warp = k.shr(tid, 5);
    k.if_(k.eq(tid, 0), || {
        for slot in 0..i64::from(SLOTS) {
            k.init_mbarrier(ring.full.plus(slot), if fill == Fill::Bulk { 1u32 } else { 32u32 });
            k.init_mbarrier(ring.empty.plus(slot), READERS);
        }
        if fill == Fill::Bulk {
            k.fence_mbarrier_init();
        }
    });
    k.sync_threads();
    let block = k.special(Special::CtaidX);
    let data = k.at_stride(data, block, FILLS * SLOT_BYTES);
    k.if_else(
        k.eq(warp, READERS),
        || {
            let policy = k.policy(Evict::First, 1.0);
            each_fill(&k, |number, slot, parity| {
                let (full, from) = (k.at(ring.full, slot), k.at_stride(data, number, SLOT_BYTES));
                let to = k.at_stride(ring.slots, slot, SLOT_BYTES);
                k.wait_phase(k.at(ring.empty, slot), k.xor(parity, 1u32), poll);
                match fill {
                    Fill::Bulk => k.if_(k.elect(), || {
                        k.arrive_expecting(full, SLOT_BYTES);
                        // In two unequal parts.
                        k.copy_bulk(to, from, 96, full, Some(policy));
                        k.copy_bulk(to.plus(96), from.plus(96), SLOT_BYTES - 96, full, None);
                    }),
                    Fill::Asynchronous => {
                        let part = k.scale(lane, 16);
                        for half in [0, 512] {
                            let (to, from) = (k.at(to, part).plus(half), k.at(from, part).plus(half));
                            k.copy_async_with(to, from, 16, (half == 0).then_some(policy));
                        }
                        k.arrive_after_copies(full);
                    }
                }
                k.sync_warp();
            });
        },
        || {
            let sum = k.var(0u32);
            each_fill(&k, |_, slot, parity| {
                k.wait_phase(k.at(ring.full, slot), parity, poll);
                let mine = k.at_stride(k.at_stride(ring.slots, slot, SLOT_BYTES), tid, 8);
                let words = k.load_n::<2, _, _>(mine.cast::<u32>(), Cache::Default);
                k.sync_warp();
                k.if_(k.eq(lane, 0), || k.arrive(k.at(ring.empty, slot)));
                for word in words {
                    k.mad_to(sum, sum, FACTOR, word);
                }
            });
            k.store(k.at(out, k.mad(block, 32 * READERS, tid)), sum);
        },
    );
    k
}

/// Two blocks answer each other's packets: three words that belong together and the number of the round.
fn packets() -> Kernel {
    let k = Kernel::new("packets");
    let (mail, out) = (k.param_ptr::<u32>("mail", 16), k.param_ptr::<u32>("out", 16));
    let (block, tid) = (k.special(Special::CtaidX), k.special(Special::TidX));
    let own = k.at(mail, k.scale(k.mad(block, 32u32, tid), 4));
    let other = k.at(mail, k.scale(k.mad(k.xor(block, 1u32), 32u32, tid), 4));
    let (value, torn) = (k.var(k.mad(block, 32u32, tid)), k.var(0u32));
    k.for_(1u32, ROUNDS + 1, 1u32, |round| {
        k.store_relaxed_b128(own, [value, k.mul(value, 3u32), k.not(value), round]);
        let come = k.var(0u32);
        k.loop_(|wait| {
            let packet = k.load_relaxed_b128(other);
            let whole = k.both(k.eq(packet[1], k.mul(packet[0], 3u32)), k.eq(packet[2], k.not(packet[0])));
            // Before the first round the mail is empty.
            let arrived = k.ne(packet[3], 0);
            let broken = k.both(arrived, k.unless(whole));
            k.add_to(torn, k.select::<u32>(broken, 1u32, 0u32));
            k.set(come, packet[0]);
            k.break_if(wait, k.ge(packet[3], round));
            k.sleep(20);
        });
        k.set(value, k.mad(value, FACTOR, come));
        // A packet is not written again before the other block has read it.
        k.store_relaxed_b128(own.plus(256), [round, round, round, round]);
        k.loop_(|wait| {
            k.break_if(wait, k.ge(k.load_relaxed_b128(other.plus(256))[0], round));
            k.sleep(20);
        });
    });
    let at = k.at(out, k.scale(k.mad(block, 32u32, tid), 2));
    k.store_n(at, &[value, torn]);
    k
}

/// Warps that arrive at a named barrier; one more waits there.
const GIVERS: u32 = 5;

/// The last warp sums what the others stored, who go on meanwhile, one round ahead at most.
fn named() -> Kernel {
    let k = Kernel::new("named_barriers");
    k.max_threads(32 * (GIVERS + 1));
    let out = k.param_ptr::<u32>("out", 16);
    let parts = k.shared::<u32>(2 * 32 * GIVERS);
    let (tid, lane) = (k.special(Special::TidX), k.special(Special::LaneId));
    let threads = 32 * (GIVERS + 1);
    k.if_else(
        k.ge(tid, 32 * GIVERS),
        || {
            let sum = k.var(0u32);
            k.for_(0u32, ROUNDS, 1u32, |round| {
                let side = k.and(round, 1u32);
                k.sync_named(k.add(side, 1u32), threads);
                for warp in 0..GIVERS {
                    let place = k.mad(side, 32 * GIVERS, k.add(lane, 32 * warp));
                    k.mad_to(sum, sum, FACTOR, k.load(k.at(parts, place)));
                }
                k.arrive_named(k.add(side, 3u32), threads);
            });
            k.store(k.at(out, lane), sum);
        },
        || {
            k.for_(0u32, ROUNDS, 1u32, |round| {
                let side = k.and(round, 1u32);
                k.if_(k.ge(round, 2u32), || k.sync_named(k.add(side, 3u32), threads));
                k.store(k.at(parts, k.mad(side, 32 * GIVERS, tid)), k.mad(round, 1000u32, tid));
                k.arrive_named(k.add(side, 1u32), threads);
            });
            // The last two rounds are read while these warps wait.
            k.sync_named(3u32, threads);
            k.sync_named(4u32, threads);
        },
    );
    k
}

/// Reductions, permutations and signed bytes of words that are loaded with policies.
fn words() -> Kernel {
    let k = Kernel::new("words");
    let (input, out) = (k.param_ptr::<u32>("input", 16), k.param_ptr::<u32>("out", 16));
    let i = k.mad(k.special(Special::CtaidX), BLOCK, k.special(Special::TidX));
    let from = k.at_stride(input, i, 4 * WORDS as u32);
    k.prefetch(from);
    let [a, b, c, d] = k.load_hinted::<4, _>(from, Cache::Stream, k.policy(Evict::Last, 0.5));
    let [e] = k.load_hinted::<1, _>(from.plus(4), Cache::Default, k.policy(Evict::First, 1.0));
    let mut results = vec![k.reduce(a, Reduce::Add), k.reduce(b, Reduce::Min), k.reduce(b, Reduce::Max)];
    for how in [Reduce::Add, Reduce::Min, Reduce::Max] {
        results.push(k.bits(k.reduce(k.bits::<_, i32>(c), how)));
    }
    results.extend(MODES.map(|mode| k.permute(mode, d, e, k.and(a, 3u32))));
    results.extend((0..4).map(|byte| k.bits(k.signed_byte(d, byte))));
    k.store_n(k.at_stride(out, i, 4 * RESULTS as u32), &results);
    k
}

/// A product of byte matrices per warp: eight words of factors and accumulators per lane.
fn products() -> Kernel {
    let k = Kernel::new("byte_products");
    let (input, out) = (k.param_ptr::<u32>("input", 16), k.param_ptr::<u32>("out", 16));
    let i = k.mad(k.special(Special::CtaidX), BLOCK, k.special(Special::TidX));
    let from = k.at_stride(input, i, 4 * WORDS as u32);
    let [a, b] = [0, 4].map(|at| k.load_n::<4, _, _>(from.plus(at), Cache::Default));
    let sum = IntAccumulator(std::array::from_fn(|i| k.var(k.bits::<_, i32>(b[i]))));
    k.multiply_bytes(sum, ByteA(a), ByteB([b[2], b[3]]));
    k.store_n(k.at_stride(out, i, 16), &sum.0.map(|sum| k.bits(sum)));
    k
}

/// All kernels.
pub fn cases() -> Vec<Case> {
    vec![
        ring_case("ring_async"),
        ring_case("ring"),
        packets_case(),
        named_case(),
        words_case(),
        products_case(),
    ]
}

fn fold(words: impl Iterator<Item = u32>) -> u32 {
    words.fold(0, |sum, word| sum.wrapping_mul(FACTOR).wrapping_add(word))
}

/// A case of `kernel` whose last buffer is what is expected.
fn case(kernel: &'static str, config: LaunchConfig, mut buffers: Vec<Vec<u32>>, expected: Vec<u32>) -> Case {
    let output = buffers.len();
    let known = expected.iter().copied().map(Some).collect();
    let mut all: Vec<Vec<Option<u32>>> = buffers.iter().map(|b| vec![None; b.len()]).collect();
    all.push(known);
    buffers.push(vec![0xdead_beef; expected.len()]);
    Case {
        family: "exchange",
        program: kernel.to_owned(),
        seed: 0,
        cubins: cubins!("../../kernels/conformance/exchange"),
        kernel: kernel.to_owned(),
        config,
        launches: vec![(0..buffers.len()).map(|number| Arg::Buffer(number, 0)).collect()],
        buffers,
        expected: Some(all),
        place: Box::new(move |buffer, word| {
            let what = if buffer == output { "result" } else { "input" };
            Some(Place { what: format!("{what} {word}"), tolerance: Tolerance::Exact })
        }),
        ..Case::blank()
    }
}

fn ring_case(kernel: &'static str) -> Case {
    let mut noise = Noise::new(1);
    let per_block = (FILLS * SLOT_BYTES / 4) as usize;
    let data: Vec<u32> = (0..per_block * RING_BLOCKS as usize).map(|_| noise.bits()).collect();
    let slot = (SLOT_BYTES / 4) as usize;
    let expected = data.chunks(per_block).flat_map(|block| {
        (0..32 * READERS as usize)
            .map(move |thread| fold(block.chunks(slot).flat_map(|s| [s[2 * thread], s[2 * thread + 1]])))
    });
    let config = LaunchConfig::new(RING_BLOCKS, 32 * (READERS + 1));
    let expected = expected.collect();
    case(kernel, config, vec![data], expected)
}

fn packets_case() -> Case {
    let mut values: Vec<[u32; 2]> = (0..32).map(|lane| [lane, 32 + lane]).collect();
    for _ in 0..ROUNDS {
        for [a, b] in &mut values {
            let next = |own: u32, other: u32| own.wrapping_mul(FACTOR).wrapping_add(other);
            (*a, *b) = (next(*a, *b), next(*b, *a));
        }
    }
    let expected = (0..2).flat_map(|side| values.iter().flat_map(move |pair| [pair[side], 0])).collect();
    let mut case = case("packets", LaunchConfig::new(2, 32), vec![vec![0; 512]], expected);
    // The mail's content at the end is no result.
    case.place = Box::new(|buffer, word| {
        let what = format!("result {word}");
        (buffer == 1).then_some(Place { what, tolerance: Tolerance::Exact })
    });
    case
}

fn named_case() -> Case {
    let parts = |lane: u32| {
        (0..ROUNDS).flat_map(move |round| (0..GIVERS).map(move |warp| round * 1000 + 32 * warp + lane))
    };
    let expected = (0..32).map(|lane| fold(parts(lane))).collect();
    case("named_barriers", LaunchConfig::new(1, 32 * (GIVERS + 1)), vec![], expected)
}

/// Inputs of the kernels with one row per thread.
fn rows(seed: u64) -> Vec<u32> {
    let mut noise = Noise::new(seed);
    (0..(BLOCKS * BLOCK) as usize * WORDS).map(|_| noise.bits()).collect()
}

/// The result of a mode of `prmt` for the pair `b:a`.
fn permuted(mode: Permute, a: u32, b: u32, selector: u32) -> u32 {
    let s = selector as usize & 3;
    let pair = [a.to_le_bytes(), b.to_le_bytes()].concat();
    let bytes: [usize; 4] = std::array::from_fn(|i| match mode {
        Permute::Forward => s + i,
        Permute::Backward => (8 + s - i) % 8,
        Permute::Byte => s,
        Permute::ClampLeft => i.max(s),
        Permute::ClampRight => i.min(s),
        Permute::Half => 2 * (s % 2) + i % 2,
    });
    u32::from_le_bytes(bytes.map(|at| pair[at]))
}

fn words_case() -> Case {
    let input = rows(2);
    let warps = input.chunks(32 * WORDS).flat_map(|warp| {
        let column = |n: usize| warp.chunks(WORDS).map(move |row| row[n]);
        let signed = || column(2).map(|x| x as i32);
        let common = [
            column(0).fold(0, u32::wrapping_add),
            column(1).fold(u32::MAX, u32::min),
            column(1).fold(0, u32::max),
            signed().fold(0, i32::wrapping_add) as u32,
            signed().fold(i32::MAX, i32::min) as u32,
            signed().fold(i32::MIN, i32::max) as u32,
        ];
        warp.chunks(WORDS).flat_map(move |row| {
            let bytes = row[3].to_le_bytes().map(|byte| byte as i8 as u32);
            let modes = MODES.map(|mode| permuted(mode, row[3], row[4], row[0]));
            common.into_iter().chain(modes).chain(bytes)
        })
    });
    let expected = warps.collect();
    case("words", LaunchConfig::new(BLOCKS, BLOCK), vec![input], expected)
}

fn products_case() -> Case {
    let input = rows(3);
    let byte = |word: u32, n: usize| i32::from(word.to_le_bytes()[n] as i8);
    let warps = input.chunks(32 * WORDS).flat_map(|warp| {
        let word = move |lane: usize, n: usize| warp[lane * WORDS + n];
        // Column k of a row of A, row k of a column of B: which lane holds it, in which word, in which byte.
        let a =
            move |row: usize, k: usize| byte(word(row % 8 * 4 + k % 16 / 4, row / 8 + 2 * (k / 16)), k % 4);
        let b = move |k: usize, column: usize| byte(word(column * 4 + k % 16 / 4, 6 + k / 16), k % 4);
        (0..32).flat_map(move |lane| {
            (0..4).map(move |i| {
                let (row, column) = (lane / 4 + 8 * (i / 2), lane % 4 * 2 + i % 2);
                let product: i32 = (0..32).map(|k| a(row, k) * b(k, column)).sum();
                product.wrapping_add(word(lane, 4 + i) as i32) as u32
            })
        })
    });
    let expected = warps.collect();
    case("byte_products", LaunchConfig::new(BLOCKS, BLOCK), vec![input], expected)
}
