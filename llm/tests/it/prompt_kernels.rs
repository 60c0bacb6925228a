//! Every prompt kernel against a simple calculation on the CPU, on random shapes.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::kernels::heads::HEAD_DIMS;
use ga10b_llm::kernels::limits::infix;
use ga10b_llm::kernels::prompt::gemm::{self, Output, TILES};
use ga10b_llm::kernels::prompt::vector::{self, EXPAND_THREADS, NORM_THREADS, ROPE_THREADS};
use ga10b_llm::kernels::prompt::{attention, dequantize, shares};
use half::f16;
use hcq::{Buffer, LaunchConfig};
use proptest::prelude::*;

use crate::device::{
    Paging, Random, attended, chunk, config, dequantized, dot, floats, formats, frequencies, halves,
    is_q8_0_of, launch, limits, matrix, nmse, q8_0, q8_0_row, q8_0_values, read, read_bytes, read_halves,
    steps, turned, upload, words,
};

proptest! {
    #![proptest_config(config(10))]

    #[test]
    fn products_of_any_shape(
        tile in 0..TILES.len(),
        gate: bool,
        tokens in 1usize..140,
        pairs in 1usize..80,
        depth in 1usize..7,
        shares in 1usize..4,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let tile = TILES[tile];
        let (output, shares) = if gate { (Output::Gate, 1) } else { (Output::Sums, shares.min(depth)) };
        let (rows, cols) = (2 * pairs, depth * gemm::DEPTH as usize);
        let all_rows = if gate { 2 * rows } else { rows };
        let (x, w) = (random.halves(tokens * cols), random.halves(all_rows * cols));
        // Values between the rows of `out`, and after them, stay.
        let pitch = rows + 2;
        let untouched = 7.5f32;
        let count = shares * tokens * pitch + 3;
        let out = if gate { halves(&vec![f16::from_f32(untouched); count]) } else { floats(&vec![untouched; count]) };
        let share = depth.div_ceil(shares) * gemm::DEPTH as usize;
        // Rounding the share up may leave the last ones nothing to do.
        prop_assume!(share * (shares - 1) < cols);
        let args = gemm::Gemm {
            x: &halves(&x), w: &halves(&w), out: &out, tokens: tokens as u32, rows: rows as u32, cols: cols as u32,
            pitch: pitch as u32, share: share as u32, share_pitch: tokens as u32, factor: gate.then_some(0.25),
        };
        let grid = tile.grid(output, tokens as u32, rows as u32, shares as u32);
        let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
        launch("gemm", &tile.kernel_name(output), config, args);
        let found = if gate { read_halves(&out, count) } else { read(&out, count) };
        let (mut got, mut wanted) = (vec![], vec![]);
        for token in 0..tokens {
            let x = &x[token * cols..][..cols];
            for part in 0..shares {
                let line = &found[(part * tokens + token) * pitch..][..pitch];
                got.extend(&line[..rows]);
                prop_assert_eq!(&line[rows..], &[untouched; 2], "written between the rows");
                let range = part * share..cols.min((part + 1) * share);
                let product = |row: usize| dot(&x[range.clone()], &w[row * cols..][range.clone()]);
                wanted.extend((0..rows).map(|r| match output {
                    Output::Sums => product(r),
                    Output::Gate => 0.25 * product(r) / (1.0 + (-product(r)).exp()) * product(rows + r),
                }));
            }
        }
        prop_assert_eq!(&found[count - 3..], &[untouched; 3], "written past the end");
        let bound = if gate { 1e-6 } else { 1e-11 };
        let error = nmse(&got, &wanted);
        prop_assert!(error < bound, "{:?} {:?} {}x{}x{}: NMSE {:e}", tile, output, tokens, rows, cols, error);
    }

    #[test]
    fn a_matrix_is_dequantized_to_the_nearest_halves(format in formats(), rows in 1usize..20, blocks in 1usize..9, seed: u64) {
        let random = &mut Random(seed);
        let cols = blocks * format.block() as usize;
        let data = random.blocks(format, rows * cols, false);
        let out = halves(&vec![f16::ZERO; rows * cols]);
        let weights = &matrix(format, cols, &data);
        let args = dequantize::Dequantize { weights, out: &out, rows: rows as u32, cols: cols as u32 };
        let config = LaunchConfig::new(dequantize::grid(format, args.rows, args.cols), dequantize::THREADS);
        launch(format.module("dequantize"), &format!("dequantize_{}", format.suffix()), config, args);
        let wanted = dequantized(format.ty(), &data, rows, cols);
        let wanted: Vec<f32> = wanted.into_iter().map(|v| f16::from_f32(v).to_f32()).collect();
        prop_assert_eq!(read_halves(&out, rows * cols), wanted);
    }

    #[test]
    fn rows_of_an_embedding(format in formats(), rows in 1usize..20, blocks in 1usize..5, tokens in 1usize..9, seed: u64) {
        let random = &mut Random(seed);
        let cols = blocks * format.block() as usize;
        let data = random.blocks(format, rows * cols, false);
        let tokens: Vec<u32> = (0..tokens).map(|_| random.bits() as u32 % rows as u32).collect();
        let out = floats(&vec![0.0; tokens.len() * cols]);
        let (weights, prompt) = (&matrix(format, cols, &data), &chunk(3, &tokens));
        let args = dequantize::EmbedPrompt { weights, prompt, out: &out, rows: rows as u32, cols: cols as u32 };
        // More blocks than tokens: blocks past the chunk do nothing.
        let name = format!("embed_prompt_{}", format.suffix());
        launch(format.module("dequantize"), &name, LaunchConfig::new(tokens.len() as u32 + 2, dequantize::EMBED_THREADS), args);
        let all = dequantized(format.ty(), &data, rows, cols);
        let wanted: Vec<f32> =
            tokens.iter().flat_map(|t| all[*t as usize * cols..][..cols].to_vec()).collect();
        prop_assert_eq!(read(&out, tokens.len() * cols), wanted);
    }

    #[test]
    fn sums_are_added_and_normalized(tokens in 1usize..4, len in 1usize..100, shares in 0usize..4, seed: u64) {
        let random = &mut Random(seed);
        let (len, eps) = (16 * len, 1e-5f32);
        let (x, weight, sums) = (random.values(tokens * len), random.values(len), random.values(shares * 5 * len));
        let (stream, out) = (floats(&x), halves(&vec![f16::ZERO; tokens * len]));
        let args = vector::PromptNorm {
            x: &stream, sums: &floats(&sums), weight: &floats(&weight), out: &out, len: len as u32, eps,
            shares: shares as u32, share_pitch: 5, factor: 4.0,
        };
        launch("prompt", "prompt_norm", LaunchConfig::new(tokens as u32, NORM_THREADS), args);
        let mut wanted: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        for share in 0..shares {
            let part = &sums[share * 5 * len..][..tokens * len];
            wanted.iter_mut().zip(part).for_each(|(v, p)| *v += 4.0 * f64::from(*p));
        }
        prop_assert!(nmse(&read(&stream, tokens * len), &wanted) < 1e-13);
        for row in wanted.chunks_exact_mut(len) {
            let mean = row.iter().map(|v| v * v).sum::<f64>() / len as f64;
            let scale = 1.0 / (mean + f64::from(eps)).sqrt();
            row.iter_mut().zip(&weight).for_each(|(v, w)| *v *= scale * f64::from(*w));
        }
        prop_assert!(nmse(&read_halves(&out, tokens * len), &wanted) < 2e-7);
    }

    #[test]
    fn queries_turn_and_keys_and_values_are_cached(
        heads in 1usize..5,
        kv_heads in 1usize..4,
        half_dim in 1usize..40,
        start in prop_oneof![0usize..20, 20_000usize..20_010],
        tokens in 1usize..6,
        shares in 1usize..4,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let dim = 2 * half_dim;
        let paging = Paging::new(random, kv_heads, start + tokens);
        let rows = paging.rows();
        let frequencies = frequencies(half_dim);
        let width = (heads + 2 * kv_heads) * dim;
        let parts = random.values(shares * (tokens + 1) * width);
        let mut qkv = vec![0.0; (tokens + 1) * width];
        for part in parts.chunks_exact(qkv.len()) {
            qkv.iter_mut().zip(part).for_each(|(sum, p)| *sum += p);
        }
        let cache = || upload(&vec![0; 2 * rows * dim]);
        let (q, keys, values) = (halves(&vec![f16::ZERO; (tokens + 1) * heads * dim]), cache(), cache());
        let args = vector::PromptRope {
            qkv: &floats(&parts), turns: &steps(&frequencies), prompt: &chunk(start, &vec![0; tokens]), q: &q,
            keys: &keys, values: &values, heads: heads as u32, kv_heads: kv_heads as u32, half_dim: half_dim as u32,
            tables: &words(&paging.pages),
            shares: shares as u32, share_pitch: tokens as u32 + 1, factor: 0.5, scales_at: None,
        };
        let pairs = (width / 2) as u32;
        // One token more than the chunk has: nothing of it may be written.
        let grid = (pairs.div_ceil(ROPE_THREADS), tokens as u32 + 1);
        launch("prompt", "prompt_rope", LaunchConfig::new(grid, ROPE_THREADS), args);

        let q = read_halves(&q, (tokens + 1) * heads * dim);
        prop_assert!(q[tokens * heads * dim..].iter().all(|v| *v == 0.0));
        let [keys, values] = [keys, values].map(|cache| read_halves(&cache, rows * dim));
        for token in 0..tokens {
            let rotated: Vec<f64> = qkv[token * width..][..width]
                .chunks_exact(2)
                .enumerate()
                .flat_map(|(p, pair)| {
                    let (head, j) = (p / half_dim, p % half_dim);
                    let turns = head < heads + kv_heads;
                    let angle = if turns { (start + token) as f64 * frequencies[j] } else { 0.0 };
                    turned(pair, angle)
                })
                .collect();
            let queries: Vec<f64> = rotated[..heads * dim].iter().map(|v| 0.5 * v).collect();
            prop_assert!(nmse(&q[token * heads * dim..][..heads * dim], &queries) < 1e-6);
            for head in 0..kv_heads {
                let at = paging.row(head, start + token) * dim;
                let from = (heads + head) * dim;
                prop_assert!(nmse(&keys[at..at + dim], &rotated[from..from + dim]) < 1e-6);
                let from = from + kv_heads * dim;
                prop_assert!(nmse(&values[at..at + dim], &rotated[from..from + dim]) < 1e-6);
            }
        }
        let positions = (0..kv_heads).flat_map(|head| (start..start + tokens).map(move |at| (head, at)));
        let own: Vec<usize> = positions.map(|(head, at)| paging.row(head, at)).collect();
        for cache in [keys, values] {
            let written = cache.chunks_exact(dim).enumerate().filter(|(_, row)| row.iter().any(|v| *v != 0.0));
            prop_assert!(written.into_iter().all(|(row, _)| own.contains(&row)));
        }
    }

    #[test]
    fn keys_and_values_are_cached_in_q8_0_and_come_back(
        heads in 1usize..4,
        kv_heads in 1usize..4,
        blocks in 1usize..5,
        start in prop_oneof![0usize..20, 3_000usize..3_010],
        tokens in 1usize..6,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let dim = 32 * blocks;
        let paging = Paging::new(random, kv_heads, start + tokens);
        let (half_dim, rows) = (dim / 2, paging.rows());
        let frequencies = frequencies(half_dim);
        let width = (heads + 2 * kv_heads) * dim;
        let qkv = random.values(tokens * width);
        let len = rows * dim / 32 * 34;
        // Earlier positions are unchanged, and expanded with the new ones.
        let mut before = || q8_0(&random.values(rows * dim)).0;
        let before = [before(), before()];
        let [keys, values] = [0, 1].map(|i| upload(&before[i]));
        let q = halves(&vec![f16::ZERO; tokens * heads * dim]);
        let (place, tables) = (chunk(start, &vec![0; tokens]), words(&paging.pages));
        let args = vector::PromptRope {
            qkv: &floats(&qkv), turns: &steps(&frequencies), prompt: &place, q: &q, keys: &keys, values: &values,
            heads: heads as u32, kv_heads: kv_heads as u32, half_dim: half_dim as u32,
            tables: &tables, shares: 1, share_pitch: tokens as u32, factor: 1.0, scales_at: Some((rows * dim) as u32),
        };
        let grid = (((width / 2) as u32).div_ceil(ROPE_THREADS), tokens as u32 + 1);
        launch("prompt", "prompt_rope_q8_0", LaunchConfig::new(grid, ROPE_THREADS), args);
        let cached = [&keys, &values].map(|cache| read_bytes(cache, len));
        for (i, cache) in cached.iter().enumerate() {
            for (head, position) in (0..kv_heads).flat_map(|h| (0..start + tokens).map(move |p| (h, p))) {
                let row = |cache: &[u8]| q8_0_row(cache, rows, dim, paging.row(head, position));
                if !(start..start + tokens).contains(&position) {
                    prop_assert_eq!(row(cache), row(&before[i]), "row {} of head {}", position, head);
                    continue;
                }
                let from = (position - start) * width + (heads + i * kv_heads + head) * dim;
                let given = &qkv[from..from + dim];
                if i == 1 {
                    prop_assert_eq!(row(cache), q8_0(given).0, "not as ggml rounds");
                    continue;
                }
                let pairs = given.chunks_exact(2).zip(&frequencies);
                let wanted: Vec<f64> = pairs.flat_map(|(pair, f)| turned(pair, position as f64 * f)).collect();
                prop_assert!(is_q8_0_of(&q8_0_values(&row(cache)), &wanted));
            }
        }

        let untouched = f16::from_f32(7.5);
        let in_order = Paging::in_order(kv_heads, start + tokens);
        let count = in_order.rows() * dim;
        let expanded = [0, 1].map(|_| halves(&vec![untouched; count]));
        let factors = [0.5f32, 0.125];
        let args = vector::Expand {
            keys: &keys, values: &values, prompt: &place, tables: &tables,
            expanded_keys: &expanded[0], expanded_values: &expanded[1], kv_heads: kv_heads as u32, head_dim: dim as u32, key_factor: factors[0], value_factor: factors[1],
            scales_at: (rows * dim) as u32,
        };
        launch("prompt", "prompt_expand", LaunchConfig::new((3, kv_heads as u32, 2), EXPAND_THREADS), args);
        for ((cache, expanded), factor) in cached.iter().zip(&expanded).zip(factors) {
            let mut wanted = vec![untouched.to_f32(); count];
            for (head, position) in (0..kv_heads).flat_map(|h| (0..start + tokens).map(move |p| (h, p))) {
                let values = q8_0_values(&q8_0_row(cache, rows, dim, paging.row(head, position)));
                let to = &mut wanted[in_order.row(head, position) * dim..][..dim];
                to.iter_mut().zip(values).for_each(|(to, v)| *to = f16::from_f32(factor * v).to_f32());
            }
            prop_assert!(read_halves(expanded, count) == wanted);
        }
    }

    #[test]
    fn attention_is_causal_and_exact(
        kv_heads in 1usize..3,
        group in 1usize..4,
        eighths in 1usize..33,
        start in prop_oneof![Just(0usize), 1usize..40, 60usize..200, 500usize..1100],
        tokens in 1usize..80,
        most in prop_oneof![Just(1u32), 2u32..9],
        limits in limits(),
        in_order: bool,
        padded: bool,
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (heads, dim, context) = (kv_heads * group, 8 * eighths, start + tokens);
        // Of each head's results the last four are left out.
        let kept = if padded { dim - 4 } else { dim };
        let paging = match in_order {
            true => Paging::in_order(kv_heads, context),
            false => Paging::new(random, kv_heads, context),
        };
        let q: Vec<f16> = random.values(tokens * heads * dim).iter().map(|v| f16::from_f32(4.0 * v)).collect();
        // Values past the chunk and on other pages must not matter: they are all NaN.
        let mut cache = || -> (Vec<f16>, Buffer) {
            let values = random.halves(kv_heads * context * dim);
            let mut paged = vec![f16::NAN; paging.rows() * dim];
            for (i, row) in values.chunks_exact(dim).enumerate() {
                paged[paging.row(i / context, i % context) * dim..][..dim].copy_from_slice(row);
            }
            (values, halves(&paged))
        };
        let ((keys, paged_keys), (values, paged_values)) = (cache(), cache());
        let out = halves(&vec![f16::ZERO; (tokens + 1) * heads * kept]);
        let dims = HEAD_DIMS.into_iter().find(|d| *d as usize >= dim).unwrap();
        // Parts that are not written must not be read either.
        let partials = floats(&vec![f32::NAN; most as usize * tokens * heads * shares::partial_words(dim as u32) as usize]);
        let prompt = &chunk(start, &vec![0; tokens]);
        let (window, cap) = limits.unzip();
        let args = attention::PromptAttention {
            q: &halves(&q), keys: &paged_keys, values: &paged_values, prompt, out: &out,
            tables: &words(&paging.pages), in_order: in_order.into(), kv_heads: kv_heads as u32, head_dim: dim as u32, head_values: kept as u32, group: group as u32, scale: 1.0 / (dim as f32).sqrt(),
            partials: &partials, window, cap,
        };
        let grid = ((tokens as u32).div_ceil(shares::TOKENS) + 1, heads as u32, most);
        let config = LaunchConfig::new(grid, attention::THREADS);
        let config = config.with_dynamic_shared(attention::shared_bytes(dims));
        launch("prompt", &format!("prompt_attention_{}{dims}", infix(limits.is_some())), config, args);
        if most > 1 {
            let (heads, out) = (heads as u32, &out);
            let args = shares::Merge {
                partials: &partials, prompt, out, heads, head_dim: dim as u32, head_values: kept as u32, most,
            };
            let grid = (tokens as u32 + 1, heads.div_ceil(shares::HEADS));
            launch("prompt", &format!("prompt_merge_{dims}"), LaunchConfig::new(grid, shares::THREADS), args);
        }
        let found = read_halves(&out, (tokens + 1) * heads * kept);
        prop_assert!(found[tokens * heads * kept..].iter().all(|v| *v == 0.0), "written past the chunk");
        let query = |token: usize| &q[token * heads * dim..][..heads * dim];
        let shape = (dim, context, group);
        let wanted: Vec<f64> = (0..tokens)
            .flat_map(|token| attended(query(token), &keys, &values, shape, start + token, limits))
            .enumerate()
            .filter_map(|(i, value)| (i % dim < kept).then_some(value))
            .collect();
        let error = nmse(&found[..tokens * heads * kept], &wanted);
        prop_assert!(error < 2e-6, "NMSE {:e}", error);
    }
}
