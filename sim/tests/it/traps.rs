//! Traps of `docs/traps.md` that no other test is about: calls that a real machine does not survive. Each is
//! reported with what would happen and the rule, and stopped or let through as the setting says.

use crate::machine::*;
use ga10b_sim::{Consequence, SimConfig, Traps};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, MmapAdvise, MsFlags, ProtFlags, madvise, mmap_anonymous, msync};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use nvgpu_sys::*;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;

fn with_traps(traps: Traps) -> Machine {
    Machine::with(SimConfig { sm_count: 4, memory: 4 << 30, traps, ..SimConfig::default() })
}

/// Runs `step` on a machine for each setting, and checks the report and the result.
fn check<T: PartialEq + std::fmt::Debug>(
    consequence: Consequence,
    rule: &str,
    step: impl Fn(&Machine) -> T,
    [error, warn]: [T; 2],
) {
    for (traps, expected) in [(Traps::Error, &error), (Traps::Warn, &warn), (Traps::Off, &warn)] {
        let machine = with_traps(traps);
        assert_eq!(&step(&machine), expected, "{traps:?}");
        let found = machine.sim.violations();
        if traps == Traps::Off {
            assert_eq!(found, []);
        } else {
            let [trap] = found.as_slice() else { panic!("{found:?}") };
            assert_eq!(trap.consequence, consequence);
            assert!(trap.text.contains(rule), "{trap}");
        }
    }
}

/// A channel that is bound to nothing.
fn bare_channel(machine: &Machine) -> OwnedFd {
    let mut open = nvgpu_gpu_open_channel_args::default();
    open.set_in_runlist_id(-1);
    ask(&machine.sim, machine.ctrl.as_fd(), &mut open).unwrap();
    take(open.out_channel_fd())
}

/// A debugger's session with that channel.
fn session(machine: &Machine, channel: &OwnedFd) -> OwnedFd {
    let dbg = machine.sim.open(c"/dev/nvgpu/igpu0/dbg", OFlag::O_RDWR).unwrap();
    let mut bind =
        nvgpu_dbg_gpu_bind_channel_args { channel_fd: channel.as_raw_fd() as u32, ..Default::default() };
    ask(&machine.sim, dbg.as_fd(), &mut bind).unwrap();
    dbg
}

/// Returns the recorded violations: the consequence and the call of each.
fn recorded(machine: &Machine) -> Vec<(Consequence, &'static str)> {
    machine.sim.violations().iter().map(|v| (v.consequence, v.call)).collect()
}

#[test]
fn a_debugger_on_a_channel_without_an_address_space() {
    let step = |machine: &Machine| {
        let channel = bare_channel(machine);
        let dbg = session(machine, &channel);
        ask(&machine.sim, dbg.as_fd(), &mut nvgpu_dbg_gpu_get_mappings_args::default())
    };
    check(Consequence::Freeze, "bind one first", step, [Err(Errno::EIO), Err(Errno::EINVAL)]);
    let step = |machine: &Machine| {
        let channel = bare_channel(machine);
        let dbg = session(machine, &channel);
        ask(&machine.sim, dbg.as_fd(), &mut nvgpu_dbg_gpu_va_access_args::default())
    };
    check(Consequence::Freeze, "bind one first", step, [Err(Errno::EIO), Err(Errno::EINVAL)]);
}

#[test]
fn mmu_debug_mode_disabled_more_often_than_enabled() {
    let step = |machine: &Machine| {
        let channel = bare_channel(machine);
        let dbg = session(machine, &channel);
        let set = |mode| {
            let mut args = nvgpu_dbg_gpu_set_ctx_mmu_debug_mode_args { mode, reserved: 0 };
            ask(&machine.sim, dbg.as_fd(), &mut args)
        };
        let (on, off) = (NVGPU_DBG_GPU_CTX_MMU_DEBUG_MODE_ENABLED, NVGPU_DBG_GPU_CTX_MMU_DEBUG_MODE_DISABLED);
        assert_eq!([set(on), set(off)], [Ok(0), Ok(0)]);
        set(off)
    };
    check(Consequence::Freeze, "pair", step, [Err(Errno::EIO), Ok(0)]);
}

#[test]
fn a_ring_as_large_as_one_that_froze_a_machine() {
    let step = |machine: &Machine| {
        let (channel, tsg) = (bare_channel(machine), machine.tsg());
        let number = channel.as_raw_fd();
        let sim = &machine.sim;
        ask(sim, machine.space.as_fd(), &mut nvgpu_as_bind_channel_args { channel_fd: number as u32 })
            .unwrap();
        let mut bind = nvgpu_tsg_bind_channel_ex_args { channel_fd: number, ..Default::default() };
        ask(sim, tsg.as_fd(), &mut bind).unwrap();
        ask(sim, channel.as_fd(), &mut nvgpu_channel_wdt_args { wdt_status: 1, timeout_ms: 0 }).unwrap();
        let (ring, userd) = (machine.host_buffer(3 << 20), machine.host_buffer(4096));
        let mut setup = nvgpu_channel_setup_bind_args {
            num_gpfifo_entries: 1024,
            flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC
                | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
            userd_dmabuf_fd: userd.fd.as_raw_fd(),
            gpfifo_dmabuf_fd: ring.fd.as_raw_fd(),
            ..Default::default()
        };
        ask(sim, channel.as_fd(), &mut setup)
    };
    check(Consequence::MayFreeze, "rounded up to 4 KiB", step, [Ok(0), Ok(0)]);
}

#[test]
fn a_runlist_that_does_not_exist() {
    let step = |machine: &Machine| {
        let mut open = nvgpu_gpu_open_channel_args::default();
        open.set_in_runlist_id(9);
        ask(&machine.sim, machine.ctrl.as_fd(), &mut open)
    };
    check(Consequence::Leak, "which does not exist", step, [Err(Errno::EINVAL); 2]);
}

#[test]
fn the_older_bind_call_that_fails() {
    let step = |machine: &Machine| {
        let (channel, tsg) = (bare_channel(machine), machine.tsg());
        let bind = || {
            let mut bytes = channel.as_raw_fd().to_ne_bytes();
            // SAFETY: no pointers.
            unsafe { machine.sim.ioctl(tsg.as_fd(), NVGPU_TSG_IOCTL_BIND_CHANNEL, &mut bytes) }
        };
        assert_eq!(bind(), Ok(0));
        bind()
    };
    // VEID 0 is taken by the first call, for no address space.
    check(Consequence::Leak, "use BIND_CHANNEL_EX", step, [Err(Errno::ENOSPC); 2]);
}

/// The file that a descriptor's number stands for: its device and inode.
fn file_of(fd: i32) -> nix::Result<(u64, u64)> {
    // SAFETY: whether the number is open is what is asked.
    let stat = nix::sys::stat::fstat(unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) })?;
    Ok((stat.st_dev, stat.st_ino))
}

#[test]
fn a_descriptor_given_where_a_handle_belongs() {
    let step = |machine: &Machine| {
        let buffer = machine.host_buffer(4096);
        let fd = buffer.fd.into_raw_fd();
        let file = file_of(fd).unwrap();
        nvmap_free(&machine.sim, &machine.nvmap, fd as u32);
        // Another test may have got the number since.
        file_of(fd) == Ok(file)
    };
    check(Consequence::Corruption, "bit 31", step, [false; 2]);
}

#[test]
fn a_buffer_mapped_twice_with_other_caching() {
    let step = |machine: &Machine| {
        let buffer = machine.buffer(4096);
        let map = |flags| {
            let mut args = nvgpu_as_map_buffer_ex_args {
                flags,
                compr_kind: -1,
                dmabuf_fd: buffer.fd.as_raw_fd() as u32,
                ..Default::default()
            };
            ask(&machine.sim, machine.space.as_fd(), &mut args)
        };
        assert_eq!(map(0), Ok(0), "the same flags give the same mapping");
        map(NVGPU_AS_MAP_BUFFER_FLAGS_CACHEABLE)
    };
    check(Consequence::Corruption, "one set of flags", step, [Ok(0), Ok(0)]);
}

#[test]
fn a_mapping_that_begins_inside_its_buffer_is_modified() {
    let step = |machine: &Machine| {
        let buffer = machine.host_buffer(3 * 4096);
        let mut area = nvgpu_as_alloc_space_args { pages: 16, page_size: 4096, ..Default::default() };
        ask(&machine.sim, machine.space.as_fd(), &mut area).unwrap();
        let mut map = nvgpu_as_map_buffer_ex_args {
            flags: NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET,
            offset: area.o_a,
            compr_kind: -1,
            dmabuf_fd: buffer.fd.as_raw_fd() as u32,
            buffer_offset: 4096,
            mapping_size: 4096,
            ..Default::default()
        };
        ask(&machine.sim, machine.space.as_fd(), &mut map).unwrap();
        let mut modify = nvgpu_as_mapping_modify_args {
            compr_kind: -1,
            map_address: map.offset,
            buffer_size: 4096,
            ..Default::default()
        };
        ask(&machine.sim, machine.space.as_fd(), &mut modify)
    };
    check(Consequence::Corruption, "begins inside its buffer", step, [Ok(0), Ok(0)]);
}

#[test]
fn a_batch_with_a_mapping_that_has_no_address() {
    let step = |machine: &Machine| {
        let buffer = machine.host_buffer(4096);
        let maps = [nvgpu_as_map_buffer_ex_args {
            compr_kind: -1,
            dmabuf_fd: buffer.fd.as_raw_fd() as u32,
            ..Default::default()
        }];
        let mut args =
            nvgpu_as_map_buffer_batch_args { maps: maps.as_ptr() as u64, num_maps: 1, ..Default::default() };
        ask(&machine.sim, machine.space.as_fd(), &mut args)
    };
    check(Consequence::Leak, "its address", step, [Ok(0), Ok(0)]);
}

#[test]
fn a_request_that_is_not_modelled_is_named() {
    let machine = Machine::new();
    let mut args = NvmapIocVprFloorSize(0);
    assert_eq!(ask(&machine.sim, machine.nvmap.as_fd(), &mut args), Err(Errno::ENOTTY));
    assert_eq!(machine.sim.absent_calls(), ["NVMAP_IOC_VPR_FLOOR_SIZE"]);
}

#[test]
fn a_failed_bind_of_the_older_kind_makes_close_hang() {
    let machine = Machine::new();
    let (channel, tsg) = (bare_channel(&machine), machine.tsg());
    let mut bind = NvgpuTsgIoctlBindChannel(channel.as_raw_fd());
    assert_eq!(ask(&machine.sim, tsg.as_fd(), &mut bind), Ok(0));
    assert_eq!(
        ask(&machine.sim, tsg.as_fd(), &mut bind),
        Err(Errno::ENOSPC),
        "VEID 0 is taken, for no address space"
    );
    machine.sim.close(channel).unwrap();
    let expected = [(Consequence::Leak, "NVGPU_TSG_IOCTL_BIND_CHANNEL"), (Consequence::Hang, "close")];
    assert_eq!(recorded(&machine), expected);
}

/// A channel that is put into a group before it has an address space crashes the kernel later
/// (`gv11b_tsg_update_subctxs`, `nvgpu_gr_subctx_setup_header`).
#[test]
fn a_group_before_an_address_space_crashes_the_kernel() {
    let machine = Machine::new();
    let (channel, tsg) = (bare_channel(&machine), machine.tsg());
    let mut bind = NvgpuTsgIoctlBindChannel(channel.as_raw_fd());
    assert_eq!(ask(&machine.sim, tsg.as_fd(), &mut bind), Ok(0));
    let mut syncpoint = nvgpu_get_user_syncpoint_args::default();
    assert_eq!(ask(&machine.sim, channel.as_fd(), &mut syncpoint), Err(Errno::EIO));
    let mut space = nvgpu_as_bind_channel_args { channel_fd: channel.as_raw_fd() as u32 };
    assert_eq!(ask(&machine.sim, machine.space.as_fd(), &mut space), Ok(0));
    let mut object = nvgpu_alloc_obj_ctx_args { class_num: 0xc7c0, ..Default::default() };
    assert_eq!(ask(&machine.sim, channel.as_fd(), &mut object), Err(Errno::EIO));
    let expected = [
        (Consequence::Freeze, "NVGPU_IOCTL_CHANNEL_GET_USER_SYNCPOINT"),
        (Consequence::Freeze, "NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX"),
    ];
    assert_eq!(recorded(&machine), expected);
}

#[test]
fn the_power_node_takes_no_writes() {
    let machine = Machine::new();
    let power = machine.sim.open(c"/dev/nvgpu/igpu0/power", OFlag::O_RDWR).unwrap();
    assert_eq!(nix::unistd::write(&power, b"0"), Err(Errno::EBADF));
}

/// Memory that the kernel does not give to forks.
fn page_not_for_forks() -> NonNull<u8> {
    let (len, prot) = (NonZeroUsize::new(4096).unwrap(), ProtFlags::PROT_READ);
    // SAFETY: a new mapping, which nothing uses and the end of the process removes.
    let page = unsafe { mmap_anonymous(None, len, prot, MapFlags::MAP_PRIVATE) }.unwrap();
    // SAFETY: changes what a fork inherits.
    unsafe { madvise(page, 4096, MmapAdvise::MADV_DONTFORK) }.unwrap();
    page.cast()
}

#[test]
fn a_fork_has_no_doorbell_no_buffers_and_no_gpu() {
    let machine = Machine::with(SimConfig { visible: true, ..SimConfig::default() });
    let buffer = machine.host_buffer(4096);
    let is_mapped = |at: NonNull<u8>| {
        // SAFETY: asks whether the page is mapped.
        unsafe { msync(at.cast::<c_void>(), 4096, MsFlags::MS_ASYNC) }.is_ok()
    };
    assert!(is_mapped(buffer.cpu) && is_mapped(machine.doorbell));
    let plain = page_not_for_forks();
    // SAFETY: the child makes system calls, and takes no lock of the machine, as this test is to show.
    let child = match unsafe { fork() }.unwrap() {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let mut vsms = nvgpu_gpu_num_vsms::default();
            // An emulator of another CPU may not know MADV_DONTFORK: then a fork has every mapping.
            let has_all = is_mapped(plain);
            let answers = [
                is_mapped(buffer.cpu) != has_all,
                is_mapped(machine.doorbell) != has_all,
                ask(&machine.sim, machine.ctrl.as_fd(), &mut vsms) != Err(Errno::ENODEV),
                machine.sim.open(c"/dev/nvmap", OFlag::O_RDWR).err() != Some(Errno::ENODEV),
                machine.sim.owns(buffer.fd.as_fd()),
                machine.sim.close(buffer.fd).is_err(),
            ];
            drop(machine.sim);
            let wrong = answers.iter().enumerate().map(|(i, wrong)| i32::from(*wrong) << i).sum();
            // SAFETY: ends the child without the exit handlers of the parent.
            unsafe { nix::libc::_exit(wrong) }
        }
    };
    assert_eq!(waitpid(child, None), Ok(WaitStatus::Exited(child, 0)));
    let mut vsms = nvgpu_gpu_num_vsms::default();
    assert_eq!(ask(&machine.sim, machine.ctrl.as_fd(), &mut vsms), Ok(0));
    assert_eq!(recorded(&machine), []);
}
