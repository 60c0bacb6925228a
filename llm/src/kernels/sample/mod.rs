//! The choice of a token by the rules of a [`Sampler`](crate::sampler::Sampler), with the same bits as on the
//! CPU: one block, launched after a step that has left its logits on the device.
//!
//! Tokens are ranked by the key of their distance to the largest logit, then by number. Most choices are among
//! few tokens: where the options bound them, those are collected in shared memory first, and each thread adds
//! up the weights of the tokens before one of them (`rank`). The bound of `top_k`: each thread finds the
//! largest of its own logits, and the `top_k`-th of these has at least `top_k` tokens at or above it, seldom
//! many more.
//!
//! Otherwise each rule is one search among all for a token by rank (`select`): the last of `top_k`, the one at
//! which `top_p` is reached, the drawn one. A search descends from the upper bits of the ranks in steps of 11:
//! it adds the weights of the tokens by these bits, and goes on in the group in which the sum passes the aim.
//! Weights are integers, so sums do not depend on the order of additions.

pub mod kernel;
pub(crate) mod rank;
pub(crate) mod select;
pub(crate) mod weigh;
