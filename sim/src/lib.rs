#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//! The GPU (`gpu`) does not depend on the driver (`driver`): the driver writes instance blocks and page
//! tables and puts channels on the runlist; the GPU reports through `gpu::interrupts`.
//!
//! ```text
//! calls    annotations open_files sim visit  # system calls of a program, and of a debugger elsewhere
//! driver   driver                            # nvgpu and nvmap: objects, checks, errnos
//! machine  config                            # the kind of machine that is modelled
//! gpu      gpu                               # the GPU, from the doorbell on
//! checks   findings order violations         # mistakes of programs and kernels
//! caller   caller own_thread                 # the process and the thread that make a request
//! values   clock defects dram handover ids pieces poison what_if  # time, memory, numbers, unproven facts
//! ```

mod annotations;
mod caller;
mod clock;
mod config;
mod defects;
mod dram;
mod driver;
mod findings;
mod gpu;
mod handover;
mod ids;
mod open_files;
mod order;
mod own_thread;
mod pieces;
mod poison;
mod sim;
mod violations;
mod visit;
mod what_if;

pub use annotations::Annotations;
pub use clock::{Time, VirtualClock};
pub use config::{SimConfig, UnknownSetting};
pub use defects::Defects;
pub use driver::nodes::paths::Place;
pub use findings::{Checks, Event, FaultPlace, Finding, Record, UnknownCheck};
pub use gpu::counters::Counters;
pub use gpu::session::{Session, UnknownSession};
pub use gpu::sm;
pub use open_files::{Held, Waiting};
pub use own_thread::is_gpu_thread;
pub use pieces::note::{
    ArrayNote, KernelAccess, KernelNote, LineNote, Note, PieceKind, PieceNote, SharedNote, StackNote,
};
pub use pieces::{Location, Pieces, Relation};
pub use poison::POISON;
pub use sim::Sim;
pub use violations::{Consequence, Traps, UnknownTraps, Violation};
pub use visit::remote::Remote;
pub use what_if::{UnknownWhatIf, WhatIf, WhatIfs};
