//! Memory stays until the last work that names it has ended, on whatever queue that is: who writes it, reads it
//! or gets it anew comes after all of that work.

use anyhow::{Result, ensure};
use hcq::{Args, Buffer, Device, Graph, Kernel, LaunchConfig, NodeId, Queue, SyncPoint};

use crate::harness::{DEADLINE, Test, open};
use crate::kernels::Kernels;

pub const TESTS: &[Test] = &[
    Test { name: "both_buffers_of_a_copy_stay_as_they_are_until_it_has_ended", run: copied, sim_only: false },
    Test { name: "a_read_waits_for_every_queue_that_names_the_buffer", run: every_queue, sim_only: false },
    Test {
        name: "a_buffer_that_was_patched_in_is_in_use_until_the_replay_ends",
        run: patched,
        sim_only: false,
    },
    Test { name: "a_replay_follows_the_one_on_another_queue", run: other_queue, sim_only: false },
    Test { name: "replays_keep_the_arguments_they_were_started_with", run: arguments, sim_only: false },
    Test { name: "buffers_that_were_patched_out_go_back_while_replays_run", run: frames, sim_only: false },
];

/// Polls that take a GPU some tenths of a second.
const LONG: u32 = 300_000;
const SHORT: u32 = 100_000;

fn one() -> LaunchConfig {
    LaunchConfig::new(1, 1)
}

/// A kernel that polls for a while.
struct Slow {
    kernel: Kernel,
    flag: Buffer,
    out: Buffer,
}

impl Slow {
    fn new(device: &Device, kernels: &Kernels) -> Result<Self> {
        let (flag, out) = (device.alloc(4)?, device.alloc(4)?);
        flag.write(0, &[0; 4])?;
        Ok(Self { kernel: kernels.get("await")?, flag, out })
    }

    fn args(&self, polls: u32) -> Args {
        Args::new().buffer(&self.flag).buffer(&self.out).u32(polls)
    }

    /// Work that `queue` does before all that is recorded later.
    fn launch(&self, queue: &mut Queue, polls: u32) -> Result<()> {
        // SAFETY: it reads one word, which nothing sets, writes another, and ends after so many polls.
        unsafe { queue.launch(&self.kernel, one(), &self.args(polls))? };
        queue.barrier();
        Ok(())
    }
}

/// Starts a copy of `len` bytes behind slow work.
type Start<'a> = &'a mut dyn FnMut(&Buffer, &Buffer, u64) -> Result<SyncPoint>;

/// Writes the source, or drops one of the buffers and writes to all memory that becomes free, while a copy has
/// yet to begin: it copies what was there.
fn copy_is_whole(device: &Device, len: u64, start: Start<'_>) -> Result<()> {
    let bytes = |byte| vec![byte; len as usize];
    let (source, target) = (device.alloc(len)?, device.alloc(len)?);
    let whole = |target: &Buffer, byte| -> Result<()> {
        let mut got = bytes(0);
        target.read(0, &mut got)?;
        let bad = got.iter().position(|got| *got != byte);
        ensure!(bad.is_none(), "byte {bad:?} of {len} is {:#x}, not {byte:#x}", got[bad.unwrap_or(0)]);
        Ok(())
    };
    source.write(0, &bytes(1))?;
    target.write(0, &bytes(0xee))?;
    start(&source, &target, len)?;
    source.write(0, &bytes(2))?;
    whole(&target, 1)?;
    let point = start(&source, &target, len)?;
    drop(source);
    let others = (0..4).map(|_| device.alloc(len)).collect::<Result<Vec<_>, _>>()?;
    others.iter().try_for_each(|other| other.write(0, &bytes(3)))?;
    point.wait(DEADLINE)?;
    whole(&target, 2)?;
    let [source, ..] = &others[..] else { return Ok(()) };
    let point = start(source, &target, len)?;
    drop(target);
    let others = (0..4).map(|_| device.alloc(len)).collect::<Result<Vec<_>, _>>()?;
    others.iter().try_for_each(|other| other.write(0, &bytes(4)))?;
    point.wait(DEADLINE)?;
    others.iter().try_for_each(|other| whole(other, 4))
}

fn copied() -> Result<()> {
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    let slow = Slow::new(&device, &kernels)?;
    let (mut queue, mut copies) = (device.queue()?, device.copy_queue()?);
    for len in [4096, 1 << 20] {
        copy_is_whole(&device, len, &mut |source, target, len| {
            slow.launch(&mut queue, SHORT)?;
            queue.copy(source, 0, target, 0, len)?;
            Ok(queue.submit()?)
        })?;
    }
    copy_is_whole(&device, 4096, &mut |source, target, len| {
        slow.launch(&mut queue, SHORT)?;
        copies.wait_for(&queue.submit()?)?;
        copies.copy(source, 0, target, 0, len)?;
        Ok(copies.submit()?)
    })?;
    copy_is_whole(&device, 4096, &mut |source, target, len| {
        let mut graph = device.graph();
        // SAFETY: as in `Slow::launch`.
        unsafe { graph.launch(&slow.kernel, one(), &slow.args(SHORT))? };
        graph.barrier();
        graph.copy(source, 0, target, 0, len)?;
        Ok(queue.replay(&graph.build()?)?)
    })
}

/// Two queues write a word each, one soon and one late.
fn every_queue() -> Result<()> {
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    let (fill, slows) =
        (kernels.get("fill")?, [Slow::new(&device, &kernels)?, Slow::new(&device, &kernels)?]);
    let mut queues = [device.queue()?, device.queue()?];
    for polls in [[SHORT, LONG], [LONG, SHORT]] {
        let words = device.alloc(8)?;
        words.write(0, &[0; 8])?;
        for (i, queue) in queues.iter_mut().enumerate() {
            slows[i].launch(queue, polls[i])?;
            let args = Args::new().buffer_at(&words, 4 * i as u64).u32(1).u32(7 + i as u32);
            // SAFETY: one word is written.
            unsafe { queue.launch(&fill, one(), &args)? };
            queue.submit()?;
        }
        ensure!(words.read_vec::<u32>(0, 2)? == [7, 8], "read before both queues had written, {polls:?}");
    }
    Ok(())
}

/// A graph: slow work, then a launch of `kernel`.
struct Delayed {
    graph: Graph,
    slow: NodeId,
    then: NodeId,
}

impl Delayed {
    /// # Safety
    /// As for [`hcq::GraphBuilder::launch`].
    unsafe fn new(device: &Device, slow: &Slow, polls: u32, kernel: &Kernel, args: &Args) -> Result<Self> {
        let mut graph = device.graph();
        // SAFETY: as in `Slow::launch`.
        let first = unsafe { graph.launch(&slow.kernel, one(), &slow.args(polls))? };
        graph.barrier();
        // SAFETY: the caller's promise.
        let then = unsafe { graph.launch(kernel, one(), args)? };
        Ok(Self { graph: graph.build()?, slow: first, then })
    }
}

fn patched() -> Result<()> {
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    let (slow, fill) = (Slow::new(&device, &kernels)?, kernels.get("fill")?);
    let (first, mut queue) = (device.alloc(4)?, device.queue()?);
    let args = Args::new().buffer(&first).u32(1).u32(0);
    // SAFETY: one word is written, here and with the patches.
    let delayed = unsafe { Delayed::new(&device, &slow, SHORT, &fill, &args)? };
    // Two patches in a row: the second replaces a buffer that a replay is still to write.
    let words = [device.alloc(4)?, device.alloc(4)?];
    for (word, value) in words.iter().zip(7..) {
        word.write(0, &[0; 4])?;
        let args = Args::new().buffer(word).u32(1).u32(value);
        // SAFETY: as above.
        unsafe { delayed.graph.patch_args(delayed.then, 0, &args)? };
        queue.replay(&delayed.graph)?;
    }
    for (word, value) in words.iter().zip(7..) {
        ensure!(word.read_vec::<u32>(0, 1)? == [value], "read before the replay had written {value}");
    }
    // Dropped while a replay is still to write it: nobody else has the memory meanwhile.
    let word = device.alloc(4)?;
    // SAFETY: as above.
    unsafe { delayed.graph.patch_args(delayed.then, 0, &Args::new().buffer(&word).u32(1).u32(9))? };
    let point = queue.replay(&delayed.graph)?;
    // SAFETY: as above.
    unsafe { delayed.graph.patch_args(delayed.then, 0, &Args::new().buffer(&first))? };
    drop(word);
    let others = (0..8).map(|_| device.alloc(4)).collect::<Result<Vec<_>, _>>()?;
    others.iter().try_for_each(|other| other.write(0, &[0; 4]))?;
    point.wait(DEADLINE)?;
    for other in &others {
        ensure!(other.read_vec::<u32>(0, 1)? == [0], "a replay wrote to a new buffer");
    }
    Ok(())
}

/// A slow replay, and a fast one on another queue.
fn other_queue() -> Result<()> {
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    let (slow, append) = (Slow::new(&device, &kernels)?, kernels.get("append")?);
    let (log, counter) = (device.alloc(4 * 4)?, device.alloc(4)?);
    counter.write(0, &[0; 4])?;
    let args = Args::new().buffer(&log).buffer(&counter).u32(0);
    // SAFETY: four replays write four words.
    let delayed = unsafe { Delayed::new(&device, &slow, LONG, &append, &args)? };
    let mut queues = [device.queue()?, device.queue()?];
    for (tag, polls) in [LONG, 1, SHORT, 1].into_iter().enumerate() {
        // SAFETY: as above; fewer polls.
        unsafe {
            delayed.graph.patch_args(delayed.slow, 2, &Args::new().u32(polls))?;
            delayed.graph.patch_args(delayed.then, 2, &Args::new().u32(tag as u32))?;
        }
        queues[tag % 2].replay(&delayed.graph)?;
    }
    let got = log.read_vec::<u32>(0, 4)?;
    ensure!(got == [0, 1, 2, 3], "replays on two queues in the order {got:?}");
    Ok(())
}

/// More replays in flight than a graph has encodings, each with another argument.
fn arguments() -> Result<()> {
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    let (slow, append) = (Slow::new(&device, &kernels)?, kernels.get("append")?);
    let (log, counter) = (device.alloc(4 * 8)?, device.alloc(4)?);
    counter.write(0, &[0; 4])?;
    let args = Args::new().buffer(&log).buffer(&counter).u32(0);
    // SAFETY: eight replays write eight words.
    let delayed = unsafe { Delayed::new(&device, &slow, SHORT, &append, &args)? };
    let mut queue = device.queue()?;
    for tag in 0..8 {
        // SAFETY: as above.
        unsafe { delayed.graph.patch_args(delayed.then, 2, &Args::new().u32(tag))? };
        queue.replay(&delayed.graph)?;
    }
    let got = log.read_vec::<u32>(0, 8)?;
    ensure!(got.iter().copied().eq(0..8), "replays in flight had the arguments {got:?}");
    Ok(())
}

/// An output of its own for each of 200 frames, two of which are in flight.
fn frames() -> Result<()> {
    const OUTPUT: u64 = 4 << 20;
    let device = open()?;
    let kernels = Kernels::load(&device)?;
    let (slow, fill) = (Slow::new(&device, &kernels)?, kernels.get("fill")?);
    let (first, mut queue) = (device.alloc(OUTPUT)?, device.queue()?);
    let args = Args::new().buffer(&first).u32(1).u32(0);
    // SAFETY: one word is written, here and with the patches.
    let delayed = unsafe { Delayed::new(&device, &slow, 1000, &fill, &args)? };
    drop((first, args));
    let mut in_flight: Option<SyncPoint> = None;
    for frame in 0..200 {
        let output = device.alloc(OUTPUT)?;
        // SAFETY: as above.
        unsafe { delayed.graph.patch_args(delayed.then, 0, &Args::new().buffer(&output).u32(1).u32(frame))? };
        let point = queue.replay(&delayed.graph)?;
        if let Some(before) = in_flight.replace(point) {
            before.wait(DEADLINE)?;
        }
        let outputs = device.memory_map().iter().filter(|mapping| mapping.len == OUTPUT).count();
        ensure!(outputs <= 3, "{outputs} outputs are mapped after frame {frame}");
    }
    Ok(())
}
