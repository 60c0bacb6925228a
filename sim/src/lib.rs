#![doc = include_str!("../README.md")]
//!
//! # Layers
//!
//! The GPU (`gpu`) does not depend on the driver (`driver`): the driver writes instance blocks and page
//! tables and puts channels on the runlist; the GPU reports through `gpu::interrupts`.
//!
//! ```text
//! 0   clock defects dram ids order::known own_thread pieces poison violations visit::message what_if
//! 1   findings visit::visitor
//! 2   order::work user_memory
//! 3   order::shadow visit::remote
//!
//! 4   order::ledger gpu::sm::code_map gpu::sm::counters gpu::sm::guest gpu::sm::lanes gpu::sm::mbarrier gpu::sm::slots gpu::sm::soft
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
//! 15  gpu::sm::check
//! 16  gpu::sm::grid
//! 17  gpu::sm::worker
//! 18  gpu::sm::executor
//! 19  gpu::sm
//!
//! 20  gpu::chip gpu::classes gpu::counters gpu::exception gpu::gmmu gpu::pushbuffer gpu::session gpu::syncpoint gpu::userd gpu::usermode
//! 21  gpu::instance gpu::memory
//! 22  gpu::submissions
//! 23  gpu::units
//! 24  gpu::flight gpu::interrupts gpu::semaphore
//! 25  gpu::front
//! 26  gpu::context
//! 27  gpu::compute_scheduler
//! 28  gpu::methods
//! 29  gpu::pbdma
//! 30  gpu::device
//! 31  gpu::engine
//!
//! 32  gpu::host_scheduler config driver::descriptor driver::event driver::heaps driver::late_faults driver::log driver::notifier driver::session::control
//! 33  doorbells driver::dmabuf
//! 34  driver::address_space driver::known_buffers driver::mappings driver::nvmap
//! 35  driver::subcontexts
//! 36  driver::tsg
//! 37  driver::channel driver::session::profiler
//! 38  driver::session::debugger driver::unbind
//! 39  driver::files
//! 40  driver::machine
//! 41  driver::recovery
//! 42  driver::interrupts
//! 43  driver::nodes
//! 44  visit::host
//! 45  sim
//! 46  annotations open_files
//! ```

mod annotations;
mod clock;
mod config;
mod defects;
mod doorbells;
mod dram;
mod driver;
mod findings;
mod gpu;
mod ids;
mod open_files;
mod order;
mod own_thread;
mod pieces;
mod poison;
mod sim;
mod user_memory;
mod violations;
mod visit;
mod what_if;

pub use annotations::Annotations;
pub use clock::{Time, VirtualClock};
pub use config::{SimConfig, UnknownSetting};
pub use defects::Defects;
pub use driver::nodes::paths::Place;
pub use findings::{Checks, Event, Finding, UnknownCheck};
pub use gpu::counters::Counters;
pub use gpu::session::{Session, UnknownSession};
pub use gpu::sm;
pub use open_files::{Held, Waiting};
pub use own_thread::is_gpu_thread;
pub use pieces::note::{KernelAccess, KernelNote, LineNote, Note, PieceKind, PieceNote, StackNote};
pub use pieces::{Location, Pieces, Relation};
pub use poison::POISON;
pub use sim::Sim;
pub use violations::{Consequence, Traps, UnknownTraps, Violation};
pub use visit::remote::Remote;
pub use what_if::{UnknownWhatIf, WhatIf, WhatIfs};
