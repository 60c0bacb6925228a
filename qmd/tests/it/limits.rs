//! The largest and the smallest value of everything that has a limit: taken there, refused one step beyond.

use qmd::{
    Axis, ConstantBuffer, ConstantPrefetch, Dependent, Error, Launch, Problem, Qmd, ReductionOp, Release,
    SharedMemory, Target, Version, field,
};

const KIB: u32 = 1024;

fn launch(target: Target) -> Launch {
    Launch::new(target).program(0x1000, 0).registers(16)
}

/// The launch with `value` is built up to `limit`, and refused one `step` above.
fn ends_at(limit: u32, step: u32, with: impl Fn(u32) -> Launch, refused: impl Fn(&Error) -> bool) {
    assert_eq!(with(limit).build().map(|qmd| qmd.problems()), Ok(vec![]), "{limit} is in range");
    let error = with(limit + step).build().expect_err("beyond the limit");
    assert!(refused(&error), "{limit} + {step}: {error}");
}

#[test]
fn a_grid_and_a_block_have_their_limits_on_each_axis() {
    let on = |axis: usize, value| {
        let mut extent = [1; 3];
        extent[axis] = value;
        extent
    };
    let grid = |axis| move |e: &Error| matches!(e, Error::Grid { axis: a, .. } if *a == axis);
    let block = |axis| move |e: &Error| matches!(e, Error::Block { axis: a, .. } if *a == axis);
    for target in [Target::Sm87, Target::Sm90] {
        for (i, (axis, limit)) in Axis::ALL.into_iter().zip([0x7fff_ffff, 65535, 65535]).enumerate() {
            ends_at(limit, 1, |value| launch(target).grid(on(i, value)), grid(axis));
        }
        for (i, (axis, limit)) in Axis::ALL.into_iter().zip([1024, 1024, 64]).enumerate() {
            ends_at(limit, 1, |value| launch(target).block(on(i, value)), block(axis));
            let none = launch(target).block(on(i, 0)).build().expect_err("no thread");
            assert_eq!(none, Error::Block { axis, value: 0, limit });
        }
        ends_at(
            32,
            1,
            |y| launch(target).block([32, y, 1]),
            |e| matches!(e, Error::Threads { threads: 1056 }),
        );
    }
}

#[test]
fn registers_barriers_groups_and_local_memory_have_their_limits() {
    for target in [Target::Sm87, Target::Sm90] {
        ends_at(255, 1, |n| launch(target).registers(n), |e| matches!(e, Error::Registers { count: 256 }));
        assert_eq!(launch(target).registers(0).build(), Err(Error::Registers { count: 0 }));
        ends_at(16, 1, |n| launch(target).barriers(n), |e| matches!(e, Error::Barriers { count: 17 }));
        // Both parts of local memory share the window, less one unit: a field has 24 bits.
        let most = (1 << 24) - 16;
        let local = |e: &Error| matches!(e, Error::LocalMemory { .. });
        ends_at(most, 1, |n| launch(target).local(n, 0), local);
        ends_at(most, 1, |n| launch(target).local(0, n), local);
        ends_at(most - 0x240, 1, |n| launch(target).local(n, 0x240), local);
        let bytes = u64::from(most) + 16;
        let error = launch(target).local(most - 0x240, 0x241).build();
        assert_eq!(error, Err(Error::LocalMemory { bytes, limit: most }), "both, rounded up");
    }
    ends_at(63, 1, |n| launch(Target::Sm87).group(n), |e| matches!(e, Error::Group { group: 64 }));
    // 65536 registers: 16 warps of 128, in groups of four.
    let full = |threads| launch(Target::Sm87).registers(128).block([threads, 1, 1]);
    let refused = |e: &Error| matches!(e, Error::RegisterFile { warps: 17, limit: 16, .. });
    ends_at(512, 1, full, refused);
}

#[test]
fn shared_memory_ends_where_the_largest_carve_out_does() {
    let refused = |e: &Error| matches!(e, Error::SharedMemory { .. });
    let shared = |target, reserved| {
        move |dynamic_bytes| launch(target).shared(SharedMemory { static_bytes: 0, dynamic_bytes, reserved })
    };
    // On sm_8x the reserved KiB counts whether it is used or not, on sm_90 as static memory.
    for (target, most) in [(Target::Sm80, 163), (Target::Sm86, 99), (Target::Sm87, 163), (Target::Sm90, 227)]
    {
        ends_at(most * KIB, 1, shared(target, false), refused);
        ends_at(most * KIB, 1, shared(target, true), refused);
    }
    let error = shared(Target::Sm87, false)(164 * KIB).build().expect_err("too much");
    assert_eq!(error, Error::SharedMemory { bytes: 164 * 1024, limit: 163 * KIB, target: Target::Sm87 });
    let error = shared(Target::Sm87, true)(164 * KIB).build().expect_err("too much");
    assert_eq!(error, Error::SharedMemory { bytes: 165 * 1024, limit: 164 * KIB, target: Target::Sm87 });
}

#[test]
fn a_cap_is_a_carve_out_that_holds_what_is_wanted() {
    let capped = |cap| launch(Target::Sm87).carve_out(33 * KIB).carve_out_cap(cap);
    let qmd = capped(33 * KIB).build().expect("the same carve-out holds both");
    let carve_outs = qmd.carve_outs();
    assert_eq!(
        (carve_outs.min_kib, carve_outs.target_kib, carve_outs.max_kib),
        (Some(8), Some(64), Some(64))
    );
    let error = capped(32 * KIB).build().expect_err("smaller than what is wanted");
    assert_eq!(error, Error::CarveOutCap { cap: 32 * KIB, needed: 64 * KIB });
}

#[test]
fn the_scheduler_prefetches_whole_units_of_code_up_to_its_limit() {
    for target in [Target::Sm87, Target::Sm90] {
        let prefetch = |code_bytes| {
            let qmd = Launch::new(target).program(0x1080, code_bytes).registers(16).build().expect("valid");
            qmd.program_prefetch()
        };
        assert_eq!(prefetch(255), None);
        assert_eq!(prefetch(256), Some((0x1000, 256)));
        assert_eq!(prefetch(0x1fe00), Some((0x1000, 0x1fe00)));
        assert_eq!(prefetch(1 << 40), Some((0x1000, 0x1ff00)));
    }
}

#[test]
fn constant_buffers_have_one_byte_to_64_kib_in_eight_slots() {
    for target in [Target::Sm87, Target::Sm90] {
        let bank = |index, len| launch(target).constant_buffer(index, ConstantBuffer::new(0x1_0000, len));
        let refused = |e: &Error| matches!(e, Error::ConstantBufferSize { index: 7, bytes: 65537 });
        ends_at(65536, 1, |len| bank(7, len), refused);
        assert_eq!(bank(3, 0).build(), Err(Error::ConstantBufferSize { index: 3, bytes: 0 }));
        assert_eq!(bank(0, 1).build().expect("valid").constant_buffer(0).map(|b| b.len), Some(16));
        assert!(matches!(bank(8, 16).build(), Err(Error::Slot { index: 8, count: 8, .. })));
        let early = ConstantBuffer::new(0x1_0000, 16).prefetched(ConstantPrefetch::Pre);
        let qmd = launch(target).constant_buffer(1, early).build();
        match target.version() {
            Version::V03 => assert!(matches!(qmd, Err(Error::PrefetchPre { index: 1, .. }))),
            Version::V04 => assert_eq!(qmd.expect("valid").constant_buffer(1), Some(early)),
        }
    }
}

#[test]
fn an_address_may_have_as_many_bits_as_its_fields() {
    for (version, link_bits, release_bits, bank_bits, program_bits) in
        [(Version::V03, 40, 40, 49, 49), (Version::V04, 40, 57, 57, 57)]
    {
        let reach = |bits: u32, align: u64, place: &dyn Fn(&mut Qmd, u64) -> Result<(), Error>| {
            let mut qmd = Qmd::new(version);
            assert_eq!(place(&mut qmd, (1 << bits) - align), Ok(()), "{version} {bits}");
            let error = place(&mut qmd, 1 << bits).expect_err("out of reach");
            assert!(matches!(error, Error::OutOfReach { bits: b, .. } if u32::from(b) == bits), "{error}");
            let error = place(&mut qmd, align / 2).expect_err("misaligned");
            assert!(matches!(error, Error::Misaligned { align: a, .. } if a == align), "{error}");
        };
        reach(link_bits, 256, &|qmd, at| qmd.set_dependent(0, &Dependent::schedule(at)));
        reach(release_bits, 16, &|qmd, at| qmd.set_release(0, &Release::new_u64(at, 1).with_timestamp()));
        reach(bank_bits, 64, &|qmd, at| qmd.set_constant_buffer(0, &ConstantBuffer::new(at, 16)));
        let target = if version == Version::V03 { Target::Sm87 } else { Target::Sm90 };
        reach(program_bits, 128, &|_, at| launch(target).program(at, 0).build().map(drop));
        let error = launch(target).program(0, 0).build().expect_err("no program");
        assert_eq!(error, Error::Missing { what: "program address (it is 0)" });
    }
}

#[test]
fn what_the_hardware_adds_on_32_bits_alone_is_refused_on_64() {
    for (op, signed) in ReductionOp::ALL.into_iter().flat_map(|op| [(op, false), (op, true)]) {
        let set = |release: Release| Qmd::new(Version::V03).set_release(0, &release.reducing(op, signed));
        assert_eq!(set(Release::new_u32(0x1000, 1)), Ok(()), "{op:?}");
        let narrow = matches!(op, ReductionOp::Inc | ReductionOp::Dec) || op == ReductionOp::Add && signed;
        let wanted = if narrow { Err(Error::WideReduction { op }) } else { Ok(()) };
        assert_eq!(set(Release::new_u64(0x1000, 1)), wanted, "{op:?}");
    }
}

#[test]
fn a_layout_has_as_many_dependents_as_pointers() {
    for (version, count) in [(Version::V03, 1), (Version::V04, 2)] {
        let mut qmd = Qmd::new(version);
        assert_eq!(qmd.dependents(), count);
        let mut set = |slot| qmd.set_dependent(slot, &Dependent::decrement(0x1000));
        assert_eq!(set(count - 1), Ok(()));
        assert_eq!(set(count), Err(Error::Slot { what: "dependent", index: count, count, version }));
        assert_eq!(qmd.dependent(count), None);
    }
}

/// The problems of an otherwise right descriptor with these raw values.
fn problems(target: Target, values: &[(&str, u32)]) -> Vec<Problem> {
    let mut qmd = launch(target).build().expect("valid");
    for (name, value) in values {
        qmd.set(field(qmd.version(), name).expect("a field of this version"), *value).expect("fits");
    }
    qmd.problems()
}

#[test]
fn a_raw_value_is_no_problem_up_to_its_limit() {
    let ends_at = |name: &str, limit: u32, step: u32, with: &[(&str, u32)], wanted: Problem| {
        let of = |value| problems(Target::Sm87, &[with, &[(name, value)]].concat());
        assert_eq!(of(limit), [], "{name} = {limit}");
        assert_eq!(of(limit + step), [wanted], "{name} = {limit} + {step}");
    };
    let target = Target::Sm87;
    let grid = |axis, value, limit| Problem::Grid { axis, value, limit };
    let block = |axis, value, limit| Problem::BlockTooLong { axis, value, limit };
    ends_at("CTA_RASTER_WIDTH", 0x7fff_ffff, 1, &[], grid(Axis::X, 1 << 31, 0x7fff_ffff));
    let resume = Problem::Resume { axis: Axis::Y, value: 5, blocks: 5 };
    ends_at("CTA_RASTER_HEIGHT_RESUME", 4, 1, &[("CTA_RASTER_HEIGHT", 5)], resume);
    ends_at("CTA_THREAD_DIMENSION0", 1024, 1, &[], block(Axis::X, 1025, 1024));
    ends_at("CTA_THREAD_DIMENSION2", 64, 1, &[], block(Axis::Z, 65, 64));
    let threads = Problem::Threads { threads: 1056 };
    ends_at("CTA_THREAD_DIMENSION1", 32, 1, &[("CTA_THREAD_DIMENSION0", 32)], threads);
    ends_at("REGISTER_COUNT_V", 255, 1, &[], Problem::Registers { count: 256 });
    let file = Problem::RegisterFile { warps: 17, registers: 128, limit: 16, target };
    ends_at("CTA_THREAD_DIMENSION0", 512, 1, &[("REGISTER_COUNT_V", 128)], file);
    ends_at("BARRIER_COUNT", 16, 1, &[], Problem::Barriers { count: 17 });
    // Codes of carve-outs are quarters of a KiB's multiple, plus one: 164 KiB is 42.
    let all = [("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 42)];
    let shared = Problem::SharedMemory { bytes: 164 * KIB + 128, limit: 164 * KIB, target };
    ends_at("SHARED_MEMORY_SIZE", 164 * KIB, 128, &all, shared);
    let small = Problem::CarveOutTooSmall { bytes: 8 * KIB + 128, kib: 8 };
    ends_at("SHARED_MEMORY_SIZE", 8 * KIB, 128, &[], small);
    let total = Problem::LocalTotal { bytes: (1 << 24) + 16 };
    ends_at(
        "SHADER_LOCAL_MEMORY_LOW_SIZE",
        0x1000,
        16,
        &[("SHADER_LOCAL_MEMORY_HIGH_SIZE", 0xff_f000)],
        total,
    );
    let bank = [("CONSTANT_BUFFER_VALID", 1), ("CONSTANT_BUFFER_ADDR_LOWER", 0x1000)];
    let size = Problem::ConstantBufferSize { index: 0, bytes: 65552 };
    ends_at("CONSTANT_BUFFER_SIZE_SHIFTED4", 4096, 1, &bank, size);
}

#[test]
fn carve_outs_are_in_order_when_they_are_equal() {
    let codes = |min: u32, wanted: u32, max: u32| {
        let codes = [
            ("MIN_SM_CONFIG_SHARED_MEM_SIZE", min / 4 + 1),
            ("TARGET_SM_CONFIG_SHARED_MEM_SIZE", wanted / 4 + 1),
            ("MAX_SM_CONFIG_SHARED_MEM_SIZE", max / 4 + 1),
        ];
        problems(Target::Sm87, &codes)
    };
    assert_eq!(codes(32, 32, 32), []);
    assert_eq!(codes(64, 32, 100), [Problem::CarveOutOrder { min: 64, wanted: 32, max: 100 }]);
    assert_eq!(codes(8, 64, 32), [Problem::CarveOutOrder { min: 8, wanted: 64, max: 32 }]);
}

#[test]
fn addresses_in_a_descriptor_are_measured_by_what_they_name() {
    let bank = |address| {
        problems(
            Target::Sm87,
            &[
                ("CONSTANT_BUFFER_VALID", 1),
                ("CONSTANT_BUFFER_SIZE_SHIFTED4", 1),
                ("CONSTANT_BUFFER_ADDR_LOWER", address),
            ],
        )
    };
    assert_eq!(bank(0x1040), []);
    assert_eq!(bank(0x1020), [Problem::ConstantBufferAddress { index: 0, address: 0x1020 }]);
    let dependent = |pointer| {
        problems(Target::Sm87, &[("DEPENDENT_QMD0_ENABLE", 1), ("DEPENDENT_QMD0_POINTER", pointer)])
    };
    assert_eq!(dependent(1), []);
    assert_eq!(dependent(0), [Problem::DependentAddress { slot: 0, address: 0 }]);
    let program = |address| problems(Target::Sm87, &[("PROGRAM_ADDRESS_LOWER", address)]);
    assert_eq!(program(128), []);
    assert_eq!(program(0), [Problem::Program { address: 0 }]);
    assert_eq!(program(64), [Problem::Program { address: 64 }]);
}
