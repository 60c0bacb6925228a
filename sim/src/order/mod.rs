//! Order of a machine's work: launches, copies, and the program on the CPU.
//!
//! [`known::Known`] says which work has ended before another, [`shadow::Shadow`] who accessed each word of
//! memory last, and [`ledger::Ledger`] keeps both: the GPU's front end reports to it what the methods of
//! pushbuffers order, and everything that accesses memory asks it whether an earlier access is ordered before.
//!
//! Memory is named by its address in this process, so that all mappings of a buffer are one.

pub(crate) mod known;
pub(crate) mod ledger;
pub(crate) mod shadow;
#[cfg(test)]
mod tests;
pub(crate) mod work;
