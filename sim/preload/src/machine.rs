//! The machine of this process, and which calls are for it.

use ga10b_sim::{Place, Sim, SimConfig, WhatIfs};
use libc::c_int;
use nix::errno::Errno;
use std::cell::Cell;
use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

static SIM: OnceLock<Option<Arc<Sim>>> = OnceLock::new();
/// The machine's settings from the environment, if they are valid.
static CONFIG: OnceLock<Option<SimConfig>> = OnceLock::new();
/// Held while the machine is made.
static STARTING: Mutex<()> = Mutex::new(());

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` for a call of the program; `None` for calls that the machine itself makes, which go to the
/// kernel.
pub(crate) fn from_program<R>(f: impl FnOnce() -> R) -> Option<R> {
    if is_inside() {
        return None;
    }
    INSIDE.set(true);
    let result = f();
    INSIDE.set(false);
    Some(result)
}

/// The machine, if the program has opened a node of it.
pub(crate) fn machine() -> Option<&'static Arc<Sim>> {
    SIM.get().and_then(Option::as_ref)
}

/// Whether the thread is in a call of the machine.
pub(crate) fn is_inside() -> bool {
    INSIDE.get() || ga10b_sim::is_gpu_thread()
}

/// Waits until no thread makes the machine, and lets none begin.
pub(crate) fn starting() -> MutexGuard<'static, ()> {
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The machine, which is made if there is none yet.
pub(crate) fn start() -> Option<&'static Arc<Sim>> {
    let _starting = SIM.get().is_none().then(starting);
    SIM.get_or_init(|| {
        let config = CONFIG.get_or_init(read_config).clone()?;
        Sim::try_new(config).inspect_err(|errno| eprintln!("libnvgpu_sim.so: cannot start: {errno}")).ok()
    })
    .as_ref()
}

fn read_config() -> Option<SimConfig> {
    SimConfig::from_env().inspect_err(|bad| eprintln!("libnvgpu_sim.so: {bad}")).ok()
}

/// Returns the machine's node or folder at a path, also before the machine is made.
pub(crate) fn place(path: &CStr) -> Option<Place> {
    let _starting = CONFIG.get().is_none().then(starting);
    match CONFIG.get_or_init(read_config) {
        Some(config) => Sim::place(path, &config.what_if),
        None => Sim::place(path, &WhatIfs::default()),
    }
}

/// The machine, if `fd` is one of its descriptors; in a fork too, where its calls are `ENODEV`.
pub(crate) fn owner(fd: c_int) -> Option<&'static Arc<Sim>> {
    let sim = machine()?;
    let fd = borrow(fd)?;
    sim.knows(fd).then_some(sim)
}

/// The machine, if it is of this process and `fd` is one of its descriptors.
pub(crate) fn owner_here(fd: c_int) -> Option<&'static Arc<Sim>> {
    machine().filter(|sim| sim.is_here()).and_then(|_| owner(fd))
}

/// Reports once why calls of a fork on the machine fail.
pub(crate) fn warn_fork(sim: &Sim) {
    if !sim.is_here() {
        warn_once(
            "a forked child has no software GPU: its calls on the parent's descriptors and on nodes are ENODEV. \
             On a Jetson they reach the driver. The child gets a GPU when it executes a program",
        );
    }
}

/// Reports once why a descriptor that another process opened is of no use.
pub(crate) fn warn_foreign(request: &str) {
    warn_once(&format!(
        "{request} on a descriptor that another process opened on its software GPU: ENODEV. On a Jetson it \
         reaches the driver. Each process has a software GPU of its own"
    ));
}

/// Writes a line to stderr without its lock, which a thread may have held when the process forked.
fn warn_once(what: &str) {
    static SAID: AtomicBool = AtomicBool::new(false);
    if !SAID.swap(true, Ordering::Relaxed) {
        let line = format!("libnvgpu_sim.so: {what}\n");
        // Without stderr there is no place to report it.
        let _ = nix::unistd::write(std::io::stderr(), line.as_bytes());
    }
}

/// A descriptor number of the program's, for the time of its call.
pub(crate) fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: the program owns the descriptor for the time of its call; the machine finds out when it is not
    // open.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Returns the name of the file that a descriptor of the machine is open on, as `/proc/self/fd` shows it on a
/// real one.
pub(crate) fn name(sim: &Sim, fd: BorrowedFd<'_>) -> String {
    sim.descriptor_name(fd).unwrap_or_else(|| "/dmabuf:".to_owned())
}

/// Result of a C function: the value, or -1 and `errno`.
pub(crate) fn answer(result: Result<c_int, Errno>) -> c_int {
    result.unwrap_or_else(|errno| {
        errno.set();
        -1
    })
}
