//! Copies of the copy engine, compared with the program's notes on its memory.

use crate::findings::{Checks, Event, Finding, Findings};
use crate::gpu::sm::launch::Memory;

/// A line of a copy of the copy engine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Copied {
    /// First address that is read, if any is.
    pub(crate) from: Option<u64>,
    /// Bytes that are read.
    pub(crate) read: u64,
    /// First address that is written.
    pub(crate) to: u64,
    /// Bytes that are written.
    pub(crate) bytes: u64,
}

/// Compares a copy of the copy engine with the pieces.
pub(crate) fn check_copy(findings: &Findings, memory: &dyn Memory, copy: &Copied) {
    let Some(pieces) = memory.pieces() else { return };
    let Copied { from, to, bytes, read } = *copy;
    let source = from.and_then(|from| Some((pieces.copy_leaves(from, read)?, "reads")));
    let target = pieces.copy_leaves(to, bytes).map(|at| (at, "writes"));
    for (at, verb) in source.into_iter().chain(target) {
        let text = match pieces.freed(at) {
            Some(_) => format!("a copy {verb} memory that was freed"),
            None => format!("a copy {verb} global memory outside every buffer"),
        };
        let copy = match from {
            Some(from) => format!("copy of {bytes} bytes from {from:#x} to {to:#x}"),
            None => format!("fill of {bytes} bytes at {to:#x}"),
        };
        let event = Event { pc: 0, sass: copy, block: [0; 3], thread: [0; 3], source: None };
        let location = pieces.locate(at);
        findings.record(Finding {
            check: Checks::MEMORY,
            text,
            detail: String::new(),
            program: 0,
            kernel: None,
            event,
            address: Some(at),
            location,
            earlier: None,
            count: 1,
        });
    }
}
