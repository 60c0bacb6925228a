//! A small client of the driver for these tests: every step of a bring-up as one call.

pub mod kernel;

use ga10b_sim::{Sim, SimConfig};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::*;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Windows as the field notes use them.
pub const SHARED_WINDOW: u64 = 0xfe_0000_0000;
pub const LOCAL_WINDOW: u64 = 0xfd_0000_0000;
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Sends a request.
pub fn ask<A: Ioctl>(sim: &Sim, fd: BorrowedFd<'_>, args: &mut A) -> Result<i32, Errno> {
    // SAFETY: the tests pass addresses of live buffers of the sizes they announce.
    unsafe { call(sim, fd, args) }.map_err(|e| e.errno)
}

/// A request without an argument.
pub fn ask_bare(sim: &Sim, fd: BorrowedFd<'_>, request: u32) -> Result<i32, Errno> {
    // SAFETY: no argument.
    unsafe { sim.ioctl(fd, request, &mut []) }
}

/// A descriptor that an argument returned.
pub fn take(fd: i32) -> OwnedFd {
    assert!(fd > 2);
    // SAFETY: the driver made it for us just now.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A buffer: allocated, mapped by the CPU, perhaps by the GPU.
pub struct Buffer {
    pub fd: OwnedFd,
    pub handle: u32,
    pub len: usize,
    pub cpu: NonNull<u8>,
    pub va: u64,
}

impl Buffer {
    pub fn u32(&self, at: usize) -> &AtomicU32 {
        assert!(at + 4 <= self.len && at.is_multiple_of(4));
        // SAFETY: inside the mapping, which lives as long as the process.
        unsafe { AtomicU32::from_ptr(self.cpu.as_ptr().add(at).cast()) }
    }

    pub fn u64(&self, at: usize) -> &AtomicU64 {
        assert!(at + 8 <= self.len && at.is_multiple_of(8));
        // SAFETY: as above.
        unsafe { AtomicU64::from_ptr(self.cpu.as_ptr().add(at).cast()) }
    }

    pub fn write(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.len);
        // SAFETY: inside the mapping.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.cpu.as_ptr().add(at), bytes.len()) };
    }

    pub fn read(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.len);
        let mut bytes = vec![0; len];
        // SAFETY: inside the mapping.
        unsafe { std::ptr::copy_nonoverlapping(self.cpu.as_ptr().add(at), bytes.as_mut_ptr(), len) };
        bytes
    }

    pub fn words(&self, at: usize, count: usize) -> Vec<u32> {
        (0..count).map(|i| self.u32(at + i * 4).load(Ordering::Acquire)).collect()
    }
}

/// The machine with an address space and the doorbell.
pub struct Machine {
    pub sim: Arc<Sim>,
    pub ctrl: OwnedFd,
    pub nvmap: OwnedFd,
    pub space: OwnedFd,
    pub doorbell: NonNull<u8>,
}

// SAFETY: the doorbell page is only written through atomics.
unsafe impl Sync for Machine {}
// SAFETY: as above.
unsafe impl Send for Machine {}

impl Machine {
    pub fn new() -> Self {
        Self::with(SimConfig { sm_count: 4, memory: 4 << 30, ..SimConfig::default() })
    }

    pub fn with(config: SimConfig) -> Self {
        let sim = Sim::new(config);
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let ctrl = sim.open(c"/dev/nvgpu/igpu0/ctrl", flags).unwrap();
        let nvmap = sim.open(c"/dev/nvmap", flags).unwrap();
        let space = new_space(&sim, &ctrl);
        for offset in [LOCAL_WINDOW, SHARED_WINDOW] {
            let mut args = nvgpu_as_alloc_space_args {
                pages: 1 << 18,
                page_size: 4096,
                flags: NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET,
                o_a: offset,
                ..Default::default()
            };
            ask(&sim, space.as_fd(), &mut args).unwrap();
        }
        let doorbell = map(&sim, ctrl.as_fd(), 0x1_0000).unwrap();
        Self { sim, ctrl, nvmap, space, doorbell }
    }

    /// A buffer that only the CPU maps, cacheable.
    pub fn host_buffer(&self, len: usize) -> Buffer {
        self.host_buffer_of(len, NVMAP_HANDLE_INNER_CACHEABLE)
    }

    /// One whose CPU mappings are of a kind (`NVMAP_HANDLE_*`).
    pub fn host_buffer_of(&self, len: usize, caching: u32) -> Buffer {
        let handle = nvmap_create(&self.sim, &self.nvmap, len as u64).unwrap();
        let mut alloc = nvmap_alloc_handle {
            handle,
            heap_mask: NVMAP_HEAP_IOVMM,
            flags: caching | 0x0900 << 16,
            align: 4096,
            numa_nid: -1,
        };
        ask(&self.sim, self.nvmap.as_fd(), &mut alloc).unwrap();
        let fd = nvmap_fd(&self.sim, &self.nvmap, handle).unwrap();
        let cpu = map(&self.sim, fd.as_fd(), len).unwrap();
        Buffer { fd, handle, len, cpu, va: 0 }
    }

    /// A buffer that both map.
    pub fn buffer(&self, len: usize) -> Buffer {
        self.buffer_of(len, NVMAP_HANDLE_INNER_CACHEABLE)
    }

    pub fn buffer_of(&self, len: usize, caching: u32) -> Buffer {
        let mut buffer = self.host_buffer_of(len, caching);
        buffer.va = self.map_gpu(&buffer).unwrap();
        buffer
    }

    pub fn map_gpu(&self, buffer: &Buffer) -> Result<u64, Errno> {
        let mut args = nvgpu_as_map_buffer_ex_args {
            compr_kind: -1,
            incompr_kind: 0,
            dmabuf_fd: buffer.fd.as_raw_fd() as u32,
            ..Default::default()
        };
        ask(&self.sim, self.space.as_fd(), &mut args)?;
        Ok(args.offset)
    }

    pub fn ring(&self, token: u32) {
        // SAFETY: the doorbell page is 64 KiB.
        unsafe { AtomicU32::from_ptr(self.doorbell.as_ptr().add(0x90).cast()) }
            .store(token, Ordering::Release);
    }

    pub fn tsg(&self) -> OwnedFd {
        let mut args = nvgpu_gpu_open_tsg_args::default();
        ask(&self.sim, self.ctrl.as_fd(), &mut args).unwrap();
        take(args.tsg_fd as i32)
    }

    /// A channel in user-mode submit, in its own group, with compute and copy contexts.
    pub fn channel(&self) -> Channel<'_> {
        let tsg = self.tsg();
        self.channel_in(tsg)
    }

    pub fn channel_in(&self, tsg: OwnedFd) -> Channel<'_> {
        self.channel_on(tsg, -1, &[0xc7c0, 0xc7b5])
    }

    /// A channel on the runlist of an asynchronous copy engine.
    pub fn copy_channel(&self) -> Channel<'_> {
        self.channel_on(self.tsg(), 1, &[0xc7b5])
    }

    /// Returns when every channel that had something to do has had its turn: in each pass the GPU serves all
    /// channels, and its own channel sees two passes.
    pub fn settle(&self) {
        let mut witness = self.channel();
        let signal = self.buffer(4096);
        for value in 1..=2 {
            witness.submit(&release(signal.va, value));
            witness.wait(signal.u64(0), value);
        }
    }

    fn channel_on(&self, tsg: OwnedFd, runlist: i32, classes: &[u32]) -> Channel<'_> {
        self.channel_of(tsg, (runlist, 0), classes, NVMAP_HANDLE_INNER_CACHEABLE)
    }

    /// A channel of a subcontext, whose ring and USERD are in memory of a kind.
    pub fn channel_of(
        &self,
        tsg: OwnedFd,
        (runlist, veid): (i32, u32),
        classes: &[u32],
        caching: u32,
    ) -> Channel<'_> {
        let sim = &*self.sim;
        if veid != 0 {
            let mut subcontext = nvgpu_tsg_create_subcontext_args {
                type_: NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC,
                as_fd: self.space.as_raw_fd(),
                ..Default::default()
            };
            ask(sim, tsg.as_fd(), &mut subcontext).unwrap();
            assert_eq!(subcontext.veid, veid);
        }
        let mut open = nvgpu_gpu_open_channel_args::default();
        open.set_in_runlist_id(runlist);
        ask(sim, self.ctrl.as_fd(), &mut open).unwrap();
        let fd = take(open.out_channel_fd());
        let number = fd.as_raw_fd();
        ask(sim, self.space.as_fd(), &mut nvgpu_as_bind_channel_args { channel_fd: number as u32 }).unwrap();
        let mut bind =
            nvgpu_tsg_bind_channel_ex_args { channel_fd: number, subcontext_id: veid, ..Default::default() };
        ask(sim, tsg.as_fd(), &mut bind).unwrap();
        ask(sim, fd.as_fd(), &mut nvgpu_channel_wdt_args { wdt_status: 1, timeout_ms: 0 }).unwrap();
        let gpfifo = self.host_buffer_of(0x2000, caching);
        let userd = self.host_buffer_of(0x1000, caching);
        let mut setup = nvgpu_channel_setup_bind_args {
            num_gpfifo_entries: 1024,
            flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC
                | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
            userd_dmabuf_fd: userd.fd.as_raw_fd(),
            gpfifo_dmabuf_fd: gpfifo.fd.as_raw_fd(),
            ..Default::default()
        };
        ask(sim, fd.as_fd(), &mut setup).unwrap();
        for &class in classes {
            let mut args = nvgpu_alloc_obj_ctx_args { class_num: class, ..Default::default() };
            ask(sim, fd.as_fd(), &mut args).unwrap();
        }
        let notifier = self.host_buffer(0x1000);
        let mut args =
            nvgpu_set_error_notifier { size: 16, mem: notifier.fd.as_raw_fd() as u32, ..Default::default() };
        ask(sim, fd.as_fd(), &mut args).unwrap();
        let commands = self.buffer(0x40000);
        let token = setup.work_submit_token;
        Channel { machine: self, fd, tsg, gpfifo, userd, notifier, commands, token, put: 0, at: 0 }
    }
}

/// Creates an nvmap handle.
pub fn nvmap_create(sim: &Sim, nvmap: &OwnedFd, size: u64) -> Result<u32, Errno> {
    let mut bytes = size.to_ne_bytes();
    // SAFETY: no pointers.
    unsafe { sim.ioctl(nvmap.as_fd(), NVMAP_IOC_CREATE_64, &mut bytes)? };
    Ok(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// A descriptor of a handle's buffer.
pub fn nvmap_fd(sim: &Sim, nvmap: &OwnedFd, handle: u32) -> Result<OwnedFd, Errno> {
    let mut bytes = [0; 8];
    bytes[4..].copy_from_slice(&handle.to_ne_bytes());
    // SAFETY: no pointers.
    unsafe { sim.ioctl(nvmap.as_fd(), NVMAP_IOC_GET_FD, &mut bytes)? };
    Ok(take(i32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
}

/// A handle of what may only be read of a handle's buffer.
pub fn nvmap_read_only(sim: &Sim, nvmap: &OwnedFd, handle: u32) -> Result<u32, Errno> {
    let mut args = nvmap_duplicate_handle { handle, access_flags: NVMAP_HANDLE_RO, dup_handle: 0 };
    ask(sim, nvmap.as_fd(), &mut args)?;
    Ok(args.dup_handle)
}

/// Frees a handle.
pub fn nvmap_free(sim: &Sim, nvmap: &OwnedFd, handle: u32) {
    // SAFETY: no pointers.
    let done = unsafe { sim.ioctl(nvmap.as_fd(), NVMAP_IOC_FREE, &mut handle.to_ne_bytes()) };
    assert_eq!(done, Ok(0));
}

/// An address space with the safe range.
pub fn new_space(sim: &Sim, ctrl: &OwnedFd) -> OwnedFd {
    let mut args = nvgpu_alloc_as_args {
        flags: NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
        va_range_start: 0x20_0000,
        va_range_end: 0xff_0000_0000,
        ..Default::default()
    };
    ask(sim, ctrl.as_fd(), &mut args).unwrap();
    take(args.as_fd)
}

/// Maps a descriptor.
pub fn map(sim: &Sim, fd: BorrowedFd<'_>, len: usize) -> Result<NonNull<u8>, Errno> {
    let len = NonZeroUsize::new(len).unwrap();
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the memory is reached through raw pointers and atomics.
    unsafe { sim.mmap(len, prot, MapFlags::MAP_SHARED, fd, 0) }.map(NonNull::cast)
}

/// A channel and its memory.
pub struct Channel<'a> {
    pub machine: &'a Machine,
    pub fd: OwnedFd,
    pub tsg: OwnedFd,
    pub gpfifo: Buffer,
    pub userd: Buffer,
    pub notifier: Buffer,
    pub commands: Buffer,
    pub token: u32,
    pub put: u32,
    pub at: usize,
}

/// Header of `count` words that go to consecutive methods.
pub fn inc(subchannel: u32, method: u32, count: u32) -> u32 {
    1 << 29 | count << 16 | subchannel << 13 | method >> 2
}

/// Words that release `payload` at `va` with a timestamp, 64 bits.
pub fn release(va: u64, payload: u64) -> [u32; 6] {
    [inc(0, 0x5c, 5), va as u32, (va >> 32) as u32, payload as u32, (payload >> 32) as u32, 0x0310_0001]
}

/// Words that wait for `payload` at `va`.
pub fn acquire(va: u64, payload: u64) -> [u32; 6] {
    [inc(0, 0x5c, 5), va as u32, (va >> 32) as u32, payload as u32, (payload >> 32) as u32, 0x0100_0003]
}

impl Channel<'_> {
    /// Publishes one segment and rings.
    pub fn submit(&mut self, words: &[u32]) {
        if self.at + words.len() * 4 > self.commands.len {
            self.at = 0;
        }
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.commands.write(self.at, &bytes);
        let va = self.commands.va + self.at as u64;
        self.at += bytes.len();
        self.publish(va & !3 | (words.len() as u64) << 42);
    }

    /// Publishes one ring entry and rings.
    pub fn publish(&mut self, entry: u64) {
        self.gpfifo.u64(self.put as usize * 8).store(entry, Ordering::Release);
        self.put = (self.put + 1) % 1024;
        self.userd.u32(0x8c).store(self.put, Ordering::Release);
        self.machine.ring(self.token);
    }

    /// Whether the driver reports the channel as dead.
    pub fn is_dead(&self) -> bool {
        let mut args = nvgpu_get_param_args::default();
        ask(&self.machine.sim, self.fd.as_fd(), &mut args).unwrap();
        args.value != 0
    }

    /// Waits until the driver reports the channel as dead: it writes the notifier before.
    pub fn wait_dead(&self) {
        let start = Instant::now();
        while !self.is_dead() {
            assert!(
                start.elapsed() < DEADLINE,
                "the channel lives; log: {:#?}",
                self.machine.sim.kernel_log()
            );
            std::thread::yield_now();
        }
    }

    /// Index up to which the host has fetched, by USERD.
    pub fn get(&self) -> u32 {
        self.userd.u32(0x88).load(Ordering::Acquire)
    }

    /// Waits until the notifier shows an error and returns its code.
    pub fn wait_error(&self) -> u32 {
        let start = Instant::now();
        while self.notifier.u32(12).load(Ordering::Acquire) >> 16 != 0xffff {
            assert!(start.elapsed() < DEADLINE, "no error; log: {:#?}", self.machine.sim.kernel_log());
            std::thread::yield_now();
        }
        self.notifier.u32(8).load(Ordering::Acquire)
    }

    /// Waits until the 64-bit word reaches `value`.
    pub fn wait(&self, word: &AtomicU64, value: u64) {
        let start = Instant::now();
        while word.load(Ordering::Acquire) < value {
            assert!(!self.is_dead(), "the channel died: {:#?}", self.machine.sim.kernel_log());
            assert!(start.elapsed() < DEADLINE, "{} < {value}", word.load(Ordering::Acquire));
            std::thread::yield_now();
        }
    }

    /// Lets the engine leave the group at once, whatever it runs (CILP).
    pub fn preempt_between_instructions(&self) {
        let sim = &self.machine.sim;
        // The driver refuses modes where the last class is the copy engine's.
        let mut class = nvgpu_alloc_obj_ctx_args { class_num: 0xc7c0, ..Default::default() };
        ask(sim, self.fd.as_fd(), &mut class).unwrap();
        let mut mode = nvgpu_preemption_mode_args {
            graphics_preempt_mode: 0,
            compute_preempt_mode: NVGPU_COMPUTE_PREEMPTION_MODE_CILP,
        };
        ask(sim, self.fd.as_fd(), &mut mode).unwrap();
    }

    /// Sets classes and windows, as at the start of every compute channel.
    pub fn start(&mut self) {
        let window = |method, base: u64| [inc(1, method, 2), (base >> 32) as u32, base as u32];
        let mut words = vec![inc(1, 0, 1), 0xc7c0, inc(4, 0, 1), 0xc7b5];
        words.extend(window(0x7b0, LOCAL_WINDOW));
        words.extend(window(0x2a0, SHARED_WINDOW));
        self.submit(&words);
    }
}
