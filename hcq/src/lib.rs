//! Hardware command queues for NVIDIA GPUs without the CUDA runtime.
//!
//! The types to know: [`Device`], which hands out everything else; [`Buffer`], memory that both sides reach; [`Queue`],
//! which launches the [`Kernel`]s of a [`Program`]; and [`Graph`], a list of launches that is recorded once and replayed
//! with one doorbell.
//!
//! One API serves a Jetson's GPU and the software ga10b (the default where there is no GPU); `HCQ_DEVICE` chooses.
//! Launching is `unsafe`, since a kernel can write everything in its address space; all else is safe.
#![cfg_attr(not(feature = "sim"), doc = "```no_run")]
#![cfg_attr(feature = "sim", doc = "```")]
//! use hcq::{Args, Device, LaunchConfig, Selector};
//! use std::time::Duration;
//!
//! let device = Device::open(Selector::Sim)?;
//! let cubin = include_bytes!("../tests/data/01_vecadd.sm_87.cubin");
//! let kernel = device.load(cubin)?.kernel("vadd_f32")?;
//!
//! let (a, b, c) = (device.alloc(4096)?, device.alloc(4096)?, device.alloc(4096)?);
//! a.write(0, &1.5f32.to_le_bytes())?;
//! b.write(0, &2.0f32.to_le_bytes())?;
//!
//! let mut queue = device.queue()?;
//! let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(1);
//! // SAFETY: the kernel adds one element of `a` and `b`, and writes one of `c`.
//! unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }?;
//! queue.submit()?.wait(Duration::from_secs(10))?;
//!
//! let mut sum = [0; 4];
//! c.read(0, &mut sum)?;
//! assert_eq!(f32::from_le_bytes(sum), 3.5);
//! # Ok::<(), hcq::Error>(())
//! ```

#![allow(clippy::self_named_module_files, clippy::too_many_lines, reason = "not converted yet")]

mod address;
mod backend;
mod buffer;
mod clock;
mod constant_bank;
mod context;
pub mod cubin;
mod device;
mod error;
mod fault;
mod gpfifo;
mod graph;
mod info;
mod lane;
mod launch;
mod map_file;
mod memory;
mod mover;
mod prepared;
mod program;
mod pushbuffer;
mod queue;
mod range_set;
mod recorder;
mod ring;
mod scratch;
mod selector;
mod timeline;
mod transfer;
mod va_space;

pub use address::{Bytes, GpuVa};
pub use buffer::Buffer;
pub use clock::ClockPair;
pub use cubin::CubinError;
pub use device::Device;
pub use error::Error;
pub use fault::{FaultKind, FaultRecord, FaultReport, Neighbour};
pub use graph::{Graph, GraphBuilder, NodeId};
pub use info::{BackendKind, Classes, Info};
pub use launch::{Args, Extent3, LaunchConfig};
pub use memory::Mapping;
pub use program::{Kernel, Program};
pub use qmd::{Limit as OccupancyLimit, Occupancy};
pub use queue::Queue;
pub use selector::{DeviceOptions, GpuCache, Selector};
pub use timeline::{SyncPoint, Timestamp};
