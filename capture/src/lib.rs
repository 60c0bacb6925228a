#![doc = include_str!("../README.md")]
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! watch   process watcher                        # a process that is watched, from its first request
//! reader  reader scanner uploads                 # rings and pushbuffers, read
//! values  limits maps mark record requests ring  # what is read, and how much
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
pub use record::{Channel, Content, Entry, Launch, MOST_BYTES, MOST_CODE, MOST_CONSTANTS, Record};
pub use watcher::Watcher;
