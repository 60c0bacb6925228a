//! Requests whose argument names a buffer for the answer, with a buffer of the right size.

use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use zerocopy::{FromBytes, IntoBytes};

use crate::bindings::{
    nvgpu_gpu_characteristics, nvgpu_gpu_get_characteristics, nvgpu_tsg_read_single_sm_error_state_args,
    nvgpu_tsg_sm_error_state_record,
};
use crate::ioctl::{Ioctl, IoctlError, call};
use crate::sys::Sys;

/// Sends the request that `argument` makes for a buffer, and returns the driver's answer.
///
/// # Safety
/// The driver must write at the address it is given, and at most as many bytes as `T` has.
unsafe fn answered<T: Default + FromBytes + IntoBytes, A: Ioctl>(
    sys: &dyn Sys,
    fd: BorrowedFd<'_>,
    argument: impl FnOnce(u64, u64) -> A,
) -> Result<T, IoctlError> {
    let mut answer = T::default();
    let mut args = argument((&raw mut answer).expose_provenance() as u64, size_of::<T>() as u64);
    // SAFETY: the address is that of `answer`, which outlives the call and is as long as stated.
    match unsafe { call(sys, fd, &mut args) }? {
        0 => Ok(answer),
        // The number of bytes that the driver could not copy.
        _ => Err(IoctlError { name: A::NAME, request: A::REQUEST, errno: Errno::EFAULT }),
    }
}

/// Returns the GPU's characteristics from a control node (`NVGPU_GPU_IOCTL_GET_CHARACTERISTICS`).
///
/// # Errors
/// Those of the driver; `EFAULT` when it copied less than the whole struct.
pub fn characteristics(sys: &dyn Sys, ctrl: BorrowedFd<'_>) -> Result<nvgpu_gpu_characteristics, IoctlError> {
    let argument = |address, len| nvgpu_gpu_get_characteristics {
        gpu_characteristics_buf_size: len,
        gpu_characteristics_buf_addr: address,
    };
    // SAFETY: the request writes at most `len` bytes at the address.
    unsafe { answered(sys, ctrl, argument) }
}

/// The error that an SM reported to a channel group, all zero if none
/// (`NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE`). It stays until the next one or until the group is closed.
///
/// # Errors
/// `EINVAL` for a number that no SM has; others of the driver.
pub fn sm_error_state(
    sys: &dyn Sys,
    group: BorrowedFd<'_>,
    sm: u32,
) -> Result<nvgpu_tsg_sm_error_state_record, IoctlError> {
    let argument = |address, len| nvgpu_tsg_read_single_sm_error_state_args {
        sm_id: sm,
        record_mem: address,
        record_size: len,
        ..Default::default()
    };
    // SAFETY: the request writes at most `len` bytes at the address.
    unsafe { answered(sys, group, argument) }
}
