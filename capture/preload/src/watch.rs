//! The watcher of this process, and the thread that polls.

use ga10b_capture::{Limits, Record, Watcher};
use std::cell::Cell;
use std::sync::{Once, OnceLock};

/// The watcher, and the process that it was made in.
static WATCHER: OnceLock<Option<(Watcher, u32)>> = OnceLock::new();
static POLLING: Once = Once::new();

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` with the watcher for a call of the program; `None` for calls that the watcher itself makes, and
/// in a fork.
pub(crate) fn with<R>(f: impl FnOnce(&Watcher) -> R) -> Option<R> {
    if INSIDE.get() {
        return None;
    }
    INSIDE.set(true);
    if WATCHER.get().is_none() {
        // Outside of the cell: `start` opens a file, which another library may serve that waits for a thread
        // that waits here.
        let started = start();
        let _ = WATCHER.set(started);
    }
    let here = WATCHER.get().and_then(Option::as_ref).filter(|(_, process)| *process == std::process::id());
    let result = here.map(|(watcher, _)| f(watcher));
    INSIDE.set(false);
    result
}

fn start() -> Option<(Watcher, u32)> {
    // SAFETY: a search has no condition.
    let simulated = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"nvgpu_sim_notes".as_ptr()) };
    let reports = std::env::var_os("NVGPU_SIM_SUBMISSIONS").is_some_and(|value| value == "1");
    if !simulated.is_null() && reports {
        return None;
    }
    let watcher = Watcher::new(Limits::from_env(), Watcher::loaded_release(), Record::report);
    Some((watcher, std::process::id()))
}

/// Begins to poll, once there is a channel.
pub(crate) fn poll_from_now_on(watcher: &Watcher) {
    if !watcher.has_channels() {
        return;
    }
    POLLING.call_once(|| {
        let interval = Limits::from_env().interval;
        let poll = move || {
            INSIDE.set(true);
            let Some(Some((watcher, _))) = WATCHER.get() else { return };
            loop {
                watcher.poll();
                std::thread::sleep(interval);
            }
        };
        let spawn = || std::thread::Builder::new().name("nvdiag-capture".to_owned()).spawn(poll);
        if let Err(error) = without_signals(spawn) {
            eprintln!("libnvdiag_capture.so: no thread that reads the rings: {error}");
        }
        // SAFETY: the function lives as long as the library, which is preloaded and never unloaded.
        unsafe { libc::atexit(last_poll) };
    });
}

/// Runs `f`, which starts a thread, with all signals blocked: those of the program are for the program's
/// threads.
fn without_signals<R>(f: impl FnOnce() -> R) -> R {
    // SAFETY: sets of signals are numbers, and outlive the calls.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
        let result = f();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        result
    }
}

/// Polls a last time: reads the submissions that nothing has read yet.
extern "C" fn last_poll() {
    with(Watcher::poll);
}
