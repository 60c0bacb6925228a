//! The whole machine: driver state, memory, GPU.

use crate::clock::{Clock, Deadline};
use crate::config::SimConfig;
use crate::dram::{Backing, Dram, PAGE};
use crate::driver::channel::{Channel, Channels};
use crate::driver::descriptor::{FileKey, borrow};
use crate::driver::dmabuf::DmaBuf;
use crate::driver::files::{FileTable, Object};
use crate::driver::known_buffers::KnownBuffers;
use crate::driver::log::KernelLog;
use crate::driver::nvmap::Handles;
use crate::driver::tsg::Tsg;
use crate::findings::{Checks, Findings};
use crate::gpu::chip::Chip;
use crate::gpu::device::Gpu;
use crate::gpu::sm;
use crate::gpu::sm::executor::Executor;
use crate::gpu::syncpoint::Syncpoints;
use crate::gpu::units::Units;
use crate::ids::{IdPool, Order};
use crate::order::ledger::Ledger;
use crate::own_thread::is_gpu_thread;
use crate::user_memory::UserMemory;
use crate::violations::{Consequence, Violations};
use crate::visit::visitor::visitor;
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Channels and groups that the GPU has.
const CHANNELS: u32 = 512;
const TSGS: u32 = 512;
/// How long closing a channel waits for the kernel that it runs, before the kernel is stopped: the driver
/// tries about 10 times to preempt the group, for 100 ms each, and then recovers it.
const CLOSE_PATIENCE: Duration = Duration::from_secs(1);
/// How often it checks whether the kernel has ended.
const CLOSE_POLL: Duration = Duration::from_micros(50);

/// What open files share.
#[derive(Debug, Default)]
pub(crate) struct Driver {
    /// Open files.
    pub(crate) files: FileTable,
    /// nvmap handles of this process.
    pub(crate) handles: Handles,
    /// Whether a tool locked scheduling parameters.
    pub(crate) sched_locked: bool,
    /// Groups that a tool holds.
    pub(crate) sched_references: Vec<Arc<Tsg>>,
    /// Last device instance number given to an open of `ctrl`.
    pub(crate) instances: u64,
    /// Last address-space number.
    pub(crate) address_spaces: u32,
    /// Whether a context was ever created.
    pub(crate) golden_context: bool,
    buffers: KnownBuffers,
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// What kind of machine.
    pub(crate) config: SimConfig,
    /// The GPU's time.
    pub(crate) clock: Clock,
    /// Memory.
    pub(crate) dram: Arc<Dram>,
    /// Kernel log.
    pub(crate) log: KernelLog,
    /// Calls that a real machine does not survive.
    pub(crate) violations: Arc<Violations>,
    /// The program's memory.
    pub(crate) user: UserMemory,
    /// Syncpoints.
    pub(crate) syncpoints: Arc<Syncpoints>,
    /// The GPU.
    pub(crate) gpu: Gpu,
    /// Name of the process.
    pub(crate) comm: String,
    /// Channels that exist.
    pub(crate) channels: Channels,
    /// Numbers of channels.
    pub(crate) channel_ids: Arc<IdPool>,
    /// Numbers of groups.
    pub(crate) tsg_ids: Arc<IdPool>,
    /// Channels that close when the kernel they run has ended, or at the deadline.
    closing: Mutex<Vec<(Arc<Channel>, Deadline)>>,
    serial: AtomicU64,
    driver: Mutex<Driver>,
}

impl Machine {
    /// A machine that has just booted.
    pub(crate) fn new(config: SimConfig) -> Result<Self, Errno> {
        let dram = Dram::new(config.memory)?;
        let clock = Clock::new(&config.time);
        let violations = Arc::new(Violations::default());
        let syncpoints = Arc::new(Syncpoints::new(&dram));
        let findings = Arc::new(Findings::new(!config.check.is_empty()));
        let settings = sm::Config { checks: config.checks(), ..config.executor };
        let ledger = settings.checks.contains(Checks::ORDER).then(|| {
            let sink = dram.sparse_sink().addr().get() as u64;
            Arc::new(Ledger::new(Arc::clone(&findings), sink..sink + PAGE))
        });
        let executor = Executor::on(settings, config.defects, clock.clone(), findings);
        let units = Units::new(
            config.chip(),
            config.defects,
            clock.clone(),
            executor,
            Arc::clone(&syncpoints),
            Arc::clone(&violations),
            ledger,
        );
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Ok(Self {
            clock,
            log: KernelLog::new(config.verbose),
            violations,
            user: UserMemory::new()?,
            syncpoints,
            gpu: Gpu::new(units)?,
            channels: Channels::default(),
            comm: comm.trim_end().to_owned(),
            channel_ids: IdPool::new(CHANNELS, Order::LastIn),
            tsg_ids: IdPool::new(TSGS, Order::Lowest),
            closing: Mutex::default(),
            serial: AtomicU64::new(1),
            driver: Mutex::default(),
            dram,
            config,
        })
    }

    /// What chip it is.
    pub(crate) fn chip(&self) -> Chip {
        self.gpu.units.chip
    }

    /// State of the driver.
    pub(crate) fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a descriptor refers to; `EBADF` when it is not open.
    pub(crate) fn object(&self, fd: BorrowedFd<'_>) -> Result<Option<Object>, Errno> {
        let key = FileKey::of(fd)?;
        Ok(self.driver().files.get(key))
    }

    /// What the descriptor number inside an argument refers to.
    pub(crate) fn object_by_number(&self, fd: i32) -> Option<Object> {
        if let Some(visitor) = visitor() {
            let copy = visitor.descriptor(fd)?;
            return self.object(copy.as_fd()).ok().flatten();
        }
        let fd = borrow(fd)?;
        self.object(fd).ok().flatten()
    }

    /// A new buffer of `size` bytes.
    pub(crate) fn new_buffer(&self, driver: &mut Driver, size: u64) -> Result<Arc<DmaBuf>, Errno> {
        let buffer = Arc::new(DmaBuf::new(size, self.serial.fetch_add(1, Ordering::Relaxed))?);
        driver.buffers.add(&buffer);
        Ok(buffer)
    }

    /// Stores the facts of a buffer, for the time when only a descriptor of it remains.
    pub(crate) fn remember(&self, driver: &mut Driver, buffer: &DmaBuf) {
        driver.buffers.remember(buffer);
    }

    /// The buffer of a descriptor.
    ///
    /// # Errors
    /// `EBADF` when it is not open, `EINVAL` when it is not a buffer.
    pub(crate) fn buffer(&self, driver: &mut Driver, fd: i32) -> Result<Arc<DmaBuf>, Errno> {
        let fd = borrow(fd).ok_or(Errno::EBADF)?;
        let key = FileKey::of(fd)?;
        driver.buffers.find(key, |facts| {
            let buffer = DmaBuf::revive(fd, facts, &self.dram)?;
            if let Some(backing) = buffer.backing() {
                self.forget(&backing);
            }
            Ok(buffer)
        })
    }

    /// Whether a descriptor is a buffer, and if so whether it has memory.
    pub(crate) fn buffer_state(&self, fd: BorrowedFd<'_>) -> Option<bool> {
        let key = FileKey::of(fd).ok()?;
        self.driver().buffers.has_memory(key)
    }

    /// Tells the ledger, if there is one, that memory is new.
    pub(crate) fn forget(&self, backing: &Backing) {
        if let Some(ledger) = &self.gpu.units.ledger {
            let start = backing.ptr().addr().get() as u64;
            ledger.state().forget(start..start + backing.len());
        }
    }

    /// Whether a number is a buffer's descriptor.
    pub(crate) fn is_buffer(&self, driver: &Driver, fd: i32) -> bool {
        borrow(fd).and_then(|fd| FileKey::of(fd).ok()).is_some_and(|key| driver.buffers.contains(key))
    }

    /// Ends the life of what `key` referred to, if its last descriptor is closed.
    pub(crate) fn collect(&self, key: FileKey) {
        let object = self.driver().files.take_closed(key);
        if let Some(object) = object {
            self.release(object);
        }
    }

    /// Ends the life of everything whose last descriptor is closed.
    pub(crate) fn collect_closed(&self) {
        let objects = self.driver().files.take_all_closed();
        for object in objects {
            self.release(object);
        }
        let over = |(channel, deadline): &mut (Arc<Channel>, Deadline)| {
            deadline.is_over() || !channel.instance.is_busy()
        };
        let left: Vec<_> = {
            let mut closing = self.closing.lock().unwrap_or_else(PoisonError::into_inner);
            closing.extract_if(.., over).collect()
        };
        for (channel, _) in left {
            self.finish_close(&channel);
        }
    }

    fn release(&self, object: Object) {
        match object {
            Object::Channel(channel) => self.close_if_unused(&channel),
            Object::NvMap => {
                let mut driver = self.driver();
                if !driver.files.any(|o| matches!(o, Object::NvMap)) {
                    driver.handles.clear();
                }
            }
            Object::Sched => {
                let mut driver = self.driver();
                driver.sched_locked = false;
                let references = std::mem::take(&mut driver.sched_references);
                drop(driver);
                drop(references);
            }
            Object::Debug(session) => {
                // Channels that only the session kept open end now.
                for channel in session.take_channels() {
                    self.close_if_unused(&channel);
                }
            }
            // The others end with their last reference.
            _ => {}
        }
    }

    /// Closes a channel unless a descriptor or a debugger session keeps its file open.
    pub(crate) fn close_if_unused(&self, channel: &Arc<Channel>) {
        let held = self.driver().files.objects().any(|o| match o {
            Object::Debug(session) => session.holds(channel),
            Object::Channel(open) => Arc::ptr_eq(open, channel),
            _ => false,
        });
        if !held {
            self.close_channel(channel);
        }
    }

    /// Takes a channel down: the GPU leaves it, and everything it held is given back.
    fn close_channel(&self, channel: &Arc<Channel>) {
        if channel.state().leaked_reference {
            self.violations.record(
                Consequence::Hang,
                "close",
                format!(
                    "closing channel {} never returns: a failed NVGPU_TSG_IOCTL_BIND_CHANNEL leaked a reference; use BIND_CHANNEL_EX",
                    channel.id()
                ),
            );
        }
        let instance = &channel.instance;
        instance.set_closing();
        let deadline = self.clock.deadline(CLOSE_PATIENCE);
        if is_gpu_thread() && instance.is_busy() {
            // The GPU cannot wait for itself: housekeeping closes the channel later.
            self.closing.lock().unwrap_or_else(PoisonError::into_inner).push((Arc::clone(channel), deadline));
            return;
        }
        self.clock.wait(Some(&deadline), CLOSE_POLL, || !instance.is_busy());
        self.finish_close(channel);
    }

    /// Stops what still runs for a channel and gives back everything it held.
    fn finish_close(&self, channel: &Arc<Channel>) {
        let instance = &channel.instance;
        instance.kill();
        self.gpu.remove_channel(instance);
        instance.set_working(false);
        let (ring, syncpoint) = {
            let mut bindings = instance.bindings();
            bindings.tables = None;
            (bindings.ring.take(), bindings.syncpoint.take())
        };
        let space = {
            let mut state = channel.state();
            state.notifier = None;
            state.address_space.take()
        };
        if let (Some(space), Some(ring)) = (&space, ring) {
            space.unmap_kernel(ring.va);
        }
        if let Some((id, va)) = syncpoint {
            self.syncpoints.set_safe(id);
            self.syncpoints.release(id);
            if let Some(space) = &space {
                space.unmap_kernel(va);
            }
        }
        channel.unbind();
        channel.release_number();
    }
}
