//! The kernels that chunks of prompts use on pages, against those for a cache in one piece, bit by bit.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use std::ops::Range;

use ga10b_llm::CacheType;
use ga10b_llm::engine::PAGE;
use ga10b_llm::kernels::columns::chunks::{GATHER_THREADS, NAME};
use ga10b_llm::kernels::prompt::chunk::{COUNT_AT, TABLE_AT, TOKENS_AT};
use ga10b_llm::kernels::prompt::vector::{EXPAND_THREADS, ROPE_THREADS};
use half::f16;
use hcq::{Args, Buffer, LaunchConfig};
use proptest::prelude::*;

use crate::device::{Random, config, floats, frequencies, halves, launch, read_bytes, steps, upload, words};

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

    fn scales_at(&self, args: Args) -> Args {
        if self.kv == CacheType::Q8_0 { args.u32((self.rows * self.dim) as u32) } else { args }
    }
}

fn suffix(kv: CacheType) -> &'static str {
    if kv == CacheType::Q8_0 { "_q8_0" } else { "" }
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
        for (head, position) in all() {
            let parts = whole.parts(head * context + position).into_iter().zip(paged.parts(row_of(head, position)));
            for (from, to) in parts {
                for (cache, bytes) in paged.bytes.iter_mut().zip(&whole.bytes) {
                    cache[to.clone()].copy_from_slice(&bytes[from.clone()]);
                }
            }
        }
        let place = |table: usize| {
            let mut state = vec![0; TOKENS_AT as usize + tokens];
            (state[0], state[COUNT_AT as usize]) = (start as u32, tokens as u32);
            state[TABLE_AT as usize] = table as u32;
            words(&state)
        };
        let place = place(3 * slot);
        let on_device = |caches: &Caches| [0, 1].map(|i| upload(&caches.bytes[i]));
        let (whole_cache, paged_cache) = (on_device(&whole), on_device(&paged));

        let width = (heads + 2 * kv_heads) * dim;
        let qkv = floats(&random.values(shares * tokens * width));
        let turns = steps(&frequencies(dim / 2));
        let rope = |module: &str, kernel: &str, cache: &[Buffer; 2], own: &Caches, add: &dyn Fn(Args) -> Args| {
            let q = halves(&vec![f16::ZERO; tokens * heads * dim]);
            let args = Args::new().buffer(&qkv).buffer(&turns).buffer(&place).buffer(&q);
            let args = args.buffer(&cache[0]).buffer(&cache[1]);
            let args = add(args.u32(heads as u32).u32(kv_heads as u32).u32(dim as u32 / 2));
            let args = own.scales_at(args.u32(shares as u32).u32(tokens as u32).f32(0.5));
            let grid = (((width / 2) as u32).div_ceil(ROPE_THREADS), tokens as u32 + 1);
            let kernel = format!("{kernel}{}", suffix(kv));
            launch(module, &kernel, LaunchConfig::new(grid, ROPE_THREADS), &args);
            read_bytes(&q, 2 * tokens * heads * dim)
        };
        let q = rope("prompt", "prompt_rope", &whole_cache, &whole, &|args| args.u32(context as u32));
        let found = rope(NAME, "prompt_rope_pages", &paged_cache, &paged, &|args| args.buffer(&tables));
        prop_assert_eq!(found, q);
        let read = |caches: &[Buffer; 2], len: usize| [0, 1].map(|i| read_bytes(&caches[i], len));
        let written = read(&whole_cache, whole.bytes[0].len());
        let mut wanted = paged.bytes.clone();
        for (head, position) in all() {
            let parts = whole.parts(head * context + position).into_iter().zip(paged.parts(row_of(head, position)));
            for (from, to) in parts {
                for (wanted, bytes) in wanted.iter_mut().zip(&written) {
                    wanted[to.clone()].copy_from_slice(&bytes[from.clone()]);
                }
            }
        }
        prop_assert!(read(&paged_cache, paged.bytes[0].len()) == wanted, "other pages, or other values");

        let untouched = f16::from_f32(7.5);
        let out = || [0, 1].map(|_| halves(&vec![untouched; kv_heads * context * dim]));
        let gathered = out();
        let args = Args::new().buffer(&paged_cache[0]).buffer(&paged_cache[1]).buffer(&place).buffer(&tables);
        let args = args.buffer(&gathered[0]).buffer(&gathered[1]);
        let args = args.u32(kv_heads as u32).u32(context as u32).u32(dim as u32);
        let args = if kv == CacheType::Q8_0 { args.f32(0.5).f32(0.125) } else { args };
        let config = LaunchConfig::new((grid, kv_heads as u32, 2), GATHER_THREADS);
        launch(NAME, &format!("prompt_gather{}", suffix(kv)), config, &paged.scales_at(args));
        let mut wanted = match kv {
            CacheType::F16 => written,
            CacheType::Q8_0 => {
                let expanded = out();
                let args = Args::new().buffer(&whole_cache[0]).buffer(&whole_cache[1]).buffer(&place);
                let args = args.buffer(&expanded[0]).buffer(&expanded[1]);
                let args = whole.scales_at(args.u32(context as u32).u32(dim as u32).f32(0.5).f32(0.125));
                let config = LaunchConfig::new((3, kv_heads as u32, 2), EXPAND_THREADS);
                launch("prompt", "prompt_expand", config, &args);
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
