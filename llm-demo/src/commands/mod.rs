//! The commands: a file each, with a `run`.

pub mod bench;
pub mod chat;
pub mod generate;
pub mod greedy;
pub mod info;
pub mod logits;
pub mod manual;
pub mod predict;
pub mod predict_columns;
pub mod profile;
mod recording;
pub mod serve;
pub mod speculate;
pub mod synthesize;
pub mod tokenize;
pub mod tune;
pub mod verify;
