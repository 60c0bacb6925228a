//! Requests of every node against those that the driver's own code answers.
//!
//! `data/nvgpu-requests.txt.gz` holds random sequences of calls over several channels, groups and address
//! spaces. The format is described at the head of `tools/nvgpu-oracle/requests.c`. `NVGPU_ORACLE_REQUESTS`
//! names another file to compare with.

use super::bytes::Argument;
use super::replay::{Files, NO_DESCRIPTOR, Replayed, argument_bytes, fill, hex, number, record, refused};
use crate::machine::{self, Buffer, ask};
use ga10b_sim::{Sim, SimConfig};
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{NVMAP_HANDLE_CACHEABLE, NVMAP_HEAP_IOVMM, Sys, nvmap_alloc_handle};
use std::collections::BTreeMap;
use std::ffi::{CString, c_void};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;

/// The client of a sequence.
struct Client {
    sim: Arc<Sim>,
    nvmap: OwnedFd,
    files: Files,
    buffers: Vec<Buffer>,
    doorbells: BTreeMap<usize, (NonNull<c_void>, usize)>,
}

impl Replayed for Client {
    fn new() -> Self {
        let sim = Sim::new(SimConfig { memory: 8 << 30, ..SimConfig::default() });
        let nvmap = sim.open(c"/dev/nvmap", OFlag::O_RDWR | OFlag::O_CLOEXEC).unwrap();
        Self { sim, nvmap, files: Files::default(), buffers: Vec::new(), doorbells: BTreeMap::new() }
    }

    fn sim(&self) -> &Sim {
        &self.sim
    }

    fn descriptor(&self, name: &str) -> Result<i32, String> {
        match name.as_bytes().first() {
            Some(b'f') => Ok(self.files.get(name).map_or(NO_DESCRIPTOR, AsRawFd::as_raw_fd)),
            Some(b'b') => Ok(self.buffer(name)?.fd.as_raw_fd()),
            _ => Ok(NO_DESCRIPTOR),
        }
    }

    fn run(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["O", node] => Ok(self.open(node)),
            ["B", bytes, read_only] => {
                let fresh = self.new_buffer(hex(bytes)? as usize, *read_only == "1");
                self.buffers.push(fresh);
                Ok(String::new())
            }
            ["W", buffer, at, word] => {
                let word = hex(word)? as u32;
                self.buffer(buffer)?.u32(hex(at)? as usize).store(word, std::sync::atomic::Ordering::Release);
                Ok(String::new())
            }
            ["Q", buffer, at] => {
                let at = hex(at)? as usize;
                let word =
                    |at| self.buffer(buffer).map(|b| b.u32(at).load(std::sync::atomic::Ordering::Acquire));
                Ok(format!("{:x} {:x}", word(at + 8)?, word(at + 12)?))
            }
            ["C", file] => {
                let at = number(file, 'f')?;
                let fd = self.files.take(at).ok_or("closed twice")?;
                Ok(self.sim.close(fd).map_or_else(refused, |()| "0".to_owned()))
            }
            ["D", file, bytes, page] => self.map_doorbell(file, hex(bytes)? as usize, hex(page)?),
            ["U", file] => {
                let (at, bytes) = self.doorbells.remove(&number(file, 'f')?).ok_or("unmapped twice")?;
                // SAFETY: mapped by `map_doorbell`, and used by nothing.
                Ok(unsafe { self.sim.munmap(at, bytes) }.map_or_else(refused, |()| "0".to_owned()))
            }
            ["I", file, _name, request, argument, marks @ ..] => {
                self.ioctl(file, hex(request)? as u32, argument, marks)
            }
            _ => Err("an unknown line".to_owned()),
        }
    }
}

impl Client {
    fn buffer(&self, name: &str) -> Result<&Buffer, String> {
        self.buffers.get(number(name, 'b')?).ok_or_else(|| format!("no buffer {name}"))
    }

    fn new_buffer(&self, len: usize, read_only: bool) -> Buffer {
        let handle = machine::nvmap_create(&self.sim, &self.nvmap, len as u64).unwrap();
        let mut alloc = nvmap_alloc_handle {
            handle,
            heap_mask: NVMAP_HEAP_IOVMM,
            flags: NVMAP_HANDLE_CACHEABLE,
            align: 4096,
            ..Default::default()
        };
        ask(&self.sim, self.nvmap.as_fd(), &mut alloc).unwrap();
        let mut fd = machine::nvmap_fd(&self.sim, &self.nvmap, handle).unwrap();
        let cpu = machine::map(&self.sim, fd.as_fd(), len).unwrap();
        if read_only {
            let handle = machine::nvmap_read_only(&self.sim, &self.nvmap, handle).unwrap();
            fd = machine::nvmap_fd(&self.sim, &self.nvmap, handle).unwrap();
        }
        Buffer { fd, handle, len, cpu, va: 0 }
    }

    fn open(&mut self, node: &str) -> String {
        let path = CString::new(format!("/dev/nvgpu/igpu0/{node}")).expect("no zero in it");
        match self.sim.open(&path, OFlag::O_RDWR | OFlag::O_CLOEXEC) {
            Ok(fd) => self.files.keep(fd),
            Err(errno) => refused(errno),
        }
    }

    fn map_doorbell(&mut self, file: &str, bytes: usize, page: u64) -> Result<String, String> {
        let length = NonZeroUsize::new(bytes).ok_or("no bytes")?;
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let offset = (page * 4096) as i64;
        let fd = self.files.get(file)?.as_fd();
        // SAFETY: a new mapping at an address that the kernel chooses.
        let mapped = unsafe { self.sim.mmap(length, prot, MapFlags::MAP_SHARED, fd, offset) };
        Ok(match mapped {
            Ok(at) => {
                self.doorbells.insert(number(file, 'f')?, (at, bytes));
                "0".to_owned()
            }
            Err(errno) => refused(errno),
        })
    }

    fn ioctl(&mut self, file: &str, request: u32, text: &str, marks: &[&str]) -> Result<String, String> {
        let mut argument = Argument::parse(argument_bytes(request), text, marks)?;
        fill(self, &mut argument)?;
        let fd = self.files.get(file)?.as_fd();
        // SAFETY: addresses in the argument are those of `memories`, of the sizes that the record announces,
        // or of no memory.
        match unsafe { self.sim.ioctl(fd, request, &mut argument.bytes) } {
            Ok(0) => {
                let made = argument.made().map(|fd| {
                    // SAFETY: the driver made it for us just now.
                    self.files.keep(unsafe { OwnedFd::from_raw_fd(fd) })
                });
                Ok(argument.answer(made))
            }
            Ok(left) => Ok(format!("+{left:x}")),
            Err(errno) => Ok(refused(errno)),
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.doorbells).into_values() {
            // SAFETY: mapped by `map_doorbell`, and used by nothing.
            let _ = unsafe { self.sim.munmap(at, bytes) };
        }
        self.files.close(&self.sim);
    }
}

/// Answers, errnos and what later calls see of earlier ones are the driver's, for any sequence of requests.
#[test]
fn requests_are_answered_as_by_the_driver() {
    let bytes = record("NVGPU_ORACLE_REQUESTS", include_bytes!("../../data/nvgpu-requests.txt.gz"));
    super::replay::compare::<Client>(&bytes);
}
