//! The C library as its users have it: compiled by the C compiler, linked, and run on the software GPU.

mod examples;
mod handles;
mod header;
mod installed;
mod programs;
