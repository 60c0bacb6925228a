//! Handles of the header, and the objects behind them.

use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError};

use crate::call::{call, put};
use crate::failure::Failure;
use crate::registry::Registry;
use crate::status::hcq_status;

/// A type of the header whose pointers are handles.
pub(crate) trait Handle: Sized {
    /// The object that a handle stands for.
    type Object: Send + Sync + 'static;

    fn registry() -> &'static Registry<Self::Object>;
}

/// The object of a handle.
pub(crate) fn get<H: Handle>(handle: *const H) -> Result<Arc<H::Object>, Failure> {
    Ok(H::registry().get(handle.addr() as u64)?)
}

/// The object of a handle, which goes.
pub(crate) fn take<H: Handle>(handle: *mut H) -> Result<Arc<H::Object>, Failure> {
    Ok(H::registry().take(handle.addr() as u64)?)
}

/// Gives `object` a handle.
pub(crate) fn handle<H: Handle>(object: H::Object) -> Result<*mut H, Failure> {
    let registry = H::registry();
    registry.guard_forks();
    Ok(ptr::without_provenance_mut(registry.put(object)? as usize))
}

/// Makes an object and writes its handle to `to`; NULL where it cannot be made.
///
/// # Safety
/// `to` is null, or valid for the write of a pointer.
pub(crate) unsafe fn hand_out<H: Handle>(
    to: *mut *mut H,
    make: impl FnOnce() -> Result<H::Object, Failure>,
) -> Result<(), Failure> {
    // SAFETY: the caller's promise.
    unsafe { put(to, "where the handle goes", ptr::null_mut()) }?;
    let handle = handle(make()?)?;
    // SAFETY: as above.
    unsafe { put(to, "where the handle goes", handle) }
}

/// Frees a handle, and its object unless a call of another thread uses it: then when that call ends.
pub(crate) fn free<H: Handle>(handle: *mut H) -> hcq_status {
    call(|| match handle.is_null() {
        true => Ok(()),
        false => take(handle).map(drop),
    })
}

/// The object that one thread uses at a time.
pub(crate) fn exclusive<'a, T>(object: &'a Mutex<T>, what: &str) -> Result<MutexGuard<'a, T>, Failure> {
    object.try_lock().map_err(|refused| match refused {
        TryLockError::WouldBlock => {
            Failure::new(hcq_status::HCQ_ERROR_BUSY, format!("another thread is in a call with the {what}"))
        }
        TryLockError::Poisoned(_) => Failure::new(
            hcq_status::HCQ_ERROR_PANIC,
            format!("an earlier call with the {what} met a mistake of libhcq"),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_in_use_is_busy_and_one_that_met_a_panic_stays_away() {
        let object = Mutex::new(1);
        let held = exclusive(&object, "queue").unwrap();
        let refused = exclusive(&object, "queue").unwrap_err();
        assert_eq!(refused.status, hcq_status::HCQ_ERROR_BUSY);
        drop(held);
        let status = call(|| {
            let _held = exclusive(&object, "queue")?;
            panic!("within");
        });
        assert_eq!(status, hcq_status::HCQ_ERROR_PANIC);
        let refused = exclusive(&object, "queue").unwrap_err();
        assert_eq!(refused.status, hcq_status::HCQ_ERROR_PANIC);
        assert_eq!(refused.text, "an earlier call with the queue met a mistake of libhcq");
    }
}
