//! Calls into the driver's resource manager: objects, controls, mappings. Every object is freed when it is
//! dropped.

use std::ffi::{CStr, CString};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Instant;

use nix::errno::Errno as Nix;
use nix::fcntl::OFlag;
use nvgpu_sys::{IoctlError, Sys};
use rm_sys::{
    Control, Escape, NV01_ROOT_CLIENT, NVOS00_PARAMETERS, NVOS46_PARAMETERS, NVOS46_PARAMETERS_R535,
    NVOS47_PARAMETERS, NVOS47_PARAMETERS_R535, NVOS54_PARAMETERS, NVOS64_PARAMETERS, Release, Status,
    class_name, nv_ioctl_register_fd_t,
};
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::backend::calls::Calls;
use crate::error::{DriverError, Error};

/// The node of the resource manager itself.
const CONTROL_NODE: &CStr = c"/dev/nvidiactl";
/// Bytes handed over as creation parameters. The driver copies its own struct's size whatever the caller
/// states, so a zero-filled buffer larger than any release's struct is never too short.
const ALLOC_PARAMETERS: usize = 1024;

/// A handle of an object; 0 names none.
pub(super) type Handle = u32;

/// A client of the resource manager: the root of a tree of objects, and the descriptors it is spoken to
/// through.
pub(super) struct Client {
    sys: Arc<Calls>,
    release: Release,
    root: Handle,
    control: OwnedFd,
    /// Keeps the GPU initialised.
    gpu: OwnedFd,
    gpu_node: CString,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({:#x} on {})", self.root, self.gpu_node.to_string_lossy())
    }
}

/// Opens a node for reading and writing.
pub(super) fn open(sys: &dyn Sys, path: &CStr) -> Result<OwnedFd, Error> {
    sys.open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC).map_err(|errno| Error::open(path, errno))
}

/// Opens the resource manager's node.
pub(super) fn open_control(sys: &dyn Sys) -> Result<OwnedFd, Error> {
    open(sys, CONTROL_NODE)
}

/// Sends a request; again where a signal or a busy driver got in its way, for as long as [`Sys::patience`]
/// says.
///
/// # Safety
/// As for [`Sys::ioctl`].
pub(super) unsafe fn send(
    sys: &dyn Sys,
    fd: BorrowedFd<'_>,
    name: &'static str,
    request: u32,
    args: &mut [u8],
) -> Result<(), Error> {
    let (patience, mut first) = (sys.patience(), None);
    loop {
        // SAFETY: passed on to the caller.
        match unsafe { sys.ioctl(fd, request, args) } {
            Ok(_) => return Ok(()),
            Err(Nix::EINTR | Nix::EAGAIN) if first.get_or_insert_with(Instant::now).elapsed() < patience => {
                std::thread::yield_now();
            }
            Err(errno) => return Err(Error::ioctl(IoctlError { name, request, errno })),
        }
    }
}

/// Sends an escape. Its status word is the caller's to check.
///
/// # Safety
/// Addresses and descriptors in `args` must be valid for what the driver does with them.
pub(super) unsafe fn escape<E: Escape>(sys: &dyn Sys, fd: BorrowedFd<'_>, args: &mut E) -> Result<(), Error> {
    // SAFETY: `Escape` ties the struct to the request; the caller vouches for what its fields name.
    unsafe { send(sys, fd, E::NAME, E::REQUEST, args.as_mut_bytes()) }
}

/// Turns a status word into an error that names what was refused.
pub(super) fn check(call: &'static str, status: u32) -> Result<(), Error> {
    Status(status).ok().map_err(|status| Error::Driver(DriverError::Status { call, status: status.0 }))
}

impl Client {
    /// Registers with the resource manager. `gpu` is the open node of the GPU, `gpu_node` its path.
    pub fn new(
        sys: Arc<Calls>,
        release: Release,
        control: OwnedFd,
        gpu: OwnedFd,
        gpu_node: CString,
    ) -> Result<Arc<Self>, Error> {
        let mut client = Self { sys, release, root: 0, control, gpu, gpu_node };
        client.register(client.gpu.as_fd())?;
        client.root = client.allocate(0, NV01_ROOT_CLIENT, &mut [])?;
        Ok(Arc::new(client))
    }

    /// The system calls everything goes through.
    pub fn sys(&self) -> &Calls {
        &self.sys
    }

    /// The driver's release.
    pub fn release(&self) -> Release {
        self.release
    }

    /// Handle of the client itself.
    pub fn root(&self) -> Handle {
        self.root
    }

    /// Ties a descriptor of the GPU's node to this client's control descriptor.
    fn register(&self, gpu: BorrowedFd<'_>) -> Result<(), Error> {
        let mut args = nv_ioctl_register_fd_t { ctl_fd: self.control.as_raw_fd() };
        // SAFETY: the only field is a descriptor that is open.
        unsafe { escape(&*self.sys, gpu, &mut args) }
    }

    /// A fresh descriptor for one CPU mapping of registers or video memory.
    pub fn open_for_gpu_mapping(&self) -> Result<OwnedFd, Error> {
        let fd = open(&*self.sys, &self.gpu_node)?;
        self.register(fd.as_fd())?;
        Ok(fd)
    }

    /// Sends an escape on the control node and leaves its status word to the caller.
    ///
    /// # Safety
    /// Addresses and descriptors in `args` must be valid for what the driver does with them.
    pub unsafe fn escape<E: Escape>(&self, args: &mut E) -> Result<(), Error> {
        // SAFETY: passed on to the caller.
        unsafe { escape(&*self.sys, self.control.as_fd(), args) }
    }

    fn allocate(&self, parent: Handle, class: u32, parameters: &mut [u8]) -> Result<Handle, Error> {
        let mut buffer = [0u8; ALLOC_PARAMETERS];
        let name = class_name(class).unwrap_or("an object of an unknown class");
        buffer[..parameters.len()].copy_from_slice(parameters);
        let address = if parameters.is_empty() { 0 } else { buffer.as_mut_ptr().expose_provenance() as u64 };
        let mut args = NVOS64_PARAMETERS {
            hRoot: self.root,
            hObjectParent: parent,
            hClass: class,
            pAllocParms: address,
            paramsSize: parameters.len() as u32,
            ..Default::default()
        };
        // SAFETY: the address is 0 or that of `buffer`, which outlives the call and is longer than any struct
        // that a class of this crate takes; the driver keeps no address of it.
        unsafe { self.escape(&mut args) }?;
        check(name, args.status)?;
        parameters.copy_from_slice(&buffer[..parameters.len()]);
        tracing::debug!(class = name, handle = args.hObjectNew, "object created");
        Ok(args.hObjectNew)
    }

    /// Creates an object without parameters.
    pub fn create(self: &Arc<Self>, parent: Handle, class: u32) -> Result<Object, Error> {
        let handle = self.allocate(parent, class, &mut [])?;
        Ok(Object { client: self.clone(), parent, handle, class })
    }

    /// Creates an object; what the driver answers is in `parameters` afterwards.
    pub fn create_with<P: FromBytes + IntoBytes + Immutable>(
        self: &Arc<Self>,
        parent: Handle,
        class: u32,
        parameters: &mut P,
    ) -> Result<Object, Error> {
        const { assert!(size_of::<P>() <= ALLOC_PARAMETERS) };
        let handle = self.allocate(parent, class, parameters.as_mut_bytes())?;
        Ok(Object { client: self.clone(), parent, handle, class })
    }

    /// Frees an object; in a fork of the process that made it, nothing is done.
    fn free(&self, parent: Handle, handle: Handle, class: u32) {
        if !self.sys.is_open_here() {
            return;
        }
        let mut args = NVOS00_PARAMETERS {
            hRoot: self.root,
            hObjectParent: parent,
            hObjectOld: handle,
            ..Default::default()
        };
        let name = class_name(class).unwrap_or("object");
        // SAFETY: the struct holds no addresses.
        let result = unsafe { self.escape(&mut args) }.and_then(|()| check(name, args.status));
        match result {
            Ok(()) => tracing::debug!(class = name, handle, "object freed"),
            Err(error) => tracing::warn!(%error, class = name, handle, "an object could not be freed"),
        }
    }

    /// Sends a command to an object.
    ///
    /// # Safety
    /// Addresses in `parameters` must be valid for what the driver does with them.
    pub unsafe fn control<C: Control>(&self, object: Handle, parameters: &mut C) -> Result<(), Error> {
        let mut args = NVOS54_PARAMETERS {
            hClient: self.root,
            hObject: object,
            cmd: C::COMMAND,
            params: std::ptr::from_mut(parameters).expose_provenance() as u64,
            paramsSize: size_of::<C>() as u32,
            ..Default::default()
        };
        // SAFETY: the address and length are those of `parameters`, which outlives the call, and the type
        // belongs to the command; the caller vouches for addresses inside it.
        unsafe { self.escape(&mut args) }?;
        check(C::NAME, args.status)
    }

    /// Maps memory into the address space of `space` at exactly `va`.
    pub fn map_gpu(
        &self,
        device: Handle,
        space: Handle,
        memory: Handle,
        len: u64,
        va: u64,
        flags: u32,
    ) -> Result<(), Error> {
        macro_rules! map {
            ($layout:ident) => {{
                let mut args = $layout {
                    hClient: self.root,
                    hDevice: device,
                    hDma: space,
                    hMemory: memory,
                    length: len,
                    flags,
                    dmaOffset: va,
                    ..Default::default()
                };
                // SAFETY: the struct holds no addresses of this process.
                unsafe { self.escape(&mut args) }?;
                (args.dmaOffset, args.status)
            }};
        }
        let (at, status) = if self.release >= Release::R580 {
            map!(NVOS46_PARAMETERS)
        } else {
            map!(NVOS46_PARAMETERS_R535)
        };
        check(NVOS46_PARAMETERS::NAME, status)?;
        if at != va {
            self.unmap_gpu(device, space, memory, len, at)?;
            let expected = "the fixed address asked for";
            return Err(Error::Driver(DriverError::Answer {
                name: NVOS46_PARAMETERS::NAME,
                value: at,
                expected,
            }));
        }
        Ok(())
    }

    /// Undoes [`map_gpu`](Self::map_gpu).
    pub fn unmap_gpu(
        &self,
        device: Handle,
        space: Handle,
        memory: Handle,
        len: u64,
        va: u64,
    ) -> Result<(), Error> {
        macro_rules! unmap {
            ($layout:ident $(, $size:ident)?) => {{
                let mut args = $layout {
                    hClient: self.root,
                    hDevice: device,
                    hDma: space,
                    hMemory: memory,
                    dmaOffset: va,
                    $($size: len,)?
                    ..Default::default()
                };
                // SAFETY: the struct holds no addresses of this process.
                unsafe { self.escape(&mut args) }?;
                args.status
            }};
        }
        let status = if self.release >= Release::R550 {
            unmap!(NVOS47_PARAMETERS, size)
        } else {
            unmap!(NVOS47_PARAMETERS_R535)
        };
        check(NVOS47_PARAMETERS::NAME, status)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Closing the control descriptor frees the whole tree as well; doing it by name shows an error if
        // there is one.
        if self.root != 0 {
            self.free(0, self.root, NV01_ROOT_CLIENT);
        }
    }
}

/// An object of the resource manager, freed on drop. Parents must outlive their children.
#[derive(Debug)]
pub(super) struct Object {
    client: Arc<Client>,
    parent: Handle,
    handle: Handle,
    class: u32,
}

impl Object {
    /// Its handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The client it belongs to.
    pub fn client(&self) -> &Arc<Client> {
        &self.client
    }

    /// Sends it a command.
    ///
    /// # Safety
    /// Addresses in `parameters` must be valid for what the driver does with them.
    pub unsafe fn control<C: Control>(&self, parameters: &mut C) -> Result<(), Error> {
        // SAFETY: passed on to the caller.
        unsafe { self.client.control(self.handle, parameters) }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        self.client.free(self.parent, self.handle, self.class);
    }
}
