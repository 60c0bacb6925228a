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
//! ```text
//! 0   demangle hex known_lines markup report size
//! 1   characteristics cubin doctor fat_binary gpfifo kernel_log page_table queue_metadata::description saved source symbolic
//! 2   device disassembly lint queue_metadata::comparison physical_dump process_map pushbuffer
//! 3   address_map queue_metadata trace
//! 4   fault::host fault::sm
//! 5   fault::causes fault::mmu
//! 6   fault::message fault::repeats fault::suspects
//! 7   fault::report
//! 8   fault::advice fault::front_end fault::incident fault::marks
//! 9   fault::blame fault::chip fault::page fault::records
//! 10  fault::explain
//! 11  fault provoke session
//! 12  bringup::outcome bringup::process bringup::settings
//! 13  bringup::llm_demo
//! 14  bringup::rig
//! 15  bringup::client bringup::kernels bringup::plan
//! 16  bringup::report bringup::steps
//! 17  bringup::bundle bringup::figures
//! 18  bringup
//! 19  cmd
//! ```

#![deny(unsafe_code)]

pub mod address_map;
#[allow(unsafe_code, reason = "requests to the driver, memory that the GPU shares, launches")]
pub mod bringup;
pub mod characteristics;
pub mod cubin;
mod demangle;
pub mod device;
pub mod disassembly;
pub mod doctor;
pub mod fat_binary;
pub mod fault;
pub mod gpfifo;
mod hex;
pub mod kernel_log;
pub mod known_lines;
pub mod lint;
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
