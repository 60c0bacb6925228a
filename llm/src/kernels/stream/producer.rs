//! The producer: streams the block's weights of all phases through the ring, without waiting for anything but
//! room.

use ptxgen::{BulkLength, Global, Multiple, Pointer, Policy, Reg, Target};

use crate::kernels::stream::block::{Place, Stream};
use crate::kernels::stream::layout::{GROUP_SLOTS, SLOT_TILES};
use crate::kernels::stream::record::{MAX_SEGMENTS, at, segment};

impl Stream<'_> {
    /// Whether copies are bulk copies, which one lane starts, or those of all lanes.
    pub(super) fn copies_in_bulk(target: Target) -> bool {
        target >= Target::Sm90
    }

    /// Streams the weights of a matrix phase.
    pub(super) fn produce(&self, place: Place, policy: Policy) {
        let k = self.k;
        let slots = k.shl(self.word(at::GROUPS), GROUP_SLOTS.trailing_zeros());
        k.for_(0u32, MAX_SEGMENTS as u32, 1u32, |number: Reg<u32>| {
            let record = self.segment(number);
            let share = self.share(record);
            let count = match self.variant.numbers().next() {
                Some(_) => {
                    let numbers = self.produce_numbers(record, share, place, policy);
                    k.select(numbers, 0u32, share.count)
                }
                None => share.count,
            };
            let tiles = k.pointer::<u8>(k.load(record.plus(segment::TILES).cast::<u64>()), 16);
            let row_bytes = || k.scale(k.shr(k.load(record.plus(segment::ROW_BYTES)), 4), 16);
            let two = k.scale(k.shr(k.load(record.plus(segment::TILE_BYTES)), 4), 16 * SLOT_TILES);
            let from = k.var(k.address(k.row(tiles, share.first, row_bytes())));
            k.for_(0u32, count, 1u32, |_: Reg<u32>| {
                let left = k.var(row_bytes().reg());
                k.for_(0u32, slots, 1u32, |_: Reg<u32>| {
                    let bytes = k.scale(k.shr(k.min(left, two.reg()), 4), 16);
                    self.fill(place, k.pointer(from, 16), bytes, policy);
                    k.set(left, k.sub(left, bytes.reg()));
                    k.set(from, k.add(from, k.convert::<u32, u64>(bytes.reg())));
                });
            });
        });
    }

    /// Fills a slot once it is empty. A slot without bytes only passes.
    fn fill(&self, place: Place, from: Pointer<Global, u8>, bytes: Multiple, policy: Policy) {
        let k = self.k;
        let full = self.barrier(self.ring.full, place.slot);
        let to = self.slot(place.slot);
        self.wait_phase(self.barrier(self.ring.empty, place.slot), k.xor(place.parity, 1u32));
        let some = k.ne(bytes.reg(), 0);
        if Self::copies_in_bulk(self.target) {
            k.if_else(
                some,
                || {
                    k.arrive_expecting(full, bytes.reg());
                    k.copy_bulk(to, from, bytes, full, Some(policy));
                },
                || k.arrive(full),
            );
        } else {
            k.for_(self.lane, k.shr(bytes.reg(), 4), 32u32, |piece: Reg<u32>| {
                let at = k.scale(piece, BulkLength::UNIT);
                k.copy_async_with(k.at(to, at), k.at(from, at), BulkLength::UNIT, Some(policy));
            });
            k.arrive_after_copies(full);
        }
        self.advance(place, 1);
    }
}
