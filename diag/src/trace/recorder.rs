//! A trace from inside: system calls on GPU nodes that go through [`Sys`] are written to a log.

#![allow(unsafe_code, reason = "the trait's methods are unsafe; the calls are handed on as they came")]

use std::ffi::{CStr, c_void};
use std::fmt;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{Layer, Sys};

use crate::hex::Hex;
use crate::trace::bytes::Bytes;
use crate::trace::event::{Call, Event, Header, LogWriter};

/// Names the descriptors of a trace.
type Namer = Box<dyn Fn(BorrowedFd<'_>) -> String + Send + Sync>;

/// System calls that are written to a log on their way to `S`.
///
/// Given to `hcq::sys::open_nvgpu` it records the library's requests to the driver, in the format of `nvdiag
/// trace`, without stopping the program; memory that arguments point to is not recorded. A log that cannot be
/// written is given up, and the program continues.
pub struct Traced<S> {
    sys: S,
    name: Namer,
    start: Instant,
    log: Mutex<Option<LogWriter<Box<dyn Write + Send>>>>,
}

impl<S: fmt::Debug> fmt::Debug for Traced<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traced").field("sys", &self.sys).finish_non_exhaustive()
    }
}

impl<S: Sys> Traced<S> {
    /// Begins a log in `out`; `name` returns the name of a descriptor's file, as `/proc/self/fd` does on a
    /// real machine.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(
        sys: S,
        out: Box<dyn Write + Send>,
        name: impl Fn(BorrowedFd<'_>) -> String + Send + Sync + 'static,
    ) -> io::Result<Self> {
        let header = Header::new(std::env::args().collect(), "library");
        let log = LogWriter::new(out, &header)?;
        Ok(Self { sys, name: Box::new(name), start: Instant::now(), log: Mutex::new(Some(log)) })
    }

    fn record(&self, began: Instant, result: i64, call: Call) {
        let event = Event {
            start_ns: began.duration_since(self.start).as_nanos() as u64,
            duration_ns: Some(began.elapsed().as_nanos() as u64),
            pid: std::process::id().cast_signed(),
            tid: nix::unistd::gettid().as_raw(),
            result,
            call,
        };
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        let written = log.as_mut().map_or(Ok(()), |log| log.event(&event).and_then(|()| log.flush()));
        if written.is_err() {
            *log = None;
        }
    }
}

fn errno(errno: Errno) -> i64 {
    -i64::from(errno as i32)
}

// SAFETY: every call is passed on to an implementation, and its answer returned as it is.
unsafe impl<S: Sys> Layer for Traced<S> {
    fn below(&self) -> &dyn Sys {
        &self.sys
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        let began = Instant::now();
        let answer = self.sys.open(path, flags);
        let result = answer.as_ref().map_or_else(|e| errno(*e), |fd| fd.as_raw_fd().into());
        let (path, flags) = (path.to_string_lossy().into_owned(), u64::from(flags.bits().cast_unsigned()));
        self.record(began, result, Call::Open { path, flags });
        answer
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        let (node, input) = ((self.name)(fd), Bytes(arg.to_vec()));
        let by_value = nvgpu_sys::BY_VALUE.contains(&request);
        let argument = match <[u8; 4]>::try_from(&*arg) {
            Ok(value) if by_value => u64::from(u32::from_ne_bytes(value)),
            _ => arg.as_ptr().expose_provenance() as u64,
        };
        let began = Instant::now();
        // SAFETY: the caller's promise.
        let answer = unsafe { self.sys.ioctl(fd, request, arg) };
        let result = answer.map_or_else(errno, i64::from);
        let call = Call::Ioctl {
            fd: fd.as_raw_fd(),
            node,
            request: Hex(request.into()),
            argument: Hex(argument),
            input: if by_value { Bytes::default() } else { input },
            output: if by_value { Bytes::default() } else { Bytes(arg.to_vec()) },
            memory: Vec::new(),
        };
        self.record(began, result, call);
        answer
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        let began = Instant::now();
        // SAFETY: the caller's promise.
        let answer = unsafe { self.sys.mmap(len, prot, flags, fd, offset) };
        let result = answer.as_ref().map_or_else(|e| errno(*e), |at| at.as_ptr() as i64);
        let call = Call::Mmap {
            fd: fd.as_raw_fd(),
            node: (self.name)(fd),
            address: Hex(0),
            length: len.get() as u64,
            protection: u64::from(prot.bits().cast_unsigned()),
            flags: u64::from(flags.bits().cast_unsigned()),
            offset: Hex(offset.cast_unsigned()),
        };
        self.record(began, result, call);
        answer
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        use std::os::fd::AsFd;
        let (number, node) = (fd.as_raw_fd(), (self.name)(fd.as_fd()));
        let began = Instant::now();
        let answer = self.sys.close(fd);
        self.record(began, answer.map_or_else(errno, |()| 0), Call::Close { fd: number, node });
        answer
    }
}
