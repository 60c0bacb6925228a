//! Tests of the crate, one module per subject.

mod bringup;
mod chat;
mod cli;
mod commands;
mod constraints;
mod files;
mod limits;
mod program;
mod serve;
mod sessions;
mod silent;
mod speculate;
