//! The driver's checks: which calls it takes, which errno it gives, which addresses it allocates.

use crate::machine::*;
use ga10b_sim::{Consequence, Sim, SimConfig};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nvgpu_sys::*;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

const FLAGS: OFlag = OFlag::O_RDWR;

fn fixed(machine: &Machine, fd: &OwnedFd, offset: u64) -> Result<i32, Errno> {
    let mut args = nvgpu_as_map_buffer_ex_args {
        flags: NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET,
        compr_kind: -1,
        dmabuf_fd: fd.as_raw_fd() as u32,
        offset,
        ..Default::default()
    };
    ask(&machine.sim, machine.space.as_fd(), &mut args)
}

#[test]
fn nodes_open_as_on_ga10b() {
    let sim = Sim::new(SimConfig::default());
    assert!(sim.open(c"/dev/nvgpu/igpu0/ctrl", FLAGS).is_ok());
    assert!(sim.open(c"/dev/nvhost-ctrl-gpu", FLAGS).is_ok());
    assert!(sim.open(c"/dev/nvhost-gpu", FLAGS).is_ok());
    assert_eq!(sim.open(c"/dev/nvgpu/igpu0/as", FLAGS).unwrap_err(), Errno::EINVAL);
    assert_eq!(sim.open(c"/dev/nvgpu/igpu0/prof-ctx", FLAGS).unwrap_err(), Errno::EINVAL);
    assert_eq!(sim.open(c"/dev/nvgpu/igpu0/nonsense", FLAGS).unwrap_err(), Errno::ENOENT);
    let _first = sim.open(c"/dev/nvgpu/igpu0/sched", FLAGS).unwrap();
    assert_eq!(sim.open(c"/dev/nvgpu/igpu0/sched", FLAGS).unwrap_err(), Errno::EBUSY);
}

#[test]
fn characteristics_are_those_of_an_orin() {
    let machine = Machine::with(SimConfig::default());
    let mut all = nvgpu_gpu_characteristics::default();
    let mut args = nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: 328,
        gpu_characteristics_buf_addr: (&raw mut all) as u64,
    };
    assert_eq!(ask(&machine.sim, machine.ctrl.as_fd(), &mut args), Ok(0));
    assert_eq!(args.gpu_characteristics_buf_size, 328);
    assert_eq!((all.arch, all.impl_, all.compute_class, all.sm_arch_sm_version), (0x170, 0xb, 0xc7c0, 0x807));
    assert_eq!((all.num_gpc, all.num_tpc_per_gpc, all.big_page_size), (2, 4, 0));
    assert_eq!(&all.chipname[..5], b"ga10b");
    // A bad address: the number of bytes that were not copied.
    args.gpu_characteristics_buf_addr = 8;
    assert_eq!(ask(&machine.sim, machine.ctrl.as_fd(), &mut args), Ok(328));
}

/// What `ZBC_QUERY_TABLE` answers for an entry whose other fields the program has filled with ones.
fn zbc_entry(
    machine: &Machine,
    type_: u32,
    index_size: u32,
) -> Result<nvgpu_gpu_zbc_query_table_args, Errno> {
    let mut args = nvgpu_gpu_zbc_query_table_args {
        color_ds: [1; 4],
        color_l2: [1; 4],
        depth: 1,
        stencil: 1,
        ref_cnt: 1,
        format: 1,
        type_,
        index_size,
    };
    ask(&machine.sim, machine.ctrl.as_fd(), &mut args).map(|_| args)
}

#[test]
fn tables_of_clear_values_begin_as_the_driver_s() {
    let machine = Machine::new();
    let size = zbc_entry(&machine, NVGPU_ZBC_TYPE_INVALID, 77).unwrap();
    assert_eq!((size.index_size, size.format, size.ref_cnt, size.depth), (30, 0, 0, 1));
    for (index, word, used) in [(1, 0xff00_0000, 1), (2, 0, 1), (3, u32::MAX, 1), (4, 0, 0), (30, 0, 0)] {
        let color = zbc_entry(&machine, NVGPU_ZBC_TYPE_COLOR, index).unwrap();
        assert_eq!((color.color_ds, color.color_l2), ([word; 4], [word; 4]), "color {index}");
        assert_eq!((color.format, color.ref_cnt, color.depth, color.stencil), (0, used, 1, 1));
    }
    for (index, depth, used) in [(1, 0x3f80_0000, 1), (2, 0, 1), (3, 0, 0), (15, 0, 0)] {
        let entry = zbc_entry(&machine, NVGPU_ZBC_TYPE_DEPTH, index).unwrap();
        assert_eq!((entry.depth, entry.format, entry.ref_cnt), (depth, used, used), "depth {index}");
        assert_eq!((entry.color_ds, entry.stencil), ([1; 4], 1));
    }
    for (index, stencil, used) in [(1, 0, 1), (2, 1, 1), (3, 0xff, 1), (4, 0, 0), (15, 0, 0)] {
        let entry = zbc_entry(&machine, NVGPU_ZBC_TYPE_STENCIL, index).unwrap();
        assert_eq!((entry.stencil, entry.format, entry.ref_cnt), (stencil, used, used), "stencil {index}");
        assert_eq!((entry.color_l2, entry.depth), ([1; 4], 1));
    }
    let outside = [(NVGPU_ZBC_TYPE_COLOR, 31), (NVGPU_ZBC_TYPE_DEPTH, 16), (NVGPU_ZBC_TYPE_STENCIL, 16)];
    for (type_, after) in outside {
        for index in [0, after, u32::MAX] {
            assert_eq!(zbc_entry(&machine, type_, index).unwrap_err(), Errno::EINVAL, "{type_}, {index}");
        }
    }
    assert_eq!(zbc_entry(&machine, 4, 1).unwrap_err(), Errno::EINVAL);
}

#[test]
fn a_clear_value_is_counted_or_added_until_its_table_is_full() {
    let machine = Machine::new();
    let set = |mut args: nvgpu_gpu_zbc_set_table_args| ask(&machine.sim, machine.ctrl.as_fd(), &mut args);
    let depth = |depth, format| nvgpu_gpu_zbc_set_table_args {
        depth,
        format,
        type_: NVGPU_ZBC_TYPE_DEPTH,
        ..Default::default()
    };
    assert_eq!([set(depth(0, 1)), set(depth(0, 2))], [Ok(0); 2]);
    let entry = |index| zbc_entry(&machine, NVGPU_ZBC_TYPE_DEPTH, index).unwrap();
    let seen = [1, 2, 3].map(|index| (entry(index).depth, entry(index).format, entry(index).ref_cnt));
    assert_eq!(seen, [(0x3f80_0000, 1, 1), (0, 1, 2), (0, 2, 1)], "another format is another entry");
    for value in 4..=15 {
        assert_eq!(set(depth(value, 1)), Ok(0));
    }
    assert_eq!([set(depth(16, 1)), set(depth(15, 1))], [Err(Errno::ENOSPC), Ok(0)]);
    assert_eq!((entry(15).depth, entry(15).ref_cnt), (15, 2));

    let color = |color_ds, color_l2| {
        let type_ = NVGPU_ZBC_TYPE_COLOR;
        set(nvgpu_gpu_zbc_set_table_args { color_ds, color_l2, type_, ..Default::default() })
    };
    assert_eq!([color([0; 4], [0; 4]), color([0; 4], [1, 2, 3, 4])], [Ok(0); 2]);
    let seen = [2, 4].map(|index| zbc_entry(&machine, NVGPU_ZBC_TYPE_COLOR, index).unwrap());
    assert_eq!(seen.map(|e| (e.color_l2, e.ref_cnt)), [([0; 4], 2), ([1, 2, 3, 4], 1)]);

    let stencil = nvgpu_gpu_zbc_set_table_args { stencil: 7, format: 1, type_: 3, ..Default::default() };
    assert_eq!(set(stencil), Ok(0));
    assert_eq!(zbc_entry(&machine, NVGPU_ZBC_TYPE_STENCIL, 4).unwrap().stencil, 7);
    for type_ in [NVGPU_ZBC_TYPE_INVALID, 4] {
        let args = nvgpu_gpu_zbc_set_table_args { type_, ..Default::default() };
        assert_eq!(set(args), Err(Errno::EINVAL));
    }
}

#[test]
fn address_spaces_are_checked() {
    let machine = Machine::new();
    let alloc = |start, end, big, split| {
        let mut args = nvgpu_alloc_as_args {
            big_page_size: big,
            flags: NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
            va_range_start: start,
            va_range_end: end,
            va_range_split: split,
            ..Default::default()
        };
        ask(&machine.sim, machine.ctrl.as_fd(), &mut args).map(|_| take(args.as_fd))
    };
    assert!(alloc(0x20_0000, 0xff_0000_0000, 0, 0).is_ok());
    for (start, end, big, split) in [
        (0, 0xff_0000_0000, 0, 0),
        (0x20_0000, 0, 0, 0),
        (0x1000, 0xff_0000_0000, 0, 0),
        (0x20_0000, 0xff_0000_1000, 0, 0),
        (0x40_0000, 0x20_0000, 0, 0),
        (0x20_0000, 0xff_0000_0000, 0x1_0000, 0),
        (0x20_0000, 0xff_0000_0000, 0, 0x20_0000),
    ] {
        assert_eq!(alloc(start, end, big, split).unwrap_err(), Errno::EINVAL);
    }
    assert_eq!(alloc(0x20_0000, 0x1_ffff_ffe0_0000, 0, 0).unwrap_err(), Errno::ENOMEM);
}

#[test]
fn mappings_are_shared_counted_and_checked() {
    let machine = Machine::new();
    let buffer = machine.buffer(0x1_0000);
    assert_eq!(buffer.va, 0xfe_4000_0000);
    // The same buffer again: the same address, one more reference.
    assert_eq!(machine.map_gpu(&buffer), Ok(buffer.va));
    let unmap = || {
        let mut args = nvgpu_as_unmap_buffer_args { offset: buffer.va };
        ask(&machine.sim, machine.space.as_fd(), &mut args)
    };
    assert_eq!((unmap(), machine.map_gpu(&buffer)), (Ok(0), Ok(buffer.va)));
    assert_eq!((unmap(), unmap(), unmap()), (Ok(0), Ok(0), Ok(0)));
    // Fixed addresses need a reservation.
    let base = 0x10_0000_0000;
    assert_eq!(fixed(&machine, &buffer.fd, base), Err(Errno::EINVAL));
    let mut area = nvgpu_as_alloc_space_args {
        pages: 32,
        page_size: 4096,
        flags: NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET,
        o_a: base,
        ..Default::default()
    };
    assert_eq!(ask(&machine.sim, machine.space.as_fd(), &mut area), Ok(0));
    assert_eq!(ask(&machine.sim, machine.space.as_fd(), &mut area), Err(Errno::ENOMEM));
    assert_eq!(fixed(&machine, &buffer.fd, base + 1), Err(Errno::EINVAL));
    assert_eq!(fixed(&machine, &buffer.fd, base + 0x1_1000), Err(Errno::EINVAL));
    assert_eq!(fixed(&machine, &buffer.fd, base + 0x1000), Ok(0));
    assert_eq!(fixed(&machine, &buffer.fd, base + 0x1000), Ok(0));
    assert_eq!(fixed(&machine, &buffer.fd, base), Err(Errno::EINVAL));
    // Two references and one free: the driver leaves the pages mapped in addresses that are free again.
    let mut free = nvgpu_as_free_space_args { offset: base + 0x5000, ..Default::default() };
    assert_eq!(ask(&machine.sim, machine.space.as_fd(), &mut free), Ok(0));
    assert_eq!(machine.sim.violations()[0].consequence, Consequence::Corruption);
    assert_eq!(fixed(&machine, &machine.ctrl, base), Err(Errno::EINVAL));
}

#[test]
fn nvmap_keeps_memory_as_long_as_anything_refers_to_it() {
    let machine = Machine::new();
    let sim = &machine.sim;
    assert_eq!(nvmap_create(sim, &machine.nvmap, 0), Err(Errno::EINVAL));
    let buffer = machine.buffer(4096);
    assert!(buffer.handle >= 0x8000_0000);
    buffer.u32(0).store(77, Ordering::Release);
    nvmap_free(sim, &machine.nvmap, buffer.handle);
    let mut args = nvgpu_as_unmap_buffer_args { offset: buffer.va };
    ask(sim, machine.space.as_fd(), &mut args).unwrap();
    // Only the descriptor is left; the bytes are still there for the GPU.
    let again = machine.map_gpu(&buffer).unwrap();
    let mut channel = machine.channel();
    let mut words = acquire(again, 77).to_vec();
    words[5] = 0;
    words.extend(release(again + 16, 1));
    channel.submit(&words);
    channel.wait(buffer.u64(16), 1);
    let gone = nvmap_fd(sim, &machine.nvmap, buffer.handle);
    assert_eq!(gone.unwrap_err(), Errno::EBADF);
    let mut alloc = nvmap_alloc_handle {
        handle: nvmap_create(sim, &machine.nvmap, 1 << 40).unwrap(),
        heap_mask: NVMAP_HEAP_IOVMM,
        numa_nid: -1,
        ..Default::default()
    };
    assert_eq!(ask(sim, machine.nvmap.as_fd(), &mut alloc), Err(Errno::ENOMEM));
    alloc.handle = nvmap_create(sim, &machine.nvmap, 4096).unwrap();
    let unallocated = nvmap_fd(sim, &machine.nvmap, alloc.handle).unwrap();
    assert_eq!(map(sim, unallocated.as_fd(), 4096).unwrap_err(), Errno::EPERM);
    alloc.heap_mask = 1 << 31;
    assert_eq!(ask(sim, machine.nvmap.as_fd(), &mut alloc), Err(Errno::ENOMEM));
    alloc.heap_mask = NVMAP_HEAP_IOVMM;
    assert_eq!(ask(sim, machine.nvmap.as_fd(), &mut alloc), Ok(0));
    assert_eq!(ask(sim, machine.nvmap.as_fd(), &mut alloc), Err(Errno::EEXIST));
}

#[test]
fn setup_bind_checks_in_the_drivers_order() {
    let machine = Machine::new();
    let sim = &machine.sim;
    let mut open = nvgpu_gpu_open_channel_args::default();
    open.set_in_runlist_id(-1);
    ask(sim, machine.ctrl.as_fd(), &mut open).unwrap();
    let fd = take(open.out_channel_fd());
    let (ring, userd) = (machine.host_buffer(4096), machine.host_buffer(4096));
    let mut args = nvgpu_channel_setup_bind_args {
        num_gpfifo_entries: 100,
        flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
        userd_dmabuf_fd: userd.fd.as_raw_fd(),
        gpfifo_dmabuf_fd: ring.fd.as_raw_fd(),
        ..Default::default()
    };
    let try_bind = |args: &mut nvgpu_channel_setup_bind_args| ask(sim, fd.as_fd(), args);
    assert_eq!(try_bind(&mut args), Err(Errno::EINVAL));
    args.num_gpfifo_entries = 512;
    assert_eq!(try_bind(&mut args), Err(Errno::EINVAL)); // no address space
    let number = fd.as_raw_fd();
    let mut bind_space = nvgpu_as_bind_channel_args { channel_fd: number as u32 };
    ask(sim, machine.space.as_fd(), &mut bind_space).unwrap();
    assert_eq!(ask(sim, machine.space.as_fd(), &mut bind_space), Err(Errno::EINVAL));
    assert_eq!(try_bind(&mut args), Err(Errno::EINVAL)); // no group
    let tsg = machine.tsg();
    let mut bind =
        nvgpu_tsg_bind_channel_ex_args { channel_fd: number, subcontext_id: 1, ..Default::default() };
    assert_eq!(ask(sim, tsg.as_fd(), &mut bind), Err(Errno::EINVAL)); // VEID 1 does not exist
    bind.subcontext_id = 0;
    assert_eq!(ask(sim, tsg.as_fd(), &mut bind), Ok(0));
    assert_eq!(try_bind(&mut args), Err(Errno::EINVAL)); // user mode without deterministic
    args.flags |= NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC;
    assert_eq!(try_bind(&mut args), Err(Errno::EINVAL)); // watchdog
    ask(sim, fd.as_fd(), &mut nvgpu_channel_wdt_args { wdt_status: 1, timeout_ms: 0 }).unwrap();
    args.userd_dmabuf_offset = 4096;
    assert_eq!(try_bind(&mut args), Err(Errno::EINVAL));
    args.userd_dmabuf_offset = 0;
    args.num_gpfifo_entries = 1024;
    assert_eq!(try_bind(&mut args), Err(Errno::EINVAL)); // ring buffer too small
    args.num_gpfifo_entries = 512;
    assert_eq!(try_bind(&mut args), Ok(0));
    assert_eq!((args.work_submit_token, args.gpfifo_gpu_va), (511, 0));
    assert_eq!(try_bind(&mut args), Err(Errno::EEXIST));
}

#[test]
fn the_range_that_freezes_a_real_machine_is_refused_loudly() {
    let machine = Machine::new();
    let sim = &machine.sim;
    let mut alloc = nvgpu_alloc_as_args {
        flags: 2,
        va_range_start: 0x20_0000,
        va_range_end: 0xff_ffe0_0000,
        ..Default::default()
    };
    ask(sim, machine.ctrl.as_fd(), &mut alloc).unwrap();
    let space = take(alloc.as_fd);
    let mut open = nvgpu_gpu_open_channel_args::default();
    open.set_in_runlist_id(-1);
    ask(sim, machine.ctrl.as_fd(), &mut open).unwrap();
    let fd = take(open.out_channel_fd());
    let number = fd.as_raw_fd();
    ask(sim, space.as_fd(), &mut nvgpu_as_bind_channel_args { channel_fd: number as u32 }).unwrap();
    let tsg = machine.tsg();
    let mut bind = nvgpu_tsg_bind_channel_ex_args { channel_fd: number, ..Default::default() };
    ask(sim, tsg.as_fd(), &mut bind).unwrap();
    ask(sim, fd.as_fd(), &mut nvgpu_channel_wdt_args { wdt_status: 1, timeout_ms: 0 }).unwrap();
    let (ring, userd) = (machine.host_buffer(3 << 20), machine.host_buffer(4096));
    let mut args = nvgpu_channel_setup_bind_args {
        num_gpfifo_entries: 512,
        flags: 0xa,
        userd_dmabuf_fd: userd.fd.as_raw_fd(),
        gpfifo_dmabuf_fd: ring.fd.as_raw_fd(),
        ..Default::default()
    };
    assert_eq!(ask(sim, fd.as_fd(), &mut args), Ok(0));
    let mut class = nvgpu_alloc_obj_ctx_args { class_num: 0xc7c0, ..Default::default() };
    assert_eq!(ask(sim, fd.as_fd(), &mut class), Err(Errno::EIO));
    let consequences: Vec<_> = sim.violations().iter().map(|v| v.consequence).collect();
    assert_eq!(
        consequences,
        [Consequence::MayFreeze, Consequence::Freeze],
        "the ring alone, and where it leads"
    );
}

#[test]
fn numbers_of_numa_nodes_pass_up_to_the_kernel_s_limit() {
    let machine = Machine::new();
    let alloc = |heap_mask, numa_nid| {
        let handle = nvmap_create(&machine.sim, &machine.nvmap, 4096).unwrap();
        let mut alloc = nvmap_alloc_handle { handle, heap_mask, align: 4096, numa_nid, flags: 0 };
        ask(&machine.sim, machine.nvmap.as_fd(), &mut alloc)
    };
    assert_eq!([-1, 0].map(|node| alloc(NVMAP_HEAP_IOVMM, node)), [Ok(0); 2]);
    assert_eq!([-2, 17].map(|node| alloc(NVMAP_HEAP_IOVMM, node)), [Err(Errno::EINVAL); 2]);
    assert_eq!(
        [1, 16].map(|node| alloc(NVMAP_HEAP_CARVEOUT_FSI, node)),
        [Ok(0); 2],
        "a carveout has no node"
    );
    assert!(machine.sim.violations().is_empty());
    assert_eq!([1, 16].map(|node| alloc(NVMAP_HEAP_IOVMM, node)), [Err(Errno::EIO); 2], "no such node");
    assert!(machine.sim.violations().iter().all(|v| v.consequence == Consequence::Freeze));
}

#[test]
fn closing_gives_numbers_and_mappings_back() {
    let machine = Machine::new();
    for _ in 0..3 {
        let channel = machine.channel();
        assert_eq!(channel.token, 511);
        let copy = channel.fd.try_clone().unwrap();
        let Channel { fd, tsg, .. } = channel;
        machine.sim.close(fd).unwrap();
        // A copy of the descriptor keeps the channel.
        let mut args = nvgpu_get_param_args::default();
        assert_eq!(ask(&machine.sim, copy.as_fd(), &mut args), Ok(0));
        assert_eq!(args.value, 0);
        machine.sim.close(copy).unwrap();
        machine.sim.close(tsg).unwrap();
    }
    // Descriptors that are just dropped are noticed a little later. The number freed last is given first, so
    // the channels tried in between stay open: closed, they would bury the number that is waited for.
    drop(machine.channel());
    let start = std::time::Instant::now();
    let mut tried = Vec::new();
    let mut pause = std::time::Duration::from_millis(1);
    loop {
        tried.push(machine.channel());
        if tried.last().is_some_and(|c| c.token == 511) {
            break;
        }
        assert!(start.elapsed() < DEADLINE, "channel 511 never came back");
        std::thread::sleep(pause);
        pause *= 2;
    }
}

#[test]
fn the_doorbell_page_has_one_mapping_per_open_file() {
    let machine = Machine::new();
    assert_eq!(map(&machine.sim, machine.ctrl.as_fd(), 4096).unwrap_err(), Errno::EBUSY);
    // SAFETY: the page is not used any more.
    unsafe { machine.sim.munmap(machine.doorbell.cast(), 0x1_0000).unwrap() };
    assert!(map(&machine.sim, machine.ctrl.as_fd(), 4096).is_ok());
    assert_eq!(map(&machine.sim, machine.nvmap.as_fd(), 4096).unwrap_err(), Errno::EPERM);
}

#[test]
fn an_event_is_readable_once_per_post() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    let mut args = nvgpu_event_id_ctrl_args {
        cmd: NVGPU_IOCTL_CHANNEL_EVENT_ID_CMD_ENABLE,
        event_id: NVGPU_IOCTL_CHANNEL_EVENT_ID_BLOCKING_SYNC,
        ..Default::default()
    };
    // SAFETY: the argument has no pointers. The number belongs to two commands, so it has no typed form.
    let done = unsafe {
        machine.sim.ioctl(
            channel.tsg.as_fd(),
            NVGPU_IOCTL_TSG_EVENT_ID_CTRL,
            zerocopy::IntoBytes::as_mut_bytes(&mut args),
        )
    };
    assert_eq!(done, Ok(0));
    let event = take(args.event_fd);
    let poll = |ms: u16| {
        let mut fds = [PollFd::new(event.as_fd(), PollFlags::POLLIN | PollFlags::POLLPRI)];
        let ready = machine.sim.poll(&mut fds, PollTimeout::from(ms)).unwrap();
        (ready, fds[0].revents().unwrap())
    };
    assert_eq!(poll(0), (0, PollFlags::empty()));
    channel.submit(&[inc(0, 0x20, 1), 0]);
    assert_eq!(poll(5000), (1, PollFlags::POLLIN | PollFlags::POLLPRI));
    assert_eq!(poll(0), (0, PollFlags::empty()));
    assert!(machine.sim.descriptor_name(event.as_fd()).unwrap().starts_with("nvgpu-event2-fd"));
}

#[test]
fn a_debugger_sees_mappings_and_memory() {
    let machine = Machine::new();
    let channel = machine.channel();
    let buffer = machine.buffer(0x2000);
    buffer.u32(0x1004).store(0xabcd, Ordering::Release);
    let dbg = machine.sim.open(c"/dev/nvgpu/igpu0/dbg", FLAGS).unwrap();
    let mut bind =
        nvgpu_dbg_gpu_bind_channel_args { channel_fd: channel.fd.as_raw_fd() as u32, ..Default::default() };
    ask(&machine.sim, dbg.as_fd(), &mut bind).unwrap();
    let mut entries = [nvgpu_dbg_gpu_get_mappings_entry::default(); 16];
    let mut args = nvgpu_dbg_gpu_get_mappings_args {
        va_hi: 1 << 40,
        ops_buffer: entries.as_mut_ptr() as u64,
        count: 16,
        ..Default::default()
    };
    ask(&machine.sim, dbg.as_fd(), &mut args).unwrap();
    let holds = |e: &nvgpu_dbg_gpu_get_mappings_entry| {
        e.gpu_va <= buffer.va && buffer.va + 0x2000 <= e.gpu_va + e.size
    };
    assert!(entries[..args.count as usize].iter().any(holds));
    let mut word = 0_u32;
    let op = nvgpu_dbg_gpu_va_access_entry {
        gpu_va: buffer.va + 0x1004,
        data: (&raw mut word) as u64,
        size: 4,
        ..Default::default()
    };
    let mut args = nvgpu_dbg_gpu_va_access_args {
        ops_buf: (&raw const op) as u64,
        count: 1,
        cmd: NVGPU_DBG_GPU_IOCTL_ACCESS_GPUVA_CMD_READ as u8,
        ..Default::default()
    };
    ask(&machine.sim, dbg.as_fd(), &mut args).unwrap();
    assert_eq!(word, 0xabcd);
}

#[test]
fn an_argument_that_is_not_memory_of_the_program_is_a_bad_address() {
    let machine = Machine::new();
    let request = <nvgpu_gpu_num_vsms as Ioctl>::REQUEST;
    let ask_at = |arg: *mut std::ffi::c_void| {
        // SAFETY: the request has no pointers inside, and its argument is checked by the machine.
        unsafe { machine.sim.ioctl_at(machine.ctrl.as_fd(), request, arg) }
    };
    let mut args = nvgpu_gpu_num_vsms::default();
    assert_eq!(ask_at((&raw mut args).cast()), Ok(0));
    assert_eq!(args.num_vsms, 4);
    for address in [8_usize, 0x7000_0000_0000, usize::MAX - 63] {
        assert_eq!(ask_at(std::ptr::without_provenance_mut(address)), Err(Errno::EFAULT), "{address:#x}");
    }
    // Memory that can be read and not written, for an answer.
    static ZERO: nvgpu_gpu_num_vsms = nvgpu_gpu_num_vsms { num_vsms: 0, reserved: 0 };
    assert_eq!(ask_at((&raw const ZERO).cast_mut().cast()), Err(Errno::EFAULT));
}
