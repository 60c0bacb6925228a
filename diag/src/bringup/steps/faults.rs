//! Step 19: reports of faults by the driver and the library.

use std::fmt::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hcq::{Args, Device, Error, FaultKind, FaultReport, LaunchConfig};
use nix::errno::Errno;
use nvgpu_sys::{IoctlError, NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT};

use super::kernel::{LIMIT, fill};
use super::submission::{Client, WITHOUT};
use crate::bringup::client::{Channel, Nodes, release, unless_lacking};
use crate::bringup::outcome::Notes;
use crate::bringup::rig::{Platform, Rig};
use crate::provoke::{IMAGES, Kind};

/// Time limit of the driver's report of a fault.
const REPORT: Duration = Duration::from_secs(10);
/// Time limit from the notifier to the end of the driver's recovery, and to its log's lines: each line of a
/// serial console takes milliseconds.
const RECOVERY: Duration = Duration::from_secs(1);
/// An address that nothing is mapped at, in the part for buffers.
const UNMAPPED: u64 = 0xfc_0000_0000;
/// Offset of its load in the window.
const INSIDE: u64 = 2 << 20;

pub fn faults(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    if rig.platform == Platform::Nvgpu {
        host_fault(rig, notes).context("a semaphore at an unmapped address")?;
        fill(&rig.device()?, (1, 32), 1).context("a new device after it")?;
    }
    let has_records = has_records(rig, notes)?;
    for kind in [Kind::Unmapped, Kind::Misaligned, Kind::Window, Kind::Trap] {
        let report = provoke(rig, kind).with_context(|| format!("{kind}: a kernel {}", kind.does()))?;
        if has_records {
            check(kind, &report).with_context(|| format!("{kind}: reported as: {report}"))?;
        }
        describe(kind, &report, rig, notes);
        fill(&rig.device()?, (1, 32), 1).with_context(|| format!("a new device after {kind}"))?;
    }
    if rig.platform == Platform::Nvgpu && rig.logged().is_none() {
        notes.unseen("the kernel log: address and channel of the MMU's faults");
    }
    Ok(())
}

/// Whether the driver shows the records of SMs; a fault's kind is not known without.
fn has_records(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<bool> {
    if rig.platform == Platform::Desktop {
        return Ok(true);
    }
    let nodes = Nodes::open(&rig.sys)?;
    let group = Channel::group(&nodes)?;
    // Anything but a request that is not there is for the faults to show.
    match nvgpu_sys::sm_error_state(&*rig.sys, group.as_fd(), 0) {
        Err(error @ IoctlError { name, errno: Errno::ENOTTY, .. }) => {
            let found = format!("{:#}", anyhow::Error::from(error));
            let expected = "an answer; without it the kind of a kernel's fault and its SM are not known";
            notes.judge(name, found, false, expected, WITHOUT);
            Ok(false)
        }
        _ => Ok(true),
    }
}

/// Calls `look` until it finds something, for as long as a recovery may take.
fn poll<T>(mut look: impl FnMut() -> anyhow::Result<Option<T>>) -> anyhow::Result<Option<(T, Duration)>> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(Some((found, began.elapsed())));
        }
        if began.elapsed() > RECOVERY {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The host engine writes where nothing is mapped: the driver's report, without the library.
fn host_fault(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let before = rig.logged();
    let mut client = Client::working(rig)?;
    let is_stopped = |channel: &Channel| unless_lacking(channel.is_stopped());
    let before_it = is_stopped(&client.channel)?;
    ensure!(before_it != Some(true), "GET_TIMEDOUT is 1 before anything happened");
    client.channel.submit(&client.doorbell, &release(UNMAPPED, 1))?;
    let began = Instant::now();
    let code = loop {
        if let Some(code) = client.channel.error() {
            break code.to_string();
        }
        if !client.channel.posts_errors() && is_stopped(&client.channel)? == Some(true) {
            break "none: the driver takes no notifier".to_owned();
        }
        ensure!(began.elapsed() < REPORT, "no error notifier within {REPORT:?}");
        std::thread::yield_now();
    };
    notes.fact("host", format!("notifier {code} after {:.1} ms", began.elapsed().as_secs_f64() * 1e3));
    notes.expect(
        "notifier",
        code,
        NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT,
        "include/uapi/linux/nvgpu.h, r36.4.3; the first of several reports stays (hal/init/hal_ga10b.c)",
    );
    let stopped = match before_it {
        Some(_) => poll(|| Ok((is_stopped(&client.channel)? == Some(true)).then_some(())))?,
        None => None,
    };
    notes.judge(
        "GET_TIMEDOUT",
        match (before_it, stopped) {
            (None, _) => "the driver does not have it".to_owned(),
            (_, Some(((), after))) => format!("1, {:.1} ms after the notifier", after.as_secs_f64() * 1e3),
            (_, None) => format!("0 for {RECOVERY:?} after the notifier"),
        },
        stopped.is_some(),
        "1, some time after the notifier",
        "os/linux/linux-channel.c and hal/rc/rc_gv11b.c, r36.4.3",
    );
    if rig.logged().is_none() {
        return Ok(());
    }
    let line = poll(|| Ok(rig.logged_since(&before).into_iter().find(|line| line.contains("fault addr:"))))?;
    let line = line.map(|(line, _)| line).unwrap_or_default();
    let field = |name: &str| line.split_once(name).and_then(|(_, rest)| rest.trim_start().split(',').next());
    let (address, channel) = (field("fault addr:"), field("ch id:"));
    const SOURCE: &str = "the line [MMU FAULT] of hal/fb/fb_mmu_fault_gv11b_fusa.c, r36.4.3";
    let none = "no line of the fault";
    notes.expect("address in the kernel log", address.unwrap_or(none), format!("{UNMAPPED:#x}"), SOURCE);
    notes.expect("channel in the kernel log", channel.unwrap_or(none), client.channel.id(), SOURCE);
    Ok(())
}

/// Makes the fault on a device of its own.
fn provoke(rig: &Rig<'_>, kind: Kind) -> anyhow::Result<Box<FaultReport>> {
    let device = rig.device()?;
    match launch(&device, kind) {
        Err(Error::Fault(report) | Error::Lost(report)) => Ok(report),
        Err(other) => Err(other.into()),
        Ok(()) => bail!("the GPU let it pass"),
    }
}

fn launch(device: &Device, kind: Kind) -> Result<(), Error> {
    let kernel = device.load(IMAGES)?.kernel(kind.kernel())?;
    let (buffer, out) = (device.alloc(4096)?, device.alloc(4096)?);
    let args = match kind {
        Kind::Misaligned => Args::new().u64(buffer.va().raw() + 4).buffer(&out),
        Kind::Window => Args::new().u64(device.windows()[0].1.raw() + INSIDE).buffer(&out),
        Kind::Trap => Args::new().buffer(&out).u32(1),
        _ => Args::new().u64(0).buffer(&out),
    };
    let mut queue = device.queue()?;
    // SAFETY: the kernels write `out`, and touch one word more that nothing is mapped at or that the SM
    // refuses.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args)? };
    queue.submit()?.wait(LIMIT)
}

/// Whether a fault is reported as its own kind, where no report of another unit can come first.
fn check(kind: Kind, report: &FaultReport) -> anyhow::Result<()> {
    match kind {
        Kind::Unmapped => {}
        Kind::Misaligned => ensure!(report.kind == FaultKind::MisalignedAddress, "not a misaligned address"),
        Kind::Window => ensure!(report.kind == FaultKind::InvalidAddressSpace, "not a window"),
        // ga10b's report of it is not known yet: any SM's record will do.
        _ => ensure!(!report.raw.sms.is_empty(), "no SM has a record"),
    }
    Ok(())
}

/// Adds the facts about a fault.
fn describe(kind: Kind, report: &FaultReport, rig: &Rig<'_>, notes: &mut Notes) {
    notes.fact(kind.name(), summary(report));
    // A desktop GPU has no such notifiers, and no second unit that reports first.
    if kind != Kind::Unmapped || rig.platform == Platform::Desktop {
        return;
    }
    const SOURCE: &str = "the SM's exception can come before the MMU's report, without its address: \
                          common/gr/gr_intr.c, r36.4.3";
    let expected = NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT;
    notes.expect("unmapped, notifier", report.raw.notifier, expected, SOURCE);
    let is_mmu = matches!(report.kind, FaultKind::Mmu { .. });
    let found = if is_mmu { "the MMU's fault".to_owned() } else { report.kind.to_string() };
    notes.judge("unmapped, reported as", found, is_mmu, "the MMU's fault", SOURCE);
    if rig.logged().is_some() {
        let address = report.address.map(|address| address.raw());
        let found = address.map_or("not known".to_owned(), |address| format!("{address:#x}"));
        notes.judge("unmapped, address", found, address.is_some_and(|a| a < 4096), "0x0", SOURCE);
    }
}

/// Returns a summary of a fault, with the raw registers.
fn summary(report: &FaultReport) -> String {
    let mut text = format!("notifier {}", report.raw.notifier);
    if let Some(address) = report.address {
        // Writing to a string does not fail.
        let _ = write!(text, ", address {:#x}", address.raw());
    }
    for sm in report.raw.sms.iter().take(2) {
        let _ = write!(text, ", SM {} global ESR {:#x} warp ESR {:#x}", sm.sm, sm.global_esr, sm.warp_esr);
    }
    text
}
