//! `fork`: the tables of this library and of the machine are at rest while the process is copied. A lock that
//! another thread held would stay locked in the child, where that thread is not.

use crate::folders::{self, Open};
use crate::machine::{is_inside, machine, starting};
use ga10b_sim::Held;
use std::cell::RefCell;
use std::sync::MutexGuard;

/// Everything that is held, released in this order.
struct AtRest {
    _files: Option<Held<'static>>,
    _folders: MutexGuard<'static, Option<Open>>,
    _starting: MutexGuard<'static, ()>,
}

thread_local! {
    static AT_REST: RefCell<Option<AtRest>> = const { RefCell::new(None) };
}

extern "C" fn before() {
    // A signal's handler that interrupted a call of the machine may find the thread's own locks.
    if is_inside() {
        return;
    }
    let _starting = starting();
    let _folders = folders::lock();
    let at_rest = AtRest { _files: machine().map(|sim| sim.hold()), _folders, _starting };
    // A thread that has ended so far that its variables are gone keeps nothing.
    let _ = AT_REST.try_with(|held| held.replace(Some(at_rest)));
}

extern "C" fn after() {
    let _ = AT_REST.try_with(|held| held.take());
}

/// Runs when the library is loaded, before any of its locks is taken.
extern "C" fn register() {
    // SAFETY: the functions are there as long as the library, which is never unloaded.
    let failed = unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
    if failed != 0 {
        eprintln!("libnvgpu_sim.so: no memory for the functions that run when the process forks");
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static REGISTER: extern "C" fn() = register;
