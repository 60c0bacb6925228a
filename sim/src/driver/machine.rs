//! The whole machine: driver state, memory, GPU.

use crate::caller::user_memory::UserMemory;
use crate::caller::visitor::visitor;
use crate::clock::Clock;
use crate::config::SimConfig;
use crate::dram::{Backing, Dram, PAGE};
use crate::driver::address_space::space::AddressSpace;
use crate::driver::channel::{Channel, Channels};
use crate::driver::descriptor::{FileKey, borrow};
use crate::driver::dmabuf::{BufferFacts, DmaBuf};
use crate::driver::doorbells::Doorbells;
use crate::driver::files::{FileTable, Object};
use crate::driver::known_buffers::KnownBuffers;
use crate::driver::late_faults::LateFaults;
use crate::driver::log::KernelLog;
use crate::driver::mappings::Mappings;
use crate::driver::nvmap::Handles;
use crate::driver::tsg::Tsg;
use crate::driver::unbind::{self, Host, Preempting, Unbound};
use crate::driver::zbc::ZbcTables;
use crate::findings::{Checks, Findings};
use crate::gpu::chip::Chip;
use crate::gpu::device::Gpu;
use crate::gpu::instance::Instance;
use crate::gpu::sm;
use crate::gpu::sm::executor::Executor;
use crate::gpu::submissions::Submissions;
use crate::gpu::syncpoint::Syncpoints;
use crate::gpu::units::Units;
use crate::handover::Handover;
use crate::ids::{IdPool, Order};
use crate::order::ledger::Ledger;
use crate::own_thread::is_gpu_thread;
use crate::violations::{Consequence, Violations};
use crate::what_if::WhatIf;
use nix::errno::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

/// Channels and groups that the GPU has.
const CHANNELS: u32 = 512;
const TSGS: u32 = 512;
/// Time from boot to the appearance of a late devfreq node.
const DEVFREQ_DELAY: Duration = Duration::from_secs(3);
/// Time from its last use until the GPU loses its power (the driver's `railgate_delay`).
const RAILGATE_DELAY: Duration = Duration::from_millis(500);

/// A launch that the engine did not give up when its channel closed.
#[derive(Debug)]
struct Orphan {
    instance: Arc<Instance>,
    /// Its memory: without it the launch ends with a fault that belongs to no channel.
    space: Weak<AddressSpace>,
}

/// A channel whose close waits for a preemption.
#[derive(Debug)]
struct Closing {
    channel: Arc<Channel>,
    preempting: Preempting,
    /// Why its group is torn down: the preemption is the one of the tear-down.
    torn_down: Option<Unbound>,
}

/// State shared by open files.
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
    /// Groups that the tool was shown as recent ones.
    pub(crate) sched_shown: Vec<Weak<Tsg>>,
    /// Groups: one lives as long as a descriptor, a channel or a tool holds it.
    groups: Vec<Weak<Tsg>>,
    /// Last device instance number given to an open of `ctrl`.
    pub(crate) instances: u64,
    /// Last address-space number.
    pub(crate) address_spaces: u32,
    /// Whether a context was ever created.
    pub(crate) golden_context: bool,
    /// Buffers.
    pub(crate) buffers: KnownBuffers,
    /// Values of cleared memory.
    pub(crate) zbc: ZbcTables,
}

impl Driver {
    /// Every group that something holds.
    pub(crate) fn groups(&self) -> Vec<Arc<Tsg>> {
        self.groups.iter().filter_map(Weak::upgrade).collect()
    }

    /// A group is new.
    pub(crate) fn add_group(&mut self, tsg: &Arc<Tsg>) {
        self.groups.retain(|group| group.strong_count() > 0);
        self.groups.push(Arc::downgrade(tsg));
    }
}

/// The machine.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Settings of the machine.
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
    /// The program's mappings of buffers.
    pub(crate) mappings: Mappings,
    /// The program's mappings of the doorbell page.
    pub(crate) doorbells: Doorbells,
    /// Time of the last call that needed power, in nanoseconds since boot.
    last_use: AtomicU64,
    /// Faults of the MMU that follow their exceptions later.
    pub(crate) late_faults: LateFaults,
    /// Requests that answer `ENOTTY`.
    pub(crate) unknown_requests: Vec<u32>,
    /// Time at which the GPU's devfreq node appears, by the machine's clock.
    devfreq_since: Duration,
    /// Name of the process.
    pub(crate) comm: String,
    /// Channels that exist.
    pub(crate) channels: Channels,
    /// Numbers of channels.
    pub(crate) channel_ids: Arc<IdPool>,
    /// Numbers of groups.
    pub(crate) tsg_ids: Arc<IdPool>,
    /// Channels that close once the engine has left their group, or has not in time.
    closing: Mutex<Vec<Closing>>,
    /// Channels that are closed and still run.
    orphans: Mutex<Vec<Orphan>>,
    serial: AtomicU64,
    driver: Mutex<Driver>,
}

impl Machine {
    /// A machine that has just booted.
    ///
    /// # Errors
    /// The errno of the host call that failed; `EINVAL` for a request of the what-ifs that no header has.
    pub(crate) fn new(config: SimConfig) -> Result<Self, Errno> {
        let dram = match config.what_if.has(WhatIf::STALE_WRITE_COMBINED) {
            true => Dram::with_stale_write_combining(config.memory)?,
            false => Dram::new(config.memory)?,
        };
        let clock = Clock::new(&config.time);
        let handover = config.findings.clone().map(|path| Arc::new(Handover::new(path)));
        let violations = Arc::new(Violations::new(config.traps, handover.clone()));
        let syncpoints = Arc::new(Syncpoints::new(&dram));
        let is_printed = !config.check.is_empty() && handover.is_none();
        let findings = Arc::new(Findings::new(is_printed, handover));
        let settings = sm::Config { checks: config.checks(), ..config.executor };
        let ledger = settings.checks.contains(Checks::ORDER).then(|| {
            let sink = dram.sparse_sink().addr().get() as u64;
            Arc::new(Ledger::new(Arc::clone(&findings), sink..sink + PAGE))
        });
        let executor = Executor::on(settings, config.defects, clock.clone(), findings);
        let mut units = Units::new(
            (config.chip(), config.defects, config.session),
            clock.clone(),
            executor,
            Arc::clone(&syncpoints),
            Arc::clone(&violations),
            ledger,
        );
        units.what_if = config.what_if.facts;
        units.submissions = config.report_submissions.then(Submissions::new);
        let unknown_requests = config.what_if.unknown_numbers().map_err(|_| Errno::EINVAL)?;
        let late = config.what_if.has(WhatIf::LATE_DEVFREQ);
        let devfreq_since = clock.uptime() + if late { DEVFREQ_DELAY } else { Duration::ZERO };
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap_or_default();
        Ok(Self {
            clock,
            log: KernelLog::new(config.verbose),
            violations,
            user: UserMemory::new()?,
            syncpoints,
            gpu: Gpu::new(units)?,
            mappings: Mappings::default(),
            doorbells: Doorbells::new()?,
            last_use: AtomicU64::new(0),
            late_faults: LateFaults::default(),
            unknown_requests,
            devfreq_since,
            channels: Channels::default(),
            comm: comm.trim_end().to_owned(),
            channel_ids: IdPool::new(CHANNELS, Order::LastIn),
            tsg_ids: IdPool::new(TSGS, Order::Lowest),
            closing: Mutex::default(),
            orphans: Mutex::default(),
            serial: AtomicU64::new(0),
            driver: Mutex::default(),
            dram,
            config,
        })
    }

    /// Returns the chip.
    pub(crate) fn chip(&self) -> Chip {
        self.gpu.units.chip
    }

    /// State of the driver.
    pub(crate) fn driver(&self) -> MutexGuard<'_, Driver> {
        self.driver.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the parts of the machine that a preemption needs.
    pub(crate) fn host(&self) -> Host<'_> {
        let Self { clock, gpu, log, channels, syncpoints, .. } = self;
        Host { clock, gpu, log, channels, syncpoints }
    }

    /// The GPU is needed: it gets power, if it has none, and keeps it for a while.
    pub(crate) fn power_on(&self) {
        let now = u64::try_from(self.clock.uptime().as_nanos()).unwrap_or(u64::MAX);
        self.last_use.store(now, Ordering::Release);
        self.doorbells.show(self.gpu.usermode_fd());
    }

    /// Takes the power of a GPU that nothing has needed for a while: no deterministic channel keeps it, and
    /// no call came.
    fn railgate(&self) {
        let last = Duration::from_nanos(self.last_use.load(Ordering::Acquire));
        if self.clock.uptime().saturating_sub(last) < RAILGATE_DELAY {
            return;
        }
        let keeps = |channel: &Arc<Channel>| {
            let state = channel.state();
            state.deterministic && !state.may_railgate
        };
        let runlist = self.gpu.runlist();
        if !runlist.iter().filter_map(|entry| self.channels.of(&entry.instance)).any(|c| keeps(&c)) {
            self.doorbells.hide();
        }
    }

    /// Whether the GPU has its devfreq node yet.
    pub(crate) fn has_devfreq(&self) -> bool {
        self.clock.uptime() >= self.devfreq_since
    }

    /// Whether no debugger has switched time-outs off.
    pub(crate) fn timeouts_enabled(&self) -> bool {
        let driver = self.driver();
        !driver.files.objects().any(|o| matches!(o, Object::Debug(session) if session.state().timeouts_off))
    }

    /// Returns the object that a descriptor refers to; `EBADF` when it is not open.
    pub(crate) fn object(&self, fd: BorrowedFd<'_>) -> Result<Option<Object>, Errno> {
        let key = FileKey::of(fd)?;
        Ok(self.driver().files.get(key))
    }

    /// Returns the object that the descriptor number inside an argument refers to.
    pub(crate) fn object_by_number(&self, fd: i32) -> Option<Object> {
        if let Some(visitor) = visitor() {
            let copy = visitor.descriptor(fd)?;
            return self.object(copy.as_fd()).ok().flatten();
        }
        let fd = borrow(fd)?;
        self.object(fd).ok().flatten()
    }

    /// Whether the descriptor number inside an argument is open.
    pub(crate) fn is_open(&self, fd: i32) -> bool {
        match visitor() {
            Some(visitor) => visitor.descriptor(fd).is_some(),
            None => borrow(fd).is_some_and(|fd| FileKey::of(fd).is_ok()),
        }
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

    /// Returns the properties of a descriptor's buffer, if it is one.
    pub(crate) fn buffer_facts(&self, fd: BorrowedFd<'_>) -> Option<BufferFacts> {
        let key = FileKey::of(fd).ok()?;
        self.driver().buffers.facts(key)
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

    /// Closes a descriptor. If it is the last one of its file, the file's object ends before this returns.
    pub(crate) fn close(&self, fd: OwnedFd) {
        let Ok(key) = FileKey::of(fd.as_fd()) else { return };
        self.driver().files.begin_close(key);
        drop(fd);
        let object = self.driver().files.take_closed(key);
        if let Some(object) = object {
            self.release(object);
        }
    }

    /// Ends the life of every file whose last descriptor is closed, if there may be many.
    pub(crate) fn collect_crowd(&self) {
        let is_crowded = self.driver().files.is_crowded();
        if is_crowded {
            self.release_closed();
        }
    }

    /// Ends the life of every file whose last descriptor is closed.
    pub(crate) fn release_closed(&self) {
        let objects = self.driver().files.take_all_closed();
        for object in objects {
            self.release(object);
        }
    }

    /// Ends the life of everything whose last descriptor is closed.
    pub(crate) fn collect_closed(&self) {
        self.railgate();
        self.release_closed();
        let mut ended = Vec::new();
        let mut closing = lock(&self.closing);
        for closing in closing.extract_if(.., |closing| closing.preempting.is_over(self.host())) {
            ended.push((closing.preempting.outcome(self.host()).is_some_and(|o| o.is_ok()), closing));
        }
        drop(closing);
        for (preempted, Closing { channel, torn_down, .. }) in ended {
            self.go_on_closing(channel, preempted, torn_down);
        }
        let is_over = |orphan: &mut Orphan| {
            let Orphan { instance, space } = orphan;
            instance.is_stopped() || !instance.is_working() || space.strong_count() == 0
        };
        let over: Vec<_> = lock(&self.orphans).extract_if(.., is_over).collect();
        for Orphan { instance, .. } in over {
            self.remove(&instance);
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
                driver.sched_shown.clear();
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
        let tsg = channel.state().tsg.clone();
        let unbound = match tsg {
            Some(tsg) if is_gpu_thread() => {
                // The GPU cannot wait for itself: housekeeping closes the channel later.
                tsg.entry.set_enabled(false);
                let preempting = Preempting::begin(self.host(), &tsg);
                let closing = Closing { channel: Arc::clone(channel), preempting, torn_down: None };
                return lock(&self.closing).push(closing);
            }
            Some(tsg) => {
                let _one_at_a_time = tsg.init();
                let unbound = unbind::unbind(self.host(), &tsg, channel, true);
                if unbound != Unbound::Cleanly {
                    unbind::tear_down(self.host(), &tsg, channel.id(), unbound);
                }
                unbound
            }
            None => Unbound::Cleanly,
        };
        self.finish_close(channel, unbound);
    }

    /// Goes on with a close on the GPU's thread, after a preemption has ended.
    fn go_on_closing(&self, channel: Arc<Channel>, preempted: bool, torn_down: Option<Unbound>) {
        let host = self.host();
        let Some(tsg) = channel.state().tsg.clone() else {
            return self.finish_close(&channel, Unbound::Cleanly);
        };
        let unbound = match torn_down {
            Some(why) => {
                unbind::give_up(host, &tsg);
                why
            }
            None => match unbind::judge(host, &tsg, &channel, preempted) {
                Unbound::Cleanly => Unbound::Cleanly,
                why => {
                    let preempting = unbind::begin_tear_down(host, &tsg, channel.id(), why);
                    return lock(&self.closing).push(Closing { channel, preempting, torn_down: Some(why) });
                }
            },
        };
        self.finish_close(&channel, unbound);
    }

    /// Takes an instance off the GPU; what still runs for it is stopped.
    fn remove(&self, instance: &Arc<Instance>) {
        instance.kill();
        self.gpu.remove_channel(instance);
        instance.set_working(false);
        let mut bindings = instance.bindings();
        bindings.ring = None;
        bindings.tables = None;
        bindings.group = None;
    }

    /// Gives back everything that a channel held.
    fn finish_close(&self, channel: &Arc<Channel>, unbound: Unbound) {
        let instance = &channel.instance;
        let tsg = channel.state().tsg.clone();
        let was_dead = instance.is_unserviceable();
        let runs_on = unbound != Unbound::Cleanly && instance.is_working() && !instance.is_stopped();
        let (ring, syncpoint) = {
            let mut bindings = instance.bindings();
            let ring = bindings.ring.as_ref().map(|ring| ring.va);
            (ring, bindings.syncpoint.take())
        };
        let space = {
            let mut state = channel.state();
            state.notifier = None;
            state.address_space.take()
        };
        if runs_on {
            let space = space.as_ref().map(Arc::downgrade).unwrap_or_default();
            lock(&self.orphans).push(Orphan { instance: Arc::clone(instance), space });
        } else {
            self.remove(instance);
        }
        if let (Some(space), Some(va)) = (&space, ring) {
            space.unmap_kernel(va);
        }
        if let Some((id, va)) = syncpoint {
            self.syncpoints.set_safe(id);
            self.syncpoints.release(id);
            if let Some(space) = &space {
                space.unmap_kernel(va);
            }
        }
        channel.leave(true);
        channel.release_number();
        if let Some(tsg) = tsg.filter(|_| unbound == Unbound::Cleanly && !was_dead) {
            tsg.entry.set_enabled(true);
            self.gpu.wake();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
