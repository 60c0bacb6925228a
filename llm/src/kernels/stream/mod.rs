//! The streaming decode step: one launch in which every SM reads its share of all weights without pause.
//!
//! # A block
//! One block per SM, of ten warps. Eight *consumers* multiply, a *producer* loads weights, a *results* warp uses
//! the products. A phase is a record in device memory ([`task::Task`]): a row of the embedding, matrices times a
//! vector, or attention. Every warp works through the list of phases by itself.
//!
//! The producer copies the block's tiles of all phases, in order, to a ring in shared memory, and waits for
//! nothing but room there: weights do not depend on activations, so memory stays busy while blocks wait for each
//! other. On Hopper these are bulk copies that one lane starts, else asynchronous copies of all lanes. A slot of
//! the ring holds two neighbouring tiles for two consumers; a barrier object says that it is full, another that
//! both have read it. Slots always belong to the same consumers, and a slot of a group of columns that has none
//! passes without bytes: else a warp could take a lap of the ring for the one before.
//!
//! # Products
//! A consumer takes every eighth column of tiles, 256 values of each row. It needs only those 256 values of the
//! input (or every eighth 256), receives and quantizes them itself, and shares them with no other warp. The
//! tensor cores multiply: see `operands`. A value of the input is two signed bytes, high and low, which are
//! two columns of the right factor; the eight columns are both bytes for the four units of a lane group, so a
//! lane receives integer sums of its own units, which it scales as the type defines. Another sequence would be
//! another right factor for the same unpacked weights. Weights that are not quantized are multiplied in single
//! precision (`numbers`); a slot of the ring has some of their rows (`rows`).
//!
//! The eight partial sums of a row meet in shared memory, two buffers of eight tiles alternately, guarded by
//! barrier objects. The results warp adds them, applies the norm's factor, and does what follows: rotation,
//! SiLU, the residual, the choice of a token.
//!
//! # Exchange
//! Blocks exchange activations through packets of 16 bytes in device memory: four values of 24 bits and the
//! number of the phase that wrote them, stored and loaded as one. A reader polls the packets that it needs until
//! all have the expected number. Nothing is counted or fenced. Phase numbers go up with every step. A packet is
//! overwritten one layer later at the earliest: what is written then depends on all that was computed from it.
//!
//! # Attention
//! The consumers attend; the block's other warps go on. Rows of the cache are fetched before the query arrives.
//! The newest key and value arrive as packets with the query, in every block that needs them; one of these also
//! writes them to the cache, for later steps. There is code for few positions (`near`), for many on the
//! tensor cores (`far`), and for caches in q8_0 and norms of heads up to some positions (`attend`).
//!
//! # Variants
//! Code for few types of weights is faster, and layers of another style have code of their own: see
//! [`variant`].
//!
//! All blocks must be resident together. Waiting is bounded and ends in a trap.

mod attend;
mod block;
mod cached;
mod far;
mod head_norm;
mod input;
pub(crate) mod kernel;
mod layer_norm;
pub mod layout;
mod near;
mod numbers;
mod operands;
mod producer;
mod products;
mod record;
mod results;
mod rows;
mod share;
pub mod sync;
pub mod task;
pub mod variant;
