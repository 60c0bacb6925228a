//! Device nodes: which there are, and which commands a descriptor takes.

use crate::driver::descriptor::FileKey;
use crate::driver::files::Object;
use crate::driver::log::DEVICE;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::Reply;
use crate::driver::nodes::calls::{self, Status};
use crate::driver::nodes::{address_space, channel, ctrl, dbg, display, nvmap, paths, profiler, sched, tsg};
use crate::driver::session::control::CtrlFile;
use crate::driver::session::debugger::DebugSession;
use crate::driver::session::profiler::ProfilerFile;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, OFlag, fcntl};
use nvgpu_sys as abi;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// `DMA_BUF_IOCTL_SYNC`: cache maintenance, which this machine does not need.
const DMA_BUF_IOCTL_SYNC: u32 = 0x4008_6200;

/// Requests that a GPU without power serves without getting any: their functions take no power reference
/// (`gk20a_busy`; os/linux/ioctl_channel.c, ioctl_tsg.c, ioctl_ctrl.c, r36.4.3). `FLUSH_L2` is the one that looks:
/// a GPU that is off has nothing to flush (`nvgpu_gpu_ioctl_l2_fb_ops`).
const WITHOUT_POWER: [u32; 23] = [
    abi::NVGPU_IOCTL_CHANNEL_SET_NVMAP_FD,
    abi::NVGPU_IOCTL_CHANNEL_SET_TIMEOUT,
    abi::NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX,
    abi::NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT,
    abi::NVGPU_IOCTL_CHANNEL_WDT,
    abi::NVGPU_IOCTL_TSG_EVENT_ID_CTRL,
    abi::NVGPU_IOCTL_TSG_GET_TIMESLICE,
    abi::NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE,
    abi::NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT,
    abi::NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT,
    abi::NVGPU_GPU_IOCTL_ZCULL_GET_CTX_SIZE,
    abi::NVGPU_GPU_IOCTL_ZCULL_GET_INFO,
    abi::NVGPU_GPU_IOCTL_ZBC_QUERY_TABLE,
    abi::NVGPU_GPU_IOCTL_GET_TPC_MASKS,
    abi::NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS,
    abi::NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP,
    abi::NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP,
    abi::NVGPU_GPU_IOCTL_FLUSH_L2,
    abi::NVGPU_GPU_IOCTL_NUM_VSMS,
    abi::NVGPU_GPU_IOCTL_VSMS_MAPPING,
    abi::NVGPU_GPU_IOCTL_GET_ENGINE_INFO,
    abi::NVGPU_GPU_IOCTL_REGISTER_BUFFER,
    abi::NVGPU_GPU_IOCTL_GET_BUFFER_INFO,
];

/// Opens a device node by path, with the flags of `open(2)`.
///
/// # Errors
/// `ENOENT` for a path that is no node of this machine; `EEXIST` and `ENOTDIR` for flags that ask for a new file
/// or a folder; `EINVAL` for nodes that ga10b refuses to open.
pub(crate) fn open(machine: &Arc<Machine>, path: &str, flags: OFlag) -> Result<OwnedFd, Errno> {
    let node = paths::node(path, &machine.config.what_if).ok_or(Errno::ENOENT)?;
    if flags.contains(OFlag::O_CREAT | OFlag::O_EXCL) {
        return Err(Errno::EEXIST);
    }
    if flags.contains(OFlag::O_DIRECTORY) {
        return Err(Errno::ENOTDIR);
    }
    machine.collect_crowd();
    let fd = open_node(machine, node, path)?;
    let key = FileKey::of(fd.as_fd())?;
    let used_up = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOCTTY | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
    machine.driver().files.set_flags(key, flags - used_up);
    if !flags.contains(OFlag::O_CLOEXEC) {
        fcntl(&fd, FcntlArg::F_SETFD(FdFlag::empty()))?;
    }
    Ok(fd)
}

fn open_node(machine: &Arc<Machine>, node: &str, path: &str) -> Result<OwnedFd, Errno> {
    let mut driver = machine.driver();
    match node {
        "ctrl" => {
            driver.instances += 1;
            let ctrl = Object::Ctrl(Arc::new(CtrlFile::new(driver.instances)));
            driver.files.open(ctrl, |_| path.to_owned())
        }
        // The node's default has big pages, which ga10b does not offer; contexts of the profiler are switched
        // off.
        "as" | "prof-ctx" => Err(Errno::EINVAL),
        "channel" => {
            let channel = Object::Channel(channel::open(machine, None)?);
            driver.files.open(channel, |n| format!("nvhost-{DEVICE}-fd{n}"))
        }
        "tsg" => {
            let tsg = tsg::open(machine)?;
            driver.add_group(&tsg);
            driver.files.open(Object::Tsg(tsg), |n| format!("nvgpu-ga10b-tsg{n}"))
        }
        "dbg" | "prof" => {
            let session = Object::Debug(Arc::new(DebugSession::new(node == "prof")));
            driver.files.open(session, |_| path.to_owned())
        }
        "prof-dev" => {
            driver.files.open(Object::Profiler(Arc::new(ProfilerFile::default())), |_| path.to_owned())
        }
        "sched" => {
            if driver.files.any(|o| matches!(o, Object::Sched)) {
                return Err(Errno::EBUSY);
            }
            driver.files.open(Object::Sched, |_| path.to_owned())
        }
        "ctxsw" => {
            if driver.files.any(|o| matches!(o, Object::ContextSwitchTrace)) {
                return Err(Errno::EBUSY);
            }
            driver.files.open(Object::ContextSwitchTrace, |_| path.to_owned())
        }
        "nvmap" => driver.files.open(Object::NvMap, |_| path.to_owned()),
        "nvidiactl" => driver.files.open(Object::Display, |_| path.to_owned()),
        // `power`, `nvsched`, `nvsched_ctrl_fifo`, `host1x-fence`.
        _ => driver.files.open(Object::Other, |_| path.to_owned()),
    }
}

/// Refuses the requests that the table has as refused or absent.
fn check_served(machine: &Machine, request: u32) -> Result<(), Errno> {
    if machine.unknown_requests.contains(&request) {
        return Err(Errno::ENOTTY);
    }
    match calls::status(request) {
        Some(Status::Refused(errno)) => Err(errno),
        Some(Status::Absent) => {
            machine.violations.record_absent(abi::Request::find(request).map_or("a request", |r| r.name));
            Err(Errno::ENOTTY)
        }
        Some(Status::Modelled) | None => Ok(()),
    }
}

/// Serves an ioctl.
///
/// # Errors
/// The driver's errno.
pub(crate) fn ioctl(machine: &Arc<Machine>, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Reply {
    let Some(object) = machine.object(fd)? else {
        if machine.buffer_facts(fd).is_some() && request == DMA_BUF_IOCTL_SYNC {
            return Ok(0);
        }
        return Err(Errno::ENOTTY);
    };
    let (magic, last, max) = match &object {
        Object::Ctrl(_) => (b'G', abi::NVGPU_GPU_IOCTL_LAST, abi::NVGPU_GPU_IOCTL_MAX_ARG_SIZE),
        Object::AddressSpace(_) => (b'A', abi::NVGPU_AS_IOCTL_LAST, abi::NVGPU_AS_IOCTL_MAX_ARG_SIZE),
        Object::Tsg(_) => (b'T', abi::NVGPU_TSG_IOCTL_LAST, abi::NVGPU_TSG_IOCTL_MAX_ARG_SIZE),
        Object::Channel(_) => (b'H', abi::NVGPU_IOCTL_CHANNEL_LAST, abi::NVGPU_IOCTL_CHANNEL_MAX_ARG_SIZE),
        Object::Debug(_) => (b'D', abi::NVGPU_DBG_GPU_IOCTL_LAST, abi::NVGPU_DBG_GPU_IOCTL_MAX_ARG_SIZE),
        Object::Profiler(_) => (b'P', abi::NVGPU_PROFILER_IOCTL_LAST, abi::NVGPU_PROFILER_IOCTL_MAX_ARG_SIZE),
        Object::Sched => (b'S', abi::NVGPU_SCHED_IOCTL_LAST, abi::NVGPU_SCHED_IOCTL_MAX_ARG_SIZE),
        Object::ContextSwitchTrace => {
            (b'C', abi::NVGPU_CTXSW_IOCTL_LAST, abi::NVGPU_CTXSW_IOCTL_MAX_ARG_SIZE)
        }
        Object::NvMap => {
            check_served(machine, request)?;
            return nvmap::ioctl(machine, request, arg);
        }
        Object::Display => return display::ioctl(request, arg),
        Object::Event | Object::Other => return Err(Errno::ENOTTY),
    };
    let (number, size) = (request & 0xff, request >> 16 & 0x3fff);
    if request >> 8 & 0xff != u32::from(magic) || number == 0 || number > last || size > max {
        return Err(Errno::EINVAL);
    }
    check_served(machine, request)?;
    if !WITHOUT_POWER.contains(&request) {
        machine.power_on();
    }
    let size = size as usize;
    if arg.len() < size {
        return Err(Errno::EFAULT);
    }
    // The driver works on a copy: after an error the caller's bytes are as they were. It has only zeros when
    // the request's number has no argument.
    let takes_argument = request >> 30 & 1 != 0;
    let mut copy = if takes_argument { arg[..size].to_vec() } else { vec![0; size] };
    let bytes = copy.as_mut_slice();
    let reply = match &object {
        Object::Ctrl(file) => ctrl::ioctl(machine, file, request, bytes),
        Object::AddressSpace(space) => address_space::ioctl(machine, space, request, bytes),
        Object::Tsg(group) => tsg::ioctl(machine, group, request, bytes),
        Object::Channel(channel) => channel::ioctl(machine, channel, request, bytes),
        Object::Debug(session) => dbg::ioctl(machine, session, request, bytes),
        Object::Profiler(file) => profiler::ioctl(machine, file, request, bytes),
        Object::Sched => sched::ioctl(machine, request, bytes),
        _ => Err(Errno::ENOTTY),
    };
    let copies_on_error = match &object {
        Object::Sched => reply == Err(Errno::ENOSPC),
        Object::AddressSpace(_) => request == abi::NVGPU_AS_IOCTL_REMAP,
        _ => false,
    };
    if request >> 31 != 0 && (reply == Ok(0) || copies_on_error) {
        arg[..size].copy_from_slice(&copy);
    }
    reply
}

/// Name of the inode of a descriptor, as `/proc/<pid>/fd` shows it on the real machine.
pub(crate) fn name(machine: &Machine, fd: BorrowedFd<'_>) -> Option<String> {
    let key = FileKey::of(fd).ok()?;
    machine.driver().files.name(key).map(str::to_owned)
}
