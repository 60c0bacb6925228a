//! Memory as the GPU sees it: semaphores against a model, sparse areas, syncpoints, nvmap copies.

use crate::machine::*;
use nix::errno::Errno;
use nvgpu_sys::*;
use proptest::prelude::*;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One semaphore method on one of four slots.
#[derive(Clone, Copy, Debug)]
struct Step {
    slot: usize,
    payload: u64,
    wide: bool,
    timestamp: bool,
    /// `None` releases, otherwise number of the reduction and whether values are signed.
    reduce: Option<(u32, bool)>,
}

fn step() -> impl Strategy<Value = Step> {
    let payload = prop_oneof![0u64..4, Just(u64::MAX), Just(0x8000_0000), any::<u64>()];
    (0usize..4, payload, any::<bool>(), any::<bool>(), prop::option::of((0u32..8, any::<bool>())))
        .prop_filter_map("the hardware refuses it", |(slot, payload, wide, timestamp, reduce)| {
            let refused = wide && matches!(reduce, Some((6 | 7, _) | (5, true)));
            (!refused).then_some(Step { slot, payload, wide, timestamp, reduce })
        })
}

impl Step {
    fn words(self, base: u64) -> [u32; 6] {
        let va = base + self.slot as u64 * 16;
        let mut execute = u32::from(self.wide) << 24 | u32::from(self.timestamp) << 25;
        execute |= match self.reduce {
            None => 1,
            Some((op, signed)) => 6 | op << 27 | u32::from(!signed) << 31,
        };
        let (low, high) = (self.payload as u32, (self.payload >> 32) as u32);
        [inc(0, 0x5c, 5), va as u32, (va >> 32) as u32, low, high, execute]
    }

    /// Returns the value of the word afterwards.
    fn apply(self, old: u64) -> u64 {
        let Some((op, signed)) = self.reduce else {
            return match (self.wide, self.timestamp) {
                (true, _) => self.payload,
                (false, true) => self.payload & 0xffff_ffff,
                (false, false) => old & !0xffff_ffff | self.payload & 0xffff_ffff,
            };
        };
        if self.wide {
            return reduce(op, signed, old as i64, self.payload as i64, old, self.payload);
        }
        let (low, payload) = (old as u32, self.payload as u32);
        let value =
            reduce(op, signed, (low as i32).into(), (payload as i32).into(), low.into(), payload.into());
        old & !0xffff_ffff | value & 0xffff_ffff
    }
}

fn reduce(op: u32, signed: bool, old_s: i64, payload_s: i64, old: u64, payload: u64) -> u64 {
    match (op, signed) {
        (0, true) => old_s.min(payload_s) as u64,
        (0, false) => old.min(payload),
        (1, true) => old_s.max(payload_s) as u64,
        (1, false) => old.max(payload),
        (2, _) => old ^ payload,
        (3, _) => old & payload,
        (4, _) => old | payload,
        (5, _) => old.wrapping_add(payload),
        (6, _) => {
            if old >= payload {
                0
            } else {
                old + 1
            }
        }
        _ => {
            if old == 0 || old > payload {
                payload
            } else {
                old - 1
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(48), ..ProptestConfig::default() })]

    /// Any sequence of releases and reductions leaves the model's value, and acquires see it.
    #[test]
    fn semaphores_agree_with_the_model(steps in prop::collection::vec(step(), 1..60)) {
        let machine = Machine::new();
        let mut channel = machine.channel();
        let memory = machine.buffer(4096);
        let mut model = [0_u64; 4];
        let mut words = Vec::new();
        for step in &steps {
            words.extend(step.words(memory.va));
            model[step.slot] = step.apply(model[step.slot]);
            // The channel itself checks: an acquire for equality that is not met would stop it for ever.
            let mut wait = acquire(memory.va + step.slot as u64 * 16, model[step.slot]);
            wait[5] = 1 << 24;
            words.extend(wait);
        }
        words.extend(release(memory.va + 256, 1));
        channel.submit(&words);
        channel.wait(memory.u64(256), 1);
        for (slot, value) in model.into_iter().enumerate() {
            prop_assert_eq!(memory.u64(slot * 16).load(Ordering::Acquire), value);
        }
    }
}

#[test]
fn every_kind_of_acquire_lets_go_when_its_condition_holds() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    let memory = machine.buffer(4096);
    // Operation, payload, a value that does not meet it, one that does.
    let cases = [
        (0, 5, 4, 5),
        (2, 5, 4, 9),
        (3, 5, 4, 6),
        (3, 2, 0xffff_fffe, 3),
        (4, 0b1100, 0b0011, 0b0100),
        (5, 0xffff_0000, 0x0000_ffff, 0x0000_fffe),
    ];
    for (i, (operation, payload, before, after)) in cases.into_iter().enumerate() {
        memory.u32(0).store(before, Ordering::Release);
        let done = memory.u64(64 + i * 16);
        let mut words =
            vec![inc(0, 0x5c, 5), memory.va as u32, (memory.va >> 32) as u32, payload, 0, operation];
        words.extend(release(memory.va + 64 + i as u64 * 16, 1));
        channel.submit(&words);
        machine.settle();
        assert_eq!(done.load(Ordering::Acquire), 0, "operation {operation} did not wait");
        memory.u32(0).store(after, Ordering::Release);
        channel.wait(done, 1);
    }
}

#[test]
fn sparse_areas_read_zero_and_take_buffers_by_page() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    channel.start();
    let mut area = nvgpu_as_alloc_space_args {
        pages: 16,
        page_size: 4096,
        flags: NVGPU_AS_ALLOC_SPACE_FLAGS_SPARSE,
        ..Default::default()
    };
    ask(&machine.sim, machine.space.as_fd(), &mut area).unwrap();
    let base = area.o_a;
    let (inside, outside, signal) = (machine.host_buffer(8192), machine.buffer(4096), machine.buffer(4096));
    inside.u32(4096).store(77, Ordering::Release);
    let op = nvgpu_as_remap_op {
        flags: NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K,
        compr_kind: -1,
        incompr_kind: 0,
        mem_handle: inside.fd.as_raw_fd() as u32,
        mem_offset_in_pages: 1,
        virt_offset_in_pages: base / 4096 + 3,
        num_pages: 1,
        ..Default::default()
    };
    let remap = |op: &nvgpu_as_remap_op| {
        let mut args = nvgpu_as_remap_args { ops: (&raw const *op) as u64, num_ops: 1, ..Default::default() };
        ask(&machine.sim, machine.space.as_fd(), &mut args)
    };
    assert_eq!(remap(&op), Ok(0));
    assert_eq!(remap(&nvgpu_as_remap_op { num_pages: 2, ..op }), Err(Errno::EINVAL));
    assert_eq!(remap(&nvgpu_as_remap_op { virt_offset_in_pages: 1, ..op }), Err(Errno::EINVAL));
    outside.u32(0).store(1, Ordering::Release);
    outside.u32(4).store(1, Ordering::Release);
    let copy = |from: u64, to: u64| {
        let addresses = [(from >> 32) as u32, from as u32, (to >> 32) as u32, to as u32];
        let mut words = vec![inc(4, 0x400, 4)];
        words.extend(addresses);
        words.extend([inc(4, 0x418, 1), 4, inc(4, 0x300, 1), 0x182]);
        words
    };
    let mut words = copy(base, outside.va);
    words.extend(copy(base + 3 * 4096, outside.va + 4));
    words.extend(copy(outside.va + 4, base + 0x5000));
    words.extend(copy(base + 0x5000, outside.va + 8));
    words.extend(release(signal.va, 1));
    outside.u32(8).store(9, Ordering::Release);
    channel.submit(&words);
    channel.wait(signal.u64(0), 1);
    assert_eq!(outside.words(0, 3), [0, 77, 0]);
}

#[test]
fn a_syncpoint_counts_and_is_released_by_an_error() {
    let machine = Machine::new();
    let mut channel = machine.channel();
    let mut point = nvgpu_get_user_syncpoint_args::default();
    ask(&machine.sim, channel.fd.as_fd(), &mut point).unwrap();
    let first = (point.syncpoint_id, point.gpu_va);
    assert_eq!(first.0, 17);
    let mut all = nvgpu_as_get_sync_ro_map_args::default();
    ask(&machine.sim, machine.space.as_fd(), &mut all).unwrap();
    assert_eq!((all.sync_size, all.num_syncpoints), (0x1_0000, 1024));
    let read_only = all.base_gpuva + u64::from(first.0) * u64::from(all.sync_size);
    let signal = machine.buffer(4096);
    let increment = [inc(0, 0x5c, 5), first.1 as u32, (first.1 >> 32) as u32, 12345, 0, 1];
    let mut words = [increment, increment].concat();
    words.extend([inc(0, 0x5c, 5), read_only as u32, (read_only >> 32) as u32, 2, 0, 3]);
    words.extend(release(signal.va, 1));
    channel.submit(&words);
    channel.wait(signal.u64(0), 1);
    ask(&machine.sim, channel.fd.as_fd(), &mut point).unwrap();
    assert_eq!((point.syncpoint_id, point.gpu_va, point.syncpoint_max), (first.0, first.1, 2));
    channel.submit(&[6 << 29]);
    channel.wait_error();
    // The driver notifies the owner before it releases the waiters for the syncpoint.
    let deadline = Instant::now() + Duration::from_secs(10);
    while point.syncpoint_max < 1000 {
        assert!(Instant::now() < deadline, "not released: {}", point.syncpoint_max);
        ask(&machine.sim, channel.fd.as_fd(), &mut point).unwrap();
    }
}

#[test]
fn nvmap_copies_by_stride_and_describes_its_buffers() {
    let machine = Machine::new();
    let buffer = machine.host_buffer(4096);
    let source: Vec<u8> = (0..64).collect();
    let mut args = nvmap_rw_handle {
        addr: source.as_ptr() as u64,
        handle: buffer.handle,
        offset: 16,
        elem_size: 4,
        hmem_stride: 8,
        user_stride: 4,
        count: 16,
        ..Default::default()
    };
    // SAFETY: the source is longer than what is copied. Two commands share the struct.
    let done = unsafe {
        let bytes = zerocopy::IntoBytes::as_mut_bytes(&mut args);
        machine.sim.ioctl(machine.nvmap.as_fd(), NVMAP_IOC_WRITE, bytes)
    };
    assert_eq!((done, args.count), (Ok(0), 64), "bytes that were copied");
    for i in 0..16 {
        assert_eq!(buffer.read(16 + i * 8, 4), source[i * 4..i * 4 + 4]);
    }
    let mut facts = nvmap_handle_parameters { handle: buffer.handle, ..Default::default() };
    ask(&machine.sim, machine.nvmap.as_fd(), &mut facts).unwrap();
    assert_eq!((facts.size, facts.heap), (4096, u64::from(NVMAP_HEAP_IOVMM)));
    facts.handle = 5;
    assert_eq!(ask(&machine.sim, machine.nvmap.as_fd(), &mut facts), Err(Errno::ENODEV));
    let mut heap = nvmap_query_heap_params { heap_mask: NVMAP_HEAP_IOVMM, ..Default::default() };
    ask(&machine.sim, machine.nvmap.as_fd(), &mut heap).unwrap();
    assert_eq!((heap.total, heap.granule_size, heap.largest_free_block), (4 << 30, 4096, 4096));
}

/// Answers of nvmap for heaps that are not there, and for none (`nvmap_ioctl_query_heap_params`, r36.4).
#[test]
fn heaps_are_described_as_nvmap_describes_them() {
    let machine = Machine::new();
    let query = |heap_mask: u32| {
        let mut heap =
            nvmap_query_heap_params { heap_mask, granule_size: 7, contig: 3, ..Default::default() };
        ask(&machine.sim, machine.nvmap.as_fd(), &mut heap)
            .map(|_| (heap.total, heap.largest_free_block, heap.granule_size, heap.contig))
    };
    assert_eq!(query(0), Ok((0, 4096, 7, 3)), "no heap is no error");
    assert_eq!(query(1 << 31), Ok((0, 4096, 7, 3)), "one that nobody knows neither");
    assert_eq!(query(NVMAP_HEAP_IOVMM), Ok((4 << 30, 4096, 4096, 3)));
    let carveout = query(4).unwrap();
    assert_eq!((carveout.1, carveout.2), (4096, 7), "the largest block of a carveout is a page");
    assert!(carveout.0 > 0);
    assert_eq!(query(NVMAP_HEAP_CARVEOUT_TSEC), Err(Errno::ENODEV));
}

/// `ALLOC` looks at the size before it looks whether the handle has memory (`nvmap_ioctl_alloc`, r36.4).
#[test]
fn a_buffer_that_does_not_fit_is_refused_before_one_that_has_memory() {
    let machine = Machine::new();
    let handle = nvmap_create(&machine.sim, &machine.nvmap, 1 << 30).unwrap();
    let alloc = |heap_mask: u32| {
        let mut args = nvmap_alloc_handle { handle, heap_mask, align: 4096, ..Default::default() };
        ask(&machine.sim, machine.nvmap.as_fd(), &mut args)
    };
    assert_eq!(alloc(0), Err(Errno::ENOMEM), "no heap");
    assert_eq!(alloc(4), Err(Errno::ENOMEM), "larger than the carveout");
    assert_eq!(alloc(NVMAP_HEAP_IOVMM | 1 << 31), Ok(0), "what nobody knows beside one that fits");
    assert_eq!(alloc(4), Err(Errno::ENOMEM), "still larger");
    assert_eq!(alloc(NVMAP_HEAP_IOVMM), Err(Errno::EEXIST));
}
