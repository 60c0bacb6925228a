//! A real Orin's driver and work that does not give way, and its effect on this library.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ga10b_sim::{Session, Sim, SimConfig, WhatIf, WhatIfs};
use hcq::{
    Args, Buffer, CommandMemory, Device, DeviceOptions, DriverError, Error, FaultKind, Kernel, LaunchConfig,
    Preemption, Profile, Queue, Subcontext, SyncPoint,
};
use nvgpu_sys::Sys;

const ENDINGS: &[u8] = include_bytes!("../kernels/endings.sm_87.cubin");
const EXAMPLES: &[u8] = include_bytes!("../../examples/kernels/examples.sm_87.cubin");
const VECADD: &[u8] = include_bytes!("../data/01_vecadd.sm_87.cubin");
const MINUTE: Duration = Duration::from_secs(60);

fn open(config: SimConfig, patience: Duration) -> (Arc<Sim>, Device) {
    open_with(config, patience, Preemption::WaitForIdle)
}

fn open_with(config: SimConfig, patience: Duration, preemption: Preemption) -> (Arc<Sim>, Device) {
    let mut options = DeviceOptions::default();
    (options.patience, options.profile.preemption) = (patience, Some(preemption));
    open_as(config, options)
}

fn open_as(config: SimConfig, options: DeviceOptions) -> (Arc<Sim>, Device) {
    let sim = Sim::new(config);
    (sim.clone(), hcq::sim::open(sim, options).unwrap())
}

/// A kernel that runs until its flag is set.
struct Spin {
    kernel: Kernel,
    flag: Buffer,
    sim: Arc<Sim>,
}

impl Spin {
    fn new(sim: &Arc<Sim>, device: &Device) -> Self {
        let kernel = device.load(ENDINGS).unwrap().kernel("spin").unwrap();
        let flag = device.alloc_host(4).unwrap();
        flag.write(0, &[0; 4]).unwrap();
        Self { kernel, flag, sim: sim.clone() }
    }

    /// Returns when it runs.
    fn start(&self, queue: &mut Queue) -> SyncPoint {
        let begun = queue.timestamp().unwrap();
        // Not named as a buffer, so that the CPU may write it while the kernel runs.
        let args = Args::new().u64(self.flag.va().raw());
        // SAFETY: the kernel reads one word, which stays.
        unsafe { queue.launch(&self.kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
        let point = queue.submit().unwrap();
        let start = Instant::now();
        while begun.ns().is_none() {
            assert!(start.elapsed() < MINUTE, "{:?}", self.sim.kernel_log());
            std::thread::yield_now();
        }
        // The launch follows the timestamp without a pause.
        std::thread::sleep(Duration::from_millis(50));
        point
    }

    /// The kernel ends.
    fn end(&self) {
        self.flag.write(0, &[1; 4]).unwrap();
    }
}

#[test]
fn a_queue_is_created_beside_a_kernel_that_does_not_give_way_once_that_has_ended() {
    let (sim, device) = open(SimConfig::default(), MINUTE);
    let spin = Spin::new(&sim, &device);
    let mut first = device.queue().unwrap();
    let point = spin.start(&mut first);
    let mut second = std::thread::scope(|scope| {
        let created = scope.spawn(|| device.queue());
        std::thread::sleep(Duration::from_millis(400));
        assert!(!created.is_finished(), "the driver cannot serve the request while the kernel runs");
        spin.end();
        created.join().unwrap().unwrap()
    });
    point.wait(MINUTE).unwrap();
    second.submit().unwrap().wait(MINUTE).unwrap();
}

#[test]
fn a_queue_that_cannot_be_created_within_the_patience_is_an_error_that_says_why() {
    let (sim, device) = open(SimConfig::default(), Duration::from_millis(400));
    let spin = Spin::new(&sim, &device);
    let mut first = device.queue().unwrap();
    let point = spin.start(&mut first);
    let error = device.queue().unwrap_err();
    assert!(
        matches!(&error, Error::Driver(DriverError::Ioctl { name, .. }) if name.contains("ALLOC_OBJ_CTX")),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("cannot be preempted"), "{error:?}");
    spin.end();
    // The half-made channel was closed when that could do no harm.
    point.wait(MINUTE).unwrap();
    device.queue().unwrap().submit().unwrap().wait(MINUTE).unwrap();
}

#[test]
fn a_queue_works_after_all_others_are_gone_with_the_subcontext_that_they_ran_in() {
    for subcontext in [None, Some(Subcontext::Sync), Some(Subcontext::Async)] {
        let mut options = DeviceOptions::default();
        options.profile.subcontext = subcontext;
        let (_, device) = open_as(SimConfig::default(), options);
        let work = |mut queue: Queue| queue.submit().unwrap().wait(MINUTE).unwrap();
        for _ in 0..3 {
            work(device.queue().unwrap());
        }
        // Two at once, and the one that was there first goes first.
        let (first, second) = (device.queue().unwrap(), device.queue().unwrap());
        work(first);
        work(second);
        work(device.queue().unwrap());
    }
}

#[test]
fn queues_come_and_go_on_many_threads() {
    let (_, device) = open(SimConfig::default(), MINUTE);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    device.queue().unwrap().submit().unwrap().wait(MINUTE).unwrap();
                }
            });
        }
    });
}

#[test]
fn dropping_an_idle_queue_leaves_those_alone_that_work() {
    for preemption in Preemption::ALL {
        let (sim, device) = open_with(SimConfig::default(), MINUTE, preemption);
        let spin = Spin::new(&sim, &device);
        let (mut first, second) = (device.queue().unwrap(), device.queue().unwrap());
        let point = spin.start(&mut first);
        drop(second);
        std::thread::sleep(Duration::from_millis(300));
        spin.end();
        point.wait(MINUTE).unwrap();
        assert!(!sim.kernel_log().iter().any(|line| line.contains("tearing down")), "{:?}", sim.kernel_log());
    }
}

#[test]
fn a_group_that_the_driver_tears_down_in_silence_is_noticed_and_named() {
    let (sim, device) = open(SimConfig::default(), Duration::from_millis(300));
    let spin = Spin::new(&sim, &device);
    let (mut first, mut second) = (device.queue().unwrap(), device.queue().unwrap());
    let (point, _) = (spin.start(&mut first), spin.start(&mut second));
    let start = Instant::now();
    let error = std::thread::scope(|scope| {
        let waits = scope.spawn(|| point.wait(MINUTE).unwrap_err());
        drop(second);
        waits.join().unwrap()
    });
    println!("noticed {:?} after the drop began", start.elapsed());
    assert!(start.elapsed() < MINUTE / 4, "long before the wait would have ended");
    let (Error::Fault(report) | Error::Lost(report)) = &error else { panic!("{error}") };
    assert_eq!((report.kind, report.raw.notifier), (FaultKind::TornDown, 0), "{report}");
    assert!(report.raw.log.iter().any(|line| line.contains("tearing down TSG 0")), "{:?}", report.raw.log);
    assert!(error.to_string().contains("without an error notification"), "{error}");
    assert!(matches!(device.queue(), Err(Error::Lost(_))));
}

#[test]
fn local_memory_is_provided_for_as_many_warps_as_the_driver_counts() {
    let (sim, device) = open(SimConfig { sm_count: 4, ..SimConfig::default() }, MINUTE);
    let mut all = nvgpu_sys::nvgpu_gpu_characteristics::default();
    let ctrl = sim.open(c"/dev/nvgpu/igpu0/ctrl", nix::fcntl::OFlag::O_RDWR).unwrap();
    let mut args = nvgpu_sys::nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: size_of_val(&all) as u64,
        gpu_characteristics_buf_addr: (&raw mut all) as u64,
    };
    // SAFETY: the address is that of a struct of the size given.
    unsafe { nvgpu_sys::call(&*sim, ctrl.as_fd(), &mut args) }.unwrap();
    assert_eq!(all.sm_arch_warp_count, 96);
    let program = device.load(include_bytes!("../data/12_local_stack.sm_87.cubin")).unwrap();
    let kernel = program.kernels().find(|kernel| kernel.local_bytes() > 0).unwrap();
    let (mut queue, out) = (device.queue().unwrap(), device.alloc(1 << 20).unwrap());
    let words = kernel.param_bytes() / 4;
    let args = (0..words).fold(Args::new().buffer(&out), |args, at| if at < 2 { args } else { args.u32(0) });
    // SAFETY: recording alone provides the memory; nothing is handed over.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
    let scratch = device.memory_map().into_iter().find(|m| m.what == "scratch").unwrap();
    let per_warp = 32 * u64::from(kernel.local_bytes());
    let sms = 2 * u64::from(device.info().tpc_count);
    assert!(scratch.len >= 96 * sms * per_warp, "{}", scratch.len);
}

#[test]
fn a_grid_whose_blocks_wait_for_each_other_survives_a_desktop() {
    for (preemption, session) in [
        (Preemption::Instructions, Session::Desktop),
        (Preemption::Instructions, Session::DesktopAfterBlocks(1)),
        (Preemption::WaitForIdle, Session::DesktopAfterBlocks(1)),
    ] {
        let config = SimConfig { session, sm_count: 4, ..SimConfig::default() };
        let (sim, device) = open_with(config, MINUTE, preemption);
        let kernel = device.load(EXAMPLES).unwrap().kernel("rule90").unwrap();
        const CELLS: u32 = 1024;
        let [even, odd] = [0; 2].map(|_| device.alloc(4 * u64::from(CELLS)).unwrap());
        let arrived = device.alloc(4).unwrap();
        even.write(0, &[0; 4 * CELLS as usize]).unwrap();
        arrived.write(0, &[0; 4]).unwrap();
        let mut queue = device.queue().unwrap();
        let args = Args::new().buffer(&even).buffer(&odd).buffer(&arrived).u32(CELLS).u32(64);
        // SAFETY: the kernel reads and writes that many words of both buffers, and its blocks all run at
        // once.
        unsafe { queue.launch(&kernel, LaunchConfig::new(4, 256), &args) }.unwrap();
        queue.submit().unwrap().wait(MINUTE).unwrap_or_else(|e| panic!("{session:?}, {preemption}: {e}"));
        assert!(!sim.kernel_log().iter().any(|line| line.contains("ctxsw timeout error: ")));
    }
}

/// Launches that follow each other, and copies of both kinds.
fn work(device: &Device, patience: Duration) -> Result<(), Error> {
    const COUNT: u32 = 1024;
    let kernel = device.load(VECADD)?.kernel("vadd_f32")?;
    let [one, sum, copy] = [(); 3].map(|()| device.alloc(4 * u64::from(COUNT)));
    let (one, sum, copy) = (one?, sum?, copy?);
    one.write_slice(0, &[1_f32; COUNT as usize])?;
    sum.write(0, &[0; 4 * COUNT as usize])?;
    // Its signal's memory is what the next queue gets.
    device.queue()?.submit()?.wait(patience)?;
    let mut queue = device.queue()?;
    let mut other = device.queue()?;
    for _ in 0..3 {
        let args = Args::new().buffer(&one).buffer(&sum).buffer(&sum).u32(COUNT);
        // SAFETY: the kernel reads and writes that many words.
        unsafe { queue.launch(&kernel, LaunchConfig::new(4, 256), &args) }?;
        queue.barrier();
    }
    let summed = queue.submit()?;
    other.wait_for(&summed)?;
    other.copy(&sum, 0, &copy, 0, 4 * u64::from(COUNT))?;
    other.submit()?.wait(patience)?;
    summed.wait(patience)?;
    assert!(copy.read_vec::<f32>(0, COUNT as usize)? == [3.0; COUNT as usize], "wrong results");
    Ok(())
}

#[test]
fn by_default_and_conservative_work_is_done_whatever_of_a_healthy_board_is_not_as_the_model_has_it() {
    // A board whose firmware did not start is not healthy.
    let facts = WhatIfs::names().filter(|(_, fact)| *fact != WhatIf::ONLY_POWER);
    for (name, fact) in facts.chain([("nothing", WhatIf::empty())]) {
        for conservative in [false, true] {
            let mut options = DeviceOptions::default();
            options.conservative = Some(conservative);
            let config = SimConfig { what_if: fact.into(), ..SimConfig::default() };
            let (sim, device) = open_as(config, options);
            work(&device, MINUTE).unwrap_or_else(|error| panic!("{name}, {conservative}: {error}"));
            drop(device);
            assert!(sim.violations().is_empty(), "{name}: {:?}", sim.violations());
        }
    }
}

#[test]
fn a_profile_that_the_board_refutes_is_work_that_does_not_get_done() {
    let mut combined = Profile::default();
    combined.command_memory = Some(CommandMemory::WriteCombined);
    let mut sync = Profile::default();
    sync.subcontext = Some(Subcontext::Sync);
    for (fact, profile) in [(WhatIf::STALE_WRITE_COMBINED, combined), (WhatIf::DEAD_VEID_0, sync)] {
        for (fact, works) in [(fact, false), (WhatIf::empty(), true)] {
            let mut options = DeviceOptions::default();
            (options.profile, options.patience) = (profile, Duration::from_millis(500));
            let (_sim, device) = open_as(SimConfig { what_if: fact.into(), ..SimConfig::default() }, options);
            let patience = if works { MINUTE } else { Duration::from_millis(500) };
            assert_eq!(work(&device, patience).is_ok(), works, "{profile} {fact:?}");
        }
    }
}

#[test]
fn a_kernel_of_seconds_beside_a_desktop_costs_its_channel_unless_it_is_preempted_between_instructions() {
    for preemption in Preemption::ALL {
        let mut options = DeviceOptions::default();
        (options.profile.preemption, options.switch_limit) =
            (Some(preemption), Some(Duration::from_millis(300)));
        options.patience = MINUTE;
        let (sim, device) = open_as(SimConfig { session: Session::Desktop, ..SimConfig::default() }, options);
        let spin = Spin::new(&sim, &device);
        let mut queue = device.queue().unwrap();
        let point = spin.start(&mut queue);
        match preemption {
            Preemption::Instructions => {
                std::thread::sleep(Duration::from_secs(1));
                spin.end();
                point.wait(MINUTE).unwrap();
            }
            Preemption::WaitForIdle => {
                let error = point.wait(MINUTE).unwrap_err();
                let Error::Fault(report) = &error else { panic!("{error}") };
                assert_eq!(report.kind, FaultKind::SwitchTimeout, "{report}");
            }
        }
    }
}
