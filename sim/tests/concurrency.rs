//! Many threads and many channels on one machine.

mod machine;

use machine::*;
use nvgpu_sys::Sys;
use std::sync::atomic::Ordering;

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
