//! Steps 7 to 10: a channel, its context, the first words it executes.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hcq::{Preemption, Subcontext};
use nvgpu_sys::{
    NVGPU_COMPUTE_PREEMPTION_MODE_CILP, NVMAP_HANDLE_INNER_CACHEABLE, nvgpu_gpu_characteristics,
    nvgpu_gpu_get_gpu_time_args,
};

use super::memory::CACHING;
use crate::bringup::client::{
    Channel, Choice, Doorbell, GpuMemory, Nodes, Space, lacking, release as release_words, set_classes,
    set_windows, unless_lacking,
};
use crate::bringup::outcome::Notes;
use crate::bringup::rig::Rig;
use std::os::fd::AsFd;

/// Time limit of a semaphore, which needs a millisecond.
const LIMIT: Duration = Duration::from_secs(3);
/// Time for which `GP_GET` is polled after the value is there; the driver has it written back every 100 us.
const WRITE_BACK: Duration = Duration::from_millis(100);
/// Largest difference of a release's time from the driver's, in ns.
const TIME_NEAR: u64 = 1_000_000_000;
/// Channels that ga10b has.
const CHANNELS: u32 = 512;

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
    fn bound(rig: &Rig<'_>, choice: Choice) -> anyhow::Result<Self> {
        let nodes = Nodes::open(&rig.sys)?;
        let gpu = nvgpu_sys::characteristics(&*rig.sys, nodes.ctrl.as_fd())?;
        let mut space = Space::new(&nodes)?;
        let doorbell = Doorbell::map(&nodes).context("the register page cannot be mapped")?;
        let channel = Channel::bind(&nodes, &mut space, choice)?;
        Ok(Self { channel, doorbell, space, nodes, gpu })
    }

    /// Gives it its context; how long that took.
    fn objects(&mut self, preemption: Preemption) -> anyhow::Result<Duration> {
        let classes = (self.gpu.compute_class, self.gpu.dma_copy_class);
        self.channel.objects(classes, preemption)
    }

    /// With a context.
    fn ready(rig: &Rig<'_>, choice: Choice) -> anyhow::Result<Self> {
        let mut client = Self::bound(rig, choice)?;
        client.objects(Preemption::WaitForIdle)?;
        unless_lacking(client.channel.post_errors(&client.nodes))?;
        Ok(client)
    }

    /// The first of all choices that a release arrives with.
    pub fn working(rig: &Rig<'_>) -> anyhow::Result<Self> {
        let mut first = None;
        for choice in Choice::all() {
            let released = Self::ready(rig, choice).and_then(|mut client| {
                client.release(NVMAP_HANDLE_INNER_CACHEABLE, 1)?;
                Ok(client)
            });
            match released {
                Ok(client) => return Ok(client),
                Err(error) => _ = first.get_or_insert(error),
            }
        }
        Err(first.context("there is no subcontext")?.context("a release before it"))
    }

    /// A page for semaphores.
    fn signal(&mut self, cache: u32) -> anyhow::Result<GpuMemory> {
        self.space.memory(&self.nodes, 4096, cache)
    }

    /// Releases a semaphore of its own in memory of that kind; the page, and how long it took.
    fn release(&mut self, cache: u32, value: u64) -> anyhow::Result<(GpuMemory, Duration)> {
        let signal = self.signal(cache)?;
        self.channel.submit(&self.doorbell, &release_words(signal.va, value))?;
        let took = self.channel.wait(&signal, value, LIMIT)?;
        Ok((signal, took))
    }

    /// Time of the driver less that of a release, in ns.
    fn apart(&self, signal: &GpuMemory) -> anyhow::Result<u64> {
        let stamp = signal.cpu.u64(8).load(Ordering::Acquire);
        let mut now = nvgpu_gpu_get_gpu_time_args::default();
        self.nodes.ctrl.ask(&mut now)?;
        Ok(now.gpu_timestamp.abs_diff(stamp))
    }
}

/// Page that lists the replacements of missing requests.
pub(super) const WITHOUT: &str = "docs/orin.md, Settings: what hcq does without";

/// Adds, once, that the driver lacks a request that work can do without, and the difference that this makes.
fn spare<T>(notes: &mut Notes, answer: anyhow::Result<T>, otherwise: &str) -> anyhow::Result<Option<T>> {
    if let Err(error) = &answer
        && let Some(name) = lacking(error)
        && notes.facts.iter().all(|fact| fact.name != name)
    {
        let expected = format!("an answer; without it {otherwise}");
        notes.judge(name, format!("{error:#}"), false, expected, WITHOUT);
    }
    unless_lacking(answer)
}

fn milliseconds(time: Duration) -> String {
    format!("{:.3} ms", time.as_secs_f64() * 1e3)
}

/// Returns the source of an expectation of a subcontext.
fn seen(subcontext: Subcontext) -> &'static str {
    match subcontext {
        Subcontext::Async => "ran on an AGX Orin: agx-orin-dev-kit, test_gpu_submit.log; tinygrad",
        Subcontext::Sync => "common/fifo/tsg.c, r36.4.3; not known to have run on an Orin",
    }
}

fn subcontext(subcontext: Subcontext) -> &'static str {
    match subcontext {
        Subcontext::Async => "asynchronous subcontext",
        Subcontext::Sync => "synchronous subcontext",
    }
}

/// Calls `work` for both subcontexts, and adds the results: one of them has to work.
fn with_either(
    notes: &mut Notes,
    mut work: impl FnMut(Subcontext, &mut Notes) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let mut refusals = Vec::new();
    for which in Subcontext::ALL {
        let (name, source) = (subcontext(which), seen(which));
        match work(which, notes) {
            Ok(found) => notes.judge(name, found, true, "it works", source),
            Err(error) => {
                notes.judge(name, format!("{error:#}"), false, "it works", source);
                refusals.push(error.context(name));
            }
        }
    }
    match refusals.len() {
        2 => Err(refusals.swap_remove(0)),
        _ => Ok(()),
    }
}

/// A subcontext, with commands that the CPU writes through its caches.
fn cached(subcontext: Subcontext) -> Choice {
    Choice { subcontext, commands: hcq::CommandMemory::Cacheable }
}

pub fn channel(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    with_either(notes, |subcontext, notes| {
        let client = Client::bound(rig, cached(subcontext))?;
        let Channel { token, veid, .. } = client.channel;
        let id = client.channel.id();
        notes.judge(
            "token",
            format!("{token} (channel {id})"),
            id < CHANNELS,
            "511 on an idle machine, a lower one beside other programs",
            "agx-orin-dev-kit, test_gpu_submit.log",
        );
        Ok(format!("VEID {veid}"))
    })
}

pub fn context(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    with_either(notes, |subcontext, notes| {
        let Client { mut channel, doorbell: _doorbell, space: _space, nodes, gpu } =
            Client::bound(rig, cached(subcontext))?;
        let took = channel.objects((gpu.compute_class, gpu.dma_copy_class), Preemption::WaitForIdle)?;
        spare(notes, channel.limit_switches(), "context switches of 3 s in all cost a channel")?;
        spare(notes, channel.post_errors(&nodes), "an error has no number")?;
        let stopped = spare(notes, channel.is_stopped(), "an error without a notifier is not noticed")?;
        ensure!(stopped != Some(true), "the driver stopped the channel");
        Ok(format!("compute object after {:.1} ms", took.as_secs_f64() * 1e3))
    })?;
    let modes = nvgpu_sys::characteristics(&*rig.sys, Nodes::open(&rig.sys)?.ctrl.as_fd())?;
    let offered = modes.compute_preemption_mode_flags & NVGPU_COMPUTE_PREEMPTION_MODE_CILP != 0;
    // In a subcontext that the driver has, so that a refusal is one of the mode.
    let mut bound = Subcontext::ALL.into_iter().map(|subcontext| Client::bound(rig, cached(subcontext)));
    let bound = bound.find_map(Result::ok).context("there is no subcontext any more");
    let accepted = bound.and_then(|mut client| client.objects(Preemption::Instructions));
    let found = match (offered, accepted) {
        (true, Ok(_)) => "offered and accepted".to_owned(),
        (true, Err(error)) => format!("offered and refused: {error:#}"),
        (false, Ok(_)) => "not offered, and accepted".to_owned(),
        (false, Err(error)) => format!("not offered, and refused: {error:#}"),
    };
    notes.expect(
        "preemption between instructions (CILP)",
        found,
        "offered and accepted",
        "hal/gr/init/gr_init_gp10b_fusa.c, r36.4.3; what ran on an Orin waits for a kernel's end",
    );
    Ok(())
}

/// Result of one choice of step 9.
#[derive(Default)]
struct Arrived {
    /// Arrival times of the value, by kind of semaphore.
    values: Vec<String>,
    /// `GP_GET` at last, of how many entries.
    fetched: (u32, u32),
    /// Longest time from the value to its write-back.
    late: Duration,
    /// Of the release's time from the driver's, in ns; `None` where that does not tell its time.
    apart: Option<u64>,
}

pub fn release(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let (mut first, mut failures) = (None, Vec::new());
    for choice in Choice::all() {
        let name = format!("{}, {} commands", subcontext(choice.subcontext), choice.commands);
        let source = match choice.commands {
            hcq::CommandMemory::Cacheable => seen(choice.subcontext),
            hcq::CommandMemory::WriteCombined => {
                "one release ran on an AGX Orin (agx-orin-dev-kit, test_gpu_submit.log); its agent-prompts.md \
                 has exceptions with such commands"
            }
        };
        match both_semaphores(rig, choice, notes) {
            Ok(arrived) => {
                notes.judge(&name, arrived.values.join(", "), true, "both values arrive", source);
                first.get_or_insert(arrived);
            }
            Err(error) => {
                notes.judge(&name, format!("{error:#}"), false, "both values arrive", source);
                failures.push(error.context(name));
            }
        }
    }
    let Some(first) = first else { return Err(failures.swap_remove(0)) };
    let (fetched, entries) = first.fetched;
    notes.judge(
        "GP_GET",
        format!("{fetched} of {entries} entries, at most {} after the value", milliseconds(first.late)),
        fetched == entries,
        "the number of entries, at most 100 us after the value",
        "the write-back timer of USERD: hal/fifo/fifo_ga10b_fusa.c, r36.4.3",
    );
    if let Some(apart) = first.apart {
        notes.judge(
            "time of the release",
            format!("{:.1} ms from GET_GPU_TIME", apart as f64 / 1e6),
            apart < TIME_NEAR,
            "within 1 s: both are the GPU's timer, in ns",
            "os/linux/ioctl_ctrl.c, r36.4.3",
        );
    }
    Ok(())
}

/// A semaphore in each kind of memory.
fn both_semaphores(rig: &Rig<'_>, choice: Choice, notes: &mut Notes) -> anyhow::Result<Arrived> {
    let mut client = Client::ready(rig, choice)?;
    let mut all = Arrived::default();
    for ((name, cache), round) in CACHING.into_iter().rev().zip(1_u32..) {
        let value = 0x5eed_0000_0000_0000 | u64::from(round);
        let (signal, took) = client.release(cache, value).with_context(|| format!("a {name} semaphore"))?;
        let began = Instant::now();
        while client.channel.fetched() != round && began.elapsed() < WRITE_BACK {
            std::thread::yield_now();
        }
        all.late = all.late.max(began.elapsed());
        all.fetched = (client.channel.fetched(), round);
        let apart = spare(notes, client.apart(&signal), "nobody compares the GPU's clock with the driver's")?;
        all.apart = all.apart.max(apart);
        all.values.push(format!("{name} semaphore after {}", milliseconds(took)));
    }
    Ok(all)
}

pub fn windows(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    with_either(notes, |subcontext, _| {
        let before = rig.logged();
        let mut client = Client::ready(rig, cached(subcontext))?;
        let signal = client.signal(NVMAP_HANDLE_INNER_CACHEABLE)?;
        let mut words = set_classes(client.gpu.compute_class, client.gpu.dma_copy_class).to_vec();
        words.extend(set_windows());
        words.extend(release_words(signal.va, 1));
        client.channel.submit(&client.doorbell, &words)?;
        let took = client.channel.wait(&signal, 1, LIMIT);
        let logged = rig.logged_since(&before);
        if let Some(line) = logged.iter().find(|line| line.contains("sked exception")) {
            bail!("the driver logged: {line}");
        }
        let took = took?;
        let stopped = unless_lacking(client.channel.is_stopped())?;
        ensure!(stopped != Some(true), "the driver stopped the channel");
        Ok(format!("a release after {}", milliseconds(took)))
    })?;
    match rig.logged() {
        Some(_) => notes.fact("kernel log", "no sked exception"),
        None => notes.unseen("the kernel log: whether it holds a sked exception"),
    }
    Ok(())
}
