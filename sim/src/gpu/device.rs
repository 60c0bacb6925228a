//! The GPU: the doorbell page, the thread that serves channels, and what it counts.

use crate::driver::channel::Channel;
use crate::driver::machine::Machine;
use crate::driver::recovery;
use crate::gpu::exception::Exception;
use crate::gpu::memory::GpuMemory;
use crate::gpu::pbdma::{Context, Turn};
use crate::gpu::sm;
use crate::physical::HostMapping;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::cell::Cell;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Length of the user-mode register page.
pub(crate) const USERMODE_LEN: usize = 0x1_0000;
/// Class of the page's layout, in its first word.
const USERMODE_CLASS: u32 = 0xc461;
const CFG0: usize = 0x00;
const TIME_0: usize = 0x80;
const TIME_1: usize = 0x84;
const DOORBELL: usize = 0x90;
/// What the doorbell reads when it has not been rung: no token has all bits set.
const QUIET: u32 = u32::MAX;
/// How often descriptors are looked at that the program may have closed behind our back.
const HOUSEKEEPING: Duration = Duration::from_millis(10);

/// What the GPU did, as a profiler would count it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Events inside the SMs.
    pub sm: sm::Counters,
    /// Doorbells that were noticed; several rings may be noticed as one.
    pub doorbells: u64,
    /// Copy-engine transfers.
    pub copies: u64,
    /// Bytes they wrote.
    pub copied_bytes: u64,
}

/// The page through which a program rings doorbells and reads the time.
#[derive(Debug)]
struct Usermode {
    memfd: OwnedFd,
    page: HostMapping,
}

impl Usermode {
    fn new() -> Result<Self, Errno> {
        let memfd = memfd_create(c"usermode", MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&memfd, USERMODE_LEN as i64)?;
        let page = HostMapping::shared(memfd.as_fd(), USERMODE_LEN)?;
        let usermode = Self { memfd, page };
        usermode.word(CFG0).store(USERMODE_CLASS, Ordering::Release);
        usermode.word(DOORBELL).store(QUIET, Ordering::Release);
        Ok(usermode)
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let ptr = self.page.ptr().as_ptr().wrapping_add(at);
        // SAFETY: the offsets used are aligned and inside the page, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(ptr.cast()) }
    }

    fn set_time(&self, ns: u64) {
        self.word(TIME_1).store((ns >> 32) as u32, Ordering::Release);
        self.word(TIME_0).store(ns as u32, Ordering::Release);
    }

    fn take_token(&self) -> Option<u32> {
        if self.word(DOORBELL).load(Ordering::Acquire) == QUIET {
            return None;
        }
        Some(self.word(DOORBELL).swap(QUIET, Ordering::AcqRel))
    }
}

/// The GPU.
#[derive(Debug)]
pub(crate) struct Gpu {
    /// Runs kernels.
    pub(crate) executor: sm::Executor,
    usermode: Usermode,
    channels: Mutex<Arc<Vec<Arc<Channel>>>>,
    wake: (Mutex<bool>, Condvar),
    quit: AtomicBool,
    counters: Mutex<Counters>,
}

impl Gpu {
    /// A GPU without channels.
    pub(crate) fn new(config: sm::Config) -> Result<Self, Errno> {
        Ok(Self {
            executor: sm::Executor::new(config),
            usermode: Usermode::new()?,
            channels: Mutex::default(),
            wake: (Mutex::new(false), Condvar::new()),
            quit: AtomicBool::new(false),
            counters: Mutex::default(),
        })
    }

    /// The user-mode page, to map.
    pub(crate) fn usermode_fd(&self) -> BorrowedFd<'_> {
        self.usermode.memfd.as_fd()
    }

    /// Channels on the runlists.
    pub(crate) fn channels(&self) -> Arc<Vec<Arc<Channel>>> {
        Arc::clone(&self.channels.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Puts a channel on its runlist.
    pub(crate) fn add_channel(&self, channel: &Arc<Channel>) {
        let mut list = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut list).push(Arc::clone(channel));
        drop(list);
        self.wake();
    }

    /// Takes a channel off its runlist.
    pub(crate) fn remove_channel(&self, channel: &Arc<Channel>) {
        let mut list = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut list).retain(|c| !Arc::ptr_eq(c, channel));
    }

    /// Makes the thread look around at once.
    pub(crate) fn wake(&self) {
        *self.wake.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.wake.1.notify_all();
    }

    /// Ends the thread.
    pub(crate) fn quit(&self) {
        self.quit.store(true, Ordering::Release);
        for channel in self.channels().iter() {
            channel.kill();
        }
        self.wake();
    }

    /// Counters so far.
    pub(crate) fn counters(&self) -> Counters {
        *self.counters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds what a launch did.
    pub(crate) fn count(&self, counters: &sm::Counters) {
        self.counters.lock().unwrap_or_else(PoisonError::into_inner).sm += *counters;
    }

    /// Adds a transfer.
    pub(crate) fn count_copy(&self, bytes: u64) {
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        counters.copies += 1;
        counters.copied_bytes += bytes;
    }

    /// An interrupt that makes the driver post the blocking-sync event to the groups of all channels.
    pub(crate) fn non_stall_interrupt(&self, machine: &Machine) {
        for channel in machine.gpu.channels().iter() {
            let tsg = channel.state().tsg.clone();
            if let Some(tsg) = tsg {
                tsg.post_event(nvgpu_sys::NVGPU_IOCTL_CHANNEL_EVENT_ID_BLOCKING_SYNC);
            }
        }
    }

    /// Sleeps until woken or until `limit`.
    fn park(&self, limit: Duration) {
        let mut woken = self.wake.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !*woken {
            woken = match self.wake.1.wait_timeout(woken, limit) {
                Ok((guard, _)) => guard,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
        *woken = false;
    }
}

thread_local! {
    static IS_GPU: Cell<bool> = const { Cell::new(false) };
}

/// Says that the calling thread is one of the machine's own.
pub(crate) fn mark_own_thread() {
    IS_GPU.set(true);
}

/// Whether the caller runs on a thread of a simulated machine: its GPU's, or the one that serves visitors.
///
/// Whoever puts a [`Sim`](crate::Sim) behind the C library's own functions must let that thread's calls through to the kernel.
pub fn is_gpu_thread() -> bool {
    IS_GPU.get()
}

/// The GPU's thread: looks at the doorbell and gives channels their turns.
pub(crate) fn run(machine: &Arc<Machine>) {
    mark_own_thread();
    let gpu = &machine.gpu;
    let mut last_work = Instant::now();
    let mut last_look = Instant::now();
    while !gpu.quit.load(Ordering::Acquire) {
        gpu.usermode.set_time(machine.clock.ptimer());
        if last_look.elapsed() > HOUSEKEEPING {
            machine.collect_closed();
            last_look = Instant::now();
        }
        let mut worked = gpu.usermode.take_token().is_some();
        // Read after the token: a channel that was set up before it rang is among them.
        let channels = gpu.channels();
        if worked {
            gpu.counters.lock().unwrap_or_else(PoisonError::into_inner).doorbells += 1;
            // A token may have been overwritten by the next one: look at every channel.
            for channel in channels.iter() {
                channel.ring_doorbell();
            }
        }
        for channel in channels.iter() {
            worked |= serve(machine, channel);
        }
        if worked {
            last_work = Instant::now();
            continue;
        }
        let idle = last_work.elapsed();
        if channels.is_empty() {
            gpu.park(HOUSEKEEPING * 5);
        } else if idle < Duration::from_micros(50) {
            std::hint::spin_loop();
        } else if idle < Duration::from_micros(500) {
            std::thread::yield_now();
        } else {
            // Latency of the next doorbell grows with the time nothing has happened, up to a millisecond.
            gpu.park((idle / 16).clamp(Duration::from_micros(50), Duration::from_millis(1)));
        }
    }
}

/// Gives one channel its turn; true when it did something.
fn serve(machine: &Arc<Machine>, channel: &Arc<Channel>) -> bool {
    if !channel.may_run() {
        return false;
    }
    let mut pbdma = channel.pbdma();
    let rung = channel.take_doorbell();
    if !rung && !pbdma.is_scheduled() {
        return false;
    }
    let (ring, space) = {
        let state = channel.state();
        (state.ring.clone(), state.address_space.clone())
    };
    let (Some(ring), Some(space)) = (ring, space) else { return false };
    let turn = {
        let _memory_stays = space.dram().hold();
        let memory = GpuMemory::new(&space);
        let context = Context { machine, gpu: &machine.gpu, channel, ring: &ring, memory };
        pbdma.turn(&context)
    };
    let outcome: Result<Turn, Exception> = turn;
    match outcome {
        Ok(turn) => {
            drop(pbdma);
            space.dram().reap();
            turn != Turn::Blocked
        }
        Err(exception) => {
            let registers = pbdma.registers();
            drop(pbdma);
            recovery::recover(machine, channel, &exception, Some(registers));
            space.dram().reap();
            true
        }
    }
}
