//! Copies and allocations.

use std::time::Instant;

use anyhow::Result;

use crate::bench::{Bench, DEADLINE, MIB, WARM_AGAIN, us};

impl Bench {
    /// GB/s of `count` runs of `copy`, which moves `bytes`.
    pub fn rates(
        &mut self,
        name: &str,
        count: u64,
        bytes: u64,
        mut copy: impl FnMut() -> Result<()>,
    ) -> Result<()> {
        self.warm_up(WARM_AGAIN)?;
        let samples = (0..count)
            .map(|_| {
                let began = Instant::now();
                copy()?;
                Ok(bytes as f64 / us(began) / 1e3)
            })
            .collect::<Result<_>>()?;
        self.record(name, "GB/s", samples);
        Ok(())
    }

    /// Copies of up to `largest` MiB, in both directions and within the device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn copies(&mut self, largest: u64) -> Result<()> {
        let names = [
            (16, ["D2H 16 MiB pageable", "H2D 16 MiB pageable", "D2H 16 MiB pinned", "H2D 16 MiB pinned"]),
            (
                256,
                ["D2H 256 MiB pageable", "H2D 256 MiB pageable", "D2H 256 MiB pinned", "H2D 256 MiB pinned"],
            ),
        ];
        let mut queue = self.device.copy_queue()?;
        for (mib, [down, up, down_pinned, up_pinned]) in names.into_iter().filter(|c| c.0 <= largest) {
            let (len, count) = (mib * MIB, (1600 / mib).clamp(5, 100));
            let (buffer, pinned) = (self.device.alloc(len)?, self.device.alloc_host(len)?);
            let mut host = vec![1_u8; len as usize];
            buffer.write(0, &host)?;
            self.rates(up, count, len, || Ok(buffer.write(0, &host)?))?;
            self.rates(down, count, len, || Ok(buffer.read(0, &mut host)?))?;
            for (name, from, to) in [(up_pinned, &pinned, &buffer), (down_pinned, &buffer, &pinned)] {
                self.rates(name, count, len, || {
                    queue.copy(from, 0, to, 0, len)?;
                    Ok(queue.submit()?.wait(DEADLINE)?)
                })?;
            }
        }
        let len = largest.min(1024) * MIB;
        let (from, to) = (self.device.alloc(len)?, self.device.alloc(len)?);
        // The second at addresses that differ modulo 16.
        for (name, queue, at) in [
            ("D2D, read + written", &mut self.device.queue()?, 0),
            ("D2D to 3 bytes on, read + written", &mut self.device.queue()?, 3),
            ("D2D on a copy queue, read + written", &mut queue, 0),
        ] {
            self.rates(name, 30, 2 * len, || {
                queue.copy(&from, 0, &to, at, len - at)?;
                Ok(queue.submit()?.wait(DEADLINE)?)
            })?;
        }
        Ok(())
    }

    /// Allocations of 256 MiB, and their release.
    ///
    /// # Errors
    /// Those of the device.
    pub fn allocations(&mut self) -> Result<()> {
        let (mut alloc, mut free) = (Vec::new(), Vec::new());
        for _ in 0..100 {
            let began = Instant::now();
            let buffer = self.device.alloc(256 * MIB)?;
            alloc.push(us(began));
            let began = Instant::now();
            drop(buffer);
            free.push(us(began));
        }
        self.record("alloc 256 MiB", "us", alloc);
        self.record("free 256 MiB", "us", free);
        Ok(())
    }
}
