//! Where memory waits whose owner is gone, until the submissions that name it have completed.

use std::any::Any;
use std::sync::{Arc, Mutex};

use crate::submission::uses::Uses;
use crate::sync::lock;

/// Something that is dropped when submissions have completed: memory, a slot, a timeline.
pub(crate) type Keep = Arc<dyn Any + Send + Sync>;

struct Retired {
    uses: Uses,
    _kept: Vec<Keep>,
}

/// What waits.
#[derive(Default)]
pub(crate) struct Limbo(Mutex<Vec<Retired>>);

impl Limbo {
    /// Keeps `kept` until the submissions in `uses` are over.
    pub fn retire(&self, uses: Uses, kept: impl IntoIterator<Item = Keep>) {
        if !uses.are_over() {
            let kept = kept.into_iter().collect();
            lock(&self.0).push(Retired { uses, _kept: kept });
        }
    }

    /// Drops what is no longer in use.
    pub fn collect(&self) {
        let mut waiting = lock(&self.0);
        let over: Vec<Retired> = waiting.extract_if(.., |r| r.uses.are_over()).collect();
        drop(waiting);
        // Outside the lock, because it frees memory.
        drop(over);
    }
}
