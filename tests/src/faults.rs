//! Faults: each is a typed error that says what, where and in which kernel; the process continues with a new
//! device.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use hcq::{Args, Device, Error, FaultKind, FaultReport, Kernel, LaunchConfig};

use crate::harness::{DEADLINE, Test, open, open_with};
use crate::kernels::{Kernels, SUITE, arch};
use crate::launches::{ARRIVES, WAITS, WAITS_FOR_ALL, meet};

pub const TESTS: &[Test] = &[
    Test { name: "a_load_from_unmapped_memory_is_reported", run: unmapped_load, sim_only: false },
    Test { name: "a_store_to_unmapped_memory_is_reported", run: unmapped_store, sim_only: false },
    Test { name: "a_misaligned_load_is_reported", run: misaligned, sim_only: false },
    Test { name: "an_illegal_instruction_is_reported", run: illegal_instruction, sim_only: false },
    Test { name: "a_barrier_with_a_count_it_does_not_take_is_reported", run: barrier_count, sim_only: false },
    Test { name: "a_trap_is_reported", run: trap, sim_only: false },
    Test { name: "a_fault_is_noticed_while_a_wait_spins", run: spinning, sim_only: false },
    Test { name: "a_lost_device_stays_lost_and_a_new_one_works", run: recovery, sim_only: false },
];

/// Launches, expects a fault within a deadline, and returns its report.
fn fault(device: &Device, kernel: &Kernel, args: &Args) -> Result<FaultReport> {
    let mut queue = device.queue()?;
    let began = Instant::now();
    // SAFETY: the kernels of this module access one word that is not theirs, and fault on it.
    unsafe { queue.launch(kernel, LaunchConfig::new(1, 1), args)? };
    match queue.submit()?.wait(DEADLINE) {
        Err(Error::Fault(report)) => {
            println!("{} after {:?}: {report}", kernel.name(), began.elapsed());
            ensure!(
                report.kernel.as_deref().is_none_or(|k| k == kernel.name()),
                "the wrong kernel: {report}"
            );
            Ok(*report)
        }
        Err(e) => Err(e).context("expected a fault"),
        Ok(()) => bail!("{} ran to its end", kernel.name()),
    }
}

fn is_unmapped(kind: FaultKind) -> bool {
    matches!(kind, FaultKind::Mmu { .. })
}

/// An address that nothing is mapped at: 1 GiB past the highest mapping.
pub(crate) fn nowhere(device: &Device) -> Result<u64> {
    let end = device.memory_map().iter().map(|m| m.va.raw() + m.len).max().context("nothing is mapped")?;
    let low = device.memory_map().iter().map(|m| m.va.raw()).min().context("nothing is mapped")?;
    // Below the lowest mapping if there is room, so that the address stays inside 40 bits.
    Ok(if low > 4 << 30 { low - (2 << 30) } else { end + (1 << 30) } & !0xffff)
}

fn unmapped_load() -> Result<()> {
    let device = open()?;
    let kernel = Kernels::load(&device)?.get("load_at")?;
    let (out, va) = (device.alloc(4)?, nowhere(&device)? + 0x124);
    let report = fault(&device, &kernel, &Args::new().u64(va).buffer(&out))?;
    ensure!(is_unmapped(report.kind), "the wrong kind: {report}");
    if let Some(address) = report.address {
        ensure!(address.raw() >> 12 == va >> 12, "faulted at {va:#x}, reported {address}");
    }
    Ok(())
}

fn unmapped_store() -> Result<()> {
    let device = open()?;
    let kernel = Kernels::load(&device)?.get("store_at")?;
    let va = nowhere(&device)?;
    let report = fault(&device, &kernel, &Args::new().u64(va).u32(1))?;
    ensure!(is_unmapped(report.kind), "the wrong kind: {report}");
    Ok(())
}

fn misaligned() -> Result<()> {
    let device = open()?;
    let kernel = Kernels::load(&device)?.get("load_at")?;
    let (data, out) = (device.alloc(64)?, device.alloc(4)?);
    let report = fault(&device, &kernel, &Args::new().u64(data.va().raw() + 2).buffer(&out))?;
    ensure!(report.kind == FaultKind::MisalignedAddress, "the wrong kind: {report}");
    if let Some(instruction) = &report.instruction {
        ensure!(instruction.contains("LDG"), "the wrong instruction: {report}");
    }
    Ok(())
}

/// The suite's cubin with the first instruction of `load_at` that reads global memory replaced by zeros.
fn illegal_instruction() -> Result<()> {
    let device = open()?;
    let arch = arch(&device)?;
    let mut image = SUITE.for_sm(arch.sm())?.to_vec();
    let at = image
        .chunks(16)
        .position(|word| {
            let Ok(word) = <[u8; 16]>::try_from(word) else { return false };
            sass::decode(arch, sass::Word::from_bytes(word)).is_ok_and(|i| i.opcode == sass::Opcode::Ldg)
        })
        .context("the cubin has no load")?;
    image[at * 16..at * 16 + 16].fill(0);
    let program = device.load(&image)?;
    let out = device.alloc(4096)?;
    out.write(0, &[0; 4096])?;
    // Which kernel was hit depends on the cubin's order: try those that load from global memory.
    for (name, args) in [
        ("append", Args::new().buffer(&out).buffer_at(&out, 2048).u32(0)),
        ("load_at", Args::new().buffer(&out).buffer_at(&out, 2048)),
        ("step", Args::new().buffer(&out).u32(1).u32(1).u32(1)),
        ("reverse", Args::new().buffer(&out).buffer_at(&out, 2048)),
        ("local_table", Args::new().buffer(&out).buffer_at(&out, 2048)),
        ("await", Args::new().buffer(&out).buffer_at(&out, 2048).u32(1)),
        ("named_barrier", Args::new().buffer(&out).buffer_at(&out, 2048)),
    ] {
        let kernel = program.kernel(name)?;
        let mut queue = device.queue()?;
        let mut config = LaunchConfig::new(1, 1);
        config.dynamic_shared = 16;
        // SAFETY: every kernel stays within `out`; one of them faults on the word that was replaced.
        unsafe { queue.launch(&kernel, config, &args)? };
        match queue.submit()?.wait(DEADLINE) {
            Ok(()) => {}
            Err(Error::Fault(report)) => {
                println!("{report}");
                ensure!(report.kind == FaultKind::IllegalInstruction, "the wrong kind: {report}");
                return Ok(());
            }
            Err(e) => return Err(e).context(name),
        }
    }
    bail!("a word of zeros was executed")
}

fn trap() -> Result<()> {
    let device = open()?;
    let kernel = Kernels::load(&device)?.get("stop")?;
    let out = device.alloc(4)?;
    let report = fault(&device, &kernel, &Args::new().buffer(&out))?;
    // Without a debugger's handler the SM has nowhere to go.
    ensure!(report.kind == FaultKind::IllegalInstruction, "the wrong kind: {report}");
    if let Some(instruction) = &report.instruction {
        ensure!(instruction.contains("BPT"), "the wrong instruction: {report}");
    }
    Ok(())
}

/// A count that is no multiple of 32, one that differs from that of those who came before, also where these
/// have none and it is that of all threads, and an arrival without one.
fn barrier_count() -> Result<()> {
    let waits = |count| [0, 0, WAITS, count];
    let later = [10_000, 0, WAITS, 96];
    let all = [0, 0, WAITS_FOR_ALL, 0];
    for ways in [
        vec![waits(48); 2],
        vec![waits(64), waits(64), later, later, later, later],
        vec![all, all, later, later, later, later],
        vec![[0, 0, ARRIVES, 0]; 2],
    ] {
        match meet(&open()?, &ways).map_err(|e| e.downcast::<Error>()) {
            Err(Ok(Error::Fault(report))) => {
                println!("{report}");
                ensure!(report.kind == FaultKind::IllegalParameter, "the wrong kind: {report}");
                ensure!(report.instruction.as_ref().is_none_or(|i| i.contains("BAR")), "{report}");
            }
            other => bail!("{ways:?}: expected a fault, not {other:?}"),
        }
    }
    Ok(())
}

/// After a fault every call on the device is an error at once, and another device in the same process works.
/// A wait that spins for as long as most programs would wait looks at the channel meanwhile.
fn spinning() -> Result<()> {
    let spin = Duration::from_secs(30);
    let device = open_with(|options| options.spin = Some(spin))?;
    let kernel = Kernels::load(&device)?.get("store_at")?;
    let va = nowhere(&device)?;
    let began = Instant::now();
    fault(&device, &kernel, &Args::new().u64(va).u32(1))?;
    ensure!(began.elapsed() < spin / 2, "noticed after {:?}", began.elapsed());
    Ok(())
}

fn recovery() -> Result<()> {
    for round in 0..3 {
        let device = open()?;
        let kernels = Kernels::load(&device)?;
        let (fill, store) = (kernels.get("fill")?, kernels.get("store_at")?);
        let out = device.alloc(4096)?;
        let mut queue = device.queue()?;
        // SAFETY: 1024 words are written.
        unsafe {
            queue.launch(&fill, LaunchConfig::new(4, 256), &Args::new().buffer(&out).u32(1024).u32(round))?
        };
        queue.submit()?.wait(DEADLINE)?;
        ensure!(
            out.read_vec::<u32>(0, 1024)?.iter().copied().eq(round..round + 1024),
            "round {round}: before the fault"
        );
        fault(&device, &store, &Args::new().u64(nowhere(&device)?).u32(1))?;

        let began = Instant::now();
        // SAFETY: as above; the launch is refused.
        let after =
            unsafe { queue.launch(&fill, LaunchConfig::new(1, 1), &Args::new().buffer(&out).u32(1).u32(1)) }
                .and_then(|()| queue.submit())
                .and_then(|p| p.wait(DEADLINE));
        ensure!(matches!(after, Err(Error::Lost(_) | Error::Fault(_))), "a lost device went on: {after:?}");
        ensure!(
            device.alloc(4096).is_err() && out.write(0, &[0]).is_err(),
            "a lost device handed out memory"
        );
        ensure!(
            began.elapsed() < Duration::from_secs(5),
            "a lost device took {:?} to say so",
            began.elapsed()
        );
    }
    Ok(())
}
