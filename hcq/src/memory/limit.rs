//! The limit of the process's address space. `mmap` answers with ENOMEM where it is reached, as it does where there
//! is no memory (`mmap(2)`, `getrlimit(2)`).

use nix::sys::resource::{Resource, getrlimit};
use nix::unistd::{SysconfVar, sysconf};

/// An address space that is nearly as large as it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Bytes that may be mapped, `RLIMIT_AS`.
    pub limit: u64,
    /// Bytes that are.
    pub used: u64,
}

/// The limit, if `len` bytes more are over it.
pub(crate) fn reached_by(len: u64) -> Option<Reached> {
    // No limit is the largest number.
    let (limit, _) = getrlimit(Resource::RLIMIT_AS).ok()?;
    // Pages of the address space (`proc_pid_statm(5)`), which the kernel compares with the limit.
    let statm = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = statm.split(' ').next()?.parse().ok()?;
    let page = u64::try_from(sysconf(SysconfVar::PAGE_SIZE).ok()??).ok()?;
    let used = pages.checked_mul(page)?;
    (used.saturating_add(len) > limit).then_some(Reached { limit, used })
}
