//! Decoding for diagnostics: contents of drivers' messages, dumps and binaries as values that explain
//! themselves.
//!
//! Nothing here opens a file, and nothing but the steps of [`bringup`] a device: the `nvdiag` binary does
//! that, and prints what these modules return. Every report prints as text ([`Report::print`]) and serializes to a versioned JSON document
//! ([`Report::json`]).
//!
//! ```
//! use nvdiag::{Report, queue_metadata};
//! use qmd::{Launch, Target};
//!
//! let bytes = Launch::new(Target::Sm87).program(0x1000, 0).registers(16).build()?;
//! let report = queue_metadata::Metadata::read(bytes.as_bytes())?;
//! assert!(!report.has_problem());
//! assert_eq!(report.json()?["schema"], "nvdiag.qmd/1");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//! A folder or file names only what stands below it, or beside it in one direction.
//!
//! ```text
//! program    cmd                               # the subcommands of the program
//! steps      bringup                           # the first hour with a machine
//! faults     fault gpu_core provoke saved session  # faults explained, made, kept, found in a log
//! processes  address_map process_map trace     # what a process maps and calls
//! work       checked gpfifo machine_report pushbuffer queue_metadata  # work of a channel, and mistakes in it; a machine for a ticket
//! machines   characteristics device doctor kernel_log page_table physical_dump  # what a machine reports
//! code       cubin disassembly fat_binary lint source symbolic  # machine code and where it came from
//! text       archive catalogue demangle document hex known_lines markup report size  # how things are written
//! ```

#![deny(unsafe_code)]

pub mod address_map;
pub mod archive;
#[allow(unsafe_code, reason = "requests to the driver, memory that the GPU shares, launches")]
pub mod bringup;
pub mod catalogue;
pub mod characteristics;
pub mod checked;
pub mod cubin;
mod demangle;
pub mod device;
pub mod disassembly;
pub mod doctor;
pub mod document;
pub mod fat_binary;
pub mod fault;
pub mod gpfifo;
pub mod gpu_core;
mod hex;
pub mod kernel_log;
pub mod known_lines;
pub mod lint;
pub mod machine_report;
mod markup;
pub mod page_table;
pub mod physical_dump;
pub mod process_map;
pub mod provoke;
pub mod pushbuffer;
pub mod queue_metadata;
mod report;
pub mod saved;
pub mod session;
mod size;
pub mod source;
mod symbolic;
pub mod trace;

pub use demangle::demangled;
pub use hex::Hex;
pub use report::{Report, style};
