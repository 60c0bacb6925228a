//! Ring memory: command words, QMDs and arguments, reclaimed when the submission that used them is
//! done.
//!
//! Pure bookkeeping over offsets. A stretch that was handed out is handed out again only after the timeline
//! has reached the value of the submission it was sealed with.

use std::collections::VecDeque;

use crate::serial::reached;

/// Offsets of one ring of memory.
#[derive(Debug)]
pub(crate) struct Ring {
    capacity: u64,
    /// Bytes ever handed out, padding included; the next offset is this modulo the capacity.
    head: u64,
    /// Bytes ever reclaimed.
    tail: u64,
    /// Timeline value and `head` at the end of each sealed submission.
    sealed: VecDeque<(u64, u64)>,
}

impl Ring {
    /// An empty ring of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, head: 0, tail: 0, sealed: VecDeque::new() }
    }

    /// Bytes the ring holds.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Hands out `len` contiguous bytes aligned to `align` (a power of two that divides the capacity);
    /// `completed` is the timeline's value. `None` if they are not free yet.
    pub fn alloc(&mut self, len: u64, align: u64, completed: u64) -> Option<u64> {
        self.reclaim(completed);
        if len > self.capacity {
            return None;
        }
        let mut at = self.head.next_multiple_of(align);
        if at % self.capacity + len > self.capacity {
            at = at.next_multiple_of(self.capacity);
        }
        if at + len - self.tail > self.capacity {
            return None;
        }
        self.head = at + len;
        Some(at % self.capacity)
    }

    /// Everything handed out since the last seal belongs to the submission that signals `value`.
    pub fn seal(&mut self, value: u64) {
        if self.sealed.back().map_or(self.tail, |&(_, head)| head) != self.head {
            self.sealed.push_back((value, self.head));
        }
    }

    /// The value to wait for so that something becomes free; `None` if only unsealed stretches are in use.
    pub fn oldest(&self) -> Option<u64> {
        self.sealed.front().map(|&(value, _)| value)
    }

    fn reclaim(&mut self, completed: u64) {
        while let Some(&(value, head)) = self.sealed.front() {
            if !reached(completed, value) {
                break;
            }
            self.tail = head;
            self.sealed.pop_front();
        }
        if self.tail == self.head {
            // Nothing is in use: start at the front, so that the largest stretch is contiguous.
            self.head = self.head.next_multiple_of(self.capacity);
            self.tail = self.head;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Alloc { len: u64, align_log2: u32 },
        Seal,
        Complete { steps: u64 },
    }

    fn ops() -> impl Strategy<Value = Vec<Op>> {
        let op = prop_oneof![
            4 => (1u64..200, 0u32..7).prop_map(|(len, align_log2)| Op::Alloc { len, align_log2 }),
            2 => Just(Op::Seal),
            1 => (1u64..4).prop_map(|steps| Op::Complete { steps }),
        ];
        prop::collection::vec(op, 1..300)
    }

    proptest! {
        /// No byte that a submission in flight may read is handed out again.
        #[test]
        fn stretches_in_flight_never_overlap(ops in ops(), start in prop_oneof![Just(0u64), Just(u64::MAX - 10)]) {
            const CAPACITY: u64 = 1024;
            let mut ring = Ring::new(CAPACITY);
            let (mut next, mut completed) = (start.wrapping_add(1), start);
            let mut live: Vec<(u64, std::ops::Range<u64>)> = Vec::new();
            for op in ops {
                match op {
                    Op::Alloc { len, align_log2 } => {
                        let align = 1 << align_log2;
                        if let Some(at) = ring.alloc(len, align, completed) {
                            prop_assert_eq!(at % align, 0);
                            prop_assert!(at + len <= CAPACITY);
                            live.retain(|(value, _)| !reached(completed, *value));
                            prop_assert!(live.iter().all(|(_, r)| at + len <= r.start || r.end <= at));
                            live.push((next, at..at + len));
                        } else if live.iter().all(|(value, _)| reached(completed, *value)) {
                            prop_assert!(false, "an idle ring refused {} bytes", len);
                        }
                    }
                    Op::Seal => { ring.seal(next); next = next.wrapping_add(1); }
                    Op::Complete { steps } => {
                        let last = next.wrapping_sub(1);
                        completed = completed.wrapping_add(steps.min(last.wrapping_sub(completed)));
                    }
                }
            }
        }
    }

    #[test]
    fn an_idle_ring_hands_out_its_whole_length() {
        let mut ring = Ring::new(256);
        assert_eq!(ring.alloc(100, 4, 0), Some(0));
        ring.seal(1);
        assert_eq!(ring.alloc(256, 4, 0), None);
        assert_eq!(ring.oldest(), Some(1));
        assert_eq!(ring.alloc(256, 4, 1), Some(0));
        assert_eq!(ring.alloc(257, 4, 9), None);
    }
}
