//! Rotation of a chunk of prompt tokens and the write into the pages of the key/value cache; and what makes caches
//! in f16 of them.

use ga10b_llm::CacheType;
use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::prompt::vector;
use hcq::LaunchConfig;

use crate::drive::OfModel;
use ga10b_tests::conformance::BufferNumber;
use ga10b_tests::conformance::Case;
use ga10b_tests::conformance::Tolerance;
use ga10b_tests::conformance::drive::{Drive, ROUNDED};

const HEADS: u32 = 4;
const KV_HEADS: u32 = 2;
const DIM: u32 = 32;
/// Pages of a cache, of which the sequence has two, in this order; the others' tables come first.
const PAGES: u32 = 3;
const TABLES: [u32; 5] = [u32::MAX, u32::MAX, u32::MAX, 2, 0];
const TABLE: u32 = 3;

/// All of them.
pub(super) fn cases() -> Vec<Case> {
    CacheType::ALL.into_iter().map(rotated).chain([expanded()]).collect()
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
}

/// Where the scales of a cache of `rows` rows are, if it has some.
fn scales_at(kv: CacheType, rows: u32) -> Option<u32> {
    (kv == CacheType::Q8_0).then_some(rows * DIM)
}

/// Tokens of a chunk, with one more in the grid than it has, and sums in two parts.
const TOKENS: u32 = 5;
const SHARES: u32 = 2;

/// Rotation of a chunk that begins on one page and ends on another.
fn rotated(kv: CacheType) -> Case {
    let (page, pitch) = (PAGE as u32, TOKENS + 1);
    let rows = PAGES * KV_HEADS * page;
    let config = LaunchConfig::new((1, TOKENS + 1), vector::ROPE_THREADS);
    Drive::of("prompt", &named("prompt_rope", kv), config).done(|d| vector::PromptRope {
        qkv: d.floats((SHARES * pitch * (HEADS + 2 * KV_HEADS) * DIM) as usize, 0.5),
        turns: d.words((0..DIM).map(|i: u32| i.wrapping_mul(0x1234_5677) >> 2).collect()),
        prompt: d.words(vec![page - 3, TOKENS, TABLE, 0, 1, 2, 3, 4, 5]),
        q: d.within(ROUNDED).room((pitch * HEADS * DIM / 2) as usize),
        keys: d.keys(kv, rows, ROUNDED),
        values: d.values(kv, rows, ROUNDED),
        heads: HEADS,
        kv_heads: KV_HEADS,
        half_dim: DIM / 2,
        tables: d.words(TABLES.to_vec()),
        shares: SHARES,
        share_pitch: pitch,
        factor: 0.5,
        scales_at: scales_at(kv, rows),
    })
}

/// Caches in f16 of caches in q8_0, of two pages, the second in part.
fn expanded() -> Case {
    let page = PAGE as u32;
    let rows = PAGES * KV_HEADS * page;
    let out = (2 * KV_HEADS * page * DIM / 2) as usize;
    let config = LaunchConfig::new((3, KV_HEADS, 2), vector::EXPAND_THREADS);
    Drive::of("prompt", "prompt_expand", config).done(|d| vector::Expand {
        keys: d.quantized((rows * DIM) as usize),
        values: d.quantized((rows * DIM) as usize),
        prompt: d.words(vec![page - 3, 70, TABLE, 0]),
        tables: d.words(TABLES.to_vec()),
        expanded_keys: d.room(out),
        expanded_values: d.room(out),
        kv_heads: KV_HEADS,
        head_dim: DIM,
        key_factor: 0.7,
        value_factor: 0.3,
        scales_at: rows * DIM,
    })
}
