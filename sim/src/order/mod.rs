//! Order of a machine's work: launches, copies, and the program on the CPU.
//!
//! [`known::Known`] is the set of work that has ended before another, [`shadow::Shadow`] has the last
//! accesses to each word of memory, and [`ledger::Ledger`] keeps both: the GPU's front end reports to it the
//! order that the methods of pushbuffers establish, and for every access to memory it answers whether an
//! earlier access is ordered before.
//!
//! Memory is named by its address in this process, so that all mappings of a buffer are one.

pub(crate) mod access;
pub(crate) mod known;
pub(crate) mod ledger;
pub(crate) mod shadow;
#[cfg(test)]
mod tests;
pub(crate) mod work;
