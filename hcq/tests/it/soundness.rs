//! The limits of safe code with devices, buffers and graphs: it cannot reach memory that is not its own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hcq::{
    Args, Buffer, Device, DeviceOptions, Error, Kernel, LaunchConfig, LaunchError, MemoryError, Selector,
};

const ENDINGS: &[u8] = include_bytes!("../kernels/endings.sm_87.cubin");
const DEADLINE: Duration = Duration::from_secs(60);
fn one() -> LaunchConfig {
    LaunchConfig::new(1, 1)
}

fn device() -> Device {
    Device::open(Selector::Sim).expect("the software device opens anywhere")
}

fn fill(device: &Device) -> Kernel {
    device.load(ENDINGS).unwrap().kernel("fill").unwrap()
}

fn word(buffer: &Buffer) -> u32 {
    buffer.read_vec(0, 1).unwrap()[0]
}

#[test]
fn memory_of_the_cpu_has_a_pointer_and_other_memory_has_none() {
    let device = device();
    assert_eq!(device.alloc(64).unwrap().host_pointer(), None);
    let buffer = device.alloc_host(64).unwrap();
    let at = buffer.host_pointer().unwrap().cast::<u32>();
    // SAFETY: the buffer lives, has 64 bytes, and neither GPU nor another thread uses it.
    unsafe { at.write_volatile(7) };
    assert_eq!(word(&buffer), 7);
    let (fill, mut queue) = (fill(&device), device.queue().unwrap());
    // SAFETY: the kernel writes a word of the buffer.
    unsafe { queue.launch(&fill, one(), &Args::new().buffer(&buffer).u32(9)) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    // SAFETY: as above; the launch has ended.
    assert_eq!(unsafe { at.read_volatile() }, 9);
}

#[test]
fn threads_that_share_a_buffer_read_each_write_whole_or_not_at_all() {
    // 3 to 4099: neither end is that of a word.
    const RANGE: usize = 4096;
    for staged in [false, true] {
        let mut options = DeviceOptions::default();
        options.staged_copies = staged;
        let device = Device::open_with(Selector::Sim, options).unwrap();
        let buffer = device.alloc(8192).unwrap();
        buffer.write(0, &[0; 8192]).unwrap();
        let (rounds, done) = (if staged { 40 } else { 4000 }, AtomicBool::new(false));
        thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..rounds {
                    buffer.write(3, &[round as u8; RANGE]).unwrap();
                }
                done.store(true, Ordering::Release);
            });
            let mut data = [0; RANGE];
            while !done.load(Ordering::Acquire) {
                buffer.clone().read(3, &mut data).unwrap();
                let torn = data.iter().position(|byte| *byte != data[0]);
                assert_eq!(torn, None, "{} and {}", data[0], data[torn.unwrap_or(0)]);
            }
        });
    }
}

#[test]
fn what_belongs_to_another_device_is_refused() {
    let (device, other) = (device(), device());
    let (kernel, foreign_kernel) = (fill(&device), fill(&other));
    let (buffer, foreign_buffer) = (device.alloc(64).unwrap(), other.alloc(64).unwrap());
    let (own, foreign) = (Args::new().buffer(&buffer).u32(1), Args::new().buffer(&foreign_buffer).u32(1));
    let (mut queue, mut graph) = (device.queue().unwrap(), device.graph());
    // SAFETY: the first writes one word, the others are refused.
    let (node, refused) = unsafe {
        let node = graph.launch(&kernel, one(), &own).unwrap();
        let refused = [
            ("kernel", queue.launch(&foreign_kernel, one(), &own).unwrap_err()),
            ("buffer", queue.launch(&kernel, one(), &foreign).unwrap_err()),
            ("kernel", graph.launch(&foreign_kernel, one(), &own).unwrap_err()),
            ("buffer", graph.launch(&kernel, one(), &foreign).unwrap_err()),
        ];
        (node, refused)
    };
    let copies = [
        ("buffer", graph.copy(&buffer, 0, &foreign_buffer, 0, 4).unwrap_err()),
        ("buffer", queue.copy(&foreign_buffer, 0, &buffer, 0, 4).unwrap_err()),
    ];
    let graph = graph.build().unwrap();
    let mut stranger = other.queue().unwrap();
    let point = stranger.submit().unwrap();
    let others = [
        // SAFETY: refused.
        ("buffer", unsafe { graph.patch_args(node, 0, &foreign) }.unwrap_err()),
        ("graph", stranger.replay(&graph).unwrap_err()),
        ("sync point", queue.wait_for(&point).unwrap_err()),
    ];
    for (what, error) in refused.into_iter().chain(copies).chain(others) {
        assert!(matches!(error, Error::ForeignDevice { what: w } if w == what), "{what}: {error:?}");
    }
    queue.replay(&graph).unwrap().wait(DEADLINE).unwrap();
    assert_eq!(word(&buffer), 1);
}

fn is_mapped(device: &Device, va: hcq::GpuVa) -> bool {
    device.memory_map().iter().any(|mapping| mapping.va == va)
}

#[test]
fn a_graph_keeps_the_buffers_that_its_patches_name() {
    let device = device();
    let kernel = fill(&device);
    let (first, second) = (device.alloc(64).unwrap(), device.alloc(64).unwrap());
    let copy = device.alloc(64).unwrap();
    let mut graph = device.graph();
    // SAFETY: one word of a buffer is written, here and with the patches below.
    let node = unsafe { graph.launch(&kernel, one(), &Args::new().buffer(&first).u32(1)) }.unwrap();
    graph.barrier();
    graph.copy(&second, 0, &copy, 0, 4).unwrap();
    let graph = graph.build().unwrap();
    let mut queue = device.queue().unwrap();
    let patched = device.alloc(64).unwrap();
    let va = patched.va();
    // SAFETY: as above.
    unsafe { graph.patch_args(node, 0, &Args::new().buffer(&patched).u32(2)) }.unwrap();
    drop(patched);
    let next = device.alloc(64).unwrap();
    assert!(is_mapped(&device, va) && next.va() != va, "the graph may still write there");
    queue.replay(&graph).unwrap().wait(DEADLINE).unwrap();
    // A number beside it changes, and the address stays.
    // SAFETY: as above.
    unsafe { graph.patch_args(node, 1, &Args::new().u32(3)) }.unwrap();
    let _ = device.alloc(64).unwrap();
    assert!(is_mapped(&device, va));
    // The address becomes a number.
    // SAFETY: not replayed like this.
    unsafe { graph.patch_args(node, 0, &Args::new().u64(0)) }.unwrap();
    let _ = device.alloc(64).unwrap();
    assert!(!is_mapped(&device, va), "no replay names it any more");
    // SAFETY: as above.
    unsafe { graph.patch_args(node, 0, &Args::new().buffer(&second).u32(4)) }.unwrap();
    queue.replay(&graph).unwrap();
    // Reading waits for the replays of a graph that names the buffer.
    assert_eq!((word(&second), word(&copy)), (4, 4));
    let (va, graph) = (second.va(), graph);
    drop(second);
    drop(graph);
    let _ = device.alloc(64).unwrap();
    assert!(!is_mapped(&device, va));
}

#[test]
fn a_patch_that_is_refused_changes_nothing() {
    let device = device();
    let (kernel, buffer) = (fill(&device), device.alloc(64).unwrap());
    let mut graph = device.graph();
    // SAFETY: one word of a buffer is written.
    let node = unsafe { graph.launch(&kernel, one(), &Args::new().buffer(&buffer).u32(1)) }.unwrap();
    let graph = graph.build().unwrap();
    let five = Args::new().u32(5);
    // SAFETY: refused.
    let refused = unsafe {
        [
            graph.patch_args(node, 2, &five),
            graph.patch_args(node, 1, &Args::new().u32(5).u32(5)),
            graph.patch_args(node, usize::MAX, &five),
            graph.patch_args(node, 0, &Args::new().buffer(&buffer).u64(5)),
            graph.patch_args(node, 0, &five),
            graph.patch_args(node, 1, &Args::new().u32(5).bytes(&[], 3)),
        ]
    };
    assert_eq!(
        refused.map(|refused| refused.unwrap_err().to_string()),
        [
            "the launch of fill has 2 arguments, a patch names 1 from number 2 on",
            "the launch of fill has 2 arguments, a patch names 2 from number 1 on",
            "the launch of fill has 2 arguments, a patch names 1 from number 18446744073709551615 on",
            "argument 1 of fill has 4 bytes, one of 8 was given",
            "argument 0 of fill has 8 bytes, one of 4 was given",
            "an argument cannot be aligned to 3 bytes: alignments are powers of two up to 4096",
        ]
    );
    let mut queue = device.queue().unwrap();
    queue.replay(&graph).unwrap().wait(DEADLINE).unwrap();
    assert_eq!(word(&buffer), 1);
}

#[test]
fn an_alignment_that_no_argument_has_is_refused_at_the_launch() {
    let device = device();
    let (kernel, buffer) = (fill(&device), device.alloc(64).unwrap());
    let (mut queue, mut graph) = (device.queue().unwrap(), device.graph());
    for align in [0, 3, 8192, 1 << 40, usize::MAX, usize::MAX / 2 + 1] {
        let args = Args::new().buffer(&buffer).bytes(&7u32.to_le_bytes(), align);
        // SAFETY: refused.
        let errors =
            unsafe { [queue.launch(&kernel, one(), &args), graph.launch(&kernel, one(), &args).map(drop)] };
        for error in errors.map(Result::unwrap_err) {
            assert!(
                matches!(error, Error::Launch(LaunchError::Alignment { align: a, limit: 4096 }) if a == align),
                "{error}"
            );
        }
    }
    let args = Args::new().buffer(&buffer).bytes(&7u32.to_le_bytes(), 4);
    // SAFETY: one word is written.
    unsafe { queue.launch(&kernel, one(), &args) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    assert_eq!(word(&buffer), 7);
}

#[test]
fn numbers_lie_in_a_buffer_as_in_memory_and_a_count_that_does_not_fit_is_refused() {
    let buffer = device().alloc(64).unwrap();
    buffer.write(0, &[0; 64]).unwrap();
    buffer.write_slice(2, &[[0x0102_u16, 0x0304], [0x0506, 0x0708]]).unwrap();
    buffer.write_slice(16, &[-1.5_f64]).unwrap();
    let mut bytes = [0; 12];
    buffer.read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0, 0, 2, 1, 4, 3, 6, 5, 8, 7, 0, 0]);
    assert_eq!(buffer.read_vec::<u32>(2, 2).unwrap(), [0x0304_0102, 0x0708_0506]);
    assert_eq!(buffer.read_vec::<f64>(16, 1).unwrap(), [-1.5]);
    let mut words = [[7_i8; 2]; 2];
    buffer.read_slice(8, &mut words).unwrap();
    assert_eq!(words, [[8, 7], [0, 0]]);
    assert_eq!(buffer.read_vec::<u64>(64, 0).unwrap(), [] as [u64; 0]);
    for (offset, count) in [(0, 17), (4, 16), (u64::MAX, 1), (0, usize::MAX), (0, usize::MAX / 4 + 2)] {
        let refused = buffer.read_vec::<f32>(offset, count).unwrap_err();
        assert!(
            matches!(refused, Error::Memory(MemoryError::OutOfBounds { .. })),
            "{offset}, {count}: {refused}"
        );
    }
    assert!(matches!(buffer.write_slice(60, &[0_u64]), Err(Error::Memory(MemoryError::OutOfBounds { .. }))));
}

#[test]
fn copies_that_the_gpu_makes_meanwhile_are_read_in_words() {
    let device = device();
    let (zeros, ones, target) =
        (device.alloc(4096).unwrap(), device.alloc(4096).unwrap(), device.alloc(4096).unwrap());
    zeros.write(0, &[0; 4096]).unwrap();
    ones.write(0, &[0xff; 4096]).unwrap();
    target.write(0, &[0; 4096]).unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut queue = device.copy_queue().unwrap();
            for round in 0..200 {
                let source = if round % 2 == 0 { &ones } else { &zeros };
                queue.copy(source, 0, &target, 0, 4096).unwrap();
                queue.submit().unwrap();
            }
            queue.submit().unwrap().wait(DEADLINE).unwrap();
            done.store(true, Ordering::Release);
        });
        let mut data = [0; 4096];
        while !done.load(Ordering::Acquire) {
            target.read(0, &mut data).unwrap();
            assert!(data.as_chunks::<8>().0.iter().all(|w| [[0; 8], [0xff; 8]].contains(w)));
        }
    });
}

#[test]
fn a_node_of_another_graph_is_refused_and_changes_nothing() {
    let device = device();
    let (kernel, buffer) = (fill(&device), device.alloc(64).unwrap());
    let build = |value| {
        let mut graph = device.graph();
        // SAFETY: one word of a buffer is written.
        let node = unsafe { graph.launch(&kernel, one(), &Args::new().buffer(&buffer).u32(value)) }.unwrap();
        (graph.build().unwrap(), node)
    };
    let ((first, node), (second, other)) = (build(1), build(2));
    assert_ne!(node, other, "both are the first of their graph");
    // SAFETY: refused.
    let error = unsafe { second.patch_args(node, 1, &Args::new().u32(7)) }.unwrap_err();
    assert!(matches!(error, Error::Launch(LaunchError::ForeignNode { .. })), "{error:?}");
    let text = error.to_string();
    let other = other.to_string();
    let called = other.split_once(" of ").expect("node and graph").1;
    assert_eq!(text, format!("{node} is not part of {called}"));
    let mut queue = device.queue().unwrap();
    for (graph, value) in [(&second, 2), (&first, 1)] {
        queue.replay(graph).unwrap().wait(DEADLINE).unwrap();
        assert_eq!(word(&buffer), value);
    }
    let mut graph = device.graph();
    let copy = graph.copy(&buffer, 0, &buffer, 32, 32).unwrap();
    // SAFETY: refused.
    let error = unsafe { graph.build().unwrap().patch_args(copy, 0, &Args::new()) }.unwrap_err();
    assert_eq!(error.to_string(), format!("{copy} is not a launch"));
}

#[test]
fn copies_between_ranges_that_overlap_are_refused() {
    let device = device();
    let buffer = device.alloc(1 << 20).unwrap();
    let clone = buffer.clone();
    for (mut queue, len) in [
        (device.queue().unwrap(), 64),
        (device.queue().unwrap(), 1 << 19),
        (device.copy_queue().unwrap(), 64),
    ] {
        let mut graph = device.graph();
        for (from, to) in [(0, 0), (0, len - 1), (len - 1, 0), (7, 8)] {
            let errors = [
                queue.copy(&buffer, from, &clone, to, len).unwrap_err(),
                graph.copy(&buffer, from, &clone, to, len).map(drop).unwrap_err(),
            ];
            for error in errors {
                let (f, t) = (from, to);
                let same = matches!(error, Error::Memory(MemoryError::Overlap { from, to, len: l }) if (from, to, l) == (f, t, len));
                assert!(same && error.hint().is_some(), "{error:?}");
            }
        }
        // Ranges that touch, and those of no bytes, do not overlap.
        for (from, to, len) in [(0, len, len), (len, 0, len), (3, 3, 0)] {
            queue.copy(&buffer, from, &clone, to, len).unwrap();
            graph.copy(&buffer, from, &clone, to, len).unwrap();
        }
        queue.submit().unwrap().wait(DEADLINE).unwrap();
    }
}
