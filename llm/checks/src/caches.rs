//! Rotation and the write into the key/value cache, of a step and of a chunk of prompt tokens, in one piece and in
//! pages; and what makes caches in f16 of them.

use ga10b_llm::CacheType;
use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::columns::chunks;
use ga10b_llm::kernels::prompt::vector;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Noise;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{Drive, MILLIONTH, ROUNDED};

const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const DIM: u32 = 32;
/// Positions of a cache in one piece.
const CONTEXT: u32 = 40;
/// Pages of a cache, of which the sequence has two, in this order; the others' tables come first.
const PAGES: u32 = 3;
const TABLES: [u32; 5] = [u32::MAX, u32::MAX, u32::MAX, 2, 0];
const TABLE: u32 = 3;

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    let of_type = |kv| [of_step(kv), of_chunk(kv), of_pages(kv), gathered(kv)];
    let mut cases: Vec<Case> = CacheType::ALL.into_iter().flat_map(of_type).collect();
    cases.push(expanded());
    cases
}

fn named(kernel: &str, kv: CacheType) -> String {
    let suffix = match kv {
        CacheType::F16 => "",
        CacheType::Q8_0 => "_q8_0",
    };
    format!("{kernel}{suffix}")
}

/// The caches of both types.
trait Cached: Sized {
    /// Caches of `rows` keys and values that the kernel writes to: rotated keys, and values as they are, which are
    /// within `halves` in f16.
    fn written(self, kv: CacheType, rows: u32, halves: Tolerance) -> Self;

    /// Caches of `rows` keys and values that the kernel reads.
    fn cached(self, kv: CacheType, rows: u32) -> Self;

    /// Offset of the scales of a cache of `rows` rows, if it has some.
    fn scales_at(self, kv: CacheType, rows: u32) -> Self;
}

impl Cached for Drive {
    fn written(self, kv: CacheType, rows: u32, halves: Tolerance) -> Self {
        let values = (rows * DIM) as usize;
        match kv {
            CacheType::F16 => self.room(values / 2).within(halves).room(values / 2).within(halves),
            CacheType::Q8_0 => self.quantized_room(values).within_codes(values).quantized_room(values),
        }
    }

    fn cached(self, kv: CacheType, rows: u32) -> Self {
        let values = (rows * DIM) as usize;
        match kv {
            CacheType::F16 => self.halves(values, 1.0).halves(values, 1.0),
            CacheType::Q8_0 => self.quantized(values).quantized(values),
        }
    }

    fn scales_at(self, kv: CacheType, rows: u32) -> Self {
        if kv == CacheType::Q8_0 { self.u32(rows * DIM) } else { self }
    }
}

/// One token at position 19.
fn of_step(kv: CacheType) -> Case {
    let mut noise = Noise::new(5);
    let (rows, halves) = (KV_HEADS * CONTEXT, Tolerance::Halves { ulps: 1, absolute: 2e-3 });
    Drive::of("vector", &named("rope_cache", kv), LaunchConfig::new(2, 128))
        .floats(((HEADS + 2 * KV_HEADS) * DIM) as usize, 1.0)
        .within(MILLIONTH)
        .words((0..DIM).map(|_| noise.bits() >> 3).collect())
        .words(vec![19, 0, 0, 0])
        .written(kv, rows, halves)
        .u32(HEADS)
        .u32(KV_HEADS)
        .u32(DIM / 2)
        .u32(CONTEXT)
        .scales_at(kv, rows)
        .done()
}

/// Tokens of a chunk, with one more in the grid than it has, and sums in two parts.
const TOKENS: u32 = 5;
const SHARES: u32 = 2;

/// The rotation of a chunk from position `start` on, and the queries.
fn rotated(module: &str, kernel: &str, start: u32, table: u32) -> Drive {
    let pitch = TOKENS + 1;
    Drive::of(module, kernel, LaunchConfig::new((1, pitch), vector::ROPE_THREADS))
        .floats((SHARES * pitch * (HEADS + 2 * KV_HEADS) * DIM) as usize, 0.5)
        .words((0..DIM).map(|i: u32| i.wrapping_mul(0x1234_5677) >> 2).collect())
        .words(vec![start, TOKENS, table, 0, 1, 2, 3, 4, 5])
        .room((pitch * HEADS * DIM / 2) as usize)
        .within(ROUNDED)
}

/// A chunk at position 9.
fn of_chunk(kv: CacheType) -> Case {
    let rows = KV_HEADS * CONTEXT;
    rotated("prompt", &named("prompt_rope", kv), 9, 0)
        .written(kv, rows, ROUNDED)
        .u32(HEADS)
        .u32(KV_HEADS)
        .u32(DIM / 2)
        .u32(CONTEXT)
        .u32(SHARES)
        .u32(TOKENS + 1)
        .f32(0.5)
        .scales_at(kv, rows)
        .done()
}

/// A chunk that begins on one page and ends on another.
fn of_pages(kv: CacheType) -> Case {
    let page = PAGE as u32;
    let rows = PAGES * KV_HEADS * page;
    rotated(chunks::NAME, &named("prompt_rope_pages", kv), page - 3, TABLE)
        .written(kv, rows, ROUNDED)
        .u32(HEADS)
        .u32(KV_HEADS)
        .u32(DIM / 2)
        .words(TABLES.to_vec())
        .u32(SHARES)
        .u32(TOKENS + 1)
        .f32(0.5)
        .scales_at(kv, rows)
        .done()
}

/// A copy in one piece of what two pages hold, the second in part.
fn gathered(kv: CacheType) -> Case {
    let page = PAGE as u32;
    let (rows, context) = (PAGES * KV_HEADS * page, page + 80);
    let out = (KV_HEADS * context * DIM / 2) as usize;
    let config = LaunchConfig::new((3, KV_HEADS, 2), chunks::GATHER_THREADS);
    let drive = Drive::of(chunks::NAME, &named("prompt_gather", kv), config)
        .called("from pages")
        .cached(kv, rows)
        .words(vec![page - 3, 70, TABLE, 0])
        .words(TABLES.to_vec())
        .room(out)
        .room(out)
        .u32(KV_HEADS)
        .u32(context)
        .u32(DIM);
    let drive = if kv == CacheType::Q8_0 { drive.f32(0.7).f32(0.3) } else { drive };
    drive.scales_at(kv, rows).done()
}

/// Caches in f16 of caches in q8_0, up to position 30.
fn expanded() -> Case {
    let rows = KV_HEADS * CONTEXT;
    let out = (rows * DIM / 2) as usize;
    let config = LaunchConfig::new((3, KV_HEADS, 2), vector::EXPAND_THREADS);
    Drive::of("prompt", "prompt_expand", config)
        .cached(CacheType::Q8_0, rows)
        .words(vec![9, 21, 0, 0])
        .room(out)
        .room(out)
        .u32(CONTEXT)
        .u32(DIM)
        .f32(0.7)
        .f32(0.3)
        .u32(rows * DIM)
        .done()
}
