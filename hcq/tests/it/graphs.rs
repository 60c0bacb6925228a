//! Buffers that are patched into a graph and out of it while its replays run.

use std::time::Duration;

use hcq::{Args, Buffer, Device, DeviceOptions, Kernel, LaunchConfig, Program, Queue, Selector};

const ENDINGS: &[u8] = include_bytes!("../kernels/endings.sm_87.cubin");
const DEADLINE: Duration = Duration::from_secs(60);

fn one() -> LaunchConfig {
    LaunchConfig::new(1, 1)
}

/// Kernels that stand at gates, which the copy engine opens.
struct Gates {
    spin: Kernel,
    flags: Buffer,
    set: Buffer,
    copies: Queue,
}

impl Gates {
    fn new(device: &Device, program: &Program, count: u64) -> Self {
        let (flags, set) = (device.alloc(4 * count).unwrap(), device.alloc(4).unwrap());
        flags.write(0, &vec![0; 4 * count as usize]).unwrap();
        set.write(0, &[1; 4]).unwrap();
        Self { spin: program.kernel("spin").unwrap(), flags, set, copies: device.copy_queue().unwrap() }
    }

    /// Arguments of a launch that stands at a gate.
    fn at(&self, gate: u64) -> Args {
        Args::new().buffer_at(&self.flags, 4 * gate)
    }

    fn open(&mut self, gate: u64) {
        self.copies.copy(&self.set, 0, &self.flags, 4 * gate, 4).unwrap();
        self.copies.submit().unwrap().wait(DEADLINE).unwrap();
    }
}

fn device() -> Device {
    let mut options = DeviceOptions::default();
    options.patience = Duration::from_secs(20);
    Device::open_with(Selector::Sim, options).unwrap()
}

/// A frame's output is in use while its own replay runs, and no longer: not until the graph is at rest, which
/// it never is here.
#[test]
fn outputs_of_frames_go_back_while_later_frames_run() {
    const FRAMES: u64 = 200;
    const OUTPUT: u64 = 4 << 20;
    let device = device();
    let program = device.load(ENDINGS).unwrap();
    let mut gates = Gates::new(&device, &program, FRAMES);
    let (fill, first) = (program.kernel("fill").unwrap(), device.alloc(OUTPUT).unwrap());
    let mut graph = device.graph();
    // SAFETY: one word of a buffer is read, and one of another written, here and with the patches below.
    let [stand, write] = unsafe {
        let stand = graph.launch(&gates.spin, one(), &gates.at(0)).unwrap();
        graph.barrier();
        [stand, graph.launch(&fill, one(), &Args::new().buffer(&first).u32(0)).unwrap()]
    };
    drop(first);
    let (graph, mut queue) = (graph.build().unwrap(), device.queue().unwrap());
    let mut before = None;
    for frame in 0..FRAMES {
        let output = device.alloc(OUTPUT).unwrap();
        // SAFETY: as above.
        unsafe {
            graph.patch_args(stand, 0, &gates.at(frame)).unwrap();
            graph.patch_args(write, 0, &Args::new().buffer(&output).u32(frame as u32)).unwrap();
        }
        let point = queue.replay(&graph).unwrap();
        if let Some((last, output)) = before.replace((point, output)) {
            gates.open(frame - 1);
            last.wait(DEADLINE).unwrap();
            // This frame's replay stands at its gate, and is not waited for.
            assert_eq!(output.read_vec::<u32>(0, 1).unwrap(), [frame as u32 - 1]);
        }
        let outputs = device.memory_map().iter().filter(|mapping| mapping.len == OUTPUT).count();
        assert!(outputs <= 3, "{outputs} outputs after frame {frame}");
    }
    gates.open(FRAMES - 1);
}

/// A buffer that several arguments name, or a copy besides, stays until the last of them is another.
#[test]
fn a_buffer_that_is_named_twice_is_let_go_once() {
    let device = device();
    let program = device.load(ENDINGS).unwrap();
    let (fill, shared) = (program.kernel("fill").unwrap(), device.alloc(64).unwrap());
    let (copied, other) = (device.alloc(64).unwrap(), device.alloc(64).unwrap());
    let (mut graph, va) = (device.graph(), shared.va());
    let args = Args::new().buffer(&shared).u32(1);
    // SAFETY: one word of a buffer is written, here and with the patches below.
    let nodes = unsafe { [(); 2].map(|()| graph.launch(&fill, one(), &args).unwrap()) };
    // SAFETY: as above.
    let with_copy = unsafe { graph.launch(&fill, one(), &Args::new().buffer(&copied).u32(2)) }.unwrap();
    graph.barrier();
    graph.copy(&copied, 0, &other, 0, 4).unwrap();
    let (graph, mut queue) = (graph.build().unwrap(), device.queue().unwrap());
    let is_mapped = |va| {
        // What has become free goes back.
        drop(device.alloc(64).unwrap());
        device.memory_map().iter().any(|mapping| mapping.va == va)
    };
    drop((shared, args));
    let new = Args::new().buffer(&other);
    // SAFETY: as above.
    unsafe { graph.patch_args(nodes[0], 0, &new) }.unwrap();
    assert!(is_mapped(va), "the other launch names it");
    queue.replay(&graph).unwrap().wait(DEADLINE).unwrap();
    // SAFETY: as above.
    unsafe { graph.patch_args(nodes[1], 0, &new) }.unwrap();
    assert!(!is_mapped(va));
    let va = copied.va();
    drop(copied);
    // SAFETY: as above.
    unsafe { graph.patch_args(with_copy, 0, &new) }.unwrap();
    assert!(is_mapped(va), "the copy reads it");
    queue.replay(&graph).unwrap().wait(DEADLINE).unwrap();
    drop((graph, queue));
    assert!(!is_mapped(va));
}
