#![doc = include_str!("../README.md")]
//!
//! # What is safe, and what is not
//! - A launch is `unsafe`, on a queue and in a graph: its arguments decide what is written.
//!   ```compile_fail,E0133
//!   # use hcq::*;
//!   # fn f(queue: &mut Queue, kernel: &Kernel) -> Result<(), Error> {
//!   queue.launch(kernel, LaunchConfig::new(1, 32), &Args::new())
//!   # }
//!   ```
//!   ```compile_fail,E0133
//!   # use hcq::*;
//!   # fn f(graph: &mut GraphBuilder, kernel: &Kernel) -> Result<NodeId, Error> {
//!   graph.launch(kernel, LaunchConfig::new(1, 32), &Args::new())
//!   # }
//!   ```
//! - So is [`Graph::patch_args`], which changes them. A replay is not: who recorded or patched a launch has
//!   vouched for all replays.
//!   ```compile_fail,E0133
//!   # use hcq::*;
//!   # fn f(graph: &Graph, node: NodeId) -> Result<(), Error> {
//!   graph.patch_args(node, 0, &Args::new().u64(0))
//!   # }
//!   ```
//! - Buffers, kernels, graphs and devices are used by several threads at once, as [`Buffer`] describes; a
//!   queue is used by one at a time.
//!   ```
//!   # use hcq::*;
//!   fn shared<T: Send + Sync>() {}
//!   shared::<(Device, Buffer, Program, Kernel, Graph, SyncPoint, Timestamp)>();
//!   fn sent<T: Send>() {}
//!   sent::<(Queue, GraphBuilder, Args, Error)>();
//!   ```
//!   ```compile_fail,E0596
//!   # use hcq::*;
//!   # fn f(queue: &Queue) -> Result<SyncPoint, Error> {
//!   queue.submit()
//!   # }
//!   ```
//! - Memory goes back when nothing names it any more: buffers that a launch, a copy or a graph names, patches
//!   included, stay until that has ended.
//! - Objects of two devices do not mix ([`Error::ForeignDevice`]), and a device stays with the process that
//!   opened it: in a fork calls return [`Error::Forked`].
//! - Calls end: waits have deadlines or [`DeviceOptions::patience`], which also bounds requests that signals
//!   interrupt ([`DriverError::Interrupted`]).
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! devices     device queue sim sys  # devices, queues and graphs, which a program opens
//! objects     objects               # buffers, programs, arguments, and what all of them share
//! programs    fault launch program  # code in GPU memory, descriptors of its launches, its faults
//! submission  submission            # commands, rings, channels, and when work has completed
//! memory      core memory observer  # mapped memory, the core of a device, who is told of accesses
//! driver      backend process       # the seam: nvgpu, rm, the software ga10b
//! errors      error info options    # errors, facts of a GPU, settings
//! values      address constant_bank cubin errno profile serial shape sync tegra  # formats, numbers, locks
//! circle: error error::memory error::open: an error is the cause of another
//! ```

/// Embeds the cubins `PATH.SM.cubin` of a program, one for each SM version that is named, as
/// [`Images`]. Like that of `include_bytes!` the path starts at the source file's folder.
///
/// ```
/// # use hcq::{Device, Selector};
/// # let device = Device::open(Selector::Sim)?;
/// const KERNELS: hcq::Images<'_> = hcq::images!("../examples/kernels/examples", sm_80, sm_87, sm_90);
/// let kernel = device.load(KERNELS)?.kernel("vecadd")?;
/// # Ok::<(), hcq::Error>(())
/// ```
#[macro_export]
macro_rules! images {
    ($path:literal, $($sm:ident),+ $(,)?) => {
        $crate::Images::new(const {
            &[$(include_bytes!(concat!($path, ".", stringify!($sm), ".cubin")) as &[u8]),+]
        })
    };
}

mod address;
mod backend;
mod constant_bank;
mod core;
pub mod cubin;
mod device;
mod errno;
mod error;
mod fault;
mod info;
mod launch;
mod memory;
mod objects;
mod observer;
mod options;
mod process;
mod profile;
mod program;
mod queue;
mod serial;
mod shape;
#[cfg(feature = "sim")]
pub mod sim;
mod submission;
mod sync;
#[cfg(feature = "sys")]
pub mod sys;
mod tegra;

pub use address::GpuVa;
pub use cubin::CubinError;
pub use device::Device;
pub use device::clock::ClockPair;
pub use errno::Errno;
pub use error::report::{FaultKind, FaultRecord, FaultReport, Neighbour, SmRecord};
pub use error::{DriverError, Error, LaunchError, MemoryError, OpenError, ProgramError, QueueError};
pub use info::{BackendKind, Classes, GpuCache, Info};
pub use memory::manager::Mapping;
pub use memory::plain::Plain;
pub use objects::args::{Args, Argument};
pub use objects::buffer::{Buffer, BufferAt};
pub use objects::program::Program;
pub use options::{DeviceOptions, Interleave, Selector};
pub use profile::{BadProfile, CommandMemory, Descriptor, Preemption, Profile, Release, Subcontext};
pub use program::images::Images;
pub use program::kernel::Kernel;
pub use program::occupancy::{Occupancy, OccupancyLimit};
pub use queue::Queue;
pub use queue::graph::{Graph, GraphBuilder, NodeId};
pub use shape::{Extent3, LaunchConfig};
pub use submission::timeline::{SyncPoint, Timestamp};
pub use tegra::Tegra;
