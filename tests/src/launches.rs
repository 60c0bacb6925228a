//! Launches: arguments, grids, shared and local memory, many of them.

use anyhow::{Result, ensure};
use hcq::{Args, Device, LaunchConfig};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{DEADLINE, Test, open};
use crate::kernels::Kernels;

pub const TESTS: &[Test] = &[
    Test { name: "a_kernel_writes_what_it_should", run: fill, sim_only: false },
    Test { name: "ten_thousand_launches_in_order", run: ten_thousand, sim_only: false },
    Test { name: "rings_wrap_without_waiting", run: rings_wrap, sim_only: false },
    Test { name: "many_launches_in_one_submission", run: many_in_one, sim_only: false },
    Test { name: "launches_of_many_shapes_are_kept_apart", run: many_shapes, sim_only: false },
    Test { name: "dynamic_shared_memory_of_every_size", run: shared_memory, sim_only: false },
    Test { name: "local_memory_is_each_threads_own", run: local_memory, sim_only: false },
    Test { name: "atomics_lose_no_count", run: atomics, sim_only: false },
    Test { name: "barriers_count_who_arrives_and_not_who_exits", run: named_barriers, sim_only: false },
    Test { name: "launches_that_cannot_run_are_errors", run: refusals, sim_only: false },
];

fn fill() -> Result<()> {
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let mut queue = device.queue()?;
    for (n, block) in [(1, 1), (31, 32), (1000, 96), (4097, 128), (100_000, 1024)] {
        let out = device.alloc(4 * (n + 64))?;
        out.write_slice(0, &vec![0xEEEE_EEEE_u32; n as usize + 64])?;
        let n32 = n as u32;
        // SAFETY: `fill` writes the first n words.
        unsafe {
            queue.launch(
                &fill,
                LaunchConfig::new(n32.div_ceil(block), block),
                &Args::new().buffer(&out).u32(n32).u32(7),
            )?
        };
        queue.submit()?.wait(DEADLINE)?;
        let got = out.read_vec::<u32>(0, n as usize + 64)?;
        ensure!(got[..n as usize].iter().copied().eq(7..7 + n32), "n = {n}, block = {block}");
        ensure!(got[n as usize..].iter().all(|&w| w == 0xEEEE_EEEE), "n = {n}: written behind the end");
    }
    Ok(())
}

/// The way of half a warp to `named_barrier`: reads of the flag before it goes on, value for the flag, what it
/// does there, and its count.
pub(crate) type Way = [u32; 4];
pub(crate) const EXITS: u32 = 0;
pub(crate) const WAITS: u32 = 1;
pub(crate) const ARRIVES: u32 = 2;
pub(crate) const WAITS_FOR_ALL: u32 = 3;

/// One block takes these ways; returns 1 + what each half of a warp reads of the flag behind the barrier, or 0.
pub(crate) fn meet(device: &Device, ways: &[Way]) -> Result<Vec<u32>> {
    let kernel = Kernels::load(device)?.get("named_barrier")?;
    let (plan, out) = (device.alloc(16 * ways.len() as u64)?, device.alloc(132)?);
    plan.write_slice(0, ways.as_flattened())?;
    out.write(0, &[0; 132])?;
    let mut queue = device.queue()?;
    let config = LaunchConfig::new(1, 16 * ways.len() as u32);
    // SAFETY: it reads a row of the plan for each half of a warp, and writes its word and the flag of `out`.
    unsafe { queue.launch(&kernel, config, &Args::new().buffer(&plan).buffer(&out))? };
    queue.submit()?.wait(DEADLINE)?;
    Ok(out.read_vec(0, ways.len())?)
}

fn named_barriers() -> Result<()> {
    const LATE: u32 = 20_000;
    let check = |what: &str, ways: &[Way], want: &[u32]| {
        let got = meet(&open()?, ways)?;
        ensure!(got == want, "{what}: {got:?}, expected {want:?}");
        Ok(())
    };
    let waits = |count| [0, 0, WAITS, count];
    let gives = [0, 7776, ARRIVES, 96];
    let (now, late) = ([0, 0, EXITS, 0], [LATE, 5, EXITS, 0]);
    let ways = [gives, gives, waits(96), waits(96), waits(96), waits(96)];
    let got = meet(&open()?, &ways)?;
    ensure!(got[2..] == [7777; 4], "an arrival before its warp exits: {got:?}");
    let slow = [LATE, 5, WAITS, 64];
    let ways = [waits(64), waits(64), slow, slow, now, now];
    check("a warp that exits does not count", &ways, &[6, 6, 6, 6, 0, 0])?;
    let all = [0, 0, WAITS_FOR_ALL, 0];
    let ways = [all, all, all, all, late, late];
    check("without a count, the last exit lets the others go", &ways, &[6, 6, 6, 6, 0, 0])?;
    check("half a warp is there, the other exits", &[waits(64), waits(64), waits(64), late], &[6, 6, 6, 0])?;
    let twice = [0, 0, ARRIVES, 64];
    check("two warps of three", &[twice, twice, waits(64), waits(64), now, now], &[1, 1, 1, 1, 0, 0])
}

/// x = 3 x + k for k = 0 ... 9,999, each its own submission and wait.
fn ten_thousand() -> Result<()> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let data = device.alloc(4)?;
    data.write(0, &[0; 4])?;
    let mut queue = device.queue()?;
    let mut want = 0_u32;
    for k in 0..10_000 {
        // SAFETY: one word is read and written.
        unsafe {
            queue.launch(&step, LaunchConfig::new(1, 32), &Args::new().buffer(&data).u32(1).u32(3).u32(k))?
        };
        queue.submit()?.wait(DEADLINE)?;
        want = want.wrapping_mul(3).wrapping_add(k);
    }
    ensure!(
        data.read_vec::<u32>(0, 1)? == [want],
        "10,000 launches gave {:?}, expected {want}",
        data.read_vec::<u32>(0, 1)?
    );
    Ok(())
}

/// More submissions than any ring has entries, none waited for before the last.
fn rings_wrap() -> Result<()> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let data = device.alloc(4)?;
    data.write(0, &[0; 4])?;
    let mut queue = device.queue()?;
    let mut want = 0_u32;
    let mut last = None;
    for k in 0..9_000 {
        // SAFETY: one word is read and written.
        unsafe {
            queue.launch(&step, LaunchConfig::new(1, 1), &Args::new().buffer(&data).u32(1).u32(5).u32(k))?
        };
        queue.barrier();
        last = Some(queue.submit()?);
        want = want.wrapping_mul(5).wrapping_add(k);
    }
    if let Some(point) = last {
        point.wait(DEADLINE)?;
    }
    ensure!(data.read_vec::<u32>(0, 1)? == [want], "9,000 submissions in flight gave a wrong result");
    Ok(())
}

fn many_in_one() -> Result<()> {
    let device = open()?;
    let (step, fill) = {
        let kernels = Kernels::load(&device)?;
        (kernels.get("step")?, kernels.get("fill")?)
    };
    let data = device.alloc(4 * 512)?;
    let mut queue = device.queue()?;
    // SAFETY: every launch stays within 512 words.
    unsafe {
        queue.launch(&fill, LaunchConfig::new(2, 256), &Args::new().buffer(&data).u32(512).u32(0))?;
        for k in 0..500 {
            queue.barrier();
            queue.launch(
                &step,
                LaunchConfig::new(4, 128),
                &Args::new().buffer(&data).u32(512).u32(3).u32(k),
            )?;
        }
    }
    queue.submit()?.wait(DEADLINE)?;
    for (i, got) in data.read_vec::<u32>(0, 512)?.into_iter().enumerate() {
        let want = (0..500).fold(i as u32, |x, k| x.wrapping_mul(3).wrapping_add(k));
        ensure!(got == want, "word {i} is {got}, expected {want}");
    }
    Ok(())
}

/// More kernels and shapes than a queue remembers, each several times, with other arguments each time.
fn many_shapes() -> Result<()> {
    let device = open()?;
    let kernels = [Kernels::load(&device)?.get("fill")?, Kernels::load(&device)?.get("fill")?];
    let mut queue = device.queue()?;
    let shapes: Vec<(u32, u32)> = (1..12).flat_map(|blocks| [1, 7, 32, 65].map(|t| (blocks, t))).collect();
    let outs = shapes.iter().map(|_| device.alloc(4 * 11 * 65)).collect::<Result<Vec<_>, _>>()?;
    for round in 0..4 {
        for (i, ((blocks, threads), out)) in shapes.iter().zip(&outs).enumerate() {
            let args = Args::new().buffer(out).u32(blocks * threads).u32(1000 * round + i as u32);
            let config = LaunchConfig::new(*blocks, *threads);
            // SAFETY: `fill` writes as many words as there are threads.
            unsafe { queue.launch(&kernels[(round % 2) as usize], config, &args)? };
        }
        queue.submit()?.wait(DEADLINE)?;
        for (i, ((blocks, threads), out)) in shapes.iter().zip(&outs).enumerate() {
            let (n, first) = (blocks * threads, 1000 * round + i as u32);
            let got = out.read_vec::<u32>(0, n as usize)?;
            ensure!(got.iter().copied().eq(first..first + n), "round {round}: {blocks} blocks of {threads}");
        }
    }
    Ok(())
}

fn shared_memory() -> Result<()> {
    let device = open()?;
    let reverse = Kernels::load(&device)?.get("reverse")?;
    let mut queue = device.queue()?;
    let mut rng = StdRng::seed_from_u64(5);
    for block in [1_u32, 2, 31, 32, 33, 100, 256, 513, 1024] {
        let data: Vec<u32> = (0..block * 7).map(|_| rng.random()).collect();
        let (input, out) = (device.alloc(4 * data.len() as u64)?, device.alloc(4 * data.len() as u64)?);
        input.write_slice(0, &data)?;
        let mut config = LaunchConfig::new(7, block);
        config.dynamic_shared = 4 * block;
        // SAFETY: each block reads and writes its own `block` words and `4 * block` bytes of shared memory.
        unsafe { queue.launch(&reverse, config, &Args::new().buffer(&input).buffer(&out))? };
        queue.submit()?.wait(DEADLINE)?;
        let want: Vec<u32> = data.chunks(block as usize).flat_map(|c| c.iter().rev().copied()).collect();
        ensure!(out.read_vec::<u32>(0, data.len())? == want, "block of {block}");
    }
    // More than 48 KiB has to be asked for explicitly in CUDA; here the launch just says it.
    let block = 1024;
    let mut config = LaunchConfig::new(7, block);
    config.dynamic_shared = 96 << 10;
    let data: Vec<u32> = (0..block * 7).collect();
    let (input, out) = (device.alloc(4 * data.len() as u64)?, device.alloc(4 * data.len() as u64)?);
    input.write_slice(0, &data)?;
    // SAFETY: as above, with shared memory to spare.
    unsafe { queue.launch(&reverse, config, &Args::new().buffer(&input).buffer(&out))? };
    queue.submit()?.wait(DEADLINE)?;
    let want: Vec<u32> = data.chunks(block as usize).flat_map(|c| c.iter().rev().copied()).collect();
    ensure!(out.read_vec::<u32>(0, data.len())? == want, "96 KiB of shared memory");
    Ok(())
}

fn local_memory() -> Result<()> {
    let device = open()?;
    let kernel = Kernels::load(&device)?.get("local_table")?;
    ensure!(
        kernel.local_bytes() >= 1024,
        "the kernel's table of 1 KiB is not in its frame: {}",
        kernel.local_bytes()
    );
    let mut queue = device.queue()?;
    let mut rng = StdRng::seed_from_u64(6);
    let data: Vec<u32> = (0..256).map(|_| rng.random()).collect();
    let input = device.alloc(1024)?;
    input.write_slice(0, &data)?;
    let (grid, block) = (24_u32, 192_u32);
    let out = device.alloc(u64::from(grid * block * 4))?;
    // SAFETY: 256 words are read, one word per thread is written.
    unsafe {
        queue.launch(&kernel, LaunchConfig::new(grid, block), &Args::new().buffer(&input).buffer(&out))?
    };
    queue.submit()?.wait(DEADLINE)?;
    for (i, got) in out.read_vec::<u32>(0, (grid * block) as usize)?.into_iter().enumerate() {
        let tid = i as u32 % block;
        let at = |j: u32| data[(j & 255) as usize] ^ tid;
        let want = at(data[i & 255]).wrapping_add(at(tid));
        ensure!(got == want, "thread {i}: {got:#x}, expected {want:#x}");
    }
    Ok(())
}

fn atomics() -> Result<()> {
    let device = open()?;
    let count = Kernels::load(&device)?.get("count")?;
    let counters = device.alloc(4 * 17)?;
    counters.write(0, &[0; 68])?;
    let mut queue = device.queue()?;
    // Not separated by barriers: the two grids may run at once and still lose nothing.
    for _ in 0..2 {
        // SAFETY: 17 words are counted up.
        unsafe { queue.launch(&count, LaunchConfig::new(50, 160), &Args::new().buffer(&counters))? };
    }
    queue.submit()?.wait(DEADLINE)?;
    let got = counters.read_vec::<u32>(0, 17)?;
    ensure!(got[..16].iter().all(|&c| c == 1000) && got[16] == 16_000, "{got:?}");
    Ok(())
}

fn refusals() -> Result<()> {
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let out = device.alloc(4096)?;
    let mut queue = device.queue()?;
    let good = Args::new().buffer(&out).u32(1).u32(1);
    let mut shared = LaunchConfig::new(1, 1);
    shared.dynamic_shared = 1 << 20;
    let tall = LaunchConfig::new([1, 65_536, 1], 1);
    let cases = [
        ("an empty grid", LaunchConfig::new(0, 32), good.clone()),
        ("an empty block", LaunchConfig::new(1, 0), good.clone()),
        ("a block of 1025", LaunchConfig::new(1, 1025), good.clone()),
        ("a grid of 65,536 along y", tall, good.clone()),
        ("1 MiB of shared memory", shared, good.clone()),
        ("too few arguments", LaunchConfig::new(1, 1), Args::new().buffer(&out).u32(1)),
        ("too many arguments", LaunchConfig::new(1, 1), Args::new().buffer(&out).u32(1).u32(1).u32(1)),
    ];
    for (what, config, args) in &cases {
        // SAFETY: the launch is refused before anything reaches the GPU; that is what is tested.
        let result = unsafe { queue.launch(&fill, *config, args) };
        ensure!(result.is_err(), "{what} was accepted");
    }
    ensure!(Kernels::load(&device)?.get("absent").is_err(), "a kernel that does not exist was found");
    // SAFETY: one word is written.
    unsafe { queue.launch(&fill, LaunchConfig::new(1, 1), &good)? };
    queue.submit()?.wait(DEADLINE)?;
    Ok(())
}
