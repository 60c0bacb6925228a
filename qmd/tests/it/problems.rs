//! Each complaint about a QMD, provoked by one raw value in a QMD that is otherwise right.

use qmd::{
    CarveOutField, Effect, Error, Launch, Membar, Problem, Qmd, Release, SkedCheck, Target, Version, field,
    v03, v04,
};

fn valid(target: Target) -> Qmd {
    Launch::new(target).program(0x1000, 0).block([128, 1, 1]).registers(32).build().expect("valid")
}

fn broken(target: Target, change: &[(&str, u32)]) -> Vec<Problem> {
    let mut qmd = valid(target);
    for (name, value) in change {
        let field = field(qmd.version(), name).expect("a field of this version");
        qmd.set(field, *value).expect("fits");
    }
    qmd.problems()
}

#[test]
fn every_check_of_the_scheduler_that_bytes_alone_can_fail_is_named() {
    use SkedCheck as Check;
    let cases: &[(&[(&str, u32)], Check)] = &[
        (&[("PROGRAM_ADDRESS_LOWER", 0x1040)], Check::ProgramOffset),
        (&[("CTA_THREAD_DIMENSION1", 0)], Check::CtaThreadDimensionZero),
        (&[("CTA_THREAD_DIMENSION0", 1025)], Check::TotalThreads),
        (&[("CTA_THREAD_DIMENSION2", 64)], Check::TotalThreads),
        (&[("REGISTER_COUNT_V", 0)], Check::RegisterCount),
        (&[("REGISTER_COUNT_V", 256)], Check::RegisterCount),
        (&[("CTA_THREAD_DIMENSION0", 1024), ("REGISTER_COUNT_V", 65)], Check::CtaRegisterConsumption),
        (&[("SHARED_MEMORY_SIZE", 100)], Check::SharedMemorySize),
        (&[("SHARED_MEMORY_SIZE", 165 * 1024)], Check::SharedMemorySize),
        (
            &[("SHARED_MEMORY_SIZE", 16 * 1024), ("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 3)],
            Check::L1ConfigTooSmall,
        ),
        (&[("MIN_SM_CONFIG_SHARED_MEM_SIZE", 0)], Check::L1ConfigTooSmall),
        (&[("SHADER_LOCAL_MEMORY_LOW_SIZE", 8)], Check::LocalMemoryLowSize),
        (&[("SHADER_LOCAL_MEMORY_HIGH_SIZE", 8)], Check::LocalMemoryHighSize),
        (
            &[("SHADER_LOCAL_MEMORY_HIGH_SIZE", 0xff_fff0), ("SHADER_LOCAL_MEMORY_LOW_SIZE", 0x20)],
            Check::LocalMemoryTotalSize,
        ),
        (&[("CONSTANT_BUFFER_VALID", 1)], Check::ConstantBufferSize),
        (&[("CONSTANT_BUFFER_VALID", 1), ("CONSTANT_BUFFER_SIZE_SHIFTED4", 4097)], Check::ConstantBufferSize),
        (&[("CTA_RASTER_WIDTH_RESUME", 1)], Check::CtaResume),
    ];
    for (change, check) in cases {
        let problems = broken(Target::Sm87, change);
        assert_eq!(problems.len(), 1, "{change:?}: {problems:?}");
        assert_eq!(problems[0].check(), Some(*check), "{change:?}: {}", problems[0]);
        assert_eq!(problems[0].effect(), Effect::Refused(*check));
    }
}

#[test]
fn a_carve_out_the_part_lacks_hangs() {
    // 100 KiB is one of sm_87's, 96 KiB of no part; 228 KiB of sm_90 alone.
    assert_eq!(broken(Target::Sm87, &[("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 26)]), []);
    let no_part = broken(Target::Sm87, &[("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 25)]);
    assert_eq!(no_part.iter().map(Problem::effect).collect::<Vec<_>>(), [Effect::Hangs]);
    assert_eq!(
        no_part[0].to_string(),
        "the target shared-memory carve-out is 96 KiB (code 25), which sm_87 does not have"
    );
    let other_part = broken(Target::Sm87, &[("MAX_SM_CONFIG_SHARED_MEM_SIZE", 58)]);
    assert_eq!(other_part.iter().map(Problem::effect).collect::<Vec<_>>(), [Effect::Hangs]);
    assert_eq!(broken(Target::Sm90, &[("MAX_SM_CONFIG_SHARED_MEM_SIZE", 58)]), []);
    let order = broken(Target::Sm87, &[("MIN_SM_CONFIG_SHARED_MEM_SIZE", 17)]);
    assert_eq!(order.iter().map(Problem::effect).collect::<Vec<_>>(), [Effect::Hangs]);
}

#[test]
fn values_without_a_meaning_are_reported() {
    let found = |target, change: &[(&str, u32)]| {
        broken(target, change).iter().map(Problem::to_string).collect::<Vec<_>>()
    };
    assert_eq!(
        found(Target::Sm87, &[("CWD_MEMBAR_TYPE", 2)]),
        ["CWD_MEMBAR_TYPE is 2, which has no meaning"]
    );
    assert_eq!(
        found(Target::Sm87, &[("RELEASE1_ENABLE", 1), ("RELEASE1_STRUCTURE_SIZE", 3)]),
        ["RELEASE1_STRUCTURE_SIZE is 3, which has no meaning"]
    );
    assert_eq!(
        found(Target::Sm87, &[("DEPENDENT_QMD1_ENABLE", 1)]),
        ["dependent 1 is enabled, but QMD v3.0 names no pointer for it"]
    );
    assert_eq!(found(Target::Sm87, &[("DEPENDENT_QMD0_ENABLE", 1)]), ["dependent 0 points to 0x0"]);
    assert_eq!(
        found(Target::Sm90, &[("QMD_TYPE", 7), ("QMD_MINOR_VERSION", 1)]),
        ["the version fields say 4.1", "QMD_TYPE is 7, which has no meaning"]
    );
    assert_eq!(
        found(Target::Sm90, &[("RELEASE_ENABLE", 1), ("RELEASE_SEMAPHORE0_ADDR_LOWER", 8)]),
        ["release 0 writes 16 bytes at 0x8, which is not a multiple of that"]
    );
    assert_eq!(found(Target::Sm87, &[("CTA_RASTER_DEPTH", 0)]), ["grid z is 0, not 1 to 65535"]);
    assert_eq!(found(Target::Sm87, &[("BARRIER_COUNT", 17)]), ["17 barriers; 16 is the most"]);
}

#[test]
fn a_descriptor_is_measured_by_the_part_it_names() {
    let target = [("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 34), ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 42)];
    // Carve-outs of 132 and 164 KiB, which sm_87 has and sm_86 has not.
    assert_eq!(broken(Target::Sm87, &target), []);
    let target = Target::Sm86;
    let on = |field, kib, code| Problem::CarveOut { field, kib, code, target };
    assert_eq!(
        broken(target, &[("TARGET_SM_CONFIG_SHARED_MEM_SIZE", 34), ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 42)]),
        [on(CarveOutField::Target, 132, 34), on(CarveOutField::Max, 164, 42)]
    );
    // The code of a part whose descriptors have another layout names none: v3.0 is measured as ga10b's.
    let other = ("SASS_VERSION", u32::from(Target::Sm90.sass_version()));
    assert_eq!(broken(Target::Sm87, &[other, ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 42)]), []);
    let [Problem::CarveOut { target: Target::Sm87, kib: 228, .. }] =
        broken(Target::Sm87, &[other, ("MAX_SM_CONFIG_SHARED_MEM_SIZE", 58)])[..]
    else {
        panic!("228 KiB are sm_90's")
    };
}

#[test]
fn a_queue_is_not_measured_as_a_grid() {
    let mut queue = Qmd::new(Version::V03);
    assert!(!queue.problems().is_empty());
    queue.set(v03::IS_QUEUE, 1).expect("fits");
    assert!(queue.is_queue());
    assert_eq!(queue.problems(), []);
    let mut queue = Qmd::new(Version::V04);
    assert!(!queue.is_queue(), "some drivers leave the type of a grid 0");
    queue.set(v04::CIRCULAR_QUEUE_SIZE, 64).expect("fits");
    assert!(queue.is_queue());
}

#[test]
fn what_is_no_qmd_is_an_error() {
    assert_eq!(
        Qmd::from_bytes(&[0; 255]),
        Err(Error::Truncated { version: Version::V03, len: 255, need: 256 })
    );
    assert_eq!(Qmd::from_bytes(&[0; 384]), Err(Error::UnknownVersion { major: 0, minor: 0 }));
    let hopper = valid(Target::Sm90);
    assert_eq!(
        Qmd::from_bytes(&hopper.as_bytes()[..256]),
        Err(Error::Truncated { version: Version::V04, len: 256, need: 384 })
    );
    assert_eq!(hopper.get(v03::REGISTER_COUNT_V), None);
    assert!(hopper.clone().set(v03::REGISTER_COUNT_V, 1).is_err());
}

#[test]
fn a_link_can_be_set_cut_and_patched_after_building() {
    let mut qmd = valid(Target::Sm90);
    let before = qmd.clone();
    qmd.set_release(2, &Release::new_u64(0x2000, 5)).expect("valid");
    qmd.set_release_payload(2, 1 << 40).expect("a slot");
    assert_eq!(qmd.release(2).map(|r| r.payload), Some(1 << 40));
    qmd.clear_release(2).expect("a slot");
    assert_eq!(qmd.release(2), None);
    qmd.set_dependent(1, &qmd::Dependent::schedule(0x4000)).expect("v4 has two");
    assert_eq!(qmd.dependent(1).map(|d| d.address), Some(0x4000));
    qmd.clear_dependent(1).expect("a slot");
    assert_eq!(qmd.dependent(1), None);
    qmd.set_membar(Membar::Device);
    qmd.set_task_chasing(true);
    assert_eq!((qmd.membar(), qmd.get(v04::CWD_MEMBAR_TASK_CHASING_ENABLE)), (Some(Membar::Device), Some(1)));
    qmd.set_dependence_counter(3);
    assert_eq!(qmd.dependence_counter(), 3);
    qmd.set_membar(before.membar().expect("defined"));
    qmd.set_task_chasing(false);
    qmd.set_grid([5, 6, 7]).expect("valid");
    assert_eq!((qmd.grid(), before.grid()), ([5, 6, 7], [1, 1, 1]));
}

#[test]
fn the_exception_register_names_its_checks() {
    let window: Vec<_> = SkedCheck::from_esr(0xc100_0000).collect();
    assert_eq!(window, [SkedCheck::MemoryWindowOverlap]);
    assert_eq!(window[0].to_string(), "SKEDCHECK17_MEMORY_WINDOW_OVERLAP");
    for (bit, check) in SkedCheck::ALL.iter().enumerate() {
        assert_eq!(usize::from(check.bit()), bit);
        assert_eq!(SkedCheck::from_bit(check.bit()), Some(*check));
    }
    assert_eq!(SkedCheck::from_bit(30), None);
}

#[test]
fn no_launch_is_built_for_a_part_that_is_decoded_alone() {
    let launch = |target| Launch::new(target).program(0x1000, 0).registers(16).build();
    assert_eq!(launch(Target::Sm88).unwrap_err(), Error::NotRun { target: Target::Sm88 });
    assert!(launch(Target::Sm86).is_ok());
}
