//! The state of a machine for somebody else: files of the kernel and the drivers, versions that fit or do
//! not, and nothing that names a person, a machine or a network.
//!
//! Nothing is read here but through a [`Machine`](crate::doctor::Machine): a real one in the binary, a
//! written one in tests.

mod collect;
mod manifest;
mod redact;
mod sources;
mod versions;

pub use collect::{Absent, Collected, Copied, collect, listing};
pub use manifest::{Entry, Manifest};
pub use redact::Redactor;
pub use sources::{Kept, SUBJECTS, Subject};
pub use versions::{Library, Versions};
