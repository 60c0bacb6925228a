//! The lengths of heads that attention kernels have, and the split of positions over blocks.

/// The head lengths that there are kernels for; a shorter head takes the next one.
pub const HEAD_DIMS: [u32; 3] = [64, 128, 256];
/// The longest head that there is a kernel for.
pub const LONGEST_HEAD: u32 = HEAD_DIMS[HEAD_DIMS.len() - 1];
/// Lower than any score; unlike infinity, its difference to itself is 0.
pub(crate) const LOWEST: f32 = -1e30;

/// Longest work of the busiest worker, as a multiple of the average.
const EVEN: f64 = 1.06;
/// Most split-K parts above the least that are tried.
const MOST_MORE_SHARES: u32 = 16;

/// The head length of the kernel that takes heads of `head_dim` values.
pub fn kernel_dims(head_dim: u32) -> u32 {
    HEAD_DIMS.into_iter().find(|dims| *dims >= head_dim).unwrap_or(LONGEST_HEAD)
}

/// The number of split-K parts for the positions of `units` pieces of work for `workers`: `least`, or some
/// more if that keeps the busiest worker close to the average.
pub fn even_shares(units: u32, workers: u32, least: u32) -> u32 {
    let least = least.max(1);
    // The work of the busiest, as a multiple of the average.
    let excess = |shares: &u32| {
        let items = u64::from(units) * u64::from(*shares);
        (items.div_ceil(workers.into()) * u64::from(workers)) as f64 / items as f64
    };
    let candidates = || least..least + MOST_MORE_SHARES;
    let even = candidates().find(|s| excess(s) <= EVEN);
    let best = candidates().min_by(|a, b| excess(a).total_cmp(&excess(b)));
    even.or(best).unwrap_or(least)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_keep_all_workers_busy() {
        // Heads that divide the blocks, or nearly: one round.
        assert_eq!(even_shares(8, 16, 2), 2);
        assert_eq!(even_shares(8, 132, 16), 16);
        // 6 SMs are on in the 15 W mode of an Orin: four rounds of 24 instead of two of 8.
        assert_eq!(even_shares(8, 6, 1), 3);
        assert_eq!(even_shares(10, 16, 1), 8);
        for (units, workers) in (1..70).flat_map(|u| (1..140).map(move |w| (u, w))) {
            let shares = even_shares(units, workers, workers / units);
            let items = units * shares;
            let excess = f64::from(items.div_ceil(workers) * workers) / f64::from(items);
            assert!(excess < 1.13, "{units} units on {workers}: {shares} shares, {excess}");
        }
    }
}
