//! Machines whose SMs are of another version: the driver's report of them, the launch descriptors they take,
//! and code that was compiled for them.

use crate::machine::kernel::Fill;
use crate::machine::*;
use ga10b_sim::SimConfig;
use nvgpu_sys::*;
use qmd::{SharedMemory, SkedCheck, Target};
use sass::Arch;
use std::os::fd::AsFd;

/// An SM, its warps, and its shared memory in KiB (CUDA C++ programming guide, technical specifications per
/// compute capability).
const SMS: [(Arch, u32, u32); 4] =
    [(Arch::Sm80, 64, 164), (Arch::Sm86, 48, 100), (Arch::Sm87, 48, 164), (Arch::Sm89, 48, 100)];

fn machine(arch: Arch) -> Machine {
    Machine::with(SimConfig { arch, sm_count: 4, memory: 4 << 30, ..SimConfig::default() })
}

#[test]
fn the_driver_reports_the_version_and_the_warps() {
    for (arch, warps, _) in SMS {
        let machine = machine(arch);
        let mut all = nvgpu_gpu_characteristics::default();
        let mut args = nvgpu_gpu_get_characteristics {
            gpu_characteristics_buf_size: size_of_val(&all) as u64,
            gpu_characteristics_buf_addr: (&raw mut all) as u64,
        };
        assert_eq!(ask(&machine.sim, machine.ctrl.as_fd(), &mut args), Ok(0));
        let version = all.sm_arch_sm_version;
        assert_eq!((version >> 8, version & 0xff), (arch.sm() / 10, arch.sm() % 10), "{arch}");
        // The driver counts those of a TPC, which has two SMs.
        assert_eq!(all.sm_arch_warp_count, 2 * warps, "{arch}");
    }
}

#[test]
fn code_for_each_sm_runs_on_it() {
    for (arch, ..) in SMS {
        let machine = machine(arch);
        let mut channel = machine.channel();
        channel.start();
        let fill = Fill::load(&machine);
        let (out, signal) = (machine.buffer(4096), machine.buffer(4096));
        fill.launch(&mut channel, &fill.describe(out.va, 7, 4), signal.va, 1);
        channel.wait(signal.u64(0), 1);
        assert_eq!(out.words(0, 1024), (7..1031).collect::<Vec<u32>>(), "{arch}");
    }
}

#[test]
fn a_block_has_at_most_the_shared_memory_of_the_sm() {
    for (arch, _, kib) in SMS {
        let machine = machine(arch);
        let mut channel = machine.channel();
        channel.start();
        let mut fill = Fill::load(&machine);
        let (out, signal) = (machine.buffer(4096), machine.buffer(4096));
        // Less the KiB that CUDA keeps for itself.
        let most = fill.describe(out.va, 7, 1).shared(SharedMemory::new(0, (kib - 1) << 10));
        fill.launch(&mut channel, &most, signal.va, 1);
        channel.wait(signal.u64(0), 1);
        // A kernel that does not fit is built for an SM that has more.
        fill.target = Target::Sm80;
        let mut qmd = fill.describe(out.va, 7, 1).shared(SharedMemory::new(0, 163 << 10)).build().unwrap();
        if kib == 164 {
            qmd.set(qmd::v03::SHARED_MEMORY_SIZE, (164 << 10) + 128).unwrap();
        }
        fill.qmd.write(0, qmd.as_bytes());
        fill.kick(&mut channel);
        assert_eq!(channel.wait_error(), NVGPU_CHANNEL_GR_EXCEPTION, "{arch}");
        let log = machine.sim.kernel_log();
        let esr =
            log.iter().find_map(|line| line.split("sked exception: esr 0x").nth(1)).expect("in the log");
        let esr = u32::from_str_radix(&esr[..8], 16).expect("a number");
        assert!(
            SkedCheck::from_esr(esr).any(|check| check == SkedCheck::SharedMemorySize),
            "{arch}: {esr:#x}"
        );
    }
}
