//! Properties of every field and every launch.

use proptest::prelude::*;
use qmd::{
    ConstantBuffer, ConstantPrefetch, Dependent, DependentAction, Error, Field, Invalidate, Launch, Membar,
    Qmd, ReductionOp, Release, SamplerIndex, SharedMemory, Structure, Target, Trap, Version, fields,
};

fn version() -> impl Strategy<Value = Version> {
    prop_oneof![Just(Version::V03), Just(Version::V04)]
}

fn any_qmd() -> impl Strategy<Value = Qmd> {
    (version(), prop::collection::vec(any::<u8>(), 384))
        .prop_map(|(version, bytes)| Qmd::from_bytes_as(version, &bytes).expect("long enough"))
}

fn element(version: Version) -> impl Strategy<Value = Field> {
    prop::sample::select(fields(version))
        .prop_flat_map(|f| (0..f.count()).prop_map(move |i| f.element(i).expect("below the count")))
}

fn target() -> impl Strategy<Value = Target> {
    prop::sample::select(vec![Target::Sm80, Target::Sm86, Target::Sm87, Target::Sm89, Target::Sm90])
}

/// An address of at most `bits` bits and a multiple of `align`, often close to the upper end.
fn address(bits: u32, align: u64) -> impl Strategy<Value = u64> {
    let top = 1u64 << bits;
    prop_oneof![0..top, top - 0x1000..top].prop_map(move |a| a / align * align)
}

fn bit(bytes: &[u8], bit: usize) -> bool {
    bytes[bit / 8] >> (bit % 8) & 1 != 0
}

fn release() -> impl Strategy<Value = Release> {
    let reduction = prop::option::of((prop::sample::select(ReductionOp::ALL.to_vec()), any::<bool>()));
    let trap =
        prop::sample::select(vec![Trap::None, Trap::Unconditional, Trap::Conditional, Trap::ConditionalExt]);
    (address(40, 16), any::<u64>(), any::<bool>(), any::<bool>(), any::<bool>(), reduction, trap)
        .prop_filter_map(
            "reduced on 64 bits",
            |(address, payload, wide, timestamp, membar, reduction, trap)| {
                let mut release = match wide {
                    true => Release::new_u64(address, payload),
                    false => Release::new_u32(address, payload as u32),
                };
                if timestamp {
                    release = release.with_timestamp();
                }
                if membar {
                    release = release.with_membar();
                }
                if let Some((op, signed)) = reduction {
                    let wrapping = matches!(op, ReductionOp::Inc | ReductionOp::Dec);
                    if wide && (wrapping || op == ReductionOp::Add && signed) {
                        return None;
                    }
                    release = release.reducing(op, signed);
                }
                Some(release.trapping(trap))
            },
        )
}

fn dependent() -> impl Strategy<Value = Dependent> {
    let action = prop::sample::select(vec![
        DependentAction::IncrementPut,
        DependentAction::Schedule,
        DependentAction::InvalidateCopySchedule,
        DependentAction::DecrementDependence,
    ]);
    (address(40, 256), action, any::<bool>()).prop_map(|(address, action, prefetch)| Dependent {
        address: address.max(256),
        action,
        prefetch,
    })
}

fn constant_buffer() -> impl Strategy<Value = ConstantBuffer> {
    let prefetch = prop::sample::select(vec![ConstantPrefetch::None, ConstantPrefetch::Post]);
    (address(49, 64), 1u32..=65536, any::<bool>(), prefetch).prop_map(
        |(address, len, invalidate, prefetch)| ConstantBuffer { address, len, invalidate, prefetch },
    )
}

/// All settings of a launch, kept so that they can be compared with those read back.
#[derive(Clone, Debug)]
struct Wanted {
    target: Target,
    program: u64,
    code_bytes: u64,
    grid: [u32; 3],
    block: [u32; 3],
    registers: u32,
    barriers: u32,
    shared: SharedMemory,
    carve_out: u32,
    local: [u32; 2],
    banks: [Option<ConstantBuffer>; 8],
    releases: [Option<Release>; 3],
    dependent: Option<Dependent>,
    caches: Invalidate,
    membar: Membar,
    sampler: SamplerIndex,
    limit_calls: bool,
    sequential: bool,
    group: u32,
    counter: u16,
    debug_id: u64,
}

fn block() -> impl Strategy<Value = [u32; 3]> {
    (1u32..=1024, 1u32..=1024, 1u32..=64)
        .prop_map(|(x, y, z)| [x, (1024 / x).clamp(1, y), (1024 / (x * (1024 / x).clamp(1, y))).clamp(1, z)])
}

prop_compose! {
    fn wanted()(
        target in target(),
        program in address(49, 128).prop_map(|a| a.max(128)),
        code_bytes in 0u64..1 << 20,
        grid in (1u32..=0x7fff_ffff, 1u32..=65535, 1u32..=65535),
        block in block(),
        registers in 1u32..=255,
        barriers in 0u32..=16,
        shared in (0u32..49152, 0u32..49152, any::<bool>()),
        carve_out in 0u32..=100 * 1024,
        local in (0u32..0x70_0000, 0u32..0x70_0000),
        banks in prop::array::uniform8(prop::option::of(constant_buffer())),
        releases in prop::array::uniform3(prop::option::of(release())),
        dependent in prop::option::of(dependent()),
        flags in (any::<u8>(), any::<bool>(), any::<bool>(), any::<bool>()),
        membar in prop::sample::select(vec![Membar::None, Membar::System, Membar::Device]),
        group in 0u32..64,
        counter in any::<u16>(),
        debug_id in any::<u64>(),
    ) -> Wanted {
        let (caches, sampler, limit_calls, sequential) = flags;
        let threads: u32 = block.iter().product();
        let most = (1..=registers).rev().find(|r| target.warps_by_registers(*r) >= threads.div_ceil(128) * 4);
        Wanted {
            target, program, code_bytes, grid: [grid.0, grid.1, grid.2], block,
            registers: most.unwrap_or(1), barriers,
            shared: SharedMemory { static_bytes: shared.0, dynamic_bytes: shared.1, reserved: shared.2 },
            carve_out, local: [local.0, local.1], banks, releases, dependent,
            caches: Invalidate::from_bits_truncate(caches), membar,
            sampler: if sampler { SamplerIndex::ViaHeaderIndex } else { SamplerIndex::Independently },
            limit_calls, sequential, group, counter, debug_id,
        }
    }
}

impl Wanted {
    fn launch(&self) -> Launch {
        let mut launch = Launch::new(self.target)
            .program(self.program, self.code_bytes)
            .grid(self.grid)
            .block(self.block)
            .registers(self.registers)
            .barriers(self.barriers)
            .shared(self.shared)
            .carve_out(self.carve_out)
            .local(self.local[0], self.local[1])
            .invalidate(self.caches)
            .membar(self.membar)
            .sampler_index(self.sampler)
            .limit_calls(self.limit_calls)
            .sequential(self.sequential)
            .group(self.group)
            .dependence_counter(self.counter)
            .debug_id(self.debug_id);
        for (i, bank) in self.banks.iter().enumerate() {
            launch = bank.iter().fold(launch, |l, bank| l.constant_buffer(i, *bank));
        }
        for (i, release) in self.releases.iter().enumerate() {
            launch = release.iter().fold(launch, |l, release| l.release(i, *release));
        }
        self.dependent.iter().fold(launch, |l, dependent| l.dependent(0, *dependent))
    }
}

proptest! {
    #[test]
    fn bytes_survive_decoding_and_encoding(qmd in any_qmd()) {
        let again = Qmd::from_bytes_as(qmd.version(), qmd.as_bytes()).expect("long enough");
        prop_assert_eq!(again.as_bytes(), qmd.as_bytes());
        let mut rebuilt = Qmd::from_bytes_as(qmd.version(), &[0; 384]).expect("long enough");
        for entry in qmd.entries() {
            rebuilt.set(entry.field, entry.value).expect("read from a field of that width");
        }
        let unnamed: Vec<_> = qmd.unnamed().collect();
        for (i, (a, b)) in qmd.words().zip(rebuilt.words()).enumerate() {
            let bits = unnamed.iter().find(|u| u.word == i).map_or(0, |u| u.bits);
            prop_assert_eq!(a, b | bits, "word {}", i);
        }
    }

    #[test]
    fn setting_a_field_changes_its_bits_alone(
        (qmd, field, value) in any_qmd().prop_flat_map(|q| (element(q.version()), Just(q), any::<u32>()))
            .prop_map(|(field, qmd, value)| (qmd, field, value & field.max()))
    ) {
        let mut changed = qmd.clone();
        changed.set(field, value).expect("fits");
        prop_assert_eq!(changed.get(field), Some(value));
        for i in 0..qmd.version().size() * 8 {
            let inside = (usize::from(field.lo())..=usize::from(field.hi())).contains(&i);
            let expected = match inside {
                true => value >> (i - usize::from(field.lo())) & 1 != 0,
                false => bit(qmd.as_bytes(), i),
            };
            prop_assert_eq!(bit(changed.as_bytes(), i), expected, "bit {}", i);
        }
        if field.width() < 32 {
            prop_assert!(changed.set(field, field.max() + 1).is_err());
        }
    }

    #[test]
    fn reading_any_bytes_never_panics(qmd in any_qmd()) {
        let _ = (qmd.problems(), qmd.to_string(), format!("{qmd:#}{qmd:?}"), qmd.carve_outs(), qmd.target());
        let _ = (Qmd::from_bytes(qmd.as_bytes()), qmd.invalidates(), qmd.membar(), qmd.program_prefetch());
        for i in 0..10 {
            let _ = (qmd.constant_buffer(i), qmd.release(i), qmd.dependent(i));
        }
    }

    #[test]
    fn what_is_built_reads_back(w in wanted()) {
        let qmd = w.launch().build().expect("all values are valid");
        prop_assert_eq!(&Qmd::from_bytes(qmd.as_bytes()).expect("its own bytes"), &qmd);
        prop_assert_eq!(qmd.problems(), vec![]);
        prop_assert_eq!(qmd.unnamed().count(), 0);
        prop_assert_eq!(qmd.target(), Some(w.target));
        prop_assert_eq!(qmd.program_address(), w.program);
        if w.code_bytes >= 256 {
            let bytes = (w.code_bytes & !255).min(0x1ff00) as u32;
            prop_assert_eq!(qmd.program_prefetch(), Some((w.program & !255, bytes)));
        } else {
            prop_assert_eq!(qmd.program_prefetch(), None);
        }
        prop_assert_eq!(qmd.grid(), w.grid);
        prop_assert_eq!(qmd.block(), w.block);
        prop_assert_eq!(qmd.registers(), w.registers);
        prop_assert_eq!(qmd.barriers(), w.barriers);
        prop_assert_eq!(u64::from(qmd.shared_bytes()), w.shared.bytes_on(w.target));
        let carve_outs = qmd.carve_outs();
        let (min, target) = (carve_outs.min_kib.expect("set"), carve_outs.target_kib.expect("set"));
        prop_assert!(min * 1024 >= qmd.shared_bytes() && target >= min);
        prop_assert!(target * 1024 >= w.carve_out && carve_outs.max_kib.expect("set") >= target);
        prop_assert_eq!([qmd.local_low(), qmd.local_high()], w.local.map(|b| b.next_multiple_of(16)));
        for (i, bank) in w.banks.iter().enumerate() {
            let rounded = bank.map(|b| ConstantBuffer { len: b.len.next_multiple_of(16), ..b });
            prop_assert_eq!(qmd.constant_buffer(i), rounded);
        }
        for (i, release) in w.releases.iter().enumerate() {
            prop_assert_eq!(qmd.release(i), *release);
        }
        prop_assert_eq!(qmd.dependent(0), w.dependent);
        prop_assert_eq!(qmd.invalidates(), w.caches);
        prop_assert_eq!(qmd.membar(), Some(w.membar));
        prop_assert_eq!(qmd.sampler_index(), w.sampler);
        prop_assert_eq!(qmd.limits_calls(), w.limit_calls);
        prop_assert_eq!(qmd.is_sequential(), w.sequential);
        prop_assert_eq!(qmd.group(), w.group);
        prop_assert_eq!(qmd.dependence_counter(), w.counter);
        prop_assert_eq!(qmd.debug_id(), w.debug_id);
        prop_assert!(!qmd.is_queue());
    }

    #[test]
    fn a_launch_with_a_value_out_of_range_is_refused(w in wanted(), fault in 0usize..14, by in 1u64..64) {
        let by32 = by as u32;
        let v3 = w.target.version() == Version::V03;
        let launch = w.launch();
        let bank = |address, len| ConstantBuffer::new(address, len);
        let (launch, what): (Launch, fn(&Error) -> bool) = match fault {
            0 => (launch.program(w.program + by, 0), |e| matches!(e, Error::Misaligned { align: 128, .. })),
            1 => (launch.program(1 << 57, 0), |e| matches!(e, Error::OutOfReach { .. })),
            2 => (launch.grid([w.grid[0], 65535 + by32, 1]), |e| matches!(e, Error::Grid { limit: 65535, .. })),
            3 => (launch.grid([0x7fff_ffff + by32, 1, 1]), |e| matches!(e, Error::Grid { limit: 0x7fff_ffff, .. })),
            4 => (launch.grid([1, 1, 0]), |e| matches!(e, Error::Grid { value: 0, .. })),
            5 => (launch.block([1024, 1 + by32, 1]), |e| matches!(e, Error::Threads { .. })),
            6 => (launch.block([0, 1, 1]), |e| matches!(e, Error::Block { value: 0, .. })),
            7 => (launch.registers(255 + by32), |e| matches!(e, Error::Registers { .. })),
            8 => (launch.barriers(16 + by32), |e| matches!(e, Error::Barriers { .. })),
            9 => (launch.shared(SharedMemory::new(228 * 1024, by32)), |e| matches!(e, Error::SharedMemory { .. })),
            10 => (launch.constant_buffer(1, bank(0x1000 + by % 64 / 2 * 2 + 1, 16)), |e| {
                matches!(e, Error::Misaligned { align: 64, .. })
            }),
            11 => (launch.constant_buffer(2, bank(0x1000, 65536 + by32)), |e| {
                matches!(e, Error::ConstantBufferSize { index: 2, .. })
            }),
            12 => (launch.release(0, Release::new_u64(if v3 { 1 << 40 } else { 1 << 57 }, 1)), |e| {
                matches!(e, Error::OutOfReach { bits: 40 | 57, .. })
            }),
            _ => (launch.dependent(if v3 { 1 } else { 2 }, Dependent::schedule(0x100)), |e| {
                matches!(e, Error::Slot { what: "dependent", .. })
            }),
        };
        let error = launch.build().expect_err("out of range");
        prop_assert!(what(&error), "{error}");
        prop_assert!(!error.to_string().ends_with('.'));
    }

    #[test]
    fn the_alignment_of_a_release_is_its_size(address in 0u64..1 << 39, which in 0usize..3, v in version()) {
        let release = [
            Release::new_u32(address, 1),
            Release::new_u64(address, 1),
            Release::new_u64(address, 1).with_timestamp(),
        ][which];
        let align = [4, 8, 16][which];
        prop_assert_eq!(release.structure.bytes(), align);
        prop_assert_eq!(release.timestamp(), release.structure == Structure::FourWords);
        let result = Qmd::new(v).set_release(0, &release);
        prop_assert_eq!(result.is_ok(), address % align == 0);
    }
}
