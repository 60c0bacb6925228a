//! The nodes for tools: `sched`, `prof-dev` and `ctxsw` answer as the driver does.

use crate::machine::*;
use ga10b_sim::Consequence;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::*;
use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Bytes of a set of groups.
const SET: u32 = 64;

fn open(machine: &Machine, path: &CStr) -> OwnedFd {
    machine.sim.open(path, OFlag::O_RDWR).unwrap()
}

fn sched(machine: &Machine) -> OwnedFd {
    open(machine, c"/dev/nvgpu/igpu0/sched")
}

/// The groups that a request of the form of `GET_TSGS` reports, in the order of their numbers.
fn groups<A: Ioctl>(
    machine: &Machine,
    sched: &OwnedFd,
    wrap: fn(nvgpu_sched_get_tsgs_args) -> A,
) -> Vec<u32> {
    let mut set = [0_u64; SET as usize / 8];
    let mut args =
        wrap(nvgpu_sched_get_tsgs_args { size: SET, buffer: set.as_mut_ptr() as u64, ..Default::default() });
    ask(&machine.sim, sched.as_fd(), &mut args).unwrap();
    (0..SET * 8).filter(|id| set[*id as usize / 64] >> (id % 64) & 1 == 1).collect()
}

fn all(machine: &Machine, sched: &OwnedFd) -> Vec<u32> {
    groups(machine, sched, NvgpuSchedIoctlGetTsgs)
}

fn recent(machine: &Machine, sched: &OwnedFd) -> Vec<u32> {
    groups(machine, sched, NvgpuSchedIoctlGetRecentTsgs)
}

#[test]
fn a_set_of_groups_is_answered_with_its_size_where_it_has_no_room() {
    let machine = Machine::new();
    let sched = sched(&machine);
    let mut set = [0_u64; 32];
    for (size, buffer, expected) in [
        (0, 0, (Err(Errno::ENOSPC), SET)),
        (SET - 1, set.as_mut_ptr() as u64, (Err(Errno::ENOSPC), SET)),
        (4 * SET, 0, (Err(Errno::ENOSPC), SET)),
        (4 * SET, set.as_mut_ptr() as u64, (Ok(0), 4 * SET)),
        (SET, 8, (Err(Errno::EFAULT), SET)),
    ] {
        let mut args =
            NvgpuSchedIoctlGetTsgs(nvgpu_sched_get_tsgs_args { size, buffer, ..Default::default() });
        let answer = ask(&machine.sim, sched.as_fd(), &mut args);
        assert_eq!((answer, args.0.size), expected, "size {size}, buffer {buffer:#x}");
    }
}

#[test]
fn recent_groups_are_those_that_were_not_reported_since_the_node_was_opened() {
    let machine = Machine::new();
    let _first = machine.tsg();
    let second = machine.tsg();
    let tool = sched(&machine);
    let before = all(&machine, &tool);
    assert_eq!(before.len(), 2);
    assert_eq!(recent(&machine, &tool), before);
    assert_eq!(recent(&machine, &tool), [0_u32; 0]);

    let _third = machine.tsg();
    let added = recent(&machine, &tool);
    assert!(added.len() == 1 && !before.contains(&added[0]), "{added:?} {before:?}");
    // A number that is used again is of another group.
    machine.sim.close(second).unwrap();
    let _fourth = machine.tsg();
    assert_eq!(recent(&machine, &tool).len(), 1);

    machine.sim.close(tool).unwrap();
    let tool = sched(&machine);
    assert_eq!(recent(&machine, &tool), all(&machine, &tool));
}

#[test]
fn a_group_lives_as_long_as_a_channel_or_a_tool_holds_it() {
    let machine = Machine::new();
    let tool = sched(&machine);
    let Channel { fd: channel, tsg, .. } = machine.channel();
    machine.sim.close(tsg).unwrap();
    let held = all(&machine, &tool);
    assert_eq!(held.len(), 1, "the channel holds it");

    let group = nvgpu_sched_tsg_refcount_args { tsgid: held[0] };
    let get = || ask(&machine.sim, tool.as_fd(), &mut NvgpuSchedIoctlGetTsg(group));
    let put = || ask(&machine.sim, tool.as_fd(), &mut NvgpuSchedIoctlPutTsg(group));
    assert_eq!([put(), get(), get()], [Err(Errno::ENXIO), Ok(0), Err(Errno::ENXIO)]);
    machine.sim.close(channel).unwrap();
    assert_eq!(all(&machine, &tool), held, "the tool holds it");
    assert_eq!(put(), Ok(0));
    assert_eq!(all(&machine, &tool), [0_u32; 0]);
    assert_eq!([get(), put()], [Err(Errno::ENXIO); 2]);
}

#[test]
fn context_switch_traces_have_one_reader() {
    let machine = Machine::new();
    let path = c"/dev/nvgpu/igpu0/ctxsw";
    let first = open(&machine, path);
    assert_eq!(machine.sim.open(path, OFlag::O_RDWR).unwrap_err(), Errno::EBUSY);
    machine.sim.close(first).unwrap();
    let _second = open(&machine, path);
}

const HWPM: u32 = NVGPU_PROFILER_PM_RESOURCE_ARG_HWPM_LEGACY;
const SMPC: u32 = NVGPU_PROFILER_PM_RESOURCE_ARG_SMPC;
const PC_SAMPLER: u32 = NVGPU_PROFILER_PM_RESOURCE_ARG_PC_SAMPLER;
const IN_CONTEXT: u32 = NVGPU_PROFILER_RESERVE_PM_RESOURCE_ARG_FLAG_CTXSW;

/// An open of `prof-dev`.
struct Profiler<'a> {
    machine: &'a Machine,
    fd: OwnedFd,
}

impl<'a> Profiler<'a> {
    fn new(machine: &'a Machine) -> Self {
        Self { machine, fd: open(machine, c"/dev/nvgpu/igpu0/prof-dev") }
    }

    fn of(machine: &'a Machine, tsg_fd: i32) -> Self {
        let profiler = Self::new(machine);
        assert_eq!(profiler.bind_context(tsg_fd), Ok(0));
        profiler
    }

    fn bind_context(&self, tsg_fd: i32) -> Result<i32, Errno> {
        let mut args = nvgpu_profiler_bind_context_args { tsg_fd, reserved: 0 };
        ask(&self.machine.sim, self.fd.as_fd(), &mut args)
    }

    fn reserve(&self, resource: u32, flags: u32) -> Result<i32, Errno> {
        let mut args = nvgpu_profiler_reserve_pm_resource_args { resource, flags, ..Default::default() };
        ask(&self.machine.sim, self.fd.as_fd(), &mut args)
    }

    fn release(&self, resource: u32) -> Result<i32, Errno> {
        let mut args = nvgpu_profiler_release_pm_resource_args { resource, reserved: 0 };
        ask(&self.machine.sim, self.fd.as_fd(), &mut args)
    }

    fn bare(&self, request: u32) -> Result<i32, Errno> {
        ask_bare(&self.machine.sim, self.fd.as_fd(), request)
    }

    fn bind(&self) -> Result<i32, Errno> {
        self.bare(NVGPU_PROFILER_IOCTL_BIND_PM_RESOURCES)
    }

    fn unbind(&self) -> Result<i32, Errno> {
        self.bare(NVGPU_PROFILER_IOCTL_UNBIND_PM_RESOURCES)
    }

    fn unbind_context(&self) -> Result<i32, Errno> {
        self.bare(NVGPU_PROFILER_IOCTL_UNBIND_CONTEXT)
    }
}

#[test]
fn counters_are_reserved_in_a_context_once_and_by_one_profiler() {
    let machine = Machine::new();
    let first = Profiler::new(&machine);
    assert_eq!(first.reserve(HWPM, 0), Err(Errno::EINVAL), "no context");
    assert_eq!([first.bind_context(-7), first.bind_context(-1)], [Ok(0), Err(Errno::EINVAL)]);
    let unknown = NVGPU_PROFILER_PM_RESOURCE_ARG_HES_CWD;
    assert_eq!([first.reserve(unknown, 0), first.release(unknown)], [Err(Errno::EINVAL); 2]);
    // Resources that are part of a context take a group's.
    assert_eq!([first.reserve(SMPC, IN_CONTEXT), first.reserve(PC_SAMPLER, 0)], [Err(Errno::EINVAL); 2]);
    assert_eq!([first.reserve(SMPC, 0), first.reserve(SMPC, 0)], [Ok(0), Err(Errno::EEXIST)]);

    let second = Profiler::of(&machine, -1);
    assert_eq!([second.reserve(SMPC, 0), second.reserve(HWPM, 0)], [Err(Errno::EBUSY), Ok(0)]);
    assert_eq!(first.unbind_context(), Ok(0));
    assert_eq!(second.reserve(SMPC, 0), Err(Errno::EBUSY), "reservations outlast the context");
    machine.sim.close(first.fd).unwrap();
    assert_eq!(second.reserve(SMPC, 0), Ok(0));
}

#[test]
fn bound_counters_are_unbound_by_what_takes_them_away() {
    let machine = Machine::new();
    let profiler = Profiler::of(&machine, -1);
    assert_eq!([profiler.bind(), profiler.unbind()], [Err(Errno::EINVAL); 2]);
    assert_eq!(
        [profiler.reserve(HWPM, 0), profiler.bind(), profiler.bind()],
        [Ok(0), Ok(0), Err(Errno::EINVAL)]
    );
    assert_eq!(profiler.reserve(SMPC, 0), Err(Errno::EEXIST), "bound");
    assert_eq!([profiler.release(HWPM), profiler.unbind()], [Ok(0), Err(Errno::EINVAL)]);
    assert_eq!([profiler.reserve(SMPC, 0), profiler.bind(), profiler.unbind_context()], [Ok(0); 3]);
    assert_eq!([profiler.unbind(), profiler.unbind_context()], [Err(Errno::EINVAL); 2]);
}

#[test]
fn counters_of_a_group_need_its_context_and_end_with_it() {
    let machine = Machine::new();
    let empty = machine.tsg();
    let profiler = Profiler::of(&machine, empty.as_raw_fd());
    assert_eq!(Profiler::new(&machine).bind_context(empty.as_raw_fd()), Err(Errno::EINVAL), "taken");
    assert_eq!(
        Profiler::new(&machine).bind_context(machine.ctrl.as_raw_fd()),
        Err(Errno::EINVAL),
        "no group"
    );
    assert_eq!([profiler.reserve(SMPC, IN_CONTEXT), profiler.bind()], [Ok(0), Err(Errno::EFAULT)]);
    machine.sim.close(empty).unwrap();
    assert_eq!(profiler.release(SMPC), Err(Errno::EINVAL), "the group took it");

    let channel = machine.channel();
    assert_eq!(profiler.bind_context(channel.tsg.as_raw_fd()), Ok(0));
    assert_eq!([profiler.reserve(SMPC, IN_CONTEXT), profiler.bind(), profiler.unbind()], [Ok(0); 3]);
}

#[test]
fn binding_counters_of_a_context_that_is_gone_crashes_the_kernel() {
    let machine = Machine::new();
    let channel = machine.channel();
    let profiler = Profiler::of(&machine, channel.tsg.as_raw_fd());
    assert_eq!([profiler.reserve(HWPM, IN_CONTEXT), profiler.unbind_context()], [Ok(0); 2]);
    assert_eq!(profiler.bind(), Err(Errno::EIO));
    let found = machine.sim.violations();
    let [trap] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(trap.consequence, Consequence::Freeze);
    assert!(trap.text.contains("release the resource before the context"), "{trap}");
}
