//! The machine of this process, and which calls are for it.

use ga10b_sim::{Sim, SimConfig};
use libc::c_int;
use nix::errno::Errno;
use std::cell::Cell;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};

static SIM: OnceLock<Option<Arc<Sim>>> = OnceLock::new();

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `f` for a call of the program; `None` for calls that the machine itself makes, which go to the
/// kernel.
pub(crate) fn from_program<R>(f: impl FnOnce() -> R) -> Option<R> {
    if INSIDE.get() || ga10b_sim::is_gpu_thread() {
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

/// The machine, which is made if there is none yet.
pub(crate) fn start() -> Option<&'static Arc<Sim>> {
    SIM.get_or_init(|| {
        let config = SimConfig::from_env().inspect_err(|bad| eprintln!("libnvgpu_sim.so: {bad}")).ok()?;
        Sim::try_new(config).inspect_err(|errno| eprintln!("libnvgpu_sim.so: cannot start: {errno}")).ok()
    })
    .as_ref()
}

/// The machine, if `fd` is one of its descriptors.
pub(crate) fn owner(fd: c_int) -> Option<&'static Arc<Sim>> {
    let sim = machine()?;
    let fd = borrow(fd)?;
    sim.owns(fd).then_some(sim)
}

/// A descriptor number of the program's, for the time of its call.
pub(crate) fn borrow<'a>(fd: c_int) -> Option<BorrowedFd<'a>> {
    // SAFETY: the program owns the descriptor for the time of its call; the machine finds out when it is not
    // open.
    (fd >= 0).then(|| unsafe { BorrowedFd::borrow_raw(fd) })
}

/// What a descriptor of the machine is open on, as `/proc/self/fd` shows it on a real one.
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
