#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A module names only modules of smaller numbers.
//!
//! ```text
//! 0 limits maps mark ring uploads
//! 1 record requests scanner
//! 2 reader
//! 3 process
//! 4 watcher
//! ```

mod limits;
mod maps;
mod mark;
mod process;
mod reader;
mod record;
mod requests;
mod ring;
mod scanner;
mod uploads;
mod watcher;

pub use limits::Limits;
pub use mark::{TRACE_MARK, TraceMark};
pub use reader::{Memory, Reader};
pub use record::{Channel, Content, Entry, Launch, MOST_BYTES, Record};
pub use watcher::Watcher;
