//! The process that sent a request: its memory and its descriptors.

use crate::caller::message::{Head, LIMIT, ask, kind};
use nix::errno::Errno;
use std::cell::RefCell;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

thread_local! {
    static VISITOR: RefCell<Option<Rc<Visitor>>> = const { RefCell::new(None) };
}

/// The visitor whose request the calling thread serves.
pub(crate) fn visitor() -> Option<Rc<Visitor>> {
    VISITOR.with_borrow(Clone::clone)
}

/// Runs `f`, which serves a request of `visitor`.
pub(crate) fn serving<R>(visitor: &Rc<Visitor>, f: impl FnOnce() -> R) -> R {
    VISITOR.set(Some(Rc::clone(visitor)));
    let result = f();
    VISITOR.set(None);
    result
}

/// A process that queries the machine.
#[derive(Debug)]
pub(crate) struct Visitor {
    pub(crate) socket: OwnedFd,
}

impl Visitor {
    /// Reads `len` bytes of its memory.
    pub(crate) fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let part = LIMIT.min(len - bytes.len());
            let at = address.wrapping_add(bytes.len() as u64);
            let head = Head { kind: kind::READ, address: at, len: part as u64, ..Head::default() };
            let answer = ask(self.socket.as_fd(), head, &[], None)?;
            answer.result()?;
            if answer.content.len() != part {
                return Err(Errno::EFAULT);
            }
            bytes.extend_from_slice(&answer.content);
        }
        Ok(bytes)
    }

    /// Writes to its memory.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        for (i, part) in bytes.chunks(LIMIT).enumerate() {
            let at = address.wrapping_add((i * LIMIT) as u64);
            let head = Head { kind: kind::WRITE, address: at, ..Head::default() };
            ask(self.socket.as_fd(), head, part, None)?.result()?;
        }
        Ok(())
    }

    /// A copy of the descriptor that has that number there.
    pub(crate) fn descriptor(&self, number: i32) -> Option<OwnedFd> {
        let head = Head { kind: kind::DESCRIPTOR, number: number.cast_unsigned(), ..Head::default() };
        ask(self.socket.as_fd(), head, &[], None).ok()?.fd
    }
}
