//! Advice after an error.

use nix::errno::Errno as Nix;

use super::{DriverError, Error, LaunchError, MemoryError, OpenError, ProgramError, QueueError};
use crate::cubin::error::CubinError;

/// The first request of those that are sent that JetPack 5 lacks (source: include/uapi/linux/nvgpu-ctrl.h, r35.6.0
/// and r36.2).
const OPEN_TSG: &str = <nvgpu_sys::nvgpu_gpu_open_tsg_args as nvgpu_sys::Ioctl>::NAME;
const CREATE_SUBCONTEXT: &str = <nvgpu_sys::nvgpu_tsg_create_subcontext_args as nvgpu_sys::Ioctl>::NAME;

impl Error {
    /// Advice in one line.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Open(error) => error.hint(),
            Self::Driver(error) => error.hint(),
            Self::Memory(error) => error.hint(),
            Self::Program(error) => error.hint(),
            Self::Launch(error) => error.hint(),
            Self::Queue(error) => error.hint(),
            Self::Fault(_) | Self::Lost(_) => {
                Some("open the device again; `nvdiag esr` explains the error registers")
            }
            Self::ForeignDevice { .. } => Some("allocate, load and launch on one device"),
            Self::Forked { .. } => Some("open a device of its own in each process, after the fork"),
        }
    }
}

impl OpenError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Node { errno, .. } => match Nix::from_raw(errno.raw()) {
                Nix::EACCES | Nix::EPERM => Some(
                    "add the user to the node's group, video on a Jetson (and log in again); `nvdiag doctor` checks it",
                ),
                Nix::ENOENT => Some(
                    "no such GPU here: HCQ_DEVICE=sim runs on the software ga10b; `nvdiag doctor` lists what was \
                     searched for",
                ),
                _ => None,
            },
            Self::NotStarted { .. } => Some(
                "`nvdiag doctor` looks for the reason, `ACR bootstrap failed` in the kernel log among them; switch \
                 the board off and on",
            ),
            Self::Driver { .. } => Some("HCQ_DEVICE=sim runs on the software ga10b"),
            Self::UnsupportedSm { .. } | Self::Unsupported { .. } => {
                Some("choose another GPU, or HCQ_DEVICE=sim for the software ga10b")
            }
            Self::NoDevice { nvgpu, rm } => {
                if let Some(refused) = [nvgpu, rm].into_iter().find(|e| e.is_forbidden()) {
                    return refused.hint();
                }
                Some("`nvdiag doctor` lists what was searched for; feature `sim` adds the software ga10b")
            }
            Self::NotBuilt { .. } => Some("build with the feature of that name"),
            Self::Profile { .. } => {
                Some("`nvdiag bringup` writes such a file; unset HCQ_PROFILE for the defaults")
            }
            Self::UnknownSelector { .. } => Some("set HCQ_DEVICE, or the option --device, to one of these"),
            Self::UnknownSetting { .. } | Self::DisplayDriver => None,
        }
    }
}

impl DriverError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Ioctl { name, errno, .. } => hint_of_request(name, Nix::from_raw(errno.raw())),
            Self::Status {
                status: rm_sys::NV_ERR_NO_MEMORY | rm_sys::NV_ERR_INSUFFICIENT_RESOURCES, ..
            } => Some("GPU memory, or what the CPU can map of it, is used up: by this process or by others"),
            Self::Status { status: rm_sys::NV_ERR_INSUFFICIENT_PERMISSIONS, .. } => {
                Some("in a container, give it the graphics capability as well as compute")
            }
            Self::Interrupted { .. } => {
                Some("block the signal, or make its handler rarer (a profiler's timer?)")
            }
            Self::Status { .. } | Self::Answer { .. } | Self::Mmap { .. } => None,
        }
    }
}

impl MemoryError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::InWindow { .. } => Some("let the device choose the address (Device::alloc)"),
            Self::OutOfMemory { len, total: Some(total), .. } if len > total => {
                Some("the device never has so much: keep a part of the data on it at a time")
            }
            Self::OutOfMemory { .. } => Some(
                "drop buffers and queues, or allocate less; other processes use the same memory \
                 (Device::free_memory says how much is free)",
            ),
            Self::ProcessLimit { .. } => {
                Some("raise the limit (`ulimit -v unlimited`), or drop buffers and queues")
            }
            Self::OutOfAddresses { .. } => Some("drop buffers, or allocate fewer and larger ones"),
            Self::Overlap { .. } => Some("copy through a second buffer, or in pieces that do not overlap"),
            Self::AddressTaken { .. } | Self::OutOfBounds { .. } => None,
            Self::NotMapped { .. } | Self::EmptyBuffer => None,
        }
    }
}

impl ProgramError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Cubin(CubinError::WrongSm { .. } | CubinError::NoneFits { .. }) => {
                Some("compile it for the device: nvcc -cubin -arch=sm_NN, with the number of `nvdiag info`")
            }
            Self::Cubin(_) | Self::NoKernel { .. } => None,
        }
    }
}

impl LaunchError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::BlockShape { .. } => Some("launch blocks of that shape, or compile without .reqntid"),
            Self::NoGridWait { .. } => {
                Some("add the instruction where the kernel first needs the other's results")
            }
            Self::ForeignNode { .. } => Some("patch a graph with the nodes that its own builder returned"),
            Self::NotALaunch { .. } => Some("only launches have arguments; record a copy anew to change it"),
            Self::Arguments { .. } | Self::ArgumentCount { .. } | Self::ArgumentWidth { .. } => {
                Some("pass every parameter, in order, with its own width; arguments are counted from 0")
            }
            Self::ArgumentPlace { .. } => {
                Some("give each argument the alignment of its type: that of a struct's largest member")
            }
            Self::NoArgument { .. } => Some("count the arguments from 0, as the launch was given them"),
            Self::Limit { .. } | Self::Alignment { .. } | Self::Qmd { .. } => None,
        }
    }
}

impl QueueError {
    fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Timeout { .. } => Some(
                "the kernel may be in an endless loop, or a wait has no matching signal; raise the deadline if it is just long",
            ),
            Self::Stopped => Some("wait for work before its queue is dropped; end kernels that poll"),
            Self::Starved => Some("drop a queue when what other queues wait for has ended"),
            Self::TooMany { .. } => Some("drop queues, or submit from several places through one"),
            Self::WrongQueue { .. } | Self::RingTooSmall { .. } | Self::Discarded => None,
        }
    }
}

/// Advice where the driver refused the request `name`.
fn hint_of_request(name: &str, errno: Nix) -> Option<&'static str> {
    match errno {
        Nix::ENOTTY if name == OPEN_TSG => Some(
            "L4T r35 and older (JetPack 5) have another OPEN_TSG and SETUP_BIND, and no CREATE_SUBCONTEXT: \
             install JetPack 6 or 7 (L4T r36.2 or later)",
        ),
        Nix::ENOTTY if name == CREATE_SUBCONTEXT => Some(
            "a profile asks for VEID 1: `subcontext = sync` in the file that HCQ_PROFILE names does without, and the \
             defaults do what the driver can",
        ),
        Nix::ENOTTY => Some(
            "the driver lacks a request that work needs; those of L4T r36.2 to r36.4.3 (JetPack 6) have it",
        ),
        Nix::ENOMEM => {
            Some("there is not so much free memory or address space (`nvdiag info` says how much there is)")
        }
        Nix::EBUSY => {
            Some("a kernel that cannot be preempted was in the way for as long as the device's patience")
        }
        Nix::ETIMEDOUT => Some("the channel is dead after a fault; open the device again"),
        _ => None,
    }
}
