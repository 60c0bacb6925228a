//! The subcommands, one module each: arguments in, report out.

pub mod bringup;
pub mod completions;
pub mod disasm;
pub mod doctor;
pub mod esr;
pub mod finding;
mod follow;
pub mod info;
mod input;
mod keeper;
mod kernel_log;
pub mod list;
mod live;
pub mod man;
mod pictures;
mod process;
pub mod provoke;
pub mod pushbuf;
pub mod qmd;
mod register;
pub mod show;
mod snapshot;
mod store;
pub mod terminal;
pub mod trace;
pub mod vamap;
pub mod watch;
