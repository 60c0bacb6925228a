//! The entries of a chunk sorted by expert.

use ptxgen::{Cache, Kernel, Ptr, Reg, Special, kernel_params};

use crate::kernels::prompt::chunk::COUNT_AT;

/// Threads of a block, which takes one expert.
pub const THREADS: u32 = 256;
const WARPS: u32 = THREADS / 32;
/// Entries that a lane looks at together.
const TOGETHER: u32 = 4;

kernel_params! {
    /// `prompt_gather`: counts the entries of each expert. Those of expert e have rows `starts[e]` to before
    /// `starts[e + 1]`, in the order of tokens; `tokens[row]` is the token of an entry, and `rows[token ·
    /// used + place]` the row of it. Grid: experts.
    ///
    /// A warp takes an equal part of all entries and looks at it twice: to count, and to place.
    pub struct Gather {
        chosen: Ptr<u32, 16>, prompt: Ptr<u32, 16>, starts: Ptr<u32, 16>, tokens: Ptr<u32, 16>,
        rows: Ptr<u32, 16>,
        experts: u32, used: u32,
    }
}

pub(crate) fn kernel() -> Kernel {
    let k = Kernel::new("prompt_gather");
    k.max_threads(THREADS);
    let p = Gather::declare(&k);
    let [owns, before] = [(); 2].map(|()| k.shared::<u32>(WARPS));
    let (tid, lane, expert) =
        (k.special(Special::TidX), k.special(Special::LaneId), k.special(Special::CtaidX));
    let warp = k.shr(tid, 5);
    let entries = k.mul(k.load(p.prompt.plus(COUNT_AT)), p.used);
    let round = 32 * TOGETHER;
    let rounds = k.shr(k.add(entries, WARPS * round - 1), (WARPS * round).trailing_zeros());
    let part = k.mul(rounds, round);
    let begin = k.min(k.mul(warp, part), entries);
    let end = k.min(k.add(begin, part), entries);
    let last = k.sub(entries, 1);
    // The entries of the lane in a round, and the experts that they have chosen.
    let look = |first: Reg<u32>| -> Vec<(Reg<u32>, Reg<u32>)> {
        let entries = (0..TOGETHER).map(|i| k.add(k.add(first, 32 * i), lane));
        let load = |entry: Reg<u32>| {
            let found = k.load_with(k.at(p.chosen, k.min(entry, last)), 1, Cache::ReadOnly)[0];
            (entry, k.select(k.lt(entry, end), found, u32::MAX))
        };
        entries.map(load).collect()
    };
    let [own, less] = [(); 2].map(|()| k.var(0u32));
    k.for_(begin, end, round, |first: Reg<u32>| {
        for (_, found) in look(first) {
            k.add_to(own, k.popc(k.ballot(k.eq(found, expert))));
            k.add_to(less, k.popc(k.ballot(k.lt(found, expert))));
        }
    });
    k.if_(k.eq(lane, 0), || {
        k.store(k.at(owns, warp), own);
        k.store(k.at(before, warp), less);
    });
    k.sync_threads();
    let counts = k.load_with(owns, WARPS, Cache::Default);
    let start = k.load_with(before, WARPS, Cache::Default).into_iter().reduce(|a, b| k.add(a, b));
    let (start, at) = (start.unwrap_or(less), k.var(0u32));
    k.set(at, start);
    let all = k.var(start);
    for (i, count) in (0u32..).zip(counts) {
        k.add_to(at, k.select(k.gt(warp, i), count, 0u32));
        k.add_to(all, count);
    }
    k.if_(k.eq(tid, 0), || {
        k.store(k.at(p.starts, expert), start);
        let next = k.add(expert, 1);
        k.if_(k.eq(next, p.experts), || k.store(k.at(p.starts, next), all));
    });
    let lanes_below = k.sub(k.shl(k.var(1u32), lane), 1);
    k.for_(begin, end, round, |first: Reg<u32>| {
        for (entry, found) in look(first) {
            let mine = k.eq(found, expert);
            let same = k.ballot(mine);
            k.if_(mine, || {
                let row = k.add(at, k.popc(k.and(same, lanes_below)));
                k.store(k.at(p.tokens, row), k.div(entry, p.used));
                k.store(k.at(p.rows, entry), row);
            });
            k.add_to(at, k.popc(same));
        }
    });
    k
}
