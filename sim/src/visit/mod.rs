//! A look at a machine from another process, as a debugger has it on a real one.
//!
//! On a Jetson a second process copies descriptors of the first (`pidfd_getfd(2)`) and asks the driver about
//! them. The driver of a software machine lives in the first process, so requests are sent there, over a
//! socket whose name is made from the number of that process: the descriptor goes along with the request, and
//! memory and descriptors that the argument names are asked for in return. Nobody has to be allowed to trace
//! anybody for that; both sides must belong to one user.

pub(crate) mod host;
mod message;
pub(crate) mod remote;
pub(crate) mod visitor;
