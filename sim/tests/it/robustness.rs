//! Whatever a program sends, the machine answers with an errno or a dead channel, never with a panic.

use crate::machine::*;
use ga10b_sim::{Sim, SimConfig};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::Sys;
use proptest::prelude::*;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Everything a handler may answer.
const ANSWERS: [Errno; 14] = [
    Errno::EINVAL,
    Errno::ENOTTY,
    Errno::EFAULT,
    Errno::ENOMEM,
    Errno::ENOSPC,
    Errno::EBADF,
    Errno::ENODEV,
    Errno::ENOSYS,
    Errno::EEXIST,
    Errno::EPERM,
    Errno::ETIMEDOUT,
    Errno::EIO,
    Errno::ENXIO,
    Errno::ENOENT,
];

/// One descriptor of every kind.
fn descriptors(sim: &Arc<Sim>) -> Vec<(u8, OwnedFd)> {
    let open = |path| sim.open(path, OFlag::O_RDWR).unwrap();
    let ctrl = open(c"/dev/nvgpu/igpu0/ctrl");
    let space = new_space(sim, &ctrl);
    vec![
        (b'A', space),
        (b'G', ctrl),
        (b'N', open(c"/dev/nvmap")),
        (b'H', open(c"/dev/nvgpu/igpu0/channel")),
        (b'T', open(c"/dev/nvgpu/igpu0/tsg")),
        (b'D', open(c"/dev/nvgpu/igpu0/dbg")),
        (b'D', open(c"/dev/nvgpu/igpu0/prof")),
        (b'P', open(c"/dev/nvgpu/igpu0/prof-dev")),
        (b'S', open(c"/dev/nvgpu/igpu0/sched")),
        (b'C', open(c"/dev/nvgpu/igpu0/ctxsw")),
    ]
}

/// Words that are commands often enough to get past the first header.
fn command_word() -> impl Strategy<Value = u32> {
    let method = (0u32..0x1000, 0u32..6, 0u32..5, prop_oneof![Just(1u32), Just(3), Just(4), Just(5)])
        .prop_map(|(address, subchannel, count, op)| op << 29 | count << 16 | subchannel << 13 | address);
    let known = prop::sample::select(vec![
        inc(1, 0x2b4, 1),
        inc(1, 0x2c0, 1),
        inc(4, 0x400, 4),
        inc(4, 0x418, 1),
        inc(4, 0x300, 1),
        inc(0, 0x5c, 5),
        inc(1, 0x180, 2),
        inc(1, 0x1b0, 1),
        0xc7c0,
        0x182,
    ]);
    prop_oneof![3 => method, 3 => known, 2 => 0u32..64, 1 => any::<u32>()]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: ProptestConfig::default().cases.min(64), ..ProptestConfig::default() })]

    /// Random bytes for real and random commands: a documented errno, or success.
    #[test]
    fn random_arguments_are_refused_or_served(
        calls in prop::collection::vec((0usize..10, 0u8..130, prop::sample::select(vec![0u32, 4, 5, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64, 72, 104, 264]), 0u32..4, prop::collection::vec(prop_oneof![2 => Just(0u8), 1 => any::<u8>()], 264)), 40)
    ) {
        let sim = Sim::new(SimConfig { memory: 1 << 30, ..SimConfig::default() });
        let fds = descriptors(&sim);
        for (which, number, size, direction, mut bytes) in calls {
            let (magic, fd) = &fds[which];
            let request = direction << 30 | size << 16 | u32::from(*magic) << 8 | u32::from(number);
            // Commands whose successful execution would write where random bytes say, or close descriptors of the test.
            if is_unsafe_to_serve(request) {
                continue;
            }
            // SAFETY: pointers inside are checked by the machine; those it would write to are excluded above.
            match unsafe { sim.ioctl(fd.as_fd(), request, &mut bytes) } {
                Ok(value) => prop_assert!(value >= 0),
                Err(errno) => prop_assert!(ANSWERS.contains(&errno), "{request:#x} of {}: {errno}", *magic as char),
            }
        }
    }

    /// Random words in a pushbuffer: the channel finishes, waits or dies, and the machine lives on.
    #[test]
    fn random_commands_never_take_the_machine_down(words in prop::collection::vec(command_word(), 1..60), entry in any::<Option<u64>>()) {
        let machine = Machine::with(SimConfig { sm_count: 2, memory: 1 << 30, ..SimConfig::default() });
        let mut victim = machine.channel();
        victim.start();
        victim.submit(&words);
        if let Some(entry) = entry {
            victim.publish(entry);
        }
        let mut other = machine.channel();
        let signal = machine.buffer(4096);
        other.submit(&release(signal.va, 1));
        other.wait(signal.u64(0), 1);
    }
}

fn is_unsafe_to_serve(request: u32) -> bool {
    use nvgpu_sys::*;
    [
        NVGPU_GPU_IOCTL_GET_CHARACTERISTICS,
        NVGPU_GPU_IOCTL_GET_TPC_MASKS,
        NVGPU_GPU_IOCTL_GET_FBP_L2_MASKS,
        NVGPU_GPU_IOCTL_VSMS_MAPPING,
        NVGPU_GPU_IOCTL_GET_ENGINE_INFO,
        NVGPU_GPU_IOCTL_CLK_GET_RANGE,
        NVGPU_GPU_IOCTL_CLK_GET_VF_POINTS,
        NVGPU_GPU_IOCTL_CLK_GET_INFO,
        NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_PHYSICAL_MAP,
        NVGPU_GPU_IOCTL_GET_GPC_LOCAL_TO_LOGICAL_MAP,
        NVGPU_GPU_IOCTL_GET_BUFFER_INFO,
        NVGPU_AS_IOCTL_GET_VA_REGIONS,
        NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE,
        NVGPU_SCHED_IOCTL_GET_TSGS,
        NVGPU_SCHED_IOCTL_GET_RECENT_TSGS,
        NVGPU_SCHED_IOCTL_GET_TSGS_BY_PID,
        NVMAP_IOC_FREE,
        NVMAP_IOC_READ,
        NVMAP_IOC_WRITE,
    ]
    .contains(&request)
}
