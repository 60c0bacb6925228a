//! Every call comes to an end: whatever a kernel, a signal or a limit of the driver does.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ga10b_sim::{Sim, SimConfig};
use hcq::{Args, Device, DeviceOptions, DriverError, Error, LaunchConfig, QueueError, Selector};
use nix::errno::Errno;
use nvgpu_sys::{Layer, Sys};

const ENDINGS: &[u8] = include_bytes!("../kernels/endings.sm_87.cubin");
const PATIENCE: Duration = Duration::from_millis(1500);
/// Time that the driver takes to close a channel whose kernel does not end.
const CLOSING: Duration = Duration::from_millis(100);
/// For machines that have other things to do.
const SLACK: Duration = Duration::from_secs(4);

fn options(patience: Duration) -> DeviceOptions {
    let mut options = DeviceOptions::default();
    options.patience = patience;
    options
}

#[test]
fn dropping_everything_of_a_device_with_an_endless_kernel_takes_its_patience() {
    let device = Device::open_with(Selector::Sim, options(PATIENCE)).unwrap();
    let spin = device.load(ENDINGS).unwrap().kernel("spin").unwrap();
    let flag = device.alloc(4).unwrap();
    flag.write(0, &[0; 4]).unwrap();
    let mut queue = device.queue().unwrap();
    // SAFETY: the kernel reads one word.
    unsafe { queue.launch(&spin, LaunchConfig::new(1, 32), &Args::new().buffer(&flag)) }.unwrap();
    let point = queue.submit().unwrap();
    let start = Instant::now();
    assert!(matches!(flag.read(0, &mut [0]), Err(Error::Queue(QueueError::Timeout { .. }))));
    assert!((PATIENCE..PATIENCE + SLACK).contains(&start.elapsed()), "{:?}", start.elapsed());
    let start = Instant::now();
    drop((queue, spin, flag, device));
    println!("dropped in {:?}", start.elapsed());
    assert!(start.elapsed() < PATIENCE + CLOSING + SLACK, "{:?}", start.elapsed());
    let start = Instant::now();
    assert!(
        matches!(point.wait(Duration::from_secs(60)), Err(Error::Queue(QueueError::Stopped))),
        "nothing runs any more"
    );
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
}

#[test]
fn closing_a_queue_says_why_its_work_did_not_end_once() {
    let launched = |kernel, args| {
        let device = Device::open_with(Selector::Sim, options(Duration::from_millis(100))).unwrap();
        let kernel = device.load(ENDINGS).unwrap().kernel(kernel).unwrap();
        let flag = device.alloc(4).unwrap();
        flag.write(0, &[0; 4]).unwrap();
        let (mut queue, other) = (device.queue().unwrap(), device.queue().unwrap());
        let args = if args { Args::new().buffer(&flag) } else { Args::new().u64(1 << 39) };
        // SAFETY: the kernel reads one word, or faults.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
        let point = queue.submit().unwrap();
        (device, queue, other, point)
    };
    let (_device, queue, other, _) = launched("spin", true);
    assert!(matches!(queue.close(), Err(Error::Queue(QueueError::Timeout { .. }))));
    other.close().unwrap();
    let (_device, queue, other, _) = launched("spin", false);
    assert!(matches!(queue.close(), Err(Error::Fault(_))));
    other.close().unwrap();
    // The wait has said it.
    let (_device, queue, _, point) = launched("spin", false);
    assert!(matches!(point.wait(Duration::from_secs(60)), Err(Error::Fault(_))));
    queue.close().unwrap();
}

#[test]
fn a_queue_without_patience_says_at_once_that_its_rings_are_full_and_takes_the_work_later() {
    let device = Device::open(Selector::Sim).unwrap();
    let spin = device.load(ENDINGS).unwrap().kernel("spin").unwrap();
    let flag = device.alloc_host(4).unwrap();
    flag.write(0, &[0; 4]).unwrap();
    let mut queue = device.queue().unwrap();
    queue.set_patience(Duration::ZERO);
    let start = Instant::now();
    // SAFETY: the kernel reads one word.
    unsafe { queue.launch(&spin, LaunchConfig::new(1, 32), &Args::new().buffer(&flag)) }.unwrap();
    let full = loop {
        match queue.submit() {
            Ok(_) => {}
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Queue(QueueError::Timeout { .. })), "{full}");
    let waited = flag.wait(Duration::from_millis(20));
    assert!(matches!(waited, Err(Error::Queue(QueueError::Timeout { .. }))), "{waited:?}");
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    let word = flag.host_pointer().unwrap().cast::<u32>();
    // SAFETY: the buffer is alive, and this thread alone writes there.
    unsafe { word.as_ptr().write_volatile(1) };
    flag.wait(Duration::from_secs(60)).unwrap();
    queue.submit().unwrap().wait(Duration::from_secs(60)).unwrap();
}

#[test]
fn work_that_waits_for_a_queue_that_was_dropped_learns_that_it_will_never_start() {
    let patience = Duration::from_millis(300);
    let device = Device::open_with(Selector::Sim, options(patience)).unwrap();
    let spin = device.load(ENDINGS).unwrap().kernel("spin").unwrap();
    let (flag, [from, to]) = (device.alloc(4).unwrap(), [(); 2].map(|()| device.alloc(4).unwrap()));
    flag.write(0, &[0; 4]).unwrap();
    let [mut first, mut second, mut third] = [(); 3].map(|()| device.queue().unwrap());
    // SAFETY: the kernel reads one word.
    unsafe { first.launch(&spin, LaunchConfig::new(1, 32), &Args::new().buffer(&flag)) }.unwrap();
    let endless = first.submit().unwrap();
    let before = second.submit().unwrap();
    second.wait_for(&endless).unwrap();
    second.copy(&from, 0, &to, 0, 4).unwrap();
    let copied = second.submit().unwrap();
    third.wait_for(&copied).unwrap();
    let last = third.submit().unwrap();
    assert!(
        matches!(copied.wait(Duration::from_millis(20)), Err(Error::Queue(QueueError::Timeout { .. }))),
        "it may start yet"
    );
    before.wait(Duration::from_secs(60)).unwrap();
    drop(first);
    let start = Instant::now();
    before.wait(Duration::from_secs(60)).unwrap();
    for point in [&copied, &last] {
        let error = point.wait(Duration::from_secs(60)).unwrap_err();
        // The driver may take the group down with a channel that is closed beside others.
        let known = matches!(error, Error::Queue(QueueError::Starved) | Error::Fault(_) | Error::Lost(_));
        assert!(known && error.hint().is_some(), "{error:?}");
    }
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    assert!(to.read(0, &mut [0]).is_err());
    assert!(device.queue().and_then(|mut queue| queue.wait_for(&endless)).is_err());
    drop((second, third));
    println!("learned and dropped in {:?}", start.elapsed());
    assert!(start.elapsed() < CLOSING * 2 + SLACK, "{:?}", start.elapsed());
}

/// The software device; requests are interrupted by signals while `interrupted` is set.
#[derive(Debug)]
struct Signals {
    sim: Arc<Sim>,
    interrupted: AtomicBool,
}

// SAFETY: every call is passed on to an implementation, or refused.
unsafe impl Layer for Signals {
    fn below(&self) -> &dyn Sys {
        &*self.sim
    }

    unsafe fn ioctl(&self, fd: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        if self.interrupted.load(Ordering::Relaxed) {
            return Err(Errno::EINTR);
        }
        // SAFETY: passed on from the caller.
        unsafe { self.sim.ioctl(fd, request, arg) }
    }
}

#[test]
fn requests_that_signals_interrupt_for_ever_end_after_the_patience() {
    let patience = Duration::from_millis(300);
    let sys = Arc::new(Signals { sim: Sim::new(SimConfig::default()), interrupted: AtomicBool::new(true) });
    let interrupted = |error: &Error| {
        matches!(error, Error::Driver(DriverError::Interrupted { .. })) && error.hint().is_some()
    };
    let start = Instant::now();
    let error = hcq::sys::open_nvgpu(sys.clone(), options(patience)).unwrap_err();
    assert!(interrupted(&error), "{error:?}");
    assert!((patience..patience + SLACK).contains(&start.elapsed()), "{:?}", start.elapsed());

    sys.interrupted.store(false, Ordering::Relaxed);
    let device = hcq::sys::open_nvgpu(sys.clone(), options(patience)).unwrap();
    let buffers: Vec<_> = (0..40).map(|_| device.alloc(16 << 20).unwrap()).collect();
    sys.interrupted.store(true, Ordering::Relaxed);
    assert!(interrupted(&device.alloc(16 << 20).unwrap_err()));
    assert!(interrupted(&device.queue().unwrap_err()));
    // Objects dropped meanwhile share one patience.
    let start = Instant::now();
    drop(buffers);
    assert!(start.elapsed() < SLACK, "{:?}", start.elapsed());
    sys.interrupted.store(false, Ordering::Relaxed);
    device.queue().unwrap().submit().unwrap().wait(Duration::from_secs(60)).unwrap();
}

#[test]
fn the_error_of_one_queue_too_many_says_how_many_there_can_be() {
    let device = Device::open(Selector::Sim).unwrap();
    let mut queues = Vec::new();
    let error = loop {
        match device.copy_queue() {
            Ok(queue) => queues.push(queue),
            Err(error) => break error,
        }
        assert!(queues.len() <= 128);
    };
    assert_eq!(queues.len(), 128);
    assert!(matches!(error, Error::Queue(QueueError::TooMany { limit: 128, .. })), "{error:?}");
    assert_eq!(error.to_string(), "the device has 128 queues, the most that its driver lets one device have");
    assert!(error.hint().is_some());
    drop(queues.pop());
    device.copy_queue().unwrap();
}

/// Beside work the channels of dropped queues stay, for the driver might take the others down with them. At its
/// limit a new queue waits for a moment in which nothing works.
#[test]
fn queues_come_and_go_beside_work() {
    let device = Device::open_with(Selector::Sim, options(Duration::from_secs(60))).unwrap();
    let spin = device.load(ENDINGS).unwrap().kernel("spin").unwrap();
    let (flag, one) = (device.alloc(4).unwrap(), device.alloc(4).unwrap());
    flag.write(0, &[0; 4]).unwrap();
    one.write(0, &[1; 4]).unwrap();
    let (mut queue, mut copies) = (device.queue().unwrap(), device.copy_queue().unwrap());
    let queues: Vec<_> = (2..128).map(|_| device.copy_queue().unwrap()).collect();
    // SAFETY: the kernel reads one word.
    unsafe { queue.launch(&spin, LaunchConfig::new(1, 32), &Args::new().buffer(&flag)) }.unwrap();
    let busy = queue.submit().unwrap();
    drop(queues);
    let wait = Duration::from_millis(50);
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(wait);
            copies.copy(&one, 0, &flag, 0, 4).unwrap();
            copies.submit().unwrap();
        });
        let begin = Instant::now();
        device.copy_queue().unwrap();
        assert!(begin.elapsed() >= wait, "there was room for another");
    });
    busy.wait(PATIENCE).unwrap();
    // All of them are gone.
    let queues: Vec<_> = (2..128).map(|_| device.copy_queue().unwrap()).collect();
    assert_eq!(queues.len(), 126);
}

#[test]
fn a_launch_that_cannot_end_is_reported_in_the_words_of_the_software_gpu() {
    let device = Device::open_with(Selector::Sim, options(PATIENCE)).unwrap();
    let deadlock = device.load(ENDINGS).unwrap().kernel("deadlock").unwrap();
    let mut queue = device.queue().unwrap();
    // SAFETY: the kernel reads and writes nothing.
    unsafe { queue.launch(&deadlock, LaunchConfig::new(1, 64), &Args::new()) }.unwrap();
    // Alone on the GPU it is silence for the driver, and so for the program: only the software GPU has words.
    let error = queue.submit().unwrap().wait(PATIENCE).unwrap_err();
    let Error::Queue(QueueError::Timeout { explanation, .. }) = &error else { panic!("{error}") };
    let [words] = explanation.as_slice() else { panic!("{explanation:?}") };
    for part in ["deadlock: warp 0 lanes 0xffffffff", "for block barrier 0; warp 1", "for block barrier 1"] {
        assert!(words.contains(part), "{words}");
    }
    assert!(error.to_string().contains(words), "{error}");
}
