//! Forks: a child lacks the threads of its parent, and with them whoever would give a lock back. So a fork waits for
//! the locks of the registries, and both processes give them back: calls in the child find what they ask for, and
//! answer as the library does there.

use std::any::Any;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something with a lock, which the guard holds.
pub(crate) trait Locked: Sync {
    /// Takes the lock.
    fn hold(&'static self) -> Box<dyn Any>;
}

/// Everything that forks hold.
static ALL: Mutex<Vec<&'static dyn Locked>> = Mutex::new(Vec::new());

type All = MutexGuard<'static, Vec<&'static dyn Locked>>;

/// The locks that a fork holds.
struct Held {
    _all: All,
    _of_registries: Vec<Box<dyn Any>>,
}

thread_local! {
    /// The locks that a fork of this thread holds.
    static HELD: RefCell<Option<Held>> = const { RefCell::new(None) };
}

/// From here on forks hold the lock of `locked`, which `enrolled` says.
///
/// No `Once` does this: a fork would leave one behind that is at work for ever.
pub(crate) fn enroll(locked: &'static dyn Locked, enrolled: &AtomicBool) {
    if enrolled.load(Ordering::Acquire) {
        return;
    }
    let mut all = all();
    if all.is_empty() {
        // SAFETY: the handlers are functions of this file, which stay (the library is not unloaded). Where memory for
        // them lacks, forks are as they are without.
        unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    }
    if !enrolled.swap(true, Ordering::AcqRel) {
        all.push(locked);
    }
}

fn all() -> All {
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

unsafe extern "C" fn before() {
    let all = all();
    let of_registries = all.iter().map(|locked| locked.hold()).collect();
    let held = Held { _all: all, _of_registries: of_registries };
    // A thread that ends keeps none.
    let _ = HELD.try_with(|kept| kept.replace(Some(held)));
}

unsafe extern "C" fn after() {
    let _ = HELD.try_with(RefCell::take);
}
