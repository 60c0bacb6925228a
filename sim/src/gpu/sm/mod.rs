//! The streaming multiprocessors: execute SM 8.x and 9.0 machine code against an abstract memory.
//!
//! This module does not depend on drivers, channels or launch descriptors. It takes a [`Launch`] and a
//! [`Memory`] and runs the program in that memory, block by block and warp by warp, with the results that
//! the hardware is known or measured to produce.
//!
//! - [`Launch`] is what to run, [`Memory`] what it can access, [`Config`] in which order.
//! - [`Executor`] runs it, and caches lowered programs for the next launch.
//! - [`Counters`] or a [`Fault`] are the result.
//!
//! # Layers
//! ```text
//! run          executor grid worker     # blocks of a launch on threads of this machine
//! check        check                    # mistakes of a kernel, found while it runs
//! translation  bound translate          # machine code to a lowered program
//! operations   ops                      # what each instruction does
//! lowering     code lower micro_op      # the lowered program
//! warps        barrier block capture core warp  # blocks, their warps, the state of one that runs
//! launch       constants environment fault launch order state target tlb  # one launch and the memory that it sees
//! values       code_map counters guest l2 lanes mbarrier slots soft written  # registers, numbers, counts
//! ```

#![allow(clippy::needless_range_loop, reason = "loops over lanes index several arrays by the lane")]

#[cfg(test)]
mod agreement;
mod barrier;
mod block;
mod bound;
mod capture;
pub(crate) mod check;
mod code;
mod code_map;
mod constants;
mod core;
mod counters;
mod environment;
pub(crate) mod executor;
mod fault;
pub(crate) mod grid;
mod guest;
mod l2;
mod lanes;
pub(crate) mod launch;
mod lower;
mod mbarrier;
mod micro_op;
mod ops;
pub(crate) mod order;
mod slots;
mod soft;
mod state;
mod target;
mod tlb;
mod translate;
mod warp;
mod worker;
mod written;

pub use counters::Counters;
pub use executor::Executor;
pub use fault::{Fault, esr};
pub use l2::CacheConfig;
pub use launch::{Access, Config, ConstBank, Launch, Memory, MemoryFault, Schedule, Span, Windows};
pub use state::{BlockState, WarpState};
