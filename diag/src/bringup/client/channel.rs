//! A channel in user-mode submit.

use std::os::fd::AsFd;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hcq::{CommandMemory, Preemption, Subcontext};
use nvgpu_sys::{
    NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC, NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
    NVGPU_COMPUTE_PREEMPTION_MODE_CILP, NVGPU_IOCTL_CHANNEL_DISABLE_WDT, NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC,
    NVMAP_HANDLE_INNER_CACHEABLE, NVMAP_HANDLE_WRITE_COMBINE, nvgpu_alloc_obj_ctx_args,
    nvgpu_as_bind_channel_args, nvgpu_channel_setup_bind_args, nvgpu_channel_wdt_args, nvgpu_get_param_args,
    nvgpu_gpu_open_channel_args, nvgpu_gpu_open_tsg_args, nvgpu_preemption_mode_args,
    nvgpu_set_error_notifier, nvgpu_set_timeout_ex_args, nvgpu_tsg_bind_channel_ex_args,
    nvgpu_tsg_create_subcontext_args,
};

use super::layout;
use super::memory::{Doorbell, GpuMemory, Mapping, Space, allocate};
use super::node::{Fd, Nodes, unless_lacking};

/// Entries of the ring.
const ENTRIES: u32 = 1024;
/// Context-switch time of a channel's life, in ms: that of hcq.
const SWITCH_LIMIT_MS: u32 = 10_000;
/// Byte offsets in USERD.
const GP_GET: usize = 0x88;
const GP_PUT: usize = 0x8c;

/// Variable settings of a channel, in the order in which they are tried: first the one that ran on an Orin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The subcontext.
    pub subcontext: Subcontext,
    /// The memory of its commands.
    pub commands: CommandMemory,
}

impl Choice {
    /// All.
    pub fn all() -> impl Iterator<Item = Self> {
        Subcontext::ALL
            .into_iter()
            .flat_map(|subcontext| CommandMemory::ALL.map(|commands| Self { subcontext, commands }))
    }
}

/// nvmap's cache attribute of commands.
fn cache(commands: CommandMemory) -> u32 {
    match commands {
        CommandMemory::Cacheable => NVMAP_HANDLE_INNER_CACHEABLE,
        CommandMemory::WriteCombined => NVMAP_HANDLE_WRITE_COMBINE,
    }
}

/// A channel, bound to a group and an address space, and its memory.
#[derive(Debug)]
pub struct Channel {
    // Dropped in this order: the channel before its group and its memory.
    fd: Fd,
    _tsg: Fd,
    ring: Mapping,
    userd: Mapping,
    notifier: Option<Mapping>,
    commands: GpuMemory,
    /// Token for the doorbell.
    pub token: u32,
    /// The number of its subcontext.
    pub veid: u32,
    put: u32,
    filled: usize,
}

impl Channel {
    /// Opens a group.
    pub fn group(nodes: &Nodes) -> anyhow::Result<Fd> {
        let mut args = nvgpu_gpu_open_tsg_args::default();
        nodes.ctrl.ask(&mut args)?;
        Fd::answered::<nvgpu_gpu_open_tsg_args>(nodes.ctrl.sys(), args.tsg_fd.cast_signed())
    }

    /// Opens a channel and binds it, up to its token.
    ///
    /// The synchronous subcontext is there without a request; another one is refused before
    /// `CREATE_SUBCONTEXT` (source: common/fifo/tsg.c and os/linux/ioctl_tsg.c, r36.4.3).
    pub fn bind(nodes: &Nodes, space: &mut Space, choice: Choice) -> anyhow::Result<Self> {
        let tsg = Self::group(nodes)?;
        let veid = match choice.subcontext {
            Subcontext::Sync => 0,
            Subcontext::Async => {
                let mut create = nvgpu_tsg_create_subcontext_args {
                    type_: NVGPU_TSG_SUBCONTEXT_TYPE_ASYNC,
                    as_fd: space.fd.raw(),
                    ..Default::default()
                };
                tsg.ask(&mut create)?;
                create.veid
            }
        };
        let mut open = nvgpu_gpu_open_channel_args { channel_fd: -1 };
        nodes.ctrl.ask(&mut open)?;
        let fd = Fd::answered::<nvgpu_gpu_open_channel_args>(nodes.ctrl.sys(), open.channel_fd)?;
        space.fd.ask(&mut nvgpu_as_bind_channel_args { channel_fd: fd.raw().cast_unsigned() })?;
        let bind = &mut nvgpu_tsg_bind_channel_ex_args {
            channel_fd: fd.raw(),
            subcontext_id: veid,
            ..Default::default()
        };
        tsg.ask(bind).with_context(|| format!("subcontext {veid}"))?;
        fd.ask(&mut nvgpu_channel_wdt_args { wdt_status: NVGPU_IOCTL_CHANNEL_DISABLE_WDT, timeout_ms: 0 })?;
        let (ring_buffer, ring) = host_memory(nodes, u64::from(ENTRIES) * 8, NVMAP_HANDLE_WRITE_COMBINE)?;
        let (userd_buffer, userd) = host_memory(nodes, layout::PAGE, NVMAP_HANDLE_WRITE_COMBINE)?;
        let mut setup = nvgpu_channel_setup_bind_args {
            num_gpfifo_entries: ENTRIES,
            flags: NVGPU_CHANNEL_SETUP_BIND_FLAGS_DETERMINISTIC
                | NVGPU_CHANNEL_SETUP_BIND_FLAGS_USERMODE_SUPPORT,
            userd_dmabuf_fd: userd_buffer.raw(),
            gpfifo_dmabuf_fd: ring_buffer.raw(),
            ..Default::default()
        };
        fd.ask(&mut setup)?;
        ensure!(
            setup.gpfifo_gpu_va == 0 && setup.userd_gpu_va == 0,
            "SETUP_BIND mapped ring and USERD at {:#x} and {:#x}: it took the channel for a kernel-mode one",
            setup.gpfifo_gpu_va,
            setup.userd_gpu_va
        );
        let commands = space.memory(nodes, 16 * layout::PAGE, cache(choice.commands))?;
        let token = setup.work_submit_token;
        Ok(Self { fd, _tsg: tsg, ring, userd, notifier: None, commands, token, veid, put: 0, filled: 0 })
    }

    /// Gives it its objects: compute, preemption mode, copy. Returns how long the first took. The default is
    /// to wait for a kernel: the driver's own (source: common/gr/obj_ctx.c, r36.4.3).
    pub fn objects(&self, (compute, copy): (u32, u32), preemption: Preemption) -> anyhow::Result<Duration> {
        let began = Instant::now();
        let object =
            |class_num| self.fd.ask(&mut nvgpu_alloc_obj_ctx_args { class_num, flags: 0, obj_id: 0 });
        object(compute).context("the compute object")?;
        let took = began.elapsed();
        if preemption == Preemption::Instructions {
            let mode = &mut nvgpu_preemption_mode_args {
                graphics_preempt_mode: 0,
                compute_preempt_mode: NVGPU_COMPUTE_PREEMPTION_MODE_CILP,
            };
            self.fd.ask(mode)?;
        }
        object(copy).context("the copy object")?;
        Ok(took)
    }

    /// Gives it its error notifier, which work can do without.
    pub fn post_errors(&mut self, nodes: &Nodes) -> anyhow::Result<()> {
        let (buffer, notifier) = host_memory(nodes, layout::PAGE, NVMAP_HANDLE_INNER_CACHEABLE)?;
        self.fd.ask(&mut nvgpu_set_error_notifier {
            offset: 0,
            size: layout::PAGE,
            mem: buffer.raw().cast_unsigned(),
            padding: 0,
        })?;
        self.notifier = Some(notifier);
        Ok(())
    }

    /// Sets the context-switch time of its life that hcq sets, which work can do without.
    pub fn limit_switches(&self) -> anyhow::Result<()> {
        self.fd.ask(&mut nvgpu_set_timeout_ex_args { timeout: SWITCH_LIMIT_MS, flags: 0 })
    }

    /// Whether it has an error notifier.
    pub fn posts_errors(&self) -> bool {
        self.notifier.is_some()
    }

    /// Publishes one segment of words and rings.
    ///
    /// # Errors
    /// If the few pages for commands are full.
    pub fn submit(&mut self, doorbell: &Doorbell, words: &[u32]) -> anyhow::Result<()> {
        ensure!(self.filled + words.len() <= self.commands.cpu.words(), "the step has too many commands");
        for (index, word) in words.iter().enumerate() {
            self.commands.cpu.u32((self.filled + index) * 4).store(*word, Ordering::Release);
        }
        let va = self.commands.va + self.filled as u64 * 4;
        self.filled += words.len();
        hcq::sys::store_barrier();
        self.ring.u64(self.put as usize * 8).store(va | (words.len() as u64) << 42, Ordering::Release);
        self.put = (self.put + 1) % ENTRIES;
        hcq::sys::store_barrier();
        self.userd.u32(GP_PUT).store(self.put, Ordering::Release);
        hcq::sys::store_barrier();
        doorbell.ring(self.token);
        Ok(())
    }

    /// Returns the number of entries that the host has fetched.
    pub fn fetched(&self) -> u32 {
        self.userd.u32(GP_GET).load(Ordering::Acquire)
    }

    /// The number in the kernel log's lines.
    pub fn id(&self) -> u32 {
        self.token & 0xfff
    }

    /// Whether the driver reports that the group was stopped (`GET_TIMEDOUT`).
    pub fn is_stopped(&self) -> anyhow::Result<bool> {
        let mut args = nvgpu_get_param_args::default();
        self.fd.ask(&mut args)?;
        Ok(args.value != 0)
    }

    /// The error notifier, once the driver has written it.
    pub fn error(&self) -> Option<u32> {
        let page = self.notifier.as_ref()?;
        // The status, in the upper half, is written last.
        (page.u32(12).load(Ordering::Acquire) >> 16 == 0xffff).then(|| page.u32(8).load(Ordering::Acquire))
    }

    /// Waits until the first word of `signal` holds `value`; how long that took.
    pub fn wait(&self, signal: &GpuMemory, value: u64, limit: Duration) -> anyhow::Result<Duration> {
        let began = Instant::now();
        while signal.cpu.u64(0).load(Ordering::Acquire) != value {
            if let Some(code) = self.error() {
                bail!("the driver stopped the channel: notifier {code}");
            }
            if began.elapsed() > limit {
                let (get, put) = (self.fetched(), self.put);
                let stopped = match unless_lacking(self.is_stopped())? {
                    Some(true) => "; the driver has stopped the channel",
                    _ => "",
                };
                bail!("the semaphore was not written within {limit:?}: GP_GET {get}, GP_PUT {put}{stopped}");
            }
            std::thread::yield_now();
        }
        Ok(began.elapsed())
    }
}

/// Memory that the CPU maps and the driver takes by its descriptor.
fn host_memory(nodes: &Nodes, len: u64, cache: u32) -> anyhow::Result<(Fd, Mapping)> {
    let (buffer, _) = allocate(nodes, len, cache)?;
    let mapping = Mapping::new(nodes.nvmap.sys(), buffer.as_fd(), usize::try_from(len)?);
    Ok((buffer, mapping.context("memory cannot be mapped by the CPU")?))
}
