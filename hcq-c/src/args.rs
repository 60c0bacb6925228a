//! The arguments of a launch.

use std::ffi::c_void;
use std::sync::Mutex;

use hcq::Args;

use crate::buffer::hcq_buffer;
use crate::call::{bytes, call, put, room};
use crate::failure::Failure;
use crate::handle::{Handle, exclusive, free, get, hand_out};
use crate::registry::{Kind, Registry};
use crate::status::hcq_status;

/// The arguments of a launch, in order, each at its natural alignment. One thread uses a list at a time.
///
/// A launch compares each with the parameter of its number, by size and place, where the cubin lists them. One
/// argument with the bytes of all parameters, a struct that a program has packed, is taken for all of them.
///
/// A call that adds an argument and fails makes each launch with the list fail in the same way, until the list is
/// cleared: it is enough to look at the launch's status.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_args {
    _private: (),
}

impl Handle for hcq_args {
    type Object = Mutex<List>;

    fn registry() -> &'static Registry<Mutex<List>> {
        static ALL: Registry<Mutex<List>> = Registry::new(Kind::Args);
        &ALL
    }
}

/// The arguments so far, or why one of them could not be added.
#[derive(Debug, Default)]
pub(crate) struct List {
    args: Args,
    failed: Option<Failure>,
}

/// Shows the arguments to `use_them`; none where the handle is null.
pub(crate) fn with<R>(
    args: *const hcq_args,
    use_them: impl FnOnce(&Args) -> Result<R, Failure>,
) -> Result<R, Failure> {
    if args.is_null() {
        return use_them(&Args::new());
    }
    let list = get(args)?;
    let list = exclusive(&list, "list of arguments")?;
    match &list.failed {
        Some(failure) => Err(failure.clone()),
        None => use_them(&list.args),
    }
}

fn add(args: *mut hcq_args, add: impl FnOnce(Args) -> Result<Args, Failure>) -> hcq_status {
    call(|| {
        let list = get(args)?;
        let mut list = exclusive(&list, "list of arguments")?;
        match add(std::mem::take(&mut list.args)) {
            Ok(args) => list.args = args,
            Err(failure) => {
                list.failed.get_or_insert(failure.clone());
                return Err(failure);
            }
        }
        Ok(())
    })
}

/// Makes an empty list of arguments.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_args_new(args: *mut *mut hcq_args) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { hand_out(args, || Ok(Mutex::default())) })
}

/// Frees a list of arguments; launches that were recorded with it stay as they are. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_free(args: *mut hcq_args) -> hcq_status {
    free(args)
}

/// Empties a list of arguments, which keeps its memory: a loop that fills one again allocates nothing.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_clear(args: *mut hcq_args) -> hcq_status {
    call(|| {
        let list = get(args)?;
        let mut list = exclusive(&list, "list of arguments")?;
        list.args.clear();
        list.failed = None;
        Ok(())
    })
}

/// Adds the address of a buffer, which stays as long as the list and what is launched with it.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_buffer(args: *mut hcq_args, buffer: *const hcq_buffer) -> hcq_status {
    add(args, |list| Ok(list.buffer(&*get(buffer)?)))
}

/// Adds the address `offset` bytes into a buffer. An offset past the end is passed as it is.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_buffer_at(
    args: *mut hcq_args,
    buffer: *const hcq_buffer,
    offset: u64,
) -> hcq_status {
    add(args, |list| Ok(list.buffer_at(&*get(buffer)?, offset)))
}

/// Adds a 32-bit unsigned integer.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_u32(args: *mut hcq_args, value: u32) -> hcq_status {
    add(args, |list| Ok(list.u32(value)))
}

/// Adds a 32-bit signed integer.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_i32(args: *mut hcq_args, value: i32) -> hcq_status {
    add(args, |list| Ok(list.i32(value)))
}

/// Adds a 64-bit unsigned integer.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_u64(args: *mut hcq_args, value: u64) -> hcq_status {
    add(args, |list| Ok(list.u64(value)))
}

/// Adds a 64-bit signed integer.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_i64(args: *mut hcq_args, value: i64) -> hcq_status {
    add(args, |list| Ok(list.bytes(&value.to_le_bytes(), 8)))
}

/// Adds a 32-bit float.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_f32(args: *mut hcq_args, value: f32) -> hcq_status {
    add(args, |list| Ok(list.f32(value)))
}

/// Adds a 64-bit float.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_args_f64(args: *mut hcq_args, value: f64) -> hcq_status {
    add(args, |list| Ok(list.bytes(&value.to_le_bytes(), 8)))
}

/// Adds a value of another type: its bytes, at a multiple of `align`, a power of two up to 4096. With another
/// alignment every launch is `HCQ_ERROR_LAUNCH_ALIGNMENT`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_args_bytes(
    args: *mut hcq_args,
    value: *const c_void,
    len: usize,
    align: usize,
) -> hcq_status {
    // SAFETY: the caller's promise.
    add(args, |list| Ok(list.bytes(unsafe { bytes(value, len, "value") }?, align)))
}

/// Copies the block of parameters so far, cut to `size` bytes; `len`, which may be `NULL`, gets its whole length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_args_block(
    args: *const hcq_args,
    data: *mut c_void,
    size: usize,
    len: *mut usize,
) -> hcq_status {
    call(|| {
        with(args, |args| {
            let block = args.as_bytes();
            if !len.is_null() {
                // SAFETY: the caller's promise.
                unsafe { put(len, "len", block.len()) }?;
            }
            let kept = size.min(block.len());
            // SAFETY: the caller's promise.
            unsafe { room(data.cast::<u8>(), kept, "data") }?.copy_from_slice(&block[..kept]);
            Ok(())
        })
    })
}
