//! Memory that was freed and is kept for the next allocation of its size: asking the driver takes ten to a
//! hundred times as long.

use std::collections::VecDeque;

/// Most pieces that are kept.
const MOST: usize = 64;

#[derive(Debug)]
struct Entry<K, T> {
    kind: K,
    len: u64,
    item: T,
}

/// Kept values, oldest first: `T`s of a kind and a length.
#[derive(Debug)]
pub(crate) struct Kept<K, T> {
    entries: VecDeque<Entry<K, T>>,
    bytes: u64,
    /// Most bytes.
    limit: u64,
}

impl<K: Copy + PartialEq, T> Kept<K, T> {
    /// Nothing, and never more than `limit` bytes.
    pub fn new(limit: u64) -> Self {
        Self { entries: VecDeque::new(), bytes: 0, limit }
    }

    /// Keeps `item`; returns what has to go for it, or itself where it is too large.
    pub fn put(&mut self, kind: K, len: u64, item: T) -> Vec<T> {
        if len > self.limit {
            return vec![item];
        }
        self.bytes += len;
        self.entries.push_back(Entry { kind, len, item });
        let mut gone = Vec::new();
        while self.bytes > self.limit || self.entries.len() > MOST {
            let Some(oldest) = self.entries.pop_front() else { break };
            self.bytes -= oldest.len;
            gone.push(oldest.item);
        }
        gone
    }

    /// Takes the one of `kind` that fits `len` best: at most an eighth of it stays unused.
    pub fn take(&mut self, kind: K, len: u64) -> Option<T> {
        let most = len.saturating_add(len / 8);
        let fits = |e: &Entry<K, T>| e.kind == kind && (len..=most).contains(&e.len);
        let found = self.entries.iter().enumerate().filter(|(_, e)| fits(e)).min_by_key(|(_, e)| e.len)?.0;
        let entry = self.entries.remove(found)?;
        self.bytes -= entry.len;
        Some(entry.item)
    }

    /// Takes everything.
    pub fn take_all(&mut self) -> Vec<T> {
        self.bytes = 0;
        self.entries.drain(..).map(|e| e.item).collect()
    }

    /// Bytes that are kept.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Whatever comes and goes: the bound holds, nothing is lost or given twice, and what is given fits.
        #[test]
        fn the_bound_holds_and_nothing_is_lost(
            ops in prop::collection::vec((any::<bool>(), 0u8..2, 1u64..400), 1..200),
        ) {
            let mut kept = Kept::new(1000);
            let mut inside: Vec<(u8, u64, usize)> = Vec::new();
            for (id, (put, kind, len)) in ops.into_iter().enumerate() {
                if put {
                    inside.push((kind, len, id));
                    let gone = kept.put(kind, len, id);
                    prop_assert!(gone.iter().all(|g| inside.iter().any(|i| i.2 == *g)));
                    inside.retain(|i| !gone.contains(&i.2));
                } else {
                    let fits = |i: &&(u8, u64, usize)| i.0 == kind && len <= i.1 && i.1 <= len + len / 8;
                    let best = inside.iter().filter(fits).map(|i| i.1).min();
                    let taken = kept.take(kind, len);
                    let entry = inside.iter().find(|i| Some(i.2) == taken).copied();
                    prop_assert_eq!(entry.map(|i| i.1), best);
                    inside.retain(|i| Some(i.2) != taken);
                }
                prop_assert_eq!(kept.bytes(), inside.iter().map(|i| i.1).sum::<u64>());
                prop_assert!(kept.bytes() <= 1000);
            }
            let all = kept.take_all();
            prop_assert_eq!(all, inside.iter().map(|i| i.2).collect::<Vec<_>>());
            prop_assert_eq!(kept.bytes(), 0);
        }
    }

    #[test]
    fn no_more_goes_than_has_to() {
        let mut kept = Kept::new(1000);
        assert!(
            kept.put((), 400, 'a').is_empty() && kept.put((), 600, 'b').is_empty(),
            "all that is allowed"
        );
        assert_eq!(kept.put((), 1, 'c'), ['a'], "the oldest is enough");
        assert_eq!(kept.put((), 1001, 'd'), ['d'], "what can never be kept drives nothing out");
        assert_eq!(kept.put((), 1000, 'e'), ['b', 'c']);
        assert_eq!(kept.take_all(), ['e']);
    }

    #[test]
    fn there_are_never_more_than_so_many() {
        let mut kept = Kept::new(u64::MAX);
        for i in 0..MOST {
            assert!(kept.put((), 1, i).is_empty());
        }
        assert_eq!(kept.put((), 1, MOST), [0]);
    }
}
