//! Copies to and from addresses that the program passed inside ioctl arguments.
//!
//! Such an address may be anything. As in a kernel, a bad one gives `EFAULT`: the copy is made by the kernel
//! itself, through a memfd, so no access of ours can fault. While a visitor from another process is served,
//! addresses are that process's.

use crate::caller::visitor::visitor;
use nix::errno::Errno;
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Mutex, PoisonError};
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Bytes copied at once.
const CHUNK: usize = 1 << 20;

/// The program's memory.
#[derive(Debug)]
pub(crate) struct UserMemory {
    scratch: Mutex<File>,
}

impl UserMemory {
    /// Access to the memory of this process, and of visitors.
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self { scratch: Mutex::new(File::from(memfd_create(c"copy_user", MFdFlags::MFD_CLOEXEC)?)) })
    }

    /// Reads `len` bytes at `address`.
    pub(crate) fn read(&self, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        match visitor() {
            Some(visitor) => visitor.read(address, len),
            None => self.read_own(address, len),
        }
    }

    /// Writes `bytes` at `address`.
    pub(crate) fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        match visitor() {
            Some(visitor) => visitor.write(address, bytes),
            None => self.write_own(address, bytes),
        }
    }

    /// Reads `len` bytes at `address` of this process, also while it serves a visitor.
    pub(crate) fn read_own(&self, address: u64, len: usize) -> Result<Vec<u8>, Errno> {
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let part = CHUNK.min(len - bytes.len());
            let done = bytes.len();
            take(&scratch, address.wrapping_add(done as u64), part)?;
            bytes.resize(done + part, 0);
            scratch.read_exact_at(&mut bytes[done..], 0).map_err(|_| Errno::EFAULT)?;
        }
        Ok(bytes)
    }

    /// Writes `bytes` at `address` of this process, also while it serves a visitor.
    pub(crate) fn write_own(&self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        for (i, part) in bytes.chunks(CHUNK).enumerate() {
            scratch.write_all_at(part, 0).map_err(|_| Errno::EFAULT)?;
            put(&scratch, address.wrapping_add((i * CHUNK) as u64), part.len())?;
        }
        Ok(())
    }

    /// Copies `len` bytes from one address of this process to another.
    pub(crate) fn copy(&self, from: u64, to: u64, len: u64) -> Result<(), Errno> {
        let scratch = self.scratch.lock().unwrap_or_else(PoisonError::into_inner);
        let mut done = 0;
        while done < len {
            let part = (CHUNK as u64).min(len - done);
            take(&scratch, from.wrapping_add(done), part as usize)?;
            put(&scratch, to.wrapping_add(done), part as usize)?;
            done += part;
        }
        Ok(())
    }

    /// Reads an array of `count` structs at `address`.
    pub(crate) fn read_array<T: FromBytes>(&self, address: u64, count: usize) -> Result<Vec<T>, Errno> {
        let len = count.checked_mul(size_of::<T>()).ok_or(Errno::EFAULT)?;
        let bytes = self.read(address, len)?;
        bytes.chunks_exact(size_of::<T>()).map(|c| T::read_from_bytes(c).map_err(|_| Errno::EFAULT)).collect()
    }

    /// Writes an array of structs at `address`.
    pub(crate) fn write_array<T: IntoBytes + Immutable>(
        &self,
        address: u64,
        items: &[T],
    ) -> Result<(), Errno> {
        self.write(address, items.as_bytes())
    }

    /// `copy_to_user` where the driver returns the number of bytes that it could not copy.
    pub(crate) fn write_or_count(&self, address: u64, bytes: &[u8]) -> i32 {
        if self.write(address, bytes).is_ok() { 0 } else { bytes.len() as i32 }
    }
}

/// Has the kernel copy `len` bytes at `address` into the file. The call is made directly: the C library's
/// function may be one of a sanitizer, which checks the address by itself.
fn take(scratch: &File, address: u64, len: usize) -> Result<(), Errno> {
    // SAFETY: the kernel checks the address and only reads from it; a bad one is EFAULT, not a fault of ours.
    let n = unsafe { libc::syscall(libc::SYS_pwrite64, scratch.as_raw_fd(), address, len, 0_i64) };
    if usize::try_from(n) == Ok(len) { Ok(()) } else { Err(Errno::EFAULT) }
}

/// Has the kernel copy `len` bytes of the file to `address`, directly too.
fn put(scratch: &File, address: u64, len: usize) -> Result<(), Errno> {
    // SAFETY: the caller of the ioctl vouched that the driver may write there; the kernel checks that it is
    // mapped.
    let n = unsafe { libc::syscall(libc::SYS_pread64, scratch.as_raw_fd(), address, len, 0_i64) };
    if usize::try_from(n) == Ok(len) { Ok(()) } else { Err(Errno::EFAULT) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bad_address_is_an_error_and_a_good_one_is_copied() {
        let memory = UserMemory::new().unwrap();
        let mut there = [0u8; 16];
        memory.write(there.as_mut_ptr() as u64, &[7; 16]).unwrap();
        assert_eq!(there, [7; 16]);
        assert_eq!(memory.read(there.as_ptr() as u64, 16).unwrap(), vec![7; 16]);
        assert_eq!(memory.read(8, 16), Err(Errno::EFAULT));
        assert_eq!(memory.write(8, &[0; 16]), Err(Errno::EFAULT));
    }
}
