//! Drivers of other releases: requests that they lack, characteristics of another size.

use std::collections::BTreeSet;
use std::sync::Arc;

use ga10b_sim::{SimConfig, WhatIf};
use hcq::{Device, DeviceOptions, DriverError, Error, OpenError, Preemption, Subcontext};
use zerocopy::FromBytes;

use super::spy::{Said, Spy};
use super::{MODE, with_profile, work};

const CREATE: &str = "NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT";

/// Requests that hcq works without, and its message then; empty where the program is as before.
const OPTIONAL: [(&str, &str); 7] = [
    (CREATE, "channels run in VEID 0"),
    ("NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX", "context switches of 3 s"),
    ("NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER", "an error is noticed when the channel is given up"),
    ("NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT", "given up without a notifier is not noticed"),
    // The size of memory is known from elsewhere; what is not unmapped goes with the address space, what is not
    // freed with the process.
    ("NVMAP_IOC_QUERY_HEAP_PARAMS", ""),
    ("NVGPU_AS_IOCTL_UNMAP_BUFFER", ""),
    (MODE, "run to their end"),
];

/// The device that a refused request leaves, and its messages.
fn refused(request: &'static str, options: DeviceOptions) -> (Arc<Spy>, Result<Device, Error>, String) {
    let spy = Arc::new(Spy { refused: Some(request), ..Spy::on(SimConfig::default()) });
    let (device, said) = Said::by(|| {
        let device = hcq::sys::open_nvgpu(spy.clone(), options)?;
        work(&device)?;
        drop(device.queue()?);
        Ok(device)
    });
    (spy, device, said)
}

#[test]
fn a_request_that_work_can_do_without_is_done_without_and_another_is_named_with_the_release_that_has_it() {
    let everything = || with_profile(|profile| profile.preemption = Some(Preemption::Instructions));
    let clean = Spy::new(0);
    let device = hcq::sys::open_nvgpu(clean.clone(), everything()).unwrap();
    work(&device).unwrap();
    drop(device);
    let sent: BTreeSet<String> = clean.calls().into_iter().filter(|call| call.starts_with("NV")).collect();
    for request in sent {
        let request = nvgpu_sys::REQUESTS.iter().find(|known| known.name == request).unwrap().name;
        let (spy, device, said) = refused(request, everything());
        match (OPTIONAL.into_iter().find(|(name, _)| *name == request), device) {
            // The state of a channel is not asked for where work ends soon.
            (Some(_), Ok(_)) if !spy.calls().iter().any(|call| call == request) => {}
            (Some((_, warning)), Ok(_)) => {
                assert!(said.contains(warning), "{request}: {said}");
                assert_eq!(
                    said.matches("WARN").count(),
                    usize::from(!warning.is_empty()),
                    "{request}: {said}"
                );
                assert!(warning.is_empty() || said.contains(request) && said.contains("ENOTTY"), "{said}");
                assert!(spy.sim.violations().is_empty(), "{request}: {:?}", spy.sim.violations());
            }
            (None, Err(error)) => {
                assert!(
                    matches!(&error, Error::Driver(DriverError::Ioctl { name, .. }) if *name == request),
                    "{request}: {error}"
                );
                assert!(error.hint().is_some_and(|hint| hint.contains("r36.2")), "{request}: {error:?}");
            }
            (_, device) => panic!("{request}: {device:?}"),
        }
    }
}

#[test]
fn a_driver_without_subcontexts_is_an_error_only_where_the_profile_asks_for_one() {
    let (spy, device, _) = refused(CREATE, DeviceOptions::default());
    device.unwrap();
    assert_eq!(spy.words_of("NVGPU_TSG_IOCTL_BIND_CHANNEL_EX")[0][1], 0);
    let asked = with_profile(|profile| profile.subcontext = Some(Subcontext::Async));
    assert!(matches!(refused(CREATE, asked).1, Err(Error::Driver(DriverError::Ioctl { name: CREATE, .. }))));
    // Nobody asks for it: nothing is said.
    let none = with_profile(|profile| profile.subcontext = Some(Subcontext::Sync));
    let (spy, device, said) = refused(CREATE, none);
    device.unwrap();
    assert!(!spy.calls().iter().any(|call| call == CREATE) && !said.contains("WARN"), "{said}");
}

#[test]
fn a_driver_that_refuses_preemption_between_instructions_is_left_at_its_own_with_one_warning() {
    let asked = || with_profile(|profile| profile.preemption = Some(Preemption::Instructions));
    let facts = SimConfig { what_if: WhatIf::CILP_REFUSED.into(), ..SimConfig::default() };
    let not_offered = SimConfig { cilp: false, ..SimConfig::default() };
    for (config, asked_for) in [(facts, 1), (not_offered, 0)] {
        let spy = Arc::new(Spy::on(config));
        let (device, said) = Said::by(|| {
            let device = hcq::sys::open_nvgpu(spy.clone(), asked()).unwrap();
            work(&device).unwrap();
            drop(device.queue().unwrap());
            device
        });
        assert_eq!(device.preemption(), Preemption::WaitForIdle);
        assert_eq!(spy.words_of(MODE).len(), asked_for);
        assert_eq!(said.matches("run to their end").count(), 1, "{said}");
    }
}

#[test]
fn characteristics_of_any_size_are_read() {
    let open = |facts: WhatIf| {
        let config = SimConfig { what_if: facts.into(), ..SimConfig::default() };
        let device = hcq::sys::open_nvgpu(Arc::new(Spy::on(config)), DeviceOptions::default()).unwrap();
        work(&device).unwrap();
        format!("{:?}", device.info())
    };
    let all = open(WhatIf::empty());
    for facts in [WhatIf::CHARACTERISTICS_312, WhatIf::CHARACTERISTICS_400] {
        assert_eq!(open(facts), all, "{facts:?}");
    }
    // Only a beginning: the rest reads as zero, and is not taken for a number.
    let spy = Spy { characteristics: Some(|all| all[64..].fill(0)), ..Spy::on(SimConfig::default()) };
    let error = hcq::sys::open_nvgpu(Arc::new(spy), DeviceOptions::default()).unwrap_err();
    assert!(matches!(error, Error::Open(OpenError::UnsupportedSm { sm: 0 })), "{error}");
    let no_classes: fn(&mut [u8]) = |all| {
        nvgpu_sys::nvgpu_gpu_characteristics::mut_from_bytes(all).unwrap().compute_class = 0;
    };
    let spy = Spy { characteristics: Some(no_classes), ..Spy::on(SimConfig::default()) };
    let error = hcq::sys::open_nvgpu(Arc::new(spy), DeviceOptions::default()).unwrap_err();
    assert!(error.to_string().contains("GET_CHARACTERISTICS"), "{error}");
}

/// r35 has no `numa_domain_id`, with which r36 begins to differ: what follows it lies 8 bytes earlier, and reads
/// as something else (source: include/uapi/linux/nvgpu-ctrl.h, r35.6.0 and r36.2).
#[test]
fn the_driver_of_jetpack_5_is_refused_by_the_request_that_it_lacks() {
    let spy = Spy {
        refused: Some("NVGPU_GPU_IOCTL_OPEN_TSG"),
        characteristics: Some(|all| all.copy_within(24.., 16)),
        ..Spy::on(SimConfig::default())
    };
    let error = hcq::sys::open_nvgpu(Arc::new(spy), DeviceOptions::default()).unwrap_err();
    let text = format!("{error:?}");
    assert!(
        ["OPEN_TSG", "ENOTTY", "r35", "JetPack 5", "JetPack 6"].iter().all(|part| text.contains(part)),
        "{text}"
    );
}
