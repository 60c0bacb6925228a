//! `mmap` and `munmap`.

use crate::kernel;
use crate::machine::{answer, borrow, from_program, machine, name, owner, warn_fork};
use crate::mark::Mark;
use ga10b_capture::TraceMark;
use libc::{c_int, c_void, off_t, size_t};
use nix::errno::Errno;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::Sys;
use std::num::NonZeroUsize;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;

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
        warn_fork(sim);
        let (prot, flags) = (ProtFlags::from_bits_retain(prot), MapFlags::from_bits_retain(flags));
        // SAFETY: the program's own promise.
        let mapped = unsafe { sim.mmap_at(NonZeroUsize::new(addr as usize), len, prot, flags, fd, offset) };
        let mapped = mark.end(mapped);
        Some(mapped.map_or_else(
            |errno| {
                errno.set();
                libc::MAP_FAILED
            },
            NonNull::as_ptr,
        ))
    });
    served.flatten().unwrap_or_else(|| {
        if flags & libc::MAP_FIXED != 0
            && let (Some(sim), Some(at)) = (machine(), NonNull::new(addr))
        {
            from_program(|| sim.replaces(at, len));
        }
        // SAFETY: the caller's promise.
        unsafe { kernel::mmap(addr, len, prot, flags, fd, offset) }
    })
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
