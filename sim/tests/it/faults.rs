//! Faults of the GPU, and how they are reported to a program.

use crate::machine::kernel::Fill;
use crate::machine::*;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waits for a line of the log: the driver notifies the owner before it has printed everything.
fn log_has(machine: &Machine, part: &str) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !machine.sim.kernel_log().iter().any(|line| line.contains(part)) {
        assert!(Instant::now() < deadline, "no {part:?} in {:#?}", machine.sim.kernel_log());
        std::thread::yield_now();
    }
}

/// After an error the channel stays dead, and every call reports it.
fn assert_dead(channel: &mut Channel<'_>) {
    channel.wait_dead();
    let sim = &channel.machine.sim;
    let mut submit = nvgpu_submit_gpfifo_args::default();
    // The driver notifies the owner before it stops the channel.
    let deadline = Instant::now() + Duration::from_secs(10);
    while ask(sim, channel.fd.as_fd(), &mut submit) != Err(Errno::ETIMEDOUT) {
        assert!(Instant::now() < deadline, "the channel is not dead");
    }
    let mut setup = nvgpu_channel_setup_bind_args {
        num_gpfifo_entries: 1024,
        flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
        ..Default::default()
    };
    assert_eq!(ask(sim, channel.fd.as_fd(), &mut setup), Err(Errno::EEXIST));
    let signal = channel.machine.buffer(4096);
    channel.submit(&release(signal.va, 1));
    channel.machine.settle();
    assert_eq!(signal.u64(0).load(Ordering::Acquire), 0);
}

fn sm_record(channel: &Channel<'_>, sm_id: u32) -> nvgpu_tsg_sm_error_state_record {
    let mut record = nvgpu_tsg_sm_error_state_record::default();
    let mut args = nvgpu_tsg_read_single_sm_error_state_args {
        sm_id,
        record_mem: (&raw mut record) as u64,
        record_size: 24,
        ..Default::default()
    };
    ask(&channel.machine.sim, channel.tsg.as_fd(), &mut args).unwrap();
    record
}

/// The record of the SM that failed.
fn failed(channel: &Channel<'_>) -> nvgpu_tsg_sm_error_state_record {
    let found = (0..4).map(|id| sm_record(channel, id)).find(|r| r.warp_esr != 0);
    found.expect("no SM has an error record")
}

#[test]
fn a_store_to_an_unmapped_page_is_an_mmu_fault() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    fill.launch(&mut channel, &fill.describe(0x12_3456_7000, 0, 1), fill.qmd.va + 512, 1);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT);
    log_has(
        &machine,
        "[MMU FAULT] mmu engine id:  64, ch id:  511, fault addr: 0x1234567000, fault addr aperture: 0, fault type: invalid pde, access type: virt write, ",
    );
    log_has(&machine, "client type: gpc, client id:  t1_");
    log_has(&machine, "error notifier set to 31 for ch 511 owned by ");
    let record = failed(&channel);
    assert_eq!(record.warp_esr & 0xffff, 0x17);
    assert!((fill.program.va..fill.program.va + 0x4000).contains(&record.warp_esr_pc));
    assert_dead(&mut channel);
}

#[test]
fn a_misaligned_store_is_reported_by_the_sm() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let out = machine.buffer(8192);
    fill.launch(&mut channel, &fill.describe(out.va + 2, 0, 1), fill.qmd.va + 512, 1);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_EXCEPTION);
    assert_eq!(failed(&channel).warp_esr & 0xffff, 0x0f);
    log_has(&machine, "sm err state gpc_id(0), tpc_id(");
    log_has(&machine, "set gr exception notifier");
    assert_dead(&mut channel);
}

#[test]
fn a_global_store_into_the_shared_window_is_an_invalid_address_space() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    fill.launch(&mut channel, &fill.describe(SHARED_WINDOW + 0x20_0000, 0, 1), fill.qmd.va + 512, 1);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_EXCEPTION);
    assert_eq!(failed(&channel).warp_esr & 0xffff, 0x10);
}

#[test]
fn code_that_was_never_written_is_an_illegal_instruction() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let out = machine.buffer(4096);
    fill.program.write(0, &[0xff; 0x1000]);
    fill.launch(&mut channel, &fill.describe(out.va, 0, 1), fill.qmd.va + 512, 1);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_EXCEPTION);
    let record = failed(&channel);
    assert_eq!((record.warp_esr & 0xffff, record.warp_esr_pc), (0x09, fill.program.va));
}

#[test]
fn a_read_only_mapping_refuses_stores() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let out = machine.host_buffer(4096);
    let mut args = nvgpu_as_map_buffer_ex_args {
        flags: NVGPU_AS_MAP_BUFFER_ACCESS_READ_ONLY << NVGPU_AS_MAP_BUFFER_FLAGS_ACCESS_BITMASK_OFFSET,
        compr_kind: -1,
        dmabuf_fd: std::os::fd::AsRawFd::as_raw_fd(&out.fd) as u32,
        ..Default::default()
    };
    ask(&machine.sim, machine.space.as_fd(), &mut args).unwrap();
    fill.launch(&mut channel, &fill.describe(args.offset, 0, 1), fill.qmd.va + 512, 1);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT);
    log_has(&machine, "fault type: write, ro violation, access type: virt write, ");
}

#[test]
fn launching_without_windows_is_a_sked_exception() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.submit(&[inc(1, 0, 1), 0xc7c0]);
    let fill = Fill::load(&machine);
    let out = machine.buffer(4096);
    fill.launch(&mut channel, &fill.describe(out.va, 0, 1), fill.qmd.va + 512, 1);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_EXCEPTION);
    log_has(&machine, "gm20b_gr_intr_check_gr_sked_exception:147  [ERR]  sked exception: esr 0x01000000");
}

#[test]
fn pushbuffer_mistakes_stop_the_host() {
    let bad: [(&[u32], &str); 5] = [
        (&[6 << 29], "PBDMA intr PBENTRY invld Error"),
        (&[0x2001_0000 | 0xf0 >> 2, 0], "PBDMA intr METHOD invld Error"),
        (&[0x2001_0000 | 5 << 13 | 0x100 >> 2, 0], "PBDMA intr DEVICE sw method Error"),
        (&[0x2005_0017, 4, 0, 0, 0, 0x0300_0001], "PBDMA intr SEMAPHORE invlid Error"),
        (&[0x2001_0000 | 4 << 13, 0xc7c0], "hce err: pbdma_intr_1(0):0x00000010"),
    ];
    for (words, line) in bad {
        let machine = Machine::new();
        let mut channel = machine.channel();
        channel.submit(words);
        assert_eq!(channel.wait_error(), NVGPU_CHANNEL_PBDMA_ERROR, "{line}");
        log_has(&machine, line);
    }
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.publish(1 << 32);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_PBDMA_ERROR);
    log_has(&machine, "PBDMA intr GPENTRY invalid Error");
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.publish(0x10_0000_0000 | 4 << 42);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT);
    log_has(
        &machine,
        "mmu engine id:  32, ch id:  511, fault addr: 0x1000000000, fault addr aperture: 0, fault type: invalid pde",
    );
    log_has(&machine, "client type: hub, client id:  esc");
}

#[test]
fn engine_methods_that_do_not_exist_are_reported_by_the_front_end() {
    let cases: [(&[u32], u32, &str); 4] = [
        (
            &[inc(0, 0, 1), 0xc7c0],
            NVGPU_CHANNEL_GR_EXCEPTION,
            "fe exception: esr 0x80000002, info 0x0000c7c0",
        ),
        (
            &[inc(1, 0, 1), 0xc7c0, inc(1, 0x4b0, 1), 0],
            NVGPU_CHANNEL_GR_ILLEGAL_NOTIFY,
            "invalid method class 0x0000c7c0, offset 0x0000012c address 0x000104b0",
        ),
        (&[inc(1, 0x1b4, 1), 0], NVGPU_CHANNEL_GR_EXCEPTION, "memfmt exception: esr 80000001"),
        (
            &[inc(1, 0, 1), 0xc7c0, inc(1, 0x520, 1), 0],
            NVGPU_CHANNEL_FECS_ERR_UNIMP_FIRMWARE_METHOD,
            "firmware method error: mailxbox6 0x00000000",
        ),
    ];
    for (words, code, line) in cases {
        let machine = Machine::new();
        let mut channel = machine.channel();
        channel.submit(words);
        assert_eq!(channel.wait_error(), code, "{line}");
        log_has(&machine, line);
    }
}

#[test]
fn a_fault_kills_the_group_and_nobody_else() {
    let machine = Machine::new();
    let mut bystander = machine.channel();
    let tsg = machine.tsg();
    let second = tsg.try_clone().unwrap();
    let (mut guilty, companion) = (machine.channel_in(tsg), machine.channel_in(second));
    guilty.submit(&[6 << 29]);
    assert_eq!(companion.wait_error(), NVGPU_CHANNEL_PBDMA_ERROR);
    guilty.wait_dead();
    companion.wait_dead();
    assert!(!bystander.is_dead());
    let signal = machine.buffer(4096);
    bystander.submit(&release(signal.va, 1));
    bystander.wait(signal.u64(0), 1);
}

#[test]
fn a_forced_reset_is_reported_as_one() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    assert_eq!(ask_bare(&machine.sim, channel.fd.as_fd(), NVGPU_IOCTL_CHANNEL_FORCE_RESET), Ok(0));
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_RESETCHANNEL_VERIF_ERROR);
    assert_dead(&mut channel);
}

#[test]
fn a_launch_that_the_hardware_never_starts_is_a_violation() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let out = machine.buffer(4096);
    let mut qmd = fill.describe(out.va, 0, 1).build().unwrap();
    qmd.set(qmd::v03::QMD_MAJOR_VERSION, 2).unwrap();
    fill.qmd.write(0, qmd.as_bytes());
    fill.kick(&mut channel);
    let deadline = Instant::now() + Duration::from_secs(10);
    while machine.sim.violations().is_empty() {
        assert!(Instant::now() < deadline, "nothing says that the launch hangs");
        std::thread::yield_now();
    }
    assert_eq!(machine.sim.violations()[0].consequence, ga10b_sim::Consequence::Hang);
    assert!(!channel.is_dead());
}

#[test]
fn memory_that_was_unmapped_is_gone_for_the_next_launch() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let fill = Fill::load(&machine);
    let (out, signal) = (machine.buffer(8192), machine.buffer(4096));
    fill.launch(&mut channel, &fill.describe(out.va, 1, 1), signal.va, 1);
    channel.wait(signal.u64(0), 1);
    assert_eq!(out.words(0, 2), [1, 2]);
    let mut args = nvgpu_as_unmap_buffer_args { offset: out.va };
    ask(&machine.sim, machine.space.as_fd(), &mut args).unwrap();
    fill.launch(&mut channel, &fill.describe(out.va, 2, 1), signal.va, 2);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT);
    log_has(&machine, "fault type: invalid pte, access type: virt write, ");
    // The address space lives on: a new channel works in it.
    let mut channel = machine.channel();
    channel.start();
    fill.launch(&mut channel, &fill.describe(signal.va + 2048, 5, 1), signal.va, 3);
    channel.wait(signal.u64(0), 3);
}

#[test]
fn a_class_of_another_gpu_is_illegal() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.submit(&[inc(1, 0, 1), 0xcbc0]);
    assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_ERROR_SW_NOTIFY);
    log_has(&machine, "invalid class 0x0000cbc0");
}

#[test]
fn a_copy_engine_gets_the_methods_of_every_subchannel() {
    let machine = Machine::new();
    let mut channel = machine.copy_channel();
    let (from, to) = (machine.buffer(4096), machine.buffer(4096));
    from.write(0, b"sixteen bytes...");
    for subchannel in [4, 1] {
        let va = |va: u64| [(va >> 32) as u32, va as u32];
        let mut words = vec![inc(subchannel, 0, 1), 0xc7b5, inc(subchannel, 0x400, 4)];
        words.extend(va(from.va));
        words.extend(va(to.va + u64::from(subchannel) * 64));
        words.extend([inc(subchannel, 0x418, 1), 16, inc(subchannel, 0x300, 1), 0x182]);
        channel.submit(&words);
    }
    let signal = machine.buffer(4096);
    channel.submit(&release(signal.va, 1));
    channel.wait(signal.u64(0), 1);
    assert_eq!(to.read(64, 16), b"sixteen bytes...");
    assert_eq!(to.read(256, 16), b"sixteen bytes...");
}

#[test]
fn a_copy_engine_refuses_compute_methods() {
    let machine = Machine::new();
    for words in [
        // The compute class; invalidating shader caches; a host method first, which it takes.
        vec![inc(1, 0, 1), 0xc7c0],
        vec![inc(1, 0x1698, 1), 0x11],
        vec![inc(0, 0x78, 1), 0, inc(1, 0x120, 1), 0],
    ] {
        let mut channel = machine.copy_channel();
        channel.submit(&words);
        assert_eq!(channel.wait_error(), NVGPU_CHANNEL_PBDMA_ERROR);
        assert_dead(&mut channel);
    }
}
