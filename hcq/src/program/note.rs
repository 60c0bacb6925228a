//! What a device that checks kernels is told of a program: what its sections are, and its kernels.

use nvgpu_sys::{KernelAccess, KernelNote, Note, PieceKind, PieceNote, StackNote};

use crate::launch::constant_bank::STACK_START;
use crate::memory::manager::MemoryManager;
use crate::program::image::Image;

/// Notes the sections and kernels of a program; what lies between the sections is no one's.
pub(super) fn describe(memory: &MemoryManager, image: &Image) {
    let base = image.base().raw();
    for part in image.parts().iter().filter(|part| part.extent.len > 0) {
        memory.note(|| {
            let access = match part.kind {
                // Constants have addresses too, which kernels may load from.
                PieceKind::Constants => KernelAccess::Read,
                PieceKind::Variables => KernelAccess::ReadWrite,
                _ => KernelAccess::None,
            };
            let (va, bytes) = (base + part.extent.offset, part.extent.len);
            Note::Piece(PieceNote { va, bytes, kind: part.kind, name: &part.name, access })
        });
    }
    for kernel in image.kernels() {
        memory.note(|| {
            let stack = StackNote { top: STACK_START, bytes: kernel.stack };
            Note::Kernel(KernelNote {
                va: base + kernel.code.offset,
                bytes: kernel.code.len,
                name: &kernel.name,
                stack: (kernel.stack > 0).then_some(stack),
                lines: &[],
            })
        });
    }
}
