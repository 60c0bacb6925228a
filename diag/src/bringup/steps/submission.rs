//! Steps 7 to 10: a channel, its context, the first words it executes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use anyhow::{Context, ensure};
use nvgpu_sys::{
    NVGPU_COMPUTE_PREEMPTION_MODE_CILP, NVMAP_HANDLE_INNER_CACHEABLE, nvgpu_gpu_characteristics,
    nvgpu_gpu_get_gpu_time_args,
};

use super::memory::CACHING;
use crate::bringup::client::{
    Channel, Doorbell, GpuMemory, Nodes, Preemption, Space, release as release_words, set_classes,
    set_windows,
};
use crate::bringup::outcome::Notes;
use crate::bringup::rig::Rig;
use std::os::fd::AsFd;

/// How long a semaphore may take.
const LIMIT: Duration = Duration::from_secs(5);
/// How far the time of a release may be from the driver's.
const TIME_NEAR: u64 = 1_000_000_000;

/// A client with a channel.
pub(super) struct Client {
    // Dropped in this order.
    pub channel: Channel,
    pub doorbell: Doorbell,
    pub space: Space,
    pub nodes: Nodes,
    gpu: nvgpu_gpu_characteristics,
}

impl Client {
    /// Up to a token.
    fn bound(rig: &Rig<'_>) -> anyhow::Result<Self> {
        let nodes = Nodes::open(&rig.sys)?;
        let gpu = nvgpu_sys::characteristics(&*rig.sys, nodes.ctrl.as_fd())?;
        let mut space = Space::new(&nodes)?;
        let doorbell = Doorbell::map(&nodes).context("the register page cannot be mapped")?;
        let channel = Channel::bind(&nodes, &mut space)?;
        Ok(Self { channel, doorbell, space, nodes, gpu })
    }

    /// Gives it its context; how long that took.
    fn objects(&mut self, notes: &mut Notes) -> anyhow::Result<Duration> {
        let modes = self.gpu.compute_preemption_mode_flags;
        let preemption = match modes & NVGPU_COMPUTE_PREEMPTION_MODE_CILP {
            0 => Preemption::Unavailable,
            _ => Preemption::InsideBlocks,
        };
        if preemption == Preemption::Unavailable {
            notes.warn(format!("the driver offers preemption modes {modes:#x}, none inside a block"));
        }
        let classes = (self.gpu.compute_class, self.gpu.dma_copy_class);
        self.channel.objects(&self.nodes, classes, preemption)
    }

    /// With a context.
    pub fn ready(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<Self> {
        let mut client = Self::bound(rig)?;
        client.objects(notes)?;
        Ok(client)
    }

    /// A page for semaphores.
    pub fn signal(&mut self, cache: u32) -> anyhow::Result<GpuMemory> {
        self.space.memory(&self.nodes, 4096, cache)
    }
}

pub fn channel(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let client = Client::bound(rig)?;
    let Channel { token, veid, .. } = client.channel;
    notes.fact("token", format!("{token} (channel {})", client.channel.id()));
    notes.fact("subcontext", veid);
    if veid != 0 {
        notes.warn("subcontext 0 is refused and 1 taken");
    }
    ensure!(client.channel.id() < 512, "token {token:#x} names no channel that ga10b has");
    Ok(())
}

pub fn context(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let mut client = Client::bound(rig)?;
    let first = client.objects(notes)?;
    notes.fact("compute object", format!("{:.1} ms", first.as_secs_f64() * 1e3));
    let mut again = Client::bound(rig)?;
    let second = again.objects(&mut Notes::default()).context("a second channel")?;
    notes.fact("a second one", format!("{:.1} ms", second.as_secs_f64() * 1e3));
    ensure!(!client.channel.is_stopped()?, "the driver stopped the channel");
    Ok(())
}

pub fn release(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let mut client = Client::ready(rig, notes)?;
    for ((name, cache), round) in CACHING.into_iter().rev().zip(1_u32..) {
        let signal = client.signal(cache)?;
        let value = 0x5eed_0000_0000_0000 | u64::from(round);
        client.channel.submit(&client.doorbell, &release_words(signal.va, value))?;
        let took = client.channel.wait(&signal, value, LIMIT).with_context(|| format!("{name} memory"))?;
        let fetched = client.channel.fetched();
        ensure!(fetched == round, "the value is there and GP_GET is {fetched}, not {round}");
        let stamp = signal.cpu.u64(8).load(Ordering::Acquire);
        let mut now = nvgpu_gpu_get_gpu_time_args::default();
        client.nodes.ctrl.ask(&mut now)?;
        let apart = now.gpu_timestamp.abs_diff(stamp);
        notes.fact(name, format!("after {:.3} ms", took.as_secs_f64() * 1e3));
        ensure!(
            apart < TIME_NEAR,
            "the release's time is {stamp} ns and the driver's {} ns: {:.1} s apart",
            now.gpu_timestamp,
            apart as f64 / 1e9
        );
    }
    Ok(())
}

pub fn windows(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let before = rig.logged();
    let mut client = Client::ready(rig, notes)?;
    let signal = client.signal(NVMAP_HANDLE_INNER_CACHEABLE)?;
    let mut words = set_classes(client.gpu.compute_class, client.gpu.dma_copy_class).to_vec();
    words.extend(set_windows());
    words.extend(release_words(signal.va, 1));
    client.channel.submit(&client.doorbell, &words)?;
    let took = client.channel.wait(&signal, 1, LIMIT);
    let logged = rig.logged_since(&before);
    let exception = logged.iter().find(|line| line.contains("sked exception"));
    if let Some(line) = exception {
        anyhow::bail!("the driver logged: {line}");
    }
    notes.fact("release", format!("after {:.3} ms", took?.as_secs_f64() * 1e3));
    match rig.logged() {
        Some(_) => notes.fact("kernel log", "no sked exception"),
        None => notes.warn("the kernel log may not be read: whether it holds a sked exception is not known"),
    }
    ensure!(!client.channel.is_stopped()?, "the driver stopped the channel");
    Ok(())
}
