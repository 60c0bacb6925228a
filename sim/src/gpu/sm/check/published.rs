//! Knowledge that atomic operations and strong stores have published, by the words of memory where it was.
//!
//! A participant that knows of a release knows all that it published. So a word has the releasing participant and
//! its clock, and a reader that knows these has nothing to learn.

use rustc_hash::FxHashMap;

use crate::gpu::sm::check::access::lanes;
use crate::gpu::sm::check::knowledge::Knowledge;

/// Participant of knowledge that several have published.
const SEVERAL: u32 = u32::MAX;

/// Last release at a word.
#[derive(Clone, Copy, Debug)]
struct Release {
    by: u32,
    clock: u32,
    /// The state with the knowledge that it published.
    state: u32,
    /// The first and the last lane that made it.
    lanes: (u8, u8),
}

/// Knowledge, and the number of words where it is.
#[derive(Debug, Default)]
struct State {
    words: u32,
    known: Knowledge,
}

/// Releases at the words of memory.
#[derive(Debug, Default)]
pub(super) struct Published {
    lines: FxHashMap<u64, Box<[Option<Release>; 32]>>,
    states: States,
}

#[derive(Debug, Default)]
struct States {
    all: Vec<State>,
    free: Vec<u32>,
}

/// Knowledge that a participant has gained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Learned {
    /// The clock up to which its own accesses were part of what others have published; 0 if none was.
    pub own: u32,
    /// Others have published it.
    pub others: bool,
}

impl States {
    /// The number of a state with this knowledge, which is at no word yet.
    fn add(&mut self, known: &Knowledge) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.all.push(State::default());
            (self.all.len() - 1) as u32
        });
        self.all[at as usize].known.clone_from(known);
        at
    }

    fn of(&mut self, at: u32) -> &mut State {
        &mut self.all[at as usize]
    }

    /// Adds knowledge to that of one word, which leaves state `at`; returns the state that the word has then.
    fn both(&mut self, at: u32, known: &Knowledge) -> u32 {
        if self.of(at).words == 1 {
            self.of(at).known.join(known);
            return at;
        }
        let mut both = self.of(at).known.clone();
        both.join(known);
        self.leave(at);
        let both = self.add(&both);
        self.of(both).words = 1;
        both
    }

    /// It is at one word less.
    fn leave(&mut self, at: u32) {
        let state = self.of(at);
        state.words -= 1;
        if state.words == 0 {
            self.free.push(at);
        }
    }

    /// Whether a participant's knowledge has all that a release published.
    #[inline]
    fn is_known(&self, release: &Release, id: u32, known: &Knowledge) -> bool {
        match release.by {
            SEVERAL => known.includes(&self.all[release.state as usize].known),
            by => by == id || known.has(by, release.clock),
        }
    }
}

impl Published {
    /// A participant publishes its knowledge, up to its own clock, at words of lines; `lanes_at` tells which lanes
    /// of it do so at a word of the n-th place.
    pub fn release(
        &mut self,
        (by, clock): (u32, u32),
        known: &Knowledge,
        places: impl Iterator<Item = (u64, u32)>,
        lanes_at: impl Fn(usize, u32) -> (u8, u8),
    ) {
        let Published { lines, states } = self;
        let (own, mut count) = (states.add(known), 0);
        for (n, (line, mask)) in places.enumerate() {
            let words = lines.entry(line).or_insert_with(|| Box::new([None; 32]));
            for word in lanes(mask) {
                let at = &mut words[word as usize];
                let mut new = Release { by, clock, state: own, lanes: lanes_at(n, word) };
                match *at {
                    Some(last) if !states.is_known(&last, by, known) => {
                        new = Release { by: SEVERAL, state: states.both(last.state, known), ..new };
                    }
                    last => {
                        count += 1;
                        last.iter().for_each(|last| states.leave(last.state));
                    }
                }
                *at = Some(new);
            }
        }
        match count {
            0 => states.free.push(own),
            _ => states.of(own).words = count,
        }
    }

    /// A participant with this knowledge learns what was published at words of a line. Shows `own` its own releases:
    /// the word, the clock, and the lanes.
    pub fn acquire(
        &mut self,
        id: u32,
        known: &mut Knowledge,
        (line, mask): (u64, u32),
        mut own: impl FnMut(u32, u32, (u8, u8)),
    ) -> Learned {
        let mut learned = Learned::default();
        let Some(words) = self.lines.get(&line) else { return learned };
        for word in lanes(mask) {
            let Some(Release { by, clock, state, lanes }) = words[word as usize] else { continue };
            if by == id {
                own(word, clock, lanes);
                continue;
            }
            learned.others = true;
            if by == SEVERAL || !known.has(by, clock) {
                let published = &self.states.all[state as usize].known;
                known.join(published);
                learned.own = learned.own.max(published.of(id));
            }
        }
        learned
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Readers learn what was published at each word, by whomever, and of states that no word has any more
        /// none is left.
        #[test]
        fn readers_learn_all_that_was_published_at_a_word(
            steps in prop::collection::vec((0u32..4, any::<bool>(), 0u64..2, any::<u32>()), 0..60),
        ) {
            let mut published = Published::default();
            let mut known: Vec<Knowledge> = vec![Knowledge::default(); 4];
            let mut clocks = [0u32; 4];
            let mut model: FxHashMap<u64, Knowledge> = FxHashMap::default();
            let mut model_known = known.clone();
            for (id, reads, line, mask) in steps {
                let at = id as usize;
                let mask = mask & 0x0f0f;
                if reads {
                    published.acquire(id, &mut known[at], (line, mask), |_, _, _| {});
                    for word in lanes(mask) {
                        let there = model.get(&(line * 32 + u64::from(word))).cloned().unwrap_or_default();
                        model_known[at].join(&there);
                    }
                } else {
                    clocks[at] += 1;
                    known[at].raise(id, clocks[at]);
                    model_known[at].raise(id, clocks[at]);
                    published.release((id, clocks[at]), &known[at], [(line, mask)].into_iter(), |_, _| (0, 0));
                    for word in lanes(mask) {
                        model.entry(line * 32 + u64::from(word)).or_default().join(&model_known[at]);
                    }
                }
                for other in 0..4 {
                    prop_assert_eq!(known[at].of(other), model_known[at].of(other));
                }
            }
            let states = &published.states;
            let used = states.all.iter().filter(|state| state.words > 0).count();
            prop_assert_eq!(used + states.free.len(), states.all.len());
        }
    }

    #[test]
    fn a_reader_learns_how_much_of_itself_was_published() {
        let (mut published, mut known) = (Published::default(), Knowledge::default());
        let word = |word: u32| (0, 1 << word);
        known.raise(3, 7);
        published.release((3, 7), &known, [word(1)].into_iter(), |n, word| (n as u8, word as u8 + 4));
        let mut own = Vec::new();
        let learned =
            published.acquire(3, &mut known, (0, 0b11), |word, clock, lanes| own.push((word, clock, lanes)));
        assert_eq!((learned, own.as_slice()), (Learned::default(), [(1, 7, (0, 5))].as_slice()));
        let mut other = Knowledge::default();
        let mut read = |id, known: &mut Knowledge, place| published.acquire(id, known, place, |_, _, _| {});
        assert_eq!(read(5, &mut other, word(0)), Learned::default());
        assert_eq!(read(5, &mut other, word(1)), Learned { own: 0, others: true });
        other.raise(5, 1);
        published.release((5, 1), &other, [word(1)].into_iter(), |_, _| (0, 0));
        let learned = published.acquire(3, &mut known, word(1), |_, _, _| {});
        assert_eq!(learned, Learned { own: 7, others: true });
    }
}
