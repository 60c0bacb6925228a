//! Last accesses to each word, to find accesses that nothing orders.

use std::collections::HashMap;

use crate::gpu::sm::check::order::Clocks;

/// Words of a page of shadows.
const PAGE: u64 = 256;
/// Readers since the last write that are remembered.
const READERS: usize = 32;

/// An access to a word: participant and time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    /// Warp of the block, or block of the grid: whose clock it is.
    pub id: u32,
    /// Its clock.
    pub clock: u32,
    /// Op of the program.
    pub pc: u32,
    /// Thread of the block.
    pub thread: u32,
    /// Bytes of the word.
    pub bytes: u8,
    pub atomic: bool,
}

/// Kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Load,
    /// A store that changes the word, or not.
    Store {
        changes: bool,
    },
    Atomic,
    /// An arrival at a barrier object, whose waits are loads, on SM 8.x plain ones.
    Arrival,
}

#[derive(Clone, Debug, Default)]
struct Word {
    writer: Option<Mark>,
    readers: Vec<Mark>,
}

/// The last accesses to each word of a memory.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    pages: HashMap<u64, Vec<Word>>,
}

impl Mark {
    /// Whether nothing orders this access with a later one of which at least one is a write.
    pub fn conflicts(&self, later: &Mark, clocks: &Clocks) -> bool {
        self.bytes & later.bytes != 0
            && !(self.atomic && later.atomic)
            && !clocks.knows(later.id, self.id, self.clock)
    }
}

impl Shadow {
    fn word(&mut self, word: u64) -> &mut Word {
        let page = self.pages.entry(word / PAGE).or_insert_with(|| vec![Word::default(); PAGE as usize]);
        &mut page[(word % PAGE) as usize]
    }

    /// The write that nothing orders with a read of a word.
    pub fn unordered_write(&mut self, clocks: &Clocks, word: u64, mark: &Mark) -> Option<Mark> {
        self.word(word).writer.filter(|old| old.conflicts(mark, clocks))
    }

    /// Notes a read of a word, which may be older than others of the same reader.
    pub fn note_read(&mut self, word: u64, mark: Mark) {
        let readers = &mut self.word(word).readers;
        let covers = |new: &Mark, old: &Mark| {
            new.id == old.id && new.clock >= old.clock && old.bytes & !new.bytes == 0
        };
        if readers.iter().any(|other| covers(other, &mark)) {
            return;
        }
        readers.retain(|old| !covers(&mark, old));
        if readers.len() < READERS {
            readers.push(mark);
        }
    }

    /// Notes an access to a word, whose number is `word`; gives an earlier one that nothing orders with it.
    pub fn access(&mut self, clocks: &Clocks, word: u64, mark: Mark, kind: Kind) -> Option<Mark> {
        if kind == Kind::Load {
            let earlier = self.unordered_write(clocks, word, &mark);
            self.note_read(word, mark);
            return earlier;
        }
        let Word { writer, readers } = self.word(word);
        let conflicts = |old: &&Mark| old.conflicts(&mark, clocks);
        let read = if kind == Kind::Arrival { None } else { readers.iter().find(conflicts) };
        let earlier = read.or_else(|| writer.as_ref().filter(conflicts)).copied();
        // A store of the value that is there already is a race too, but one without a consequence: flags that
        // all set.
        let harmless = kind == (Kind::Store { changes: false });
        readers.clear();
        *writer = Some(mark);
        earlier.filter(|_| !harmless)
    }
}
