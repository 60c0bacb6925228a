//! Mistakes with memory, planted one by one, are found by the check `memory` of the software ga10b; beside each is
//! the right program, which is clean under all checks. Without the check each is silently accepted.

use std::sync::Arc;
use std::time::Duration;

use ga10b_sim::{Checks, Finding, Relation, Sim, SimConfig};
use ga10b_tests::SUITE;
use hcq::{Args, Buffer, Device, DeviceOptions, LaunchConfig, Program};

const BOUNDS: &[u8] = include_bytes!("../../kernels/bounds.sm_87.cubin");
const DEADLINE: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

struct Machine {
    sim: Arc<Sim>,
    device: Device,
    suite: Program,
    bounds: Program,
}

impl Machine {
    fn new(check: Checks) -> Self {
        let sim = Sim::new(SimConfig { check, ..SimConfig::default() });
        // Where nothing is checked, freed addresses are used again at once.
        let mut options = DeviceOptions::default();
        options.keep_freed = Some(0);
        let device = hcq::sim::open(sim.clone(), options).unwrap();
        let (suite, bounds) = (device.load(SUITE).unwrap(), device.load(BOUNDS).unwrap());
        Self { sim, device, suite, bounds }
    }

    fn alloc(&self, len: u64, name: &str) -> Buffer {
        let buffer = self.device.alloc(len).unwrap();
        buffer.write(0, &vec![0; len as usize]).unwrap();
        buffer.set_name(name);
        buffer
    }

    /// Launches a block of threads on a queue of its own; whether it ended without a fault.
    fn launch(&self, kernel: &str, threads: u32, args: &Args) -> bool {
        let kernel = self.suite.kernel(kernel).or_else(|_| self.bounds.kernel(kernel)).unwrap();
        let mut queue = self.device.queue().unwrap();
        // SAFETY: memory of the simulated machine alone, which is this test's.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, threads), args) }.unwrap();
        queue.submit().unwrap().wait(DEADLINE).is_ok()
    }

    fn store(&self, va: u64) -> bool {
        self.launch("store_at", 1, &Args::new().u64(va).u32(7))
    }

    /// The address of the first mapping that is for something.
    fn address(&self, what: &str) -> (u64, u64) {
        let map = self.device.memory_map();
        let mapping = map.iter().find(|m| m.what == what).unwrap_or_else(|| panic!("no {what}: {map:?}"));
        (mapping.va.raw(), mapping.len)
    }
}

/// Runs the right program with all checks, which find nothing; the wrong one without any, which runs to its end;
/// and the wrong one with the check, whose first finding is given.
fn planted(right: impl Fn(&Machine) -> bool, wrong: impl Fn(&Machine) -> bool) -> Finding {
    let machine = Machine::new(Checks::all());
    assert!(right(&machine), "the right program fails");
    assert_eq!(machine.sim.findings(), [], "the right program");
    assert!(wrong(&Machine::new(Checks::empty())), "the mistake is accepted without the check");
    let machine = Machine::new(Checks::MEMORY);
    wrong(&machine);
    let finding = machine.sim.findings().into_iter().next().expect("the mistake is found");
    println!("{finding}");
    assert_eq!(finding.check, Checks::MEMORY);
    assert!(finding.kernel.is_some() && finding.event.pc >= finding.program);
    finding
}

/// Name of the piece, and where the address lies.
fn place(finding: &Finding) -> (&str, Relation) {
    let location = finding.location.as_ref().expect("a piece");
    (&location.name, location.relation)
}

#[test]
fn a_store_past_a_buffer_of_100_bytes_is_found() {
    let fill = |machine: &Machine, words| {
        let buffer = machine.alloc(100, "x");
        machine.launch("fill", 32, &Args::new().buffer(&buffer).u32(words).u32(1))
    };
    let found = planted(|m| fill(m, 25), |m| fill(m, 30));
    assert_eq!(place(&found), ("x", Relation::Past(0)));
    assert_eq!((found.event.thread, found.kernel.as_deref()), ([25, 0, 0], Some("fill")));
    let va = found.location.as_ref().map(|l| l.va).unwrap();
    let text = found.to_string();
    let begin = "writes global memory outside every buffer: STG.E [R2.64], ";
    let end = format!(
        "block (0,0,0), thread (25,0,0), kernel fill at {:#x}, address {:#x}: at the end of buffer `x` (100 bytes at {va:#x})",
        found.program,
        va + 100
    );
    assert!(text.starts_with(begin) && text.ends_with(&end), "{text}");
}

#[test]
fn a_load_past_a_buffer_and_one_across_its_end_are_found() {
    let load = |machine: &Machine, offset| {
        let (buffer, out) = (machine.alloc(102, "x"), machine.alloc(4, "out"));
        let args = Args::new().buffer_at(&buffer, offset).buffer(&out);
        machine.launch("load_at", 1, &args)
    };
    let found = planted(|m| load(m, 96), |m| load(m, 116));
    assert_eq!(place(&found), ("x", Relation::Past(14)));
    assert!(found.text.starts_with("reads") && found.event.sass.contains("LDG"));
    let across = planted(|m| load(m, 96), |m| load(m, 100));
    assert_eq!(place(&across), ("x", Relation::Past(0)));
}

#[test]
fn an_access_to_the_neighbour_256_bytes_on_is_found() {
    let neighbours = |machine: &Machine, at: &dyn Fn(&[Buffer; 2]) -> u64| {
        let both = [machine.alloc(100, "a"), machine.alloc(100, "b")];
        if !machine.sim.config().check.contains(Checks::MEMORY) {
            assert_eq!(both[1].va().raw() - both[0].va().raw(), 256);
        }
        machine.store(at(&both))
    };
    let found = planted(
        |m| neighbours(m, &|both| both[1].va().raw()),
        |m| neighbours(m, &|both| both[0].va().raw() + 256),
    );
    assert_eq!(place(&found), ("a", Relation::Past(156)));
}

#[test]
fn an_access_to_a_freed_buffer_is_found() {
    let freed = |machine: &Machine, early: bool| {
        let (first, other) = (machine.alloc(64, "gone"), machine.alloc(64, "other"));
        let va = first.va().raw();
        // The first launch begins while the buffer exists.
        assert!(machine.store(va));
        let (gone, kept) = if early { (first, other) } else { (other, first) };
        drop(gone);
        let stored = machine.store(va);
        drop(kept);
        stored
    };
    let found = planted(|m| freed(m, false), |m| freed(m, true));
    assert_eq!(
        (found.text.as_str(), place(&found)),
        ("writes memory that was freed", ("gone", Relation::Inside(0)))
    );
    assert_eq!(found.location.as_ref().unwrap().freed_after, Some(1));
    assert!(found.to_string().ends_with(", freed by the program after launch 1 had begun"), "{found}");
}

/// On a device without checks the queue's ring takes the addresses of the buffer.
#[test]
fn an_access_to_a_freed_buffer_whose_addresses_a_command_ring_could_take_is_found() {
    let reused = |machine: &Machine, keep: bool| {
        let buffer = machine.alloc(MIB, "gone");
        let va = buffer.va().raw();
        let kept = keep.then_some(buffer);
        let queue = machine.device.queue().unwrap();
        let (ring, _) = machine.address("command ring");
        assert_eq!(ring == va, machine.sim.config().check.is_empty(), "ring {ring:#x}, buffer {va:#x}");
        let stored = machine.store(va + MIB - 8);
        drop((kept, queue));
        stored
    };
    let found = planted(|m| reused(m, true), |m| reused(m, false));
    assert_eq!(place(&found), ("gone", Relation::Inside(MIB - 8)));
    assert_eq!(found.text, "writes memory that was freed");
}

#[test]
fn stores_to_command_rings_launch_descriptors_and_code_are_found() {
    for what in ["command ring", "launch ring"] {
        let stored = |machine: &Machine, mistake: bool| {
            let (queue, buffer) = (machine.device.queue().unwrap(), machine.alloc(4, "x"));
            let (ring, len) = machine.address(what);
            let stored = machine.store(if mistake { ring + len - 4 } else { buffer.va().raw() });
            drop(queue);
            stored
        };
        let found = planted(|m| stored(m, false), |m| stored(m, true));
        assert_eq!(found.text, "writes memory that is not for kernels to write");
        assert!(matches!(place(&found), (name, Relation::Inside(_)) if name == what), "{found}");
    }
    let code = |machine: &Machine, mistake: bool| {
        let buffer = machine.alloc(4, "x");
        // The last instruction of a kernel that is not launched.
        let stop = machine.suite.kernel("stop").unwrap();
        let code = stop.address().raw() + stop.code_bytes() - 16;
        machine.store(if mistake { code } else { buffer.va().raw() })
    };
    let found = planted(|m| code(m, false), |m| code(m, true));
    assert_eq!(
        (found.text.as_str(), place(&found).0),
        ("writes memory that is not for kernels to write", ".text.stop")
    );
}

#[test]
fn a_stride_of_two_pages_into_the_next_mapping_is_found() {
    let strided = |machine: &Machine, stride: u64| {
        let (first, next) = (machine.alloc(MIB, "first"), machine.alloc(MIB, "next"));
        let (va, end) = (first.va().raw(), first.va().raw() + MIB);
        if machine.sim.config().check.is_empty() {
            assert_eq!(next.va().raw(), end + 4096);
        }
        let start = if stride > 4096 { end - 4096 } else { va };
        machine.launch("strided", 2, &Args::new().u64(start).u64(stride))
    };
    let found = planted(|m| strided(m, 4096), |m| strided(m, 8192));
    assert_eq!(place(&found), ("first", Relation::Past(4096)));
    assert_eq!(found.event.thread, [1, 0, 0]);
}

#[test]
fn an_index_beyond_a_local_array_is_found() {
    let index = |machine: &Machine, from, to| {
        let out = machine.alloc(128, "out");
        machine.launch("local_index", 32, &Args::new().buffer(&out).u32(from).u32(to))
    };
    for last in [64, 65, 100, 200] {
        let found = planted(|m| index(m, 0, 64), |m| index(m, last, last + 1));
        assert_eq!(place(&found), ("stack", Relation::Past(u64::from(last - 64) * 4)));
        assert_eq!(found.text, "reads local memory outside the stack of the thread");
    }
}

#[test]
fn atomic_operations_and_asynchronous_copies_past_a_buffer_are_found() {
    let add = |machine: &Machine, threads| {
        let buffer = machine.alloc(100, "x");
        machine.launch("add", threads, &Args::new().buffer(&buffer).u32(1))
    };
    let found = planted(|m| add(m, 25), |m| add(m, 26));
    assert_eq!((place(&found), found.event.thread), (("x", Relation::Past(0)), [25, 0, 0]));
    assert!(found.text.starts_with("updates"));
    let copy = |machine: &Machine, len| {
        let (source, target) = (machine.alloc(len, "in"), machine.alloc(512, "out"));
        machine.launch("copy_async", 32, &Args::new().buffer(&source).buffer(&target))
    };
    let found = planted(|m| copy(m, 512), |m| copy(m, 500));
    assert_eq!((place(&found), found.event.thread), (("in", Relation::Past(0)), [31, 0, 0]));
    assert!(found.event.sass.contains("LDGSTS"));
}

/// Addresses in quarantine are given out again when there are no others: the bound holds by count and by bytes.
#[test]
fn freed_addresses_are_used_again_after_1024_frees() {
    let machine = Machine::new(Checks::MEMORY);
    let first = machine.alloc(64, "first").va();
    let mut buffers = (0..1024).map(|_| machine.alloc(64, "")).filter(|buffer| buffer.va() == first);
    assert!(buffers.next().is_none());
    let again = (0..2048).any(|_| machine.alloc(64, "").va() == first);
    assert!(again, "the address does not come back");
    assert_eq!(machine.sim.findings(), []);
}

#[test]
fn a_freed_address_that_is_asked_for_is_given() {
    let machine = Machine::new(Checks::MEMORY);
    let va = machine.alloc(MIB, "first").va();
    let again = machine.device.alloc_at(va, 100).unwrap();
    assert!(machine.store(again.va().raw()));
    assert_eq!(machine.sim.findings(), []);
}

#[test]
fn findings_of_the_other_checks_name_kernel_and_buffer() {
    // Blocks read, add and write one word.
    let machine = Machine::new(Checks::RACE);
    let counter = machine.alloc(64, "counter");
    let kernel = machine.suite.kernel("step").unwrap();
    let mut queue = machine.device.queue().unwrap();
    let args = Args::new().buffer_at(&counter, 16).u32(1).u32(1).u32(1);
    for _ in 0..2 {
        // SAFETY: one word of the buffer is written.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, 1), &args) }.unwrap();
    }
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    assert_eq!(machine.sim.findings(), [], "launches of a channel follow each other");
    let shared = machine.bounds.kernel("strided").unwrap();
    let args = Args::new().buffer_at(&counter, 16).u64(0);
    // SAFETY: as above.
    unsafe { queue.launch(&shared, LaunchConfig::new(1, 32), &args) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    let found = machine.sim.findings();
    assert_eq!((found.len(), found[0].check, found[0].kernel.as_deref()), (1, Checks::RACE, Some("strided")));
    assert_eq!(place(&found[0]), ("counter", Relation::Inside(16)));

    let machine = Machine::new(Checks::INIT);
    let (fresh, out) = (machine.device.alloc(64).unwrap(), machine.alloc(64, "out"));
    assert!(machine.launch("load_at", 1, &Args::new().buffer_at(&fresh, 8).buffer(&out)));
    let found = machine.sim.findings();
    assert_eq!((found[0].check, found[0].kernel.as_deref()), (Checks::INIT, Some("load_at")));
    assert_eq!(place(&found[0]), ("", Relation::Inside(8)));
    assert!(found[0].to_string().contains(": 8 bytes into buffer (64 bytes at 0x"), "{}", found[0]);
}

#[test]
fn a_finding_names_the_source_line_of_a_kernel_compiled_with_lineinfo() {
    let machine = Machine::new(Checks::MEMORY);
    let program = machine.device.load(include_bytes!("../../../hcq/tests/data/lines.sm_87.cubin")).unwrap();
    let buffer = machine.alloc(100, "x");
    let mut queue = machine.device.queue().unwrap();
    let args = Args::new().buffer(&buffer).u32(26);
    // SAFETY: memory of the simulated machine alone, which is this test's.
    unsafe { queue.launch(&program.kernel("scale").unwrap(), LaunchConfig::new(1, 32), &args) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    let findings = machine.sim.findings();
    assert_eq!(findings[0].event.source.as_deref(), Some("kernels/scale.cu:5"), "{findings:?}");
    assert!(
        findings[0]
            .to_string()
            .contains("(kernels/scale.cu:5), block (0,0,0), thread (25,0,0), kernel scale")
    );
}

const ARRAYS: &[u8] = include_bytes!("../../../hcq/tests/data/arrays.sm_87.cubin");
const ARRAYS_AND_MORE: &[u8] = include_bytes!("../../../hcq/tests/data/arrays_and_more.sm_87.cubin");

/// Findings of a thread of a kernel with shared arrays, at a word of the first one.
fn in_shared(program: &[u8], kernel: &str, index: i32, more: u32) -> Vec<Finding> {
    let machine = Machine::new(Checks::all());
    let program = machine.device.load(program).unwrap();
    let (out, mut queue) = (machine.alloc(8, "out"), machine.device.queue().unwrap());
    let shape = LaunchConfig::new(1, 1).with_dynamic_shared(more);
    let args = Args::new().buffer(&out).u32(index.cast_unsigned());
    // SAFETY: memory of the simulated machine alone, which is this test's.
    unsafe { queue.launch(&program.kernel(kernel).unwrap(), shape, &args) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap();
    machine.sim.findings()
}

/// The second array takes the bytes 0 to 12, the first one those from 16 to 36; a block has 128.
#[test]
fn an_index_beyond_a_shared_array_of_debug_code_is_found_where_no_other_array_lies() {
    for index in [0, 4] {
        assert_eq!(in_shared(ARRAYS, "shared_index", index, 0), [], "{index}");
    }
    // Both the store and the load.
    let mistakes = [
        ("shared_index", 5, 36, "at the end of shared array `first` (20 bytes at 0x10)"),
        ("shared_index", 7, 44, "8 bytes past the end of shared array `first` (20 bytes at 0x10)"),
        ("shared_index", -1, 12, "at the end of shared array `second` (12 bytes at 0x0)"),
        ("shared_wide", -1, 12, "at the end of shared array `second` (12 bytes at 0x0)"),
        ("shared_wide", 2, 36, "at the end of shared array `first` (20 bytes at 0x10)"),
    ];
    assert_eq!(in_shared(ARRAYS, "shared_wide", 1, 0), []);
    for (kernel, index, address, place) in mistakes {
        let found = in_shared(ARRAYS, kernel, index, 0);
        let texts: Vec<_> = found.iter().map(|f| (f.text.as_str(), f.address, f.detail.as_str())).collect();
        let text = |verb| {
            if verb {
                "writes shared memory outside every array"
            } else {
                "reads shared memory outside every array"
            }
        };
        let both = [true, false].map(|verb| (text(verb), Some(address), place));
        assert_eq!(texts, both, "{kernel} {index}");
        assert!(found.iter().all(|f| f.check == Checks::MEMORY && f.kernel.as_deref() == Some(kernel)));
    }
}

#[test]
fn memory_that_a_launch_asks_for_follows_the_arrays() {
    for (index, more) in [(0, 4), (15, 64), (99, 400)] {
        assert_eq!(in_shared(ARRAYS_AND_MORE, "shared_more", index, more), [], "{index}");
    }
    let found = in_shared(ARRAYS_AND_MORE, "shared_more", -2, 64);
    assert_eq!(
        found[0].detail, "4 bytes past the end of shared array `first` (20 bytes at 0x0)",
        "{found:?}"
    );
    // Code without symbols: the hardware's bounds alone.
    assert_eq!(in_shared(ARRAYS, "shared_index", 4, 64), []);
}

#[test]
fn a_fault_is_a_finding_with_its_line_and_its_buffer() {
    let machine = Machine::new(Checks::MEMORY);
    let program = machine.device.load(include_bytes!("../../../hcq/tests/data/lines.sm_87.cubin")).unwrap();
    let buffer = machine.alloc(100, "x");
    let mut queue = machine.device.queue().unwrap();
    let args = Args::new().buffer_at(&buffer, 2).u32(2);
    // SAFETY: memory of the simulated machine alone, which is this test's.
    unsafe { queue.launch(&program.kernel("scale").unwrap(), LaunchConfig::new(1, 32), &args) }.unwrap();
    queue.submit().unwrap().wait(DEADLINE).unwrap_err();
    let found = machine.sim.findings();
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].text, "reads global memory at an address that is not a multiple of its size");
    assert_eq!(found[0].event.source.as_deref(), Some("kernels/scale.cu:5"));
    assert_eq!((found[0].kernel.as_deref(), place(&found[0])), (Some("scale"), ("x", Relation::Inside(2))));
    // An access outside every buffer that faults too is one mistake.
    let machine = Machine::new(Checks::MEMORY);
    let va = machine.alloc(MIB, "x").va().raw();
    assert!(!machine.store(va + MIB + 4096));
    let found = machine.sim.findings();
    assert_eq!(
        (found.len(), found[0].text.as_str()),
        (1, "writes global memory outside every buffer"),
        "{found:#?}"
    );
}

/// The words of a buffer with these contents, loaded by a kernel: findings of `init`.
fn loaded(staged: bool, fill: impl Fn(&Machine, &Buffer), offset: u64) -> Vec<Finding> {
    let sim = Sim::new(SimConfig { check: Checks::INIT, ..SimConfig::default() });
    let mut options = DeviceOptions::default();
    options.staged_copies = staged;
    let device = hcq::sim::open(sim.clone(), options).unwrap();
    let (suite, bounds) = (device.load(SUITE).unwrap(), device.load(BOUNDS).unwrap());
    let machine = Machine { sim, device, suite, bounds };
    let (buffer, out) = (machine.device.alloc(64).unwrap(), machine.alloc(64, "out"));
    fill(&machine, &buffer);
    let args = Args::new().buffer_at(&buffer, offset).buffer(&out);
    assert!(machine.launch("load_at", 1, &args));
    machine.sim.findings()
}

#[test]
fn the_pattern_of_fresh_memory_that_the_program_writes_is_no_finding() {
    let pattern = ga10b_sim::POISON.to_le_bytes();
    for staged in [false, true] {
        assert_eq!(loaded(staged, |_, buffer| buffer.write(4, &pattern).unwrap(), 4), [], "staged: {staged}");
        let parts = |_: &Machine, buffer: &Buffer| {
            buffer.write(5, &pattern[1..]).unwrap();
            buffer.write(4, &pattern[..1]).unwrap();
        };
        assert_eq!(loaded(staged, parts, 4), [], "staged: {staged}");
        let found = loaded(staged, |_, buffer| buffer.write(4, &pattern).unwrap(), 8);
        assert_eq!(found.len(), 1, "staged: {staged}");
    }
}

#[test]
fn bytes_that_the_program_did_not_write_are_found() {
    let found = loaded(false, |_, buffer| buffer.write(4, &[1, 2, 3]).unwrap(), 4);
    assert_eq!((found.len(), found[0].detail.as_str()), (1, "of its 4 bytes nothing wrote byte 3"));
    assert_eq!(place(&found[0]).1, Relation::Inside(7));
    // A copy of fresh memory is as fresh; one of the pattern that was written is not.
    let copied = |written: bool| {
        move |machine: &Machine, buffer: &Buffer| {
            let source = machine.device.alloc(64).unwrap();
            if written {
                source.write(4, &ga10b_sim::POISON.to_le_bytes()).unwrap();
            }
            let mut queue = machine.device.copy_queue().unwrap();
            queue.copy(&source, 4, buffer, 4, 4).unwrap();
            queue.submit().unwrap().wait(DEADLINE).unwrap();
        }
    };
    assert_eq!(loaded(false, copied(true), 4), []);
    assert_eq!(loaded(false, copied(false), 4).len(), 1);
}
