//! Arguments are compared with the parameters one by one.

use hcq::{Args, Device, Error, LaunchConfig, LaunchError, Selector};

const VECADD: &[u8] = include_bytes!("../data/01_vecadd.sm_87.cubin");

/// What the launch of `vadd_f32(u64, u64, u64, u32)` with `args` answers, by a queue and by a graph.
fn launched(device: &Device, args: &Args) -> [Result<(), Error>; 2] {
    let kernel = device.load(VECADD).unwrap().kernel("vadd_f32").unwrap();
    let (mut queue, mut graph) = (device.queue().unwrap(), device.graph());
    let shape = LaunchConfig::new(1, 32);
    // SAFETY: what is recorded is not handed over.
    unsafe { [queue.launch(&kernel, shape, args), graph.launch(&kernel, shape, args).map(drop)] }
}

#[test]
fn a_kernel_lists_its_parameters() {
    let device = Device::open(Selector::Sim).unwrap();
    let kernel = device.load(VECADD).unwrap().kernel("vadd_f32").unwrap();
    let listed: Vec<(u16, u32)> = kernel.parameters().iter().map(|p| (p.offset, p.size_bytes)).collect();
    assert_eq!(listed, [(0, 8), (8, 8), (16, 8), (24, 4)]);
    assert_eq!(kernel.param_bytes(), 28);
}

#[test]
fn each_argument_has_the_size_and_the_place_of_its_parameter() {
    let device = Device::open(Selector::Sim).unwrap();
    let refused = |args: Args, wanted: &dyn Fn(&LaunchError) -> bool, says: &str| {
        for answer in launched(&device, &args) {
            let Err(Error::Launch(error)) = answer else { panic!("{answer:?}") };
            assert!(wanted(&error) && error.to_string().contains(says), "{error}");
        }
    };
    // As many bytes as the kernel takes, the last two in each other's place.
    refused(
        Args::new().u64(1).u64(2).u32(4).bytes(&[0; 8], 4),
        &|error| matches!(error, LaunchError::ArgumentWidth { index: 2, expected: 8, given: 4, .. }),
        "argument 2 of vadd_f32 has 8 bytes, one of 4 was given",
    );
    // A count of 64 bits where the kernel takes one of 32.
    refused(
        Args::new().u64(1).u64(2).u64(3).u64(4),
        &|error| matches!(error, LaunchError::ArgumentWidth { index: 3, expected: 4, given: 8, .. }),
        "argument 3 of vadd_f32 has 4 bytes, one of 8 was given",
    );
    refused(
        Args::new().u64(1).u64(2).u64(3),
        &|error| matches!(error, LaunchError::ArgumentCount { given: 3, .. }),
        "vadd_f32 takes 4 arguments, of 8, 8, 8, 4 bytes; 3 were given",
    );
    refused(
        Args::new().u64(1).u64(2).u64(3).bytes(&[0; 4], 16),
        &|error| matches!(error, LaunchError::ArgumentPlace { index: 3, expected: 24, given: 32, .. }),
        "argument 3 of vadd_f32 lies at byte 24 of the parameters, the one that was given at byte 32",
    );
    // A struct of all but one of its bytes.
    refused(
        Args::new().bytes(&[0; 27], 8),
        &|error| matches!(error, LaunchError::ArgumentCount { given: 1, .. }),
        "takes 4 arguments",
    );
}

#[test]
fn one_argument_may_be_all_parameters() {
    let device = Device::open(Selector::Sim).unwrap();
    assert!(launched(&device, &Args::new().bytes(&[0; 28], 8)).iter().all(Result::is_ok));
    assert!(launched(&device, &Args::new().u64(1).u64(2).u64(3).u32(4)).iter().all(Result::is_ok));
}

#[test]
fn times_of_two_devices_are_not_compared() {
    let times = |device: &Device| {
        let mut queue = device.queue().unwrap();
        let (begin, end) = (queue.timestamp().unwrap(), queue.timestamp().unwrap());
        assert_eq!(end.since(&begin).unwrap(), None, "neither is taken");
        queue.submit().unwrap().wait(std::time::Duration::from_secs(60)).unwrap();
        (begin, end)
    };
    let (one, other) = [(); 2].map(|()| Device::open(Selector::Sim).unwrap()).into();
    let ((begin, end), (foreign, _)) = (times(&one), times(&other));
    let between = end.since(&begin).unwrap().unwrap();
    assert_eq!(i64::try_from(end.ns().unwrap() - begin.ns().unwrap()).unwrap(), between);
    assert_eq!(begin.since(&end).unwrap(), Some(-between));
    // Of another queue, on the same clock.
    assert!(times(&one).0.since(&begin).unwrap().is_some_and(|ns| ns >= between));
    for (begin, end) in [(&foreign, &end), (&begin, &foreign)] {
        assert!(matches!(end.since(begin), Err(Error::ForeignDevice { what: "timestamp" })));
    }
}
