//! `libnvgpu_sim.so`: the software ga10b for unmodified programs.
//!
//! ```text
//! LD_PRELOAD=libnvgpu_sim.so NVGPU_SIM_VERBOSE=1 ./program
//! ```
//!
//! The library interposes the C library's `open`, `ioctl`, `mmap`, `munmap`, `poll`, `ppoll`,
//! `close` and `access`; pointers that the program passes are read and written by the kernel, so that a bad one
//! is `EFAULT`.
//! Calls on the nodes of the GPU's driver go to a [`ga10b_sim::Sim`] inside the process, which is made when
//! the first node is opened; everything else goes to the kernel. Descriptors of the machine are real ones, so
//! `dup`, `fcntl` and `lseek` need no help. A forked child has no GPU
//! until it executes another program: there, nodes are `ENODEV`, and nothing is left of mappings.
//!
//! Environment: `NVGPU_SIM_ARCH` (`sm_80`, `sm_86`, `sm_87`, `sm_89` or `sm_90`), `NVGPU_SIM_MEMORY` (bytes),
//! `NVGPU_SIM_SMS`, `NVGPU_SIM_CHECK` (`init`, `race`, `sync` or `all`: mistakes of kernels to search for),
//! `NVGPU_SIM_VERBOSE` (kernel-log lines on stderr), `NVGPU_SIM_VISIBLE` (`nvdiag esr --pid`
//! and `nvdiag vamap --pid` of the same user may inspect the device), which [`SimConfig::from_env`] reads;
//! `NVGPU_SIM_TRACE` (each call is reported to `nvdiag trace`, which would not see it otherwise).
//!
//! # Layers
//! ```text
//! 0  kernel mark
//! ```

mod kernel;
mod mark;

use ga10b_sim::{Sim, SimConfig};
use libc::{c_char, c_int, c_ulong, c_void, mode_t, nfds_t, off_t, pollfd, sigset_t, size_t, timespec};
use mark::Mark;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{Sys, TraceMark};
use std::cell::Cell;
use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

static SIM: OnceLock<Option<Arc<Sim>>> = OnceLock::new();

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` for a call of the program; `None` for calls that the machine itself makes, which go to the
/// kernel.
fn from_program<R>(f: impl FnOnce() -> R) -> Option<R> {
    if INSIDE.get() || ga10b_sim::is_gpu_thread() {
        return None;
    }
    INSIDE.set(true);
    let result = f();
    INSIDE.set(false);
    Some(result)
}

/// The machine, if the program has opened a node of it.
fn machine() -> Option<&'static Arc<Sim>> {
    SIM.get().and_then(Option::as_ref)
}

fn start() -> Option<&'static Arc<Sim>> {
    SIM.get_or_init(|| {
        let config = SimConfig::from_env().inspect_err(|bad| eprintln!("libnvgpu_sim.so: {bad}")).ok()?;
        Sim::try_new(config).inspect_err(|errno| eprintln!("libnvgpu_sim.so: cannot start: {errno}")).ok()
    })
    .as_ref()
}

/// The machine, if `fd` is one of its descriptors.
fn owner(fd: c_int) -> Option<&'static Arc<Sim>> {
    let sim = machine()?;
    let fd = borrow(fd)?;
    sim.owns(fd).then_some(sim)
}

fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: the program owns the descriptor for the time of its call; the machine finds out when it is not
    // open.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// What a descriptor of the machine is open on, as `/proc/self/fd` shows it on a real one.
fn name(sim: &Sim, fd: BorrowedFd<'_>) -> String {
    sim.descriptor_name(fd).unwrap_or_else(|| "/dmabuf:".to_owned())
}

/// Result of a C function: the value, or -1 and `errno`.
fn answer(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}

/// The path, if it names a node of the machine. Where the program cannot read it, the kernel says so.
///
/// # Safety
/// `path` stays as it is during the call.
unsafe fn node<'a>(path: *const c_char) -> Option<&'a CStr> {
    // The kernel reads the whole path before it looks for the file.
    // SAFETY: the kernel checks the pointer.
    let found = unsafe { kernel::access(path, libc::F_OK) } == 0;
    if !found && matches!(Errno::last(), Errno::EFAULT | Errno::ENAMETOOLONG) {
        return None;
    }
    // SAFETY: the kernel has found the end of the string.
    let path = unsafe { CStr::from_ptr(path) };
    Sim::has_node(path).then_some(path)
}

/// Opens a node of the machine; `None` for any other path.
///
/// # Safety
/// `path` stays as it is during the call.
unsafe fn open_node(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let path = unsafe { node(path) }?;
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
    if unsafe { node(path) }.is_some() {
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
        let sim = machine()?;
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
