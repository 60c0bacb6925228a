//! The buffers that a graph names, and how often: one that nothing names any more is let go.

use std::collections::HashMap;
use std::ops::Range;

use crate::objects::buffer::Buffer;

/// An argument of a launch: the number of the launch, and that of the argument.
type Place = (usize, usize);

/// The buffers that a graph's launches and copies name.
#[derive(Default)]
pub(crate) struct Named {
    places: HashMap<Place, Buffer>,
    /// Each buffer by its number, and how many arguments and copies name it.
    counts: HashMap<u64, (Buffer, usize)>,
}

impl Named {
    /// A copy names `buffer`, as long as the graph lives.
    pub fn keep(&mut self, buffer: &Buffer) {
        self.counts.entry(buffer.id()).or_insert_with(|| (buffer.clone(), 0)).1 += 1;
    }

    /// The arguments of a launch in the range become others, of which `new` are addresses: numbered from the
    /// start of the range. Returns the buffers that nothing names any more.
    pub fn replace<'a>(
        &mut self,
        launch: usize,
        arguments: Range<usize>,
        new: impl Iterator<Item = (usize, &'a Buffer)>,
    ) -> Vec<Buffer> {
        let first = arguments.start;
        let before: Vec<Buffer> =
            arguments.filter_map(|argument| self.places.remove(&(launch, argument))).collect();
        for (at, buffer) in new {
            self.keep(buffer);
            self.places.insert((launch, first + at), buffer.clone());
        }
        before.into_iter().filter(|buffer| self.let_go(buffer)).collect()
    }

    /// One place less names `buffer`; whether that was the last.
    fn let_go(&mut self, buffer: &Buffer) -> bool {
        let Some((_, count)) = self.counts.get_mut(&buffer.id()) else { return false };
        *count -= 1;
        *count == 0 && self.counts.remove(&buffer.id()).is_some()
    }

    /// All of them, each once.
    pub fn buffers(&self) -> impl Iterator<Item = &Buffer> {
        self.counts.values().map(|(buffer, _)| buffer)
    }
}
