//! A process under observation: its system calls change what is known, and its rings are read between them.

use std::ffi::c_void;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rm_sys::{Release, Version};

use crate::limits::Limits;
use crate::process::Process;
use crate::record::Record;

/// Takes the records.
type Sink = Box<dyn Fn(&Record) + Send + Sync>;

/// Follows the channels of the process that it is in.
///
/// Whoever has one reports the program's calls: requests to drivers after they have succeeded
/// ([`request`](Self::request)), mappings ([`mapped`](Self::mapped), [`unmap`](Self::unmap)), and
/// [`close`](Self::close). Memory is read only between the report of its mapping and that of its removal, and
/// while no other report is under way.
pub struct Watcher {
    process: Mutex<Process>,
    sink: Sink,
}

impl std::fmt::Debug for Watcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watcher").field("process", &self.process).finish_non_exhaustive()
    }
}

impl Watcher {
    /// A process that has done nothing yet. The layouts of the desktop driver's structs are those of
    /// `release`, or of the newest one.
    #[must_use]
    pub fn new(
        limits: Limits,
        release: Option<Release>,
        sink: impl Fn(&Record) + Send + Sync + 'static,
    ) -> Self {
        Self { process: Mutex::new(Process::new(limits, release)), sink: Box::new(sink) }
    }

    /// The release of the desktop driver that is loaded.
    #[must_use]
    pub fn loaded_release() -> Option<Release> {
        Release::of(Version::of_loaded_driver().ok()?).ok()
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether there is a ring to poll.
    #[must_use]
    pub fn has_channels(&self) -> bool {
        self.process().has_channels()
    }

    /// Whether a request is one to report. Those that may end a channel are reported before they are made
    /// (see [`poll`](Self::poll)).
    #[must_use]
    pub fn wants(&self, fd: i32, request: u32) -> bool {
        self.process().argument_bytes(request, || is_uvm(fd)).is_some()
    }

    /// A request has succeeded.
    ///
    /// # Safety
    /// `argument` is what the driver was given: the struct that the request names, or null.
    pub unsafe fn request(&self, fd: i32, request: u32, argument: *const c_void) {
        let mut process = self.process();
        let Some(len) = process.argument_bytes(request, || is_uvm(fd)) else { return };
        if argument.is_null() {
            return;
        }
        // SAFETY: the driver has read so many bytes there, or the request is none of a GPU's driver and names
        // an argument that is as long.
        let bytes = unsafe { std::slice::from_raw_parts(argument.cast::<u8>(), len) }.to_vec();
        let read = |address: u64, len: usize| {
            let at = std::ptr::with_exposed_provenance::<u8>(usize::try_from(address).ok()?);
            // SAFETY: the driver has read so many bytes at the address, which the argument of a request that
            // succeeded names.
            (!at.is_null()).then(|| unsafe { std::slice::from_raw_parts(at, len) }.to_vec())
        };
        process.request(fd, request, &bytes, &read, &mut |record| (self.sink)(record));
    }

    /// The descriptor was mapped.
    pub fn mapped(&self, fd: i32, address: usize, len: usize, offset: i64) {
        self.process().mapped(fd, address as u64, len as u64, offset.cast_unsigned());
    }

    /// Has `call` take away what is mapped in a range, or put something else there, while nothing reads it.
    /// What was submitted before is read first.
    pub fn unmap<R>(&self, address: usize, len: usize, call: impl FnOnce() -> R) -> R {
        let mut process = self.process();
        if process.is_mapped(address as u64, len as u64) {
            process.poll(&mut |record| (self.sink)(record));
            process.unmapped(address as u64, len as u64);
        }
        call()
    }

    /// A descriptor is about to be closed.
    pub fn close(&self, fd: i32) {
        let mut process = self.process();
        if process.knows(fd) {
            process.poll(&mut |record| (self.sink)(record));
            process.closed(fd);
        }
    }

    /// Reads what is new in all rings.
    pub fn poll(&self) {
        self.process().poll(&mut |record| (self.sink)(record));
    }
}

fn is_uvm(fd: i32) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    link.is_ok_and(|link| link.as_os_str() == "/dev/nvidia-uvm")
}
