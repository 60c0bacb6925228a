//! The server over HTTP, with a decoder on the CPU that fails on request.

mod answers;
mod batch;
mod doors;
mod echo;
mod embeddings;
mod failures;
mod fields;
mod fixture;
mod grammar;
mod limits;
mod requests;
mod responses;
mod tools;
