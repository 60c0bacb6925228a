//! CPU mappings of video memory, system memory and registers.

use std::fmt;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd};
use std::ptr::NonNull;
use std::sync::Arc;

use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::Sys;
use rm_sys::{Escape, NVOS34_PARAMETERS, nv_ioctl_nvos33_parameters_with_fd};

use super::client::{Client, Handle, check, open_control};
use crate::address::Bytes;
use crate::errno::Errno;
use crate::error::{DriverError, Error};

/// The device node through which a mapping is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// The GPU's: registers and video memory.
    Gpu,
    /// The resource manager's: system memory.
    Control,
}

/// A CPU mapping of an object; removed on drop.
pub(super) struct CpuMapping {
    base: NonNull<u8>,
    len: usize,
    client: Arc<Client>,
    device: Handle,
    memory: Handle,
    cookie: u64,
}

// SAFETY: the pointer is the address of a shared mapping; every access through it is volatile, atomic or a
// raw copy.
unsafe impl Send for CpuMapping {}
// SAFETY: as above.
unsafe impl Sync for CpuMapping {}

impl fmt::Debug for CpuMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CpuMapping({} at {:p})", Bytes(self.len as u64), self.base)
    }
}

impl CpuMapping {
    /// Maps the first `len` bytes of `memory`; `device` is the device's handle, or the subdevice's for
    /// registers.
    pub fn new(
        client: &Arc<Client>,
        device: Handle,
        memory: Handle,
        len: usize,
        node: Node,
        what: &'static str,
    ) -> Result<Self, Error> {
        // One descriptor holds one pending mapping, and may go once the mapping is made.
        let fd = match node {
            Node::Gpu => client.open_for_gpu_mapping()?,
            Node::Control => open_control(client.sys())?,
        };
        let mut args = nv_ioctl_nvos33_parameters_with_fd {
            params_hClient: client.root(),
            params_hDevice: device,
            params_hMemory: memory,
            params_length: len as u64,
            fd: fd.as_raw_fd(),
            ..Default::default()
        };
        // SAFETY: the descriptor is open; the struct holds no addresses of this process.
        unsafe { client.escape(&mut args) }?;
        check(nv_ioctl_nvos33_parameters_with_fd::NAME, args.params_status)?;
        let cookie = args.params_pLinearAddress;
        let failed =
            |errno| Error::Driver(DriverError::Mmap { what, len: len as u64, errno: Errno::of(errno) });
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        let mapped = NonZeroUsize::new(len).ok_or(nix::errno::Errno::EINVAL).and_then(|len| {
            // SAFETY: the memory is reached through volatile accesses, atomics and raw copies only.
            unsafe { client.sys().mmap(len, prot, MapFlags::MAP_SHARED, fd.as_fd(), 0) }
        });
        match mapped {
            Ok(base) => Ok(Self { base: base.cast(), len, client: client.clone(), device, memory, cookie }),
            Err(errno) => {
                unmap(client, device, memory, cookie);
                Err(failed(errno))
            }
        }
    }

    /// First byte.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Reads a 32-bit register or word at `offset`, a multiple of 4 inside the mapping.
    pub fn read_u32(&self, offset: usize) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "offset outside the mapping");
        // SAFETY: inside the mapping and aligned, by the check above.
        unsafe { self.base.add(offset).cast::<u32>().read_volatile() }
    }

    /// Writes a 32-bit register or word at `offset`, a multiple of 4 inside the mapping.
    pub fn write_u32(&self, offset: usize, value: u32) {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.len, "offset outside the mapping");
        // SAFETY: inside the mapping and aligned, by the check above.
        unsafe { self.base.add(offset).cast::<u32>().write_volatile(value) }
    }

    /// Fills the first `len` bytes with zeros.
    pub fn clear(&self, len: usize) {
        assert!(len <= self.len, "length outside the mapping");
        // SAFETY: inside the mapping, by the check above; nothing else uses the memory yet.
        unsafe { std::ptr::write_bytes(self.base.as_ptr(), 0, len) }
    }
}

fn unmap(client: &Client, device: Handle, memory: Handle, cookie: u64) {
    let mut args = NVOS34_PARAMETERS {
        hClient: client.root(),
        hDevice: device,
        hMemory: memory,
        pLinearAddress: cookie,
        ..Default::default()
    };
    // SAFETY: the address is the cookie of a mapping made by this client, which is gone from the process.
    let result =
        unsafe { client.escape(&mut args) }.and_then(|()| check(NVOS34_PARAMETERS::NAME, args.status));
    if let Err(error) = result {
        tracing::warn!(%error, memory, "a CPU mapping could not be given back");
    }
}

impl Drop for CpuMapping {
    fn drop(&mut self) {
        if !self.client.sys().is_open_here() {
            return;
        }
        // SAFETY: address and length are those of one mapping, and its owner is going: nothing uses it any
        // more.
        if let Err(errno) = unsafe { self.client.sys().munmap(self.base.cast(), self.len) } {
            tracing::warn!(%errno, "{self:?} could not be unmapped");
        }
        unmap(&self.client, self.device, self.memory, self.cookie);
    }
}
