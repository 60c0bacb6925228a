//! The software device, with a list of what was asked of it, and calls that fail; and what tracing was told.

use std::ffi::{CStr, c_void};
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use ga10b_sim::{Sim, SimConfig};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{Layer, Request, Sys};
use tracing_subscriber::fmt::MakeWriter;

/// A call.
#[derive(Clone, Debug)]
pub enum Call {
    Open(String),
    /// A request by name, and its argument as the driver left it.
    Request(&'static str, Vec<u8>),
    /// A mapping of a descriptor.
    Map(RawFd),
    Unmap,
    /// The name of a closed node.
    Close(String),
}

#[derive(Debug)]
pub struct Spy {
    pub sim: Arc<Sim>,
    pub calls: Mutex<Vec<Call>>,
    /// Number of the call that fails, from 1.
    pub fail_at: usize,
    /// A request that always fails, with `ENOTTY`.
    pub refused: Option<&'static str>,
    /// Changes the characteristics that the driver has written.
    pub characteristics: Option<fn(&mut [u8])>,
    pub count: AtomicUsize,
}

impl Spy {
    pub fn new(fail_at: usize) -> Arc<Self> {
        Arc::new(Self { fail_at, ..Self::on(SimConfig::default()) })
    }

    pub fn on(config: SimConfig) -> Self {
        Self {
            sim: Sim::new(config),
            calls: Mutex::default(),
            fail_at: 0,
            refused: None,
            characteristics: None,
            count: AtomicUsize::new(0),
        }
    }

    /// Everything that was asked.
    pub fn trace(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    /// Forgets what was asked.
    pub fn forget(&self) {
        self.calls.lock().unwrap().clear();
    }

    /// Everything that was asked, by name.
    pub fn calls(&self) -> Vec<String> {
        let name = |call| match call {
            Call::Open(path) => format!("open {path}"),
            Call::Request(name, _) => name.to_owned(),
            Call::Map(_) => "mmap".to_owned(),
            Call::Unmap => "munmap".to_owned(),
            Call::Close(what) => format!("close {what}"),
        };
        self.trace().into_iter().map(name).collect()
    }

    /// The arguments of a request's calls, as bytes.
    pub fn bytes_of(&self, name: &str) -> Vec<Vec<u8>> {
        let bytes = |call| match call {
            Call::Request(n, bytes) if n == name => Some(bytes),
            _ => None,
        };
        self.trace().into_iter().filter_map(bytes).collect()
    }

    /// The arguments of a request's calls, as words.
    pub fn words_of(&self, name: &str) -> Vec<Vec<u32>> {
        self.bytes_of(name).iter().map(|bytes| words(bytes)).collect()
    }

    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    fn fails(&self) -> bool {
        self.count.fetch_add(1, Ordering::Relaxed) + 1 == self.fail_at
    }
}

/// An argument as words.
pub fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect()
}

// SAFETY: every call is passed on to an implementation, or refused.
unsafe impl Layer for Spy {
    fn below(&self) -> &dyn Sys {
        &*self.sim
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        self.note(Call::Open(path.to_string_lossy().into_owned()));
        if self.fails() {
            return Err(Errno::EACCES);
        }
        self.sim.open(path, flags)
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let name = Request::find(request).map_or("unknown", |r| r.name);
        // Giving back is not made to fail: there is nothing left to do then but to say so.
        // A wait's occasional requests may come or not.
        let optional = matches!(
            name,
            "NVMAP_IOC_FREE" | "NVGPU_AS_IOCTL_UNMAP_BUFFER" | "NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT"
        );
        let result = if self.refused == Some(name) {
            Err(Errno::ENOTTY)
        } else if !optional && self.fails() {
            Err(Errno::ENOMEM)
        } else {
            // SAFETY: passed on from the caller.
            unsafe { self.sim.ioctl(fd, request, arg) }
        };
        if let (Some(change), "NVGPU_GPU_IOCTL_GET_CHARACTERISTICS", Ok(_)) =
            (self.characteristics, name, result)
        {
            let all = usize::from_ne_bytes(arg[8..16].try_into().unwrap());
            let len = size_of::<nvgpu_sys::nvgpu_gpu_characteristics>();
            // SAFETY: the driver has just written there, and nobody else uses it during the call.
            change(unsafe {
                std::slice::from_raw_parts_mut(std::ptr::with_exposed_provenance_mut(all), len)
            });
        }
        self.note(Call::Request(name, arg.to_vec()));
        result
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        self.note(Call::Map(fd.as_raw_fd()));
        if self.fails() {
            return Err(Errno::ENOMEM);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.sim.mmap(len, prot, flags, fd, offset) }
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        self.note(Call::Unmap);
        // SAFETY: passed on from the caller.
        unsafe { self.sim.munmap(addr, len) }
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        self.note(Call::Close(self.sim.descriptor_name(fd.as_fd()).unwrap_or_default()));
        self.sim.close(fd)
    }
}

/// The output of tracing.
#[derive(Clone, Default)]
pub struct Said(Arc<Mutex<Vec<u8>>>);

impl Said {
    /// Runs something, and returns what it said.
    pub fn by<T>(work: impl FnOnce() -> T) -> (T, String) {
        let said = Self::default();
        let subscriber = tracing_subscriber::fmt().with_writer(said.clone()).with_ansi(false).finish();
        let result = tracing::subscriber::with_default(subscriber, work);
        let bytes = said.0.lock().unwrap().clone();
        (result, String::from_utf8(bytes).unwrap())
    }
}

impl io::Write for Said {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Said {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}
