//! Tests of the crate, one module per subject.

mod forms;
mod golden;
mod lint;
mod listings;
mod registers;
mod robust;
