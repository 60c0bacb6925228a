//! Notes two pieces of a page with the functions of `nvgpu_sim.h` and has the copy engine copy from one to the other,
//! as many bytes as the argument says: with `NVGPU_SIM_CHECK=memory`, more than 100 are reported.

mod channel;

use channel::{Channel, release};
use std::error::Error;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::os::fd::{AsRawFd, BorrowedFd};

/// Offsets of the data in the page; commands come first.
const SOURCE: u64 = 0x400;
const TARGET: u64 = 0x600;
const SEMAPHORE: u64 = 0x800;

type Notes = extern "C" fn() -> c_int;
type Piece = unsafe extern "C" fn(c_int, u64, u64, c_uint, c_uint, *const c_char) -> c_int;

/// A function of the library, if it is loaded.
fn function(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string.
    let at = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    (!at.is_null()).then_some(at)
}

/// Notes the contents of the page at `va`, if a checker listens; returns `nvgpu_sim_notes`.
fn note(space: BorrowedFd<'_>, va: u64) -> c_int {
    // SAFETY: the functions have these types.
    let (notes, piece) = unsafe {
        (
            function(c"nvgpu_sim_notes").map(|at| std::mem::transmute::<*mut c_void, Notes>(at)),
            function(c"nvgpu_sim_piece").map(|at| std::mem::transmute::<*mut c_void, Piece>(at)),
        )
    };
    let wanted = notes.map_or(0, |notes| notes());
    let Some(piece) = piece.filter(|_| wanted > 0) else { return wanted };
    let note = |fd, va, bytes, kind, access, name: &CStr| {
        // SAFETY: the name is a C string.
        unsafe { piece(fd, va, bytes, kind, access, name.as_ptr()) }
    };
    let space = space.as_raw_fd();
    let answers = [
        note(space, va, SOURCE, 1, 0, c"commands"),
        note(space, va + SOURCE, 100, 0, 2, c"source"),
        note(space, va + TARGET, 256, 0, 2, c"target"),
        note(space, va + SEMAPHORE, 16, 9, 0, c"semaphore"),
    ];
    assert_eq!(answers, [0; 4]);
    // A meaningless note is an error, and changes nothing.
    let kind = note(space, va + SOURCE, 9, 99, 2, c"");
    let access = note(space, va + SOURCE, 9, 0, 3, c"");
    let descriptor = note(0, va + SOURCE, 9, 0, 2, c"");
    assert_eq!([kind, access, descriptor], [-1; 3]);
    wanted
}

fn main() -> Result<(), Box<dyn Error>> {
    let bytes: u32 = std::env::args().nth(1).ok_or("how many bytes?")?.parse()?;
    let mut wanted = 0;
    let channel = Channel::new(|space, va| wanted = note(space, va))?;
    let (source, target, semaphore) = (channel.va + SOURCE, channel.va + TARGET, channel.va + SEMAPHORE);
    let (high, low) = (|va: u64| (va >> 32) as u32, |va: u64| va as u32);
    // SET_OBJECT; OFFSET_IN, OFFSET_OUT; LINE_LENGTH_IN; LAUNCH_DMA, pitch to pitch, flushed.
    let copy = [
        [0x2001_8000, 0xc7b5].as_slice(),
        &[0x2004_8100, high(source), low(source), high(target), low(target)],
        &[0x2001_8106, bytes],
        &[0x2001_80c0, 0x186],
        &release(semaphore, 1),
    ];
    channel.submit(&copy.concat());
    channel.wait(SEMAPHORE as usize, 1)?;
    println!("notes {wanted}, copied {bytes} bytes");
    Ok(())
}
