//! Every kernel of mixtures of experts in prompts against a simple calculation on the CPU, on random shapes.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::kernels::mixture::{NAME, PromptRoute, combine, gather, product, scores};
use ga10b_llm::kernels::prompt::gemm::{DEPTH, Output};
use half::f16;
use hcq::{Buffer, LaunchConfig};
use proptest::prelude::*;

use crate::device::{
    Random, chunk, config, dequantized, dot, floats, halves, launch, matrix, nmse, read, read_halves,
    routers, words,
};

fn read_words(buffer: &Buffer, count: usize) -> Vec<u32> {
    buffer.read_vec(0, count).unwrap()
}

/// `used` different experts of `experts` for each token.
fn choices(random: &mut Random, tokens: usize, (experts, used): (usize, usize)) -> Vec<u32> {
    let mut all = Vec::new();
    for _ in 0..tokens {
        let mut left: Vec<u32> = (0..experts as u32).collect();
        all.extend((0..used).map(|_| left.swap_remove(random.bits() as usize % left.len())));
    }
    all
}

/// The starts of the experts, and the entries in the order of experts.
fn sorted(chosen: &[u32], experts: usize) -> (Vec<u32>, Vec<usize>) {
    let of = |expert: u32| (0..chosen.len()).filter(move |entry| chosen[*entry] == expert);
    let order: Vec<usize> = (0..experts as u32).flat_map(of).collect();
    let starts = (0..=experts as u32).map(|e| chosen.iter().filter(|c| **c < e).count() as u32).collect();
    (starts, order)
}

proptest! {
    #![proptest_config(config(8))]

    #[test]
    fn scores_of_normalized_tokens(format in routers(), experts in 1usize..20, blocks in 1usize..4, tokens in 1usize..20, seed: u64) {
        let random = &mut Random(seed);
        let (cols, eps) = (blocks * format.block() as usize, 1e-5f32);
        let data = random.blocks(format, experts * cols, false);
        let (x, norm) = (random.values(tokens * cols), random.values(cols));
        // Tokens past the end of the chunk are not written.
        let (room, untouched) = (tokens + 3, 7.5f32);
        let out = floats(&vec![untouched; room * experts]);
        let args = scores::Scores {
            weights: &matrix(format, cols, &data), x: &floats(&x), norm: &floats(&norm),
            prompt: &chunk(0, &vec![0; tokens]), out: &out, experts: experts as u32, cols: cols as u32, eps,
        };
        let grid = scores::grid(room as u32, experts as u32);
        launch(NAME, &scores::name(format), LaunchConfig::new(grid, scores::THREADS), args);
        let found = read(&out, room * experts);
        let weights = dequantized(format.ty(), &data, experts, cols);
        let (mut wanted, mut sizes) = (Vec::new(), Vec::new());
        for x in x.chunks_exact(cols) {
            let scale = 1.0 / (dot(x, x) / cols as f64 + f64::from(eps)).sqrt();
            let normed: Vec<f64> =
                x.iter().zip(&norm).map(|(x, n)| scale * f64::from(*x) * f64::from(*n)).collect();
            for row in weights.chunks_exact(cols) {
                let terms = || row.iter().zip(&normed).map(|(w, x)| f64::from(*w) * x);
                wanted.push(terms().sum::<f64>());
                sizes.push(terms().map(f64::abs).sum::<f64>());
            }
        }
        let (found, rest) = found.split_at(tokens * experts);
        // A sum of few terms may be near zero: its error is one of its terms.
        let error: f64 = found.iter().zip(&wanted).map(|(f, w)| (f64::from(*f) - w).powi(2)).sum();
        let nmse = error / sizes.iter().map(|size| size * size).sum::<f64>();
        prop_assert!(nmse < 1e-13, "{format:?}: NMSE {nmse:e}");
        prop_assert!(rest.iter().all(|v| *v == untouched), "written past the chunk");
    }

    #[test]
    fn every_token_takes_the_experts_with_the_largest_scores(
        tokens in 1usize..12, experts in 1usize..70, normalized: bool, seed: u64,
    ) {
        let random = &mut Random(seed);
        let used = 1 + random.bits() as usize % experts.min(8);
        let all = random.values(tokens * experts);
        let (chosen, shares) = (words(&vec![0; tokens * used]), floats(&vec![0.0; tokens * used]));
        let args = PromptRoute {
            scores: &floats(&all), prompt: &chunk(0, &vec![0; tokens]), chosen: &chosen, shares: &shares,
            experts: experts as u32, used: used as u32, normalized: normalized.into(),
        };
        launch(NAME, "prompt_route", LaunchConfig::new(tokens as u32 + 2, 32), args);
        let (chosen, shares) = (read_words(&chosen, tokens * used), read(&shares, tokens * used));
        for (t, scores) in all.chunks_exact(experts).enumerate() {
            let mut order: Vec<usize> = (0..experts).collect();
            order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
            let wanted: Vec<u32> = order[..used].iter().map(|e| *e as u32).collect();
            prop_assert_eq!(&chosen[t * used..][..used], &wanted);
            let counted = if normalized { used } else { experts };
            let total: f64 = order[..counted].iter().map(|e| f64::from(scores[*e]).exp()).sum();
            let wanted: Vec<f64> = order[..used].iter().map(|e| f64::from(scores[*e]).exp() / total).collect();
            prop_assert!(nmse(&shares[t * used..][..used], &wanted) < 1e-11);
        }
    }

    #[test]
    fn entries_are_sorted_by_expert(tokens in 1usize..900, experts in 1usize..40, seed: u64) {
        let random = &mut Random(seed);
        let used = 1 + random.bits() as usize % experts.min(8);
        let chosen = choices(random, tokens, (experts, used));
        let entries = chosen.len();
        let untouched = u32::MAX;
        let room = |count: usize| words(&vec![untouched; count + 2]);
        let (starts, list, rows) = (room(experts + 1), room(entries), room(entries));
        let args = gather::Gather {
            chosen: &words(&chosen), prompt: &chunk(0, &vec![0; tokens]), starts: &starts, tokens: &list, rows: &rows,
            experts: experts as u32, used: used as u32,
        };
        launch(NAME, "prompt_gather", LaunchConfig::new(experts as u32, gather::THREADS), args);
        let (first, order) = sorted(&chosen, experts);
        let of_order: Vec<u32> = order.iter().map(|entry| (entry / used) as u32).collect();
        let mut of_rows = vec![0; entries];
        (0..).zip(&order).for_each(|(row, entry)| of_rows[*entry] = row);
        for (buffer, wanted, what) in
            [(&starts, first, "starts"), (&list, of_order, "tokens"), (&rows, of_rows, "rows")]
        {
            let found = read_words(buffer, wanted.len() + 2);
            prop_assert_eq!(&found[..wanted.len()], &wanted, "{}", what);
            prop_assert_eq!(&found[wanted.len()..], &[untouched; 2], "{} written past the end", what);
        }
    }

    #[test]
    fn products_of_each_expert_with_its_tokens(
        tile in 0..product::TILES.len(),
        gate: bool,
        tokens in 1usize..150,
        experts in 1usize..5,
        sizes in (1usize..4, 1usize..4),
        seed: u64,
    ) {
        let random = &mut Random(seed);
        let tile = product::TILES[tile];
        let output = if gate { Output::Gate } else { Output::Sums };
        let (rows, cols) = (sizes.0 * DEPTH as usize, sizes.1 * DEPTH as usize);
        let used = 1 + random.bits() as usize % experts;
        let chosen = choices(random, tokens, (experts, used));
        let (starts, order) = sorted(&chosen, experts);
        let entries = order.len();
        // The launch takes some of the experts.
        let first = random.bits() as usize % experts;
        let count = 1 + random.bits() as usize % (experts - first);
        let parts = if gate { 2 } else { 1 };
        let x = random.halves(if gate { tokens } else { entries } * cols);
        let w = random.halves(parts * count * rows * cols);
        let list = words(&order.iter().map(|entry| (entry / used) as u32).collect::<Vec<u32>>());
        let untouched = 7.5f32;
        let len = entries * rows;
        let out = if gate { halves(&vec![f16::from_f32(untouched); len]) } else { floats(&vec![untouched; len]) };
        let args = product::ExpertsProduct {
            x: &halves(&x), w: &halves(&w), out: &out, starts: &words(&starts), rows: rows as u32, cols: cols as u32,
            first: first as u32, tiles: (tokens as u32).div_ceil(tile.tokens), apart: (count * rows) as u32,
            tokens: gate.then_some(&list), factor: gate.then_some(0.25),
        };
        let grid = product::grid(tile, output, tokens as u32, rows as u32, count as u32);
        let config = LaunchConfig::new(grid, tile.threads()).with_dynamic_shared(tile.shared_bytes());
        launch(NAME, &product::name(tile, output), config, args);
        let found = if gate { read_halves(&out, len) } else { read(&out, len) };
        let (mut got, mut wanted) = (vec![], vec![]);
        for (i, entry) in order.iter().enumerate() {
            let (line, expert) = (&found[i * rows..][..rows], chosen[*entry] as usize);
            if !(first..first + count).contains(&expert) {
                prop_assert!(line.iter().all(|v| *v == untouched), "written for another expert");
                continue;
            }
            let x = &x[if gate { entry / used } else { i } * cols..][..cols];
            let product = |row: usize| dot(x, &w[((expert - first) * rows + row) * cols..][..cols]);
            got.extend(line);
            wanted.extend((0..rows).map(|r| match output {
                Output::Sums => product(r),
                Output::Gate => 0.25 * product(r) / (1.0 + (-product(r)).exp()) * product(count * rows + r),
            }));
        }
        let bound = if gate { 1e-6 } else { 1e-11 };
        prop_assert!(nmse(&got, &wanted) < bound, "{tile:?} {output:?}: NMSE {:e}", nmse(&got, &wanted));
    }

    #[test]
    fn results_of_experts_are_added_by_their_shares(tokens in 1usize..6, len in 1usize..60, used in 1usize..9, seed: u64) {
        let random = &mut Random(seed);
        let (len, entries) = (16 * len, tokens * used);
        let (parts, shares) = (random.values(entries * len), random.values(entries));
        let x = random.values((tokens + 1) * len);
        let mut rows: Vec<u32> = (0..entries as u32).collect();
        (1..entries).for_each(|i| rows.swap(i, random.bits() as usize % (i + 1)));
        let stream = floats(&x);
        let args = combine::Combine {
            parts: &floats(&parts), rows: &words(&rows), shares: &floats(&shares),
            prompt: &chunk(0, &vec![0; tokens]), x: &stream, len: len as u32, used: used as u32, factor: 4.0,
        };
        let grid = combine::grid(tokens as u32 + 1, len as u32);
        launch(NAME, "prompt_combine", LaunchConfig::new(grid, combine::THREADS), args);
        let mut wanted: Vec<f64> = x.iter().map(|v| f64::from(*v)).collect();
        for (entry, row) in rows.iter().enumerate() {
            let part = &parts[*row as usize * len..][..len];
            let to = &mut wanted[entry / used * len..][..len];
            to.iter_mut().zip(part).for_each(|(v, p)| *v += 4.0 * f64::from(shares[entry]) * f64::from(*p));
        }
        let found = read(&stream, x.len());
        prop_assert!(nmse(&found, &wanted) < 1e-12);
        prop_assert_eq!(&found[tokens * len..], &x[tokens * len..], "written past the chunk");
    }
}
