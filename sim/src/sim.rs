//! The device as a program sees it: system calls.

use crate::config::SimConfig;
use crate::driver::descriptor::FileKey;
use crate::driver::files::Object;
use crate::driver::machine::Machine;
use crate::driver::nodes::dispatch;
use crate::driver::nodes::nvmap::check_mmap;
use crate::findings::Finding;
use crate::gpu::counters::Counters;
use crate::gpu::host_scheduler;
use crate::gpu::usermode::USERMODE_LEN;
use crate::violations::Violation;
use crate::visit::host::Host;
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::Sys;
use std::ffi::{CStr, c_void};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;

/// A software ga10b, with the system calls of its driver.
///
/// Its descriptors are real ones, and buffers are memfds that the program maps as on the device. The
/// GPU runs on its own thread from [`new`](Sim::new) until the `Sim` is dropped.
#[derive(Debug)]
pub struct Sim {
    machine: Arc<Machine>,
    thread: Option<JoinHandle<()>>,
    /// Serves other processes, if the configuration permits it.
    host: Option<Host>,
}

impl Sim {
    /// Starts a machine.
    ///
    /// # Errors
    /// The errno of the host call that failed: no descriptors, memory or threads left.
    pub fn try_new(config: SimConfig) -> Result<Arc<Self>, Errno> {
        let machine = Arc::new(Machine::new(config)?);
        let gpu = Arc::clone(&machine);
        let thread = std::thread::Builder::new()
            .name("ga10b".to_owned())
            .spawn(move || host_scheduler::run(&gpu.gpu, &*gpu))
            .map_err(|_| Errno::EAGAIN)?;
        let host = match machine.config.visible.then(|| Host::open(Arc::clone(&machine))) {
            Some(Err(errno)) => {
                tracing::warn!(%errno, "other processes cannot look at this simulated machine");
                None
            }
            host => host.and_then(Result::ok),
        };
        Ok(Arc::new(Self { machine, thread: Some(thread), host }))
    }

    /// Starts a machine.
    ///
    /// # Panics
    /// When the host has no descriptors, memory or threads left; see [`try_new`](Self::try_new).
    pub fn new(config: SimConfig) -> Arc<Self> {
        match Self::try_new(config) {
            Ok(sim) => sim,
            Err(errno) => panic!("the host cannot give what a simulated machine needs: {errno}"),
        }
    }

    /// The driver's lines in the kernel log, oldest first.
    pub fn kernel_log(&self) -> Vec<String> {
        self.machine.log.lines()
    }

    /// What stopped launches so far, oldest first, in more words than the driver has: error code, program
    /// counter, block, warp, lanes, and the instruction, or why a launch cannot end.
    pub fn faults(&self) -> Vec<String> {
        self.machine.violations.faults()
    }

    /// Calls so far that a real Orin would not have survived.
    pub fn violations(&self) -> Vec<Violation> {
        self.machine.violations.all()
    }

    /// Requests so far that the model does not serve, by name: each failed with `ENOTTY`.
    pub fn absent_calls(&self) -> Vec<&'static str> {
        self.machine.violations.absent()
    }

    /// Mistakes of kernels that [`SimConfig::check`] found so far, in the order in which they were noticed
    /// first.
    pub fn findings(&self) -> Vec<Finding> {
        self.machine.gpu.units.executor.findings()
    }

    /// What the GPU did so far.
    pub fn counters(&self) -> Counters {
        self.machine.gpu.counters()
    }

    /// Settings of the machine.
    pub fn config(&self) -> &SimConfig {
        &self.machine.config
    }

    /// The address spaces that are open: number, and physical address of the top page table.
    pub fn page_tables(&self) -> Vec<(u32, u64)> {
        let driver = self.machine.driver();
        let space = |object: &Object| match object {
            Object::AddressSpace(space) => Some((space.id(), space.root())),
            _ => None,
        };
        driver.files.objects().filter_map(space).collect()
    }

    /// Writes all physical memory that is in use, in the format of the LiME kernel module: page tables and
    /// buffers, as a dump of a real machine holds them. What the GPU writes meanwhile may be in it or
    /// not.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn dump_memory(&self, out: &mut dyn Write) -> io::Result<()> {
        self.machine.dram.dump(out)
    }

    /// Name of the inode of a descriptor of this machine, as `/proc/<pid>/fd` would show it on a real
    /// one.
    pub fn descriptor_name(&self, fd: BorrowedFd<'_>) -> Option<String> {
        dispatch::name(&self.machine, fd)
    }

    /// `ioctl(2)` with the argument as a program passes it: the machine copies it in and out as a kernel
    /// does, so that a bad pointer is an error.
    ///
    /// # Errors
    /// Those of the request; `EFAULT` for an argument that is not mapped, or not writable when the driver
    /// answers in it.
    ///
    /// # Safety
    /// As for `ioctl(2)`: pointers inside the argument lead to memory that the driver may write.
    pub unsafe fn ioctl_at(&self, fd: BorrowedFd<'_>, request: u32, arg: *mut c_void) -> Result<i32, Errno> {
        let size = (request >> 16 & 0x3fff) as usize;
        let address = arg.expose_provenance() as u64;
        if nvgpu_sys::BY_VALUE.contains(&request) {
            return dispatch::ioctl(&self.machine, fd, request, &mut address.to_ne_bytes());
        }
        if size == 0 || arg.is_null() {
            return dispatch::ioctl(&self.machine, fd, request, &mut []);
        }
        let user = &self.machine.user;
        let asked = user.read_own(address, size)?;
        let mut bytes = asked.clone();
        let result = dispatch::ioctl(&self.machine, fd, request, &mut bytes);
        // Some requests answer also when they fail.
        if bytes != asked {
            user.write_own(address, &bytes)?;
        }
        result
    }

    /// Whether this machine has a node of that name.
    pub fn has_node(path: &CStr) -> bool {
        path.to_str().is_ok_and(dispatch::is_node)
    }

    /// Whether a descriptor belongs to this machine.
    pub fn owns(&self, fd: BorrowedFd<'_>) -> bool {
        matches!(self.machine.object(fd), Ok(Some(_))) || self.machine.buffer_state(fd).is_some()
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        drop(self.host.take());
        self.machine.gpu.quit();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the GPU thread of the simulated machine panicked");
        }
    }
}

// SAFETY: descriptors and mappings are the kernel's own, of memfds whose size is sealed or that never leave
// this crate; arguments and what they name are written by `dispatch`, through the kernel where they are
// addresses.
unsafe impl Sys for Sim {
    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        let path = path.to_str().map_err(|_| Errno::ENOENT)?;
        dispatch::open(&self.machine, path, flags)
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        dispatch::ioctl(&self.machine, fd, request, arg)
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        match self.machine.object(fd)? {
            Some(Object::Ctrl(file)) => {
                if offset != 0 || len.get() > USERMODE_LEN {
                    return Err(Errno::EINVAL);
                }
                if !file.take_mapping() {
                    return Err(Errno::EBUSY);
                }
                self.machine.power_on();
                let page = self.machine.gpu.usermode_fd();
                // SAFETY: the caller's promise; the page is shared memory of this machine.
                let mapped = unsafe { nix::sys::mman::mmap(None, len, prot, flags, page, 0) };
                match mapped {
                    Ok(at) => self.machine.doorbells.add(at, len, (prot, flags), file),
                    Err(_) => file.return_mapping(),
                }
                mapped
            }
            Some(Object::NvMap) => Err(Errno::EPERM),
            Some(_) => Err(Errno::ENODEV),
            None => {
                if self.machine.buffer_state(fd).is_some() {
                    check_mmap(&self.machine, fd, len.get() as u64, offset)?;
                }
                // SAFETY: the caller's promise.
                unsafe { nix::sys::mman::mmap(None, len, prot, flags, fd, offset) }
            }
        }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        // Before the range is free for other mappings, which must not be replaced.
        self.machine.doorbells.remove(addr);
        // SAFETY: the caller's promise.
        unsafe { nix::sys::mman::munmap(addr, len) }
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        let is_event = |fd: &PollFd<'_>| matches!(self.machine.object(fd.as_fd()), Ok(Some(Object::Event)));
        let events: Vec<bool> = fds.iter().map(is_event).collect();
        // SAFETY: `PollFd` is a transparent wrapper of `pollfd`, whose fields may hold anything.
        let raw =
            unsafe { std::slice::from_raw_parts_mut(fds.as_mut_ptr().cast::<libc::pollfd>(), fds.len()) };
        let asked: Vec<i16> = raw.iter().map(|fd| fd.events).collect();
        for (fd, _) in raw.iter_mut().zip(&events).filter(|(_, event)| **event) {
            if fd.events & libc::POLLPRI != 0 {
                fd.events |= libc::POLLIN;
            }
        }
        let ready = nix::poll::poll(fds, timeout);
        // SAFETY: as above.
        let raw =
            unsafe { std::slice::from_raw_parts_mut(fds.as_mut_ptr().cast::<libc::pollfd>(), fds.len()) };
        for ((fd, event), asked) in raw.iter_mut().zip(&events).zip(asked) {
            fd.events = asked;
            if *event && fd.revents & libc::POLLIN != 0 {
                fd.revents = (libc::POLLIN | libc::POLLPRI) & asked;
                // The poll that reports a post clears it.
                // SAFETY: the descriptor was just polled, so it is open.
                let fd = unsafe { BorrowedFd::borrow_raw(fd.fd) };
                let mut posts = [0; 64];
                while nix::unistd::read(fd, &mut posts).is_ok_and(|n| n == posts.len()) {}
            }
        }
        ready
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        let key = FileKey::of(fd.as_fd());
        drop(fd);
        if let Ok(key) = key {
            self.machine.collect(key);
        }
        Ok(())
    }
}
