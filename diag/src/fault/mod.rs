//! Faults: from log lines and registers to what happened, where, to which instruction, why, and what to try.
//!
//! # Layers
//! ```text
//! explanation  explain lookup                         # an incident to its report
//! stories      story                               # which fault leads to which
//! verdicts     advice blame chip judge records suspects  # what failed first, why, whose fault, what to try
//! report       marks page report                   # the report, as text, page and picture
//! lines        front_end incident message repeats  # lines of the log that belong together
//! registers    causes host mmu sm                  # what registers and codes say
//! ```

mod advice;
mod blame;
mod causes;
mod chip;
pub(crate) mod explain;
mod front_end;
mod host;
pub(crate) mod incident;
mod judge;
mod lookup;
mod marks;
pub(crate) mod message;
pub mod mmu;
mod page;
mod records;
mod repeats;
pub(crate) mod report;
pub mod sm;
pub(crate) mod story;
mod suspects;

pub use explain::explain;
pub use front_end::unit_exception;
pub use host::{MethodHeader, notifier_words, ring_entry};
pub use incident::{Grouper, Incident};
pub use judge::{Judgement, Sure};
pub use lookup::{Explained, Explanations, explain_word};
pub use message::DriverMessage;
pub use repeats::Repeats;
pub use report::{Evidence, FaultList, FaultReport, Owner, Subject, UnknownLine, What, WindowTrap};
pub use story::Link;
