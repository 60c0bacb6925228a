//! Makes a kernel run past the end of its buffers, and prints what `hcq` says about it.
//!
//! The error that the wait returns carries a report: what went wrong, at which address, beside which buffer,
//! in which kernel and at which instruction. `nvdiag esr` explains the registers that it was decoded from.

use std::error::Error as _;
use std::process::ExitCode;
use std::time::Duration;

use hcq::{Args, Device, Error, FaultKind, FaultReport, LaunchConfig, Selector};

/// Floats in a buffer: 4 MiB, whole pages of every GPU, so that the first byte past the end is not mapped.
const COUNT: u32 = 1 << 20;

/// Adds vectors of twice as many elements as the buffers hold.
fn provoke(device: &Device) -> Result<Option<Box<FaultReport>>, Error> {
    let vecadd = device.load(hcq::images!("kernels/examples", sm_80, sm_87, sm_90))?.kernel("vecadd")?;
    let bytes = 4 * u64::from(COUNT);
    let (a, b, c) = (device.alloc(bytes)?, device.alloc(bytes)?, device.alloc(bytes)?);
    let mut queue = device.queue()?;
    // Two blocks of 256 threads around the end: the arguments start 256 elements before it.
    let tail = bytes - 4 * 256;
    let args = Args::new().buffer_at(&a, tail).buffer_at(&b, tail).buffer_at(&c, tail).u32(512);
    // SAFETY: none: this launch is wrong on purpose. Nothing but this process's own device is harmed by it.
    unsafe { queue.launch(&vecadd, LaunchConfig::new(2, 256), &args)? };
    match queue.submit()?.wait(Duration::from_secs(10)) {
        Err(Error::Fault(report)) => Ok(Some(report)),
        other => other.map(|()| None),
    }
}

fn main() -> ExitCode {
    let faulted = Selector::from_env().and_then(Device::open).and_then(|device| provoke(&device));
    match faulted {
        Ok(Some(report)) => {
            println!("{report}");
            // The device is lost with the channel; the process goes on, and may open another.
            let named = report.kernel.as_deref() == Some("vecadd");
            ExitCode::from(u8::from(!named || !matches!(report.kind, FaultKind::Mmu { .. })))
        }
        Ok(None) => {
            eprintln!("the kernel ran past its buffers unnoticed");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("{error}: {:?}; {}", error.source(), error.hint().unwrap_or("no hint"));
            ExitCode::FAILURE
        }
    }
}
