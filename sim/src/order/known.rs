//! Sets of work: that which has ended before other work begins.

use std::collections::{BTreeMap, BTreeSet};

/// Work of one line: a channel, or the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Line {
    /// All up to this number.
    upto: u32,
    /// Single ones after it.
    beyond: BTreeSet<u32>,
}

impl Line {
    fn settle(&mut self) {
        self.beyond = self.beyond.split_off(&self.upto.saturating_add(1));
        while self.beyond.remove(&self.upto.saturating_add(1)) {
            self.upto += 1;
        }
    }
}

/// A set of work. Each line numbers its own from 1 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Known(BTreeMap<u32, Line>);

impl Known {
    /// Adds one.
    pub(crate) fn insert(&mut self, line: u32, number: u32) {
        let known = self.0.entry(line).or_default();
        if number > known.upto {
            known.beyond.insert(number);
            known.settle();
        }
    }

    /// Adds all of a line up to a number.
    pub(crate) fn insert_all(&mut self, line: u32, upto: u32) {
        let known = self.0.entry(line).or_default();
        if upto > known.upto {
            known.upto = upto;
            known.settle();
        }
    }

    /// Adds what another set has.
    pub(crate) fn join(&mut self, other: &Self) {
        for (&line, theirs) in &other.0 {
            let own = self.0.entry(line).or_default();
            if own.upto >= theirs.upto && theirs.beyond.is_empty() {
                continue;
            }
            own.upto = own.upto.max(theirs.upto);
            own.beyond.extend(&theirs.beyond);
            own.settle();
        }
    }

    /// Whether one is in the set.
    pub(crate) fn contains(&self, line: u32, number: u32) -> bool {
        self.0.get(&line).is_some_and(|known| number <= known.upto || known.beyond.contains(&number))
    }
}

/// Work that has ended before a launch.
#[derive(Clone, Debug, Default)]
pub(crate) struct Before {
    /// State when its threads have waited, or when it begins.
    pub(crate) known: Known,
    /// State when it begins, where that may be before the work ahead of it has ended.
    pub(crate) early: Option<Known>,
}

impl Before {
    /// State of a launch that follows the predecessors of both.
    pub(crate) fn join(&mut self, other: &Self) {
        if self.early.is_some() || other.early.is_some() {
            let mut early = self.early.take().unwrap_or_else(|| self.known.clone());
            early.join(other.early.as_ref().unwrap_or(&other.known));
            self.early = Some(early);
        }
        self.known.join(&other.known);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// It is the set that it stands for, whatever was added in which order.
        #[test]
        fn it_has_what_was_added(
            ops in prop::collection::vec((any::<bool>(), any::<bool>(), 0u32..2, 1u32..20), 0..40),
        ) {
            let mut known = [Known::default(), Known::default()];
            let mut model = [BTreeSet::new(), BTreeSet::new()];
            for (which, all, line, number) in ops {
                let which = usize::from(which);
                if all {
                    known[which].insert_all(line, number);
                    model[which].extend((1..=number).map(|n| (line, n)));
                } else {
                    known[which].insert(line, number);
                    model[which].insert((line, number));
                }
            }
            let [mut both, other] = known;
            both.join(&other);
            for line in 0..2 {
                for number in 1..20 {
                    let wanted = model.iter().any(|set| set.contains(&(line, number)));
                    prop_assert_eq!(both.contains(line, number), wanted);
                }
            }
        }
    }
}
