//! Many threads and many channels on one machine.

use crate::machine::kernel::Fill;
use crate::machine::*;
use ga10b_sim::sm::{self, Schedule};
use ga10b_sim::{Session, SimConfig, Time, VirtualClock};
use nvgpu_sys::Sys;
use qmd::{Dependent, Release};
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn two_channels_hand_a_value_back_and_forth() {
    const ROUNDS: u64 = 500;
    let machine = Machine::new();
    let (mut ping, mut pong) = (machine.channel(), machine.channel());
    let memory = machine.buffer(4096);
    let (there, back) = (memory.va, memory.va + 16);
    for round in 1..=ROUNDS {
        let mut words = release(there, round).to_vec();
        words.extend(acquire(back, round));
        ping.submit(&words);
        let mut words = acquire(there, round).to_vec();
        words.extend(release(back, round));
        pong.submit(&words);
        if round % 100 == 0 {
            ping.wait(memory.u64(16), round);
        }
    }
    ping.submit(&release(memory.va + 32, 1));
    ping.wait(memory.u64(32), 1);
    assert_eq!(memory.u64(0).load(Ordering::Acquire), ROUNDS);
}

#[test]
fn threads_open_use_break_and_close_channels_at_once() {
    const THREADS: usize = 4;
    const ROUNDS: u64 = 25;
    let machine = Machine::new();
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let machine = &machine;
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    let mut channel = machine.channel();
                    let memory = machine.buffer(0x3000);
                    channel.submit(&release(memory.va, round));
                    channel.wait(memory.u64(0), round);
                    match (round as usize + thread) % 3 {
                        // A header that means nothing: the channel dies.
                        0 => {
                            channel.submit(&[6 << 29]);
                            assert_eq!(channel.wait_error(), nvgpu_sys::NVGPU_CHANNEL_PBDMA_ERROR);
                        }
                        // A semaphore that never comes: the channel is closed while it waits.
                        1 => channel.submit(&acquire(memory.va + 64, 1)),
                        _ => {}
                    }
                    let Channel { fd, tsg, .. } = channel;
                    machine.sim.close(fd).unwrap();
                    machine.sim.close(tsg).unwrap();
                }
            });
        }
    });
    // Numbers come back, the last first: the four now are among the few that were ever in use at once. Were
    // they lost, a hundred of the 512 would be gone.
    let channels: Vec<_> = (0..THREADS).map(|_| machine.channel()).collect();
    let tokens: std::collections::BTreeSet<u32> = channels.iter().map(|c| c.token).collect();
    assert_eq!(tokens.len(), THREADS);
    assert!(tokens.iter().all(|token| *token >= 512 - 3 * THREADS as u32), "{tokens:?}");
    assert!(machine.sim.violations().is_empty());
}

#[test]
fn a_kernel_that_waits_for_another_channel_gets_what_it_waits_for() {
    for schedule in [Schedule::Parallel, Schedule::Deterministic] {
        let executor = sm::Config { schedule, ..sm::Config::default() };
        let machine =
            Machine::with(SimConfig { sm_count: 4, memory: 4 << 30, executor, ..SimConfig::default() });
        // In one group: another would get the engine when the first kernel has ended.
        let tsg = machine.tsg();
        let mut second = machine.channel_in(tsg.try_clone().unwrap());
        let mut first = machine.channel_in(tsg);
        first.start();
        second.start();
        let (wait, out, signal) = (Fill::waiting(&machine), machine.buffer(4096), machine.buffer(4096));
        let started = Fill::load(&machine);
        // The flag is set by a copy on the second channel, after a kernel there, both begun after the first.
        wait.launch(&mut first, &wait.describe_pointers(out.va, out.va + 64), signal.va, 1);
        started.launch(&mut second, &started.describe(out.va + 1024, 5, 1), signal.va + 16, 1);
        second.submit(&copy(out.va + 1024, out.va, 4));
        second.wait(signal.u64(16), 1);
        first.wait(signal.u64(0), 1);
        assert_eq!(out.words(64, 1), [5], "{schedule:?}");
    }
}

/// Words that copy bytes with the copy engine.
fn copy(from: u64, to: u64, len: u32) -> Vec<u32> {
    let high = |va: u64| (va >> 32) as u32;
    let mut words = vec![inc(4, 0x400, 4), high(from), from as u32, high(to), to as u32];
    words.extend([inc(4, 0x418, 1), len, inc(4, 0x300, 1), 0x182]);
    words
}

/// A machine in virtual time with a desktop, and its clock.
fn beside_a_desktop() -> (Machine, VirtualClock) {
    let clock = VirtualClock::default();
    let (time, session) = (Time::Virtual(clock.clone()), Session::Desktop);
    (Machine::with(SimConfig { sm_count: 4, memory: 4 << 30, time, session, ..SimConfig::default() }), clock)
}

/// Launches a descriptor whose dependent is itself.
fn launch_for_ever(machine: &Machine, channel: &mut Channel<'_>, signal: &Buffer) {
    let (fill, out) = (Fill::load(machine), machine.buffer(4096));
    let again = Dependent::schedule(fill.qmd.va);
    let launch = fill.describe(out.va, 0, 1).dependent(0, again).release(0, Release::new_u64(signal.va, 1));
    fill.qmd.write(0, launch.build().unwrap().as_bytes());
    fill.kick(channel);
    channel.wait(signal.u64(0), 1);
}

#[test]
fn a_launch_that_depends_on_itself_leaves_the_gpu_to_others_and_ends_with_its_channel() {
    let machine = Machine::new();
    let (mut endless, mut other) = (machine.channel(), machine.channel());
    let signal = machine.buffer(4096);
    endless.preempt_between_instructions();
    endless.start();
    launch_for_ever(&machine, &mut endless, &signal);
    other.submit(&release(signal.va + 64, 1));
    other.wait(signal.u64(64), 1);
    let Channel { fd, .. } = endless;
    machine.sim.close(fd).unwrap();
    // It has ended: the signal keeps the CPU's write.
    signal.u64(0).store(7, Ordering::Release);
    machine.settle();
    assert_eq!(signal.u64(0).load(Ordering::Acquire), 7);
}

#[test]
fn a_machine_that_runs_a_launch_that_depends_on_itself_is_dropped() {
    let machine = Machine::new();
    let mut endless = machine.channel();
    let signal = machine.buffer(4096);
    endless.start();
    launch_for_ever(&machine, &mut endless, &signal);
    drop(endless);
    drop(machine);
}

#[test]
fn a_chain_that_does_not_end_is_a_time_out_beside_a_desktop() {
    let (machine, clock) = beside_a_desktop();
    let mut endless = machine.channel();
    let signal = machine.buffer(4096);
    endless.start();
    launch_for_ever(&machine, &mut endless, &signal);
    clock.advance(Duration::from_secs(4));
    assert_eq!(endless.wait_error(), nvgpu_sys::NVGPU_CHANNEL_FIFO_ERROR_IDLE_TIMEOUT);
}
