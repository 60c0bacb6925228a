//! The machine's time: what reads it, what waits in it, and virtual time, which needs no real waiting.

use crate::machine::kernel::Fill;
use crate::machine::*;
use crate::sm::asm;
use ga10b_sim::{Consequence, SimConfig, Time, VirtualClock};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::*;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A machine in virtual time.
fn virtual_machine() -> (Machine, VirtualClock) {
    let clock = VirtualClock::default();
    let time = Time::Virtual(clock.clone());
    (Machine::with(SimConfig { sm_count: 4, memory: 4 << 30, time, ..SimConfig::default() }), clock)
}

fn gpu_time(machine: &Machine) -> Duration {
    let mut args = nvgpu_gpu_get_gpu_time_args::default();
    ask(&machine.sim, machine.ctrl.as_fd(), &mut args).unwrap();
    Duration::from_nanos(args.gpu_timestamp)
}

/// `WAIT` for `payload` in the first word of a buffer.
fn wait(channel: &Channel<'_>, buffer: &Buffer, payload: u32, timeout_ms: u32) -> Result<i32, Errno> {
    let mut args =
        nvgpu_wait_args { type_: NVGPU_WAIT_TYPE_SEMAPHORE, timeout: timeout_ms, ..Default::default() };
    args.set_condition_semaphore_dmabuf_fd(buffer.fd.as_raw_fd() as u32);
    args.set_condition_semaphore_payload(payload);
    ask(&channel.machine.sim, channel.fd.as_fd(), &mut args)
}

#[test]
fn every_clock_of_the_gpu_shows_virtual_time() {
    let (machine, clock) = virtual_machine();
    let mut channel = machine.channel();
    let signal = machine.buffer(4096);
    assert_eq!((gpu_time(&machine), gpu_time(&machine)), (clock.now(), clock.now()));
    clock.advance(Duration::from_secs(3600));
    assert_eq!(gpu_time(&machine), Duration::from_secs(3660));
    channel.submit(&release(signal.va, 1));
    channel.wait(signal.u64(0), 1);
    assert_eq!(signal.u64(8).load(Ordering::Acquire), 3_660_000_000_000);
    // The page is written in every pass of the GPU.
    machine.settle();
    // SAFETY: the page is 64 KiB, and the words are only reached through atomics.
    let page = |at: usize| unsafe {
        std::sync::atomic::AtomicU32::from_ptr(machine.doorbell.as_ptr().add(at).cast())
    };
    let time =
        u64::from(page(0x84).load(Ordering::Acquire)) << 32 | u64::from(page(0x80).load(Ordering::Acquire));
    assert_eq!(time, 3_660_000_000_000);
    channel.submit(&[6 << 29]);
    channel.wait_error();
    // The driver notifies the owner before it prints.
    let log = loop {
        match machine.sim.kernel_log() {
            log if log.is_empty() => std::thread::yield_now(),
            log => break log,
        }
    };
    assert!(log[0].starts_with("[ 3660.000000] "), "{log:#?}");
}

#[test]
fn a_time_out_of_a_day_passes_at_once_when_nothing_is_left_to_do() {
    const DAY_MS: u32 = 86_400_000;
    let (machine, clock) = virtual_machine();
    let mut channel = machine.channel();
    let buffer = machine.buffer(4096);
    let start = clock.now();
    // Earlier work of the GPU is not overtaken.
    channel.submit(&release(buffer.va, 1));
    assert_eq!(wait(&channel, &buffer, 1, DAY_MS), Ok(0));
    assert_eq!(clock.now(), start);
    assert_eq!(wait(&channel, &buffer, 2, DAY_MS), Err(Errno::ETIMEDOUT));
    assert_eq!(clock.now() - start, Duration::from_millis(DAY_MS.into()));
}

#[test]
fn the_first_context_takes_as_long_as_on_a_real_machine() {
    let clock = VirtualClock::default();
    let config = SimConfig {
        sm_count: 4,
        memory: 4 << 30,
        time: Time::Virtual(clock.clone()),
        first_context_ms: 1000,
        ..SimConfig::default()
    };
    let machine = Machine::with(config);
    let start = clock.now();
    let _first = machine.channel();
    assert_eq!(clock.now() - start, Duration::from_secs(1));
    let _second = machine.channel();
    assert_eq!(clock.now() - start, Duration::from_secs(1));
}

#[test]
fn closing_a_channel_whose_kernel_does_not_give_way_takes_a_fifth_of_a_second() {
    let (machine, clock) = virtual_machine();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let (out, signal) = (machine.buffer(4096), machine.buffer(4096));
    let endless: Vec<u8> = asm::branch(-16).to_le_bytes().repeat(16);
    fill.program.write(0, &endless);
    channel.submit(&release(signal.va, 1));
    fill.launch(&mut channel, &fill.describe(out.va, 0, 1), signal.va, 2);
    channel.wait(signal.u64(0), 1);
    let start = clock.now();
    let Channel { fd, .. } = channel;
    machine.sim.close(fd).unwrap();
    let waited = clock.now() - start;
    // 100 ms for the preemption of the close, and as much for that of the tear-down.
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
    assert_eq!(signal.u64(0).load(Ordering::Acquire), 1);
    // The kernel runs on, and ends with its memory.
    let log = machine.sim.kernel_log();
    let lines = |part| log.iter().enumerate().filter(move |(_, line)| line.contains(part)).map(|(at, _)| at);
    let (torn_down, preempted) = (lines("tearing down TSG 0").next(), lines("preempt timed out").collect());
    let [first, second]: [usize; 2] = Vec::try_into(preempted).expect("two preemptions");
    assert!(torn_down.is_some_and(|torn_down| (first..second).contains(&torn_down)), "{log:#?}");
    machine.sim.close(machine.space).unwrap();
}

#[test]
fn a_kernel_that_waits_for_the_clock_sees_it_pass() {
    let (machine, clock) = virtual_machine();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let (out, signal) = (machine.buffer(4096), machine.buffer(4096));
    // CS2R.32 R5, SR_GLOBALTIMERHI; ISETP.LT.U32 P0, R5, 15; @P0 BRA to the first.
    let high = u128::from(0x0005_7805_u32) | 0x53 << 72 | asm::CONTROL;
    let code = [high, asm::isetp_lt(5, 15), asm::if_p0(asm::branch(-48)), asm::EXIT];
    let bytes: Vec<u8> = code.iter().flat_map(|word| word.to_le_bytes()).collect();
    fill.program.write(0, &bytes);
    // 15 << 32 ns is a little over 64 s; the machine has been up for 60.
    assert_eq!(clock.now(), Duration::from_secs(60));
    fill.launch(&mut channel, &fill.describe(out.va, 0, 1), signal.va, 1);
    channel.wait(signal.u64(0), 1);
    assert!(clock.now() >= Duration::from_nanos(15 << 32));
}

/// Whether the doorbell page can be read: the kernel reads it, which a signal does not interrupt.
fn is_there(machine: &Machine) -> bool {
    let (_reader, writer) = nix::unistd::pipe().expect("a pipe");
    // SAFETY: the kernel copies one byte, or says that it cannot.
    unsafe { nix::libc::write(writer.as_raw_fd(), machine.doorbell.as_ptr().cast(), 1) == 1 }
}

#[test]
fn a_gpu_that_nobody_needs_loses_its_power_and_the_program_its_doorbell() {
    let (machine, clock) = virtual_machine();
    let becomes = |there: bool| {
        let start = std::time::Instant::now();
        while is_there(&machine) != there {
            assert!(start.elapsed() < DEADLINE, "the doorbell page stays as it is");
            std::thread::yield_now();
        }
    };
    let channel = machine.channel();
    // A deterministic channel keeps the power.
    clock.advance(Duration::from_secs(5));
    std::thread::sleep(Duration::from_millis(100));
    assert!(is_there(&machine));
    drop(channel);
    clock.advance(Duration::from_secs(5));
    becomes(false);
    // Any call that needs the GPU brings both back.
    assert!(gpu_time(&machine) > Duration::ZERO);
    assert!(is_there(&machine));
    let mut channel = machine.channel();
    let signal = machine.buffer(4096);
    channel.submit(&release(signal.va, 1));
    channel.wait(signal.u64(0), 1);
}

/// Lets the GPU lose its power.
fn turn_off(machine: &Machine, clock: &VirtualClock) {
    clock.advance(Duration::from_secs(5));
    let start = std::time::Instant::now();
    while is_there(machine) {
        assert!(start.elapsed() < DEADLINE, "the GPU stays on");
        std::thread::yield_now();
    }
}

/// `NVGPU_GPU_IOCTL_FLUSH_L2` above all, which a runtime may send often.
#[test]
fn requests_that_need_no_gpu_leave_it_off() {
    let (machine, clock) = virtual_machine();
    let mut open = nvgpu_gpu_open_channel_args::default();
    open.set_in_runlist_id(-1);
    ask(&machine.sim, machine.ctrl.as_fd(), &mut open).unwrap();
    let channel = take(open.out_channel_fd());
    turn_off(&machine, &clock);
    let (sim, channel, ctrl) = (&machine.sim, channel.as_fd(), machine.ctrl.as_fd());
    assert_eq!(ask(sim, channel, &mut nvgpu_get_param_args::default()), Ok(0));
    assert_eq!(ask(sim, channel, &mut nvgpu_set_timeout_args { timeout: 1000 }), Ok(0));
    assert_eq!(ask(sim, channel, &mut nvgpu_channel_wdt_args { wdt_status: 1, timeout_ms: 0 }), Ok(0));
    let flush = |flags| ask(sim, ctrl, &mut nvgpu_gpu_l2_fb_args { flags, reserved: 0 });
    assert_eq!((flush(1), flush(0)), (Ok(0), Err(Errno::EINVAL)));
    assert_eq!(ask(sim, ctrl, &mut nvgpu_gpu_zbc_query_table_args::default()), Ok(0));
    assert!(!is_there(&machine), "the GPU has power");
    assert!(gpu_time(&machine) > Duration::ZERO);
    assert!(is_there(&machine));
}

#[test]
fn a_second_doorbell_while_the_gpu_is_off_never_returns() {
    let (machine, clock) = virtual_machine();
    turn_off(&machine, &clock);
    let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
    let other = machine.sim.open(c"/dev/nvgpu/igpu0/ctrl", flags).unwrap();
    assert_eq!(map(&machine.sim, machine.ctrl.as_fd(), 0x1_0000), Err(Errno::EBUSY), "it has its mapping");
    assert!(machine.sim.violations().is_empty());
    assert_eq!(map(&machine.sim, other.as_fd(), 0x1_0000), Err(Errno::EIO));
    let violations = machine.sim.violations();
    assert_eq!((violations[0].consequence, violations[0].call), (Consequence::Freeze, "mmap"));
    // A GPU that is on has nothing to restore.
    assert!(gpu_time(&machine) > Duration::ZERO);
    map(&machine.sim, other.as_fd(), 0x1_0000).unwrap();
}
