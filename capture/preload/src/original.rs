//! The functions that this library replaces, as the libraries after it have them.

use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// A function by its name, which is looked up once.
#[derive(Debug)]
pub(crate) struct Original(&'static CStr, AtomicPtr<libc::c_void>);

impl Original {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self(name, AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The function.
    ///
    /// # Safety
    /// `F` is the type of a pointer to the function of that name.
    pub(crate) unsafe fn get<F: Copy>(&self) -> F {
        const { assert!(size_of::<F>() == size_of::<*mut libc::c_void>()) };
        let mut found = self.1.load(Ordering::Relaxed);
        if found.is_null() {
            // SAFETY: a search has no condition.
            found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.0.as_ptr()) };
            if found.is_null() {
                eprintln!("libnvdiag_capture.so: the C library has no {:?}", self.0);
                std::process::abort();
            }
            self.1.store(found, Ordering::Relaxed);
        }
        // SAFETY: the address of a function is a pointer to it, of the type that the caller promises.
        unsafe { std::mem::transmute_copy(&found) }
    }
}
