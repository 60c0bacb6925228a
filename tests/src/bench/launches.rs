//! Launches one by one, in batches, and in graphs. Kernels are one whose single thread that does anything
//! stores one word, and one that loads, changes and stores it, which adds the way to memory and back.

use std::time::Instant;

use anyhow::Result;
use hcq::{Args, Graph, Kernel, LaunchConfig};

use crate::bench::{Bench, DEADLINE, MIB, us};

/// Kernels of a graph.
const NODES: u32 = 230;
/// Addresses whose words [`Bench::graph_by_address`] uses: how fast a link is depends on the slice of the
/// level-2 cache that holds the word.
const ADDRESSES: u64 = 48;

/// One warp: no more than the launch itself is to be measured.
fn config() -> LaunchConfig {
    LaunchConfig::new(1, 32)
}

/// Offset of word `i` of [`ADDRESSES`]: in pages of 4 KiB, then in pages of 2 MiB.
fn word_at(i: u64) -> u64 {
    match i.checked_sub(ADDRESSES / 2) {
        None => i * 4096,
        Some(i) => (i + 1) * 2 * MIB + i % 7 * 128,
    }
}

impl Bench {
    /// Microseconds of a launch and its wait, `count` times.
    pub fn launch_and_wait(&self, count: u32) -> Result<Vec<f64>> {
        let mut queue = self.device.queue()?;
        let data = self.device.alloc(4)?;
        let (kernel, args) = self.on_word("write_one", &data, 0)?;
        (0..count)
            .map(|_| {
                let began = Instant::now();
                // SAFETY: the kernel writes one word of `data`.
                unsafe { queue.launch(&kernel, config(), &args)? };
                queue.submit()?.wait(DEADLINE)?;
                Ok(us(began))
            })
            .collect()
    }

    /// `count` launches one by one, fewer in batches.
    ///
    /// # Errors
    /// Those of the device.
    pub fn launches(&mut self, count: u32) -> Result<()> {
        let samples = self.launch_and_wait(count)?;
        self.record("launch + wait", "us", samples);
        let mut queue = self.device.queue()?;
        let samples = (0..count)
            .map(|_| {
                let began = Instant::now();
                queue.submit()?.wait(DEADLINE)?;
                Ok(us(began))
            })
            .collect::<Result<_>>()?;
        self.record("submission without a launch + wait", "us", samples);
        let data = self.device.alloc(4)?;
        for (name, kernel, dependent) in [
            ("dependent launches, per kernel", "write_one", true),
            ("dependent launches of load + store, per kernel", "add_one", true),
            ("independent launches, per kernel", "write_one", false),
        ] {
            let (kernel, args) = self.on_word(kernel, &data, 0)?;
            let (mut samples, batch) = (Vec::new(), (count / 10).max(1));
            for _ in 0..50 {
                let began = Instant::now();
                for _ in 0..batch {
                    // SAFETY: the kernel works on one word of `data`.
                    unsafe { queue.launch(&kernel, config(), &args)? };
                    if dependent {
                        queue.barrier();
                    }
                }
                queue.submit()?.wait(DEADLINE)?;
                samples.push(us(began) / f64::from(batch));
            }
            self.record(name, "us", samples);
        }
        Ok(())
    }

    /// A graph of launches that follow each other.
    fn line(&self, kernel: &Kernel, args: &Args) -> Result<Graph> {
        let mut builder = self.device.graph();
        for _ in 0..NODES {
            // SAFETY: the kernels work on the one word that is their argument.
            unsafe { builder.launch(kernel, config(), args)? };
            builder.barrier();
        }
        Ok(builder.build()?)
    }

    /// A graph of launches each of which may begin before the one it follows has ended.
    fn early_line(&self, kernel: &Kernel, args: &Args) -> Result<Graph> {
        let mut builder = self.device.graph();
        // SAFETY: the kernels wait before they work on the one word that is their argument.
        let mut last = unsafe { builder.launch(kernel, config(), args)? };
        for _ in 1..NODES {
            // SAFETY: as above.
            last = unsafe { builder.launch_early(kernel, config(), args, last)? };
        }
        Ok(builder.build()?)
    }

    /// A graph of diamonds: one launch, two that follow it, one that follows both, which begins the next.
    fn diamonds(&self, kernel: &Kernel, args: [&Args; 2]) -> Result<Graph> {
        let mut builder = self.device.graph();
        // SAFETY: the kernels work on the one word that is their argument; the two side by side on two.
        let mut last = unsafe { builder.launch(kernel, config(), args[0])? };
        for _ in 0..NODES / 3 {
            // SAFETY: as above.
            let sides = args.map(|args| unsafe { builder.launch_after(kernel, config(), args, &[last]) });
            let [left, right] = sides;
            // SAFETY: as above.
            last = unsafe { builder.launch_after(kernel, config(), args[0], &[left?, right?])? };
        }
        Ok(builder.build()?)
    }

    /// Graphs of links that begin early, and of forks and joins.
    pub fn linked_graphs(&mut self, replays: u32) -> Result<()> {
        let data = self.device.alloc(2 * 4096)?;
        for (name, row) in [
            ("write_one", "graph of 230 early links, per kernel"),
            ("add_one", "graph of 230 early links of load + store"),
        ] {
            let Some((kernel, args)) = self.on_word_early(name, &data)? else { continue };
            let samples = self.replays(&self.early_line(&kernel, &args)?, replays)?;
            self.record(row, "us", samples.iter().map(|s| s / f64::from(NODES)).collect());
        }
        let (kernel, left) = self.on_word("write_one", &data, 0)?;
        let (_, right) = self.on_word("write_one", &data, 4096)?;
        let samples = self.replays(&self.diamonds(&kernel, [&left, &right])?, replays)?;
        let launches = f64::from(1 + NODES / 3 * 3);
        self.record(
            "graph of 76 forks and joins, per kernel",
            "us",
            samples.iter().map(|s| s / launches).collect(),
        );
        Ok(())
    }

    /// Microseconds of each of `replays`, after one that is not counted.
    fn replays(&self, graph: &Graph, replays: u32) -> Result<Vec<f64>> {
        let mut queue = self.device.queue()?;
        queue.replay(graph)?.wait(DEADLINE)?;
        (0..replays)
            .map(|_| {
                let began = Instant::now();
                queue.replay(graph)?.wait(DEADLINE)?;
                Ok(us(began))
            })
            .collect()
    }

    /// A graph of launches that follow each other, replayed `replays` times.
    ///
    /// # Errors
    /// Those of the device.
    pub fn graph(&mut self, replays: u32) -> Result<()> {
        let data = self.device.alloc(4)?;
        for (name, whole, per_kernel) in [
            (
                "write_one",
                "graph of 230 dependent kernels, whole",
                "graph of 230 dependent kernels, per kernel",
            ),
            ("add_one", "graph of 230 of load + store, whole", "graph of 230 of load + store, per kernel"),
        ] {
            let (kernel, args) = self.on_word(name, &data, 0)?;
            let samples = self.replays(&self.line(&kernel, &args)?, replays)?;
            let each = samples.iter().map(|s| s / f64::from(NODES)).collect();
            self.record(whole, "us", samples);
            self.record(per_kernel, "us", each);
        }
        Ok(())
    }

    /// The median of `replays` at each of 48 addresses; the row's quantiles are over the addresses.
    pub fn graph_by_address(&mut self, replays: u32) -> Result<()> {
        let data = self.device.alloc(word_at(ADDRESSES))?;
        for (kernel, name) in [
            ("write_one", "graph of 230, per kernel, 48 addresses"),
            ("add_one", "graph of 230 of load + store, 48 addresses"),
        ] {
            let medians = (0..ADDRESSES).map(|i| {
                let (kernel, args) = self.on_word(kernel, &data, word_at(i))?;
                let mut samples = self.replays(&self.line(&kernel, &args)?, replays)?;
                samples.sort_by(f64::total_cmp);
                Ok(samples[samples.len() / 2] / f64::from(NODES))
            });
            let medians = medians.collect::<Result<_>>()?;
            self.record(name, "us", medians);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{ADDRESSES, word_at};

    #[test]
    fn the_words_lie_apart_and_within_the_buffer() {
        let mut words: Vec<u64> = (0..ADDRESSES).map(word_at).collect();
        assert!(words.iter().all(|at| at.is_multiple_of(4) && at + 4 <= word_at(ADDRESSES)));
        words.dedup();
        assert_eq!(words.len() as u64, ADDRESSES);
    }
}
