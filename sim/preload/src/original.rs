//! The C library's own functions, where the kernel has no call of the same meaning.

use std::ffi::CStr;

/// The next definition of `name` after this library's.
///
/// # Safety
/// `F` is the type of a pointer to the function of that name.
pub(crate) unsafe fn original<F: Copy>(name: &CStr) -> Option<F> {
    const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
    // SAFETY: a search has no condition.
    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    // SAFETY: the address of a function is a pointer to it, of the type that the caller promises.
    (!found.is_null()).then(|| unsafe { std::mem::transmute_copy(&found) })
}
