//! A client's view of a machine that differs from the model's default in one fact, and of one that does not.

use crate::machine::kernel::Fill;
use crate::machine::*;
use ga10b_sim::{Sim, SimConfig, Time, VirtualClock, WhatIf, WhatIfs};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::*;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const CLASSES: [u32; 2] = [0xc7c0, 0xc7b5];

fn config(what_if: impl Into<WhatIfs>) -> SimConfig {
    SimConfig { sm_count: 4, memory: 4 << 30, what_if: what_if.into(), ..SimConfig::default() }
}

fn with(what_if: impl Into<WhatIfs>) -> Machine {
    Machine::with(config(what_if))
}

fn none() -> WhatIf {
    WhatIf::empty()
}

/// Returns the position of the log's first line with this text.
fn line(machine: &Machine, part: &str) -> Option<usize> {
    machine.sim.kernel_log().iter().position(|line| line.contains(part))
}

fn wait_line(machine: &Machine, part: &str) -> usize {
    let start = Instant::now();
    loop {
        if let Some(at) = line(machine, part) {
            return at;
        }
        assert!(start.elapsed() < DEADLINE, "no {part:?} in {:#?}", machine.sim.kernel_log());
        std::thread::yield_now();
    }
}

#[test]
fn the_first_word_of_the_doorbell_page_is_of_ga100_or_of_another() {
    let class = |machine: &Machine| {
        // SAFETY: the doorbell page is 64 KiB.
        let word = unsafe { std::sync::atomic::AtomicU32::from_ptr(machine.doorbell.as_ptr().cast()) };
        word.load(Ordering::Acquire) & 0xffff
    };
    assert_eq!(class(&with(none())), 0xc561);
    let machine = with(WhatIf::DOORBELL_CLASS);
    assert_ne!(class(&machine), 0xc561);
    let (mut channel, signal) = (machine.channel(), machine.buffer(4096));
    channel.submit(&release(signal.va, 1));
    channel.wait(signal.u64(0), 1);
}

#[test]
fn the_fetch_index_comes_with_the_work_or_100_us_late() {
    let machine = with(none());
    let (mut channel, signal) = (machine.channel(), machine.buffer(4096));
    channel.submit(&release(signal.va, 1));
    channel.wait(signal.u64(0), 1);
    assert_eq!(channel.get(), 1);

    let machine = with(WhatIf::LATE_GP_GET);
    let (mut channel, signal) = (machine.channel(), machine.buffer(4096));
    let (mut before, mut wrong) = (0, 0);
    for value in 1..=50 {
        let start = Instant::now();
        channel.submit(&release(signal.va, value));
        channel.wait(signal.u64(0), value);
        // Nothing else happens until it is there.
        while channel.get() != channel.put {
            wrong += u32::from(channel.get() < before);
            assert!(start.elapsed() < DEADLINE, "the index stays at {}", channel.get());
            std::thread::yield_now();
        }
        before = channel.get();
        assert!(start.elapsed() >= Duration::from_micros(100), "after {:?}", start.elapsed());
    }
    assert_eq!(wrong, 0, "it went backwards");
    // Several entries in a row: it only rises, up to the last.
    for value in 51..=250 {
        channel.submit(&release(signal.va, value));
        assert!(channel.get() >= before, "from {before} to {}", channel.get());
        before = channel.get();
    }
    let start = Instant::now();
    while channel.get() != 250 {
        assert!(start.elapsed() < DEADLINE, "the index stays at {}", channel.get());
        std::thread::yield_now();
    }
}

#[test]
fn a_channel_may_seem_well_for_20_ms_after_its_notifier() {
    let seems_well = |what_if: WhatIf| {
        let machine = with(what_if);
        let mut channel = machine.channel();
        channel.submit(&[6 << 29]);
        assert_eq!(channel.wait_error(), NVGPU_CHANNEL_PBDMA_ERROR);
        let notified = Instant::now();
        let seemed_well = !channel.is_dead();
        channel.wait_dead();
        seemed_well && notified.elapsed() > Duration::from_millis(10)
    };
    // On a busy host this thread may look late, or the machine's run late.
    assert!((0..10).any(|_| seems_well(WhatIf::LATE_UNSERVICEABLE)));
    assert!((0..10).any(|_| !seems_well(none())));
}

/// A store to an address where nothing is, and the code of the notifier.
fn store_to_nowhere(machine: &Machine) -> (Channel<'_>, u32) {
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(machine);
    fill.launch(&mut channel, &fill.describe(0x12_3456_7000, 0, 1), fill.qmd.va + 512, 1);
    let code = channel.wait_error();
    (channel, code)
}

fn has_sm_record(channel: &Channel<'_>) -> bool {
    (0..4).any(|sm_id| {
        let mut record = nvgpu_tsg_sm_error_state_record::default();
        let mut args = nvgpu_tsg_read_single_sm_error_state_args {
            sm_id,
            record_mem: (&raw mut record) as u64,
            record_size: 24,
            ..Default::default()
        };
        ask(&channel.machine.sim, channel.tsg.as_fd(), &mut args).unwrap();
        record.warp_esr != 0
    })
}

const ADDRESS: &str = "fault addr: 0x1234567000";

#[test]
fn a_fault_of_a_kernel_is_the_mmu_s_and_the_sm_s_at_once() {
    let machine = with(none());
    let (channel, code) = store_to_nowhere(&machine);
    assert_eq!(code, NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT);
    channel.wait_dead();
    assert!(has_sm_record(&channel));
    assert!(wait_line(&machine, ADDRESS) < wait_line(&machine, "sm hww global"));
}

#[test]
fn the_sm_s_exception_may_come_before_the_fault_that_caused_it() {
    let machine = with(WhatIf::SM_FIRST);
    let start = Instant::now();
    let (channel, code) = store_to_nowhere(&machine);
    assert_eq!(code, NVGPU_CHANNEL_GR_EXCEPTION);
    channel.wait_dead();
    assert!(has_sm_record(&channel));
    let (sm, mmu) = (wait_line(&machine, "sm hww global"), wait_line(&machine, ADDRESS));
    assert!(start.elapsed() >= Duration::from_millis(50), "the address is there at once");
    assert!(sm < wait_line(&machine, "set gr exception notifier") && sm < mmu);
    assert!(mmu < wait_line(&machine, "generated a mmu fault"));
    // The notifier keeps the first error, and a second one is not reported.
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_EXCEPTION);
    let told = |line: &&String| line.contains("error notifier set to");
    assert_eq!(machine.sim.kernel_log().iter().filter(told).count(), 1);
}

#[test]
fn the_recovery_from_the_mmu_s_fault_may_take_the_sm_s_state() {
    let machine = with(WhatIf::MMU_FIRST);
    let (channel, code) = store_to_nowhere(&machine);
    assert_eq!(code, NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT);
    channel.wait_dead();
    wait_line(&machine, ADDRESS);
    wait_line(&machine, "__ga10b__");
    assert_eq!(line(&machine, "sm hww"), None);
    assert!(!has_sm_record(&channel));
    // An exception that is no fault of the MMU is as ever.
    let mut channel = machine.channel();
    channel.start();
    let (fill, out) = (Fill::load(&machine), machine.buffer(8192));
    fill.launch(&mut channel, &fill.describe(out.va + 2, 0, 1), fill.qmd.va + 512, 1);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_EXCEPTION);
    wait_line(&machine, "sm hww");
}

fn characteristics(machine: &Machine, room: usize) -> (u64, Vec<u8>) {
    let mut bytes = vec![0xee; room];
    let mut args = nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: room as u64,
        gpu_characteristics_buf_addr: bytes.as_mut_ptr() as u64,
    };
    assert_eq!(ask(&machine.sim, machine.ctrl.as_fd(), &mut args), Ok(0));
    (args.gpu_characteristics_buf_size, bytes)
}

#[test]
fn preemption_between_instructions_is_offered_and_may_be_refused() {
    for (what_if, answer) in [(none(), Ok(0)), (WhatIf::CILP_REFUSED, Err(Errno::EINVAL))] {
        let machine = with(what_if);
        let channel = machine.channel_of(machine.tsg(), (-1, 0), &[0xc7c0], NVMAP_HANDLE_INNER_CACHEABLE);
        let (_, bytes) = characteristics(&machine, 328);
        let at = std::mem::offset_of!(nvgpu_gpu_characteristics, compute_preemption_mode_flags);
        assert_ne!(u32::from(bytes[at]) & NVGPU_COMPUTE_PREEMPTION_MODE_CILP, 0, "offered");
        let set = |compute_preempt_mode| {
            let mut args = nvgpu_preemption_mode_args { graphics_preempt_mode: 0, compute_preempt_mode };
            ask(&machine.sim, channel.fd.as_fd(), &mut args)
        };
        assert_eq!(set(NVGPU_COMPUTE_PREEMPTION_MODE_CTA), Ok(0));
        assert_eq!(set(NVGPU_COMPUTE_PREEMPTION_MODE_CILP), answer);
    }
}

#[test]
fn a_slow_preemption_is_busy_after_100_ms_for_each_unit() {
    for (what_if, slow) in [(none(), false), (WhatIf::SLOW_PREEMPTION, true)] {
        let machine = with(what_if);
        let tsg = machine.tsg();
        let sibling = machine.channel_in(tsg.try_clone().unwrap());
        let (mut channel, signal) = (machine.channel_in(tsg), machine.buffer(4096));
        let preempt = |channel: &Channel<'_>| {
            let start = Instant::now();
            (ask_bare(&machine.sim, channel.tsg.as_fd(), NVGPU_IOCTL_TSG_PREEMPT), start.elapsed())
        };
        // A channel that is on no unit has left already.
        assert_eq!(preempt(&channel).0, Ok(0));
        channel.submit(&release(signal.va, 1));
        channel.wait(signal.u64(0), 1);
        let (answer, time) = preempt(&channel);
        assert_eq!(answer, if slow { Err(Errno::EBUSY) } else { Ok(0) });
        if slow {
            assert!(time >= Duration::from_millis(400), "{time:?}");
            for unit in ["pbdma: 0", "pbdma: 1", "eng: 0", "eng: 1"] {
                wait_line(&machine, &format!("preempt timeout {unit} "));
            }
        }
        // It ends, and the channel continues.
        channel.submit(&release(signal.va, 2));
        channel.wait(signal.u64(0), 2);
        let start = Instant::now();
        drop(channel);
        if slow {
            // The close cannot take the channel out. The tear-down preempts once more, and has it after 500 ms.
            wait_line(&machine, "tearing down TSG 0");
            assert!(start.elapsed() >= Duration::from_millis(400), "{:?}", start.elapsed());
            sibling.wait_dead();
            assert!(start.elapsed() >= Duration::from_millis(500), "{:?}", start.elapsed());
        } else {
            machine.settle();
            assert!(!sibling.is_dead());
        }
    }
}

#[test]
fn the_gpu_may_read_zeros_where_the_cpu_wrote_write_combined() {
    for (what_if, stale) in [(none(), false), (WhatIf::STALE_WRITE_COMBINED, true)] {
        let machine = with(what_if);
        // The ring and USERD work: they have run on an Orin.
        let mut channel = machine.channel_of(machine.tsg(), (-1, 0), &CLASSES, NVMAP_HANDLE_WRITE_COMBINE);
        let signal = machine.buffer_of(4096, NVMAP_HANDLE_WRITE_COMBINE);
        signal.u64(0).store(77, Ordering::Release);
        channel.submit(&release(signal.va, 100));
        // The GPU's writes are seen, also beside the CPU's.
        channel.wait(signal.u64(0), 100);
        // The GPU reads its own writes.
        channel.submit(&acquire(signal.va, 100));
        channel.submit(&release(signal.va + 64, 1));
        channel.wait(signal.u64(64), 1);
        // A kernel's results, whose constants are cacheable.
        channel.start();
        let (fill, out) = (Fill::load(&machine), machine.buffer_of(4096, NVMAP_HANDLE_WRITE_COMBINE));
        fill.launch(&mut channel, &fill.describe(out.va, 5, 1), signal.va + 128, 1);
        channel.wait(signal.u64(128), 1);
        assert_eq!(out.words(0, 2), [5, 6]);
        // A pushbuffer of zeros is fetched, and does nothing.
        channel.commands = machine.buffer_of(0x1000, NVMAP_HANDLE_WRITE_COMBINE);
        channel.at = 0;
        channel.submit(&release(signal.va, 101));
        if stale {
            machine.settle();
            assert_eq!((channel.get(), signal.u64(0).load(Ordering::Acquire)), (channel.put, 100));
            assert!(!channel.is_dead() && machine.sim.kernel_log().is_empty());
        } else {
            channel.wait(signal.u64(0), 101);
        }
    }
}

#[test]
fn channels_of_veid_0_may_do_nothing() {
    for (what_if, dead) in [(none(), false), (WhatIf::DEAD_VEID_0, true)] {
        let machine = with(what_if);
        let signal = machine.buffer(4096);
        let caching = NVMAP_HANDLE_INNER_CACHEABLE;
        let mut first = machine.channel_of(machine.tsg(), (-1, 0), &[0xc7c0], caching);
        first.submit(&release(signal.va, 1));
        let mut second = machine.channel_of(machine.tsg(), (-1, 1), &[0xc7c0], caching);
        second.submit(&release(signal.va + 64, 1));
        second.wait(signal.u64(64), 1);
        let mut copies = machine.copy_channel();
        copies.submit(&release(signal.va + 128, 1));
        copies.wait(signal.u64(128), 1);
        if dead {
            assert_eq!((first.get(), signal.u64(0).load(Ordering::Acquire)), (0, 0));
            assert!(!first.is_dead() && machine.sim.kernel_log().is_empty());
        } else {
            first.wait(signal.u64(0), 1);
        }
    }
}

#[test]
fn characteristics_have_the_bytes_that_the_driver_has() {
    let (size, ours) = characteristics(&with(none()), 512);
    assert_eq!((size as usize, &ours[328..]), (328, &[0xee; 184][..]));
    let (size, more) = characteristics(&with(WhatIf::CHARACTERISTICS_400), 512);
    assert_eq!((size, &more[..320], more[399]), (400, &ours[..320], 0x5a));
    assert_eq!(&more[400..], &[0xee; 112]);
    let (size, fewer) = characteristics(&with(WhatIf::CHARACTERISTICS_312), 512);
    assert_eq!((size, &fewer[..312], &fewer[312..]), (312, &ours[..312], &[0xee; 200][..]));
    // The caller's buffer size counts, and the driver still reports the full size.
    let (size, part) = characteristics(&with(WhatIf::CHARACTERISTICS_400), 8);
    assert_eq!((size, &part[..]), (400, &ours[..8]));
}

#[test]
fn a_request_may_be_unknown_to_the_driver_by_its_name() {
    let all: WhatIfs = "enotty=NVGPU_GPU_IOCTL_NUM_VSMS,enotty=NVMAP_IOC_QUERY_HEAP_PARAMS".parse().unwrap();
    for (what_if, answer) in [(WhatIfs::default(), Ok(0)), (all, Err(Errno::ENOTTY))] {
        let machine = with(what_if);
        let ctrl = machine.ctrl.as_fd();
        assert_eq!(ask(&machine.sim, ctrl, &mut nvgpu_gpu_num_vsms::default()), answer);
        let mut heap = nvmap_query_heap_params { heap_mask: NVMAP_HEAP_IOVMM, ..Default::default() };
        assert_eq!(ask(&machine.sim, machine.nvmap.as_fd(), &mut heap), answer);
        assert_eq!(characteristics(&machine, 328).0, 328, "the others are known");
        assert!(machine.sim.absent_calls().is_empty());
    }
    let wrong = WhatIfs { unknown_requests: vec!["NVGPU_NONE".to_owned()], ..WhatIfs::default() };
    assert_eq!(Sim::try_new(config(wrong)).unwrap_err(), Errno::EINVAL);
}

#[test]
fn the_kernel_log_may_not_be_readable() {
    for (what_if, readable) in [(none(), true), (WhatIf::NO_KERNEL_LOG, false)] {
        let machine = with(what_if);
        let mut channel = machine.channel();
        channel.submit(&[6 << 29]);
        channel.wait_error();
        wait_line(&machine, "PBDMA intr");
        assert_eq!(machine.sim.readable_kernel_log().is_some_and(|log| !log.is_empty()), readable);
        assert_eq!(machine.sim.readable_kernel_log().is_some(), readable);
    }
}

#[test]
fn a_gpu_whose_firmware_does_not_start_has_a_power_node_alone() {
    let open = |sim: &Sim, path| sim.open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC).map(drop);
    let (well, not) = (Sim::new(config(none())), Sim::new(config(WhatIf::ONLY_POWER)));
    for path in
        [c"/dev/nvgpu/igpu0/ctrl", c"/dev/nvhost-ctrl-gpu", c"/dev/nvhost-gpu", c"/dev/nvgpu/igpu0/tsg"]
    {
        assert_eq!((open(&well, path), open(&not, path)), (Ok(()), Err(Errno::ENOENT)), "{path:?}");
        assert!(Sim::place(path, &not.config().what_if).is_none());
    }
    for path in [c"/dev/nvgpu/igpu0/power", c"/dev/nvhost-power-gpu", c"/dev/nvmap"] {
        assert_eq!((open(&well, path), open(&not, path)), (Ok(()), Ok(())), "{path:?}");
    }
    let folder = |sim: &Sim| Sim::place(c"/dev/nvgpu/igpu0", &sim.config().what_if);
    assert_eq!(folder(&not), Some(ga10b_sim::Place::Folder(&["power"])));
    assert_ne!(folder(&well), folder(&not));
}

#[test]
fn a_display_driver_says_which_it_is_and_has_no_gpu() {
    const PATH: &std::ffi::CStr = c"/dev/nvidiactl";
    const CHECK_VERSION: u32 = 0xc048_46d2;
    const CARD_INFO: u32 = 0xc048_46c8;
    const ALLOC: u32 = 0xc020_462b;
    let plain = Sim::new(config(none()));
    assert_eq!(plain.open(PATH, OFlag::O_RDWR).unwrap_err(), Errno::ENOENT);
    let sim = Sim::new(config(WhatIf::DISPLAY_DRIVER));
    let node = sim.open(PATH, OFlag::O_RDWR).unwrap();
    let ioctl = |request, bytes: &mut [u8]| {
        // SAFETY: the arguments hold no addresses.
        unsafe { sim.ioctl(node.as_fd(), request, bytes) }
    };
    let mut version = [0; 72];
    version[0] = b'2';
    assert_eq!(ioctl(CHECK_VERSION, &mut version), Ok(0));
    assert_eq!((version[4], &version[8..16]), (1, &b"540.4.0\0"[..]));
    let mut other = [0; 72];
    other[8..15].copy_from_slice(b"535.1.1");
    assert_eq!(ioctl(CHECK_VERSION, &mut other), Err(Errno::EINVAL));
    let mut cards = [0xff; 72];
    assert_eq!(ioctl(CARD_INFO, &mut cards), Ok(0));
    assert_eq!(cards, [0; 72]);
    assert_eq!(ioctl(ALLOC, &mut [0; 32]), Err(Errno::EINVAL));
    // It stands beside nvgpu.
    sim.open(c"/dev/nvgpu/igpu0/ctrl", OFlag::O_RDWR).unwrap();
}

#[test]
fn the_devfreq_node_may_appear_some_seconds_after_boot() {
    let clock = VirtualClock::default();
    let time = Time::Virtual(clock.clone());
    let on_time = Sim::new(SimConfig { time: time.clone(), ..config(none()) });
    let late = Sim::new(SimConfig { time, ..config(WhatIf::LATE_DEVFREQ) });
    assert!(on_time.has_devfreq() && !late.has_devfreq());
    clock.advance(Duration::from_secs(1));
    assert!(!late.has_devfreq());
    clock.advance(Duration::from_secs(2));
    assert!(late.has_devfreq());
}
