//! The commands: a file each, with a `run`.

pub mod bench;
pub mod chat;
pub mod dump_logits;
pub mod generate;
pub mod greedy;
pub mod manual;
pub mod predict;
pub mod profile;
mod recording;
pub mod synthesize;
pub mod tune;
pub mod verify;
