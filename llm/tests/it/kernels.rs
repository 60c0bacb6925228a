//! Every decode kernel against a simple calculation on the CPU, on random shapes.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::gguf::GgmlType;
use ga10b_llm::kernels::format::Format;
use ga10b_llm::kernels::limits::infix;
use ga10b_llm::kernels::operations::attention::{self, partial_words};
use ga10b_llm::kernels::operations::matvec::{self, Epilogue};
use ga10b_llm::kernels::operations::striped::striped;
use ga10b_llm::kernels::operations::token::{self, ARGMAX_BLOCKS, embed_blocks};
use ga10b_llm::kernels::operations::{norm, quantized_attention, rope};
use ga10b_llm::kernels::state::TOKENS_AT;
use half::f16;
use hcq::{Buffer, LaunchConfig};
use proptest::prelude::*;

use crate::device::{
    self, Random, attended, config, dot, floats, formats, frequencies, halves, is_q8_0_of, launch, limits,
    matrix, nmse, q8_0, q8_0_row, q8_0_values, read, read_bytes, read_halves, steps, turned, upload, words,
};

/// Multiplies a matrix of `rows` rows by `x`.
fn multiply(format: Format, epilogue: Epilogue, blocks: &[u8], x: &[f32], out: &Buffer, rows: usize) {
    let (shape, rows, cols) = (matvec::Shape::default(), rows as u32, x.len() as u32);
    let (weights, x) = (&matrix(format, x.len(), blocks), &floats(&stripe(x)));
    let args = matvec::Matvec { weights, x, out, rows, cols };
    let name = shape.kernel_name(format, epilogue);
    launch(format.suffix(), &name, LaunchConfig::new(shape.blocks(epilogue, rows), shape.threads()), args);
}

fn stripe(x: &[f32]) -> Vec<f32> {
    let mut out = vec![0.0; x.len()];
    x.iter().enumerate().for_each(|(i, v)| out[striped(i, x.len())] = *v);
    out
}

fn unstripe(x: &[f32]) -> Vec<f32> {
    (0..x.len()).map(|i| x[striped(i, x.len())]).collect()
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

/// A matrix row by row.
fn dequantized(ty: GgmlType, blocks: &[u8], rows: usize, cols: usize) -> Vec<Vec<f32>> {
    device::dequantized(ty, blocks, rows, cols).chunks_exact(cols).map(<[f32]>::to_vec).collect()
}

proptest! {
    #![proptest_config(config(12))]

    #[test]
    fn matrix_times_vector(format in formats(), rows in 1usize..40, blocks in 1usize..9, add: bool, seed: u64) {
        let random = &mut Random(seed);
        let cols = blocks * format.block() as usize;
        let data = random.blocks(format, rows * cols, true);
        let x = random.values(cols);
        let before = random.values(rows + 3);
        let out = floats(&before);
        multiply(format, if add { Epilogue::Add } else { Epilogue::Store }, &data, &x, &out, rows);
        let found = read(&out, rows + 3);
        let weights = dequantized(format.ty(), &data, rows, cols);
        let wanted: Vec<f64> = weights
            .iter()
            .zip(&before)
            .map(|(row, b)| dot(row, &x) + if add { f64::from(*b) } else { 0.0 })
            .collect();
        // Of few rows all may nearly cancel: the sum's terms are the measure then.
        let product = |(w, x): (&f32, &f32)| (f64::from(*w) * f64::from(*x)).powi(2);
        let terms: f64 = weights.iter().flat_map(|row| row.iter().zip(&x)).map(product).sum();
        let signal: f64 = wanted.iter().map(|w| w * w).sum();
        let error = nmse(&found[..rows], &wanted) * signal / signal.max(terms);
        prop_assert!(error < 1e-10, "{:?} {}x{}: NMSE {:e}", format, rows, cols, error);
        prop_assert_eq!(&found[rows..], &before[rows..], "written past the end");
    }

    #[test]
    fn gate_and_up(format in formats(), rows in 1usize..4, blocks in 1usize..5, seed: u64) {
        let random = &mut Random(seed);
        let (rows, cols) = (16 * rows, blocks * format.block() as usize);
        let data = random.blocks(format, 2 * rows * cols, true);
        let x = random.values(cols);
        let out = floats(&vec![0.0; rows]);
        multiply(format, Epilogue::Gate, &data, &x, &out, rows);
        let weights = dequantized(format.ty(), &data, 2 * rows, cols);
        let wanted: Vec<f64> =
            (0..rows).map(|r| silu(dot(&weights[r], &x)) * dot(&weights[rows + r], &x)).collect();
        let error = nmse(&unstripe(&read(&out, rows)), &wanted);
        // A product of two sums that may both nearly cancel.
        prop_assert!(error < 1e-8, "{:?} {}x{}: NMSE {:e}", format, rows, cols, error);
    }

    #[test]
    fn an_embedding_row_is_dequantized_exactly(format in formats(), rows in 1usize..20, blocks in 1usize..9, seed: u64) {
        let random = &mut Random(seed);
        let cols = blocks * format.block() as usize;
        let data = random.blocks(format, rows * cols, true);
        let position = random.bits() as usize % 5;
        let token = random.bits() as usize % rows;
        let mut state = vec![0; TOKENS_AT as usize + 6];
        state[0] = position as u32;
        state[TOKENS_AT as usize + position] = token as u32;
        let out = floats(&vec![0.0; cols]);
        let (weights, state) = (&matrix(format, cols, &data), &words(&state));
        let args = token::Embed { weights, state, out: &out, rows: rows as u32, cols: cols as u32 };
        let config = LaunchConfig::new(embed_blocks(format, args.cols), token::THREADS);
        launch(format.suffix(), &format!("embed_{}", format.suffix()), config, args);
        let wanted = dequantized(format.ty(), &data, rows, cols);
        prop_assert_eq!(&read(&out, cols), &wanted[token]);
    }

    #[test]
    fn rms_norm(len in 1usize..200, seed: u64) {
        let random = &mut Random(seed);
        let (len, eps) = (16 * len, 1e-5f32);
        let (x, weight) = (random.values(len), random.values(len));
        let out = floats(&vec![0.0; len]);
        let args = norm::RmsNorm { x: &floats(&x), weight: &floats(&weight), out: &out, len: len as u32, eps };
        launch("vector", "rmsnorm", LaunchConfig::new(1, norm::THREADS), args);
        let scale = 1.0 / (dot(&x, &x) / len as f64 + f64::from(eps)).sqrt();
        let wanted: Vec<f64> = x.iter().zip(&weight).map(|(x, w)| f64::from(*x) * scale * f64::from(*w)).collect();
        prop_assert!(nmse(&unstripe(&read(&out, len)), &wanted) < 1e-12);
    }

    #[test]
    fn gate_times_up_apart(len in 1usize..40, seed: u64) {
        let random = &mut Random(seed);
        let len = 16 * len;
        let (gate, up) = (random.values(len), random.values(len));
        let gate: Vec<f32> = gate.iter().map(|g| 30.0 * g).collect();
        let out = floats(&vec![0.0; len]);
        let args = norm::SiluMul { gate: &floats(&gate), up: &floats(&up), out: &out, len: len as u32 };
        let config = LaunchConfig::new(args.len.div_ceil(norm::SILU_THREADS), norm::SILU_THREADS);
        launch("vector", "silu_mul", config, args);
        let wanted: Vec<f64> = gate.iter().zip(&up).map(|(g, u)| silu(f64::from(*g)) * f64::from(*u)).collect();
        prop_assert!(nmse(&unstripe(&read(&out, len)), &wanted) < 1e-12);
    }

    #[test]
    fn rotation_and_cache(
        heads in 1usize..5,
        kv_heads in 1usize..4,
        half_dim in 1usize..40,
        at in prop_oneof![0usize..20, 20_000usize..20_010],
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (dim, context) = (2 * half_dim, at + 3);
        let frequencies = frequencies(half_dim);
        let qkv = random.values((heads + 2 * kv_heads) * dim);
        let cache = || upload(&vec![0; 2 * kv_heads * context * dim]);
        let (buffer, keys, values) = (floats(&qkv), cache(), cache());
        let args = rope::RopeCache {
            qkv: &buffer, turns: &steps(&frequencies), state: &words(&[at as u32, 0, 0, 0]),
            keys: &keys, values: &values, heads: heads as u32, kv_heads: kv_heads as u32,
            half_dim: half_dim as u32, context: context as u32, scales_at: None,
        };
        let pairs = ((heads + 2 * kv_heads) * half_dim) as u32;
        launch("vector", "rope_cache", LaunchConfig::new(pairs.div_ceil(rope::THREADS), rope::THREADS), args);

        let rotated: Vec<f64> = qkv
            .chunks_exact(2)
            .enumerate()
            .flat_map(|(p, pair)| {
                let (head, j) = (p / half_dim, p % half_dim);
                let angle = if head < heads + kv_heads { at as f64 * frequencies[j] } else { 0.0 };
                turned(pair, angle)
            })
            .collect();
        let q = heads * dim;
        prop_assert!(nmse(&read(&buffer, q), &rotated[..q]) < 1e-11);
        let halves = |buffer: &Buffer| read_halves(buffer, kv_heads * context * dim);
        for (found, wanted) in [(halves(&keys), &rotated[q..]), (halves(&values), &rotated[q + kv_heads * dim..])] {
            for head in 0..kv_heads {
                for row in 0..context {
                    let start = (head * context + row) * dim;
                    let found = &found[start..start + dim];
                    if row == at {
                        prop_assert!(nmse(found, &wanted[head * dim..][..dim]) < 1e-6);
                    } else {
                        prop_assert!(found.iter().all(|v| *v == 0.0), "row {} of head {}", row, head);
                    }
                }
            }
        }
    }

    #[test]
    fn attention(
        kv_heads in 1usize..3,
        group in 1usize..5,
        eighths in 1usize..33,
        position in prop_oneof![0usize..40, 100usize..700],
        shares in 1u32..5,
        limits in limits(),
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (heads, dim, context) = (kv_heads * group, 8 * eighths, position + 1 + seed as usize % 5);
        prop_assume!(heads * dim % 16 == 0);
        let q: Vec<f32> = random.values(heads * dim).iter().map(|v| 4.0 * v).collect();
        // Values past the position must not matter: they are all NaN.
        let mut cache = || -> Vec<f16> {
            (0..kv_heads * context * dim)
                .map(|i| if i / dim % context <= position { f16::from_f32(random.value()) } else { f16::NAN })
                .collect()
        };
        let (keys, values) = (cache(), cache());
        let out = floats(&vec![0.0; heads * dim]);
        let partials = floats(&vec![0.0; heads * shares as usize * partial_words(dim as u32) as usize]);
        let dims = [64, 128, 256].into_iter().find(|d| *d >= dim).unwrap();
        let (window, cap) = limits.unzip();
        let args = attention::Attention {
            q: &floats(&q), keys: &halves(&keys), values: &halves(&values), state: &words(&[position as u32, 0, 0, 0]),
            out: if shares > 1 { &partials } else { &out }, context: context as u32, head_dim: dim as u32,
            group: group as u32, scale: 1.0 / (dim as f32).sqrt(), window, cap,
        };
        let name = format!("attention_{}{}{dims}", infix(limits.is_some()), if shares > 1 { "split_" } else { "" });
        launch("attention", &name, LaunchConfig::new((heads as u32, shares), attention::THREADS), args);
        if shares > 1 {
            let args = attention::Combine { partials: &partials, out: &out, head_dim: dim as u32, shares };
            launch("attention", "attention_combine", LaunchConfig::new(heads as u32, attention::THREADS), args);
        }
        let numbers = |cache: &[f16]| cache.iter().map(|v| v.to_f32()).collect::<Vec<_>>();
        let shape = (dim, context, group);
        let wanted = attended(&q, &numbers(&keys), &numbers(&values), shape, position, limits);
        let error = nmse(&unstripe(&read(&out, heads * dim)), &wanted);
        prop_assert!(error < 1e-10, "NMSE {:e}", error);
    }

    #[test]
    fn rotation_and_a_cache_in_q8_0(
        heads in 1usize..4,
        kv_heads in 1usize..4,
        blocks in 1usize..5,
        at in prop_oneof![0usize..20, 5_000usize..5_010],
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (dim, context) = (32 * blocks, at + 3);
        let half_dim = dim / 2;
        let qkv = random.values((heads + 2 * kv_heads) * dim);
        let frequencies = frequencies(half_dim);
        let len = kv_heads * context * dim / 32 * 34;
        let (buffer, keys, values) = (floats(&qkv), upload(&vec![0; len]), upload(&vec![0; len]));
        let args = rope::RopeCache {
            qkv: &buffer, turns: &steps(&frequencies), state: &words(&[at as u32, 0, 0, 0]),
            keys: &keys, values: &values, heads: heads as u32, kv_heads: kv_heads as u32,
            half_dim: half_dim as u32, context: context as u32, scales_at: Some((kv_heads * context * dim) as u32),
        };
        let pairs = ((heads + 2 * kv_heads) * half_dim) as u32;
        launch("vector", "rope_cache_q8_0", LaunchConfig::new(pairs.div_ceil(rope::THREADS), rope::THREADS), args);
        let [keys, values] = [keys, values].map(|cache| read_bytes(&cache, len));
        for head in 0..kv_heads {
            for row in 0..context {
                let [key, value] =
                    [&keys, &values].map(|c| q8_0_row(c, kv_heads * context, dim, head * context + row));
                if row != at {
                    prop_assert!(key.iter().chain(&value).all(|b| *b == 0), "row {} of head {}", row, head);
                    continue;
                }
                let from = (heads + kv_heads + head) * dim;
                prop_assert_eq!(&value, &q8_0(&qkv[from..from + dim]).0, "not as ggml rounds");
                let wanted: Vec<f64> = qkv[(heads + head) * dim..][..dim]
                    .chunks_exact(2)
                    .zip(&frequencies)
                    .flat_map(|(pair, frequency)| turned(pair, at as f64 * frequency))
                    .collect();
                prop_assert!(is_q8_0_of(&q8_0_values(&key), &wanted), "key of head {}", head);
            }
        }
    }

    #[test]
    fn attention_over_a_cache_in_q8_0(
        kv_heads in 1usize..3,
        group in 1usize..5,
        blocks in 1usize..9,
        position in prop_oneof![0usize..40, 100usize..700],
        shares in 1u32..5,
        limits in limits(),
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let (heads, dim, context) = (kv_heads * group, 32 * blocks, position + 1 + seed as usize % 5);
        let q: Vec<f32> = random.values(heads * dim).iter().map(|v| 4.0 * v).collect();
        // Values past the position must not matter: their scales are all NaN.
        let mut cache = || {
            let (mut bytes, values) = q8_0(&random.values(kv_heads * context * dim));
            let scales = &mut bytes[kv_heads * context * dim..];
            for (row, scales) in scales.chunks_exact_mut(2 * blocks).enumerate() {
                if row % context > position {
                    scales.chunks_exact_mut(2).for_each(|s| s.copy_from_slice(&f16::NAN.to_le_bytes()));
                }
            }
            (upload(&bytes), values)
        };
        let ((keys, key_values), (values, value_values)) = (cache(), cache());
        let out = floats(&vec![0.0; heads * dim]);
        let partials = floats(&vec![0.0; heads * shares as usize * partial_words(dim as u32) as usize]);
        let dims = [64, 128, 256].into_iter().find(|d| *d >= dim).unwrap();
        let (window, cap) = limits.unzip();
        let args = quantized_attention::QuantizedAttention {
            q: &floats(&q), keys: &keys, values: &values, state: &words(&[position as u32, 0, 0, 0]),
            out: &partials, context: context as u32, head_dim: dim as u32, group: group as u32,
            scale: 1.0 / (dim as f32).sqrt(), scales_at: (kv_heads * context * dim) as u32, window, cap,
        };
        let name = format!("attention_{}q8_0_{dims}", infix(limits.is_some()));
        launch("attention", &name, LaunchConfig::new((heads as u32, shares), attention::THREADS), args);
        let args = attention::Combine { partials: &partials, out: &out, head_dim: dim as u32, shares };
        launch("attention", "attention_combine", LaunchConfig::new(heads as u32, attention::THREADS), args);
        let shape = (dim, context, group);
        let wanted = attended(&q, &key_values, &value_values, shape, position, limits);
        let error = nmse(&unstripe(&read(&out, heads * dim)), &wanted);
        // The query has 16 bits: a component is off by 2^-16 of the largest, which is 4. So is a score, and
        // the weight made of it.
        prop_assert!(error < (4.0 * f64::exp2(-16.0)).powi(2), "NMSE {:e}", error);
    }

    #[test]
    fn the_largest_logit_becomes_the_next_token(count in 1usize..20_000, ties: bool, seed: u64) {
        let random = &mut Random(seed);
        let mut logits = random.values(count);
        if ties {
            // Every value many times: the first of the largest wins.
            logits.iter_mut().for_each(|v| *v = (*v * 4.0).round());
        }
        let candidates = || floats(&vec![0.0; ARGMAX_BLOCKS as usize]);
        let (best_values, best_indices) = (&candidates(), &candidates());
        let args = token::Argmax { logits: &floats(&logits), best_values, best_indices, count: count as u32 };
        launch("vector", "argmax", LaunchConfig::new(ARGMAX_BLOCKS, token::THREADS), args);
        let state = &words(&[2, 0, 0, 0, 11, 12, 13, 14, 15]);
        let args = token::ArgmaxFinish { best_values, best_indices, state, candidates: ARGMAX_BLOCKS };
        launch("vector", "argmax_finish", LaunchConfig::new(1, 32), args);
        launch("vector", "advance", LaunchConfig::new(1, 32), token::Advance { state });
        let top = logits.iter().copied().fold(f32::MIN, f32::max);
        let first = logits.iter().position(|v| *v == top).unwrap() as u32;
        let found: Vec<u32> = read(state, 9).into_iter().map(f32::to_bits).collect();
        prop_assert_eq!(found, [4, 0, 0, 0, 11, 12, 13, first, 15]);
    }
}
