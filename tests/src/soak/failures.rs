//! Each call that a device makes of its driver fails once, in each manner that a kernel shows. A failure that
//! the program can do something about is an error that names the call; a signal is nothing. Nothing is left
//! behind: descriptors, mappings, what the model of the driver keeps.

use std::os::fd::AsFd;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use ga10b_sim::{Sim, SimConfig};
use hcq::{Args, Device, DeviceOptions, Error, LaunchConfig, Selector};
use nix::fcntl::OFlag;
use nvgpu_sys::{Linux, NVMAP_HEAP_IOVMM, Sys, nvmap_query_heap_params};

use crate::harness::{DEADLINE, selector};
use crate::kernels::Kernels;
use crate::soak::injector::{Injector, Manner};
use crate::soak::plan::{Plan, descriptors};

/// Calls whose failure costs nothing that the program asked for: what is given back, a wish, details of a fault, a
/// size that is known otherwise, a question that a wait asks now and then.
const FORGIVEN: [&str; 9] = [
    "close",
    "munmap",
    "NVGPU_AS_IOCTL_UNMAP_BUFFER",
    "NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT",
    "NVMAP_IOC_QUERY_HEAP_PARAMS",
    "NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE",
    "NVGPU_TSG_IOCTL_READ_ALL_SM_ERROR_STATES",
    "NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE",
    // Of a desktop driver: some creations have a second way, and all controls have the same number.
    "ioctl",
];

/// A use of a device.
#[derive(Clone, Copy, Debug)]
struct Work {
    name: &'static str,
    run: fn(&Device) -> Result<()>,
}

const WORK: [Work; 2] = [Work { name: "work", run: work }, Work { name: "a fault", run: fault }];

/// Fails every call once, in every manner; or each n-th call, where the plan says so.
pub(super) fn failures(plan: &Plan) -> Result<String> {
    let (mut failed, mut errors) = (0, 0);
    for task in WORK {
        for manner in Manner::ALL {
            let (calls, error) = attempt(task, manner, 0)?;
            ensure!(error.is_none(), "{} without a failure: {error:?}", task.name);
            for at in (1..=calls).step_by(plan.failures.max(1) as usize) {
                let context = || format!("{}, call {at} of {calls} {manner}", task.name);
                let (_, error) = attempt(task, manner, at).with_context(context)?;
                failed += 1;
                errors += u32::from(error.is_some());
            }
        }
    }
    Ok(format!("{failed} calls that failed, {errors} of them errors that name the call"))
}

/// Does the work with one call that fails; how many calls there were that can, and what became of it.
fn attempt(task: Work, manner: Manner, at: usize) -> Result<(usize, Option<anyhow::Error>)> {
    let before = (descriptors()?, mappings()?);
    let outcome = attempt_inside(task, manner, at)?;
    let after = (descriptors()?, mappings()?);
    ensure!(before == after, "{before:?} descriptors and mappings before, {after:?} afterwards");
    Ok(outcome)
}

fn attempt_inside(task: Work, manner: Manner, at: usize) -> Result<(usize, Option<anyhow::Error>)> {
    let mut options = DeviceOptions::default();
    options.patience = DEADLINE;
    let (sim, sys): (_, Arc<dyn Sys>) = match selector()? {
        Selector::Sim => {
            let sim = Sim::new(SimConfig::default());
            (Some(sim.clone()), sim)
        }
        _ => (None, Arc::new(Linux)),
    };
    let injector = Injector::new(sys, manner, at);
    let device = match selector()? {
        Selector::Rm => hcq::sys::open_rm(injector.clone(), options),
        Selector::Nvgpu | Selector::Sim => hcq::sys::open_nvgpu(injector.clone(), options),
        Selector::Auto => bail!("HCQ_DEVICE=auto: name the device"),
    };
    let result = device.context("opening").and_then(|device| (task.run)(&device));
    let calls = injector.calls();
    if let (Some(failed), result) = (injector.failed(), &result) {
        let forgiven = manner == Manner::Interrupted || FORGIVEN.contains(&failed.name.as_str());
        match result {
            Ok(()) => ensure!(forgiven, "{} failed unnoticed", failed.name),
            Err(error) => {
                ensure!(manner != Manner::Interrupted, "{}: {error:?}", failed.name);
                let text = format!("{error:#}");
                ensure!(text.contains(&failed.named_by), "{} is not named by: {text}", failed.name);
            }
        }
    }
    let failed = injector.failed().map(|failed| failed.name);
    // It removes what the program could not: memory is kept as long as it is mapped.
    drop(injector);
    if let Some(sim) = sim {
        ensure!(sim.violations().is_empty(), "{:?}", sim.violations());
        ensure!(sim.page_tables().is_empty(), "address spaces are left: {:?}", sim.page_tables());
        let (total, free) = heap(&*sim)?;
        ensure!(total == free, "{} bytes of the model's memory are left after {failed:?}", total - free);
    }
    Ok((calls, result.err()))
}

/// Mappings of the process that are of a device or its memory.
fn mappings() -> Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps").context("/proc/self/maps")?;
    let of_device = |line: &&str| ["/dev/nv", "dmabuf", "memfd:"].iter().any(|name| line.contains(name));
    Ok(maps.lines().filter(of_device).count())
}

/// Total and free bytes of the heap that buffers come from.
fn heap(sys: &dyn Sys) -> Result<(u64, u64)> {
    let nvmap = sys.open(c"/dev/nvmap", OFlag::O_RDWR | OFlag::O_CLOEXEC)?;
    let mut params = nvmap_query_heap_params { heap_mask: NVMAP_HEAP_IOVMM, ..Default::default() };
    // SAFETY: the struct holds no addresses.
    let asked = unsafe { nvgpu_sys::call(sys, nvmap.as_fd(), &mut params) };
    sys.close(nvmap)?;
    asked?;
    Ok((params.total, params.free))
}

/// All that a device is for, in small.
fn work(device: &Device) -> Result<()> {
    let kernels = Kernels::load(device)?;
    let (fill, step) = (kernels.get("fill")?, kernels.get("step")?);
    let [small, large, host] = [device.alloc(4096)?, device.alloc(16 << 20)?, device.alloc_host(1 << 20)?];
    large.write(0, &[0; 64])?;
    let (mut queue, mut copies) = (device.queue()?, device.copy_queue()?);
    let began = queue.timestamp()?;
    // SAFETY: 1024 words are written.
    unsafe {
        queue.launch(&fill, LaunchConfig::new(8, 128), &Args::new().buffer(&small).u32(1024).u32(5))?;
    }
    queue.barrier();
    queue.copy(&small, 0, &large, 8 << 20, 4096)?;
    let filled = queue.submit()?;
    copies.wait_for(&filled)?;
    copies.copy(&large, 8 << 20, &host, 0, 4096)?;
    copies.submit()?.wait(DEADLINE)?;
    ensure!(
        host.read_vec::<u32>(0, 1024)?.into_iter().eq(5..5 + 1024),
        "the copy queue copied something else"
    );
    let mut graph = device.graph();
    let args = |add: u32| Args::new().buffer(&small).u32(1024).u32(1).u32(add);
    // SAFETY: 1024 words are read and written.
    let node = unsafe { graph.launch(&step, LaunchConfig::new(8, 128), &args(1))? };
    let graph = graph.build()?;
    queue.replay(&graph)?;
    // SAFETY: as above.
    unsafe { graph.patch_args(node, 0, &args(10))? };
    queue.replay(&graph)?.wait(DEADLINE)?;
    ensure!(
        small.read_vec::<u32>(0, 1024)?.into_iter().eq(16..16 + 1024),
        "the graph computed something else"
    );
    ensure!(began.ns().is_some() && device.gpu_time()? > 0, "no time was taken");
    drop(small);
    device.alloc(4096)?.write(0, &[1; 4096])?;
    Ok(())
}

/// A kernel that faults, and what its report is made from.
fn fault(device: &Device) -> Result<()> {
    let store = Kernels::load(device)?.get("store_at")?;
    let mut queue = device.queue()?;
    let args = Args::new().u64(crate::faults::nowhere(device)?).u32(1);
    // SAFETY: nothing is mapped where the kernel writes.
    unsafe { queue.launch(&store, LaunchConfig::new(1, 1), &args)? };
    match queue.submit()?.wait(DEADLINE) {
        Err(Error::Fault(_)) => Ok(()),
        Err(error) => Err(error).context("instead of a fault"),
        Ok(()) => bail!("a store to nowhere ended well"),
    }
}
