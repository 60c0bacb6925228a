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
        let takes = |format| self.variant.formats.contains(&format);
        if takes(Format::F32) {
            k.if_(wide, || self.produce_rows(Format::F32, record, share, place, policy));
        }
        if takes(Format::F16) || takes(Format::Bf16) {
            k.if_(narrow, || self.produce_rows(Format::F16, record, share, place, policy));
        }
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
        let end = k.load(record.plus(segment::ROWS));
        let rows = self.slot_rows(format);
        let begin = k.mul(share.first, TILE_ROWS);
        let groups = k.mul(self.word(at::GROUPS), GROUP_SLOTS * row_bytes(format));
        k.for_(begin, k.mad(share.count, TILE_ROWS, begin), TILE_ROWS, |tile: Reg<u32>| {
            k.for_(0u32, groups, GROUP_SLOTS * row_bytes(format), |group: Reg<u32>| {
                k.for_(tile, k.add(tile, TILE_ROWS), rows, |row: Reg<u32>| {
                    let after = k.add(group, GROUP_SLOTS * row_bytes(format));
                    k.for_(group, after, row_bytes(format), |at: Reg<u32>| {
                        let left = k.sub(k.max(pitch.reg(), at), at);
                        let bytes = k.scale(k.shr(k.min(left, row_bytes(format)), 4), BulkLength::UNIT);
                        let from = k.at(first, k.scale(k.shr(at, 4), 16));
                        let slot = Rows { format, from, pitch, first: row, end, rows, bytes };
                        self.fill_rows(&slot, place, policy);
                    });
                });
            });
        });
    }

    /// Fills a slot once it is empty. A slot without bytes only passes.
    fn fill_rows(&self, r: &Rows, place: Place, policy: Policy) {
        let k = self.k;
        let full = self.barrier(self.ring.full, place.slot);
        let slot = self.slot(place.slot);
        self.wait_phase(self.barrier(self.ring.empty, place.slot), k.xor(place.parity, 1u32));
        let whole = k.both(k.eq(r.bytes.reg(), row_bytes(r.format)), k.le(k.add(r.first, r.rows), r.end));
        let bulk = Self::copies_in_bulk(self.target);
        let copy = |to: Pointer<Shared, u8>, from: Pointer<Global, u8>, whole: bool| match (bulk, whole) {
            (true, true) => k.copy_bulk(to, from, row_bytes(r.format), full, Some(policy)),
            (true, false) => k.copy_bulk(to, from, r.bytes, full, Some(policy)),
            (false, true) => self.copy_row(to, from, row_bytes(r.format), policy),
            (false, false) => k.for_(self.lane, k.shr(r.bytes.reg(), 4), 32u32, |piece: Reg<u32>| {
                let at = k.scale(piece, BulkLength::UNIT);
                k.copy_async_with(k.at(to, at), k.at(from, at), BulkLength::UNIT, Some(policy));
            }),
        };
        // Addresses of neighbouring rows follow from one another: the producer has no time for more.
        let straight = |to: Pointer<Shared, u8>, first: Reg<u32>, count: u32| {
            let from = k.row(r.from, first, r.pitch);
            for i in 0..count {
                let from = if i == 0 { from } else { k.at_stride(from, r.pitch, i) };
                copy(to.plus_bytes(i64::from(i * row_bytes(r.format))), from, true);
            }
        };
        let all = || {
            k.if_else(
                k.both(whole, k.eq(r.rows, TILE_ROWS)),
                || straight(slot, r.first, TILE_ROWS),
                || {
                    let of = |row: Reg<u32>| k.at_stride(slot, row, row_bytes(r.format));
                    k.if_else(
                        whole,
                        || {
                            k.for_(0u32, r.rows, QUAD, |row| straight(of(row), k.add(r.first, row), QUAD));
                        },
                        || {
                            k.for_(0u32, r.rows, 1u32, |row| {
                                let from =
                                    k.row(r.from, k.min(k.add(r.first, row), k.sub(r.end, 1)), r.pitch);
                                copy(of(row), from, false);
                            });
                        },
                    );
                },
            );
        };
        if bulk {
            k.if_else(
                k.ne(r.bytes.reg(), 0),
                || {
                    k.arrive_expecting(full, k.mul(r.bytes.reg(), r.rows));
                    all();
                },
                || k.arrive(full),
            );
        } else {
            all();
            k.arrive_after_copies(full);
        }
        self.advance(place, 1);
    }

    /// Copies a row of `bytes` bytes, asynchronously, by all lanes.
    fn copy_row(&self, to: Pointer<Shared, u8>, from: Pointer<Global, u8>, bytes: u32, policy: Policy) {
        let k = self.k;
        let own = k.scale(self.lane, BulkLength::UNIT);
        let (to, from) = (k.at(to, own), k.at(from, own));
        for at in (0..i64::from(bytes)).step_by(32 * BulkLength::UNIT as usize) {
            k.copy_async_with(to.plus_bytes(at), from.plus_bytes(at), BulkLength::UNIT, Some(policy));
        }
    }
}

/// The rows of a slot.
struct Rows {
    format: Format,
    /// The matrix, from the slot's columns on.
    from: Pointer<Global, u8>,
    /// Bytes between rows.
    pitch: Multiple,
    /// The first row, the end of the matrix, the number in a slot.
    first: Reg<u32>,
    end: Reg<u32>,
    rows: Reg<u32>,
    /// Bytes of each that the matrix has.
    bytes: Multiple,
}

/// The two columns of tiles of a slot lie beside each other in its rows.
const _: () = assert!(SLOT_TILES * TILE_COLS == 512);
