//! A process under observation: its system calls change its state here, and its rings are read between them.

use std::ffi::{CString, c_void};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rm_sys::{Release, Version};

use crate::limits::Limits;
use crate::process::Process;
use crate::record::Record;
use crate::requests;

/// Takes the records.
type Sink = Box<dyn Fn(&Record) + Send + Sync>;

/// Follows the channels of the process that it is in.
///
/// The owner reports the program's calls: requests to drivers after they have succeeded
/// ([`request`](Self::request)), mappings ([`mapped`](Self::mapped), [`unmap`](Self::unmap)), and
/// [`close`](Self::close). Memory is read only between the report of its mapping and that of its removal, and
/// while no other report is under way.
pub struct Watcher {
    /// While the lock is held, no function of the C library is called that a preloaded library may replace: a
    /// software GPU has a lock of its own, under which it maps memory, which is reported here.
    process: Mutex<Process>,
    release: Option<Release>,
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
        Self { process: Mutex::new(Process::new(limits, release)), release, sink: Box::new(sink) }
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
        requests::argument_bytes(request, self.release, || is_uvm(fd)).is_some()
    }

    /// A request has succeeded.
    ///
    /// # Safety
    /// `argument` is the driver's argument: the struct that the request names, or null.
    pub unsafe fn request(&self, fd: i32, request: u32, argument: *const c_void) {
        let Some(len) = requests::argument_bytes(request, self.release, || is_uvm(fd)) else { return };
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
        self.process().request(fd, request, &bytes, &read, &mut |record| (self.sink)(record));
    }

    /// The descriptor was mapped.
    pub fn mapped(&self, fd: i32, address: usize, len: usize, offset: i64) {
        self.process().mapped(fd, address as u64, len as u64, offset.cast_unsigned());
    }

    /// Reads the submissions made so far, because the mappings in a range are about to be removed or
    /// replaced. Nothing reads the range afterwards.
    pub fn unmap(&self, address: usize, len: usize) {
        let mut process = self.process();
        if process.is_mapped(address as u64, len as u64) {
            process.poll(&mut |record| (self.sink)(record));
            process.unmapped(address as u64, len as u64);
        }
    }

    /// Descriptor `copy` is open on what `fd` is open on: a channel lives until its last descriptor is closed.
    /// The descriptor that `copy` was before is closed.
    pub fn duplicated(&self, fd: i32, copy: i32) {
        if fd != copy {
            self.close(copy);
            self.process().duplicated(fd, copy);
        }
    }

    /// A descriptor is about to be closed.
    pub fn close(&self, fd: i32) {
        let mut process = self.process();
        if process.knows(fd) {
            process.poll(&mut |record| (self.sink)(record));
        }
        process.closed(fd);
    }

    /// Reads the new entries of all rings.
    pub fn poll(&self) {
        self.process().poll(&mut |record| (self.sink)(record));
    }
}

/// Whether a descriptor is open on `/dev/nvidia-uvm`, by the kernel's name of it: a preloaded library is not
/// called.
fn is_uvm(fd: i32) -> bool {
    const UVM: &[u8] = b"/dev/nvidia-uvm";
    let Ok(path) = CString::new(format!("/proc/self/fd/{fd}")) else { return false };
    let mut link = [0u8; UVM.len() + 1];
    // SAFETY: the path ends with a zero byte, and the kernel writes no more than the length of `link`.
    let len = unsafe {
        libc::syscall(libc::SYS_readlinkat, libc::AT_FDCWD, path.as_ptr(), link.as_mut_ptr(), link.len())
    };
    usize::try_from(len).is_ok_and(|len| &link[..len] == UVM)
}
