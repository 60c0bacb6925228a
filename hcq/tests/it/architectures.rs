//! Every SM version that is supported, as the software ga10b has them: this crate's own kernel, code of an
//! earlier minor version, and what an SM holds.

use std::time::Duration;

use ga10b_sim::{Sim, SimConfig};
use hcq::{Args, Device, DeviceOptions, Images, LaunchConfig};
use sass::Arch;

const DEADLINE: Duration = Duration::from_secs(60);
/// SM versions and the warps that an SM holds (CUDA C++ Programming Guide, technical specifications per
/// compute capability).
const SMS: [(Arch, u32); 5] =
    [(Arch::Sm80, 64), (Arch::Sm86, 48), (Arch::Sm87, 48), (Arch::Sm89, 48), (Arch::Sm90, 64)];

/// A device whose copies between buffers are done by the kernel.
fn device(arch: Arch) -> (std::sync::Arc<Sim>, Device) {
    let sim = Sim::new(SimConfig { arch, ..SimConfig::default() });
    let mut options = DeviceOptions::default();
    options.kernel_copies_from = Some(1);
    let device = hcq::sim::open(sim.clone(), options).unwrap();
    (sim, device)
}

/// The code of the examples.
const EXAMPLES: Images<'_> = hcq::images!("../../examples/kernels/examples", sm_80, sm_87, sm_90);

#[test]
fn the_kernel_that_copies_runs_on_every_sm() {
    // Not whole tiles, and neither end on a whole vector.
    const LEN: usize = 100_003;
    for (arch, _) in SMS {
        let (sim, device) = device(arch);
        let bytes: Vec<u8> = (0..LEN as u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
        let (from, to) = (device.alloc(2 * LEN as u64).unwrap(), device.alloc(2 * LEN as u64).unwrap());
        from.write(5, &bytes).unwrap();
        let launches = sim.counters().sm.launches;
        let mut queue = device.queue().unwrap();
        // Equal modulo 16, and not.
        for (done, at) in [(1, 21), (2, 22)] {
            to.write(0, &vec![0xa5; 2 * LEN]).unwrap();
            queue.copy(&from, 5, &to, at as u64, LEN as u64).unwrap();
            queue.submit().unwrap().wait(DEADLINE).unwrap();
            assert_eq!(sim.counters().sm.launches, launches + done, "{arch}: an engine has copied");
            let mut copied = vec![0; 2 * LEN];
            to.read(0, &mut copied).unwrap();
            assert!(copied[at..at + LEN] == bytes, "{arch}");
            assert!(copied[..at].iter().chain(&copied[at + LEN..]).all(|byte| *byte == 0xa5), "{arch}");
        }
        assert!(sim.violations().is_empty(), "{arch}: {:?}", sim.violations());
    }
}

#[test]
fn code_of_an_earlier_minor_version_runs_and_fills_the_sm_that_it_runs_on() {
    for (arch, warps) in SMS {
        let (_, device) = device(arch);
        assert_eq!(device.info().sm_number(), arch.sm());
        let kernel = device.load(EXAMPLES).unwrap().kernel("vecadd").unwrap();
        // Not what an SM holds of the version that the code was compiled for.
        let occupancy = kernel.occupancy(256, 0).unwrap();
        assert_eq!((occupancy.max_warps_per_sm, occupancy.warps_per_sm), (warps, warps), "{arch}");

        let [a, b, c] = [1.0_f32, 2.0, 0.0].map(|value| {
            let buffer = device.alloc(4000).unwrap();
            buffer.write_slice(0, &[value; 1000]).unwrap();
            buffer
        });
        let mut queue = device.queue().unwrap();
        let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(1000);
        // SAFETY: each buffer holds 1000 floats.
        unsafe { queue.launch(&kernel, LaunchConfig::new(4, 256), &args) }.unwrap();
        queue.submit().unwrap().wait(DEADLINE).unwrap();
        assert!(c.read_vec::<f32>(0, 1000).unwrap() == [3.0; 1000], "{arch}");
    }
}

#[test]
fn code_of_a_later_version_is_refused_by_name() {
    let (_, device) = device(Arch::Sm80);
    let refused = device.load(include_bytes!("../data/01_vecadd.sm_87.cubin")).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert_eq!(cause, "the code is for sm_87, the device is sm_80");
    let images = hcq::images!("../../examples/kernels/examples", sm_87, sm_90);
    let refused = device.load(images).unwrap_err();
    let cause = std::error::Error::source(&refused).unwrap().to_string();
    assert_eq!(cause, "no image runs on the device, an sm_80: there are sm_87, sm_90");
    assert!(refused.hint().is_some_and(|hint| hint.contains("nvcc -cubin -arch=sm_NN")));
}
