//! The host scheduler: the GPU's thread, which polls the doorbell and gives channels their turns.

use crate::gpu::context::Context;
use crate::gpu::device::{Entry, Gpu};
use crate::gpu::engine::Engine;
use crate::gpu::front::Front;
use crate::gpu::interrupts::Interrupts;
use crate::gpu::memory::GpuMemory;
use crate::gpu::pbdma;
use crate::gpu::sm::grid::Turn;
use crate::gpu::userd::Ring;
use crate::own_thread::mark_own_thread;
use crate::what_if::WhatIf;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Interval of the driver's housekeeping.
const HOUSEKEEPING: Duration = Duration::from_millis(10);
/// Longest time that it waits for a kernel.
const LATEST_HOUSEKEEPING: Duration = Duration::from_millis(250);
/// The same in free order, where the end of a turn changes the next choice: a seed is to give the same order
/// on a slow machine.
const LATEST_HOUSEKEEPING_IN_FREE_ORDER: Duration = Duration::from_secs(3);
/// Time that the thread spins, and then yields, after its last work before it sleeps.
const SPIN: Duration = Duration::from_micros(50);
const YIELD: Duration = Duration::from_micros(500);
/// In free order: how long no doorbell must ring before work begins, and how often it may ring meanwhile.
const GATHER: Duration = Duration::from_micros(200);
const MOST_GATHERED: u32 = 10;
/// Bounds of a sleep.
const SHORTEST_SLEEP: Duration = Duration::from_micros(50);
const LONGEST_SLEEP: Duration = Duration::from_millis(1);

/// Runs the GPU until it is switched off.
pub(crate) fn run(gpu: &Gpu, interrupts: &dyn Interrupts) {
    mark_own_thread();
    let mut last_work = Instant::now();
    let mut last_look = Instant::now();
    let mut engine = Engine::default();
    let is_free = gpu.units.executor.free_order().is_some();
    let latest = if is_free { LATEST_HOUSEKEEPING_IN_FREE_ORDER } else { LATEST_HOUSEKEEPING };
    while !gpu.is_quitting() {
        gpu.usermode.set_time(gpu.units.clock.ptimer());
        if last_look.elapsed() > HOUSEKEEPING {
            interrupts.housekeeping();
            last_look = Instant::now();
        }
        let mut worked = gpu.usermode.take_token().is_some();
        // Read after the token: a channel that was set up before it rang is among them.
        let runlist = gpu.runlist();
        if worked {
            gpu.units.count(|counters| counters.doorbells += 1);
            if is_free {
                gather(gpu);
            }
            // A token may have been overwritten by the next one: it is taken as rung for every channel.
            for entry in runlist.iter() {
                entry.instance.ring_doorbell();
            }
        }
        let late = gpu.units.what_if.contains(WhatIf::LATE_GP_GET);
        let unwritten = late && write_back(&runlist);
        engine.switch(gpu, interrupts, &runlist);
        for entry in runlist.iter() {
            if !entry.instance.wants_turn() || !engine.take(gpu, entry, &runlist) {
                continue;
            }
            let group = entry.instance.group();
            let others_wait = || {
                if late {
                    write_back(&runlist);
                }
                gpu.usermode.is_rung()
                    || group.as_ref().is_some_and(|group| group.is_switching())
                    || last_look.elapsed() > latest
                    || runlist.iter().any(|other| !Arc::ptr_eq(other, entry) && other.instance.wants_turn())
            };
            let number = entry.instance.number();
            let hold = |launch: &_, started| engine.holds_blocks(gpu, number, launch, started);
            worked |= serve(gpu, interrupts, entry, Turn { wanted: &others_wait, hold: &hold });
        }
        gpu.units.clock.pass(worked);
        if worked {
            last_work = Instant::now();
            continue;
        }
        let idle = last_work.elapsed();
        if runlist.is_empty() {
            gpu.park(HOUSEKEEPING * 5);
        } else if idle < SPIN {
            std::hint::spin_loop();
        } else if idle < YIELD || unwritten {
            std::thread::yield_now();
        } else {
            // Latency of the next doorbell grows with the time nothing has happened.
            gpu.park((idle / 16).clamp(SHORTEST_SLEEP, LONGEST_SLEEP));
        }
    }
}

/// Publishes the fetch indexes that are due; whether others wait.
fn write_back(runlist: &[Arc<Entry>]) -> bool {
    let waits = |entry: &Arc<Entry>| entry.instance.bindings().ring.as_ref().is_some_and(Ring::write_back);
    runlist.iter().map(waits).fold(false, |any, waits| any | waits)
}

/// Lets the program submit its pending work, so that in free order the seed decides what runs first, and not
/// when the doorbells rang.
fn gather(gpu: &Gpu) {
    for _ in 0..MOST_GATHERED {
        std::thread::sleep(GATHER);
        if gpu.usermode.take_token().is_none() {
            return;
        }
        gpu.units.count(|counters| counters.doorbells += 1);
        for entry in gpu.runlist().iter() {
            entry.instance.ring_doorbell();
        }
    }
}

/// Gives one channel its turn; true when it did something.
fn serve(gpu: &Gpu, interrupts: &dyn Interrupts, entry: &Entry, slice: Turn<'_>) -> bool {
    let instance = &*entry.instance;
    if !instance.may_run() {
        return false;
    }
    let turn = instance.turn();
    let rung = instance.take_doorbell();
    if !rung && !instance.is_pending() {
        return false;
    }
    let (ring, tables) = {
        let bindings = instance.bindings();
        (bindings.ring.clone(), bindings.tables.clone())
    };
    let (Some(ring), Some(tables)) = (ring, tables) else { return false };
    let mut pbdma = entry.pbdma();
    let choices = pbdma.take_choices(gpu.units.executor.free_order(), instance);
    let outcome = {
        let _memory_stays = tables.dram().hold();
        let memory = GpuMemory::new(&tables);
        let units = &gpu.units;
        let front = units.ledger.as_ref().map(|ledger| Front { ledger, line: instance.line(ledger) });
        let choices = choices.as_ref();
        let ring = &ring;
        pbdma.turn(&Context {
            units,
            interrupts,
            channel: instance,
            ring,
            memory,
            front,
            choices,
            turn: slice,
        })
    };
    pbdma.keep_choices(choices);
    if let (Err(_), Some(line), Some(ledger)) = (&outcome, instance.known_line(), &gpu.units.ledger) {
        ledger.state().stop(line);
    }
    instance.set_working(pbdma.is_working());
    instance.set_pending(matches!(outcome, Ok(pbdma::Turn::Blocked | pbdma::Turn::More)));
    // The remover of the channel waits for the turn: nothing of the channel's memory is kept beyond it.
    let dram = Arc::clone(tables.dram());
    dram.publish();
    drop((ring, tables));
    drop(turn);
    let worked = match outcome {
        Ok(turn) => turn != pbdma::Turn::Blocked,
        Err(exception) => {
            interrupts.stalling(instance, &exception, pbdma.registers());
            true
        }
    };
    dram.reap();
    worked
}
