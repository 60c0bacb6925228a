//! `ioctl` and `poll`.

use crate::kernel;
use crate::machine::{answer, borrow, from_program, machine, name, owner, warn_foreign, warn_fork};
use crate::mark::Mark;
use ga10b_capture::TraceMark;
use libc::{c_int, c_ulong, c_void, nfds_t, pollfd, sigset_t, size_t, timespec};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::Request;
use std::os::fd::AsRawFd;

// Without the types that `libc` gives them, which differ by the C library.
const FIONBIO: u64 = 0x5421;
const FIONCLEX: u64 = 0x5450;
const FIOCLEX: u64 = 0x5451;
const FIOASYNC: u64 = 0x5452;

/// `ioctl(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    let served = from_program(|| {
        let sim = owner(fd)?;
        let request = request as u32;
        let fd = borrow(fd)?;
        // The kernel serves these itself, and calls no driver.
        let flag = match u64::from(request) {
            FIOCLEX | FIONCLEX => return None,
            FIONBIO => Some(OFlag::O_NONBLOCK),
            FIOASYNC => Some(OFlag::O_ASYNC),
            _ => None,
        };
        if let Some(flag) = flag.filter(|_| sim.is_here()) {
            return Some(answer(sim.switch_flag(fd, flag, arg.cast())?.map(|()| 0)));
        }
        let about = TraceMark {
            kind: TraceMark::IOCTL,
            fd: fd.as_raw_fd(),
            request,
            argument: arg.expose_provenance() as u64,
            ..TraceMark::default()
        };
        let mark = Mark::begin(about, || name(sim, fd));
        warn_fork(sim);
        // SAFETY: the program's own promise.
        Some(answer(mark.end(unsafe { sim.ioctl_at(fd, request, arg) })))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { elsewhere(fd, request, arg) })
}

/// `ioctl(2)` for files that are not of this process' machine. A pipe that gets a request of the driver is a
/// node that another process opened.
///
/// # Safety
/// As for the system call.
unsafe fn elsewhere(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    // SAFETY: the caller's promise.
    let result = unsafe { kernel::ioctl(fd, request, arg) };
    // Requests without an argument have the numbers of a terminal's.
    if result < 0
        && Errno::last() == Errno::ENOTTY
        && let Some(known) = Request::find(request as u32).filter(|known| known.size > 0)
    {
        let of_node = from_program(|| {
            let status = nix::sys::stat::fstat(borrow(fd)?).ok()?;
            (status.st_mode & libc::S_IFMT == libc::S_IFIFO).then(|| warn_foreign(known.name))
        });
        let errno = if of_node.flatten().is_some() { Errno::ENODEV } else { Errno::ENOTTY };
        errno.set();
    }
    result
}

/// `poll(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: nfds_t, timeout: c_int) -> c_int {
    let limit = kernel::limit(timeout);
    let limit = limit.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the caller's promise; the limit outlives the call.
    unsafe { ppoll(fds, count, limit, std::ptr::null()) }
}

/// `__poll_chk`, which fortified programs call.
///
/// # Safety
/// As for `poll`; `_room` bytes are at `fds`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __poll_chk(fds: *mut pollfd, count: nfds_t, timeout: c_int, _room: size_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { poll(fds, count, timeout) }
}

/// `ppoll(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ppoll(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
) -> c_int {
    let served = from_program(|| {
        let sim = machine().filter(|sim| sim.is_here())?;
        // SAFETY: the caller's promise.
        Some(answer(unsafe { sim.ppoll_at(fds, count as usize, timeout, mask.cast()) }))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::ppoll(fds, count, timeout, mask) })
}

/// `__ppoll_chk`, which fortified programs call.
///
/// # Safety
/// As for `ppoll`; `_room` bytes are at `fds`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __ppoll_chk(
    fds: *mut pollfd,
    count: nfds_t,
    timeout: *const timespec,
    mask: *const sigset_t,
    _room: size_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { ppoll(fds, count, timeout, mask) }
}
