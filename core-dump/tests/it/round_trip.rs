//! What is written is read back.

use core_dump::{
    Block, Call, Context, CoreDump, Device, Exception, Generator, Grid, Lane, LocalMemory, Module, Sm, Warp,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..40)
}

prop_compose! {
    fn lane()(
        (lane, thread, exception, depth) in any::<(u32, [u32; 3], u32, u32)>(), (pc, offset) in any::<(u64, u64)>(),
        registers in vec(any::<u32>(), 0..5), predicates in vec(any::<bool>(), 0..9),
        local in option::of((any::<u64>(), bytes())), calls in vec(any::<(u64, u64)>(), 0..3),
    ) -> Lane {
        let calls = (0..).zip(calls).map(|(level, (return_pc, offset))| Call { level, return_pc, offset });
        let local = local.map(|(address, bytes)| LocalMemory { address, bytes });
        let (exception, calls) = (Exception(exception), calls.collect());
        Lane { lane, thread, exception, pc, offset, registers, predicates, local, depth, calls }
    }
}

prop_compose! {
    fn warp()(
        (id, valid, active, is_broken) in any::<(u32, u32, u32, bool)>(), error_pc in any::<Option<u64>>(),
        uniform_registers in vec(any::<u32>(), 0..4), uniform_predicates in vec(any::<bool>(), 0..4),
        lanes in vec(lane(), 0..4),
    ) -> Warp {
        Warp { id, valid, active, is_broken, error_pc, uniform_registers, uniform_predicates, lanes }
    }
}

prop_compose! {
    fn sm()(
        (id, exception, error_pc) in any::<(u32, u32, Option<u64>)>(),
        blocks in vec((any::<u64>(), any::<[u32; 3]>(), bytes(), vec(warp(), 0..3)), 0..3),
    ) -> Sm {
        let block = |(grid, index, shared, warps)| Block { grid, index, shared, warps };
        Sm { id, exception: Exception(exception), error_pc, blocks: blocks.into_iter().map(block).collect() }
    }
}

prop_compose! {
    fn context()(
        (id, shared_window, local_window, global_window, thread) in any::<(u64, u64, u64, u64, u32)>(),
        modules in vec((any::<u64>(), option::of(bytes()), option::of(bytes())), 0..3),
    ) -> Context {
        let module = |(handle, relocated, original)| Module { handle, relocated, original };
        let modules = modules.into_iter().map(module).collect();
        Context { id, shared_window, local_window, global_window, thread, modules }
    }
}

prop_compose! {
    fn grid()(
        [id, context, function, entry, module, parent, parameter_offset] in any::<[u64; 7]>(),
        (registers, grid, block) in any::<(u32, [u32; 3], [u32; 3])>(), parameters in bytes(),
    ) -> Grid {
        Grid { id, context, function, entry, module, parent, parameter_offset, registers, grid, block, parameters }
    }
}

prop_compose! {
    fn device()(
        [name, chip, sm_type] in [(); 3].map(|()| "[ -~]{0,12}"), numbers in any::<[u32; 14]>(),
        contexts in vec(context(), 0..3), grids in vec(grid(), 0..3), sms in vec(sm(), 0..4),
    ) -> Device {
        let [
            id, bus, slot, sm_count, warps_per_sm, lanes_per_warp, registers_per_lane, predicates_per_lane, major,
            minor, instruction_bytes, uniform_registers, uniform_predicates, _,
        ] = numbers;
        Device {
            name, chip, sm_type, id, pci: [bus, slot], sm_count, warps_per_sm, lanes_per_warp, registers_per_lane,
            predicates_per_lane, capability: [major, minor], instruction_bytes, uniform_registers,
            uniform_predicates, contexts, grids, sms,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_dump_is_read_back(
        devices in vec(device(), 0..3),
        generator in option::of(("[ -~]{0,9}", any::<[u32; 2]>(), any::<[u32; 2]>(), any::<u32>())),
    ) {
        let generator = generator.map(|(name, driver, cuda, time)| Generator { name, driver, cuda, time });
        let dump = CoreDump { generator, devices, memory: Vec::new() };
        let bytes = dump.to_bytes().expect("written");
        prop_assert_eq!(CoreDump::read(bytes.as_slice()).expect("read"), dump);
    }
}

/// More sections than an ELF header counts: their number stands in the first section header.
#[test]
fn many_lanes_are_read_back() {
    let lane = |lane| Lane { lane, registers: vec![lane], predicates: vec![true], ..Lane::default() };
    let warp = |id| Warp { id, valid: u32::MAX, lanes: (0..32).map(lane).collect(), ..Warp::default() };
    let block = Block { warps: (0..1100).map(warp).collect(), ..Block::default() };
    let sm = Sm { blocks: vec![block], ..Sm::default() };
    let device = Device { sms: vec![sm], ..Device::default() };
    let dump = CoreDump { devices: vec![device], ..CoreDump::default() };
    let bytes = dump.to_bytes().expect("written");
    assert_eq!(u16::from_le_bytes([bytes[0x3c], bytes[0x3d]]), 0, "no number in the ELF header");
    assert!(CoreDump::read(bytes.as_slice()).expect("read") == dump);
}

/// The identification that `libcudacore` compares, and the names of sections that it or the header gives.
#[test]
fn the_file_is_what_libcudacore_opens() {
    let lane = Lane { registers: vec![1], ..Lane::default() };
    let warp = Warp { lanes: vec![lane], ..Warp::default() };
    let sm = Sm { blocks: vec![Block { warps: vec![warp], ..Block::default() }], ..Sm::default() };
    let device = Device { sm_type: "sm_87".into(), sms: vec![sm], ..Device::default() };
    let bytes = CoreDump { devices: vec![device], ..CoreDump::default() }.to_bytes().expect("written");
    assert_eq!(&bytes[..20], b"\x7fELF\x02\x01\x01\x33\x07\0\0\0\0\0\0\0\x04\0\xbe\0");
    for name in [
        ".cudbg.devtbl",
        ".cudbg.smtbl.dev0",
        ".cudbg.ctatbl.dev0.sm0",
        ".cudbg.wptbl.dev0.sm0.cta0",
        ".cudbg.lntbl.dev0.sm0.cta0.wp0",
        ".cudbg.regs.dev0.sm0.cta0.wp0.ln0",
        ".strtab",
        ".shstrtab",
    ] {
        let name = [name.as_bytes(), &[0]].concat();
        assert!(bytes.windows(name.len()).any(|window| window == name), "{name:?}");
    }
}
