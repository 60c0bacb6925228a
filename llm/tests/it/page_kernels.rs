//! The kernels that chunks of prompts use on pages, against those for a cache in one piece, bit by bit.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use std::ops::Range;

use ga10b_llm::CacheType;
use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::columns::chunks::{GATHER_THREADS, Gather, NAME};
use ga10b_llm::kernels::prompt::chunk::TABLE_AT;
use ga10b_llm::kernels::prompt::vector::{EXPAND_THREADS, Expand, PromptRope, ROPE_THREADS};
use half::f16;
use hcq::{Buffer, LaunchConfig};
use proptest::prelude::*;

use crate::device::{
    Random, chunk, config, floats, frequencies, halves, launch, read_bytes, steps, upload, words,
};

/// Random caches of one size, with scales that are numbers: keys and values.
struct Caches {
    kv: CacheType,
    dim: usize,
    rows: usize,
    bytes: [Vec<u8>; 2],
}

impl Caches {
    fn random(random: &mut Random, kv: CacheType, rows: usize, dim: usize) -> Self {
        let mut one = || -> Vec<u8> {
            let halves = |random: &mut Random, count: usize| -> Vec<u8> {
                random.halves(count).into_iter().flat_map(f16::to_le_bytes).collect()
            };
            match kv {
                CacheType::F16 => halves(random, rows * dim),
                CacheType::Q8_0 => {
                    let mut quants: Vec<u8> = (0..rows * dim).map(|_| random.bits() as u8).collect();
                    quants.extend(halves(random, rows * dim / 32));
                    quants
                }
            }
        };
        let bytes = [one(), one()];
        Self { kv, dim, rows, bytes }
    }

    /// The parts of a row: values, and scales if there are.
    fn parts(&self, row: usize) -> [Range<usize>; 2] {
        let (dim, rows) = (self.dim, self.rows);
        match self.kv {
            CacheType::F16 => [2 * row * dim..2 * (row + 1) * dim, 0..0],
            CacheType::Q8_0 => {
                let (scales, len) = (rows * dim, dim / 16);
                [row * dim..(row + 1) * dim, scales + row * len..scales + (row + 1) * len]
            }
        }
    }

    fn scales_at(&self) -> Option<u32> {
        (self.kv == CacheType::Q8_0).then_some((self.rows * self.dim) as u32)
    }
}

proptest! {
    #![proptest_config(config(12))]

    #[test]
    fn pages_are_written_and_gathered_as_a_whole_cache_is(
        kv in proptest::sample::select(CacheType::ALL.to_vec()),
        heads in 1usize..4,
        kv_heads in 1usize..4,
        blocks in 1usize..5,
        start in prop_oneof![0usize..20, 200usize..300, 500usize..520],
        tokens in prop_oneof![1usize..6, 60usize..80],
        shares in 1usize..3,
        slot in 0usize..3,
        grid in 1u32..9,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let suffix = if kv == CacheType::Q8_0 { "_q8_0" } else { "" };
        let (dim, context, pages) = (32 * blocks, 3 * PAGE, 7);
        // Every sequence has pages of its own, in any order.
        let mut order: Vec<u32> = (0..pages as u32).collect();
        (1..pages).for_each(|i| order.swap(i, random.bits() as usize % (i + 1)));
        let own = &order[..3];
        let mut tables = vec![u32::MAX; 9];
        tables[3 * slot..][..3].copy_from_slice(own);
        let tables = words(&tables);
        let whole = Caches::random(random, kv, kv_heads * context, dim);
        let mut paged = Caches::random(random, kv, pages * kv_heads * PAGE, dim);
        let row_of = |head: usize, position: usize| {
            (own[position / PAGE] as usize * kv_heads + head) * PAGE + position % PAGE
        };
        let all = || (0..kv_heads).flat_map(|head| (0..context).map(move |position| (head, position)));
        let parts = |(head, position)| {
            whole.parts(head * context + position).into_iter().zip(paged.parts(row_of(head, position)))
        };
        let moves: Vec<(Range<usize>, Range<usize>)> = all().flat_map(parts).collect();
        let to_pages = |pages: &mut [Vec<u8>; 2], cache: &[Vec<u8>; 2]| {
            for (pages, cache) in pages.iter_mut().zip(cache) {
                moves.iter().for_each(|(from, to)| pages[to.clone()].copy_from_slice(&cache[from.clone()]));
            }
        };
        to_pages(&mut paged.bytes, &whole.bytes);
        let place = chunk(start, &vec![0; tokens]);
        place.write_slice(4 * TABLE_AT as u64, &[3 * slot as u32]).unwrap();
        let on_device = |caches: &Caches| [0, 1].map(|i| upload(&caches.bytes[i]));
        let (whole_cache, paged_cache) = (on_device(&whole), on_device(&paged));

        let width = (heads + 2 * kv_heads) * dim;
        let qkv = floats(&random.values(shares * tokens * width));
        let turns = steps(&frequencies(dim / 2));
        let rope = |module: &str, kernel: &str, [keys, values]: &[Buffer; 2], own: &Caches, tables: Option<&Buffer>| {
            let q = halves(&vec![f16::ZERO; tokens * heads * dim]);
            let args = PromptRope {
                qkv: &qkv, turns: &turns, prompt: &place, q: &q, keys, values,
                heads: heads as u32, kv_heads: kv_heads as u32, half_dim: dim as u32 / 2,
                context: tables.is_none().then_some(context as u32), tables,
                shares: shares as u32, share_pitch: tokens as u32, factor: 0.5, scales_at: own.scales_at(),
            };
            let grid = (((width / 2) as u32).div_ceil(ROPE_THREADS), tokens as u32 + 1);
            launch(module, &format!("{kernel}{suffix}"), LaunchConfig::new(grid, ROPE_THREADS), args);
            read_bytes(&q, 2 * tokens * heads * dim)
        };
        let q = rope("prompt", "prompt_rope", &whole_cache, &whole, None);
        let found = rope(NAME, "prompt_rope_pages", &paged_cache, &paged, Some(&tables));
        prop_assert_eq!(found, q);
        let read = |caches: &[Buffer; 2], len: usize| [0, 1].map(|i| read_bytes(&caches[i], len));
        let written = read(&whole_cache, whole.bytes[0].len());
        let mut wanted = paged.bytes.clone();
        to_pages(&mut wanted, &written);
        prop_assert!(read(&paged_cache, paged.bytes[0].len()) == wanted, "other pages, or other values");

        let untouched = f16::from_f32(7.5);
        let out = || [0, 1].map(|_| halves(&vec![untouched; kv_heads * context * dim]));
        let gathered = out();
        let scales_at = paged.scales_at();
        let args = Gather {
            keys: &paged_cache[0], values: &paged_cache[1], prompt: &place, tables: &tables,
            out_keys: &gathered[0], out_values: &gathered[1],
            kv_heads: kv_heads as u32, context: context as u32, head_dim: dim as u32,
            key_factor: scales_at.and(Some(0.5)), value_factor: scales_at.and(Some(0.125)), scales_at,
        };
        let config = LaunchConfig::new((grid, kv_heads as u32, 2), GATHER_THREADS);
        launch(NAME, &format!("prompt_gather{suffix}"), config, args);
        let mut wanted = match whole.scales_at() {
            None => written,
            Some(scales_at) => {
                let expanded = out();
                let args = Expand {
                    keys: &whole_cache[0], values: &whole_cache[1], prompt: &place,
                    expanded_keys: &expanded[0], expanded_values: &expanded[1],
                    context: context as u32, head_dim: dim as u32, key_factor: 0.5, value_factor: 0.125, scales_at,
                };
                let config = LaunchConfig::new((3, kv_heads as u32, 2), EXPAND_THREADS);
                launch("prompt", "prompt_expand", config, args);
                read(&expanded, 2 * kv_heads * context * dim)
            }
        };
        for (head, position) in all().filter(|(_, position)| *position >= start + tokens) {
            for wanted in &mut wanted {
                let row = 2 * (head * context + position) * dim..2 * (head * context + position + 1) * dim;
                wanted[row].chunks_exact_mut(2).for_each(|value| value.copy_from_slice(&untouched.to_le_bytes()));
            }
        }
        prop_assert!(read(&gathered, 2 * kv_heads * context * dim) == wanted, "not what the pages have");
    }
}
