//! The decode step: one kernel that works through a list of phases.
//!
//! A phase is a record in device memory ([`task::Task`]): a row of the embedding; matrices times a vector,
//! with what comes before (norm, conversion to integers) and after (residual, gate, rotation and cache, the
//! choice of a token); attention. The kernel runs any range of the list. Launched once with all of it, it is
//! the whole step, and blocks wait for each other between phases through a counter in device memory. Launched
//! once per phase, the same code gives the same bits, with the end of a launch in between. The weights of a
//! phase do not depend on the phase before: each warp starts to load its first tile before it waits.
//!
//! Short vectors that every block reads whole (the residual stream, the result of attention) need no counter.
//! Each value has a flag in the same eight bytes, the number of the step and of the phase that wrote it, and
//! a reader polls until it reads the expected flag. That saves a fence, an atomic operation and the wait for
//! it. Values are overwritten only after every reader has read them, because all blocks wait for each other
//! in two phases of every layer.
//!
//! All blocks must be resident together. Waiting is bounded and ends in a trap.

mod attend;
mod block;
mod cached;
mod input;
pub(crate) mod kernel;
mod layout;
mod record;
mod results;
pub mod shape;
pub mod sync;
pub mod task;
mod tile;
pub mod variant;
