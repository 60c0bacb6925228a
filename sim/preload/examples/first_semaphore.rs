//! Brings up a channel through the C library and has the GPU release one semaphore.
//!
//! It knows nothing of the software device: run it on a Jetson as it is, or anywhere with
//! `LD_PRELOAD=target/debug/libnvgpu_sim.so cargo run --example first_semaphore`.

use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::*;
use std::error::Error;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

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

fn main() -> Result<(), Box<dyn Error>> {
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
        flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
        userd_dmabuf_fd: userd.as_raw_fd(),
        gpfifo_dmabuf_fd: ring.as_raw_fd(),
        ..Default::default()
    };
    ask(&channel, &mut setup)?;
    let doorbell = map(ctrl.as_fd(), 4096)?;

    let (buffer, cpu) = page(&nvmap)?;
    let mut mapping = nvgpu_as_map_buffer_ex_args {
        compr_kind: -1,
        dmabuf_fd: buffer.as_raw_fd() as u32,
        ..Default::default()
    };
    ask(&space, &mut mapping)?;
    let (commands, semaphore) = (mapping.offset, mapping.offset + 0x800);
    // SEM_ADDR_LO .. SEM_EXECUTE: release 7 as 64 bits, with the time.
    let words = [0x2005_0017, semaphore as u32, (semaphore >> 32) as u32, 7, 0, 0x0310_0001];
    let word = |base: NonNull<u8>, at: usize| -> &AtomicU32 {
        // SAFETY: inside one mapped page, aligned, and only reached through atomics.
        unsafe { AtomicU32::from_ptr(base.as_ptr().add(at).cast()) }
    };
    for (i, value) in words.into_iter().enumerate() {
        word(cpu, i * 4).store(value, Ordering::Relaxed);
    }
    let entry = commands | (words.len() as u64) << 42;
    word(ring_cpu, 0).store(entry as u32, Ordering::Relaxed);
    word(ring_cpu, 4).store((entry >> 32) as u32, Ordering::Relaxed);
    word(userd_cpu, 0x8c).store(1, Ordering::Release);
    fence(Ordering::SeqCst);
    word(doorbell, 0x90).store(setup.work_submit_token, Ordering::Release);

    // SAFETY: as for `word`.
    let (value, time) = unsafe {
        (
            AtomicU64::from_ptr(cpu.as_ptr().add(0x800).cast()),
            AtomicU64::from_ptr(cpu.as_ptr().add(0x808).cast()),
        )
    };
    let start = Instant::now();
    while value.load(Ordering::Acquire) != 7 {
        if start.elapsed() > Duration::from_secs(10) {
            return Err("the semaphore was not released within 10 s".into());
        }
        std::hint::spin_loop();
    }
    println!("token {} semaphore {} time {}", setup.work_submit_token, 7, time.load(Ordering::Acquire) > 0);
    Ok(())
}
