//! The functions of `nvgpu_sim.h`: a program's notes on its memory, for the checks.

use ga10b_sim::{Checks, KernelAccess, KernelNote, Note, PieceKind, PieceNote, StackNote};
use libc::{c_char, c_int, c_uint};
use nix::errno::Errno;
use std::ffi::CStr;

use crate::machine::{answer, borrow, from_program, owner_here, start};

/// Takes a note about an address space.
fn note(as_fd: c_int, note: &Note<'_>) -> c_int {
    let taken = from_program(|| {
        let (sim, fd) = owner_here(as_fd).zip(borrow(as_fd)).ok_or(Errno::EBADF)?;
        sim.annotations(fd).ok_or(Errno::EBADF)?.note(note);
        Ok(0)
    });
    answer(taken.unwrap_or(Ok(0)))
}

/// A name; null is none.
///
/// # Safety
/// `name` is null or a C string that stays as it is while the result is used.
unsafe fn text<'a>(name: *const c_char) -> Option<&'a str> {
    if name.is_null() {
        return Some("");
    }
    // SAFETY: the caller's promise.
    unsafe { CStr::from_ptr(name) }.to_str().ok()
}

fn invalid() -> c_int {
    answer(Err(Errno::EINVAL))
}

/// Returns how notes are treated: 0 ignored, 1 used as names, 2 compared with accesses. Starts the machine.
#[unsafe(no_mangle)]
pub extern "C" fn nvgpu_sim_notes() -> c_int {
    match from_program(|| start().map(|sim| sim.checks())).flatten() {
        Some(checks) if checks.contains(Checks::MEMORY) => 2,
        Some(checks) if !checks.is_empty() => 1,
        _ => 0,
    }
}

/// A piece of a mapping.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvgpu_sim_piece(
    as_fd: c_int,
    va: u64,
    bytes: u64,
    kind: c_uint,
    access: c_uint,
    name: *const c_char,
) -> c_int {
    // SAFETY: the caller's promise.
    let name = unsafe { text(name) };
    let (kind, access) = (PieceKind::from_number(kind), KernelAccess::from_number(access));
    let (Some(kind), Some(access), Some(name)) = (kind, access, name) else { return invalid() };
    note(as_fd, &Note::Piece(PieceNote { va, bytes, kind, name, access }))
}

/// A piece is freed.
#[unsafe(no_mangle)]
pub extern "C" fn nvgpu_sim_freed(as_fd: c_int, va: u64) -> c_int {
    note(as_fd, &Note::Freed { va })
}

/// A piece has a name.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvgpu_sim_name(as_fd: c_int, va: u64, name: *const c_char) -> c_int {
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { text(name) }) else { return invalid() };
    note(as_fd, &Note::Named { va, name })
}

/// A kernel.
///
/// # Safety
/// `name` is null or a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nvgpu_sim_kernel(
    as_fd: c_int,
    va: u64,
    bytes: u64,
    name: *const c_char,
    stack_top: u32,
    stack_bytes: u32,
) -> c_int {
    // SAFETY: the caller's promise.
    let Some(name) = (unsafe { text(name) }) else { return invalid() };
    let stack = (stack_bytes > 0).then_some(StackNote { top: stack_top, bytes: stack_bytes });
    note(as_fd, &Note::Kernel(KernelNote { va, bytes, name, stack, shared: None, lines: &[] }))
}
