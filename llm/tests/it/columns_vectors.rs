//! The kernels of a batch step but the products against simple calculations on the CPU, on random shapes.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::CacheType;
use ga10b_llm::kernels::columns::attention::{self, partial_words};
use ga10b_llm::kernels::columns::state::NONE;
use ga10b_llm::kernels::columns::{fragments, vector};
use ga10b_llm::kernels::heads::HEAD_DIMS;
use half::f16;
use hcq::{Buffer, LaunchConfig};
use proptest::prelude::*;

use crate::device::{
    Paging, Random, attended, config, dequantized, floats, formats, frequencies, halves, is_q8_0_of, launch,
    limits, matrix, nmse, q8_0, q8_0_row, q8_0_values, read, read_bytes, steps, turned, upload, words,
};

/// Columns of the kernels.
const COLUMNS: u32 = 8;

/// The state of a step of one column, number `own`, of the sequence with table 1.
fn state(own: usize, token: u32, position: usize) -> Buffer {
    let column = |c| if c == own { [token, position as u32, 1, 0] } else { [0, NONE, 0, 0] };
    words(&(0..COLUMNS as usize).flat_map(column).collect::<Vec<u32>>())
}

/// The tables of two sequences, of which the second has these pages.
fn tables(pages: &[u32]) -> Buffer {
    words(&[&vec![u32::MAX; pages.len()], pages].concat())
}

/// The values of column `own` of fragments.
fn unpacked(buffer: &Buffer, own: usize, len: usize) -> Vec<f32> {
    let tile_bytes = fragments::BYTES as usize;
    let bytes = read_bytes(buffer, fragments::bytes(COLUMNS, len as u32) as usize);
    let value = |at: usize| {
        let (tile, i) = (&bytes[at / 256 * tile_bytes..][..tile_bytes], at % 256);
        // Lane 4 g + t of a warp reads of column g the units t and t + 4, eight values at a time.
        let (unit, piece, within) = (i / 32, i / 8 % 4, i % 8);
        let (s, lane) = (unit / 4, 4 * own + unit % 4);
        let place = 512 * (4 * s + piece) + 16 * lane + 2 * within;
        let factors = tile_bytes - 4 * COLUMNS as usize;
        let factor = f32::from_le_bytes(std::array::from_fn(|b| tile[factors + 4 * own + b]));
        f16::from_le_bytes([tile[place], tile[place + 1]]).to_f32() * factor
    };
    (0..len).map(value).collect()
}

proptest! {
    #![proptest_config(config(12))]

    #[test]
    fn an_embedding_row_is_dequantized_exactly_and_others_are_zeros(
        format in formats(), rows in 1usize..20, blocks in 1usize..9, own in 0usize..8, seed: u64,
    ) {
        let random = &mut Random(seed);
        let cols = blocks * format.block() as usize;
        let data = random.blocks(format, rows * cols, true);
        let token = random.bits() as usize % rows;
        let (from, out) = (state(own, token as u32, 3), floats(&vec![7.5; COLUMNS as usize * cols]));
        let (weights, to) = (&matrix(format, cols, &data), &words(&vec![0; 4 * COLUMNS as usize]));
        let args = vector::Embed {
            weights, from: &from, state: to, out: &out, rows: rows as u32, cols: cols as u32,
        };
        let config = LaunchConfig::new(COLUMNS, vector::THREADS);
        launch(format.module("columns"), &format!("columns_embed_{}", format.suffix()), config, args);
        let wanted = dequantized(format.ty(), &data, rows, cols);
        let found = read(&out, COLUMNS as usize * cols);
        for (column, found) in found.chunks_exact(cols).enumerate() {
            let wanted = if column == own { &wanted[token * cols..][..cols] } else { &vec![0.0; cols] };
            prop_assert_eq!(found, wanted, "column {}", column);
        }
        let bytes = 16 * COLUMNS as usize;
        prop_assert_eq!(read_bytes(to, bytes), read_bytes(&from, bytes));
    }

    #[test]
    fn sums_are_added_and_normalized(
        blocks in 1usize..40, shares in 0usize..4, layer: bool, own in 0usize..8, seed: u64,
    ) {
        let random = &mut Random(seed);
        let (len, eps, columns) = (16 * blocks, 1e-5f32, COLUMNS as usize);
        let (x, weight, bias) = (random.values(columns * len), random.values(len), random.values(len));
        let sums = random.values(shares.max(1) * columns * len);
        let (stream, bias_buffer) = (floats(&x), floats(&bias));
        let out = upload(&vec![0; fragments::bytes(COLUMNS, len as u32) as usize]);
        let args = vector::Norm {
            x: &stream, sums: &floats(&sums), weight: &floats(&weight), out: &out,
            len: len as u32, eps, shares: shares as u32, columns: COLUMNS, bias: layer.then_some(&bias_buffer),
        };
        launch("columns", vector::norm_name(layer), LaunchConfig::new(COLUMNS, vector::NORM_THREADS), args);
        let mut wanted: Vec<f64> = x[own * len..][..len].iter().map(|v| f64::from(*v)).collect();
        for share in 0..shares {
            let part = &sums[(share * columns + own) * len..][..len];
            wanted.iter_mut().zip(part).for_each(|(v, p)| *v += f64::from(*p));
        }
        prop_assert!(nmse(&read(&stream, columns * len)[own * len..][..len], &wanted) < 1e-13);
        let mean = if layer { wanted.iter().sum::<f64>() / len as f64 } else { 0.0 };
        let square = wanted.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / len as f64;
        let scale = 1.0 / (square + f64::from(eps)).sqrt();
        for ((v, w), b) in wanted.iter_mut().zip(&weight).zip(&bias) {
            *v = (*v - mean) * scale * f64::from(*w) + if layer { f64::from(*b) } else { 0.0 };
        }
        prop_assert!(nmse(&unpacked(&out, own, len), &wanted) < 2e-7);
    }

    #[test]
    fn queries_turn_and_keys_and_values_are_cached(
        kv in proptest::sample::select(CacheType::ALL.to_vec()),
        heads in 1usize..4,
        kv_heads in 1usize..4,
        blocks in 1usize..5,
        at in prop_oneof![0usize..20, 250usize..260, 700usize..720],
        shares in 1usize..4,
        own in 0usize..8,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (dim, columns) = (32 * blocks, COLUMNS as usize);
        let (half_dim, width) = (dim / 2, (heads + 2 * kv_heads) * dim);
        let paging = Paging::new(random, kv_heads, at + 1);
        let sums = random.values(shares * columns * width);
        let mut qkv = vec![0.0; width];
        for share in 0..shares {
            qkv.iter_mut().zip(&sums[(share * columns + own) * width..]).for_each(|(sum, part)| *sum += part);
        }
        let frequencies = frequencies(half_dim);
        let bytes = kv.bytes((paging.rows() * dim) as u64) as usize;
        let (keys, values) = (upload(&vec![0; bytes]), upload(&vec![0; bytes]));
        let q = floats(&vec![0.0; columns * heads * dim]);
        let args = vector::Rope {
            state: &state(own, 0, at), tables: &tables(&paging.pages), sums: &floats(&sums),
            turns: &steps(&frequencies), q: &q, keys: &keys, values: &values, heads: heads as u32,
            kv_heads: kv_heads as u32, half_dim: half_dim as u32, table_pitch: paging.pages.len() as u32,
            shares: shares as u32, columns: COLUMNS,
            scales_at: (kv == CacheType::Q8_0).then_some((paging.rows() * dim) as u32),
        };
        let grid = (((width / 2) as u32).div_ceil(vector::THREADS), COLUMNS);
        let suffix = if kv == CacheType::Q8_0 { "_q8_0" } else { "" };
        launch("columns", &format!("columns_rope{suffix}"), LaunchConfig::new(grid, vector::THREADS), args);

        let angle = |pair: usize| if pair / half_dim < heads + kv_heads { frequencies[pair % half_dim] } else { 0.0 };
        let rotated: Vec<f64> = qkv
            .chunks_exact(2)
            .enumerate()
            .flat_map(|(pair, values)| turned(values, at as f64 * angle(pair)))
            .collect();
        let found = read(&q, columns * heads * dim);
        prop_assert!(nmse(&found[own * heads * dim..][..heads * dim], &rotated[..heads * dim]) < 1e-11);
        for (i, cache) in [&keys, &values].into_iter().enumerate() {
            let cached = read_bytes(cache, bytes);
            let row = |row: usize| match kv {
                CacheType::F16 => cached[2 * row * dim..][..2 * dim].to_vec(),
                CacheType::Q8_0 => q8_0_row(&cached, paging.rows(), dim, row),
            };
            for head in 0..kv_heads {
                let from = (heads + i * kv_heads + head) * dim;
                let (own_row, wanted) = (row(paging.row(head, at)), &rotated[from..from + dim]);
                match kv {
                    CacheType::F16 => {
                        let halves = own_row.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32());
                        prop_assert!(nmse(&halves.collect::<Vec<_>>(), wanted) < 1e-6);
                    }
                    CacheType::Q8_0 if i == 1 => {
                        prop_assert_eq!(own_row, q8_0(&qkv[from..from + dim]).0, "not as ggml rounds");
                    }
                    CacheType::Q8_0 => prop_assert!(is_q8_0_of(&q8_0_values(&own_row), wanted)),
                }
            }
            let others = (0..paging.rows()).filter(|r| (0..kv_heads).all(|head| paging.row(head, at) != *r));
            prop_assert!(others.into_iter().all(|r| row(r).iter().all(|b| *b == 0)), "another row is written");
        }
    }

    #[test]
    fn attention_over_pages(
        kv in proptest::sample::select(CacheType::ALL.to_vec()),
        kv_heads in 1usize..3,
        group in 1usize..6,
        blocks in 1usize..9,
        position in prop_oneof![0usize..40, 250usize..260, 600usize..1100],
        shares in 1u32..5,
        limits in limits(),
        own in 0usize..8,
        padded: bool,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (heads, dim, columns) = (kv_heads * group, 32 * blocks, COLUMNS as usize);
        // Of each head's results the last four are left out.
        let kept = if padded { dim - 4 } else { dim };
        let paging = Paging::new(random, kv_heads, position + 1);
        let context = position + 1;
        let q: Vec<f32> = random.values(columns * heads * dim).iter().map(|v| 4.0 * v).collect();
        // What is in no row up to the position must not matter: it is all NaN.
        let mut cache = || -> (Buffer, Vec<f32>) {
            let whole = random.values(kv_heads * context * dim);
            let rows = (0..kv_heads).flat_map(|h| (0..context).map(move |p| (h, p)));
            match kv {
                CacheType::F16 => {
                    let mut paged = vec![f16::NAN; paging.rows() * dim];
                    let values: Vec<f32> = whole.iter().map(|v| f16::from_f32(*v).to_f32()).collect();
                    for ((head, p), row) in rows.zip(values.chunks_exact(dim)) {
                        let to = &mut paged[paging.row(head, p) * dim..][..dim];
                        to.iter_mut().zip(row).for_each(|(to, v)| *to = f16::from_f32(*v));
                    }
                    (halves(&paged), values)
                }
                CacheType::Q8_0 => {
                    let (bytes, values) = q8_0(&whole);
                    let scales_at = paging.rows() * dim;
                    let mut paged = vec![0; scales_at];
                    paged.extend(f16::NAN.to_le_bytes().repeat(scales_at / 32));
                    for (i, (head, p)) in rows.enumerate() {
                        let row = q8_0_row(&bytes, kv_heads * context, dim, i);
                        let to = paging.row(head, p);
                        paged[to * dim..][..dim].copy_from_slice(&row[..dim]);
                        paged[scales_at + to * dim / 16..][..dim / 16].copy_from_slice(&row[dim..]);
                    }
                    (upload(&paged), values)
                }
            }
        };
        let ((keys, key_values), (values, value_values)) = (cache(), cache());
        let words = partial_words(dim as u32) as usize;
        let partials = floats(&vec![f32::NAN; columns * heads * shares as usize * words]);
        let (window, cap) = limits.unzip();
        let args = attention::Attention {
            state: &state(own, 0, position), tables: &tables(&paging.pages), q: &floats(&q), keys: &keys,
            values: &values, partials: &partials, head_dim: dim as u32, kv_heads: kv_heads as u32,
            group: group as u32, table_pitch: paging.pages.len() as u32, scale: 1.0 / (dim as f32).sqrt(),
            scales_at: (kv == CacheType::Q8_0).then_some((paging.rows() * dim) as u32), window, cap,
        };
        let dims = HEAD_DIMS.into_iter().find(|d| *d as usize >= dim).unwrap();
        let name = attention::kernel_name(dims, kv, limits.is_some());
        let grid = attention::grid((kv_heads as u32, group as u32), dims, shares, COLUMNS);
        launch("columns", &name, LaunchConfig::new(grid, attention::THREADS), args);
        let out = upload(&vec![0; fragments::bytes(COLUMNS, (heads * kept) as u32) as usize]);
        let args = attention::Merge {
            state: &state(own, 0, position), partials: &partials, out: &out, head_dim: dim as u32,
            head_values: kept as u32, heads: heads as u32, shares,
        };
        let grid = (vector::tile_blocks((heads * kept) as u32), COLUMNS);
        launch("columns", "columns_merge", LaunchConfig::new(grid, vector::THREADS), args);
        let shape = (dim, context, group);
        let q = &q[own * heads * dim..][..heads * dim];
        let all = attended(q, &key_values, &value_values, shape, position, limits).into_iter().enumerate();
        let wanted: Vec<_> = all.filter_map(|(i, value)| (i % dim < kept).then_some(value)).collect();
        let error = nmse(&unpacked(&out, own, heads * kept), &wanted);
        // The result is rounded to f16, and so are weights, and numbers of q8_0.
        let most = if kv == CacheType::Q8_0 { 6e-7 } else { 2e-7 };
        prop_assert!(error < most, "{:?}: NMSE {:e}", kv, error);
    }

    #[test]
    fn the_largest_logit_is_chosen(count in 1usize..20_000, ties: bool, own in 0usize..8, seed: u64) {
        let random = &mut Random(seed);
        let mut logits = random.values(COLUMNS as usize * count);
        if ties {
            // Every value many times: the first of the largest wins.
            logits.iter_mut().for_each(|v| *v = (*v * 4.0).round());
        }
        let candidates = || floats(&vec![0.0; (COLUMNS * vector::ARGMAX_BLOCKS) as usize]);
        let (best_values, best_indices, state) = (&candidates(), &candidates(), &state(own, 0, 7));
        let (logits_buffer, tokens) = (&floats(&logits), &words(&[99; COLUMNS as usize]));
        let args =
            vector::Argmax { state, logits: logits_buffer, best_values, best_indices, count: count as u32 };
        launch("columns", "columns_argmax", LaunchConfig::new((vector::ARGMAX_BLOCKS, COLUMNS), vector::THREADS), args);
        let args =
            vector::Choose { state, best_values, best_indices, tokens, candidates: vector::ARGMAX_BLOCKS };
        launch("columns", "columns_choose", LaunchConfig::new(COLUMNS, 32), args);
        let logits = &logits[own * count..][..count];
        let top = logits.iter().copied().fold(f32::MIN, f32::max);
        let mut wanted = [99; COLUMNS as usize];
        wanted[own] = logits.iter().position(|v| *v == top).unwrap() as u32;
        prop_assert_eq!(tokens.read_vec::<u32>(0, COLUMNS as usize).unwrap(), wanted);
    }
}
