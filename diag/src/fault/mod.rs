//! Faults: from log lines and registers to what happened, where, to which instruction, why, and what to try.
//!
//! # Layers
//! ```text
//! explanation  explain lookup story                # an incident to its report; what follows from it; codes
//! verdicts     advice blame chip judge notes records suspects  # what failed first, why, whose, what to try
//! report       marks page report                   # the report, as text, page and picture
//! lines        front_end incident message repeats  # lines of the log that belong together
//! registers    causes host judgement mmu sm        # what registers and codes say
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
mod judgement;
mod lookup;
mod marks;
pub(crate) mod message;
pub mod mmu;
mod notes;
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
pub use judgement::{Judgement, Link, Sure};
pub use lookup::{Explained, Explanations, explain_word};
pub use message::DriverMessage;
pub use repeats::Repeats;
pub use report::{Evidence, FaultList, FaultReport, Owner, Subject, UnknownLine, What, WindowTrap};
