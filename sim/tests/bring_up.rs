//! A channel from nothing to a finished kernel, with nothing but system calls and memory.

mod machine;

use machine::*;
use nvgpu_sys::*;
use qmd::{ConstantBuffer, Launch, Release, Target};
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
    assert!(time > 0 && time % 32 == 0 && time <= now.gpu_timestamp);
    assert_eq!(channel.userd.u32(0x88).load(Ordering::Acquire), 1);
}

#[test]
fn the_copy_engine_copies_lines_and_fills() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let (from, to, signal) = (machine.buffer(0x10000), machine.buffer(0x10000), machine.buffer(4096));
    let data: Vec<u8> = (0..0x10000u32).map(|i| (i * 7 >> 3) as u8).collect();
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
    let cubin = include_bytes!("data/fill.cubin");
    let (code, constants) = fill_kernel(cubin);
    let (program, bank, qmd_memory, out, signal) = (
        machine.buffer(0x4000),
        machine.buffer(4096),
        machine.buffer(4096),
        machine.buffer(4096),
        machine.buffer(4096),
    );
    program.write(0, code);
    bank.write(0, &launch_constants(constants, [256, 1, 1], [4, 1, 1]));
    bank.write(0x160, &out.va.to_le_bytes());
    bank.write(0x168, &0x1000_0000u32.to_le_bytes());
    let qmd = Launch::new(Target::Sm87)
        .program(program.va, code.len() as u64)
        .grid([4, 1, 1])
        .block([256, 1, 1])
        .registers(32)
        .constant_buffer(0, ConstantBuffer::new(bank.va, constants as u32).invalidated())
        .release(0, Release::new_u64(signal.va, 9).with_timestamp())
        .build()
        .unwrap();
    qmd_memory.write(0, qmd.as_bytes());
    channel.submit(&[inc(1, 0x2b4, 1), (qmd_memory.va >> 8) as u32, inc(1, 0x2c0, 1), 9]);
    channel.wait(signal.u64(0), 9);
    let expected: Vec<u32> = (0..1024).map(|i| 0x1000_0000 + i).collect();
    assert_eq!(out.words(0, 1024), expected);
    assert_eq!(machine.sim.counters().sm.launches, 1);
}

/// Code and size of bank 0 of the kernel `fill(out, base)`: `out[i] = base + i`.
fn fill_kernel(cubin: &[u8]) -> (&[u8], usize) {
    let (offset, len) = section(cubin, ".text.fill");
    let (_, bank) = section(cubin, ".nv.constant0.fill");
    (&cubin[offset..offset + len], bank)
}

/// File offset and size of an ELF section.
fn section(elf: &[u8], name: &str) -> (usize, usize) {
    let u16_at = |at: usize| u16::from_le_bytes([elf[at], elf[at + 1]]) as usize;
    let u64_at = |at: usize| u64::from_le_bytes(elf[at..at + 8].try_into().unwrap()) as usize;
    let (table, entry, count, names) = (u64_at(0x28), u16_at(0x3a), u16_at(0x3c), u16_at(0x3e));
    let strings = u64_at(table + names * entry + 0x18);
    let found = (0..count).map(|i| table + i * entry).find(|&header| {
        let at = strings + u32::from_le_bytes(elf[header..header + 4].try_into().unwrap()) as usize;
        elf[at..].starts_with(name.as_bytes()) && elf[at + name.len()] == 0
    });
    let header = found.unwrap();
    (u64_at(header + 0x18), u64_at(header + 0x20))
}

/// Bank 0 with what the compiler's code reads from its start.
fn launch_constants(len: usize, block: [u32; 3], grid: [u32; 3]) -> Vec<u8> {
    let mut bank = vec![0; len];
    for (i, value) in block.into_iter().chain(grid).enumerate() {
        bank[i * 4..i * 4 + 4].copy_from_slice(&value.to_le_bytes());
    }
    bank[0x18..0x20].copy_from_slice(&SHARED_WINDOW.to_le_bytes());
    bank[0x20..0x28].copy_from_slice(&LOCAL_WINDOW.to_le_bytes());
    bank[0x28..0x2c].copy_from_slice(&0x00ff_fdc0_u32.to_le_bytes());
    bank
}
