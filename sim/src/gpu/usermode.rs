//! The user-mode register page: doorbell and time.

use crate::dram::HostMapping;
use crate::what_if::WhatIf;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

/// Length of the user-mode register page.
pub(crate) const USERMODE_LEN: usize = 0x1_0000;
/// Class of the page's layout, in bits 15:0 of its first word: that of GA100 (`AMPERE_USERMODE_A`,
/// `NV_USERMODE_CFG0` in GA100's public manual). ga10b's own value is not public, and its driver reads it nowhere;
/// nothing may depend on it.
const USERMODE_CLASS: u32 = 0xc561;
/// The class of TU104 (hw_usermode_tu104.h of the driver), whose addresses of the page ga10b's driver uses.
const TURING_CLASS: u32 = 0xc461;
const CFG0: usize = 0x00;
const TIME_0: usize = 0x80;
const TIME_1: usize = 0x84;
const DOORBELL: usize = 0x90;
/// Value of the doorbell when it has not been rung: no token has all bits set.
const QUIET: u32 = u32::MAX;

/// The page through which a program rings doorbells and reads the time.
#[derive(Debug)]
pub(crate) struct Usermode {
    memfd: OwnedFd,
    page: HostMapping,
}

impl Usermode {
    /// A page whose doorbell has not been rung.
    pub(crate) fn new(what_if: WhatIf) -> Result<Self, Errno> {
        let memfd = memfd_create(c"usermode", MFdFlags::MFD_CLOEXEC)?;
        nix::unistd::ftruncate(&memfd, USERMODE_LEN as i64)?;
        let page = HostMapping::shared(memfd.as_fd(), USERMODE_LEN)?;
        let usermode = Self { memfd, page };
        let other = what_if.contains(WhatIf::DOORBELL_CLASS);
        let class = if other { TURING_CLASS } else { USERMODE_CLASS };
        usermode.word(CFG0).store(class, Ordering::Release);
        usermode.word(DOORBELL).store(QUIET, Ordering::Release);
        Ok(usermode)
    }

    /// The page, to map.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.memfd.as_fd()
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        let ptr = self.page.ptr().as_ptr().wrapping_add(at);
        // SAFETY: the offsets used are aligned and inside the page, which lives as long as `self`.
        unsafe { AtomicU32::from_ptr(ptr.cast()) }
    }

    /// Shows the time.
    pub(crate) fn set_time(&self, ns: u64) {
        self.word(TIME_1).store((ns >> 32) as u32, Ordering::Release);
        self.word(TIME_0).store(ns as u32, Ordering::Release);
    }

    /// Whether the doorbell was rung since it was last polled.
    pub(crate) fn is_rung(&self) -> bool {
        self.word(DOORBELL).load(Ordering::Acquire) != QUIET
    }

    /// Takes the token that the doorbell was last rung with, once.
    pub(crate) fn take_token(&self) -> Option<u32> {
        if self.word(DOORBELL).load(Ordering::Acquire) == QUIET {
            return None;
        }
        Some(self.word(DOORBELL).swap(QUIET, Ordering::AcqRel))
    }
}
