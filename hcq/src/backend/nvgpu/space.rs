//! The driver's nodes of one device: the address space with its windows, and the channel group that runs in
//! it.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nvgpu_sys::{
    Ioctl, MEMORY_NODE, NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET, NVGPU_COMPUTE_PREEMPTION_MODE_CILP,
    NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA, NVGPU_RUNLIST_INTERLEAVE_LEVEL_HIGH,
    NVGPU_RUNLIST_INTERLEAVE_LEVEL_LOW, NVGPU_RUNLIST_INTERLEAVE_LEVEL_MEDIUM,
    NvgpuIoctlTsgSetRunlistInterleave, NvgpuIoctlTsgSetTimeslice, Sys, nvgpu_alloc_as_args,
    nvgpu_as_alloc_space_args, nvgpu_gpu_num_vsms, nvgpu_runlist_interleave_args, nvgpu_timeslice_args,
    open_nvmap,
};

use super::group::{Group, Member};
use super::handle::Handle;
use super::nvmap::{self, PAGE};
use super::settings::Settings;
use crate::address::GpuVa;
use crate::backend::Layout;
use crate::error::{DriverError, Error, OpenError, with_causes};
use crate::info::{BackendKind, Classes, Info};
use crate::options::Interleave;
use crate::profile::Preemption;
use crate::sync::lock;

/// Control node of the integrated GPU, as JetPack 6 and 7 name it.
const CTRL: &CStr = c"/dev/nvgpu/igpu0/ctrl";

/// First address of the user range; a multiple of the driver's 2 MiB.
const VA_START: u64 = 1 << 32;
/// End of the user range. The driver's own 4 GiB range follows, which must stay below 2^40: some of its
/// registers hold only address bits 39:8, and a context placed higher stops the machine.
const VA_END: u64 = 0xff_0000_0000;
/// First address for buffers.
const ARENA_START: u64 = 0x10_0000_0000;
/// Base of the shared-memory window.
const SHARED_WINDOW: u64 = 0xfe_0000_0000;
/// Base of the local-memory window.
const LOCAL_WINDOW: u64 = 0xfd_0000_0000;
/// Most warps of an SM that are believed of a driver.
const MOST_WARPS: u32 = 256;
/// Addresses kept free from each window's base: more than the 16 MiB a window is believed to span.
const WINDOW_ROOM: u64 = 1 << 30;

/// An address space, and what it takes to make memory and channels in it.
#[derive(Debug)]
pub(super) struct Space {
    /// Channels that were not finished, which are closed when no other works.
    pub unfinished: Mutex<Vec<Member>>,
    // Dropped in this order: the group before the address space its channels run in.
    pub group: Arc<Group>,
    pub address_space: Handle,
    pub nvmap: Handle,
    pub ctrl: Handle,
    pub sys: Arc<dyn Sys>,
    /// Warps per SM that local memory is provided for.
    pub local_warps: u32,
    /// Whether kernels are preempted between two instructions, as far as the driver has not refused it.
    pub preempts: AtomicBool,
    /// Requests that the driver was found to lack.
    lacking: Mutex<BTreeSet<&'static str>>,
}

/// Facts of the chip that the driver gives besides its description.
struct Chip {
    /// As [`Space::local_warps`].
    local_warps: u32,
    /// Whether kernels can be preempted between two instructions.
    cilp: bool,
}

impl Space {
    /// Opens the nodes and creates an address space; says what the GPU is.
    pub fn open(sys: Arc<dyn Sys>, kind: BackendKind, settings: &Settings) -> Result<(Self, Info), Error> {
        let reserve_windows = settings.reserve_windows;
        let opened = |path, fd: Result<OwnedFd, Errno>| match fd {
            Ok(fd) => Ok(Handle::new(&sys, fd)),
            Err(errno) => Err(Error::open(path, errno)),
        };
        let ctrl = opened(CTRL, sys.open(CTRL, OFlag::O_RDWR | OFlag::O_CLOEXEC))?;
        let nvmap = opened(MEMORY_NODE, open_nvmap(&*sys))?;
        // What a driver of another release answers may mean something else: what it lacks is named instead.
        let (info, Chip { local_warps, cilp }) = match describe(&ctrl, &nvmap, kind) {
            Ok(described) => described,
            Err(error) => return Err(Group::open(&sys, &ctrl).err().unwrap_or(error)),
        };
        let address_space = create_address_space(&sys, &ctrl)?;
        // Windows first, then everything else: what is mapped later can only be outside them.
        if reserve_windows {
            for window in [SHARED_WINDOW, LOCAL_WINDOW] {
                reserve(&address_space, window, WINDOW_ROOM)?;
            }
        }
        reserve(&address_space, ARENA_START, arena_end(reserve_windows) - ARENA_START)?;
        let tsg = Group::open(&sys, &ctrl)?;
        if let Some(slice) = settings.timeslice {
            let timeslice_us = u32::try_from(slice.as_micros()).unwrap_or(u32::MAX);
            let mut args =
                NvgpuIoctlTsgSetTimeslice(nvgpu_timeslice_args { timeslice_us, ..Default::default() });
            // SAFETY: the struct holds no addresses.
            unsafe { tsg.send(&mut args) }.map_err(|error| of_timeslice(error, slice))?;
        }
        if let Some(interleave) = settings.interleave {
            let level = match interleave {
                Interleave::Low => NVGPU_RUNLIST_INTERLEAVE_LEVEL_LOW,
                Interleave::Medium => NVGPU_RUNLIST_INTERLEAVE_LEVEL_MEDIUM,
                Interleave::High => NVGPU_RUNLIST_INTERLEAVE_LEVEL_HIGH,
            };
            let args = nvgpu_runlist_interleave_args { level, ..Default::default() };
            // SAFETY: the struct holds no addresses.
            unsafe { tsg.send(&mut NvgpuIoctlTsgSetRunlistInterleave(args)) }?;
        }
        let group = Group::new(tsg, &address_space, settings.subcontext)?;
        let asked = settings.preemption == Preemption::Instructions;
        if asked && !cilp {
            warn_of_whole_kernels("the driver does not offer it");
        }
        let (unfinished, lacking) = (Mutex::default(), Mutex::default());
        let preempts = AtomicBool::new(asked && cilp);
        let space =
            Self { unfinished, group, address_space, nvmap, ctrl, sys, local_warps, preempts, lacking };
        Ok((space, info))
    }

    /// Goes on where the driver does not have a request that work can be done without; says once what is
    /// otherwise then.
    pub fn without(&self, answer: Result<(), Error>, otherwise: &'static str) -> Result<(), Error> {
        match answer {
            Err(error @ Error::Driver(DriverError::Ioctl { name, .. })) if error.is_refusal() => {
                if lock(&self.lacking).insert(name) {
                    tracing::warn!(error = %with_causes(&error), "the driver lacks a request: {otherwise}");
                }
                Ok(())
            }
            other => other,
        }
    }
}

/// The driver's refusal of a time slice. Its bounds are root's to set; by default they are
/// `NVGPU_TSG_TIMESLICE_MIN_US` and `_MAX_US` (source: nvgpu, include/nvgpu/tsg.h).
fn of_timeslice(error: Error, slice: Duration) -> Error {
    match error {
        Error::Driver(DriverError::Ioctl { errno, .. }) if errno.raw() == libc::EINVAL => {
            let (variable, value) = ("timeslice", format!("{slice:?}"));
            let expected = "what the driver takes, which is 1 ms to 50 ms by default".into();
            Error::Open(OpenError::UnknownSetting { variable, value, expected })
        }
        other => other,
    }
}

/// Says that kernels are not preempted between two instructions although the profile wants it.
pub(super) fn warn_of_whole_kernels(why: &str) {
    tracing::warn!(
        why,
        "kernels are not preempted between instructions, which the profile asks for, but run to their end: one \
         of seconds can cost its channel beside a desktop"
    );
}

/// End of the addresses for buffers.
const fn arena_end(reserve_windows: bool) -> u64 {
    if reserve_windows { LOCAL_WINDOW } else { VA_END }
}

/// The address space as it was reserved.
pub(super) fn layout(reserve_windows: bool, local_warps: u32) -> Layout {
    let arena = ARENA_START..arena_end(reserve_windows);
    Layout {
        low: arena.clone(),
        high: arena,
        shared_window: GpuVa::inside(SHARED_WINDOW),
        local_window: GpuVa::inside(LOCAL_WINDOW),
        reserved: [SHARED_WINDOW..SHARED_WINDOW + WINDOW_ROOM, LOCAL_WINDOW..LOCAL_WINDOW + WINDOW_ROOM],
        local_warps,
        granule: PAGE,
        channel_va: 0,
    }
}

/// The GPU's description.
fn describe(ctrl: &Handle, nvmap: &Handle, kind: BackendKind) -> Result<(Info, Chip), Error> {
    let gpu = nvgpu_sys::characteristics(ctrl.sys(), ctrl.as_fd()).map_err(Error::ioctl)?;
    let sm = gpu.sm_arch_sm_version;
    let number = (sm >> 8) * 10 + (sm & 0xff);
    let target = qmd::Target::from_sm(number).filter(|target| target.is_run());
    let target = target.ok_or(Error::Open(OpenError::UnsupportedSm { sm: number }))?;
    let classes = Classes { compute: gpu.compute_class, copy: gpu.dma_copy_class, channel: gpu.gpfifo_class };
    // Bytes missing from a short answer read as zero.
    if classes.compute == 0 || classes.copy == 0 {
        let name = nvgpu_sys::nvgpu_gpu_get_characteristics::NAME;
        return Err(Error::Driver(DriverError::Answer {
            name,
            value: 0,
            expected: "the numbers of the compute and copy classes",
        }));
    }
    let mut sms = nvgpu_gpu_num_vsms::default();
    // SAFETY: the struct holds no addresses.
    unsafe { ctrl.send(&mut sms) }?;
    let memory = nvmap::memory(nvmap)?.total;
    // The driver gives the warps of an SM or, in a dump of an Orin, twice that.
    let local_warps = target.max_warps().max(gpu.sm_arch_warp_count.min(MOST_WARPS));
    let cilp = gpu.compute_preemption_mode_flags & NVGPU_COMPUTE_PREEMPTION_MODE_CILP != 0;
    let name: Vec<u8> = gpu.chipname.iter().copied().take_while(|b| *b != 0).collect();
    let driver_version = match kind {
        BackendKind::Sim => format!("sim {}", env!("CARGO_PKG_VERSION")),
        _ => driver_version(),
    };
    let info = Info {
        name: String::from_utf8_lossy(&name).into_owned(),
        backend: kind,
        sm,
        sm_count: sms.num_vsms,
        tpc_count: gpu.num_gpc.saturating_mul(gpu.num_tpc_per_gpc),
        max_warps_per_sm: target.max_warps(),
        max_shared_per_block: u64::from(target.max_shared_bytes() - qmd::RESERVED_SHARED_BYTES),
        classes,
        memory,
        unified_memory: gpu.on_board_video_memory_size == 0,
        driver_version,
        max_clock_hz: Some(gpu.max_freq).filter(|hz| *hz != 0),
        gpu_cache: None,
    };
    Ok((info, Chip { local_warps, cilp }))
}

/// The release of Jetson Linux where the machine says it, and of the kernel: nvgpu has no version of its own.
fn driver_version() -> String {
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let kernel = read("/proc/sys/kernel/osrelease");
    let release = release(&read("/etc/nv_tegra_release")).map(|release| format!("L4T {release}, Linux "));
    release.unwrap_or_default() + kernel.trim()
}

/// The release in a text as `/etc/nv_tegra_release` has it: `r36.4.3` of `# R36 (release), REVISION: 4.3, ...`.
fn release(text: &str) -> Option<String> {
    let major = text.trim_start_matches(['#', ' ']).strip_prefix('R')?.split_whitespace().next()?;
    let minor = text.split_once("REVISION:")?.1.split(',').next()?.trim();
    Some(format!("r{major}.{minor}"))
}

fn create_address_space(sys: &Arc<dyn Sys>, ctrl: &Handle) -> Result<Handle, Error> {
    let mut args = nvgpu_alloc_as_args {
        flags: NVGPU_GPU_IOCTL_ALLOC_AS_FLAGS_UNIFIED_VA,
        va_range_start: VA_START,
        va_range_end: VA_END,
        ..Default::default()
    };
    // SAFETY: the struct holds no addresses.
    unsafe { ctrl.send(&mut args) }?;
    Handle::from_answer(sys, nvgpu_alloc_as_args::NAME, args.as_fd)
}

/// Takes `len` bytes of addresses at `va` out of the driver's own allocator.
fn reserve(address_space: &Handle, va: u64, len: u64) -> Result<(), Error> {
    let mut args = nvgpu_as_alloc_space_args {
        pages: len / PAGE,
        page_size: PAGE as u32,
        flags: NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET,
        o_a: va,
        ..Default::default()
    };
    // SAFETY: the struct holds no addresses of this process.
    unsafe { address_space.send(&mut args) }?;
    match args.o_a == va {
        true => Ok(()),
        false => Err(Error::Driver(DriverError::Answer {
            name: nvgpu_as_alloc_space_args::NAME,
            value: args.o_a,
            expected: "the fixed address asked for",
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_from_its_file() {
        let of = |text| release(text);
        let text = "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64\n";
        assert_eq!(of(text).as_deref(), Some("r36.4.3"));
        let text = "# R39 (release), REVISION: 2.0, GCID: 45755727, BOARD: generic\n# KERNEL_VARIANT: oot\n";
        assert_eq!(of(text).as_deref(), Some("r39.2.0"));
        assert_eq!([of(""), of("# R36"), of("Ubuntu, REVISION: 4")], [None, None, None]);
    }

    #[test]
    fn the_address_plan_keeps_the_drivers_range_below_40_bits() {
        const {
            assert!(
                VA_END + (4 << 30) <= 1 << 40
                    && VA_START.is_multiple_of(2 << 20)
                    && VA_END.is_multiple_of(2 << 20)
            )
        };
        const { assert!(SHARED_WINDOW + WINDOW_ROOM <= VA_END && LOCAL_WINDOW + WINDOW_ROOM <= SHARED_WINDOW) };
    }
}
