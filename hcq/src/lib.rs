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
//!   interrupt ([`Error::Interrupted`]).
//!
//!
//! # Layers
//! A module names only modules of smaller numbers. From the bottom: words and numbers, what a driver has to
//! do, memory, the floor of a device (`device::core`), submissions, programs, what objects of a device share,
//! and the objects that a program sees.
//!
//! ```text
//! 0  address errno profile serial sync tegra launch::shape memory::kept memory::quarantine memory::range_set
//! 0  memory::shared_bytes
//! 0  program::cubin program::occupancy program::stack
//! 1  fault::report launch::constant_bank memory::piece_note memory::range_lock program::loader
//! 1  submission::ring
//! 2  error
//! 3  info process device::clock
//! 4  options backend device::refusal submission::pushbuffer
//! 5  launch::target memory::va_space submission::gpfifo submission::recorder
//! 6  memory::manager
//! 7  device::core
//! 8  submission::timeline launch::scratch
//! 9  submission::uses
//! 10 submission::limbo
//! 11 submission::channel program::image
//! 12 program::kernel program::registry device::staging
//! 13 launch::qmd_cache fault::map_file
//! 14 device::shared fault::decode
//! 15 memory::buffer program queue::submitter
//! 16 launch::args device::copy_kernel queue::encoding
//! 17 queue::graph
//! 18 queue
//! 19 device
//! 20 sim sys
//! ```

mod address;
mod backend;
mod device;
mod errno;
mod error;
mod fault;
mod info;
mod launch;
mod memory;
mod options;
mod process;
mod profile;
mod program;
mod queue;
mod serial;
#[cfg(feature = "sim")]
pub mod sim;
mod submission;
mod sync;
#[cfg(feature = "sys")]
pub mod sys;
mod tegra;

pub use address::{Bytes, GpuVa};
pub use device::Device;
pub use device::clock::ClockPair;
pub use errno::Errno;
pub use error::Error;
pub use fault::report::{FaultKind, FaultRecord, FaultReport, Neighbour, SmRecord};
pub use info::{BackendKind, Classes, GpuCache, Info};
pub use launch::args::{Args, Argument};
pub use launch::shape::{Extent3, LaunchConfig};
pub use memory::buffer::{Buffer, BufferAt};
pub use memory::manager::Mapping;
pub use options::{DeviceOptions, Selector};
pub use profile::{BadProfile, CommandMemory, Descriptor, Preemption, Profile, Release, Subcontext};
pub use program::Program;
pub use program::cubin::{self, CubinError};
pub use program::kernel::Kernel;
pub use program::occupancy::{Occupancy, OccupancyLimit};
pub use queue::Queue;
pub use queue::graph::{Graph, GraphBuilder, NodeId};
pub use submission::timeline::{SyncPoint, Timestamp};
pub use tegra::Tegra;
