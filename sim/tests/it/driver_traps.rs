//! Traps of `docs/traps.md` that no other test is about: mistakes that a real machine does not survive.

use crate::machine::*;
use ga10b_sim::{Consequence, SimConfig};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, MmapAdvise, MsFlags, ProtFlags, madvise, mmap_anonymous, msync};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};
use nvgpu_sys::*;
use std::ffi::c_void;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::ptr::NonNull;

const FLAGS: OFlag = OFlag::O_RDWR;

/// A channel that is bound to nothing.
fn bare_channel(machine: &Machine) -> OwnedFd {
    let mut open = nvgpu_gpu_open_channel_args::default();
    open.set_in_runlist_id(-1);
    ask(&machine.sim, machine.ctrl.as_fd(), &mut open).unwrap();
    take(open.out_channel_fd())
}

/// A debugger session with a channel.
fn session(machine: &Machine, channel: &OwnedFd) -> OwnedFd {
    let dbg = machine.sim.open(c"/dev/nvgpu/igpu0/dbg", FLAGS).unwrap();
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
fn a_debugger_of_a_channel_without_an_address_space_crashes_the_kernel() {
    let machine = Machine::new();
    let channel = bare_channel(&machine);
    let dbg = session(&machine, &channel);
    let mut mappings = nvgpu_dbg_gpu_get_mappings_args { va_hi: 1 << 40, ..Default::default() };
    assert_eq!(ask(&machine.sim, dbg.as_fd(), &mut mappings), Err(Errno::EIO));
    let [(Consequence::Freeze, _)] = recorded(&machine)[..] else { panic!("{:?}", recorded(&machine)) };
}

#[test]
fn disabling_the_debug_mode_without_enabling_it_wraps_a_counter() {
    let machine = Machine::new();
    let channel = machine.channel();
    let dbg = session(&machine, &channel.fd);
    let mode = |mode| {
        let mut args = nvgpu_dbg_gpu_set_ctx_mmu_debug_mode_args { mode, reserved: 0 };
        ask(&machine.sim, dbg.as_fd(), &mut args)
    };
    assert_eq!([mode(1), mode(0)], [Ok(0), Ok(0)]);
    assert_eq!(recorded(&machine), []);
    assert_eq!(mode(0), Err(Errno::EIO));
    assert_eq!(recorded(&machine), [(Consequence::Freeze, "NVGPU_DBG_GPU_IOCTL_SET_CTX_MMU_DEBUG_MODE")]);
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

#[test]
fn calls_that_leak_references_in_the_kernel_are_recorded() {
    let machine = Machine::new();
    let mut open = nvgpu_gpu_open_channel_args::default();
    open.set_in_runlist_id(77);
    assert_eq!(ask(&machine.sim, machine.ctrl.as_fd(), &mut open), Err(Errno::EINVAL));
    let expected = [(Consequence::Leak, "NVGPU_GPU_IOCTL_OPEN_CHANNEL")];
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
    let power = machine.sim.open(c"/dev/nvgpu/igpu0/power", FLAGS).unwrap();
    assert_eq!(nix::unistd::write(&power, b"0"), Err(Errno::EBADF));
}

#[test]
fn freeing_a_descriptor_instead_of_a_handle_closes_it() {
    let machine = Machine::new();
    let buffer = machine.host_buffer(4096);
    // So large a number that nothing else of this process is given it meanwhile.
    // SAFETY: the copy is closed by the request that this test is about.
    let at = unsafe { nix::libc::fcntl(buffer.fd.as_raw_fd(), nix::libc::F_DUPFD_CLOEXEC, 1000) };
    assert!(at >= 1000, "{}", Errno::last());
    nvmap_free(&machine.sim, &machine.nvmap, at as u32);
    // SAFETY: asks about a number.
    assert_eq!(unsafe { nix::libc::fcntl(at, nix::libc::F_GETFD) }, -1);
    assert_eq!(Errno::last(), Errno::EBADF);
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
                machine.sim.open(c"/dev/nvmap", FLAGS).err() != Some(Errno::ENODEV),
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
