//! The software ga10b: the GPU of a Jetson Orin, and the driver in front of it, without either.
//!
//! The types to know:
//!
//! - [`Sim`] is the machine. It implements [`nvgpu_sys::Sys`], so whatever talks to the nvgpu driver through that trait runs on it
//!   unchanged: the same ioctls, the same checks in the same order, the same errnos, the same addresses.
//! - [`SimConfig`] says what machine: memory, SMs, how kernels are executed.
//! - [`sm`] is the streaming multiprocessor: it executes the machine code of a kernel against any memory.
//!
//! ```
//! use ga10b_sim::{Sim, SimConfig};
//! use nix::fcntl::OFlag;
//! use nvgpu_sys::Sys;
//! use std::os::fd::AsFd;
//!
//! let sim = Sim::new(SimConfig::default());
//! let ctrl = sim.open(c"/dev/nvgpu/igpu0/ctrl", OFlag::O_RDWR | OFlag::O_CLOEXEC)?;
//! let mut args = nvgpu_sys::nvgpu_gpu_num_vsms::default();
//! // SAFETY: the argument has no pointers.
//! unsafe { nvgpu_sys::call(&*sim, ctrl.as_fd(), &mut args).unwrap() };
//! assert_eq!(args.num_vsms, 16);
//! # Ok::<(), nix::errno::Errno>(())
//! ```
//!
//! From the doorbell on it models the GPU: rings and pushbuffers, host methods, the compute and copy classes, page tables in the
//! hardware's format, launch descriptors, SM exceptions, and what the driver makes of them: the error notifier, SM error
//! records, kernel-log lines. [`Remote`] is such a machine seen from another process, for diagnostics. Calls that would freeze a real machine fail and are kept as [`Violation`]s.

mod clock;
mod config;
mod driver;
mod gpu;
mod physical;
mod sim;
mod user_memory;
mod violations;
mod visit;

pub use gpu::sm;

pub use config::SimConfig;
pub use gpu::device::{Counters, is_gpu_thread};
pub use sim::Sim;
pub use violations::{Consequence, Violation};
pub use visit::Remote;
