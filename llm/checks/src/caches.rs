//! Rotation and the write into the key/value cache, of a step and of a chunk of prompt tokens, in one piece and in
//! pages; and what makes caches in f16 of them.

use ga10b_llm::CacheType;
use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::columns::chunks;
use ga10b_llm::kernels::operations::rope;
use ga10b_llm::kernels::prompt::vector;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::BufferNumber;
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
trait Cached {
    /// A cache of `rows` rotated keys that the kernel writes to, which are within `halves` in f16.
    fn keys(&mut self, kv: CacheType, rows: u32, halves: Tolerance) -> BufferNumber;

    /// The same of values as they are.
    fn values(&mut self, kv: CacheType, rows: u32, halves: Tolerance) -> BufferNumber;

    /// A cache of `rows` keys or values that the kernel reads.
    fn cached(&mut self, kv: CacheType, rows: u32) -> BufferNumber;
}

impl Cached for Drive {
    fn keys(&mut self, kv: CacheType, rows: u32, halves: Tolerance) -> BufferNumber {
        if kv == CacheType::Q8_0 {
            self.within_codes((rows * DIM) as usize);
        }
        self.values(kv, rows, halves)
    }

    fn values(&mut self, kv: CacheType, rows: u32, halves: Tolerance) -> BufferNumber {
        let values = (rows * DIM) as usize;
        match kv {
            CacheType::F16 => self.within(halves).room(values / 2),
            CacheType::Q8_0 => self.quantized_room(values),
        }
    }

    fn cached(&mut self, kv: CacheType, rows: u32) -> BufferNumber {
        let values = (rows * DIM) as usize;
        match kv {
            CacheType::F16 => self.halves(values, 1.0),
            CacheType::Q8_0 => self.quantized(values),
        }
    }
}

/// Where the scales of a cache of `rows` rows are, if it has some.
fn scales_at(kv: CacheType, rows: u32) -> Option<u32> {
    (kv == CacheType::Q8_0).then_some(rows * DIM)
}

/// One token at position 19.
fn of_step(kv: CacheType) -> Case {
    let mut noise = Noise::new(5);
    let (rows, halves) = (KV_HEADS * CONTEXT, Tolerance::Halves { ulps: 1, absolute: 2e-3 });
    Drive::of("vector", &named("rope_cache", kv), LaunchConfig::new(2, 128)).done(|d| rope::RopeCache {
        qkv: d.within(MILLIONTH).floats(((HEADS + 2 * KV_HEADS) * DIM) as usize, 1.0),
        turns: d.words((0..DIM).map(|_| noise.bits() >> 3).collect()),
        state: d.words(vec![19, 0, 0, 0]),
        keys: d.keys(kv, rows, halves),
        values: d.values(kv, rows, halves),
        heads: HEADS,
        kv_heads: KV_HEADS,
        half_dim: DIM / 2,
        context: CONTEXT,
        scales_at: scales_at(kv, rows),
    })
}

/// Tokens of a chunk, with one more in the grid than it has, and sums in two parts.
const TOKENS: u32 = 5;
const SHARES: u32 = 2;

/// Rotation of a chunk that begins at `place`, and its table there, into caches of `rows` rows.
fn rotated(drive: Drive, kv: CacheType, [start, table]: [u32; 2], rows: u32, paged: bool) -> Case {
    let pitch = TOKENS + 1;
    drive.done(|d| vector::PromptRope {
        qkv: d.floats((SHARES * pitch * (HEADS + 2 * KV_HEADS) * DIM) as usize, 0.5),
        turns: d.words((0..DIM).map(|i: u32| i.wrapping_mul(0x1234_5677) >> 2).collect()),
        prompt: d.words(vec![start, TOKENS, table, 0, 1, 2, 3, 4, 5]),
        q: d.within(ROUNDED).room((pitch * HEADS * DIM / 2) as usize),
        keys: d.keys(kv, rows, ROUNDED),
        values: d.values(kv, rows, ROUNDED),
        heads: HEADS,
        kv_heads: KV_HEADS,
        half_dim: DIM / 2,
        context: (!paged).then_some(CONTEXT),
        tables: paged.then(|| d.words(TABLES.to_vec())),
        shares: SHARES,
        share_pitch: pitch,
        factor: 0.5,
        scales_at: scales_at(kv, rows),
    })
}

/// A chunk at position 9.
fn of_chunk(kv: CacheType) -> Case {
    let config = LaunchConfig::new((1, TOKENS + 1), vector::ROPE_THREADS);
    let drive = Drive::of("prompt", &named("prompt_rope", kv), config);
    rotated(drive, kv, [9, 0], KV_HEADS * CONTEXT, false)
}

/// A chunk that begins on one page and ends on another.
fn of_pages(kv: CacheType) -> Case {
    let (page, config) = (PAGE as u32, LaunchConfig::new((1, TOKENS + 1), vector::ROPE_THREADS));
    let drive = Drive::of(chunks::NAME, &named("prompt_rope_pages", kv), config);
    rotated(drive, kv, [page - 3, TABLE], PAGES * KV_HEADS * page, true)
}

/// A copy in one piece of what two pages hold, the second in part.
fn gathered(kv: CacheType) -> Case {
    let page = PAGE as u32;
    let (rows, context) = (PAGES * KV_HEADS * page, page + 80);
    let out = (KV_HEADS * context * DIM / 2) as usize;
    let config = LaunchConfig::new((3, KV_HEADS, 2), chunks::GATHER_THREADS);
    let quantized = kv == CacheType::Q8_0;
    Drive::of(chunks::NAME, &named("prompt_gather", kv), config).called("from pages").done(|d| {
        chunks::Gather {
            keys: d.cached(kv, rows),
            values: d.cached(kv, rows),
            prompt: d.words(vec![page - 3, 70, TABLE, 0]),
            tables: d.words(TABLES.to_vec()),
            out_keys: d.room(out),
            out_values: d.room(out),
            kv_heads: KV_HEADS,
            context,
            head_dim: DIM,
            key_factor: quantized.then_some(0.7),
            value_factor: quantized.then_some(0.3),
            scales_at: scales_at(kv, rows),
        }
    })
}

/// Caches in f16 of caches in q8_0, up to position 30.
fn expanded() -> Case {
    let rows = KV_HEADS * CONTEXT;
    let out = (rows * DIM / 2) as usize;
    let config = LaunchConfig::new((3, KV_HEADS, 2), vector::EXPAND_THREADS);
    Drive::of("prompt", "prompt_expand", config).done(|d| vector::Expand {
        keys: d.cached(CacheType::Q8_0, rows),
        values: d.cached(CacheType::Q8_0, rows),
        prompt: d.words(vec![9, 21, 0, 0]),
        expanded_keys: d.room(out),
        expanded_values: d.room(out),
        context: CONTEXT,
        head_dim: DIM,
        key_factor: 0.7,
        value_factor: 0.3,
        scales_at: rows * DIM,
    })
}
