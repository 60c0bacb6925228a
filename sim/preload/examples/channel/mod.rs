//! A channel brought up through the C library: one page of memory for commands and data, and a doorbell.

use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::*;
use std::error::Error;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

/// Classes of the engines.
const COMPUTE: u32 = 0xc7c0;
const COPY: u32 = 0xc7b5;
/// Ring entries.
const ENTRIES: u32 = 512;

fn ask<A: Ioctl>(fd: impl AsFd, args: &mut A) -> Result<(), Box<dyn Error>> {
    // SAFETY: every argument here is made of numbers and live descriptors.
    unsafe { call(&Linux, fd.as_fd(), args) }.map_err(|e| format!("{e}: {}", e.errno))?;
    Ok(())
}

fn take(fd: i32) -> OwnedFd {
    // SAFETY: the driver made it for us just now.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

fn map(fd: BorrowedFd<'_>, len: usize) -> Result<NonNull<u8>, Box<dyn Error>> {
    let len = NonZeroUsize::new(len).ok_or("nothing to map")?;
    let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: the memory is only reached through atomics.
    Ok(unsafe { Linux.mmap(len, prot, MapFlags::MAP_SHARED, fd, 0)? }.cast())
}

/// One page that CPU and GPU share.
fn page(nvmap: &OwnedFd) -> Result<(OwnedFd, NonNull<u8>), Box<dyn Error>> {
    let mut create = 4096_u64.to_ne_bytes();
    // SAFETY: numbers only.
    unsafe { Linux.ioctl(nvmap.as_fd(), NVMAP_IOC_CREATE_64, &mut create)? };
    let handle = u32::from_ne_bytes([create[0], create[1], create[2], create[3]]);
    let mut alloc = nvmap_alloc_handle {
        handle,
        heap_mask: NVMAP_HEAP_IOVMM,
        flags: NVMAP_HANDLE_INNER_CACHEABLE | 0x0900 << 16,
        align: 4096,
        numa_nid: -1,
    };
    ask(nvmap, &mut alloc)?;
    let mut get = [0; 8];
    get[4..].copy_from_slice(&handle.to_ne_bytes());
    // SAFETY: numbers only.
    unsafe { Linux.ioctl(nvmap.as_fd(), NVMAP_IOC_GET_FD, &mut get)? };
    let fd = take(i32::from_ne_bytes([get[0], get[1], get[2], get[3]]));
    let cpu = map(fd.as_fd(), 4096)?;
    Ok((fd, cpu))
}

/// A channel that takes commands.
pub struct Channel {
    /// The GPU address of the page.
    pub va: u64,
    /// The token of its doorbell.
    pub token: u32,
    cpu: NonNull<u8>,
    ring: NonNull<u8>,
    userd: NonNull<u8>,
    doorbell: NonNull<u8>,
    _open: [OwnedFd; 8],
}

impl Channel {
    /// Opens the device and sets a channel up; `note` sees the address space and the page's address there.
    pub fn new(note: impl FnOnce(BorrowedFd<'_>, u64)) -> Result<Self, Box<dyn Error>> {
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let ctrl = Linux.open(c"/dev/nvgpu/igpu0/ctrl", flags)?;
        let nvmap = Linux.open(c"/dev/nvmap", flags)?;
        let mut space = nvgpu_alloc_as_args {
            flags: NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
            va_range_start: 0x20_0000,
            va_range_end: 0xff_0000_0000,
            ..Default::default()
        };
        ask(&ctrl, &mut space)?;
        let space = take(space.as_fd);
        let mut tsg = nvgpu_gpu_open_tsg_args::default();
        ask(&ctrl, &mut tsg)?;
        let tsg = take(tsg.tsg_fd as i32);
        let mut channel = nvgpu_gpu_open_channel_args::default();
        channel.set_in_runlist_id(-1);
        ask(&ctrl, &mut channel)?;
        let channel = take(channel.out_channel_fd());
        let number = channel.as_raw_fd();
        ask(&space, &mut nvgpu_as_bind_channel_args { channel_fd: number as u32 })?;
        ask(&tsg, &mut nvgpu_tsg_bind_channel_ex_args { channel_fd: number, ..Default::default() })?;
        ask(
            &channel,
            &mut nvgpu_channel_wdt_args { wdt_status: NVGPU_IOCTL_CHANNEL_DISABLE_WDT, timeout_ms: 0 },
        )?;
        let ((ring, ring_cpu), (userd, userd_cpu)) = (page(&nvmap)?, page(&nvmap)?);
        let mut setup = nvgpu_channel_setup_bind_args {
            num_gpfifo_entries: ENTRIES,
            flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC
                | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
            userd_dmabuf_fd: userd.as_raw_fd(),
            gpfifo_dmabuf_fd: ring.as_raw_fd(),
            ..Default::default()
        };
        ask(&channel, &mut setup)?;
        // For copies: subchannel 4 has the copy engine, in a context of the graphics engine.
        for class_num in [COMPUTE, COPY] {
            ask(&channel, &mut nvgpu_alloc_obj_ctx_args { class_num, flags: 0, obj_id: 0 })?;
        }
        let doorbell = map(ctrl.as_fd(), 4096)?;

        let (buffer, cpu) = page(&nvmap)?;
        let mut mapping = nvgpu_as_map_buffer_ex_args {
            compr_kind: -1,
            dmabuf_fd: buffer.as_raw_fd() as u32,
            ..Default::default()
        };
        ask(&space, &mut mapping)?;
        let (va, token) = (mapping.offset, setup.work_submit_token);
        note(space.as_fd(), va);
        let _open = [ctrl, nvmap, space, tsg, channel, ring, userd, buffer];
        Ok(Self { va, token, cpu, ring: ring_cpu, userd: userd_cpu, doorbell, _open })
    }

    /// Writes commands to the start of the page and hands them over; once in the life of a channel.
    pub fn submit(&self, words: &[u32]) {
        for (i, value) in words.iter().enumerate() {
            word(self.cpu, i * 4).store(*value, Ordering::Relaxed);
        }
        let entry = self.va | (words.len() as u64) << 42;
        word(self.ring, 0).store(entry as u32, Ordering::Relaxed);
        word(self.ring, 4).store((entry >> 32) as u32, Ordering::Relaxed);
        word(self.userd, 0x8c).store(1, Ordering::Release);
        fence(Ordering::SeqCst);
        word(self.doorbell, 0x90).store(self.token, Ordering::Release);
    }

    /// Waits until the 64 bits at an offset of the page are `value`; whether the time lies after them.
    pub fn wait(&self, offset: usize, value: u64) -> Result<bool, Box<dyn Error>> {
        let at = |offset: usize| -> &AtomicU64 {
            // SAFETY: as for `word`.
            unsafe { AtomicU64::from_ptr(self.cpu.as_ptr().add(offset).cast()) }
        };
        let start = Instant::now();
        while at(offset).load(Ordering::Acquire) != value {
            if start.elapsed() > Duration::from_secs(10) {
                return Err("the semaphore was not released within 10 s".into());
            }
            std::hint::spin_loop();
        }
        Ok(at(offset + 8).load(Ordering::Acquire) > 0)
    }
}

/// Words of a release of `value` as 64 bits at `va`, with the time: SEM_ADDR_LO .. SEM_EXECUTE.
pub fn release(va: u64, value: u32) -> [u32; 6] {
    [0x2005_0017, va as u32, (va >> 32) as u32, value, 0, 0x0310_0001]
}

fn word<'a>(base: NonNull<u8>, at: usize) -> &'a AtomicU32 {
    // SAFETY: inside one mapped page, which stays mapped, aligned, and only reached through atomics.
    unsafe { AtomicU32::from_ptr(base.as_ptr().add(at).cast()) }
}
