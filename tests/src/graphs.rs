//! Graphs: recorded once, replayed many times, patched in between.

use anyhow::{Result, ensure};
use hcq::{Args, LaunchConfig};

use crate::harness::{DEADLINE, Test, open};
use crate::kernels::Kernels;

pub const TESTS: &[Test] = &[
    Test { name: "a_graph_replays_with_patched_arguments", run: patched, sim_only: false },
    Test { name: "a_graph_of_230_dependent_kernels_replays_in_order", run: long_graph, sim_only: false },
    Test { name: "a_graph_copies_between_launches", run: copies, sim_only: false },
    Test { name: "replays_in_flight_do_not_disturb_each_other", run: in_flight, sim_only: false },
];

fn patched() -> Result<()> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let data = device.alloc(4)?;
    data.write(0, &[0; 4])?;
    let mut builder = device.graph();
    let args = Args::new().buffer(&data).u32(1).u32(7).u32(0);
    // SAFETY: one word is read and written.
    let node = unsafe { builder.launch(&step, LaunchConfig::new(1, 32), &args)? };
    let graph = builder.build()?;
    let mut queue = device.queue()?;
    let mut want = 0_u32;
    for k in 0..300_u32 {
        // SAFETY: one word is read and written, whatever is added to it.
        unsafe { graph.patch_args(node, 3, &Args::new().u32(k))? };
        queue.replay(&graph)?.wait(DEADLINE)?;
        want = want.wrapping_mul(7).wrapping_add(k);
    }
    ensure!(data.read_vec::<u32>(0, 1)? == [want], "300 patched replays gave a wrong result");
    // SAFETY: refused.
    let over = unsafe { graph.patch_args(node, 4, &Args::new().u32(0)) };
    ensure!(over.is_err(), "a patch over the end of the parameters went through");
    Ok(())
}

fn long_graph() -> Result<()> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let data = device.alloc(4 * 64)?;
    data.write_slice(0, &(0..64).collect::<Vec<u32>>())?;
    let mut builder = device.graph();
    for k in 0..230 {
        // SAFETY: 64 words are read and written.
        unsafe {
            builder.launch(
                &step,
                LaunchConfig::new(1, 64),
                &Args::new().buffer(&data).u32(64).u32(3).u32(k),
            )?
        };
        builder.barrier();
    }
    let graph = builder.build()?;
    let mut queue = device.queue()?;
    for _ in 0..20 {
        queue.replay(&graph)?.wait(DEADLINE)?;
    }
    for (i, got) in data.read_vec::<u32>(0, 64)?.into_iter().enumerate() {
        let once = |x: u32| (0..230).fold(x, |x, k: u32| x.wrapping_mul(3).wrapping_add(k));
        let want = (0..20).fold(i as u32, |x, _| once(x));
        ensure!(got == want, "word {i} is {got:#x}, expected {want:#x}");
    }
    Ok(())
}

fn copies() -> Result<()> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let (a, b) = (device.alloc(4096)?, device.alloc(4096)?);
    a.write_slice(0, &vec![1_u32; 1024])?;
    let mut builder = device.graph();
    // SAFETY: both buffers hold 1024 words.
    unsafe {
        builder.launch(&step, LaunchConfig::new(4, 256), &Args::new().buffer(&a).u32(1024).u32(2).u32(1))?
    };
    builder.barrier();
    builder.copy(&a, 0, &b, 0, 4096)?;
    builder.barrier();
    // SAFETY: as above.
    unsafe {
        builder.launch(&step, LaunchConfig::new(4, 256), &Args::new().buffer(&b).u32(1024).u32(10).u32(5))?
    };
    builder.barrier();
    builder.copy(&b, 0, &a, 0, 4096)?;
    let graph = builder.build()?;
    let mut queue = device.queue()?;
    let mut want = 1_u32;
    for round in 0..10 {
        queue.replay(&graph)?.wait(DEADLINE)?;
        want = want.wrapping_mul(2).wrapping_add(1).wrapping_mul(10).wrapping_add(5);
        ensure!(a.read_vec::<u32>(0, 1024)?.iter().all(|&w| w == want), "round {round}");
    }
    Ok(())
}

/// Replays follow each other without a wait by the CPU, with ordinary launches of the same queue in between.
fn in_flight() -> Result<()> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let data = device.alloc(4)?;
    data.write(0, &[0; 4])?;
    let mut builder = device.graph();
    for k in [1, 2, 3] {
        // SAFETY: one word is read and written.
        unsafe {
            builder.launch(&step, LaunchConfig::new(1, 1), &Args::new().buffer(&data).u32(1).u32(3).u32(k))?
        };
        builder.barrier();
    }
    let graph = builder.build()?;
    let mut queue = device.queue()?;
    let mut want = 0_u32;
    let mut last = None;
    for k in 0..200_u32 {
        queue.replay(&graph)?;
        // SAFETY: one word is read and written.
        unsafe {
            queue.launch(&step, LaunchConfig::new(1, 1), &Args::new().buffer(&data).u32(1).u32(5).u32(k))?
        };
        queue.barrier();
        last = Some(queue.submit()?);
        for add in [1, 2, 3] {
            want = want.wrapping_mul(3).wrapping_add(add);
        }
        want = want.wrapping_mul(5).wrapping_add(k);
    }
    if let Some(point) = last {
        point.wait(DEADLINE)?;
    }
    ensure!(data.read_vec::<u32>(0, 1)? == [want], "200 replays in flight gave a wrong result");
    Ok(())
}
