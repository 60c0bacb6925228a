//! How many of its cases a test runs: a sample with each change, all of them in the nightly check.

use std::fmt::Display;
use std::io::Write;

/// The environment variable that makes tests run all of their cases: `1`.
pub const NIGHTLY: &str = "NIGHTLY";

/// The environment variable with the seed of samples, a number; 1 where it is unset.
pub const SEED: &str = "SAMPLE_SEED";

/// Whether tests run all of their cases.
pub fn nightly() -> bool {
    std::env::var_os(NIGHTLY).is_some_and(|value| value == "1")
}

/// All cases in the nightly check, else one of each `of` neighbours, chosen by the seed; says on stderr which.
///
/// # Panics
/// If the seed is no number.
pub fn sample<T>(what: impl Display, mut cases: Vec<T>, of: usize) -> Vec<T> {
    if nightly() {
        return cases;
    }
    let seed = match std::env::var(SEED) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SEED}={text} is no number")),
        Err(_) => 1,
    };
    let (all, what) = (cases.len(), what.to_string());
    // FNV-1a of the name, so that tests with lists alike choose differently.
    let name = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    let chosen = choose(all, of, what.bytes().fold(seed ^ 0xcbf2_9ce4_8422_2325, name));
    let mut number = 0..;
    cases.retain(|_| number.next().is_some_and(|number| chosen.contains(&number)));
    // Not by a macro: their output is captured while a test passes. A closed stderr is no reason to fail.
    let _ = writeln!(
        std::io::stderr(),
        "sampled: {what}, {} of {all} cases with {SEED}={seed}: {chosen:?}; {NIGHTLY}=1 runs all",
        cases.len()
    );
    cases
}

/// One number of each `of` neighbours among `0..all`.
fn choose(all: usize, of: usize, seed: u64) -> Vec<usize> {
    let pick = |begin: usize| {
        // SplitMix64, so that neighbours' choices have nothing in common.
        let mut z = (seed ^ (begin as u64).rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        begin + ((z ^ (z >> 31)) % of.min(all - begin) as u64) as usize
    };
    (0..all).step_by(of).map(pick).collect()
}

#[cfg(test)]
mod tests {
    use super::choose;

    #[test]
    fn a_sample_has_one_of_each_group_and_all_seeds_together_everything() {
        for (all, of) in [(0, 4), (1, 4), (8, 4), (11, 4), (7, 1)] {
            let mut seen = vec![false; all];
            for seed in 0..100 {
                let chosen = choose(all, of, seed);
                assert_eq!(chosen.len(), all.div_ceil(of));
                assert!(chosen.iter().enumerate().all(|(group, at)| at / of == group && *at < all));
                chosen.iter().for_each(|at| seen[*at] = true);
            }
            assert!(seen.iter().all(|seen| *seen), "{of} of {all}: {seen:?}");
        }
    }
}
