//! `close`, `dup2`, `close_range`, `fcntl` and `epoll_ctl`.

use crate::kernel;
use crate::machine::{answer, borrow, from_program, machine, name, owner, owner_here};
use crate::mark::Mark;
use crate::original::Original;
use ga10b_capture::TraceMark;
use ga10b_sim::Waiting;
use libc::{EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLLET, EPOLLIN, EPOLLPRI, c_int, c_uint, c_void, epoll_event};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::Sys;
use std::os::fd::{FromRawFd, OwnedFd};

/// `close(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close(fd: c_int) -> c_int {
    let served = from_program(|| {
        let sim = owner(fd)?;
        let about = TraceMark { kind: TraceMark::CLOSE, fd, ..TraceMark::default() };
        let mark = Mark::begin(about, || borrow(fd).map_or(String::new(), |fd| name(sim, fd)));
        // SAFETY: the program gives the descriptor up with this call.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        Some(answer(mark.end(sim.close(fd).map(|()| 0))))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::close(fd) })
}

/// Runs a call that may close descriptors of the machine, and ends what belonged to them.
fn closing(call: impl FnOnce() -> c_int) -> c_int {
    let result = call();
    if result >= 0 {
        from_program(|| machine().into_iter().for_each(|sim| sim.collect_closed()));
    }
    result
}

/// `dup2(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if from == to {
        // The newer system call refuses what the older one only checks.
        // SAFETY: takes numbers only.
        let flags = unsafe { fcntl(from, libc::F_GETFD, std::ptr::null_mut()) };
        return if flags < 0 { flags } else { to };
    }
    closing(|| kernel::dup3(from, to, 0))
}

/// `dup3(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
    closing(|| kernel::dup3(from, to, flags))
}

/// `close_range(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    closing(|| kernel::close_range(first, last, flags))
}

/// `closefrom(3)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    closing(|| kernel::close_range(first.max(0).cast_unsigned(), c_uint::MAX, 0));
}

/// `fcntl(2)`: the access mode and the status flags of a node are those that it was opened with.
///
/// # Safety
/// As for the C function.
unsafe fn control(next: &Original, fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    let served = from_program(|| match command {
        libc::F_GETFL => Some(owner_here(fd)?.status_flags(borrow(fd)?)?.bits()),
        libc::F_SETFL => {
            let (sim, fd) = (owner_here(fd)?, borrow(fd)?);
            sim.status_flags(fd)?;
            sim.set_status_flags(fd, OFlag::from_bits_retain(argument as c_int));
            Some(0)
        }
        _ => None,
    });
    type Fcntl = unsafe extern "C" fn(c_int, c_int, ...) -> c_int;
    // SAFETY: the C library's function, with the caller's arguments; it takes a third for some commands only.
    let pass = || unsafe { next.get::<Fcntl>().map_or(-1, |next| next(fd, command, argument)) };
    served.flatten().unwrap_or_else(pass)
}

/// `fcntl(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    static NEXT: Original = Original::new(c"fcntl");
    // SAFETY: the caller's promise.
    unsafe { control(&NEXT, fd, command, argument) }
}

/// `fcntl64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
    static NEXT: Original = Original::new(c"fcntl64");
    // SAFETY: the caller's promise.
    unsafe { control(&NEXT, fd, command, argument) }
}

/// `epoll_ctl(2)`: `EPERM` for files that the driver cannot poll; an event is reported once for each post, as
/// `EPOLLIN`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn epoll_ctl(epoll: c_int, what: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
    let waiting = from_program(|| Some(owner_here(fd)?.waiting(borrow(fd)?))).flatten();
    if waiting == Some(Waiting::Refused) {
        return answer(Err(Errno::EPERM));
    }
    // SAFETY: the caller's promise.
    let result = unsafe { kernel::epoll_ctl(epoll, what, fd, event) };
    if result == 0 && waiting == Some(Waiting::Event) && matches!(what, EPOLL_CTL_ADD | EPOLL_CTL_MOD) {
        // SAFETY: the kernel has read the structure.
        let mut asked = unsafe { event.read_unaligned() };
        let wanted = asked.events | EPOLLET as u32;
        asked.events = wanted | if wanted & EPOLLPRI as u32 != 0 { EPOLLIN as u32 } else { 0 };
        // SAFETY: a structure of that type.
        return unsafe { kernel::epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &raw mut asked) };
    }
    result
}
