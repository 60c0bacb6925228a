//! Sequences of system calls on the software ga10b.
//!
//! They begin with a bring-up, and take their arguments from what it and earlier calls made, so that calls
//! succeed as well as fail. The fields of the arguments are those of nvdiag's table.

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags, mmap_anonymous, mprotect, munmap};
use nvdiag::trace::abi::{Family, Field, Layout, find};
use nvgpu_sys::{NVMAP_IOC_FREE, REQUESTS, Request, Sys};
use rand::Rng;
use rand::rngs::StdRng;

use crate::fuzz::machine::{END_OF_SPACE, Machine};
use crate::fuzz::mutate::{awkward, pick};
use crate::fuzz::target::{Fuzz, Target};

/// Sequences of system calls.
pub(crate) const IOCTL: Target = Target {
    name: "ioctl",
    about: "a bring-up and requests with arguments that fit, nearly fit, or do not: the GPU executes commands after it",
    bound: Duration::from_secs(60),
    start: || Box::new(Ioctls { scratch: Scratch::new(), succeeded: BTreeSet::new(), calls: 0, good: 0 }),
};

/// Every errno that the drivers answer with.
const ANSWERS: [Errno; 19] = [
    Errno::EADDRNOTAVAIL,
    Errno::EINVAL,
    Errno::ENOTTY,
    Errno::EFAULT,
    Errno::ENOMEM,
    Errno::ENOSPC,
    Errno::EBADF,
    Errno::ENODEV,
    Errno::ENOSYS,
    Errno::EEXIST,
    Errno::EPERM,
    Errno::EALREADY,
    Errno::EMFILE,
    Errno::ETIMEDOUT,
    Errno::EIO,
    Errno::ENXIO,
    Errno::ENOENT,
    Errno::EBUSY,
    Errno::EAGAIN,
];

/// Memory that arguments may point to: what would be written after its end is not mapped.
struct Scratch {
    at: NonNull<u64>,
}

impl Scratch {
    const LEN: usize = 64 << 10;
    /// Longer than what one request writes.
    const GUARD: usize = 1 << 32;

    fn new() -> Self {
        let len = NonZeroUsize::new(Self::LEN + Self::GUARD).expect("not zero");
        let flags = MapFlags::MAP_PRIVATE | MapFlags::MAP_NORESERVE;
        // SAFETY: a new mapping, whose first part alone becomes accessible.
        let at = unsafe {
            let at = mmap_anonymous(None, len, ProtFlags::PROT_NONE, flags).expect("addresses");
            mprotect(at, Self::LEN, ProtFlags::PROT_READ | ProtFlags::PROT_WRITE).expect("memory");
            at
        };
        Self { at: at.cast() }
    }

    fn address(&self) -> u64 {
        self.at.as_ptr().expose_provenance() as u64
    }

    /// Fills the first words and leaves the rest.
    fn fill(&mut self, words: &[u64]) {
        assert!(words.len() * 8 <= Self::LEN);
        // SAFETY: inside the accessible part, to which no reference exists.
        unsafe { self.at.as_ptr().copy_from_nonoverlapping(words.as_ptr(), words.len()) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`, not used any more.
        let _ = unsafe { munmap(self.at.cast(), Self::LEN + Self::GUARD) };
    }
}

struct Ioctls {
    scratch: Scratch,
    /// Requests that succeeded.
    succeeded: BTreeSet<u32>,
    calls: u64,
    good: u64,
}

/// The values that arguments can name.
struct Pool {
    /// Descriptors, each with the magic of the requests that it takes; those of buffers have none.
    fds: Vec<(u8, OwnedFd)>,
    handles: Vec<u32>,
    addresses: Vec<u64>,
    scratch: u64,
}

impl Fuzz for Ioctls {
    fn case(&mut self, rng: &mut StdRng) {
        let machine = Machine::new();
        let witness = machine.witness();
        let mut pool = bring_up(&machine, self.scratch.address());
        for _ in 0..rng.random_range(1..200) {
            if rng.random_ratio(1, 40) && pool.fds.len() > 8 {
                let (_, fd) = pool.fds.swap_remove(rng.random_range(0..pool.fds.len()));
                let _ = machine.sim.close(fd);
                continue;
            }
            let request = pick(rng, REQUESTS);
            let words: Vec<u64> = (0..64).map(|_| pool.double_word(rng)).collect();
            self.scratch.fill(&words);
            let answer = pool.call(rng, &machine, request);
            self.calls += 1;
            match answer {
                Ok(()) => {
                    self.good += 1;
                    self.succeeded.insert(request.request);
                }
                // The driver's answer to a copy that ends early, `nvmap_ioctl_rw_handle`, and to a wait for a
                // notification that times out, `gk20a_channel_wait`.
                Err(Errno::EINTR) => {
                    let known = ["NVMAP_IOC_WRITE", "NVMAP_IOC_READ", "NVGPU_IOCTL_CHANNEL_WAIT"];
                    assert!(known.contains(&request.name));
                }
                Err(errno) => assert!(ANSWERS.contains(&errno), "{}: {errno}", request.name),
            }
        }
        for (_, fd) in pool.fds {
            let _ = machine.sim.close(fd);
        }
        assert!(machine.answers(&witness), "the GPU executes no more commands");
    }

    fn summary(&self) -> String {
        let (calls, good, requests) = (self.calls, self.good, self.succeeded.len());
        format!("{good} of {calls} calls succeeded, of {requests} of {} requests", REQUESTS.len())
    }
}

/// One descriptor of every kind, a buffer, and a channel that works.
fn bring_up(machine: &Machine, scratch: u64) -> Pool {
    let open = |path| machine.sim.open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC).expect("a node");
    let space = machine.space();
    let buffers = [(); 3].map(|()| machine.buffer(&space));
    let (tsg, channel, _) = machine.channel(&space, &buffers[0], &buffers[1]);
    let handles = buffers.iter().map(|buffer| buffer.handle).collect();
    let addresses = buffers.iter().map(|buffer| buffer.va).collect();
    let mut fds = vec![
        (b'G', open(c"/dev/nvgpu/igpu0/ctrl")),
        (b'N', open(c"/dev/nvmap")),
        (b'H', open(c"/dev/nvgpu/igpu0/channel")),
        (b'T', open(c"/dev/nvgpu/igpu0/tsg")),
        (b'D', open(c"/dev/nvgpu/igpu0/dbg")),
        (b'D', open(c"/dev/nvgpu/igpu0/prof")),
        (b'P', open(c"/dev/nvgpu/igpu0/prof-dev")),
        (b'S', open(c"/dev/nvgpu/igpu0/sched")),
        (b'C', open(c"/dev/nvgpu/igpu0/ctxsw")),
        (b'A', space),
        (b'T', tsg),
        (b'H', channel),
    ];
    fds.extend(buffers.into_iter().map(|buffer| (0, buffer.fd)));
    Pool { fds, handles, addresses, scratch }
}

impl Pool {
    /// A descriptor for requests of that magic, or any if there is none or now and then.
    fn descriptor(&self, rng: &mut StdRng, magic: u8) -> BorrowedFd<'_> {
        let fitting: Vec<&OwnedFd> =
            self.fds.iter().filter(|(kind, _)| *kind == magic).map(|(_, fd)| fd).collect();
        match fitting.is_empty() || rng.random_ratio(1, 32) {
            true => pick(rng, &self.fds).1.as_fd(),
            false => fitting[rng.random_range(0..fitting.len())].as_fd(),
        }
    }

    /// A value for eight bytes: never an address of the host but that of the scratch memory.
    fn double_word(&self, rng: &mut StdRng) -> u64 {
        let value = match rng.random_range(0..8) {
            0 => 0,
            1 => self.scratch,
            2 if !self.addresses.is_empty() => *pick(rng, &self.addresses),
            3 => rng.random_range(0..64) << 12,
            4 => u64::from(self.word(rng)) << 32 | u64::from(self.word(rng)),
            5 => rng.random_range(0..64),
            _ => awkward(rng),
        };
        self.harmless(value)
    }

    fn harmless(&self, value: u64) -> u64 {
        let host = END_OF_SPACE..1 << 56;
        if value != self.scratch && host.contains(&value) { value & 0xffff_ffff } else { value }
    }

    /// A value for four bytes.
    fn word(&self, rng: &mut StdRng) -> u32 {
        match rng.random_range(0..6) {
            0 => 0,
            1 => pick(rng, &self.fds).1.as_raw_fd() as u32,
            2 if !self.handles.is_empty() => *pick(rng, &self.handles),
            3 => rng.random_range(0..64),
            4 => rng.random_range(0..16) << 12,
            _ => awkward(rng) as u32,
        }
    }

    /// A value for a field, by its name.
    fn value(&self, rng: &mut StdRng, field: &Field) -> u64 {
        let name = field.name;
        if name.contains("timeout") {
            return rng.random_range(1..4);
        }
        if name.contains("stride") {
            return rng.random_range(0..64);
        }
        if rng.random_ratio(1, 8) {
            return if field.width == 8 { self.double_word(rng) } else { u64::from(self.word(rng)) };
        }
        let has = |part| name.contains(part);
        match name {
            _ if has("fd") => {
                let kind = match name {
                    _ if has("channel") => b'H',
                    _ if has("tsg") => b'T',
                    _ if has("as_") => b'A',
                    _ => 0,
                };
                self.descriptor(rng, kind).as_raw_fd() as u64
            }
            _ if has("handle") && field.width == 4 && !self.handles.is_empty() => {
                u64::from(*pick(rng, &self.handles))
            }
            _ if has("class") => *pick(rng, &[0xc7c0, 0xc7b5, 0xc797, 0xa140, 0x902d, 0]),
            _ if has("flags") => *pick(rng, &[0, 0, 1, 2, 4, 5, 8, 16, 0x100, 0x8000_0000]),
            _ if has("reserved") || has("pad") => 0,
            "va_range_start" => 0x20_0000,
            "va_range_end" => END_OF_SPACE,
            "va_range_split" => 0,
            _ if has("align") => *pick(rng, &[0, 4096, 65536]),
            _ if has("kind") || has("numa") => *pick(rng, &[u64::MAX, 0]),
            _ if has("page_size") => *pick(rng, &[0, 4096, 4096, 65536]),
            _ if has("heap") => *pick(rng, &[0x4000_0000, 0x4000_0000, 1, 0x8000_0000]),
            _ if has("size") || has("len") || has("num") || has("count") || has("pages") => {
                *pick(rng, &[0, 1, 1, 2, 8, 16, 24, 64, 256, 4096, 65536, 1 << 20])
            }
            _ if field.width == 8
                && (has("addr") || has("buf") || has("mem") || has("ops") || has("maps")) =>
            {
                self.scratch
            }
            _ if field.width == 8 && (has("offset") || has("va")) && rng.random() => {
                self.addresses.last().copied().unwrap_or(0)
            }
            _ if field.width == 8 => self.double_word(rng),
            _ if rng.random() => rng.random_range(0..8),
            _ => u64::from(self.word(rng)),
        }
    }

    fn argument(&self, rng: &mut StdRng, request: &Request, layout: Option<&Layout>) -> Vec<u8> {
        let mut bytes = vec![0; request.size];
        for field in layout.iter().flat_map(|layout| &layout.fields) {
            // Fields that share their bytes: now this one, now that. A wait whose timeout is 0 has no end.
            let is_left_out = rng.random_ratio(1, 16) && field.name != "timeout";
            if field.width > 8 || is_left_out {
                continue;
            }
            for index in 0..field.count {
                let at = field.offset + index * field.width;
                let value = self.value(rng, field).to_le_bytes();
                bytes[at..at + field.width].copy_from_slice(&value[..field.width]);
            }
        }
        // Fields that others overlap.
        for field in layout.iter().flat_map(|layout| &layout.fields).filter(|field| field.width == 8) {
            for at in (0..field.count).map(|index| field.offset + index * 8) {
                if let Some(place) = bytes[at..].first_chunk_mut::<8>() {
                    *place = self.harmless(u64::from_le_bytes(*place)).to_le_bytes();
                }
            }
        }
        bytes
    }

    fn call(&mut self, rng: &mut StdRng, machine: &Machine, request: &Request) -> Result<(), Errno> {
        if request.request == NVMAP_IOC_FREE {
            return self.free(rng, machine);
        }
        let layout = find(Family::Tegra, request.request).and_then(|known| known.layout(request.size));
        let before = self.argument(rng, request, layout);
        let mut bytes = before.clone();
        let fd = self.descriptor(rng, (request.request >> 8) as u8);
        // SAFETY: what looks like an address of the host is that of the scratch memory, behind which nothing
        // is mapped; descriptors are open, and only NVMAP_IOC_FREE closes one.
        unsafe { machine.sim.ioctl(fd, request.request, &mut bytes) }?;
        for field in layout.iter().flat_map(|layout| &layout.fields) {
            let (old, new) = (field.value(&before, 0), field.value(&bytes, 0));
            if let Some(new) = new.filter(|_| new != old) {
                self.learn(machine, request, field, new);
            }
        }
        Ok(())
    }

    /// Keeps what a request answered, for those that follow.
    fn learn(&mut self, machine: &Machine, request: &Request, field: &Field, value: u64) {
        let is_known = |fd: i32| self.fds.iter().any(|(_, known)| known.as_raw_fd() == fd);
        if field.name.contains("fd") {
            let Some(number) = i32::try_from(value).ok().filter(|fd| *fd > 2 && !is_known(*fd)) else {
                return;
            };
            // SAFETY: a descriptor that a request has just made, for us.
            let fd = unsafe { OwnedFd::from_raw_fd(number) };
            let kind = match (field.name, machine.sim.descriptor_name(fd.as_fd())) {
                (name, Some(_)) if name.contains("channel") => b'H',
                (name, Some(_)) if name.contains("tsg") => b'T',
                (name, Some(_)) if name.contains("as_fd") => b'A',
                _ => 0,
            };
            self.fds.push((kind, fd));
        } else if field.name.contains("handle") && request.request >> 8 & 0xff == u32::from(b'N') {
            self.handles.push(value as u32);
        } else if field.width == 8 && (field.name == "offset" || field.name == "o_a") {
            self.addresses.push(value);
        }
    }

    /// Frees a handle; or a descriptor of a buffer, which closes it.
    fn free(&mut self, rng: &mut StdRng, machine: &Machine) -> Result<(), Errno> {
        let is_buffer =
            |fd: &OwnedFd| machine.sim.owns(fd.as_fd()) && machine.sim.descriptor_name(fd.as_fd()).is_none();
        let buffers: Vec<&OwnedFd> = self.fds.iter().map(|(_, fd)| fd).filter(|fd| is_buffer(fd)).collect();
        let nvmap = self.descriptor(rng, b'N');
        let send = |value: u32| {
            // SAFETY: a handle, or a descriptor that nothing else uses.
            unsafe { machine.sim.ioctl(nvmap, NVMAP_IOC_FREE, &mut value.to_ne_bytes()) }
        };
        if buffers.is_empty() || rng.random_ratio(3, 4) {
            let handle = if self.handles.is_empty() { 1 << 31 } else { *pick(rng, &self.handles) };
            return send(handle).map(drop);
        }
        let number = pick(rng, &buffers).try_clone().map_err(|_| Errno::EMFILE)?.into_raw_fd();
        send(number as u32).map(drop).inspect_err(|_| {
            // SAFETY: the request that closes it was refused.
            drop(unsafe { OwnedFd::from_raw_fd(number) });
        })
    }
}
