//! Graphs with branches, and launches that begin before the one they follow has ended: whatever way the
//! launches are started, the results are those of running them one after the other.

use anyhow::{Result, ensure};
use hcq::{
    Args, Buffer, Device, DeviceOptions, Error, GraphBuilder, Kernel, LaunchConfig, LaunchError, NodeId,
    Program,
};
use sass::Arch;

use crate::conformance::noise::Noise;
use crate::harness::{DEADLINE, Test, on_sim, open, open_with};
use crate::kernels::{LINKS, arch, early_cubin};

pub const TESTS: &[Test] = &[
    Test { name: "random_graphs_give_the_results_of_serial_execution", run: random_graphs, sim_only: false },
    Test { name: "random_graphs_without_links_give_the_same", run: unlinked_graphs, sim_only: false },
    Test { name: "links_see_what_other_sms_wrote", run: across_sms, sim_only: false },
    Test { name: "early_links_see_what_other_sms_wrote", run: early_across_sms, sim_only: false },
    Test { name: "forks_and_joins_keep_their_order_over_many_replays", run: diamonds, sim_only: false },
    Test { name: "an_early_launch_needs_a_kernel_that_waits", run: refusals, sim_only: false },
];

/// Inputs of a `gather`.
const INPUTS: usize = 4;
const BLOCK: u32 = 512;

/// The kernels, and what a `gather` is made of.
struct Bench {
    device: Device,
    plain: Kernel,
    /// May begin before the launch that it follows has ended, where the device has such links.
    early: Kernel,
    /// Words of a buffer.
    count: u32,
    zeros: Buffer,
}

/// The inputs of a launch besides zeros, and the value it adds.
struct Gather<'a> {
    inputs: Vec<&'a Buffer>,
    shift: u32,
    add: u32,
}

impl Bench {
    fn new(device: Device, count: u32) -> Result<Self> {
        let arch = arch(&device)?;
        let gather = |program: Program| program.kernel("gather");
        let plain = gather(device.load(LINKS)?)?;
        let early = match early_cubin(arch) {
            Some(cubin) => gather(device.load(cubin)?)?,
            None => plain.clone(),
        };
        let zeros = device.alloc(u64::from(4 * count))?;
        zeros.write(0, &vec![0; 4 * count as usize])?;
        Ok(Self { device, plain, early, count, zeros })
    }

    fn buffer(&self) -> Result<Buffer> {
        let buffer = self.device.alloc(u64::from(4 * self.count))?;
        buffer.write(0, &vec![0xff; 4 * self.count as usize])?;
        Ok(buffer)
    }

    /// Adds a launch that writes `out`.
    fn add(
        &self,
        graph: &mut GraphBuilder,
        out: &Buffer,
        gather: &Gather<'_>,
        after: &[NodeId],
        early: bool,
    ) -> Result<NodeId> {
        let inputs = gather.inputs.iter().copied().chain(std::iter::repeat(&self.zeros)).take(INPUTS);
        let args = inputs.fold(Args::new().buffer(out), Args::buffer);
        let args = args.u32(self.count).u32(gather.shift).u32(gather.add);
        let shape = LaunchConfig::new(self.count.div_ceil(BLOCK), BLOCK);
        Ok(match (after, early) {
            // SAFETY: the kernel reads and writes `count` words of each buffer, after its wait.
            ([one], true) => unsafe { graph.launch_early(&self.early, shape, &args, *one) }?,
            // SAFETY: the kernel reads and writes `count` words of each buffer.
            _ => unsafe { graph.launch_after(&self.plain, shape, &args, after) }?,
        })
    }

    /// The words that a launch writes, of those that its inputs hold.
    fn expect(&self, inputs: &[&Vec<u32>], shift: u32, add: u32) -> Vec<u32> {
        let at = |input: usize, j: usize| inputs.get(input).map_or(0, |words| words[j]);
        let of = |i: u32| {
            let j = ((i + shift) % self.count) as usize;
            (0..INPUTS)
                .fold(0_u32, |sum, input| sum.wrapping_mul(3).wrapping_add(at(input, j)))
                .wrapping_add(add)
        };
        (0..self.count).map(of).collect()
    }
}

/// A launch of a random graph, and what it depends on.
struct Planned {
    after: Vec<usize>,
    early: bool,
    /// A barrier comes before it.
    barrier: bool,
    reads: Vec<usize>,
}

/// Launches that read what they follow, by name or by a barrier, up to four of them.
fn planned(noise: &mut Noise, launches: usize) -> Vec<Planned> {
    let mut plan: Vec<Planned> = Vec::new();
    let (mut section, style) = (0, noise.below(3));
    for number in 0..launches {
        let barrier = number > 0 && noise.below(8) == 0;
        if barrier {
            section = number;
        }
        let wanted = if number == 0 { 0 } else { noise.below([2, 4, 5][style]) };
        // Mostly what was added last: long paths, and forks of more than two now and then.
        let near = |noise: &mut Noise| number - 1 - noise.below(number.min(6));
        let mut after: Vec<usize> = (0..wanted).map(|_| near(noise)).collect();
        let early = after.len() == 1 && noise.below(2) == 0;
        let mut reads = after.clone();
        if section > 0 && noise.below(2) == 0 {
            reads.push(noise.below(section));
        }
        reads.truncate(INPUTS);
        if noise.below(8) == 0 {
            after.extend(after.clone());
        }
        plan.push(Planned { after, early: early && reads.len() == 1, barrier, reads });
    }
    plan
}

fn random_graph(bench: &Bench, seed: u64) -> Result<()> {
    let mut noise = Noise::new(seed);
    let launches = 2 + noise.below(22);
    let plan = planned(&mut noise, launches);
    let buffers = plan.iter().map(|_| bench.buffer()).collect::<Result<Vec<_>>>()?;
    let (mut graph, mut nodes, mut expected) = (bench.device.graph(), Vec::new(), Vec::<Vec<u32>>::new());
    for (number, launch) in plan.iter().enumerate() {
        if launch.barrier {
            graph.barrier();
        }
        let (shift, add) = (noise.bits() % bench.count, noise.bits());
        let after: Vec<NodeId> = launch.after.iter().map(|at| nodes[*at]).collect();
        let gather = Gather { inputs: launch.reads.iter().map(|at| &buffers[*at]).collect(), shift, add };
        nodes.push(bench.add(&mut graph, &buffers[number], &gather, &after, launch.early)?);
        let inputs: Vec<&Vec<u32>> = launch.reads.iter().map(|at| &expected[*at]).collect();
        expected.push(bench.expect(&inputs, shift, add));
    }
    let (graph, mut queue) = (graph.build()?, bench.device.queue()?);
    for _ in 0..3 {
        for buffer in &buffers {
            buffer.write_slice(0, &vec![0xdead_beef_u32; bench.count as usize])?;
        }
        // Two in flight.
        queue.replay(&graph)?;
        queue.replay(&graph)?.wait(DEADLINE)?;
        for (number, buffer) in buffers.iter().enumerate() {
            ensure!(
                buffer.read_vec::<u32>(0, bench.count as usize)? == expected[number],
                "seed {seed}: launch {number} of {launches}"
            );
        }
    }
    Ok(())
}

fn random_graphs_on(device: Device) -> Result<()> {
    let (count, graphs) = if on_sim() { (160, 24) } else { (20_000, 100) };
    let bench = Bench::new(device, count)?;
    (0..graphs).try_for_each(|seed| random_graph(&bench, seed))
}

fn random_graphs() -> Result<()> {
    random_graphs_on(open()?)
}

fn unlinked_graphs() -> Result<()> {
    random_graphs_on(open_with(|options: &mut DeviceOptions| options.chain_launches = false)?)
}

/// Launches that follow each other, each of which reads what blocks far away wrote before: `links` of them in
/// graphs of 200.
fn line(bench: &Bench, early: bool, links: u32) -> Result<()> {
    let length = links.min(200);
    let [a, b] = [bench.buffer()?, bench.buffer()?];
    a.write_slice(0, &vec![1_u32; bench.count as usize])?;
    let (mut graph, mut last) = (bench.device.graph(), None);
    let shift = bench.count / 2 + 7;
    for link in 0..length {
        let (from, to) = if link % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let gather = Gather { inputs: vec![from], shift, add: link };
        let after: Vec<NodeId> = last.into_iter().collect();
        last = Some(bench.add(&mut graph, to, &gather, &after, early)?);
    }
    let (graph, mut queue) = (graph.build()?, bench.device.queue()?);
    let mut word = 1_u32;
    for replay in 0..links / length {
        queue.replay(&graph)?.wait(DEADLINE)?;
        // Every word is the same: a stale one shows wherever it was read.
        word = (0..length).fold(word, |word, link| word.wrapping_mul(27).wrapping_add(link));
        let wrong = a.read_vec::<u32>(0, bench.count as usize)?.iter().filter(|got| **got != word).count();
        ensure!(wrong == 0, "replay {replay}: {wrong} of {} words are wrong", bench.count);
    }
    Ok(())
}

/// Words and links of a [`line`]: as many blocks as an H200 has SMs.
fn size() -> (u32, u32) {
    if on_sim() { (4 * BLOCK, 6) } else { (132 * BLOCK, 20_000) }
}

fn across_sms() -> Result<()> {
    let (count, links) = size();
    line(&Bench::new(open()?, count)?, false, links)
}

fn early_across_sms() -> Result<()> {
    let (count, links) = size();
    line(&Bench::new(open()?, count)?, true, links)
}

/// One launch, two that follow it, one that follows both, and so on: the last of each diamond begins the
/// next.
fn diamonds() -> Result<()> {
    let (count, diamonds, replays) = if on_sim() { (2 * BLOCK, 3, 3) } else { (132 * BLOCK, 50, 200) };
    let bench = Bench::new(open()?, count)?;
    let [a, b, c] = [bench.buffer()?, bench.buffer()?, bench.buffer()?];
    a.write(0, &vec![0; 4 * count as usize])?;
    let (mut graph, mut last) = (bench.device.graph(), None::<NodeId>);
    let shift = count / 3;
    for _ in 0..diamonds {
        let first: Vec<NodeId> = last.into_iter().collect();
        let left = bench.add(&mut graph, &b, &Gather { inputs: vec![&a], shift, add: 1 }, &first, false)?;
        let right = bench.add(&mut graph, &c, &Gather { inputs: vec![&a], shift, add: 2 }, &first, false)?;
        let both = Gather { inputs: vec![&b, &c], shift, add: 3 };
        last = Some(bench.add(&mut graph, &a, &both, &[left, right], false)?);
    }
    let (graph, mut queue) = (graph.build()?, bench.device.queue()?);
    let mut word = 0_u32;
    for replay in 0..replays {
        queue.replay(&graph)?.wait(DEADLINE)?;
        for _ in 0..diamonds {
            let of = |add: u32| word.wrapping_mul(27).wrapping_add(add);
            word = of(1).wrapping_mul(3).wrapping_add(of(2)).wrapping_mul(9).wrapping_add(3);
        }
        let wrong = a.read_vec::<u32>(0, count as usize)?.iter().filter(|got| **got != word).count();
        ensure!(wrong == 0, "replay {replay}: {wrong} of {count} words are wrong");
    }
    Ok(())
}

fn refusals() -> Result<()> {
    let bench = Bench::new(open()?, BLOCK)?;
    let (out, shape) = (bench.buffer()?, LaunchConfig::new(1, BLOCK));
    let mut graph = bench.device.graph();
    let gather = Gather { inputs: Vec::new(), shift: 0, add: 0 };
    let first = bench.add(&mut graph, &out, &gather, &[], false)?;
    let args = (0..INPUTS).fold(Args::new().buffer(&out), |args, _| args.buffer(&bench.zeros));
    let args = args.u32(BLOCK).u32(0).u32(0);
    // SAFETY: as in `add`.
    let without = unsafe { graph.launch_early(&bench.plain, shape, &args, first) };
    match arch(&bench.device)? {
        Arch::Sm90 => {
            ensure!(matches!(without, Err(Error::Launch(LaunchError::NoGridWait { .. }))), "{without:?}")
        }
        _ => ensure!(without.is_ok(), "{without:?}"),
    }
    let mut other = bench.device.graph();
    let foreign = bench.add(&mut other, &out, &gather, &[], false)?;
    // SAFETY: as in `add`.
    let foreign = unsafe { graph.launch_after(&bench.plain, shape, &args, &[foreign]) };
    ensure!(matches!(foreign, Err(Error::Launch(LaunchError::ForeignNode { .. }))), "{foreign:?}");
    Ok(())
}
