//! Notes about a program, for a device that checks kernels: its sections and its kernels.

use nvgpu_sys::{KernelAccess, KernelNote, LineNote, Note, PieceKind, PieceNote, StackNote};

use crate::cubin::{File, SourceLine};
use crate::launch::constant_bank::STACK_START;
use crate::memory::manager::MemoryManager;
use crate::program::image::Image;

/// Notes the sections and kernels of a program; the bytes between sections have no owner.
pub(super) fn describe(memory: &MemoryManager, image: &Image, cubin: &[u8]) {
    if !memory.takes_notes() {
        return;
    }
    let file = File::parse(cubin).ok();
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
        let sources = file.as_ref().map(|file| sources(file, &kernel.name)).unwrap_or_default();
        let lines: Vec<LineNote<'_>> = sources
            .iter()
            .map(|(offset, source)| LineNote {
                offset: *offset,
                file: &source.file,
                line: source.line.try_into().unwrap_or(u32::MAX),
            })
            .collect();
        memory.note(|| {
            let stack = StackNote { top: STACK_START, bytes: kernel.stack };
            Note::Kernel(KernelNote {
                va: base + kernel.code.offset,
                bytes: kernel.code.len,
                name: &kernel.name,
                stack: (kernel.stack > 0).then_some(stack),
                lines: &lines,
            })
        });
    }
}

/// The source lines of a kernel by offset from its start; none if the cubin does not say.
fn sources(file: &File<'_>, kernel: &str) -> Vec<(u64, SourceLine)> {
    let Some(function) = file.functions().find(|function| function.name == kernel) else { return Vec::new() };
    let Ok(lines) = file.lines(&function) else { return Vec::new() };
    let offsets = lines.table().into_iter().map(|(offset, _)| offset);
    let source = |offset: u64| Some((offset.checked_sub(function.offset)?, lines.at(offset).next()?.clone()));
    offsets.filter_map(source).collect()
}
