//! The tables of memory against a backend that only keeps books.

use std::collections::HashMap;
use std::ops::Range;

use proptest::prelude::*;

use super::*;
use crate::backend::{ChannelId, ChannelRequest, Layout, RawChannel, RawFault};
use crate::info::Info;

/// Address, length and content of a mapping.
type Entry = (u64, u64, Box<[u64]>);

#[derive(Debug)]
struct Books {
    info: Info,
    layout: Layout,
    live: Mutex<HashMap<u64, Entry>>,
    full_at: usize,
}

impl Books {
    fn new(full_at: usize) -> (Arc<Self>, Arc<MemoryManager>) {
        const ARENA: Range<u64> = 0x10_0000_0000..0x10_2000_0000;
        let layout = Layout {
            low: ARENA,
            high: ARENA,
            shared_window: GpuVa::inside(0xfe_0000_0000),
            local_window: GpuVa::inside(0xfd_0000_0000),
            reserved: [0x10_0400_0000..0x10_0500_0000, 0x10_0800_0000..0x10_0900_0000],
            granule: 4096,
            channel_va: 0,
        };
        let info = crate::backend::nvgpu::tests::info();
        let books = Arc::new(Self { info, layout, live: Mutex::default(), full_at });
        (books.clone(), MemoryManager::new(books, true))
    }

    fn mapped(&self) -> Vec<(u64, u64)> {
        self.live.lock().unwrap().values().map(|(va, len, _)| (*va, *len)).collect()
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
        let mut live = self.live.lock().unwrap();
        let (va, len) = (request.va.raw(), request.len.count());
        assert!(live.values().all(|(at, l, _)| va + len < *at || at + l < va), "mappings keep a gap");
        assert!(
            self.layout.reserved.iter().all(|w| va + len <= w.start || w.end <= va),
            "mapped in a window"
        );
        if live.len() >= self.full_at {
            return Err(Error::OutOfAddresses { len: request.len });
        }
        let mut bytes = vec![0u64; len as usize / 8].into_boxed_slice();
        let cpu = NonNull::new(bytes.as_mut_ptr().cast());
        live.insert(va, (va, len, bytes));
        Ok(Memory { id: MemoryId(va), cpu })
    }

    fn free(&self, memory: MemoryId) -> Result<(), Error> {
        assert!(self.live.lock().unwrap().remove(&memory.0).is_some(), "freed twice");
        Ok(())
    }

    fn create_channel(&self, _: &ChannelRequest) -> Result<RawChannel, Error> {
        Err(Error::Discarded)
    }

    fn destroy_channel(&self, _: ChannelId) {}

    fn ring_doorbell(&self, _: u32) {}

    fn channel_error(&self, _: ChannelId) -> Option<u32> {
        None
    }

    fn fault(&self, _: ChannelId) -> RawFault {
        RawFault::default()
    }

    fn gpu_time(&self) -> Result<u64, Error> {
        Ok(0)
    }
}

#[derive(Clone, Debug)]
enum Op {
    Alloc { len: u64, kind: MemoryKind },
    Free { pick: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kind = prop_oneof![Just(MemoryKind::Device), Just(MemoryKind::Command), Just(MemoryKind::Shared)];
    let len = prop_oneof![1u64..600, 1u64..SMALL, SMALL..SMALL * 4];
    let op = prop_oneof![
        3 => (len, kind).prop_map(|(len, kind)| Op::Alloc { len, kind }),
        2 => any::<usize>().prop_map(|pick| Op::Free { pick }),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    /// Every piece keeps its own bytes, whatever comes and goes around it, and all memory goes back in the end.
    #[test]
    fn pieces_never_share_bytes(ops in ops()) {
        let (books, memory) = Books::new(usize::MAX);
        let mut live: Vec<(Piece, u8)> = Vec::new();
        for (i, op) in ops.into_iter().enumerate() {
            match op {
                Op::Alloc { len, kind } => {
                    let piece = memory.alloc(len, kind, "test").unwrap();
                    let tag = i as u8;
                    prop_assert!(piece.va().is_aligned(UNIT));
                    piece.write(0, &vec![tag; len as usize]).unwrap();
                    live.push((piece, tag));
                }
                Op::Free { pick } if !live.is_empty() => {
                    let (piece, tag) = live.swap_remove(pick % live.len());
                    let mut bytes = vec![0; piece.len() as usize];
                    piece.read(0, &mut bytes).unwrap();
                    prop_assert!(bytes.iter().all(|b| *b == tag));
                    drop(piece);
                }
                Op::Free { .. } => {}
            }
            prop_assert_eq!(memory.mappings().len(), live.len());
        }
        drop(live);
        prop_assert!(books.mapped().len() <= 3, "one spare chunk of each kind at most: {:?}", books.mapped());
    }
}

#[test]
fn a_failed_mapping_gives_its_addresses_back() {
    let (_books, memory) = Books::new(1);
    let first = memory.alloc(1 << 20, MemoryKind::Device, "test").unwrap();
    for _ in 0..1000 {
        assert!(memory.alloc(64 << 20, MemoryKind::Device, "test").is_err());
        assert!(memory.alloc(64, MemoryKind::Device, "test").is_err());
    }
    let va = first.va();
    drop(first);
    assert_eq!(memory.alloc(1 << 20, MemoryKind::Device, "test").unwrap().va(), va);
}

#[test]
fn a_hundred_thousand_allocations_use_the_addresses_of_a_few() {
    let (books, memory) = Books::new(usize::MAX);
    let mut live = std::collections::VecDeque::new();
    for i in 0..100_000u64 {
        let len = if i % 100 == 0 { SMALL + i } else { 1 + i * 7919 % SMALL };
        live.push_back(memory.alloc(len, MemoryKind::Device, "test").unwrap());
        if live.len() > 8 {
            drop(live.pop_front());
        }
    }
    assert!(books.mapped().len() < 16, "{:?}", books.mapped());
}

#[test]
fn the_neighbours_of_an_address_are_found() {
    let (_books, memory) = Books::new(usize::MAX);
    let a = memory.alloc(1 << 20, MemoryKind::Device, "a").unwrap();
    let b = memory.alloc(1 << 20, MemoryKind::Device, "b").unwrap();
    let (before, after) = memory.around(a.va().raw() + (1 << 20));
    assert_eq!((before.unwrap().what, after.unwrap().va), ("a", b.va()));
    assert_eq!(memory.around(0), (None, memory.around(a.va().raw()).0));
    assert!(matches!(a.write(1 << 20, &[1]), Err(Error::OutOfBounds { .. })));
    assert!(matches!(a.read(u64::MAX, &mut [1]), Err(Error::OutOfBounds { .. })));
}
