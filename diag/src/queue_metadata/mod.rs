//! QMDs: description of one, and differences between two.

mod comparison;
pub(crate) mod description;

pub use comparison::{Comparison, Difference, FieldValue, UnnamedDifference};
pub use description::{Complaint, ConstantBuffer, Dependent, Field, Launch, Metadata, Release, Unnamed};
