//! What a real Orin's driver does to work that does not give way, and what becomes of it here.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ga10b_sim::{Session, Sim, SimConfig};
use hcq::{Args, Buffer, Device, DeviceOptions, Error, FaultKind, Kernel, LaunchConfig, Queue, SyncPoint};
use nvgpu_sys::Sys;

const ENDINGS: &[u8] = include_bytes!("kernels/endings.sm_87.cubin");
const EXAMPLES: &[u8] = include_bytes!("../examples/kernels/examples.sm_87.cubin");
const MINUTE: Duration = Duration::from_secs(60);

/// A machine whose driver cannot preempt kernels between two instructions.
fn without_cilp() -> SimConfig {
    SimConfig { cilp: false, ..SimConfig::default() }
}

fn open(config: SimConfig, patience: Duration) -> (Arc<Sim>, Device) {
    let sim = Sim::new(config);
    let mut options = DeviceOptions::default();
    options.patience = patience;
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
    let (sim, device) = open(without_cilp(), MINUTE);
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
    let (sim, device) = open(without_cilp(), Duration::from_millis(400));
    let spin = Spin::new(&sim, &device);
    let mut first = device.queue().unwrap();
    let point = spin.start(&mut first);
    let error = device.queue().unwrap_err();
    assert!(matches!(&error, Error::Ioctl { name, .. } if name.contains("ALLOC_OBJ_CTX")), "{error}");
    assert!(error.hint().unwrap().contains("cannot be preempted"), "{error:?}");
    spin.end();
    // What was made of the channel that did not come to be went when it could go without harm.
    point.wait(MINUTE).unwrap();
    device.queue().unwrap().submit().unwrap().wait(MINUTE).unwrap();
}

#[test]
fn dropping_an_idle_queue_leaves_those_alone_that_work() {
    for config in [without_cilp(), SimConfig::default()] {
        let (sim, device) = open(config, MINUTE);
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
    let (sim, device) = open(without_cilp(), Duration::from_millis(300));
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
    let program = device.load(include_bytes!("data/12_local_stack.sm_87.cubin")).unwrap();
    let kernel = program.kernels().find(|kernel| kernel.local_bytes() > 0).unwrap();
    let (mut queue, out) = (device.queue().unwrap(), device.alloc(1 << 20).unwrap());
    let words = kernel.param_bytes() / 4;
    let args = (0..words).fold(Args::new().buffer(&out), |args, at| if at < 2 { args } else { args.u32(0) });
    // SAFETY: recording alone provides the memory; nothing is handed over.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
    let scratch = device.memory_map().into_iter().find(|m| m.what == "scratch").unwrap();
    let per_warp = 32 * u64::from(kernel.local_bytes());
    let sms = 2 * u64::from(device.info().tpc_count);
    assert!(scratch.len.count() >= 96 * sms * per_warp, "{}", scratch.len);
}

#[test]
fn a_grid_whose_blocks_wait_for_each_other_survives_a_desktop() {
    for (cilp, session) in [
        (true, Session::Desktop),
        (true, Session::DesktopAfterBlocks(1)),
        (false, Session::DesktopAfterBlocks(1)),
    ] {
        let (sim, device) = open(SimConfig { cilp, session, sm_count: 4, ..SimConfig::default() }, MINUTE);
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
        queue.submit().unwrap().wait(MINUTE).unwrap_or_else(|e| panic!("{session:?}, CILP {cilp}: {e}"));
        assert!(!sim.kernel_log().iter().any(|line| line.contains("ctxsw timeout error: ")));
    }
}
