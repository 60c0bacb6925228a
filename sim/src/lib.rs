//! The software ga10b: the GPU of a Jetson Orin, and the driver in front of it, without either.
//!
//! The types to know:
//!
//! - [`Sim`] is the machine. It implements [`nvgpu_sys::Sys`], so whatever talks to the nvgpu driver through
//!   that trait runs on it unchanged: the same ioctls, the same checks in the same order, the same errnos,
//!   the same addresses.
//! - [`SimConfig`] describes the machine: memory, SMs and their instruction set, time, how kernels are executed.
//! - [`VirtualClock`] is time that a test controls.
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
//! From the doorbell on it models the GPU: rings and pushbuffers, host methods, the compute and copy classes,
//! page tables in the hardware's format, launch descriptors, SM exceptions, and the driver's
//! reports: the error notifier, SM error records, kernel-log lines. [`Remote`] is such a machine seen from
//! another process, for diagnostics. Calls that would freeze a real machine fail and are kept as
//! [`Violation`]s.
//!
//! # Layers
//!
//! The GPU (`gpu`) does not depend on the driver (`driver`): the driver writes instance blocks and page tables
//! and puts channels on the runlist; the GPU reports through `gpu::interrupts`.
//!
//! ```text
//! 0   clock dram ids own_thread violations visit::message
//! 1   visit::visitor
//! 2   user_memory
//! 3   visit::remote
//!
//! 4   gpu::sm::code_map gpu::sm::counters gpu::sm::guest gpu::sm::lanes gpu::sm::mbarrier gpu::sm::slots gpu::sm::soft
//! 5   gpu::sm::l2 gpu::sm::target gpu::sm::warp
//! 6   gpu::sm::launch
//! 7   gpu::sm::block gpu::sm::constants gpu::sm::environment gpu::sm::fault gpu::sm::order gpu::sm::tlb
//! 8   gpu::sm::core
//! 9   gpu::sm::barrier gpu::sm::micro_op
//! 10  gpu::sm::code
//! 11  gpu::sm::lower
//! 12  gpu::sm::ops
//! 13  gpu::sm::translate
//! 14  gpu::sm::bound
//! 15  gpu::sm::grid
//! 16  gpu::sm::worker
//! 17  gpu::sm::executor
//! 18  gpu::sm
//!
//! 19  gpu::chip gpu::classes gpu::counters gpu::exception gpu::gmmu gpu::pushbuffer gpu::syncpoint gpu::userd gpu::usermode
//! 20  gpu::instance gpu::memory gpu::units
//! 21  gpu::interrupts gpu::semaphore
//! 22  gpu::context
//! 23  gpu::compute_scheduler
//! 24  gpu::methods
//! 25  gpu::pbdma
//! 26  gpu::device
//! 27  gpu::host_scheduler
//!
//! 28  config driver::descriptor driver::event driver::log driver::notifier driver::session::control driver::session::profiler
//! 29  driver::dmabuf
//! 30  driver::address_space driver::nvmap
//! 31  driver::tsg
//! 32  driver::channel
//! 33  driver::session::debugger
//! 34  driver::files
//! 35  driver::machine
//! 36  driver::recovery
//! 37  driver::interrupts
//! 38  driver::nodes
//! 39  visit::host
//! 40  sim
//! ```

mod clock;
mod config;
mod dram;
mod driver;
mod gpu;
mod ids;
mod own_thread;
mod sim;
mod user_memory;
mod violations;
mod visit;

pub use clock::{Time, VirtualClock};
pub use config::{SimConfig, UnknownSetting};
pub use gpu::counters::Counters;
pub use gpu::sm;
pub use own_thread::is_gpu_thread;
pub use sim::Sim;
pub use violations::{Consequence, Violation};
pub use visit::remote::Remote;
