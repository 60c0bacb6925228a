//! The parts in which one process uses devices: launches, threads, queues, drops.

use std::any::Any;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use hcq::{Args, Buffer, Device, Kernel, LaunchConfig, Queue};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

use crate::harness::{DEADLINE, open};
use crate::kernels::Kernels;
use crate::soak::plan::Plan;

/// x = 3 x + k, one launch and one submission for each k.
pub(super) fn launches(plan: &Plan) -> Result<String> {
    let device = open()?;
    let step = Kernels::load(&device)?.get("step")?;
    let data = device.alloc(4)?;
    data.write(0, &[0; 4])?;
    let mut queue = device.queue()?;
    let mut want = 0_u32;
    for k in 0..plan.launches {
        let args = Args::new().buffer(&data).u32(1).u32(3).u32(k);
        // SAFETY: one word is read and written.
        unsafe { queue.launch(&step, LaunchConfig::new(1, 1), &args)? };
        queue.barrier();
        let point = queue.submit()?;
        want = want.wrapping_mul(3).wrapping_add(k);
        if k % 1000 == 999 || k + 1 == plan.launches {
            point.wait(DEADLINE)?;
            ensure!(data.read_vec::<u32>(0, 1)? == [want], "after {} launches", k + 1);
        }
    }
    Ok(format!("{} launches", plan.launches))
}

/// Threads that share a device allocate, launch, copy, read and free.
pub(super) fn threads(plan: &Plan) -> Result<String> {
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let until = Instant::now() + plan.time;
    let rounds = thread::scope(|scope| {
        let spawn = |number| {
            let (device, fill) = (&device, &fill);
            let rng = StdRng::seed_from_u64(plan.seed.wrapping_add(number));
            scope.spawn(move || churn(device, fill, rng, until))
        };
        let running: Vec<_> = (0..u64::from(plan.threads)).map(spawn).collect();
        let join = |thread: thread::ScopedJoinHandle<'_, Result<u64>>| match thread.join() {
            Ok(rounds) => rounds,
            Err(_) => bail!("a thread panicked"),
        };
        running.into_iter().map(join).sum::<Result<u64>>()
    })?;
    Ok(format!("{rounds} rounds of {} threads", plan.threads))
}

/// Work of one thread until then; returns the number of its rounds.
pub(super) fn churn(device: &Device, fill: &Kernel, mut rng: StdRng, until: Instant) -> Result<u64> {
    let mut queue = device.queue()?;
    let mut kept: Vec<Buffer> = Vec::new();
    let mut rounds = 0;
    while Instant::now() < until {
        let (count, value) = (rng.random_range(1..3000_u32), rng.random::<u32>() >> 1);
        let bytes = u64::from(count) * 4;
        let (from, to) = (device.alloc(bytes)?, device.alloc(bytes)?);
        fill_words(&mut queue, fill, &from, count, value)?;
        queue.copy(&from, 0, &to, 0, bytes)?;
        let point = queue.submit()?;
        // The copy still reads it.
        drop(from);
        if rng.random_ratio(1, 16) {
            queue = device.queue()?;
        }
        point.wait(DEADLINE)?;
        ensure!(
            to.read_vec::<u32>(0, count as usize)?.into_iter().eq(value..value + count),
            "round {rounds}"
        );
        kept.push(to);
        if kept.len() > 32 {
            kept.swap_remove(rng.random_range(0..kept.len()));
        }
        rounds += 1;
    }
    Ok(rounds)
}

/// Launches `fill` on a buffer that holds `count` words, and a barrier.
pub(super) fn fill_words(
    queue: &mut Queue,
    fill: &Kernel,
    buffer: &Buffer,
    count: u32,
    value: u32,
) -> Result<()> {
    let args = Args::new().buffer(buffer).u32(count).u32(value);
    ensure!(buffer.len() >= u64::from(count) * 4, "the buffer is shorter than {count} words");
    // SAFETY: `fill` writes `count` words, which the buffer holds.
    unsafe { queue.launch(fill, LaunchConfig::new(count.div_ceil(128), 128), &args)? };
    queue.barrier();
    Ok(())
}

pub(super) fn queues(plan: &Plan) -> Result<String> {
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let data = device.alloc(4)?;
    for value in 0..plan.queues {
        let mut queue = device.queue()?;
        fill_words(&mut queue, &fill, &data, 1, value)?;
        queue.submit()?.wait(DEADLINE)?;
        ensure!(data.read_vec::<u32>(0, 1)? == [value], "queue {value}");
    }
    Ok(format!("{} queues", plan.queues))
}

/// A device and five objects of it, with work in flight, dropped in many orders.
pub(super) fn orders(plan: &Plan) -> Result<String> {
    let all = permutations();
    let step = (all.len() / (plan.orders.max(1) as usize)).max(1);
    let mut tried = 0;
    for order in all.iter().step_by(step).take(plan.orders as usize) {
        drop_in(order).with_context(|| format!("order {order:?}"))?;
        tried += 1;
    }
    Ok(format!("{tried} orders of drops"))
}

/// All orders of six things.
fn permutations() -> Vec<[usize; 6]> {
    let mut all = vec![[0, 1, 2, 3, 4, 5]];
    for at in 0..6 {
        let swapped = |order: [usize; 6]| {
            (at..6).map(move |with| {
                let mut order = order;
                order.swap(at, with);
                order
            })
        };
        all = all.into_iter().flat_map(swapped).collect();
    }
    all
}

fn drop_in(order: &[usize; 6]) -> Result<()> {
    let device = open()?;
    let fill = Kernels::load(&device)?.get("fill")?;
    let buffer = device.alloc(4 << 10)?;
    let mut builder = device.graph();
    // SAFETY: the buffer holds 1024 words.
    unsafe {
        builder.launch(&fill, LaunchConfig::new(8, 128), &Args::new().buffer(&buffer).u32(1024).u32(7))?;
    }
    let graph = builder.build()?;
    let mut queue = device.queue()?;
    for value in 0..8 {
        fill_words(&mut queue, &fill, &buffer, 1024, value)?;
    }
    let point = queue.replay(&graph)?;
    let last = point.clone();
    let mut things: [Option<Box<dyn Any>>; 6] = [
        Some(Box::new(device)),
        Some(Box::new(fill)),
        Some(Box::new(buffer)),
        Some(Box::new(graph)),
        Some(Box::new(queue)),
        Some(Box::new(point)),
    ];
    for &which in &order[..5] {
        things[which] = None;
    }
    // The last object keeps its dependencies: a buffer holds the words that the graph wrote.
    last.wait(DEADLINE)?;
    if let Some(buffer) = things[2].as_ref().and_then(|thing| thing.downcast_ref::<Buffer>()) {
        ensure!(
            buffer.read_vec::<u32>(0, 1024)?.into_iter().eq(7..7 + 1024),
            "the buffer holds something else"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_720_orders() {
        let all = permutations();
        let different: BTreeSet<[usize; 6]> = all.iter().copied().collect();
        assert_eq!((all.len(), different.len()), (720, 720));
    }
}
