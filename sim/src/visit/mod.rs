//! Access to a machine from another process, as a debugger has it on a real one.
//!
//! On a Jetson a second process copies descriptors of the first (`pidfd_getfd(2)`) and queries the driver with
//! them. The driver of a software machine is in the first process, so requests are sent there, over a
//! socket whose name is made from the number of that process: the descriptor is passed with the request, and
//! memory and descriptors that the argument names are requested in return. No permission to trace is needed
//! for that; both sides must belong to one user.

pub(crate) mod host;
pub(crate) mod remote;
