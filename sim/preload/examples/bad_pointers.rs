//! Passes pointers that lead nowhere to each call that `libnvgpu_sim.so` interposes, and prints the answers.

use libc::{c_char, c_int, c_void, pollfd, sigset_t, timespec};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::{Linux, NVGPU_GPU_IOCTL_GET_CHARACTERISTICS, Sys};
use std::error::Error;
use std::os::fd::AsRawFd;
use std::ptr::{null, null_mut, without_provenance_mut};

/// Prints the name of a call and its errno.
fn print(call: &str, result: c_int) {
    let answer = if result < 0 { format!("{:?}", Errno::last()) } else { result.to_string() };
    println!("{call}: {answer}");
}

fn main() -> Result<(), Box<dyn Error>> {
    let ctrl = Linux.open(c"/dev/nvgpu/igpu0/ctrl", OFlag::O_RDWR)?;
    let fd = ctrl.as_raw_fd();
    let bad: *mut c_void = without_provenance_mut(0x10);
    let path = bad.cast::<c_char>();
    let fds = bad.cast::<pollfd>();
    let time = timespec { tv_sec: 0, tv_nsec: 0 };
    let mut one = pollfd { fd, events: libc::POLLIN, revents: 0 };
    let none = pollfd { fd: -1, events: libc::POLLIN, revents: 7 };
    let mut with_none = [none, one];
    // SAFETY: the kernel, or what answers in its place, checks the pointers.
    unsafe {
        print("open", libc::open(path, libc::O_RDONLY));
        print("openat", libc::openat(libc::AT_FDCWD, path, libc::O_RDONLY));
        print("access", libc::access(path, libc::F_OK));
        print("ioctl", libc::ioctl(fd, NVGPU_GPU_IOCTL_GET_CHARACTERISTICS.into(), bad));
        print("poll", libc::poll(fds, 1, 0));
        print("poll of nothing", libc::poll(null_mut(), 0, 0));
        print("poll of too many", libc::poll(fds, libc::nfds_t::MAX, 0));
        print("poll of no descriptor", libc::poll(with_none.as_mut_ptr(), 2, 0));
        print("revents of no descriptor", with_none[0].revents.into());
        print("ppoll", libc::ppoll(fds, 1, &raw const time, null()));
        print("ppoll, time", libc::ppoll(&raw mut one, 1, bad.cast(), null()));
        print("ppoll, mask", libc::ppoll(&raw mut one, 1, &raw const time, bad.cast::<sigset_t>()));
        print("ppoll, good", libc::ppoll(&raw mut one, 1, &raw const time, null()));
        print("select", libc::select(fd + 1, bad.cast(), null_mut(), null_mut(), null_mut()));
        print("read", libc::read(fd, bad, 8) as c_int);
        print("readv", libc::readv(fd, bad.cast(), 1) as c_int);
        print("write", libc::write(fd, bad, 8) as c_int);
        print("fstat", libc::fstat(fd, bad.cast()));
        print("munmap", libc::munmap(bad, 4096));
        let at = libc::mmap(bad, 1 << 16, libc::PROT_WRITE, libc::MAP_SHARED, fd, 0);
        print("mmap", if at == libc::MAP_FAILED { -1 } else { 0 });
    }
    Ok(())
}
