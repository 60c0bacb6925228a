//! Freed addresses that are not used again yet, so that what still names them is noticed.

use std::collections::VecDeque;

/// Most frees that wait.
const MOST: usize = 1024;
/// Most bytes of memory, not of addresses alone, that wait.
const MOST_BYTES: u64 = 32 << 20;

/// Freed values, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Quarantine<T> {
    waiting: VecDeque<(T, u64)>,
    bytes: u64,
}

impl<T> Quarantine<T> {
    /// Keeps addresses, and with them `bytes` of memory; gives those back that have waited long enough.
    pub fn put(&mut self, freed: T, bytes: u64) -> Vec<T> {
        self.waiting.push_back((freed, bytes));
        self.bytes += bytes;
        let mut out = Vec::new();
        while self.waiting.len() > MOST || self.bytes > MOST_BYTES {
            let Some((freed, bytes)) = self.waiting.pop_front() else { break };
            self.bytes -= bytes;
            out.push(freed);
        }
        out
    }

    /// Gives all back.
    pub fn take_all(&mut self) -> Vec<T> {
        self.bytes = 0;
        self.waiting.drain(..).map(|(freed, _)| freed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_leave_when_there_are_too_many() {
        let mut quarantine = Quarantine::default();
        for i in 0..MOST {
            assert!(quarantine.put(i, 0).is_empty());
        }
        assert_eq!(quarantine.put(MOST, 0), [0]);
        assert_eq!(quarantine.put(MOST + 1, MOST_BYTES), [1]);
        let out = quarantine.put(MOST + 2, 1);
        assert_eq!((out.first(), out.last()), (Some(&2), Some(&(MOST + 1))));
        assert_eq!((quarantine.take_all(), quarantine.bytes), (vec![MOST + 2], 0));
    }
}
