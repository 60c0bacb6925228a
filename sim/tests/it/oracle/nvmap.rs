//! Requests of nvmap against those that its own code answers.
//!
//! `data/nvmap-requests.txt.gz` holds random sequences of calls. The format is described at the head of
//! `tools/nvgpu-oracle/nvmap/client.c`. `NVGPU_ORACLE_NVMAP` names another file to compare with.

use super::bytes::Argument;
use super::replay::{
    Files, NO_DESCRIPTOR, Replayed, argument_bytes, compare, fill, hex, number, record, refused,
};
use ga10b_sim::{Sim, SimConfig};
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::{NVMAP_IOC_FREE, NVMAP_IOC_GET_FD, Sys};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// The client of a sequence.
struct Client {
    sim: Arc<Sim>,
    files: Files,
    /// Those that are the node.
    nodes: Vec<usize>,
    /// Handles that nvmap made, in their order.
    handles: Vec<i32>,
    mappings: Vec<Option<(NonNull<u8>, usize)>>,
}

impl Replayed for Client {
    fn new() -> Self {
        let sim = Sim::new(SimConfig { memory: 8 << 30, ..SimConfig::default() });
        Self { sim, files: Files::default(), nodes: Vec::new(), handles: Vec::new(), mappings: Vec::new() }
    }

    fn sim(&self) -> &Sim {
        &self.sim
    }

    fn descriptor(&self, name: &str) -> Result<i32, String> {
        match name.as_bytes().first() {
            Some(b'f') => Ok(self.files.get(name)?.as_raw_fd()),
            Some(b'b') => {
                self.handles.get(number(name, 'b')?).copied().ok_or_else(|| format!("no handle {name}"))
            }
            _ => Ok(NO_DESCRIPTOR),
        }
    }

    fn mapping(&self, name: &str) -> Result<u64, String> {
        Ok(self.mapped(name)?.0.as_ptr() as u64)
    }

    fn run(&mut self, words: &[&str]) -> Result<String, String> {
        match words {
            ["O", "nvmap"] => {
                self.nodes.push(self.files.len());
                let fd = self.sim.open(c"/dev/nvmap", OFlag::O_RDWR | OFlag::O_CLOEXEC);
                fd.map(|fd| self.files.keep(fd)).map_err(refused)
            }
            ["C", file] => {
                let fd = self.files.take(number(file, 'f')?).ok_or("closed twice")?;
                Ok(self.sim.close(fd).map_or_else(refused, |()| "0".to_owned()))
            }
            ["M", file, bytes, page, writes] => {
                self.map(file, hex(bytes)? as usize, hex(page)?, *writes == "1")
            }
            ["U", mapping] => {
                let (at, bytes) = self.mapped(mapping)?;
                self.mappings[number(mapping, 'm')?] = None;
                // SAFETY: mapped by `map`, and used by nothing.
                Ok(unsafe { self.sim.munmap(at.cast(), bytes) }.map_or_else(refused, |()| "0".to_owned()))
            }
            ["W", mapping, at, word] => {
                self.word(mapping, at)?.store(hex(word)? as u32, Ordering::Release);
                Ok(String::new())
            }
            ["Q", mapping, at] => Ok(format!("{:x}", self.word(mapping, at)?.load(Ordering::Acquire))),
            ["I", file, _name, request, argument, marks @ ..] => {
                self.ioctl(file, hex(request)? as u32, argument, marks)
            }
            _ => Err("an unknown line".to_owned()),
        }
    }
}

impl Client {
    fn mapped(&self, name: &str) -> Result<(NonNull<u8>, usize), String> {
        self.mappings.get(number(name, 'm')?).copied().flatten().ok_or_else(|| format!("no mapping {name}"))
    }

    fn map(&mut self, file: &str, bytes: usize, page: u64, writes: bool) -> Result<String, String> {
        let length = NonZeroUsize::new(bytes).ok_or("no bytes")?;
        let prot = if writes { ProtFlags::PROT_READ | ProtFlags::PROT_WRITE } else { ProtFlags::PROT_READ };
        let (fd, offset) = (self.files.get(file)?.as_fd(), (page * 4096) as i64);
        // SAFETY: a new mapping at an address that the kernel chooses.
        match unsafe { self.sim.mmap(length, prot, MapFlags::MAP_SHARED, fd, offset) } {
            Ok(at) => {
                self.mappings.push(Some((at.cast(), bytes)));
                Ok("0".to_owned())
            }
            Err(errno) => Ok(refused(errno)),
        }
    }

    fn word(&self, mapping: &str, at: &str) -> Result<&AtomicU32, String> {
        let (start, _) = self.mapped(mapping)?;
        // SAFETY: the record touches words of mappings that are there, and writes to those that permit it.
        Ok(unsafe { AtomicU32::from_ptr(start.as_ptr().add(hex(at)? as usize).cast()) })
    }

    fn ioctl(&mut self, file: &str, request: u32, text: &str, marks: &[&str]) -> Result<String, String> {
        let mut argument = Argument::parse(argument_bytes(request), text, marks)?;
        fill(self, &mut argument)?;
        let before = argument.bytes.clone();
        if request == NVMAP_IOC_FREE
            && let Some(name) = marks.first().and_then(|mark| mark.strip_prefix("d0="))
            && let Ok(at) = number(name, 'f')
            && !self.nodes.contains(&at)
        {
            // The driver closes it.
            let _ = self.files.take(at).map(IntoRawFd::into_raw_fd);
        }
        let fd = self.files.get(file)?.as_fd();
        // SAFETY: addresses in the argument are those of `memories`, of the sizes that the record announces,
        // of mappings, or of no memory.
        let answer = unsafe { self.sim.ioctl(fd, request, &mut argument.bytes) };
        match answer {
            Ok(_) => {
                let made = argument.made().map(|made| self.name(request, made));
                Ok(argument.answer(made))
            }
            Err(errno) if argument.bytes == before => Ok(refused(errno)),
            Err(errno) => Ok(format!("{} {}", refused(errno), argument.answer(None))),
        }
    }

    /// Keeps the file or handle that a call made: its name in the record.
    fn name(&mut self, request: u32, made: i32) -> String {
        if request == NVMAP_IOC_GET_FD {
            // SAFETY: nvmap made it for us just now.
            return self.files.keep(unsafe { OwnedFd::from_raw_fd(made) });
        }
        self.handles.push(made);
        format!("b{}", self.handles.len() - 1)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        for (at, bytes) in std::mem::take(&mut self.mappings).into_iter().flatten() {
            // SAFETY: mapped by `map`, and used by nothing.
            let _ = unsafe { self.sim.munmap(at.cast(), bytes) };
        }
        self.files.close(&self.sim);
    }
}

/// Answers, errnos, the contents of memory and the effects on later calls are nvmap's, for any sequence of
/// requests.
#[test]
fn nvmap_answers_as_its_own_code() {
    let bytes = record("NVGPU_ORACLE_NVMAP", include_bytes!("../../data/nvmap-requests.txt.gz"));
    compare::<Client>(&bytes);
}
