//! The whole path on the software ga10b: through the driver's ioctls, pushbuffers and machine code.

use std::time::Duration;

use ga10b_sim::{Sim, SimConfig};
use hcq::{
    Args, Buffer, Device, DeviceOptions, Error, FaultKind, GpuVa, Kernel, LaunchConfig, LaunchError,
    MemoryError, Program, ProgramError, QueueError, Release, Selector,
};

const VECADD: &[u8] = include_bytes!("../data/01_vecadd.sm_87.cubin");
const STACK: &[u8] = include_bytes!("../data/12_local_stack.sm_87.cubin");
const DEADLINE: Duration = Duration::from_secs(60);

fn device() -> Device {
    Device::open(Selector::Sim).expect("the software device opens anywhere")
}

fn device_with(change: impl FnOnce(&mut DeviceOptions)) -> Device {
    let mut options = DeviceOptions::default();
    change(&mut options);
    Device::open_with(Selector::Sim, options).expect("the software device opens anywhere")
}

fn vadd(device: &Device) -> Kernel {
    device.load(VECADD).unwrap().kernel("vadd_f32").unwrap()
}

fn floats(device: &Device, values: impl Iterator<Item = f32>) -> Buffer {
    let values: Vec<f32> = values.collect();
    let buffer = device.alloc(4 * values.len() as u64).unwrap();
    buffer.write_slice(0, &values).unwrap();
    buffer
}

fn read(buffer: &Buffer) -> Vec<f32> {
    buffer.read_vec(0, buffer.len() as usize / 4).unwrap()
}

fn add(a: &Buffer, b: &Buffer, c: &Buffer, n: u32) -> Args {
    Args::new().buffer(a).buffer(b).buffer(c).u32(n)
}

#[test]
fn a_kernel_adds_two_vectors() {
    let device = device();
    let kernel = vadd(&device);
    let n = 1000u32;
    let a = floats(&device, (0..n).map(|i| i as f32));
    let b = floats(&device, (0..n).map(|i| 2.0 * i as f32));
    let c = floats(&device, (0..n).map(|_| -1.0));
    let mut queue = device.queue().unwrap();
    // SAFETY: the kernel reads `n` elements of `a` and `b` and writes `n` of `c`.
    unsafe { queue.launch(&kernel, LaunchConfig::new(n.div_ceil(128), 128), &add(&a, &b, &c, n)) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    assert!(read(&c).iter().enumerate().all(|(i, v)| *v == 3.0 * i as f32));
}

/// Accumulates `b` into `c` many times, each launch depending on the one before.
fn accumulate(device: &Device, launches: u32) {
    let kernel = vadd(device);
    let n = 64u32;
    let b = floats(device, (0..n).map(|i| i as f32));
    let c = floats(device, (0..n).map(|_| 0.0));
    let mut queue = device.queue().unwrap();
    for _ in 0..launches {
        // SAFETY: `n` elements of each buffer.
        unsafe { queue.launch(&kernel, LaunchConfig::new(2, 32), &add(&c, &b, &c, n)) }.unwrap();
        queue.barrier();
    }
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    assert!(read(&c).iter().enumerate().all(|(i, v)| *v == (launches * i as u32) as f32), "{:?}", read(&c));
}

#[test]
fn dependent_launches_see_each_others_results_chained_or_not() {
    for chain in [true, false] {
        accumulate(&device_with(|o| o.chain_launches = chain), 100);
    }
}

#[test]
fn kernels_signal_their_own_end() {
    let device = device_with(|o| o.profile.release = Some(Release::Launch));
    accumulate(&device, 50);
    let kernel = vadd(&device);
    let n = 64u32;
    let one = floats(&device, (0..n).map(|_| 1.0));
    let sum = floats(&device, (0..n).map(|_| 0.0));
    let mut queue = device.queue().unwrap();
    let mut last = None;
    for i in 0..100 {
        // SAFETY: `n` elements of each buffer.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, 64), &add(&sum, &one, &sum, n)) }.unwrap();
        let point = queue.submit().unwrap();
        if i % 3 == 0 {
            point.wait(DEADLINE).unwrap();
        }
        last = Some(point);
    }
    last.unwrap().wait(DEADLINE).unwrap();
    assert_eq!(read(&sum), vec![100.0; n as usize]);
}

#[test]
fn more_launches_than_the_rings_hold() {
    accumulate(&device(), 6000);
}

#[test]
fn timelines_roll_over() {
    let device = device_with(|o| o.timeline_start = u64::MAX - 3);
    for _ in 0..4 {
        accumulate(&device, 2);
    }
    let mut queue = device.queue().unwrap();
    for _ in 0..10 {
        queue.submit().unwrap().wait(DEADLINE).unwrap();
    }
}

#[test]
fn copies_of_odd_sizes_and_offsets_arrive_through_both_kinds_of_queue() {
    let device = device();
    let source = device.alloc(1 << 16).unwrap();
    let pattern: Vec<u8> = (0..1u32 << 16).map(|i| ((i * 31) >> 3) as u8).collect();
    source.write(0, &pattern).unwrap();
    for mut queue in [device.queue().unwrap(), device.copy_queue().unwrap()] {
        for (from, to, len) in [(0, 0, 1), (1, 7, 333), (4095, 3, 4097), (13, 0, 60000)] {
            let target = device.alloc(1 << 16).unwrap();
            target.write(0, &vec![0; 1 << 16]).unwrap();
            queue.copy(&source, from, &target, to, len).unwrap();
            queue.submit().unwrap().wait(DEADLINE).unwrap();
            let mut got = vec![0; 1 << 16];
            target.read(0, &mut got).unwrap();
            let (from, to, len) = (from as usize, to as usize, len as usize);
            assert_eq!(got[to..to + len], pattern[from..from + len]);
            assert!(got[..to].iter().chain(&got[to + len..]).all(|b| *b == 0));
        }
        assert!(matches!(
            queue.copy(&source, 1, &source, 0, 1 << 16),
            Err(Error::Memory(MemoryError::OutOfBounds { .. }))
        ));
    }
}

#[test]
fn staged_copies_move_the_same_bytes() {
    let device = device_with(|o| o.staged_copies = true);
    let len = (5 << 20) + 77;
    let buffer = device.alloc(len + 3).unwrap();
    let pattern: Vec<u8> = (0..len).map(|i| ((i * 7) >> 4) as u8).collect();
    buffer.write(3, &pattern).unwrap();
    let mut got = vec![0; len as usize];
    buffer.read(3, &mut got).unwrap();
    assert!(got == pattern);
    accumulate(&device, 3);
}

#[test]
fn threads_stage_copies_at_the_same_time() {
    // More threads than there are staging slots, each with copies of several slots and of less than one.
    const PART: usize = (3 << 20) + 40_001;
    let device = device_with(|o| o.staged_copies = true);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let threads = (cores + 2).min(18);
    let buffer = device.alloc((threads * PART) as u64).unwrap();
    let byte = |i: usize| ((i * 11) >> 5) as u8;
    std::thread::scope(|scope| {
        for start in (0..threads).map(|thread| thread * PART) {
            let buffer = &buffer;
            scope.spawn(move || {
                let data: Vec<u8> = (start..start + PART).map(byte).collect();
                let (large, small) = data.split_at(PART - 40_001);
                buffer.write(start as u64, large).unwrap();
                buffer.write((start + large.len()) as u64, small).unwrap();
                let mut got = vec![0; PART];
                buffer.read(start as u64, &mut got).unwrap();
                assert!(got == data, "the part from {start} on");
            });
        }
    });
    let mut all = vec![0; threads * PART];
    buffer.read(0, &mut all).unwrap();
    assert!(all.iter().enumerate().all(|(i, b)| *b == byte(i)));
}

#[test]
fn a_graph_replays_with_patched_arguments() {
    let device = device();
    let kernel = vadd(&device);
    let n = 64u32;
    let (one, two) = (floats(&device, (0..n).map(|_| 1.0)), floats(&device, (0..n).map(|_| 2.0)));
    let sum = floats(&device, (0..n).map(|_| 0.0));
    let copy = floats(&device, (0..n).map(|_| 0.0));
    let mut graph = device.graph();
    let shape = LaunchConfig::new(1, 64);
    // SAFETY: `n` elements of each buffer, also after the patches below.
    let first = unsafe { graph.launch(&kernel, shape, &add(&sum, &one, &sum, n)) }.unwrap();
    graph.barrier();
    // SAFETY: as above.
    unsafe { graph.launch(&kernel, shape, &add(&sum, &one, &sum, n)) }.unwrap();
    graph.barrier();
    let after = graph.timestamp().unwrap();
    graph.copy(&sum, 0, &copy, 0, 4 * u64::from(n)).unwrap();
    let graph = graph.build().unwrap();
    let mut queue = device.queue().unwrap();
    assert_eq!(after.ns(), None);
    for _ in 0..5 {
        queue.replay(&graph).unwrap();
    }
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    assert_eq!(read(&copy), vec![10.0; n as usize]);
    let t1 = after.ns().unwrap();
    // SAFETY: the second argument becomes the other buffer, of as many elements.
    unsafe { graph.patch_args(first, 1, &Args::new().buffer(&two)) }.unwrap();
    let mut other = device.queue().unwrap();
    queue.replay(&graph).unwrap();
    other.replay(&graph).unwrap().wait(DEADLINE).unwrap();
    assert_eq!(read(&copy), vec![16.0; n as usize]);
    assert!(after.ns().unwrap() > t1);
    // SAFETY: refused.
    let over = unsafe { graph.patch_args(first, 4, &Args::new().u32(0)) };
    assert!(matches!(over, Err(Error::Launch(LaunchError::NoArgument { index: 4, count: 4, .. }))));
    drop(graph);
}

#[test]
fn two_queues_wait_for_each_other() {
    let device = device();
    let kernel = vadd(&device);
    let n = 32u32;
    let one = floats(&device, (0..n).map(|_| 1.0));
    let sum = floats(&device, (0..n).map(|_| 0.0));
    let (mut a, mut b) = (device.queue().unwrap(), device.queue().unwrap());
    let mut last = None;
    for _ in 0..10 {
        for queue in [&mut a, &mut b] {
            if let Some(point) = &last {
                queue.wait_for(point).unwrap();
            }
            // SAFETY: `n` elements of each buffer; the queues alternate.
            unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &add(&sum, &one, &sum, n)) }.unwrap();
            last = Some(queue.submit().unwrap());
        }
    }
    last.unwrap().wait(DEADLINE).unwrap();
    assert_eq!(read(&sum), vec![20.0; n as usize]);
}

#[test]
fn waiting_for_a_queue_that_is_gone_returns() {
    let device = device();
    let (mut a, mut b) = (device.queue().unwrap(), device.queue().unwrap());
    let point = a.submit().unwrap();
    drop(a);
    b.wait_for(&point).unwrap();
    b.submit().unwrap().wait(DEADLINE).unwrap();
    assert!(point.is_done().unwrap());
}

#[test]
fn a_kernel_that_never_ends_times_out_and_goes_with_its_queue() {
    let device = device_with(|o| o.patience = Duration::from_millis(300));
    let program = device.load(include_bytes!("../data/11_grid_barrier.sm_87.cubin")).unwrap();
    let kernel = program.kernel("barrier_release_acquire_sys").unwrap();
    let counter = device.alloc(64).unwrap();
    counter.write(0, &[0; 64]).unwrap();
    let mut queue = device.queue().unwrap();
    // It spins until a counter that each block raises once has reached a number that no block count reaches.
    let args = Args::new().buffer(&counter).u32(1000);
    // SAFETY: the kernel reads and writes the 64 bytes.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
    let point = queue.submit().unwrap();
    let error = point.wait(Duration::from_millis(200)).unwrap_err();
    assert!(matches!(error, Error::Queue(QueueError::Timeout { wanted: 1, reached: 0, .. })), "{error}");
    assert!(error.hint().is_some());
    assert!(matches!(counter.read(0, &mut [0]), Err(Error::Queue(QueueError::Timeout { .. }))));
    drop(queue);
    // The channel is gone, and with it the kernel: nothing uses the buffer any more.
    counter.read(0, &mut [0]).unwrap();
}

fn words(buffer: &Buffer) -> Vec<u32> {
    buffer.read_vec(0, buffer.len() as usize / 4).unwrap()
}

#[test]
fn local_memory_and_constant_banks_hold_what_kernels_put_there() {
    let device = device();
    let kernel = device.load(STACK).unwrap().kernel("local_array").unwrap();
    assert!(kernel.local_bytes() >= 256);
    let input: Vec<u32> = (0..64u32).map(|i| i.wrapping_mul(0x9e37_79b9)).collect();
    let source = device.alloc(256).unwrap();
    source.write_slice(0, &input).unwrap();
    let mut queue = device.queue().unwrap();
    for index in [0u32, 3, 17, 63] {
        let output = device.alloc(4).unwrap();
        let args = Args::new().buffer(&source).buffer(&output).u32(index);
        // SAFETY: the kernel reads 64 words and writes one.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args) }.unwrap();
        queue.submit().unwrap().wait(DEADLINE).unwrap();
        let at = index as usize;
        let four = &input[at & !3..][..4];
        let mut expected = input[at].wrapping_add(four[0]) ^ four[1];
        expected = expected.wrapping_add(four[2]) ^ four[3];
        expected =
            expected.wrapping_add(input[at] >> 8 & 0xff).wrapping_add(i32::from(input[at] as i16) as u32);
        expected = expected.wrapping_add(4).wrapping_add(1 << (index & 15));
        assert_eq!(words(&output), [expected], "index {index}");
    }
}

#[test]
fn calls_through_relocated_tables_and_recursion_work() {
    fn rec(a: u32, n: u32) -> u32 {
        if n == 0 { a } else { rec(a.wrapping_mul(n).wrapping_add(1), n - 1).wrapping_add(a) }
    }
    let device = device();
    let kernel = device.load(STACK).unwrap().kernel("recursion_and_calls").unwrap();
    let output = device.alloc(4 * 32).unwrap();
    let mut queue = device.queue().unwrap();
    let args = Args::new().buffer(&output).u32(5);
    // SAFETY: the kernel writes one word for each of 32 threads.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    let expected: Vec<u32> = (0..32u32)
        .map(|tid| match (rec(tid, 5), tid & 1) {
            (a, 0) => a.wrapping_mul(a).count_ones(),
            (a, _) => a.trailing_zeros(),
        })
        .collect();
    assert_eq!(words(&output), expected);
}

#[test]
fn an_unmapped_address_is_reported_with_kernel_instruction_and_neighbour() {
    let device = device();
    let kernel = vadd(&device);
    let a = device.alloc(4 << 20).unwrap();
    let past = a.va().raw() + a.len();
    let args = Args::new().u64(past).buffer(&a).buffer(&a).u32(4);
    let mut queue = device.queue().unwrap();
    // SAFETY: the fault is the point; nothing else uses the device.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
    let error = queue.submit().unwrap().wait(DEADLINE).unwrap_err();
    let Error::Fault(report) = error else { panic!("{error}") };
    assert!(matches!(report.kind, FaultKind::Mmu { .. }), "{report}");
    assert_eq!(report.kernel.as_deref(), Some("vadd_f32"), "{report}");
    assert!(report.instruction.as_deref().is_some_and(|i| i.contains("LDG")), "{report}");
    assert_eq!(report.address, GpuVa::new(past), "{report}");
    assert_eq!(report.nearest.as_ref().map(|n| (n.va, n.what)), Some((a.va(), "buffer")), "{report}");
    assert!(matches!(queue.submit(), Err(Error::Lost(_))));
    assert!(matches!(a.read(0, &mut [0]), Err(Error::Lost(_))));
    drop(queue);
    // The process goes on with a new device.
    accumulate(&self::device(), 2);
}

#[test]
fn a_misaligned_access_is_reported() {
    let device = device();
    let kernel = vadd(&device);
    let a = device.alloc(4096).unwrap();
    let args = Args::new().buffer_at(&a, 2).buffer(&a).buffer(&a).u32(4);
    let mut queue = device.queue().unwrap();
    // SAFETY: the fault is the point; nothing else uses the device.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
    let error = queue.submit().unwrap().wait(DEADLINE).unwrap_err();
    let Error::Fault(report) = error else { panic!("{error}") };
    assert_eq!(report.kind, FaultKind::MisalignedAddress, "{report}");
    assert_eq!(report.kernel.as_deref(), Some("vadd_f32"), "{report}");
}

#[test]
fn a_buffer_in_a_window_faults_without_the_reservation_and_is_refused_with_it() {
    let va = GpuVa::new(0xfe_0020_0000).unwrap();
    let refused = device().alloc_at(va, 4096).unwrap_err();
    assert!(
        matches!(refused, Error::Memory(MemoryError::InWindow { window: "shared memory", .. })),
        "{refused}"
    );

    let device = device_with(|o| o.reserve_windows = false);
    let kernel = vadd(&device);
    let inside = device.alloc_at(va, 4096).unwrap();
    let outside = device.alloc(4096).unwrap();
    let mut queue = device.queue().unwrap();
    let args = add(&inside, &outside, &outside, 4);
    // SAFETY: the fault is the point; nothing else uses the device.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.unwrap();
    let error = queue.submit().unwrap().wait(DEADLINE).unwrap_err();
    let Error::Fault(report) = error else { panic!("{error}") };
    assert_eq!(report.kind, FaultKind::InvalidAddressSpace, "{report}");
}

#[test]
fn memory_is_recycled() {
    let device = device_with(|options| options.keep_freed = Some(0));
    let seen = addresses_of_buffers_one_at_a_time(&device);
    assert!(seen.len() < 100, "{} addresses for one buffer at a time", seen.len());
    assert!(device.memory_map().is_empty());
}

/// Addresses of buffers of many sizes, each of which is dropped before the next is allocated.
fn addresses_of_buffers_one_at_a_time(device: &Device) -> std::collections::BTreeSet<GpuVa> {
    (0..2000u64).map(|i| device.alloc(1 + (i * 7919) % (3 << 20)).unwrap().va()).collect()
}

#[test]
fn memory_that_is_kept_is_bounded_counts_as_free_and_goes_back() {
    const KEPT: u64 = 32 << 20;
    let sim = ga10b_sim::Sim::new(ga10b_sim::SimConfig::default());
    let mut options = DeviceOptions::default();
    options.keep_freed = Some(KEPT);
    let device = hcq::sim::open(sim.clone(), options).unwrap();
    // The driver's free memory: this device keeps nothing.
    let other = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
    let free = || other.free_memory().unwrap();
    let (before, own) = (free(), device.free_memory().unwrap());
    let seen = addresses_of_buffers_one_at_a_time(&device);
    let span = seen.last().unwrap().raw() - seen.first().unwrap().raw();
    assert!(span < 2 * KEPT, "{span} bytes of addresses");
    assert!(device.memory_map().is_empty());
    // Kept memory, a chunk that small pieces are cut from, and page tables.
    let gone = before - free();
    assert!((KEPT / 2..=KEPT + (3 << 20)).contains(&gone), "{gone} bytes are gone");
    let now = device.free_memory().unwrap();
    assert!(own - now <= 3 << 20, "{own} bytes were free, {now} are: {gone} are gone");
    device.trim().unwrap();
    assert!(before - free() <= 3 << 20);
}

#[test]
fn a_buffer_dropped_in_flight_is_freed_after_the_work() {
    let device = device();
    let kernel = vadd(&device);
    let n = 1 << 18;
    let mut queue = device.queue().unwrap();
    let out = floats(&device, (0..n).map(|_| 0.0));
    {
        let one = floats(&device, (0..n).map(|_| 1.0));
        // SAFETY: `n` elements of each buffer.
        unsafe { queue.launch(&kernel, LaunchConfig::new(n / 256, 256), &add(&one, &one, &out, n)) }.unwrap();
    }
    let before = device.memory_map().iter().filter(|m| m.what == "buffer").count();
    assert_eq!(before, 2, "the input is still mapped");
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    assert_eq!(read(&out), vec![2.0; n as usize]);
    let _other = device.alloc(1).unwrap();
    let after = device.memory_map().iter().filter(|m| m.what == "buffer").count();
    assert_eq!(after, 2, "the input went when something was allocated");
}

#[test]
fn wrong_calls_say_what_is_wrong() {
    let (device, other) = (device(), device());
    let program = device.load(VECADD).unwrap();
    let missing = program.kernel("nope").unwrap_err();
    assert!(missing.to_string().contains("vadd_f32"), "{missing}");
    let kernel = program.kernel("vadd_f32").unwrap();
    let a = device.alloc(4096).unwrap();
    let mut queue = device.queue().unwrap();
    let mut launch = |config, args: &Args| {
        // SAFETY: every one of these is refused.
        unsafe { queue.launch(&kernel, config, args) }.unwrap_err()
    };
    let args = add(&a, &a, &a, 1);
    assert!(matches!(
        launch(LaunchConfig::new(1, 32), &Args::new().buffer(&a)),
        Error::Launch(LaunchError::ArgumentCount { given: 1, .. })
    ));
    assert!(matches!(launch(LaunchConfig::new(1, 2048), &args), Error::Launch(LaunchError::Limit { .. })));
    assert!(matches!(launch(LaunchConfig::new(0, 32), &args), Error::Launch(LaunchError::Qmd { .. })));
    assert!(matches!(
        launch(LaunchConfig::new(1, 32).with_dynamic_shared(1 << 20), &args),
        Error::Launch(LaunchError::Limit { .. })
    ));
    let foreign = other.alloc(4096).unwrap();
    assert!(matches!(
        launch(LaunchConfig::new(1, 32), &add(&foreign, &a, &a, 1)),
        Error::ForeignDevice { .. }
    ));
    let mut copies = device.copy_queue().unwrap();
    // SAFETY: refused.
    let refused = unsafe { copies.launch(&kernel, LaunchConfig::new(1, 32), &args) };
    assert!(matches!(refused, Err(Error::Queue(QueueError::WrongQueue { .. }))));
    assert!(matches!(device.alloc(0), Err(Error::Memory(MemoryError::EmptyBuffer))));
    assert!(matches!(device.load(b"no"), Err(Error::Program(ProgramError::Cubin(_)))));
    assert!(matches!(a.write(4095, &[0; 2]), Err(Error::Memory(MemoryError::OutOfBounds { .. }))));
}

#[test]
fn timestamps_grow_and_lie_on_the_gpus_clock() {
    let device = device();
    let mut queue = device.queue().unwrap();
    let before = device.gpu_time().unwrap();
    let first = queue.timestamp().unwrap();
    let second = queue.timestamp().unwrap();
    assert_eq!(first.ns(), None);
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    let after = device.gpu_time().unwrap();
    let (first, second) = (first.ns().unwrap(), second.ns().unwrap());
    assert!(before <= first && first <= second && second <= after, "{before} {first} {second} {after}");
}

#[test]
fn both_clocks_move_alike_within_their_errors() {
    let device = device();
    let first = device.clock_pair().unwrap();
    let mut queue = device.queue().unwrap();
    let stamp = queue.timestamp().unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    let second = device.clock_pair().unwrap();
    // The software GPU's clock is the program's own, in steps of 32 ns.
    let gpu = i128::from(second.gpu_ns) - i128::from(first.gpu_ns);
    let cpu = (second.cpu - first.cpu).as_nanos() as i128;
    let error = (first.error + second.error).as_nanos() as i128;
    assert!((gpu - cpu).abs() <= error, "{gpu} {cpu} {error}");
    let stamp = stamp.ns().unwrap();
    assert!(first.gpu_ns <= stamp && stamp <= second.gpu_ns);
}

#[test]
fn an_allocation_that_is_too_large_says_how_much_memory_there_is() {
    let device = device();
    let (total, free) = (device.info().memory, device.free_memory().unwrap());
    let unit = |bytes: u64| match bytes >> 20 {
        mib if mib % 1024 == 0 => format!("{} GiB", mib / 1024),
        mib => format!("{mib} MiB"),
    };
    for len in [total + 1, 1 << 38, 1 << 50, u64::MAX] {
        let errors = [device.alloc(len).unwrap_err(), device.alloc_host(len).unwrap_err()];
        for error in errors {
            let (text, hint) = (error.to_string(), error.hint().unwrap());
            let figures = format!(": {} of {} are free", unit(free), unit(total));
            assert!(
                matches!(error, Error::Memory(MemoryError::OutOfMemory { .. })) && text.ends_with(&figures),
                "{text}"
            );
            assert!(hint.contains("never has so much"), "{error:?}");
        }
    }
    let buffer = device.alloc(64).unwrap();
    buffer.write(0, &[1; 64]).unwrap();
}

#[test]
fn reserved_stacks_take_what_was_said_and_launches_take_no_more() {
    for sm_count in [2, 10, 16] {
        let sim = Sim::new(SimConfig { sm_count, ..SimConfig::default() });
        let device = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
        let program = device.load(STACK).unwrap();
        let kernel = program.kernels().max_by_key(Kernel::local_bytes).unwrap();
        assert_eq!(Program::largest_stack(STACK).unwrap(), kernel.local_bytes());
        let mut queue = device.queue().unwrap();
        let free = || device.free_memory().unwrap();
        let (before, promised) = (free(), device.stack_memory(kernel.local_bytes()));
        device.reserve_stacks(kernel.local_bytes()).unwrap();
        // The driver takes some for page tables.
        assert!((promised..promised + (256 << 10)).contains(&(before - free())), "{sm_count} SMs");
        for name in ["local_array", "recursion_and_calls"] {
            let data = device.alloc(256).unwrap();
            let kernel = program.kernel(name).unwrap();
            let args = match name {
                "local_array" => Args::new().buffer(&data).buffer(&data).u32(3),
                _ => Args::new().buffer(&data).u32(3),
            };
            let reserved = free();
            // SAFETY: the kernels stay within the 64 words.
            unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args) }.unwrap();
            queue.submit().unwrap().wait(DEADLINE).unwrap();
            assert_eq!(free(), reserved, "{name} with {sm_count} SMs");
        }
        assert_eq!(device.stack_memory(0), 0);
    }
}

#[test]
fn a_shortage_of_shared_memory_names_what_was_asked_for() {
    let sim = Sim::new(SimConfig { memory: 1 << 20, ..SimConfig::default() });
    let device = hcq::sim::open(sim, DeviceOptions::default()).unwrap();
    let short = device.alloc(4096).unwrap_err().to_string();
    assert!(short.starts_with("cannot allocate 2 MiB for a buffer: "), "{short}");
}
