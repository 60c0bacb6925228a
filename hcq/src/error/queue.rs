//! Why a queue does not take work, or does not complete it.

use std::time::Duration;

use nv_hw::Shown;

use crate::address::Bytes;

/// Why a queue was not opened, did not take work, or did not complete it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueueError {
    /// The device has as many queues as its driver lets one device have.
    #[error("the device has {limit} queues, the most that its driver lets one device have")]
    TooMany {
        /// How many there can be.
        limit: usize,
    },
    /// The operation needs another kind of queue.
    #[error("a {queue} queue cannot {operation}")]
    WrongQueue {
        /// The kind of queue.
        queue: &'static str,
        /// The operation asked for.
        operation: &'static str,
    },
    /// One submission needs more memory than its ring has.
    #[error("{what} needs {}, its ring holds {}", Bytes(*len), Bytes(*capacity))]
    RingTooSmall {
        /// Which object.
        what: &'static str,
        /// The bytes that it needs.
        len: u64,
        /// The bytes that there are.
        capacity: u64,
    },
    /// The GPU did not reach a point in time.
    #[error(
        "the GPU did not finish {}: timeline stands at {reached}, waited for {wanted}{}",
        within(*limit),
        said(explanation)
    )]
    Timeout {
        /// The longest time that the call was to wait.
        limit: Duration,
        /// The value waited for.
        wanted: u64,
        /// The value last seen.
        reached: u64,
        /// Why, in the words of the software ga10b. Empty on hardware, which is silent.
        explanation: Vec<String>,
    },
    /// The work did not end within the device's patience when its queue was dropped, and was stopped.
    #[error("the work was stopped before its end: its queue was dropped, and it did not end in time")]
    Stopped,
    /// The work waits ([`Queue::wait_for`](crate::Queue::wait_for)) for work that was [`Stopped`](Self::Stopped),
    /// or follows work that does: it will never start.
    #[error(
        "the work cannot start: it waits for work of a queue that was dropped, and that did not end in time"
    )]
    Starved,
    /// The work asked about was never submitted, and its queue is gone.
    #[error("the work was discarded: its queue was dropped before it was submitted")]
    Discarded,
}

/// The time that a call was to wait at most; one that was not to wait only looked.
fn within(limit: Duration) -> String {
    match limit {
        Duration::ZERO => "yet".to_owned(),
        limit => format!("within {limit:?}"),
    }
}

fn said(explanation: &[String]) -> String {
    explanation.iter().map(|words| format!("; {}", Shown(words))).collect()
}
