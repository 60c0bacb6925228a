//! The device as a program sees it: system calls.

use crate::config::SimConfig;
use crate::driver::descriptor::{FileKey, borrow};
use crate::driver::files::Object;
use crate::driver::machine::Machine;
use crate::driver::mappings::Mapping;
use crate::driver::nodes::dispatch;
use crate::driver::nodes::nvmap::check_mmap;
use crate::driver::nodes::paths::{self, Place};
use crate::findings::{Checks, Finding};
use crate::gpu::counters::Counters;
use crate::gpu::host_scheduler;
use crate::gpu::sm;
use crate::gpu::usermode::USERMODE_LEN;
use crate::violations::Violation;
use crate::visit::host::Host;
use crate::what_if::{WhatIf, WhatIfs};
use libc::{SYS_ppoll, pollfd, syscall, timespec};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise};
use nix::sys::resource::{Resource, getrlimit};
use nvgpu_sys::Sys;
use std::ffi::{CStr, c_void};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Bytes of a signal mask, as the kernel has it.
const SIGNAL_MASK: usize = 8;
/// Events that the kernel reports at once for a file whose driver has no `poll` operation.
const ALWAYS_READY: i16 = libc::POLLIN | libc::POLLOUT | libc::POLLRDNORM | libc::POLLWRNORM;

/// Way in which a descriptor becomes ready.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Readiness {
    /// An event: once for each post.
    Event,
    /// The driver has no `poll` operation for it.
    Always,
    /// The descriptor itself reports it.
    OfTheKernel,
}

/// A software ga10b, with the system calls of its driver.
///
/// Its descriptors are real ones, and buffers are memfds that the program maps as on the device. The
/// GPU runs on its own thread from [`new`](Sim::new) until the `Sim` is dropped.
#[derive(Debug)]
pub struct Sim {
    pub(crate) machine: Arc<Machine>,
    thread: Option<JoinHandle<()>>,
    /// Serves other processes, if the configuration permits it.
    host: Option<Host>,
    /// The process that it is in. A fork has a copy of its state, and no GPU.
    process: u32,
}

impl Sim {
    /// Starts a machine.
    ///
    /// # Errors
    /// The errno of the host call that failed: no descriptors, memory or threads left. `EINVAL` for a name of
    /// [`WhatIfs::unknown_requests`] that no request has.
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
        Ok(Arc::new(Self { machine, thread: Some(thread), host, process: std::process::id() }))
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

    /// Whether the caller is in the process of the machine, and not in a fork of it.
    pub fn is_here(&self) -> bool {
        std::process::id() == self.process
    }

    /// A fork's answer: no such device.
    fn here(&self) -> Result<(), Errno> {
        if self.is_here() { Ok(()) } else { Err(Errno::ENODEV) }
    }

    /// The driver's lines in the kernel log, oldest first, also those that the program may not read.
    pub fn kernel_log(&self) -> Vec<String> {
        self.machine.log.lines()
    }

    /// The driver's lines in the kernel log as a program of the machine reads them; `None` where it may not
    /// ([`WhatIf::NO_KERNEL_LOG`]).
    pub fn readable_kernel_log(&self) -> Option<Vec<String>> {
        (!self.machine.config.what_if.has(WhatIf::NO_KERNEL_LOG)).then(|| self.kernel_log())
    }

    /// Whether `/sys/class/devfreq` has the GPU's node: from the start, or with
    /// [`WhatIf::LATE_DEVFREQ`] from 3 s on.
    pub fn has_devfreq(&self) -> bool {
        self.machine.has_devfreq()
    }

    /// Returns the faults that stopped launches so far, oldest first, in more words than the driver has:
    /// error code, program counter, block, warp, lanes, and the instruction, or why a launch cannot end.
    pub fn faults(&self) -> Vec<String> {
        self.machine.violations.faults()
    }

    /// The block in which a launch of channel number `channel` failed last, as it stood then, of the faults from
    /// number `since` in [`faults`](Self::faults) on. The last few blocks are kept; `None` for others, and for
    /// faults that stop no block.
    pub fn stopped_block(&self, channel: u32, since: usize) -> Option<Arc<sm::BlockState>> {
        self.machine.gpu.units.stops.last(channel, since)
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

    /// The checks: [`SimConfig::check`] and those of [`SimConfig::executor`].
    pub fn checks(&self) -> Checks {
        self.machine.config.checks()
    }

    /// The counters of the GPU so far.
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
    /// buffers, as a dump of a real machine holds them. The GPU's writes meanwhile may be in it or not.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn dump_memory(&self, out: &mut dyn Write) -> io::Result<()> {
        self.machine.dram.dump(out)
    }

    /// Name of the inode of a descriptor of this machine, as `/proc/<pid>/fd` would show it on a real
    /// one.
    pub fn descriptor_name(&self, fd: BorrowedFd<'_>) -> Option<String> {
        self.here().ok()?;
        dispatch::name(&self.machine, fd)
    }

    /// `mmap(2)` with an address: a hint, or with `MAP_FIXED` or `MAP_FIXED_NOREPLACE` the place.
    ///
    /// # Errors
    /// The driver's for a mapping that it refuses, the kernel's for an address that it refuses.
    ///
    /// # Safety
    /// As for `mmap(2)`: with `MAP_FIXED` nothing uses the former mapping there.
    pub unsafe fn mmap_at(
        &self,
        addr: Option<NonZeroUsize>,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        if addr.is_none() && flags.intersects(MapFlags::MAP_FIXED | MapFlags::MAP_FIXED_NOREPLACE) {
            // The kernel's answer below `vm.mmap_min_addr`.
            return Err(Errno::EPERM);
        }
        self.here()?;
        if let Some(at) = addr.and_then(|at| NonNull::new(at.get() as *mut c_void))
            && flags.contains(MapFlags::MAP_FIXED)
        {
            // As in the kernel, the former mapping is unmapped first.
            self.machine.doorbells.remove(at, len.get());
        }
        let object = self.machine.object(fd)?;
        let opened = FileKey::of(fd).ok().and_then(|key| self.machine.driver().files.flags(key));
        if let Some(opened) = opened {
            check_access(opened, prot, flags)?;
        }
        let file = match object {
            Some(Object::Ctrl(file)) => file,
            Some(Object::NvMap) => return Err(Errno::EPERM),
            Some(_) => return Err(Errno::ENODEV),
            None => {
                let facts = self.machine.buffer_facts(fd);
                if let Some(facts) = facts {
                    let writes = prot.contains(ProtFlags::PROT_WRITE) && flags.contains(MapFlags::MAP_SHARED);
                    check_mmap(facts, writes, len.get() as u64, offset)?;
                }
                // SAFETY: the caller's promise.
                let at = unsafe { nix::sys::mman::mmap(addr, len, prot, flags, fd, offset) }?;
                if facts.is_some() {
                    keep_from_forks(at, len);
                    let buffer = self.machine.buffer(&mut self.machine.driver(), fd.as_raw_fd());
                    if let Ok(buffer) = buffer {
                        let mapping = Mapping { len: len.get(), offset: offset as u64, buffer };
                        self.machine.mappings.add(at.addr().get(), mapping);
                    }
                }
                return Ok(at);
            }
        };
        // The GPU's thread, which shows the time, may be asleep: a program reads it at once.
        self.machine.gpu.usermode.set_time(self.machine.clock.ptimer());
        let page = self.machine.gpu.usermode_fd();
        // The kernel's own checks come first. The driver then looks for a mapping, and after that at the arguments
        // (`gk20a_ctrl_dev_mmap`).
        // SAFETY: the caller's promise; the page is shared memory of this machine.
        let at = unsafe { nix::sys::mman::mmap(addr, len, prot, flags, page, offset) }?;
        let is_page = offset == 0 && len.get() <= USERMODE_LEN;
        if let Err(errno) = self.machine.doorbells.take(&file, is_page, &self.machine.violations) {
            // SAFETY: the mapping is new, and nobody has its address.
            unsafe { nix::sys::mman::munmap(at, len.get()) }?;
            return Err(errno);
        }
        self.machine.power_on();
        keep_from_forks(at, len);
        self.machine.doorbells.add(at, len, (prot, flags), file);
        Ok(at)
    }

    /// Takes note that the program is about to map something that is not this machine's at these addresses.
    pub fn replaces(&self, at: NonNull<c_void>, len: usize) {
        if self.is_here() {
            self.machine.doorbells.remove(at, len);
        }
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
        self.here()?;
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

    /// `ppoll(2)` with the arguments as a program passes them: the machine copies them in and out as a kernel
    /// does, so that a bad pointer is an error.
    ///
    /// # Errors
    /// `EINVAL` for more entries than the process may have descriptors, `EFAULT` for entries that are not
    /// mapped, or not writable where the answer goes; those of `ppoll(2)`.
    ///
    /// # Safety
    /// As for `ppoll(2)`: `count` entries at `fds` may be written.
    pub unsafe fn ppoll_at(
        &self,
        fds: *mut pollfd,
        count: usize,
        timeout: *const timespec,
        mask: *const c_void,
    ) -> Result<i32, Errno> {
        self.here()?;
        let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE)?;
        if count as u64 > limit {
            return Err(Errno::EINVAL);
        }
        let user = &self.machine.user;
        // The kernel writes the time that is left, which the C function does not.
        let mut left = match timeout.is_null() {
            true => None,
            false => Some(user.read_own(timeout.expose_provenance() as u64, size_of::<timespec>())?),
        };
        let mut none = [0u8; size_of::<timespec>()];
        let left = left.as_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr);
        let at = fds.expose_provenance() as u64;
        let bytes = user.read_own(at, count * size_of::<pollfd>())?;
        let mut raw: Vec<pollfd> = bytes.as_chunks().0.iter().map(|entry| poll_entry(*entry)).collect();
        let ready = self.poll_by(&mut raw, |raw, at_once| {
            let (fds, count) = (raw.as_mut_ptr(), raw.len());
            let left = if at_once { none.as_mut_ptr() } else { left };
            // SAFETY: array and time are copies that are as long as the kernel takes them for; it checks the
            // mask, and reads as many bytes of it as it has signals.
            let ready = unsafe { syscall(SYS_ppoll, fds, count, left, mask, SIGNAL_MASK) };
            Errno::result(ready).map(|ready| ready as i32)
        })?;
        let bytes: Vec<u8> = raw.iter().flat_map(poll_bytes).collect();
        user.write_own(at, &bytes)?;
        Ok(ready)
    }

    /// Polls by `wait`, with events of this machine as the driver reports them. `wait` does not wait if it is
    /// told that a descriptor is ready.
    fn poll_by(
        &self,
        fds: &mut [pollfd],
        wait: impl FnOnce(&mut [pollfd], bool) -> Result<i32, Errno>,
    ) -> Result<i32, Errno> {
        let waits: Vec<Readiness> = fds.iter().map(|fd| self.readiness(fd.fd)).collect();
        let asked: Vec<pollfd> = fds.to_vec();
        let mut at_once = false;
        for (fd, readiness) in fds.iter_mut().zip(&waits) {
            match readiness {
                Readiness::Event if fd.events & libc::POLLPRI != 0 => fd.events |= libc::POLLIN,
                Readiness::Always => {
                    at_once |= fd.events & ALWAYS_READY != 0;
                    // The kernel passes over it.
                    fd.fd = -1;
                }
                _ => (),
            }
        }
        let ready = wait(fds, at_once);
        for ((fd, readiness), asked) in fds.iter_mut().zip(waits).zip(asked) {
            (fd.fd, fd.events) = (asked.fd, asked.events);
            if ready.is_err() {
                continue;
            }
            match readiness {
                Readiness::Event if fd.revents & libc::POLLIN != 0 => {
                    fd.revents = (libc::POLLIN | libc::POLLPRI) & asked.events;
                    // The poll that reports a post clears it.
                    let mut posts = [0; 64];
                    let Some(event) = borrow(fd.fd) else { continue };
                    while nix::unistd::read(event, &mut posts).is_ok_and(|n| n == posts.len()) {}
                }
                Readiness::Always => fd.revents = asked.events & ALWAYS_READY,
                _ => (),
            }
        }
        ready.map(|_| fds.iter().filter(|fd| fd.revents != 0).count() as i32)
    }

    pub(crate) fn readiness(&self, fd: i32) -> Readiness {
        let Some(fd) = borrow(fd) else { return Readiness::OfTheKernel };
        match self.machine.object(fd) {
            Ok(Some(Object::Event)) => Readiness::Event,
            Ok(Some(Object::Debug(_) | Object::Sched | Object::ContextSwitchTrace)) | Ok(None) | Err(_) => {
                Readiness::OfTheKernel
            }
            Ok(Some(_)) => Readiness::Always,
        }
    }

    /// The node that a path names on a machine of these what-ifs, if it is one of the driver's.
    pub fn place(path: &CStr, what_if: &WhatIfs) -> Option<Place> {
        paths::place(path.to_str().ok()?, what_if)
    }

    /// Whether a descriptor belongs to this machine; in a fork of its process none does.
    pub fn owns(&self, fd: BorrowedFd<'_>) -> bool {
        // A lock may have been held when the process forked.
        self.is_here() && self.knows(fd)
    }

    /// Whether a descriptor belongs to this machine, or in a fork of its process to the machine of the parent. In
    /// a fork only if the parent held the tables meanwhile ([`hold`](Self::hold)).
    pub fn knows(&self, fd: BorrowedFd<'_>) -> bool {
        matches!(self.machine.object(fd), Ok(Some(_))) || self.machine.buffer_facts(fd).is_some()
    }
}

/// The kernel's check of a mapping's protection against the mode in which the file was opened.
fn check_access(opened: OFlag, prot: ProtFlags, flags: MapFlags) -> Result<(), Errno> {
    let access = opened & OFlag::O_ACCMODE;
    let stores = prot.contains(ProtFlags::PROT_WRITE) && flags.contains(MapFlags::MAP_SHARED);
    match access == OFlag::O_WRONLY || stores && access == OFlag::O_RDONLY {
        true => Err(Errno::EACCES),
        false => Ok(()),
    }
}

/// A fork has no mapping of the doorbell or of buffers, as with the real driver.
fn keep_from_forks(at: NonNull<c_void>, len: NonZeroUsize) {
    // SAFETY: the range is a mapping that was just made; what changes is that a fork has none there.
    if let Err(errno) = unsafe { madvise(at, len.get(), MmapAdvise::MADV_DONTFORK) } {
        tracing::debug!(%errno, "a fork of this process will have a mapping of the machine's memory");
    }
}

/// A poll entry from a program's bytes.
fn poll_entry([a, b, c, d, e, f, g, h]: [u8; size_of::<pollfd>()]) -> pollfd {
    pollfd {
        fd: i32::from_ne_bytes([a, b, c, d]),
        events: i16::from_ne_bytes([e, f]),
        revents: i16::from_ne_bytes([g, h]),
    }
}

/// A poll entry as a program's bytes.
fn poll_bytes(entry: &pollfd) -> [u8; size_of::<pollfd>()] {
    let [a, b, c, d] = entry.fd.to_ne_bytes();
    let ([e, f], [g, h]) = (entry.events.to_ne_bytes(), entry.revents.to_ne_bytes());
    [a, b, c, d, e, f, g, h]
}

impl Drop for Sim {
    fn drop(&mut self) {
        if !self.is_here() {
            // A fork has none of the threads to wait for.
            std::mem::forget((self.host.take(), self.thread.take()));
            return;
        }
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
        self.here()?;
        let path = path.to_str().map_err(|_| Errno::ENOENT)?;
        dispatch::open(&self.machine, path, flags)
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        self.here()?;
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
        // SAFETY: the caller's promise.
        unsafe { self.mmap_at(None, len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        // Before the range is free for other mappings, which must not be replaced. In a fork a lock may be held by
        // a thread that is not there.
        let gone = self.is_here().then(|| {
            self.machine.doorbells.remove(addr, len);
            self.machine.mappings.remove(addr.addr().get())
        });
        // SAFETY: the caller's promise.
        unsafe { nix::sys::mman::munmap(addr, len)? };
        drop(gone);
        Ok(())
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        self.here()?;
        // SAFETY: `PollFd` is a transparent wrapper of `pollfd`, whose fields may hold anything.
        let raw = unsafe { std::slice::from_raw_parts_mut(fds.as_mut_ptr().cast::<pollfd>(), fds.len()) };
        self.poll_by(raw, |raw, at_once| {
            let timeout = if at_once { PollTimeout::ZERO } else { timeout };
            // SAFETY: the slice is exclusive and as long as it says; the kernel checks the descriptors.
            Errno::result(unsafe { libc::poll(raw.as_mut_ptr(), raw.len() as libc::nfds_t, timeout.into()) })
        })
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        if self.here().is_ok() {
            self.machine.close(fd);
        }
        Ok(())
    }
}
