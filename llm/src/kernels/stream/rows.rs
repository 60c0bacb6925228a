//! Matrices of numbers in the ring: they lie in device memory as in the file, row below row, and a slot takes
//! some rows of two neighbouring columns of tiles.
//!
//! The slots of a tile follow each other from its upper rows to its lower ones. A row of a slot has both
//! columns, 512 values, whatever lies past the end of the matrix; rows past the end repeat the last one.

use ptxgen::{BulkLength, Global, Multiple, Pointer, Policy, Pred, Reg, Shared};

use crate::kernels::format::{Format, TILE_COLS, TILE_ROWS};
use crate::kernels::stream::block::{Place, Share, Stream};
use crate::kernels::stream::layout::{GROUP_SLOTS, QUAD, SLOT_TILES, row_bytes};
use crate::kernels::stream::record::{at, segment};

impl Stream<'_> {
    /// Rows of a tile that a slot takes: as many as fit, [`QUAD`] at least.
    pub(super) fn slot_rows(&self, format: Format) -> Reg<u32> {
        let k = self.k;
        let quads = |n: u32| k.ge(self.ring.slot_bytes.reg(), n * QUAD * row_bytes(format));
        k.select(quads(4), TILE_ROWS, k.select(quads(2), 2 * QUAD, QUAD))
    }

    /// Streams the block's share of a segment, if its type is not quantized. Returns whether it is
    /// one of numbers.
    pub(super) fn produce_numbers(
        &self,
        record: Pointer<Shared, u32>,
        share: Share,
        place: Place,
        policy: Policy,
    ) -> Pred {
        let k = self.k;
        let code = k.load(record.plus(segment::FORMAT));
        let is = |format: Format| k.eq(code, format as u32);
        let wide = is(Format::F32);
        let narrow = k.either(is(Format::F16), is(Format::Bf16));
        k.if_(wide, || self.produce_rows(Format::F32, record, share, place, policy));
        k.if_(narrow, || self.produce_rows(Format::F16, record, share, place, policy));
        k.either(wide, narrow)
    }

    /// Streams the block's rows of a segment of numbers.
    fn produce_rows(
        &self,
        format: Format,
        record: Pointer<Shared, u32>,
        share: Share,
        place: Place,
        policy: Policy,
    ) {
        let k = self.k;
        let first = k.pointer::<u8>(k.load(record.plus(segment::TILES).cast::<u64>()), 16);
        let pitch = k.scale(k.shr(k.load(record.plus(segment::ROW_BYTES)), 4), 16);
        let last = k.sub(k.load(record.plus(segment::ROWS)), 1);
        let rows = self.slot_rows(format);
        let begin = k.mul(share.first, TILE_ROWS);
        let groups = k.mul(self.word(at::GROUPS), GROUP_SLOTS * row_bytes(format));
        k.for_(begin, k.mad(share.count, TILE_ROWS, begin), TILE_ROWS, |tile: Reg<u32>| {
            k.for_(0u32, groups, GROUP_SLOTS * row_bytes(format), |group: Reg<u32>| {
                k.for_(tile, k.add(tile, TILE_ROWS), rows, |row: Reg<u32>| {
                    let end = k.add(group, GROUP_SLOTS * row_bytes(format));
                    k.for_(group, end, row_bytes(format), |at: Reg<u32>| {
                        let left = k.sub(k.max(pitch.reg(), at), at);
                        let bytes = k.scale(k.shr(k.min(left, row_bytes(format)), 4), BulkLength::UNIT);
                        let from = k.at(first, k.scale(k.shr(at, 4), 16));
                        let of_row = |i: u32| k.row(from, k.min(k.add(row, i), last), pitch);
                        self.fill_rows(format, place, rows, bytes, of_row, policy);
                    });
                });
            });
        });
    }

    /// Fills a slot with `rows` rows of `bytes` bytes, once it is empty. A slot without bytes only passes.
    fn fill_rows(
        &self,
        format: Format,
        place: Place,
        rows: Reg<u32>,
        bytes: Multiple,
        of_row: impl Fn(u32) -> Pointer<Global, u8>,
        policy: Policy,
    ) {
        let k = self.k;
        let full = self.barrier(self.ring.full, place.slot);
        let slot = self.slot(place.slot);
        self.wait_phase(self.barrier(self.ring.empty, place.slot), k.xor(place.parity, 1u32));
        let bulk = Self::copies_in_bulk(self.target);
        let each = |copy: &dyn Fn(Pointer<Shared, u8>, Pointer<Global, u8>)| {
            for quad in (0..TILE_ROWS).step_by(QUAD as usize) {
                k.if_(k.gt(rows, quad), || {
                    (quad..quad + QUAD).for_each(|i| {
                        copy(slot.plus_bytes(i64::from(i * row_bytes(format))), of_row(i));
                    });
                });
            }
        };
        if bulk {
            k.if_else(
                k.ne(bytes.reg(), 0),
                || {
                    k.arrive_expecting(full, k.mul(bytes.reg(), rows));
                    each(&|to, from| k.copy_bulk(to, from, bytes, full, Some(policy)));
                },
                || k.arrive(full),
            );
        } else {
            each(&|to, from| {
                k.for_(self.lane, k.shr(bytes.reg(), 4), 32u32, |piece: Reg<u32>| {
                    let at = k.scale(piece, BulkLength::UNIT);
                    k.copy_async_with(k.at(to, at), k.at(from, at), BulkLength::UNIT, Some(policy));
                });
            });
            k.arrive_after_copies(full);
        }
        self.advance(place, 1);
    }
}

/// The two columns of tiles of a slot lie beside each other in its rows.
const _: () = assert!(SLOT_TILES * TILE_COLS == 512);
