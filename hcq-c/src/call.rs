//! The border: calls of C become calls of Rust, and errors and panics become codes.

use std::any::Any;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::failure::Failure;
use crate::status::hcq_status;

/// The last failure of a thread, and its text as C has it.
pub(crate) struct Last {
    pub failure: Failure,
    pub text: CString,
}

thread_local! {
    static LAST: RefCell<Option<Box<Last>>> = const { RefCell::new(None) };
}

/// Text as C has it: without the bytes that would end it early.
pub(crate) fn c_text(text: &str) -> CString {
    let bytes: Vec<u8> = text.bytes().filter(|byte| *byte != 0).collect();
    CString::new(bytes).unwrap_or_default()
}

/// Shows the last failure of this thread to `look`; `None` where there is none.
pub(crate) fn last<R>(look: impl FnOnce(&Last) -> R) -> Option<R> {
    // A thread that ends has none any more.
    LAST.try_with(|last| last.borrow().as_deref().map(look)).ok().flatten()
}

// Of pthread.h, which the crate libc does not have.
unsafe extern "C" {
    safe fn pthread_setcancelstate(state: c_int, old: Option<&mut c_int>) -> c_int;
}
/// `PTHREAD_CANCEL_DISABLE` of glibc's and musl's pthread.h.
const CANCEL_DISABLE: c_int = 1;

/// While it lives this thread is not cancelled: it would unwind through Rust, which ends the process.
struct Uncancelled(c_int);

impl Uncancelled {
    fn new() -> Self {
        let mut before = 0;
        pthread_setcancelstate(CANCEL_DISABLE, Some(&mut before));
        Self(before)
    }
}

impl Drop for Uncancelled {
    fn drop(&mut self) {
        pthread_setcancelstate(self.0, None);
    }
}

/// Runs the body of a call; keeps why it failed.
pub(crate) fn call(body: impl FnOnce() -> Result<(), Failure>) -> hcq_status {
    let _uncancelled = Uncancelled::new();
    let failure = match catch_unwind(AssertUnwindSafe(body)) {
        Ok(Ok(())) => return hcq_status::HCQ_OK,
        Ok(Err(failure)) => failure,
        Err(panic) => {
            // Its own drop may panic too.
            let panic = ManuallyDrop::new(panic);
            Failure::new(hcq_status::HCQ_ERROR_PANIC, format!("a mistake of libhcq: {}", said(&**panic)))
        }
    };
    let status = failure.status;
    let last = Box::new(Last { text: c_text(&failure.text), failure });
    // A thread that ends keeps none.
    let _ = LAST.try_with(|kept| kept.replace(Some(last)));
    status
}

fn said(panic: &(dyn Any + Send)) -> &str {
    match panic.downcast_ref::<&str>() {
        Some(text) => text,
        None => panic.downcast_ref::<String>().map_or("a panic", String::as_str),
    }
}

fn check<T>(pointer: *const T, what: &str) -> Result<(), Failure> {
    if !pointer.is_null() && pointer.is_aligned() {
        return Ok(());
    }
    let text = match pointer.is_null() {
        true => format!("{what} is NULL"),
        false => format!("{what} is {pointer:p}, which is not aligned to {} bytes", align_of::<T>()),
    };
    Err(Failure::new(hcq_status::HCQ_ERROR_POINTER, text))
}

/// Writes a result of a call.
///
/// # Safety
/// `to` is null, or valid for writes of a `T`.
pub(crate) unsafe fn put<T>(to: *mut T, what: &str, value: T) -> Result<(), Failure> {
    check(to, what)?;
    // SAFETY: the caller's promise; it is aligned.
    unsafe { to.write(value) };
    Ok(())
}

/// Writes as much of a structure as the caller has room for, who may know an older one, or a newer one: the rest
/// of that is zeros.
///
/// # Safety
/// `to` is null, or valid for writes of `size` bytes.
pub(crate) unsafe fn put_sized<T: Copy>(
    to: *mut T,
    size: usize,
    what: &str,
    value: &T,
) -> Result<(), Failure> {
    check(to, what)?;
    let known = size.min(size_of::<T>());
    let to = to.cast::<u8>();
    // SAFETY: both are valid for `known` bytes, `to` for `size`, and they do not overlap: one is ours.
    unsafe {
        std::ptr::from_ref(value).cast::<u8>().copy_to_nonoverlapping(to, known);
        to.add(known).write_bytes(0, size - known);
    }
    Ok(())
}

/// Reads a structure of the caller.
///
/// # Safety
/// `from` is null, or points to a `T`.
pub(crate) unsafe fn get<T: Copy>(from: *const T, what: &str) -> Result<T, Failure> {
    check(from, what)?;
    // SAFETY: the caller's promise; it is aligned.
    Ok(unsafe { from.read() })
}

/// An array of the caller.
///
/// # Safety
/// `from` is null, or points to `count` values that do not change while the call runs.
pub(crate) unsafe fn array<'a, T>(from: *const T, count: usize, what: &str) -> Result<&'a [T], Failure> {
    if count == 0 {
        return Ok(&[]);
    }
    check(from, what)?;
    fits::<T>(count, what)?;
    // SAFETY: the caller's promise; it is aligned, and no longer than an object can be.
    Ok(unsafe { std::slice::from_raw_parts(from, count) })
}

/// Room of the caller.
///
/// # Safety
/// `to` is null, or valid for reads and writes of `count` values, which no one else uses while the call runs.
pub(crate) unsafe fn room<'a, T>(to: *mut T, count: usize, what: &str) -> Result<&'a mut [T], Failure> {
    if count == 0 {
        return Ok(&mut []);
    }
    check(to, what)?;
    fits::<T>(count, what)?;
    // SAFETY: as in `array`; who asks takes values that any bytes are.
    Ok(unsafe { std::slice::from_raw_parts_mut(to, count) })
}

fn fits<T>(count: usize, what: &str) -> Result<(), Failure> {
    match count.checked_mul(size_of::<T>()).is_some_and(|bytes| isize::try_from(bytes).is_ok()) {
        true => Ok(()),
        false => Err(Failure::value(format!("{what}: no array has {count} elements"))),
    }
}

/// The bytes at `from`.
///
/// # Safety
/// As for [`array`].
pub(crate) unsafe fn bytes<'a>(from: *const c_void, len: usize, what: &str) -> Result<&'a [u8], Failure> {
    // SAFETY: the caller's promise.
    unsafe { array(from.cast(), len, what) }
}

/// A text of the caller.
///
/// # Safety
/// `from` is null, or points to a text that ends with a NUL and does not change while the call runs.
pub(crate) unsafe fn text<'a>(from: *const c_char, what: &str) -> Result<&'a str, Failure> {
    check(from, what)?;
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(from) };
    text.to_str().map_err(|_| Failure::new(hcq_status::HCQ_ERROR_TEXT, format!("{what} is not UTF-8")))
}

/// A path of the caller, whose bytes are the file system's own.
///
/// # Safety
/// As for [`text`].
pub(crate) unsafe fn c_path<'a>(from: *const c_char, what: &str) -> Result<&'a [u8], Failure> {
    check(from, what)?;
    // SAFETY: the caller's promise.
    Ok(unsafe { CStr::from_ptr(from) }.to_bytes())
}

/// Copies a text into the room of the caller, who may have less than it takes, and says how many bytes it has,
/// its NUL not counted. Both pointers may be null.
///
/// # Safety
/// `to` is null, or valid for writes of `size` bytes; `len` is null, or valid for a write.
pub(crate) unsafe fn put_text(
    text: &str,
    to: *mut c_char,
    size: usize,
    len: *mut usize,
) -> Result<(), Failure> {
    let text = c_text(text);
    if !len.is_null() {
        // SAFETY: the caller's promise.
        unsafe { put(len, "len", text.as_bytes().len()) }?;
    }
    if !to.is_null() && size > 0 {
        // SAFETY: the caller's promise.
        let to = unsafe { room(to.cast::<u8>(), size, "text") }?;
        let kept = text.as_bytes().len().min(size - 1);
        to[..kept].copy_from_slice(&text.as_bytes()[..kept]);
        to[kept] = 0;
    }
    Ok(())
}

/// A deadline. A negative one is refused: every wait ends.
pub(crate) fn deadline(timeout_ns: i64) -> Result<Duration, Failure> {
    match u64::try_from(timeout_ns) {
        Ok(ns) => Ok(Duration::from_nanos(ns)),
        Err(_) => Err(Failure::value(format!(
            "the deadline is {timeout_ns} ns; every wait has one that is not negative"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_a_code_and_a_text() {
        let status = call(|| panic!("slot {} is gone", 7));
        assert_eq!(status, hcq_status::HCQ_ERROR_PANIC);
        let text = last(|last| last.text.clone()).unwrap();
        assert_eq!(text.to_str().unwrap(), "a mistake of libhcq: slot 7 is gone");
        assert_eq!(call(|| panic!("no number")), hcq_status::HCQ_ERROR_PANIC);
        assert_eq!(call(|| std::panic::panic_any(7)), hcq_status::HCQ_ERROR_PANIC);
    }

    #[test]
    fn the_last_failure_is_the_threads_own_and_stays_until_the_next() {
        let fail = |text: &str| call(|| Err(Failure::value(text)));
        let said = || last(|last| last.text.to_str().unwrap().to_owned());
        fail("first\0of two");
        std::thread::spawn(move || assert_eq!(said(), None)).join().unwrap();
        assert_eq!(call(|| Ok(())), hcq_status::HCQ_OK);
        assert_eq!(said().as_deref(), Some("firstof two"));
        fail("second");
        assert_eq!(said().as_deref(), Some("second"));
    }

    #[test]
    fn a_structure_is_written_as_far_as_the_caller_knows_it() {
        let mut room = [7_u64; 4];
        // SAFETY: the array has so many bytes.
        unsafe {
            put_sized(room.as_mut_ptr().cast::<[u64; 2]>(), 8, "it", &[1, 2]).unwrap();
            assert_eq!(room, [1, 7, 7, 7]);
            put_sized(room.as_mut_ptr().cast::<[u64; 2]>(), 24, "it", &[1, 2]).unwrap();
            assert_eq!(room, [1, 2, 0, 7]);
            let misaligned = room.as_mut_ptr().byte_add(1);
            let error = put(misaligned, "it", 1).unwrap_err();
            assert_eq!(error.status, hcq_status::HCQ_ERROR_POINTER);
            assert_eq!(
                array::<u64>(room.as_ptr(), 1 << 61, "it").unwrap_err().status,
                hcq_status::HCQ_ERROR_VALUE
            );
        }
    }

    #[test]
    fn a_text_is_cut_to_the_room_and_its_length_told() {
        let (mut room, mut len) = ([7_u8; 8], 0);
        // SAFETY: the room has so many bytes.
        let mut copied = |size| unsafe {
            put_text("vecadd", room.as_mut_ptr().cast(), size, &mut len).unwrap();
            (room, len)
        };
        assert_eq!(copied(0), ([7; 8], 6));
        assert_eq!(copied(4), (*b"vec\0\x07\x07\x07\x07", 6));
        assert_eq!(copied(8), (*b"vecadd\0\x07", 6));
    }
}
