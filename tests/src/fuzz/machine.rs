//! A machine brought up as a program does it: what later calls can name, and a channel that shows that the GPU
//! is alive.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ga10b_sim::{Sim, SimConfig};
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::*;

/// First address above those of the address spaces. No host maps memory of programs below it, so that an
/// address of the GPU which is taken for one of the host is bad.
pub(crate) const END_OF_SPACE: u64 = 0x40_0000_0000;
/// Bytes of each buffer.
const BUFFER: usize = 0x1_0000;
/// Longest time in which the GPU answers.
const DEADLINE: Duration = Duration::from_secs(10);

/// Sends a request that succeeds in a bring-up.
fn ask<A: Ioctl>(sim: &Sim, fd: &OwnedFd, mut args: A) -> A {
    // SAFETY: the requests below name no memory, and descriptors that are open.
    unsafe { call(sim, fd.as_fd(), &mut args) }.expect("the bring-up is well-formed");
    args
}

fn take(fd: i32) -> OwnedFd {
    assert!(fd > 2, "{fd} is no new descriptor");
    // SAFETY: the machine made it just now, for us.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A buffer of nvmap.
#[derive(Debug)]
pub(crate) struct Buffer {
    pub handle: u32,
    pub fd: OwnedFd,
    pub va: u64,
}

/// A machine, an address space, and what channels need.
#[derive(Debug)]
pub(crate) struct Machine {
    pub sim: Arc<Sim>,
    pub ctrl: OwnedFd,
    pub nvmap: OwnedFd,
}

impl Machine {
    pub(crate) fn new() -> Self {
        let sim = Sim::new(SimConfig { sm_count: 2, memory: 1 << 30, ..SimConfig::default() });
        let open = |path| sim.open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC).expect("a node");
        let (ctrl, nvmap) = (open(c"/dev/nvgpu/igpu0/ctrl"), open(c"/dev/nvmap"));
        Self { sim, ctrl, nvmap }
    }

    pub(crate) fn space(&self) -> OwnedFd {
        let args = nvgpu_alloc_as_args {
            flags: NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
            va_range_start: 0x20_0000,
            va_range_end: END_OF_SPACE,
            ..Default::default()
        };
        take(ask(&self.sim, &self.ctrl, args).as_fd)
    }

    /// A buffer, mapped in an address space.
    pub(crate) fn buffer(&self, space: &OwnedFd) -> Buffer {
        let size = BUFFER as u32;
        let create = NvmapIocCreate(nvmap_create_handle { size, ..Default::default() });
        let handle = ask(&self.sim, &self.nvmap, create).0.handle;
        let alloc = nvmap_alloc_handle {
            handle,
            heap_mask: NVMAP_HEAP_IOVMM,
            flags: NVMAP_HANDLE_INNER_CACHEABLE,
            align: 4096,
            numa_nid: -1,
        };
        ask(&self.sim, &self.nvmap, alloc);
        let get = NvmapIocGetFd(nvmap_create_handle { handle, ..Default::default() });
        let fd = take(ask(&self.sim, &self.nvmap, get).0.size as i32);
        let map = nvgpu_as_map_buffer_ex_args {
            compr_kind: -1,
            dmabuf_fd: fd.as_raw_fd() as u32,
            ..Default::default()
        };
        let va = ask(&self.sim, space, map).offset;
        Buffer { handle, fd, va }
    }

    /// A group, and a channel in it with a ring, and compute and copy contexts; the channel's doorbell
    /// token.
    pub(crate) fn channel(&self, space: &OwnedFd, ring: &Buffer, userd: &Buffer) -> (OwnedFd, OwnedFd, u32) {
        let sim = &*self.sim;
        let tsg = take(ask(sim, &self.ctrl, nvgpu_gpu_open_tsg_args::default()).tsg_fd as i32);
        let mut open = nvgpu_gpu_open_channel_args::default();
        open.set_in_runlist_id(-1);
        let channel = take(ask(sim, &self.ctrl, open).out_channel_fd());
        let number = channel.as_raw_fd();
        ask(sim, space, nvgpu_as_bind_channel_args { channel_fd: number as u32 });
        ask(sim, &tsg, nvgpu_tsg_bind_channel_ex_args { channel_fd: number, ..Default::default() });
        let setup = nvgpu_channel_setup_bind_args {
            num_gpfifo_entries: 1024,
            flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC
                | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
            userd_dmabuf_fd: userd.fd.as_raw_fd(),
            gpfifo_dmabuf_fd: ring.fd.as_raw_fd(),
            ..Default::default()
        };
        ask(sim, &channel, nvgpu_channel_wdt_args { wdt_status: 1, timeout_ms: 0 });
        let token = ask(sim, &channel, setup).work_submit_token;
        for class_num in [0xc7c0, 0xc7b5] {
            ask(sim, &channel, nvgpu_alloc_obj_ctx_args { class_num, ..Default::default() });
        }
        (tsg, channel, token)
    }

    /// Maps a buffer, or the page with the doorbell.
    fn map(&self, fd: BorrowedFd<'_>) -> Mapped<'_> {
        let len = NonZeroUsize::new(BUFFER).expect("not zero");
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: the memory is reached through atomics alone.
        let at = unsafe { self.sim.mmap(len, prot, MapFlags::MAP_SHARED, fd, 0) }.expect("it can be mapped");
        Mapped { sim: &self.sim, at: at.cast() }
    }

    /// Whether the GPU still executes commands: those of a channel that nothing else knows.
    pub(crate) fn answers(&self, witness: &Witness) -> bool {
        let [ring, userd, data] = [&witness.ring, &witness.userd, &witness.data];
        let (ring_bytes, userd, data_bytes) =
            (self.map(ring.fd.as_fd()), self.map(userd.fd.as_fd()), self.map(data.fd.as_fd()));
        let doorbell = self.map(self.ctrl.as_fd());
        let signal = data.va + 0x800;
        // A release of 1 by the host's semaphore methods.
        let commands = [0x2005_0017, signal as u32, (signal >> 32) as u32, 1, 0, 0x0310_0001];
        for (at, word) in commands.into_iter().enumerate() {
            data_bytes.u32(at * 4).store(word, Ordering::Relaxed);
        }
        ring_bytes.u64(0).store(data.va | (commands.len() as u64) << 42, Ordering::Release);
        userd.u32(0x8c).store(1, Ordering::Release);
        doorbell.u32(0x90).store(witness.token, Ordering::Release);
        let began = Instant::now();
        while data_bytes.u64(0x800).load(Ordering::Acquire) != 1 {
            if began.elapsed() > DEADLINE {
                return false;
            }
            std::thread::yield_now();
        }
        true
    }

    /// A channel of its own address space.
    pub(crate) fn witness(&self) -> Witness {
        let space = self.space();
        let [ring, userd, data] = [(); 3].map(|()| self.buffer(&space));
        let (tsg, channel, token) = self.channel(&space, &ring, &userd);
        Witness { ring, userd, data, token, _open: [space, tsg, channel] }
    }
}

/// A channel that nothing else knows.
#[derive(Debug)]
pub(crate) struct Witness {
    ring: Buffer,
    userd: Buffer,
    data: Buffer,
    token: u32,
    _open: [OwnedFd; 3],
}

/// [`BUFFER`] mapped bytes.
struct Mapped<'a> {
    sim: &'a Sim,
    at: NonNull<u8>,
}

impl Mapped<'_> {
    fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= BUFFER && at.is_multiple_of(4));
        // SAFETY: inside the mapping, which lives as long as `self`, and is reached through atomics alone.
        unsafe { AtomicU32::from_ptr(self.at.as_ptr().add(at).cast()) }
    }

    fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= BUFFER && at.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.at.as_ptr().add(at).cast()) }
    }
}

impl Drop for Mapped<'_> {
    fn drop(&mut self) {
        // SAFETY: mapped by `Machine::map`; the references into it have ended.
        let _ = unsafe { self.sim.munmap(self.at.cast(), BUFFER) };
    }
}
