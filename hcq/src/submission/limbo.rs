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
    /// Keeps `kept` until the submissions in `uses` have ended.
    pub fn retire(&self, uses: Uses, kept: impl IntoIterator<Item = Keep>) {
        if !uses.have_ended() {
            let kept = kept.into_iter().collect();
            lock(&self.0).push(Retired { uses, _kept: kept });
        }
    }

    /// Drops what is no longer in use.
    pub fn collect(&self) {
        let mut waiting = lock(&self.0);
        let over: Vec<Retired> = waiting.extract_if(.., |r| r.uses.have_ended()).collect();
        drop(waiting);
        // Outside the lock, because it frees memory.
        drop(over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::tests::Books;
    use crate::backend::{ChannelId, MemoryKind};
    use crate::submission::timeline::{Slot, Timeline};

    #[test]
    fn memory_goes_back_when_the_submission_that_names_it_is_over() {
        let books = Books::new(usize::MAX);
        let (core, limbo) = (books.core(), Limbo::default());
        let timeline = Arc::new(Timeline::new(&core, ChannelId(1), Slot::new(&core, 0).unwrap()));
        let piece = |what| Arc::new(core.alloc(64, MemoryKind::Device, what).unwrap());
        let live =
            || core.memory().mappings().iter().map(|m| m.what).filter(|what| *what != "signal").count();
        limbo.retire(Uses::default(), [piece("idle") as Keep]);
        assert_eq!(live(), 0, "nothing uses it");
        let uses = Uses::default();
        uses.mark(&timeline, 1);
        limbo.retire(uses, [piece("busy") as Keep]);
        limbo.collect();
        assert_eq!(live(), 1);
        books.poke(timeline.va(), 1);
        assert_eq!(live(), 1, "until something collects");
        limbo.collect();
        assert_eq!(live(), 0);
    }
}
