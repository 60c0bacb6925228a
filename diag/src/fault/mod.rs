//! Faults: from log lines and registers to what happened, where, to which instruction, why, and what to try.

mod advice;
mod blame;
mod causes;
mod chip;
pub(crate) mod explain;
mod front_end;
mod host;
pub(crate) mod incident;
mod marks;
pub(crate) mod message;
pub mod mmu;
mod page;
mod records;
mod repeats;
pub(crate) mod report;
pub mod sm;
mod suspects;

pub use explain::explain;
pub use front_end::unit_exception;
pub use host::{MethodHeader, notifier_words, ring_entry};
pub use incident::{Grouper, Incident};
pub use message::DriverMessage;
pub use repeats::Repeats;
pub use report::{Evidence, FaultList, FaultReport, Owner, Subject, UnknownLine, What, WindowTrap};
