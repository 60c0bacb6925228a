//! Notes about a piece of memory, for a device that checks kernels.

use nvgpu_sys::{KernelAccess, Note, PieceKind, PieceNote};

use crate::address::GpuVa;

/// The note of a piece, by what it was allocated as. Kinds not listed here are not for kernels.
pub(crate) fn note(va: GpuVa, bytes: u64, what: &'static str) -> Note<'static> {
    use KernelAccess::{None, ReadWrite};
    let (kind, access) = match what {
        "buffer" | "host buffer" => (PieceKind::Buffer, ReadWrite),
        "command ring" => (PieceKind::Commands, None),
        "launch ring" | "graph" => (PieceKind::Launches, None),
        "program" => (PieceKind::Program, None),
        "scratch" => (PieceKind::Local, None),
        "staging" => (PieceKind::Staging, None),
        "signal" => (PieceKind::Signal, None),
        _ => (PieceKind::Other, None),
    };
    let name = if what == "buffer" { "" } else { what };
    Note::Piece(PieceNote { va: va.raw(), bytes, kind, name, access })
}
