//! A backend without a GPU, for tests of the layers above backends.

use std::collections::HashMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::*;
use crate::core::{Core, Explain, Position};
use crate::error::MemoryError;
use crate::error::report::FaultReport;
use crate::observer::Unobserved;
use crate::options::DeviceOptions;
use crate::sync::lock;

/// Memory that is also reached through its address: a vector may move, its words stay.
type Words = Vec<AtomicU64>;
/// Address, length and content of a mapping.
type Entry = (u64, u64, Words);

fn zeros(len: usize) -> Words {
    std::iter::repeat_with(AtomicU64::default).take(len).collect()
}

/// Keeps books of memory, and has channels that nothing ever runs on.
pub(crate) struct Books {
    info: Info,
    layout: Layout,
    live: Mutex<HashMap<u64, Entry>>,
    full_at: usize,
    /// Rings and USERD pages, by channel.
    channels: Mutex<HashMap<u64, [Words; 2]>>,
    next_channel: AtomicU64,
    /// Called when a doorbell rings.
    pub at_doorbell: Mutex<Option<Box<dyn Fn() + Send>>>,
    /// How often it was asked whether a channel was given up.
    asked: AtomicU64,
}

impl Books {
    /// Memory that is used up by `full_at` mappings.
    pub fn new(full_at: usize) -> Arc<Self> {
        const ARENA: Range<u64> = 0x10_0000_0000..0x10_2000_0000;
        let layout = Layout {
            low: ARENA,
            high: ARENA,
            shared_window: GpuVa::inside(0xfe_0000_0000),
            local_window: GpuVa::inside(0xfd_0000_0000),
            reserved: [0x10_0400_0000..0x10_0500_0000, 0x10_0800_0000..0x10_0900_0000],
            local_warps: 48,
            granule: 4096,
            channel_va: 0,
        };
        Arc::new(Self {
            info: nvgpu::tests::info(),
            layout,
            live: Mutex::default(),
            full_at,
            channels: Mutex::default(),
            next_channel: AtomicU64::new(1),
            at_doorbell: Mutex::default(),
            asked: AtomicU64::new(0),
        })
    }

    /// Address and length of what is mapped.
    pub fn mapped(&self) -> Vec<(u64, u64)> {
        lock(&self.live).values().map(|(va, len, _)| (*va, *len)).collect()
    }

    /// Does something with a word of memory, as the GPU does.
    fn with_word<T>(&self, va: GpuVa, then: impl FnOnce(&AtomicU64) -> T) -> T {
        let live = lock(&self.live);
        let (start, _, words) =
            live.values().find(|(at, len, _)| (*at..at + len).contains(&va.raw())).expect("mapped");
        then(&words[((va.raw() - *start) / 8) as usize])
    }

    /// Writes a word of memory.
    pub fn poke(&self, va: GpuVa, word: u64) {
        self.with_word(va, |at| at.store(word, Ordering::Release));
    }

    /// Reads a word of memory.
    pub fn peek(&self, va: GpuVa) -> u64 {
        self.with_word(va, |at| at.load(Ordering::Acquire))
    }

    /// An entry of a channel's ring.
    pub fn ring_entry(&self, channel: ChannelId, index: usize) -> u64 {
        lock(&self.channels)[&channel.0][0][index].load(Ordering::Relaxed)
    }

    /// Number of channels that there are.
    pub fn channels(&self) -> usize {
        lock(&self.channels).len()
    }

    /// How often somebody has asked whether a channel was given up.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
    }

    /// A word of a channel's USERD, at a byte offset.
    pub fn userd_word(&self, channel: ChannelId, at: usize) -> u32 {
        let channels = lock(&self.channels);
        let [_, userd] = &channels[&channel.0];
        (userd[at / 8].load(Ordering::Relaxed) >> (8 * (at % 8))) as u32
    }

    /// A device on it, whose waits give up soon.
    pub fn core(self: &Arc<Self>) -> Arc<Core> {
        struct Unexplained;
        impl Explain for Unexplained {
            fn explain(&self, _: &Core, _: Position, _: &RawFault) -> FaultReport {
                unreachable!("nothing faults here")
            }
        }
        let patience = std::time::Duration::from_millis(2);
        let options = DeviceOptions { patience, spin: Some(patience), ..DeviceOptions::default() };
        Core::new(self.clone(), Arc::new(Unobserved), options, Arc::new(Unexplained))
    }
}

impl Backend for Books {
    fn info(&self) -> &Info {
        &self.info
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn allocate(&self, request: &MemoryRequest) -> Result<Memory, Error> {
        let mut live = lock(&self.live);
        let (va, len) = (request.va.raw(), request.len);
        assert!(live.values().all(|(at, l, _)| va + len < *at || at + l < va), "mappings keep a gap");
        assert!(
            self.layout.reserved.iter().all(|w| va + len <= w.start || w.end <= va),
            "mapped in a window"
        );
        if live.len() >= self.full_at {
            return Err(Error::Memory(MemoryError::OutOfAddresses { len: request.len }));
        }
        let words = zeros(len as usize / 8);
        let cpu = NonNull::new(words.as_ptr().cast_mut().cast());
        live.insert(va, (va, len, words));
        Ok(Memory { id: MemoryId(va), cpu })
    }

    fn free(&self, memory: MemoryId) -> Result<(), Error> {
        assert!(lock(&self.live).remove(&memory.0).is_some(), "freed twice");
        Ok(())
    }

    fn create_channel(&self, request: &ChannelRequest) -> Result<RawChannel, Error> {
        let id = self.next_channel.fetch_add(1, Ordering::Relaxed);
        let memory = [zeros(request.entries as usize), zeros(64)];
        let [ring, userd] =
            memory.each_ref().map(|words| NonNull::new(words.as_ptr().cast_mut()).expect("words"));
        let (ring, userd) = (ring.cast(), userd.cast());
        lock(&self.channels).insert(id, memory);
        Ok(RawChannel { id: ChannelId(id), ring, userd, token: 0 })
    }

    fn destroy_channel(&self, channel: ChannelId) {
        assert!(lock(&self.channels).remove(&channel.0).is_some(), "destroyed twice");
    }

    fn ring_doorbell(&self, _: u32) {
        lock(&self.at_doorbell).iter().for_each(|at_doorbell| at_doorbell());
    }

    fn channel_error(&self, _: ChannelId) -> Option<u32> {
        None
    }

    fn is_given_up(&self, _: ChannelId) -> bool {
        self.asked.fetch_add(1, Ordering::Relaxed);
        false
    }

    fn fault(&self, _: ChannelId) -> RawFault {
        RawFault::default()
    }

    fn gpu_time(&self) -> Result<u64, Error> {
        Ok(0)
    }
}
