//! The library's texts: errors that name what to change, fault reports that name what is near, and `Debug`
//! that fits on a line.

use std::fmt::Debug;
use std::time::Duration;

use ga10b_sim::{Checks, Sim, SimConfig, WhatIf, sm};
use hcq::{
    Args, Buffer, Device, DeviceOptions, Error, FaultKind, FaultReport, GpuVa, Kernel, LaunchConfig,
    LaunchError, Selector,
};

const ENDINGS: &[u8] = include_bytes!("../kernels/endings.sm_87.cubin");
const SHAPES: &[u8] = include_bytes!("../kernels/shapes.sm_87.cubin");
const DEADLINE: Duration = Duration::from_secs(60);

fn device() -> Device {
    Device::open(Selector::Sim).expect("the software device opens anywhere")
}

fn kernel(device: &Device, name: &str) -> Kernel {
    device.load(SHAPES).unwrap().kernel(name).unwrap()
}

fn words(buffer: &Buffer) -> Vec<u32> {
    buffer.read_vec(0, buffer.len() as usize / 4).unwrap()
}

#[test]
fn a_block_of_another_shape_than_the_kernel_requires_is_named() {
    let device = device();
    let (exact, out) = (kernel(&device, "exact"), device.alloc(4).unwrap());
    let (mut queue, mut graph) = (device.queue().unwrap(), device.graph());
    let args = Args::new().buffer(&out);
    let flat = LaunchConfig::new(1, 128);
    // SAFETY: refused.
    let errors = unsafe { [queue.launch(&exact, flat, &args), graph.launch(&exact, flat, &args).map(drop)] };
    for error in errors.map(Result::unwrap_err) {
        assert_eq!(
            error.to_string(),
            "cannot launch exact in blocks of 128 x 1 x 1 threads: it was compiled for blocks of 32 x 4 x 1 (.reqntid)"
        );
        assert!(matches!(
            error,
            Error::Launch(LaunchError::BlockShape { required: [32, 4, 1], given: [128, 1, 1], .. })
        ));
    }
    // SAFETY: the kernel writes one word.
    unsafe { queue.launch(&exact, LaunchConfig::new(1, (32, 4)), &args) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    assert_eq!(words(&out), [4]);
}

/// Names come from cubins and programs of others: a terminal that shows them obeys nothing in them.
#[test]
fn names_are_shown_with_their_control_characters_escaped() {
    const NAME: &str = "\x1b[3\n";
    let mut cubin = ENDINGS.to_vec();
    let mut at = 0;
    while let Some(found) = cubin[at..].windows(4).position(|bytes| bytes == b"fill") {
        at += found;
        cubin[at..at + 4].copy_from_slice(NAME.as_bytes());
    }
    let executor = sm::Config { checks: Checks::MEMORY, ..sm::Config::default() };
    let sim = Sim::new(SimConfig { executor, ..SimConfig::default() });
    let device = hcq::sim::open(sim.clone(), DeviceOptions::default()).unwrap();
    let program = device.load(cubin.as_slice()).unwrap();
    let (kernel, out) = (program.kernel(NAME).unwrap(), device.alloc(4).unwrap());
    out.set_name("\x1b[31m\n\u{202e}");
    let mut queue = device.queue().unwrap();
    let mut launch = |args: &Args| {
        // SAFETY: what is written out of bounds lies in no other buffer, or faults.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), args) }?;
        queue.submit()?.wait(DEADLINE)
    };
    launch(&Args::new().buffer_at(&out, 4).u32(1)).unwrap();
    let [finding] = &sim.findings()[..] else { panic!("{:?}", sim.findings()) };
    let texts = [
        (finding.to_string(), r"kernel \u{1b}[3\n at"),
        (finding.to_string(), r"buffer `\u{1b}[31m\n\u{202e}`"),
        (program.kernel("none").unwrap_err().to_string(), r"\u{1b}[3\n"),
        (launch(&Args::new()).unwrap_err().to_string(), r"\u{1b}[3\n takes"),
        (launch(&Args::new().u64(1 << 32).u32(1)).unwrap_err().to_string(), r"in kernel \u{1b}[3\n"),
    ];
    for (text, shown) in texts {
        assert!(
            text.contains(shown) && !text.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text:?}"
        );
    }
}

/// Loads from `from`, which faults.
fn fault(device: &Device, from: u64) -> FaultReport {
    let (load, out) = (kernel(device, "load"), device.alloc(4).unwrap());
    let mut queue = device.queue().unwrap();
    // SAFETY: the fault is the point; nothing else uses the device.
    unsafe { queue.launch(&load, LaunchConfig::new(1, 1), &Args::new().u64(from).buffer(&out)) }.unwrap();
    match queue.submit().unwrap().wait(DEADLINE) {
        Err(Error::Fault(report)) => *report,
        other => panic!("no fault: {other:?}"),
    }
}

#[test]
fn a_mapping_is_named_as_a_neighbour_only_where_it_is_near() {
    const MIB: u64 = 1 << 20;
    // From the end of a buffer that lies alone: past it, the last page that is near, and further on.
    let va = GpuVa::new(0x80_0000_0000).unwrap();
    for (past, near) in [(0, true), (MIB - 4096, true), (MIB, false), (64 * MIB, false)] {
        let device = device();
        let alone = device.alloc_at(va, 16 * MIB).unwrap();
        let end = va.raw() + alone.len();
        let report = fault(&device, end + past);
        assert_eq!(report.address, GpuVa::new(end + past), "{report}");
        let neighbour = report.nearest.as_ref().map(|n| (n.va, n.distance));
        assert_eq!(neighbour, near.then_some((va, past as i64 + 1)), "{report}");
        assert_eq!(report.to_string().contains("past the end of the buffer of 16 MiB"), near, "{report}");
        assert_eq!(report.kernel.as_deref(), Some("load"), "{report}");
    }
    let report = fault(&device(), 0x1000);
    assert_eq!(report.nearest, None, "{report}");
    assert!(!report.to_string().contains("before"), "{report}");
}

/// The report of an access to `address` on a machine of which some facts are other than the model has them.
fn fault_where(facts: WhatIf, address: u64) -> FaultReport {
    let config = SimConfig { what_if: facts.into(), ..SimConfig::default() };
    fault(&hcq::sim::open(Sim::new(config), DeviceOptions::default()).unwrap(), address)
}

#[test]
fn an_mmu_fault_is_named_with_its_address_whichever_of_its_interrupts_comes_first() {
    for (facts, notifier) in [(WhatIf::empty(), 31), (WhatIf::MMU_FIRST, 31), (WhatIf::SM_FIRST, 13)] {
        let report = fault_where(facts, 0x4000);
        assert_eq!(
            (report.kind, report.raw.notifier),
            (FaultKind::Mmu { fault_type: Some(0) }, notifier),
            "{report}"
        );
        assert_eq!(report.address, GpuVa::new(0x4000), "{report}");
        // The engine's reset after the MMU's fault takes the SM's registers.
        assert_eq!(report.raw.sms.is_empty(), facts == WhatIf::MMU_FIRST, "{report}");
    }
}

#[test]
fn without_a_kernel_log_an_mmu_fault_has_no_address_and_is_not_waited_for() {
    for first in [WhatIf::empty(), WhatIf::MMU_FIRST, WhatIf::SM_FIRST] {
        let report = fault_where(WhatIf::NO_KERNEL_LOG | first, 0x4000);
        assert_eq!((report.kind, report.address), (FaultKind::Mmu { fault_type: None }, None), "{report}");
        assert!(report.raw.log.is_empty(), "{report}");
    }
}

#[test]
fn the_registers_of_a_faulting_sm_have_names() {
    let device = device();
    let data = device.alloc(64).unwrap();
    let report = fault(&device, data.va().raw() + 2);
    let sm = report.raw.sms.first().expect("an SM with an exception");
    assert_eq!((sm.warp_esr & 0xffff, Some(sm.pc)), (0xf, report.pc), "a misaligned address");
    assert!(sm.sm < device.info().sm_count);
}

#[test]
fn debug_fits_on_a_line() {
    let device = device();
    let program = device.load(SHAPES).unwrap();
    let (threads, data) = (program.kernel("threads").unwrap(), device.alloc(1 << 20).unwrap());
    let args = Args::new().buffer(&data);
    let mut queue = device.queue().unwrap();
    let mut builder = device.graph();
    for _ in 0..100 {
        // SAFETY: one word of `data` is written.
        unsafe { queue.launch(&threads, LaunchConfig::new(1, 32), &args) }.unwrap();
        // SAFETY: as above.
        unsafe { builder.launch(&threads, LaunchConfig::new(1, 32), &args) }.unwrap();
    }
    let builder_text = format!("{builder:?}");
    let graph = builder.build().unwrap();
    let timestamp = queue.timestamp().unwrap();
    let not_taken = format!("{timestamp:?}");
    let point = queue.replay(&graph).unwrap();
    point.wait(DEADLINE).unwrap();
    let texts: [&dyn Debug; 9] =
        [&device, &program, &threads, &data, &args, &queue, &graph, &timestamp, &point];
    for text in texts.map(|object| format!("{object:#?}")).into_iter().chain([builder_text, not_taken]) {
        assert!(text.len() <= 120 && !text.contains('\n'), "{} bytes: {text}", text.len());
    }
    assert_eq!(format!("{device:?} {graph:?}"), "Device(ga10b (sim)) Graph(100 nodes, 100 launches)");
}

#[test]
fn a_kernel_sees_the_shape_of_each_launch_however_many_shapes_there_are() {
    const BLOCKS: u32 = 3;
    let device = device();
    let threads = kernel(&device, "threads");
    let mut queue = device.queue().unwrap();
    // More block shapes than a queue remembers, each with several grids, twice.
    let shapes: Vec<(u32, u32)> =
        (1..=100).flat_map(|block| (1..=BLOCKS).map(move |grid| (grid, block))).collect();
    let out = device.alloc(4 * u64::from(BLOCKS) * shapes.len() as u64).unwrap();
    for round in 0..2 {
        out.write(0, &vec![0; out.len() as usize]).unwrap();
        let mut graph = device.graph();
        for (i, &(grid, block)) in shapes.iter().enumerate() {
            let args = Args::new().buffer_at(&out, 4 * u64::from(BLOCKS) * i as u64);
            let shape = LaunchConfig::new(grid, block);
            if round == 0 {
                // SAFETY: each block writes one word of its own.
                unsafe { queue.launch(&threads, shape, &args) }.unwrap();
            } else {
                // SAFETY: as above.
                unsafe { graph.launch(&threads, shape, &args) }.unwrap();
            }
        }
        queue.replay(&graph.build().unwrap()).unwrap().wait(DEADLINE).unwrap();
        let words = words(&out);
        for (found, &(grid, block)) in words.chunks(BLOCKS as usize).zip(&shapes) {
            let expected: Vec<u32> = (0..BLOCKS).map(|b| if b < grid { grid * block } else { 0 }).collect();
            assert_eq!(found, expected, "round {round}, {grid} blocks of {block}");
        }
    }
}
