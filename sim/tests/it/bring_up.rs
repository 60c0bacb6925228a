//! A channel from nothing to a finished kernel, with nothing but system calls and memory.

use crate::machine::kernel::Fill;
use crate::machine::*;
use nvgpu_sys::*;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;

#[test]
fn a_host_semaphore_is_released_with_its_time() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    assert_eq!(channel.token, 511);
    let signal = machine.buffer(4096);
    channel.submit(&release(signal.va, 7));
    channel.wait(signal.u64(0), 7);
    let time = signal.u64(8).load(Ordering::Acquire);
    let mut now = nvgpu_gpu_get_gpu_time_args::default();
    ask(&machine.sim, machine.ctrl.as_fd(), &mut now).unwrap();
    assert!(time > 0 && time.is_multiple_of(32) && time <= now.gpu_timestamp);
    assert_eq!(channel.userd.u32(0x88).load(Ordering::Acquire), 1);
}

#[test]
fn the_copy_engine_copies_lines_and_fills() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let (from, to, signal) = (machine.buffer(0x10000), machine.buffer(0x10000), machine.buffer(4096));
    let data: Vec<u8> = (0..0x10000u32).map(|i| ((i * 7) >> 3) as u8).collect();
    from.write(0, &data);
    let addresses = |source: u64, target: u64| {
        [inc(4, 0x400, 4), (source >> 32) as u32, source as u32, (target >> 32) as u32, target as u32]
    };
    let mut words = Vec::new();
    // 1000 bytes from an odd address to another.
    words.extend(addresses(from.va + 3, to.va + 5));
    words.extend([inc(4, 0x418, 1), 1000, inc(4, 0x300, 1), 0x182]);
    // 16 lines of 64 bytes out of a pitch of 256 into a pitch of 128.
    words.extend(addresses(from.va, to.va + 0x1000));
    words.extend([inc(4, 0x410, 4), 256, 128, 64, 16, inc(4, 0x300, 1), 0x182 | 1 << 9]);
    // 256 words of a constant, and the release in the same launch.
    words.extend(addresses(0, to.va + 0x2000));
    words.extend([inc(4, 0x704, 2), 0xdead_beef, 5 | 3 << 16]);
    words.extend([inc(4, 0x418, 1), 256]);
    words.extend([inc(4, 0x240, 3), (signal.va >> 32) as u32, signal.va as u32, 42]);
    words.extend([inc(4, 0x300, 1), 0x196 | 1 << 10]);
    channel.submit(&words);
    channel.wait(signal.u64(0), 42);
    assert_eq!(to.read(5, 1000), data[3..1003]);
    assert_eq!(to.read(0, 5), [0; 5]);
    for line in 0..16 {
        assert_eq!(to.read(0x1000 + line * 128, 64), data[line * 256..line * 256 + 64]);
    }
    assert_eq!(to.words(0x2000, 257)[..256], [0xdead_beef; 256]);
    assert_eq!(to.words(0x2400, 1), [0]);
    assert_eq!(machine.sim.counters().copies, 3);
}

#[test]
fn a_channel_that_waits_does_not_hold_up_others() {
    let machine = Machine::new();
    let (mut first, mut second) = (machine.channel(), machine.channel());
    assert_eq!((first.token, second.token), (511, 510));
    let signal = machine.buffer(4096);
    let mut words = acquire(signal.va, 5).to_vec();
    words.extend(release(signal.va + 16, 1));
    first.submit(&words);
    second.submit(&release(signal.va + 32, 1));
    second.wait(signal.u64(32), 1);
    assert_eq!(signal.u64(16).load(Ordering::Acquire), 0);
    second.submit(&release(signal.va, 5));
    first.wait(signal.u64(16), 1);
}

#[test]
fn a_kernel_runs_and_releases_its_semaphore() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let (out, signal) = (machine.buffer(4096), machine.buffer(4096));
    fill.launch(&mut channel, &fill.describe(out.va, 0x1000_0000, 4), signal.va, 9);
    channel.wait(signal.u64(0), 9);
    let expected: Vec<u32> = (0..1024).map(|i| 0x1000_0000 + i).collect();
    assert_eq!(out.words(0, 1024), expected);
    assert_eq!(machine.sim.counters().sm.launches, 1);
}

#[test]
fn a_chain_of_launches_needs_one_kick() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let (first, second) = (Fill::load(&machine), Fill::load(&machine));
    let (out, signal) = (machine.buffer(8192), machine.buffer(4096));
    let last = second.describe(out.va + 4096, 7, 4).release(0, qmd::Release::new_u32(signal.va, 1));
    second.qmd.write(0, last.build().unwrap().as_bytes());
    let launch =
        first.describe(out.va, 5, 4).dependent(0, qmd::Dependent::schedule(second.qmd.va).prefetched());
    first.qmd.write(0, launch.build().unwrap().as_bytes());
    first.kick(&mut channel);
    channel.wait(signal.u64(0), 1);
    assert_eq!(out.words(0, 2), [5, 6]);
    assert_eq!(out.words(4096, 2), [7, 8]);
}

#[test]
fn an_inline_descriptor_and_inline_data_do_the_same() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let (out, signal) = (machine.buffer(4096), machine.buffer(4096));
    let launch = fill.describe(out.va, 1, 4).release(0, qmd::Release::new_u64(signal.va, 3));
    let qmd = launch.build().unwrap();
    // The argument `base` is replaced by inline data before the launch.
    let base = fill.bank.va + 0x168;
    let mut words = vec![inc(1, 0x180, 2), 4, 1, inc(1, 0x188, 2), (base >> 32) as u32, base as u32];
    words.extend([inc(1, 0x1b0, 1), 0x41, 3 << 29 | 1 << 16 | 1 << 13 | 0x1b4 >> 2, 100]);
    words.extend([inc(1, 0x318, 66), (fill.qmd.va >> 40) as u32, (fill.qmd.va >> 8) as u32]);
    words.extend(qmd.words());
    channel.submit(&words);
    channel.wait(signal.u64(0), 3);
    assert_eq!(out.words(0, 3), [100, 101, 102]);
}
