//! A channel and its GPFIFO ring: entries, `GP_PUT`, publishing order, doorbell.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::address::GpuVa;
use crate::backend::{Backend, ChannelId, ChannelRequest, RawChannel};
use crate::error::Error;
use crate::observer::Observer;
use crate::process::Process;
use crate::serial::reached;
use crate::sync::store_barrier;

/// Byte offset of `GP_PUT` in USERD (`clc76f.h`, the same in all later channel classes).
pub(crate) const GP_PUT: usize = 0x8c;

/// Most dwords one entry can name: 21 bits.
pub(crate) const MAX_DWORDS: usize = (1 << 21) - 1;

/// One ring entry: a stretch of pushbuffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Its address, below 2^40 and a multiple of 4.
    pub va: GpuVa,
    /// Its length in dwords, 1 to [`MAX_DWORDS`].
    pub dwords: u32,
}

impl Segment {
    /// As the hardware reads it: address in bits 39:2, length in 62:42, the level of a subroutine in 41.
    pub fn entry(self, subroutine: bool) -> u64 {
        self.va.raw() | u64::from(self.dwords) << 42 | u64::from(subroutine) << 41
    }
}

/// Free entries: index arithmetic, apart from the memory it is about.
#[derive(Debug)]
pub(crate) struct Slots {
    entries: u32,
    put: u32,
    used: u32,
    /// Timeline value and number of entries of each submission in flight.
    in_flight: VecDeque<(u64, u32)>,
}

impl Slots {
    /// `entries` is a power of two; one of them always stays unused, since a full ring would look empty.
    pub fn new(entries: u32) -> Self {
        Self { entries, put: 0, used: 0, in_flight: VecDeque::new() }
    }

    /// Whether `count` entries are free when the timeline stands at `completed`.
    pub fn has_room(&mut self, count: u32, completed: u64) -> bool {
        while let Some(&(value, entries)) = self.in_flight.front() {
            if !reached(completed, value) {
                break;
            }
            self.used -= entries;
            self.in_flight.pop_front();
        }
        self.used + count < self.entries
    }

    /// The value to wait for so that entries become free.
    pub fn oldest(&self) -> Option<u64> {
        self.in_flight.front().map(|&(value, _)| value)
    }

    /// The index of the next entry; it becomes part of the submission that signals `value` with
    /// [`seal`](Self::seal).
    fn next(&mut self) -> u32 {
        let index = self.put;
        self.put = (self.put + 1) & (self.entries - 1);
        self.used += 1;
        index
    }

    fn seal(&mut self, value: u64, entries: u32) {
        self.in_flight.push_back((value, entries));
    }
}

/// A channel that the driver has made, and keeps until this is dropped: ring and USERD are mapped as long.
pub(crate) struct OwnedChannel {
    raw: RawChannel,
    process: Process,
    backend: Arc<dyn Backend>,
}

impl Drop for OwnedChannel {
    fn drop(&mut self) {
        // In a fork it stays the parent's.
        if self.process.is_current() {
            self.backend.destroy_channel(self.raw.id);
        }
    }
}

/// A channel and its ring.
pub(crate) struct Gpfifo {
    id: ChannelId,
    /// `None` once it is closed.
    channel: Option<OwnedChannel>,
    slots: Slots,
    /// Whether entries are marked as subroutines (bit 41, `LEVEL`), as those that ran on an Orin were
    /// (`HCQ_CONSERVATIVE=1`). The mark selects the GET register that shows the address, and nothing else.
    pub subroutines: bool,
}

impl fmt::Debug for Gpfifo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gpfifo").field("id", &self.id).field("slots", &self.slots).finish_non_exhaustive()
    }
}

impl Gpfifo {
    /// A channel of its own, with an empty ring.
    pub fn new(backend: &Arc<dyn Backend>, request: &ChannelRequest) -> Result<Self, Error> {
        let (process, backend) = (Process::current(), backend.clone());
        let raw = backend.create_channel(request)?;
        let (id, slots) = (raw.id, Slots::new(request.entries));
        Ok(Self { id, channel: Some(OwnedChannel { raw, process, backend }), slots, subroutines: false })
    }

    /// The channel's name.
    pub fn id(&self) -> ChannelId {
        self.id
    }

    /// Gives the channel up, to be closed by dropping it. Nothing is published any more.
    pub fn close(&mut self) -> Option<OwnedChannel> {
        self.channel.take()
    }

    /// The ring's bookkeeping.
    pub fn slots(&mut self) -> &mut Slots {
        &mut self.slots
    }

    /// Publishes `segments` as the submission that signals `value`, and rings the doorbell. The caller has
    /// checked for room.
    pub fn publish(&mut self, segments: &[Segment], value: u64, observer: &dyn Observer) {
        let Some(OwnedChannel { raw, backend, .. }) = &self.channel else { return };
        for segment in segments {
            let index = self.slots.next() as usize;
            // SAFETY: the index is below the number of entries, and the ring is mapped and 8-byte aligned as
            // long as the channel is owned.
            unsafe { AtomicU64::from_ptr(raw.ring.as_ptr().add(index)) }
                .store(segment.entry(self.subroutines), Ordering::Relaxed);
        }
        self.slots.seal(value, segments.len() as u32);
        store_barrier();
        observer.submitted(raw.token, self.slots.put);
        // SAFETY: USERD is 512 mapped bytes, 4-byte aligned, mapped as long as the ring.
        let put = unsafe { AtomicU32::from_ptr(raw.userd.as_ptr().add(GP_PUT).cast()) };
        put.store(self.slots.put, Ordering::Release);
        store_barrier();
        backend.ring_doorbell(raw.token);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::Engine;
    use crate::backend::tests::Books;
    use crate::observer::Unobserved;
    use proptest::prelude::*;

    #[test]
    fn an_entry_equals_the_golden_value() {
        let segment = Segment { va: GpuVa::inside(0x1_2345_6780), dwords: 10 };
        assert_eq!(segment.entry(false), 0x0000_2801_2345_6780);
        assert_eq!(segment.entry(true), 0x0000_2a01_2345_6780);
        // The one that ran on an Orin (hcq/tests/data/field-requests.txt, trace release).
        let segment = Segment { va: GpuVa::inside(0xff_ffa0_1000), dwords: 6 };
        assert_eq!(segment.entry(true), 0x0000_1aff_ffa0_1000);
        let longest = Segment { va: GpuVa::inside(0), dwords: MAX_DWORDS as u32 };
        assert_eq!(longest.entry(false) >> 63, 0);
    }

    proptest! {
        /// An entry is overwritten only after the submission it belonged to has completed.
        #[test]
        fn the_ring_never_overtakes_the_gpu(ops in prop::collection::vec((1u32..4, any::<bool>()), 1..200), start in any::<u64>()) {
            const ENTRIES: u32 = 8;
            let books = Books::new(usize::MAX);
            let request = ChannelRequest { engine: Engine::Copy, entries: ENTRIES, va: None };
            let mut fifo = Gpfifo::new(books.core().backend(), &request).unwrap();
            let (mut completed, mut value) = (start, start);
            let mut owner: [Option<u64>; ENTRIES as usize] = [None; ENTRIES as usize];
            let mut put = 0;
            for (count, complete) in ops {
                if complete && completed != value {
                    completed = completed.wrapping_add(1);
                }
                let in_flight = owner.iter().flatten().filter(|v| !reached(completed, **v)).count() as u32;
                let room = fifo.slots().has_room(count, completed);
                prop_assert_eq!(room, in_flight + count < ENTRIES);
                if !room { continue }
                value = value.wrapping_add(1);
                let segments = vec![Segment { va: GpuVa::inside(0x1000), dwords: count }; count as usize];
                fifo.publish(&segments, value, &Unobserved);
                for _ in 0..count {
                    prop_assert!(owner[put].is_none_or(|v| reached(completed, v)));
                    owner[put] = Some(value);
                    put = (put + 1) % ENTRIES as usize;
                }
                prop_assert_eq!(books.userd_word(fifo.id(), GP_PUT), put as u32);
            }
        }
    }
}
