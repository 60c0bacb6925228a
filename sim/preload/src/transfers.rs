//! `read`, `write` and their kin: the driver's nodes have no such operations.
//!
//! The C library's functions serve all other descriptors, because a thread can be cancelled in them.

use crate::machine::{borrow, from_program, machine};
use crate::original::Original;
use ga10b_sim::Sim;
use libc::{c_int, c_uint, c_void, iovec, off_t, size_t, ssize_t};
use nix::errno::Errno;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;

/// Asks the machine for the errno of a transfer that is not possible, and sets it for the caller.
fn is_refused(fd: c_int, ask: impl FnOnce(&Sim, BorrowedFd<'_>) -> Option<Errno>) -> bool {
    let Some(sim) = machine().filter(|sim| sim.is_here()) else { return false };
    let errno = from_program(|| ask(sim, borrow(fd)?)).flatten();
    errno.into_iter().for_each(Errno::set);
    errno.is_some()
}

/// Functions that refuse a node's descriptor, and are the C library's for others.
macro_rules! transfers {
    ($($name:ident($($argument:ident: $type:ty),*), $ask:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As for the C function.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(fd: c_int, $($argument: $type),*) -> ssize_t {
            type Next = unsafe extern "C" fn(c_int, $($type),*) -> ssize_t;
            static NEXT: Original = Original::new(match CStr::from_bytes_with_nul(
                concat!(stringify!($name), "\0").as_bytes(),
            ) {
                Ok(name) => name,
                Err(_) => panic!("a name has no zero in it"),
            });
            if is_refused(fd, $ask) {
                return -1;
            }
            // SAFETY: the C library's function of that name, with the caller's arguments.
            unsafe { NEXT.get::<Next>().map_or(-1, |next| next(fd, $($argument),*)) }
        }
    )*};
}

transfers! {
    read(to: *mut c_void, len: size_t), |sim, fd| sim.transfer(fd, false);
    write(from: *const c_void, len: size_t), |sim, fd| sim.transfer(fd, true);
    pread(to: *mut c_void, len: size_t, at: off_t), |sim, fd| sim.transfer(fd, false);
    pread64(to: *mut c_void, len: size_t, at: off_t), |sim, fd| sim.transfer(fd, false);
    pwrite(from: *const c_void, len: size_t, at: off_t), |sim, fd| sim.transfer(fd, true);
    pwrite64(from: *const c_void, len: size_t, at: off_t), |sim, fd| sim.transfer(fd, true);
    readv(pieces: *const iovec, count: c_int), |sim, fd| sim.transfer_pieces(fd, false, pieces, count as usize);
    writev(pieces: *const iovec, count: c_int), |sim, fd| sim.transfer_pieces(fd, true, pieces, count as usize);
    __read_chk(to: *mut c_void, len: size_t, room: size_t), |sim, fd| sim.transfer(fd, false);
    __pread_chk(to: *mut c_void, len: size_t, at: off_t, room: size_t), |sim, fd| sim.transfer(fd, false);
    vmsplice(pieces: *const iovec, count: size_t, flags: c_uint), |sim, fd| {
        // A pipe to the kernel, which would wait for data in it; on a Jetson it is none.
        sim.status_flags(fd).map(|_| Errno::EBADF)
    };
    __pread64_chk(to: *mut c_void, len: size_t, at: off_t, room: size_t), |sim, fd| sim.transfer(fd, false);
}
