//! `libnvgpu_sim.so`: the software ga10b for unmodified programs.
//!
//! ```text
//! LD_PRELOAD=libnvgpu_sim.so NVGPU_SIM_VERBOSE=1 ./program
//! ```
//!
//! The library interposes the C library's `open`, `ioctl`, `mmap`, `munmap`, `poll`, `close` and `access`.
//! Calls on the nodes of the GPU's driver go to a [`ga10b_sim::Sim`] inside the process, which is made when
//! the first node is opened; everything else goes to the kernel. Descriptors of the machine are real ones, so
//! `dup`, `fcntl` and `lseek` need no help. A forked child has no GPU.
//!
//! Environment: `NVGPU_SIM_ARCH` (`sm_80`, `sm_86`, `sm_87`, `sm_89` or `sm_90`), `NVGPU_SIM_MEMORY` (bytes),
//! `NVGPU_SIM_SMS`, `NVGPU_SIM_CHECK` (`memory`, `init`, `race`, `sync` or `all`: mistakes of kernels to search
//! for; the functions of `include/nvgpu_sim.h` say what lies where), `NVGPU_SIM_VERBOSE` (kernel-log lines on stderr), `NVGPU_SIM_VISIBLE` (`nvdiag esr --pid`
//! and `nvdiag vamap --pid` of the same user may inspect the device), which
//! [`SimConfig::from_env`](ga10b_sim::SimConfig::from_env) reads;
//! `NVGPU_SIM_TRACE` (each call is reported to `nvdiag trace`, which would not see it otherwise).
//!
//! # Layers
//! ```text
//! 0  kernel machine mark
//! 1  notes
//! ```

mod kernel;
mod machine;
mod mark;
mod notes;

use ga10b_sim::Sim;
use libc::{c_char, c_int, c_uint, c_ulong, c_void, mode_t, off_t, pollfd, size_t};
use machine::{answer, borrow, from_program, machine, name, owner, start};
use mark::Mark;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{Sys, TraceMark};
use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;

/// Opens a node of the machine; `None` for any other path.
///
/// # Safety
/// `path` is null or a C string.
unsafe fn open_node(path: *const c_char, flags: c_int) -> Option<c_int> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let path = unsafe { CStr::from_ptr(path) };
    if !Sim::has_node(path) {
        return None;
    }
    from_program(|| {
        let sim = start().ok_or(Errno::ENODEV);
        let about = TraceMark { kind: TraceMark::OPEN, flags: flags.cast_unsigned(), ..TraceMark::default() };
        let mark = Mark::begin(about, || path.to_string_lossy().into_owned());
        let opened = sim.and_then(|sim| sim.open(path, OFlag::from_bits_truncate(flags)));
        answer(mark.end(opened.map(IntoRawFd::into_raw_fd)))
    })
}

/// `open(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_node(path, flags).unwrap_or_else(|| kernel::openat(libc::AT_FDCWD, path, flags, mode)) }
}

/// `open64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, mode) }
}

/// `__open_2`, which fortified programs call.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, 0) }
}

/// `__open64_2`, which fortified programs call.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open(path, flags, 0) }
}

/// `openat(2)`: nodes are named by absolute paths, so the directory does not matter for them.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { open_node(path, flags).unwrap_or_else(|| kernel::openat(directory, path, flags, mode)) }
}

/// `openat64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn openat64(
    directory: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the caller's promise.
    unsafe { openat(directory, path, flags, mode) }
}

/// `access(2)`: nodes of the machine exist and may be read and written.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's promise.
    if !path.is_null() && Sim::has_node(unsafe { CStr::from_ptr(path) }) {
        return 0;
    }
    // SAFETY: the caller's promise.
    unsafe { kernel::access(path, mode) }
}

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
        let about = TraceMark {
            kind: TraceMark::IOCTL,
            fd: fd.as_raw_fd(),
            request,
            argument: arg.expose_provenance() as u64,
            ..TraceMark::default()
        };
        let mark = Mark::begin(about, || name(sim, fd));
        // SAFETY: the program's own promise.
        Some(answer(mark.end(unsafe { sim.ioctl_at(fd, request, arg) })))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::ioctl(fd, request, arg) })
}

/// `mmap(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    let served = from_program(|| {
        // Buffers are memfds: the kernel maps them where the program wants them.
        if flags & libc::MAP_FIXED != 0 {
            return None;
        }
        let sim = owner(fd)?;
        let fd = borrow(fd)?;
        let Some(len) = NonZeroUsize::new(len) else {
            Errno::EINVAL.set();
            return Some(libc::MAP_FAILED);
        };
        let about = TraceMark {
            kind: TraceMark::MMAP,
            fd: fd.as_raw_fd(),
            request: prot.cast_unsigned(),
            flags: flags.cast_unsigned(),
            argument: len.get() as u64,
            result: offset,
            ..TraceMark::default()
        };
        let mark = Mark::begin(about, || name(sim, fd));
        let (prot, flags) = (ProtFlags::from_bits_retain(prot), MapFlags::from_bits_retain(flags));
        // SAFETY: the program's own promise.
        let mapped = unsafe { sim.mmap(len, prot, flags, fd, offset) };
        let mapped = mark.end(mapped);
        Some(mapped.map_or_else(
            |errno| {
                errno.set();
                libc::MAP_FAILED
            },
            NonNull::as_ptr,
        ))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::mmap(addr, len, prot, flags, fd, offset) })
}

/// `mmap64`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    // SAFETY: the caller's promise.
    unsafe { mmap(addr, len, prot, flags, fd, offset) }
}

/// `munmap(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn munmap(addr: *mut c_void, len: size_t) -> c_int {
    let served = from_program(|| {
        let sim = machine()?;
        let addr = NonNull::new(addr)?;
        // SAFETY: the program's own promise.
        Some(answer(unsafe { sim.munmap(addr, len) }.map(|()| 0)))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::munmap(addr, len) })
}

/// `poll(2)`.
///
/// # Safety
/// As for the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn poll(fds: *mut pollfd, count: libc::nfds_t, timeout: c_int) -> c_int {
    let served = from_program(|| {
        let sim = machine()?;
        if fds.is_null() {
            return None;
        }
        // SAFETY: the program passes `count` entries; `PollFd` is a transparent wrapper of `pollfd`.
        let fds = unsafe { std::slice::from_raw_parts_mut(fds.cast::<PollFd<'_>>(), count as usize) };
        // Negative descriptors are legal here and mean nothing; the machine's own are never negative.
        // SAFETY: as above.
        let raw = unsafe { std::slice::from_raw_parts(fds.as_ptr().cast::<pollfd>(), fds.len()) };
        if raw.iter().any(|fd| fd.fd < 0) || !fds.iter().any(|fd| sim.owns(fd.as_fd())) {
            return None;
        }
        Some(answer(sim.poll(fds, PollTimeout::try_from(timeout).unwrap_or(PollTimeout::NONE))))
    });
    // SAFETY: the caller's promise.
    served.flatten().unwrap_or_else(|| unsafe { kernel::poll(fds, count, timeout) })
}

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

/// Checked here, because a mistake in it would only show as a crash of some program.
const _: () = assert!(size_of::<PollFd<'_>>() == size_of::<pollfd>() && size_of::<c_uint>() == 4);
