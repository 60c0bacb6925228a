//! The program's notes about an address space: pieces of mappings, freed pieces, kernels, names.
//!
//! A mapping in which a piece was noted is *described*: whatever lies in it outside all pieces is out of bounds.
//! Of other mappings nothing is known, and nothing is out of bounds in them.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nv_hw::Shown;

use crate::pieces::note::{KernelAccess, KernelNote, Note, PieceKind, PieceNote, StackNote};

pub(crate) mod note;

/// Freed pieces that are remembered, the last ones.
const MOST_FREED: usize = 16 << 10;
/// An address so many bytes after a piece, or before it, counts as part of it where nothing is mapped.
const NEAR: u64 = 1 << 20;

/// Relation of an address to a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// So many bytes from its start.
    Inside(u64),
    /// So many bytes from its end; 0 is the first byte after it.
    Past(u64),
    /// So many bytes before its start.
    Before(u64),
}

/// Location of an address: the piece that holds it, or the nearest one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// Kind of the piece.
    pub kind: PieceKind,
    /// Its name; may be empty.
    pub name: String,
    /// Its first address.
    pub va: u64,
    /// Its length in bytes.
    pub bytes: u64,
    /// Position of the address.
    pub relation: Relation,
    /// If the piece was freed: how many launches of its address space had begun by then.
    pub freed_after: Option<u64>,
}

impl Location {
    /// Returns the relation of `address` to the piece of `bytes` bytes at `va`.
    pub(crate) fn new(kind: PieceKind, name: &str, va: u64, bytes: u64, address: u64) -> Self {
        let relation = match address.checked_sub(va) {
            None => Relation::Before(va - address),
            Some(offset) if offset < bytes => Relation::Inside(offset),
            Some(offset) => Relation::Past(offset - bytes),
        };
        Self { kind, name: name.to_owned(), va, bytes, relation, freed_after: None }
    }

    /// Bytes from the address to the piece.
    fn distance(&self) -> u64 {
        match self.relation {
            Relation::Inside(_) => 0,
            Relation::Past(bytes) => bytes.saturating_add(1),
            Relation::Before(bytes) => bytes,
        }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, name, va, bytes, relation, freed_after } = self;
        match relation {
            Relation::Inside(offset) => write!(f, "{offset} bytes into ")?,
            Relation::Past(0) => write!(f, "at the end of ")?,
            Relation::Past(distance) => write!(f, "{distance} bytes past the end of ")?,
            Relation::Before(distance) => write!(f, "{distance} bytes before ")?,
        }
        match name.as_str() {
            "" => write!(f, "{}", kind.name())?,
            name if name == kind.name() => write!(f, "{name}")?,
            name => write!(f, "{} `{}`", kind.name(), Shown(name))?,
        }
        write!(f, " ({bytes} bytes at {va:#x})")?;
        match freed_after {
            Some(0) => f.write_str(", freed by the program before its first launch"),
            Some(launches) => write!(f, ", freed by the program after launch {launches} had begun"),
            None => Ok(()),
        }
    }
}

/// Loads and stores allowed at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Permit {
    /// Nothing is known of the mapping, if there is one.
    Unknown,
    /// It lies in a piece.
    Piece(KernelAccess),
    /// It lies in a described mapping and in no piece.
    Outside,
}

#[derive(Debug)]
struct Piece {
    bytes: u64,
    kind: PieceKind,
    name: String,
    access: KernelAccess,
    /// By first address; if there are any, the rest has no owner.
    parts: BTreeMap<u64, Piece>,
}

#[derive(Debug)]
struct Freed {
    bytes: u64,
    kind: PieceKind,
    name: String,
    /// Launches that had begun.
    after: u64,
}

#[derive(Debug)]
struct Kernel {
    bytes: u64,
    name: String,
    stack: Option<StackNote>,
    /// Offset, file, line.
    lines: Vec<(u64, String, u32)>,
}

#[derive(Debug, Default)]
struct Table {
    /// Start and end of the described mappings.
    mappings: BTreeMap<u64, u64>,
    pieces: BTreeMap<u64, Piece>,
    freed: BTreeMap<u64, Freed>,
    /// The starts of `freed`, oldest first; some may be gone.
    freed_order: VecDeque<u64>,
    kernels: BTreeMap<u64, Kernel>,
}

/// The program's notes about an address space.
#[derive(Debug, Default)]
pub struct Pieces {
    table: RwLock<Table>,
    /// Moves when what accesses may do changes.
    generation: AtomicU64,
    /// Launches that have begun.
    launches: AtomicU64,
}

/// The entry of `map` that starts at or before `va`.
fn at_or_before<T>(map: &BTreeMap<u64, T>, va: u64) -> Option<(u64, &T)> {
    map.range(..=va).next_back().map(|(start, entry)| (*start, entry))
}

impl Piece {
    fn new(note: &PieceNote<'_>) -> Self {
        let PieceNote { bytes, kind, name, access, .. } = *note;
        Self { bytes, kind, name: name.to_owned(), access, parts: BTreeMap::new() }
    }

    fn location(&self, start: u64, address: u64) -> Location {
        Location::new(self.kind, &self.name, start, self.bytes, address)
    }
}

/// The piece that holds `va`.
fn holder(pieces: &BTreeMap<u64, Piece>, va: u64) -> Option<(u64, &Piece)> {
    at_or_before(pieces, va).filter(|(start, piece)| va - start < piece.bytes)
}

/// The piece that holds `va`, or the nearest one.
fn nearest(pieces: &BTreeMap<u64, Piece>, va: u64) -> Option<Location> {
    let before = at_or_before(pieces, va).map(|(start, piece)| piece.location(start, va));
    let after = pieces.range(va..).next().map(|(start, piece)| piece.location(*start, va));
    before.into_iter().chain(after).min_by_key(Location::distance)
}

impl Table {
    fn add(&mut self, note: &PieceNote<'_>, mapping: Range<u64>) {
        let end = note.va.saturating_add(note.bytes);
        if note.bytes == 0 || note.va < mapping.start || end > mapping.end {
            tracing::warn!(va = note.va, bytes = note.bytes, "a piece of memory that lies in no mapping");
            return;
        }
        self.mappings.insert(mapping.start, mapping.end);
        let piece = Piece::new(note);
        let outer = self.pieces.range_mut(..=note.va).next_back();
        if let Some((start, outer)) = outer
            && end <= start + outer.bytes
            && (*start, outer.bytes) != (note.va, note.bytes)
        {
            outer.parts.insert(note.va, piece);
            return;
        }
        // Pieces below it are no longer there, whether the program has noted that or not.
        while let Some((start, over)) = at_or_before(&self.pieces, end - 1)
            && start + over.bytes > note.va
        {
            self.pieces.remove(&start);
        }
        while let Some((start, over)) = at_or_before(&self.freed, end - 1)
            && start + over.bytes > note.va
        {
            self.freed.remove(&start);
        }
        self.pieces.insert(note.va, piece);
    }

    fn free(&mut self, va: u64, after: u64) {
        let Some(Piece { bytes, kind, name, .. }) = self.pieces.remove(&va) else { return };
        self.kernels.retain(|start, _| start.wrapping_sub(va) >= bytes);
        self.freed.insert(va, Freed { bytes, kind, name, after });
        self.freed_order.push_back(va);
        if self.freed_order.len() > MOST_FREED
            && let Some(oldest) = self.freed_order.pop_front()
            && !self.freed_order.contains(&oldest)
        {
            self.freed.remove(&oldest);
        }
    }

    fn freed_at(&self, va: u64) -> Option<Location> {
        let (start, freed) =
            at_or_before(&self.freed, va).filter(|(start, freed)| va - start < freed.bytes)?;
        let location = Location::new(freed.kind, &freed.name, start, freed.bytes, va);
        Some(Location { freed_after: Some(freed.after), ..location })
    }

    fn kernel_at(&self, pc: u64) -> Option<(u64, &Kernel)> {
        at_or_before(&self.kernels, pc).filter(|(start, kernel)| pc - start < kernel.bytes)
    }
}

impl Kernel {
    fn new(note: &KernelNote<'_>) -> Self {
        let lines = note.lines.iter().map(|line| (line.offset, line.file.to_owned(), line.line)).collect();
        Self { bytes: note.bytes, name: note.name.to_owned(), stack: note.stack, lines }
    }
}

impl Pieces {
    fn table(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) -> RwLockWriteGuard<'_, Table> {
        self.generation.fetch_add(1, Ordering::AcqRel);
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a note; `mapping` is the mapping that holds the address in it. A piece that does not lie in it, or
    /// in none, is dropped.
    pub fn take(&self, note: &Note<'_>, mapping: Option<Range<u64>>) {
        let launches = self.launches.load(Ordering::Relaxed);
        let mut table = self.change();
        match note {
            Note::Piece(piece) => table.add(piece, mapping.unwrap_or(0..0)),
            Note::Freed { va } => table.free(*va, launches),
            Note::Named { va, name } => {
                if let Some(piece) = table.pieces.get_mut(va) {
                    piece.name = (*name).to_owned();
                }
            }
            Note::Kernel(kernel) => drop(table.kernels.insert(kernel.va, Kernel::new(kernel))),
        }
    }

    /// A mapping went, and with it the pieces that the program did not free.
    pub(crate) fn unmapped(&self, range: Range<u64>) {
        if !self.table().mappings.contains_key(&range.start) {
            return;
        }
        let launches = self.launches.load(Ordering::Relaxed);
        let mut table = self.change();
        table.mappings.remove(&range.start);
        let left: Vec<u64> = table.pieces.range(range).map(|(start, _)| *start).collect();
        left.into_iter().for_each(|va| table.free(va, launches));
    }

    /// A launch begins.
    pub(crate) fn begin_launch(&self) {
        self.launches.fetch_add(1, Ordering::Relaxed);
    }

    /// Moves when what [`permit`](Self::permit) says changes.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Returns the loads and stores allowed at `va`, and the addresses around it with the same answer.
    pub(crate) fn permit(&self, va: u64) -> (Permit, Range<u64>) {
        let table = self.table();
        if let Some((start, piece)) = holder(&table.pieces, va) {
            if piece.parts.is_empty() {
                return (Permit::Piece(piece.access), start..start + piece.bytes);
            }
            return match holder(&piece.parts, va) {
                Some((start, part)) => (Permit::Piece(part.access), start..start + part.bytes),
                None => (Permit::Outside, va..va + 1),
            };
        }
        let before = at_or_before(&table.mappings, va).map_or(0, |(_, end)| *end);
        if va < before {
            return (Permit::Outside, va..va + 1);
        }
        let after = va.checked_add(1).and_then(|next| table.mappings.range(next..).next());
        (Permit::Unknown, before..after.map_or(u64::MAX, |(start, _)| *start))
    }

    /// Whether a copy of `bytes` bytes may reach `va`: it must not leave a piece that it begins in, nor begin in
    /// a described mapping outside all pieces. If not, the first address that is wrong.
    pub(crate) fn copy_leaves(&self, va: u64, bytes: u64) -> Option<u64> {
        let table = self.table();
        let end = va.saturating_add(bytes);
        if let Some((start, piece)) = holder(&table.pieces, va) {
            let stop = start + piece.bytes;
            return (end > stop).then_some(stop);
        }
        let described = at_or_before(&table.mappings, va).is_some_and(|(_, stop)| va < *stop);
        (described && bytes > 0).then_some(va)
    }

    /// The freed piece that held `va`.
    pub(crate) fn freed(&self, va: u64) -> Option<Location> {
        self.table().freed_at(va)
    }

    /// Whether `va`, where nothing is mapped, lies next to a piece, or in one that was freed.
    pub(crate) fn is_near(&self, va: u64) -> bool {
        let table = self.table();
        let near = |location: Location| location.distance() <= NEAR;
        table.freed_at(va).is_some() || nearest(&table.pieces, va).is_some_and(near)
    }

    /// Returns the location of an address, if a piece is there or near.
    pub(crate) fn locate(&self, va: u64) -> Option<Location> {
        let table = self.table();
        match holder(&table.pieces, va) {
            Some((start, piece)) if piece.parts.is_empty() => Some(piece.location(start, va)),
            Some((_, piece)) => nearest(&piece.parts, va),
            None => {
                let near = |location: &Location| location.distance() <= NEAR;
                table.freed_at(va).or_else(|| nearest(&table.pieces, va).filter(near))
            }
        }
    }

    /// The name of the kernel that starts at, or contains, `pc`.
    pub(crate) fn kernel_name(&self, pc: u64) -> Option<String> {
        self.table().kernel_at(pc).map(|(_, kernel)| kernel.name.clone())
    }

    /// The stack of a thread of the kernel that contains `pc`.
    pub(crate) fn stack(&self, pc: u64) -> Option<StackNote> {
        self.table().kernel_at(pc)?.1.stack
    }

    /// File and line of the instruction at `pc`.
    pub(crate) fn source(&self, pc: u64) -> Option<String> {
        let table = self.table();
        let (start, kernel) = table.kernel_at(pc)?;
        let (_, file, line) = kernel.lines.iter().rev().find(|(offset, ..)| *offset <= pc - start)?;
        Some(format!("{file}:{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPPING: Range<u64> = 0x1_0000..0x2_0000;

    fn piece(va: u64, bytes: u64, name: &str) -> Note<'_> {
        let (kind, access) = (PieceKind::Buffer, KernelAccess::ReadWrite);
        Note::Piece(PieceNote { va, bytes, kind, name, access })
    }

    fn pieces() -> Pieces {
        let pieces = Pieces::default();
        pieces.take(&piece(0x1_0000, 100, "a"), Some(MAPPING));
        pieces.take(&piece(0x1_1000, 0x1000, "b"), Some(MAPPING));
        pieces
    }

    fn said(pieces: &Pieces, va: u64) -> String {
        pieces.locate(va).map_or(String::new(), |location| location.to_string())
    }

    #[test]
    fn what_lies_in_a_described_mapping_and_in_no_piece_is_outside() {
        let pieces = pieces();
        let inside = Permit::Piece(KernelAccess::ReadWrite);
        assert_eq!(pieces.permit(0x1_0063), (inside, 0x1_0000..0x1_0064));
        for va in [0x1_0064, 0x1_0fff, 0x1_2000, 0x1_ffff] {
            assert_eq!(pieces.permit(va).0, Permit::Outside, "{va:#x}");
        }
        assert_eq!(pieces.permit(0x2_0000), (Permit::Unknown, 0x2_0000..u64::MAX));
        assert_eq!(pieces.permit(0xffff), (Permit::Unknown, 0..0x1_0000));
        assert_eq!(said(&pieces, 0x1_0074), "16 bytes past the end of buffer `a` (100 bytes at 0x10000)");
        assert_eq!(said(&pieces, 0x1_0ff0), "16 bytes before buffer `b` (4096 bytes at 0x11000)");
        assert_eq!(said(&pieces, 0x1_1010), "16 bytes into buffer `b` (4096 bytes at 0x11000)");
        assert_eq!(said(&pieces, 0x1000_0000), "");
    }

    #[test]
    fn what_was_freed_is_remembered_until_something_else_lies_there() {
        let pieces = pieces();
        pieces.begin_launch();
        pieces.take(&Note::Named { va: 0x1_0000, name: "x" }, None);
        pieces.take(&Note::Freed { va: 0x1_0000 }, None);
        assert_eq!(pieces.permit(0x1_0000).0, Permit::Outside);
        let text =
            "0 bytes into buffer `x` (100 bytes at 0x10000), freed by the program after launch 1 had begun";
        assert_eq!(said(&pieces, 0x1_0000), text);
        pieces.unmapped(MAPPING);
        assert_eq!(pieces.permit(0x1_0000), (Permit::Unknown, 0..u64::MAX));
        assert!(pieces.is_near(0x1_0000) && said(&pieces, 0x1_1000).contains("buffer `b`"));
        pieces.take(&piece(0x1_0040, 8, "y"), Some(MAPPING));
        assert_eq!(said(&pieces, 0x1_0000), "64 bytes before buffer `y` (8 bytes at 0x10040)");
    }

    #[test]
    fn parts_of_a_piece_stand_for_it() {
        let pieces = Pieces::default();
        let part = |va, bytes, kind, access| Note::Piece(PieceNote { va, bytes, kind, name: "", access });
        pieces.take(&part(0x1_0000, 0x1000, PieceKind::Program, KernelAccess::None), Some(MAPPING));
        pieces.take(&part(0x1_0000, 0x200, PieceKind::Code, KernelAccess::None), Some(MAPPING));
        pieces.take(&part(0x1_0200, 0x100, PieceKind::Constants, KernelAccess::Read), Some(MAPPING));
        assert_eq!(pieces.permit(0x1_0000), (Permit::Piece(KernelAccess::None), 0x1_0000..0x1_0200));
        assert_eq!(pieces.permit(0x1_0200).0, Permit::Piece(KernelAccess::Read));
        assert_eq!(pieces.permit(0x1_0300).0, Permit::Outside);
        assert_eq!(said(&pieces, 0x1_0300), "at the end of constants (256 bytes at 0x10200)");
        assert_eq!(
            (pieces.copy_leaves(0x1_0000, 0x1000), pieces.copy_leaves(0x1_0000, 0x1001)),
            (None, Some(0x1_1000))
        );
        pieces.take(&Note::Freed { va: 0x1_0000 }, None);
        assert_eq!(pieces.permit(0x1_0200).0, Permit::Outside);
        assert_eq!(pieces.copy_leaves(0x1_0000, 1), Some(0x1_0000));
    }

    #[test]
    fn kernels_have_names_stacks_and_lines_until_their_program_is_freed() {
        use crate::pieces::note::LineNote;
        let pieces = pieces();
        let lines = [
            LineNote { offset: 0x20, file: "k.cu", line: 7 },
            LineNote { offset: 0x40, file: "k.cu", line: 9 },
        ];
        let stack = Some(StackNote { top: 0xff_fdc0, bytes: 256 });
        pieces.take(
            &Note::Kernel(KernelNote { va: 0x1_1000, bytes: 0x80, name: "k", stack, lines: &lines }),
            None,
        );
        assert_eq!(pieces.kernel_name(0x1_1000).as_deref(), Some("k"));
        assert_eq!((pieces.kernel_name(0x1_1080), pieces.stack(0x1_1010)), (None, stack));
        let source = |at: u64| pieces.source(0x1_1000 + at);
        assert_eq!(
            (source(0x10), source(0x30).as_deref(), source(0x70).as_deref()),
            (None, Some("k.cu:7"), Some("k.cu:9"))
        );
        pieces.take(&Note::Freed { va: 0x1_1000 }, None);
        assert_eq!(pieces.kernel_name(0x1_1000), None);
    }

    #[test]
    fn a_piece_in_no_mapping_says_nothing() {
        let pieces = Pieces::default();
        pieces.take(&piece(0x1_0000, 100, "a"), None);
        pieces.take(&piece(0x1_ffff, 100, "b"), Some(MAPPING));
        pieces.take(&piece(u64::MAX, u64::MAX, "c"), Some(MAPPING));
        pieces.take(&piece(0x1_0000, 0, "d"), Some(MAPPING));
        assert_eq!(pieces.permit(0x1_0000), (Permit::Unknown, 0..u64::MAX));
        pieces.take(&Note::Freed { va: 7 }, None);
        assert_eq!(pieces.locate(0x1_0000), None);
    }
}
