//! The C library's own functions, where the kernel has no call of the same meaning.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

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

/// A function of the C library that is searched for once.
pub(crate) struct Original {
    name: &'static CStr,
    found: AtomicPtr<c_void>,
}

impl Original {
    /// The function of that name.
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, found: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function; `None` if the C library has none.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    pub(crate) unsafe fn get<F: Copy>(&self) -> Option<F> {
        const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
        let mut found = self.found.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: an address is a pointer.
            found = unsafe { original::<*mut c_void>(self.name) }?;
            self.found.store(found, Ordering::Relaxed);
        }
        // SAFETY: the address of a function is a pointer to it, of the type that the caller promises.
        Some(unsafe { std::mem::transmute_copy(&found) })
    }
}
