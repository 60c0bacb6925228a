//! Writes of a launch are seen by the commands that follow it, whatever way it was ordered and wherever it
//! wrote.

use anyhow::{Result, ensure};
use hcq::{Args, Buffer, Device, DeviceOptions, LaunchConfig, Queue, Release};

use crate::harness::{DEADLINE, Test, open, open_with};
use crate::kernels::Kernels;

pub const TESTS: &[Test] = &[
    Test { name: "linked_launches_see_each_others_results", run: linked, sim_only: false },
    Test { name: "launches_ordered_by_waits_see_each_others_results", run: waiting, sim_only: false },
    Test {
        name: "launches_that_signal_by_themselves_see_each_others_results",
        run: releasing,
        sim_only: false,
    },
    Test { name: "launches_in_graphs_see_each_others_results", run: in_graphs, sim_only: false },
    Test { name: "launches_see_results_in_host_buffers", run: through_host, sim_only: false },
    Test { name: "launches_see_what_the_copy_engine_wrote", run: engine_copies, sim_only: false },
    Test { name: "launches_see_what_a_copying_kernel_wrote", run: kernel_copies, sim_only: false },
    Test { name: "the_cpu_sees_what_every_launch_of_a_line_wrote", run: cpu_sees_all, sim_only: false },
];

const BLOCK: u32 = 256;
const BLOCKS: u32 = 24;
const COUNT: u32 = BLOCK * BLOCKS;
const ROUNDS: u32 = 40;

/// `out[i] = in[i]` of the block, backwards.
fn reversed(value: u32) -> impl Iterator<Item = u32> {
    (0..COUNT).map(move |i| value + i / BLOCK * BLOCK + (BLOCK - 1 - i % BLOCK))
}

/// The place of a test's data, and the copier between writer and reader.
struct Path {
    data: Buffer,
    /// Copied to from `data`, where a copy is part of the way; else the reader reads `data`.
    copy: Option<Buffer>,
    out: Buffer,
    kernels: Kernels,
}

impl Path {
    fn new(device: &Device, host: bool, copied: bool) -> Result<Self> {
        let len = u64::from(4 * COUNT);
        let alloc = |len| if host { device.alloc_host(len) } else { device.alloc(len) };
        let copy = copied.then(|| alloc(len)).transpose()?;
        let out = alloc(len * u64::from(ROUNDS))?;
        Ok(Self { data: alloc(len)?, copy, out, kernels: Kernels::load(device)? })
    }

    fn source(&self) -> &Buffer {
        self.copy.as_ref().unwrap_or(&self.data)
    }

    fn value(round: u32) -> u32 {
        round.wrapping_mul(0x0101_0007)
    }

    fn written(&self, round: u32) -> Args {
        Args::new().buffer(&self.data).u32(COUNT).u32(Self::value(round))
    }

    fn read(&self, round: u32) -> Args {
        Args::new().buffer(self.source()).buffer_at(&self.out, u64::from(4 * COUNT * round))
    }

    fn shape() -> LaunchConfig {
        LaunchConfig::new(BLOCKS, BLOCK).with_dynamic_shared(4 * BLOCK)
    }

    /// Every round writes other values to the same memory and reads them back: a line that a cache kept from
    /// the round before gives an old value. Submits, and waits if asked to, now and then.
    fn run(&self, queue: &mut Queue, submit_every: u32, wait: bool) -> Result<()> {
        let (fill, reverse) = (self.kernels.get("fill")?, self.kernels.get("reverse")?);
        for round in 0..ROUNDS {
            // SAFETY: `data` and `source` have COUNT words, and `out` has as many for each round.
            unsafe { queue.launch(&fill, LaunchConfig::new(BLOCKS, BLOCK), &self.written(round))? };
            queue.barrier();
            if let Some(copy) = &self.copy {
                queue.copy(&self.data, 0, copy, 0, self.data.len())?;
                queue.barrier();
            }
            // SAFETY: as above.
            unsafe { queue.launch(&reverse, Self::shape(), &self.read(round))? };
            queue.barrier();
            if round % submit_every == submit_every - 1 {
                let point = queue.submit()?;
                if wait {
                    point.wait(DEADLINE)?;
                }
            }
        }
        queue.submit()?.wait(DEADLINE)?;
        self.check()
    }

    fn check(&self) -> Result<()> {
        let got = self.out.read_vec::<u32>(0, (COUNT * ROUNDS) as usize)?;
        for (round, got) in (0..ROUNDS).zip(got.chunks(COUNT as usize)) {
            let want: Vec<u32> = reversed(Self::value(round)).collect();
            let wrong = got.iter().zip(&want).position(|(g, w)| g != w);
            ensure!(wrong.is_none(), "round {round}: word {wrong:?} is not what the launch before wrote");
        }
        Ok(())
    }
}

fn in_all_submissions(device: &Device, host: bool, copied: bool) -> Result<()> {
    for (submit_every, wait) in [(ROUNDS, true), (7, false), (1, false), (1, true)] {
        Path::new(device, host, copied)?.run(&mut device.queue()?, submit_every, wait)?;
    }
    Ok(())
}

fn ordered(change: impl FnOnce(&mut DeviceOptions)) -> Result<()> {
    in_all_submissions(&open_with(change)?, false, false)
}

fn linked() -> Result<()> {
    ordered(|options| options.chain_launches = true)
}

fn waiting() -> Result<()> {
    ordered(|options| options.chain_launches = false)
}

fn releasing() -> Result<()> {
    ordered(|options| options.profile.release = Some(Release::Launch))
}

fn through_host() -> Result<()> {
    in_all_submissions(&open()?, true, false)
}

fn engine_copies() -> Result<()> {
    in_all_submissions(&open_with(|options| options.kernel_copies_from = Some(u64::MAX))?, false, true)
}

fn kernel_copies() -> Result<()> {
    let device = open_with(|options| options.kernel_copies_from = Some(1))?;
    in_all_submissions(&device, false, true)?;
    in_all_submissions(&device, true, true)
}

fn in_graphs() -> Result<()> {
    let device = open_with(|options| options.kernel_copies_from = Some(1))?;
    let mut queue = device.queue()?;
    for copied in [false, true] {
        let path = Path::new(&device, false, copied)?;
        let (fill, reverse) = (path.kernels.get("fill")?, path.kernels.get("reverse")?);
        let mut builder = device.graph();
        // SAFETY: `data` and `source` have COUNT words, and `out` has as many for each round.
        let write = unsafe { builder.launch(&fill, LaunchConfig::new(BLOCKS, BLOCK), &path.written(0))? };
        builder.barrier();
        if let Some(copy) = &path.copy {
            builder.copy(&path.data, 0, copy, 0, path.data.len())?;
            builder.barrier();
        }
        // SAFETY: as above.
        let read = unsafe { builder.launch(&reverse, Path::shape(), &path.read(0))? };
        let graph = builder.build()?;
        // None is waited for: what is in flight keeps its arguments.
        for round in 0..ROUNDS {
            // SAFETY: as above.
            unsafe { graph.patch_args(write, 0, &path.written(round))? };
            // SAFETY: as above.
            unsafe { graph.patch_args(read, 0, &path.read(round))? };
            queue.replay(&graph)?;
        }
        queue.submit()?.wait(DEADLINE)?;
        path.check()?;
    }
    Ok(())
}

/// A line of launches that write to host memory, one of them last that writes one word elsewhere: when that
/// one has ended, the CPU sees what all have written.
fn cpu_sees_all() -> Result<()> {
    for release in Release::ALL {
        let device = open_with(|options| options.profile.release = Some(release))?;
        let fill = Kernels::load(&device)?.get("fill")?;
        let mut queue = device.queue()?;
        let (lines, each) = (8, u64::from(4 * COUNT));
        let (out, last) = (device.alloc_host(each * u64::from(lines))?, device.alloc(4)?);
        for round in 0..20 {
            for line in 0..lines {
                let args =
                    Args::new().buffer_at(&out, each * u64::from(line)).u32(COUNT).u32(round * 77 + line);
                // SAFETY: each line of `out` has COUNT words.
                unsafe { queue.launch(&fill, LaunchConfig::new(BLOCKS, BLOCK), &args)? };
                queue.barrier();
            }
            // SAFETY: one word is written.
            unsafe {
                queue.launch(&fill, LaunchConfig::new(1, 1), &Args::new().buffer(&last).u32(1).u32(round))?
            };
            queue.submit()?.wait(DEADLINE)?;
            let got = out.read_vec::<u32>(0, (COUNT * lines) as usize)?;
            for (line, got) in (0..lines).zip(got.chunks(COUNT as usize)) {
                let want = (0..COUNT).map(|i| round * 77 + line + i);
                ensure!(got.iter().copied().eq(want), "round {round}, line {line} is not there yet");
            }
            out.write_slice(0, &vec![0xEEEE_EEEE_u32; (COUNT * lines) as usize])?;
        }
    }
    Ok(())
}
