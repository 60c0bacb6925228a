//! A process that forks: the device stays with the parent, and a child opens one of its own.
//!
//! A program of its own: a child lives long and has a copy of every descriptor of the process, also of those with
//! which other tests see that something was closed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use hcq::{Args, Buffer, Device, Error, Kernel, LaunchConfig, Queue, Selector, SyncPoint};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};

const SHAPES: &[u8] = include_bytes!("kernels/shapes.sm_87.cubin");
const DEADLINE: Duration = Duration::from_secs(60);

/// Runs `child` in a fork; how it ended. One that hangs is killed.
fn in_fork(child: impl FnOnce()) -> WaitStatus {
    // SAFETY: the child allocates, which glibc and musl allow after a fork, and takes no lock of the parent's
    // but those that this test is about.
    match unsafe { fork() }.unwrap() {
        ForkResult::Child => {
            let code = i32::from(catch_unwind(AssertUnwindSafe(child)).is_err());
            // SAFETY: ends the child without the exit handlers and destructors of the parent.
            unsafe { libc::_exit(code) }
        }
        ForkResult::Parent { child } => wait(child),
    }
}

fn wait(child: Pid) -> WaitStatus {
    let start = Instant::now();
    loop {
        match waitpid(child, Some(WaitPidFlag::WNOHANG)).unwrap() {
            WaitStatus::StillAlive if start.elapsed() < DEADLINE => {
                std::thread::sleep(Duration::from_millis(2))
            }
            WaitStatus::StillAlive => {
                // SAFETY: the child is this test's own, and was not waited for yet.
                unsafe { libc::kill(child.as_raw(), libc::SIGKILL) };
                waitpid(child, None).unwrap();
                panic!("the child hangs");
            }
            ended => return ended,
        }
    }
}

struct Opened {
    device: Device,
    kernel: Kernel,
    buffer: Buffer,
    queue: Queue,
}

impl Opened {
    fn new() -> Self {
        let device = Device::open(Selector::Sim).expect("the software device opens anywhere");
        let kernel = device.load(SHAPES).unwrap().kernel("exact").unwrap();
        let buffer = device.alloc(4).unwrap();
        let queue = device.queue().unwrap();
        Self { device, kernel, buffer, queue }
    }

    fn launch(&mut self) -> Result<SyncPoint, Error> {
        let args = Args::new().buffer(&self.buffer);
        // SAFETY: the kernel writes one word.
        unsafe { self.queue.launch(&self.kernel, LaunchConfig::new(1, (32, 4)), &args) }?;
        self.queue.submit()
    }

    /// The word that the kernel wrote.
    fn result(&self) -> Result<u32, Error> {
        Ok(self.buffer.read_vec(0, 1)?[0])
    }
}

/// The words that the kernel writes.
const WRITTEN: u32 = 4;

#[test]
fn a_child_can_do_nothing_with_its_parents_device_and_opens_its_own() {
    let mut opened = Opened::new();
    let parent = std::process::id();
    opened.buffer.write_slice(0, &[7_u32]).unwrap();
    let other = opened.device.alloc_host(16 << 20).unwrap();
    assert!(other.host_pointer().is_some());
    let mut recording = opened.device.graph();
    recording.copy(&opened.buffer, 0, &other, 0, 4).unwrap();
    let graph = recording.build().unwrap();
    let stamp = opened.queue.timestamp().unwrap();
    let point = opened.queue.submit().unwrap();
    point.wait(DEADLINE).unwrap();

    let mut moved = Some((opened, graph, point.clone(), stamp.clone(), other));
    let status = in_fork(|| {
        let (mut o, graph, point, stamp, other) = moved.take().unwrap();
        let args = Args::new().buffer(&o.buffer);
        let shape = LaunchConfig::new(1, (32, 4));
        let refused: Vec<(&str, Error)> = vec![
            // SAFETY: refused.
            ("launch", unsafe { o.queue.launch(&o.kernel, shape, &args) }.unwrap_err()),
            ("submit", o.queue.submit().unwrap_err()),
            ("replay", o.queue.replay(&graph).unwrap_err()),
            ("copy", o.queue.copy(&o.buffer, 0, &other, 0, 4).unwrap_err()),
            ("timestamp", o.queue.timestamp().unwrap_err()),
            ("wait_for", o.queue.wait_for(&point).unwrap_err()),
            ("read", o.result().unwrap_err()),
            ("write", o.buffer.write(0, &[0; 4]).unwrap_err()),
            ("wait", point.wait(DEADLINE).unwrap_err()),
            ("is_done", point.is_done().unwrap_err()),
            ("alloc", o.device.alloc(4).unwrap_err()),
            ("alloc_host", o.device.alloc_host(1 << 20).unwrap_err()),
            ("load", o.device.load(SHAPES).unwrap_err()),
            ("queue", o.device.queue().unwrap_err()),
            ("copy_queue", o.device.copy_queue().unwrap_err()),
            ("gpu_time", o.device.gpu_time().unwrap_err()),
            ("clock_pair", o.device.clock_pair().unwrap_err()),
            ("graph", o.device.graph().build().unwrap_err()),
        ];
        for (call, error) in refused {
            let here = std::process::id();
            assert!(
                matches!(error, Error::Forked { owner, process } if owner == parent && process == here),
                "{call}: {error:?}"
            );
            assert!(error.hint().is_some());
        }
        assert_eq!((stamp.ns(), other.host_pointer()), (None, None));
        assert!(o.device.memory_map().is_empty());
        drop((o, graph, point, stamp, other));
        let mut own = Opened::new();
        own.launch().unwrap().wait(DEADLINE).unwrap();
        assert_eq!(own.result().unwrap(), WRITTEN);
    });
    assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");

    // The parent's device is as it was.
    let (mut opened, graph, _, stamp, other) = moved.take().unwrap();
    assert_eq!(opened.result().unwrap(), 7);
    assert!(stamp.ns().is_some());
    opened.queue.replay(&graph).unwrap().wait(DEADLINE).unwrap();
    assert_eq!(other.read_vec::<u32>(0, 1).unwrap(), [7]);
    opened.launch().unwrap().wait(DEADLINE).unwrap();
    assert_eq!(opened.result().unwrap(), WRITTEN);
    let sim = hcq::sim::of(&opened.device).unwrap();
    drop((opened, graph, stamp, other, point));
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

#[test]
fn a_fork_while_other_threads_work_leaves_no_lock_behind() {
    let opened = Opened::new();
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        // Holds the locks of the memory tables, of the driver and of the buffer most of the time.
        scope.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let buffer = opened.device.alloc(1 << 20).unwrap();
                buffer.write(0, &[1; 4096]).unwrap();
                opened.buffer.write(0, &[1; 4]).unwrap();
            }
        });
        for _ in 0..20 {
            let mut copies = Some((opened.buffer.clone(), opened.device.clone()));
            let status = in_fork(|| {
                let (buffer, device) = copies.take().unwrap();
                assert!(matches!(buffer.read(0, &mut [0; 4]), Err(Error::Forked { .. })));
                assert!(matches!(device.alloc(1 << 20), Err(Error::Forked { .. })));
                drop((buffer, device));
            });
            assert!(matches!(status, WaitStatus::Exited(_, 0)), "{status:?}");
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
