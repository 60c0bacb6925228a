//! Step 19: what the driver and the library report of things that go wrong.

use std::fmt::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use hcq::{Args, Device, Error, FaultKind, FaultReport, LaunchConfig};
use nvgpu_sys::NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT;

use super::kernel::{LIMIT, fill};
use super::submission::Client;
use crate::bringup::client::release;
use crate::bringup::kernels::arch;
use crate::bringup::outcome::Notes;
use crate::bringup::rig::{Platform, Rig};
use crate::provoke::{Kind, cubin};

/// How long the driver may take to report a fault.
const REPORT: Duration = Duration::from_secs(10);
/// An address that nothing is mapped at, in the part for buffers.
const UNMAPPED: u64 = 0xfc_0000_0000;
/// How far inside the window its load is.
const INSIDE: u64 = 2 << 20;

pub fn faults(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    if rig.platform == Platform::Nvgpu {
        host_fault(rig, notes).context("a semaphore at an unmapped address")?;
        fill(&rig.device()?, (1, 32), 1).context("a new device after it")?;
    }
    for kind in [Kind::Unmapped, Kind::Misaligned, Kind::Window, Kind::Trap] {
        let report = provoke(rig, kind).with_context(|| format!("{kind}: a kernel {}", kind.does()))?;
        check(kind, &report).with_context(|| format!("{kind}: reported as: {report}"))?;
        notes.fact(kind.name(), summary(&report));
        if kind == Kind::Unmapped && report.address.is_none() {
            notes.warn("the address of the MMU's fault is not known: the kernel log may not be read");
        }
        fill(&rig.device()?, (1, 32), 1).with_context(|| format!("a new device after {kind}"))?;
    }
    Ok(())
}

/// The host engine writes where nothing is mapped: the driver's report, without the library.
fn host_fault(rig: &Rig<'_>, notes: &mut Notes) -> anyhow::Result<()> {
    let before = rig.logged();
    let mut client = Client::ready(rig, notes)?;
    ensure!(!client.channel.is_stopped()?, "GET_TIMEDOUT is 1 before anything happened");
    client.channel.submit(&client.doorbell, &release(UNMAPPED, 1))?;
    let began = Instant::now();
    let code = loop {
        if let Some(code) = client.channel.error() {
            break code;
        }
        ensure!(began.elapsed() < REPORT, "no error notifier within {REPORT:?}");
        std::thread::yield_now();
    };
    notes.fact("host", format!("notifier {code} after {:.1} ms", began.elapsed().as_secs_f64() * 1e3));
    ensure!(code == NVGPU_CHANNEL_FIFO_ERROR_MMU_ERR_FLT, "notifier {code} instead of 31");
    ensure!(client.channel.is_stopped()?, "GET_TIMEDOUT is 0 after the fault");
    let lines = rig.logged_since(&before);
    let Some(line) = lines.iter().find(|line| line.contains("fault addr:")) else {
        if rig.logged().is_some() {
            notes.warn("the kernel log has no line of the MMU's fault");
        }
        return Ok(());
    };
    let field =
        |name: &str| line.split_once(name).map(|(_, rest)| rest.trim_start().split(',').next().unwrap_or(""));
    let (address, channel) = (field("fault addr:").unwrap_or(""), field("ch id:").unwrap_or(""));
    ensure!(address == format!("{UNMAPPED:#x}"), "the log has address {address} instead of {UNMAPPED:#x}");
    ensure!(
        channel == client.channel.id().to_string(),
        "the log has channel {channel} instead of {}",
        client.channel.id()
    );
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
    let arch = arch(device).map_err(|_| Error::UnsupportedSm { sm: device.info().sm_number() })?;
    let kernel = device.load(cubin(arch))?.kernel(kind.kernel())?;
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

fn check(kind: Kind, report: &FaultReport) -> anyhow::Result<()> {
    match kind {
        Kind::Unmapped => {
            ensure!(matches!(report.kind, FaultKind::Mmu { .. }), "not a fault of the MMU");
            ensure!(report.address.is_none_or(|a| a.raw() < 4096), "another address than 0");
        }
        Kind::Misaligned => ensure!(report.kind == FaultKind::MisalignedAddress, "not a misaligned address"),
        Kind::Window => ensure!(report.kind == FaultKind::InvalidAddressSpace, "not a window"),
        // How ga10b reports it is not known yet: any SM's record will do.
        _ => ensure!(!report.raw.sms.is_empty(), "no SM has a record"),
    }
    Ok(())
}

/// What is known of a fault, with the raw registers.
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
