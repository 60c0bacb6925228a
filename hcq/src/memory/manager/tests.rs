//! The tables of memory against a backend that only keeps books.

use proptest::prelude::*;

use super::*;
use crate::backend::tests::Books;
use crate::observer::{Spacing, Unobserved};

fn memory(full_at: usize) -> (Arc<Books>, Arc<MemoryManager>) {
    let books = Books::new(full_at);
    (books.clone(), MemoryManager::new(books, Arc::new(Unobserved), true, 0))
}

#[derive(Clone, Debug)]
enum Op {
    Alloc { len: u64, kind: MemoryKind },
    Free { pick: usize },
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let kind = prop_oneof![
        Just(MemoryKind::Device),
        Just(MemoryKind::Command),
        Just(MemoryKind::Signal),
        Just(MemoryKind::Shared)
    ];
    let len = prop_oneof![1u64..600, 1u64..SMALL, SMALL..SMALL * 4];
    let op = prop_oneof![
        3 => (len, kind).prop_map(|(len, kind)| Op::Alloc { len, kind }),
        2 => any::<usize>().prop_map(|pick| Op::Free { pick }),
    ];
    prop::collection::vec(op, 1..120)
}

proptest! {
    /// Every piece keeps its own bytes, whatever comes and goes around it, and all memory goes back in the
    /// end.
    #[test]
    fn pieces_never_share_bytes(ops in ops()) {
        let (books, memory) = memory(usize::MAX);
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
        prop_assert!(books.mapped().len() <= 4, "one spare chunk of each kind at most: {:?}", books.mapped());
    }
}

#[test]
fn a_failed_mapping_gives_its_addresses_back() {
    let (_books, memory) = memory(1);
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
    let (books, memory) = memory(usize::MAX);
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
fn reserved_addresses_come_back() {
    let (_books, memory) = memory(usize::MAX);
    let first = memory.reserve(1 << 20, "test").unwrap();
    let second = memory.reserve(1 << 20, "test").unwrap();
    assert_eq!(memory.mappings().len(), 2);
    let va = first.va();
    drop(first);
    assert_eq!(memory.mappings().len(), 1);
    assert_eq!(memory.reserve(1 << 20, "test").unwrap().va(), va);
    drop(second);
    assert!(memory.mappings().is_empty());
}

#[test]
fn the_neighbours_of_an_address_are_found() {
    let (_books, memory) = memory(usize::MAX);
    let a = memory.alloc(1 << 20, MemoryKind::Device, "a").unwrap();
    let b = memory.alloc(1 << 20, MemoryKind::Device, "b").unwrap();
    let (before, after) = memory.around(a.va().raw() + (1 << 20));
    assert_eq!((before.unwrap().what, after.unwrap().va), ("a", b.va()));
    assert_eq!(memory.around(0), (None, memory.around(a.va().raw()).0));
    assert!(matches!(a.write(1 << 20, &[1]), Err(Error::Memory(MemoryError::OutOfBounds { .. }))));
    assert!(matches!(a.read(u64::MAX, &mut [1]), Err(Error::Memory(MemoryError::OutOfBounds { .. }))));
}

#[test]
fn freed_memory_is_used_again_by_what_fits_it_and_given_back_when_there_is_no_other() {
    let books = Books::new(3);
    let memory = MemoryManager::new(books.clone(), Arc::new(Unobserved), true, 16 << 20);
    let alloc = |len: u64| memory.alloc(len, MemoryKind::Device, "test");
    let first = alloc(4 << 20).unwrap();
    let va = first.va();
    drop(first);
    assert_eq!((books.mapped().len(), memory.kept()), (1, 4 << 20));
    assert!(memory.mappings().is_empty(), "what is kept is no piece");

    let second = alloc((4 << 20) - 5000).unwrap();
    assert_eq!((second.va(), memory.kept()), (va, 0));
    second.write((4 << 20) - 5001, &[1]).unwrap();
    assert!(second.write((4 << 20) - 5000, &[1]).is_err());
    let other = alloc(1 << 20).unwrap();
    assert_ne!(other.va(), va);
    drop(second);
    let host = memory.alloc(4 << 20, MemoryKind::Shared, "test").unwrap();
    assert_ne!(host.va(), va, "of another kind");
    // The third mapping that the books have room for is the one that is kept.
    let third = alloc(8 << 20).unwrap();
    assert_eq!((memory.kept(), books.mapped().len()), (0, 3));
    assert!(alloc(8 << 20).is_err());

    // Too large to be kept.
    drop((other, host, third));
    let large = alloc(17 << 20).unwrap();
    drop(large);
    assert!(memory.kept() <= 16 << 20);
    memory.give_back_kept().unwrap();
    assert!(books.mapped().is_empty());
}

/// Keeps two ranges of addresses back, and books of what it was told.
#[derive(Default)]
struct Keeper {
    told: Mutex<Vec<String>>,
    held: Mutex<Vec<Range<u64>>>,
}

impl Observer for Keeper {
    fn spacing(&self) -> Spacing {
        Spacing { pieces: 4096, mappings: 1 << 20 }
    }

    fn allocated(&self, va: GpuVa, len: u64, what: &'static str) {
        lock(&self.told).push(format!("{what} of {len} at {va}"));
    }

    fn freed(&self, va: GpuVa) {
        lock(&self.told).push(format!("{va} freed"));
    }

    fn hold_back(&self, addresses: Range<u64>, _: u64) -> Vec<Range<u64>> {
        let mut held = lock(&self.held);
        held.push(addresses);
        if held.len() > 2 { vec![held.remove(0)] } else { Vec::new() }
    }

    fn let_go(&self) -> Vec<Range<u64>> {
        std::mem::take(&mut *lock(&self.held))
    }
}

#[test]
fn an_observer_has_room_between_pieces_and_holds_addresses_back() {
    let (books, keeper) = (Books::new(usize::MAX), Arc::new(Keeper::default()));
    let memory = MemoryManager::new(books.clone(), keeper.clone(), true, 0);
    let alloc = |len: u64| memory.alloc(len, MemoryKind::Device, "test").unwrap();
    for (len, apart) in [(100, 256 + 4096), (1 << 20, 2 << 20)] {
        let (first, second) = (alloc(len), alloc(len));
        let va = first.va();
        assert_eq!(second.va().raw() - va.raw(), apart);
        drop(first);
        // Two are held back; the third lets the first go, which is the lowest free one.
        let others = [alloc(len), alloc(len)];
        assert!(others.iter().all(|other| other.va() != va), "{va} is used again at once");
        drop((second, others));
        assert_eq!(alloc(len).va(), va);
        keeper.let_go().into_iter().for_each(|range| memory.recycle(range).unwrap());
    }
    assert_eq!(memory.mappings(), []);

    let told = std::mem::take(&mut *lock(&keeper.told));
    let first = alloc(300);
    let va = first.va();
    drop(first);
    assert_eq!(*lock(&keeper.told), [format!("test of 300 at {va}"), format!("{va} freed")]);
    assert_eq!(told.len(), 2 * 2 * 5);

    // All addresses are taken, but for those that are held back.
    keeper.let_go().into_iter().for_each(|range| memory.recycle(range).unwrap());
    let most = std::iter::from_fn(|| memory.alloc(64 << 20, MemoryKind::Device, "test").ok());
    let mut most: Vec<Piece> = most.collect();
    let last = most.pop().map(|piece| piece.va());
    assert_eq!(Some(alloc(64 << 20).va()), last);
}

#[test]
fn a_small_piece_that_comes_and_goes_costs_no_call_of_the_driver() {
    let (books, memory) = memory(usize::MAX);
    let alloc = |kind| memory.alloc(64, kind, "test").unwrap();
    let kinds = [MemoryKind::Device, MemoryKind::Shared];
    let places = kinds.map(|kind| alloc(kind).va());
    for _ in 0..3 {
        assert_eq!(books.mapped().len(), 2, "a chunk of each kind stays");
        assert_eq!(kinds.map(|kind| alloc(kind).va()), places);
    }
    // A second chunk of a kind goes when it is empty, but not beside one that is in use.
    let all = |len: u64| memory.alloc(len, MemoryKind::Device, "test").unwrap();
    let first: Vec<Piece> = (0..CHUNK / SMALL).map(|_| all(SMALL)).collect();
    let second = all(64);
    assert_eq!(books.mapped().len(), 3);
    drop(second);
    assert_eq!(books.mapped().len(), 3, "the only empty one");
    drop(first);
    assert_eq!(books.mapped().len(), 2);
}

#[test]
fn what_fits_a_chunk_is_cut_from_one_and_what_does_not_has_its_own() {
    let (books, memory) = memory(usize::MAX);
    let alloc = |len: u64| memory.alloc(len, MemoryKind::Device, "test").unwrap();
    let small = [alloc(SMALL), alloc(1), alloc(SMALL - 255)];
    assert_eq!(books.mapped().len(), 1);
    let large = alloc(SMALL + 1);
    assert_eq!(books.mapped().len(), 2);
    for piece in small.iter().chain([&large]) {
        let last = piece.len() - 1;
        piece.write(last, &[7]).unwrap();
        assert!(piece.write(last, &[7, 7]).is_err() && piece.is_mapped());
        assert!(piece.write(piece.len(), &[]).is_ok() && piece.write(piece.len() + 1, &[]).is_err());
        assert_eq!(piece.at(last).raw(), piece.va().raw() + last);
    }
    let empty = memory.alloc(0, MemoryKind::Device, "test").unwrap_err();
    assert!(matches!(empty, Error::Memory(MemoryError::EmptyBuffer)), "{empty}");
}

#[test]
fn words_are_in_the_byte_order_of_the_gpu() {
    let (_books, memory) = memory(usize::MAX);
    let piece = memory.alloc(64, MemoryKind::Command, "test").unwrap();
    piece.write_words(8, &[0x0403_0201, 0x0807_0605]).unwrap();
    let mut bytes = [0; 8];
    piece.read(8, &mut bytes).unwrap();
    assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8]);
    assert_eq!(piece.atomic(8).unwrap().load(std::sync::atomic::Ordering::Relaxed), 0x0807_0605_0403_0201);
    assert!(piece.atomic(64).is_err());
}

#[test]
fn addresses_of_memory_that_is_kept_are_used_when_there_are_no_others() {
    let memory = MemoryManager::new(Books::new(usize::MAX), Arc::new(Unobserved), true, 1 << 30);
    let alloc = |len: u64| memory.alloc(len, MemoryKind::Device, "test");
    let mut all: Vec<Piece> = std::iter::from_fn(|| alloc(64 << 20).ok()).collect();
    all.extend(std::iter::from_fn(|| alloc(1 << 20).ok()));
    let (va, len) = (all[0].va(), all[0].len());
    drop(all.remove(0));
    assert_eq!(memory.kept(), len);
    // Of another size than what is kept.
    let place = alloc(len / 2).unwrap();
    assert_eq!((place.va(), memory.kept()), (va, 0));
}
