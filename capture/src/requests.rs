//! Changes of memory and channels by requests of the drivers that have succeeded.

use nv_hw::class::{self, Kind};
use nvgpu_sys::{
    NVGPU_AS_IOCTL_BIND_CHANNEL, NVGPU_AS_IOCTL_MAP_BUFFER_EX, NVGPU_AS_IOCTL_UNMAP_BUFFER,
    NVGPU_IOCTL_CHANNEL_SETUP_BIND, NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO, nvgpu_as_bind_channel_args,
    nvgpu_as_map_buffer_ex_args, nvgpu_as_unmap_buffer_args, nvgpu_channel_setup_bind_args,
    nvgpu_submit_gpfifo_args,
};
use rm_sys::{
    NV_CHANNEL_ALLOC_PARAMS, NV_CHANNEL_ALLOC_PARAMS_R610, NV_ESC_RM_ALLOC, NV_ESC_RM_ALLOC_MEMORY,
    NV_ESC_RM_DUP_OBJECT, NV_ESC_RM_FREE, NV_ESC_RM_MAP_MEMORY, NV_ESC_RM_MAP_MEMORY_DMA,
    NV01_MEMORY_SYSTEM_OS_DESCRIPTOR, NVOS00_PARAMETERS, NVOS21_PARAMETERS, NVOS46_PARAMETERS,
    NVOS46_PARAMETERS_R535, NVOS55_PARAMETERS, NVOS64_PARAMETERS, Release, UVM_FREE,
    UVM_MAP_EXTERNAL_ALLOCATION, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS, UVM_MAP_EXTERNAL_ALLOCATION_PARAMS_R535,
    UVM_UNMAP_EXTERNAL, nv_ioctl_nvos02_parameters_with_fd, nv_ioctl_nvos33_parameters_with_fd,
};
use zerocopy::FromBytes;

/// Type byte of the desktop driver's escapes (`'F'`).
const ESCAPE: u32 = 0x46;

/// Change made by a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// nvgpu: a dma-buf is mapped into the address space of the descriptor.
    Map { fd: i32, address: u64, len: u64, offset: u64 },
    /// nvgpu: it is not any more.
    Unmap { address: u64 },
    /// nvgpu: a channel uses the address space of the descriptor.
    Bind { channel: i32 },
    /// nvgpu: the channel has its ring and USERD, in dma-bufs.
    Ring { class: u32, token: u32, entries: u32, ring: (i32, u64), userd: (i32, u64) },
    /// nvgpu: entries for the channel, at an address of the program.
    Entries { address: u64, count: u32 },
    /// Desktop: the next mapping of descriptor `fd` shows memory.
    CpuMap { fd: i32, client: u32, memory: u32, offset: u64 },
    /// Desktop: memory of the program became an object.
    Registered { client: u32, memory: u32, address: u64, len: u64 },
    /// Desktop: the GPU reaches memory.
    GpuMap { client: u32, memory: u32, address: u64, len: u64, offset: u64 },
    /// Desktop: it does no more.
    GpuUnmap { address: u64, len: Option<u64> },
    /// Desktop: `object` is another handle of memory.
    Duplicate { client: u32, object: u32, of: (u32, u32) },
    /// Desktop: a channel. USERD is in `userd`, or without memory in the channel's own mapping.
    Channel { client: u32, object: u32, class: u32, ring: u64, entries: u32, userd: (u32, u64) },
    /// Desktop: an object is gone.
    Free { client: u32, object: u32 },
}

/// Bytes of an argument that are read of a request, if it is one that matters. `is_uvm` says whether the
/// descriptor is open on `/dev/nvidia-uvm`, whose requests do not state their size.
pub(crate) fn argument_bytes(
    request: u32,
    release: Option<Release>,
    is_uvm: impl Fn() -> bool,
) -> Option<usize> {
    let nvgpu = [
        NVGPU_AS_IOCTL_MAP_BUFFER_EX,
        NVGPU_AS_IOCTL_UNMAP_BUFFER,
        NVGPU_AS_IOCTL_BIND_CHANNEL,
        NVGPU_IOCTL_CHANNEL_SETUP_BIND,
        NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO,
    ];
    let escapes = [
        NV_ESC_RM_ALLOC,
        NV_ESC_RM_ALLOC_MEMORY,
        NV_ESC_RM_DUP_OBJECT,
        NV_ESC_RM_FREE,
        NV_ESC_RM_MAP_MEMORY,
        NV_ESC_RM_MAP_MEMORY_DMA,
    ];
    let size = (request >> 16 & 0x3fff) as usize;
    match request {
        UVM_MAP_EXTERNAL_ALLOCATION | UVM_UNMAP_EXTERNAL | UVM_FREE if is_uvm() => Some(match request {
            // Without the release its length is not known.
            UVM_MAP_EXTERNAL_ALLOCATION if release.is_none() => return None,
            UVM_MAP_EXTERNAL_ALLOCATION if release == Some(Release::R535) => {
                size_of::<UVM_MAP_EXTERNAL_ALLOCATION_PARAMS_R535>()
            }
            UVM_MAP_EXTERNAL_ALLOCATION => size_of::<UVM_MAP_EXTERNAL_ALLOCATION_PARAMS>(),
            // The two structs begin alike, and releases add to their ends.
            _ => 16,
        }),
        _ if nvgpu.contains(&request) => Some(size),
        // Sizes of escapes change from release to release; type and number do not.
        _ if request >> 8 & 0xff == ESCAPE && escapes.iter().any(|known| known & 0xff == request & 0xff) => {
            Some(size)
        }
        _ => None,
    }
}

/// Returns the change made by a request that succeeded; `None` for one that changes nothing here, or that the
/// driver refused in its argument. `read` reads memory that the argument points to.
pub(crate) fn change(
    request: u32,
    argument: &[u8],
    release: Option<Release>,
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Change> {
    match request {
        NVGPU_AS_IOCTL_MAP_BUFFER_EX
        | NVGPU_AS_IOCTL_UNMAP_BUFFER
        | NVGPU_AS_IOCTL_BIND_CHANNEL
        | NVGPU_IOCTL_CHANNEL_SETUP_BIND
        | NVGPU_IOCTL_CHANNEL_SUBMIT_GPFIFO => nvgpu(request, argument),
        UVM_MAP_EXTERNAL_ALLOCATION | UVM_UNMAP_EXTERNAL | UVM_FREE => uvm(request, argument),
        _ => escape(request & 0xff, argument, release, read),
    }
}

/// The struct at the start of an argument.
fn view<T: FromBytes>(argument: &[u8]) -> Option<T> {
    T::read_from_prefix(argument).ok().map(|(args, _)| args)
}

fn nvgpu(request: u32, argument: &[u8]) -> Option<Change> {
    Some(match request {
        NVGPU_AS_IOCTL_MAP_BUFFER_EX => {
            let args: nvgpu_as_map_buffer_ex_args = view(argument)?;
            let (fd, offset) = (args.dmabuf_fd.cast_signed(), args.buffer_offset);
            Change::Map { fd, address: args.offset, len: args.mapping_size, offset }
        }
        NVGPU_AS_IOCTL_UNMAP_BUFFER => {
            let args: nvgpu_as_unmap_buffer_args = view(argument)?;
            Change::Unmap { address: args.offset }
        }
        NVGPU_AS_IOCTL_BIND_CHANNEL => {
            let args: nvgpu_as_bind_channel_args = view(argument)?;
            Change::Bind { channel: args.channel_fd.cast_signed() }
        }
        NVGPU_IOCTL_CHANNEL_SETUP_BIND => {
            let args: nvgpu_channel_setup_bind_args = view(argument)?;
            Change::Ring {
                class: class::AMPERE_CHANNEL_GPFIFO_B,
                token: args.work_submit_token,
                entries: args.num_gpfifo_entries,
                ring: (args.gpfifo_dmabuf_fd, args.gpfifo_dmabuf_offset),
                userd: (args.userd_dmabuf_fd, args.userd_dmabuf_offset),
            }
        }
        _ => {
            let args: nvgpu_submit_gpfifo_args = view(argument)?;
            Change::Entries { address: args.gpfifo, count: args.num_entries }
        }
    })
}

fn uvm(request: u32, argument: &[u8]) -> Option<Change> {
    if request != UVM_MAP_EXTERNAL_ALLOCATION {
        let args: [u64; 2] = view(argument)?;
        let len = (request == UVM_UNMAP_EXTERNAL).then_some(args[1]);
        return Some(Change::GpuUnmap { address: args[0], len });
    }
    // Both begin alike; they differ in the length of a list in the middle.
    let (client, memory, status, base, len, offset) =
        match argument.len() < size_of::<UVM_MAP_EXTERNAL_ALLOCATION_PARAMS>() {
            true => {
                let a: UVM_MAP_EXTERNAL_ALLOCATION_PARAMS_R535 = view(argument)?;
                (a.hClient, a.hMemory, a.rmStatus, a.base, a.length, a.offset)
            }
            false => {
                let a: UVM_MAP_EXTERNAL_ALLOCATION_PARAMS = view(argument)?;
                (a.hClient, a.hMemory, a.rmStatus, a.base, a.length, a.offset)
            }
        };
    (status == 0).then_some(Change::GpuMap { client, memory, address: base, len, offset })
}

fn escape(
    number: u32,
    argument: &[u8],
    release: Option<Release>,
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Change> {
    let is = |known: u32| number == known & 0xff;
    if is(NV_ESC_RM_ALLOC) {
        return alloc(argument, release, read);
    }
    if is(NV_ESC_RM_ALLOC_MEMORY) {
        let args: nv_ioctl_nvos02_parameters_with_fd = view(argument)?;
        let (client, memory) = (args.params_hRoot, args.params_hObjectNew);
        return (args.params_status == 0).then(|| match args.params_hClass {
            NV01_MEMORY_SYSTEM_OS_DESCRIPTOR => {
                let (address, len) = (args.params_pMemory, args.params_limit.saturating_add(1));
                Change::Registered { client, memory, address, len }
            }
            _ => Change::CpuMap { fd: args.fd, client, memory, offset: 0 },
        });
    }
    if is(NV_ESC_RM_MAP_MEMORY) {
        let args: nv_ioctl_nvos33_parameters_with_fd = view(argument)?;
        let (client, memory) = (args.params_hClient, args.params_hMemory);
        // The mapping begins at the page.
        let offset = args.params_offset & !0xfff;
        return (args.params_status == 0).then_some(Change::CpuMap { fd: args.fd, client, memory, offset });
    }
    if is(NV_ESC_RM_MAP_MEMORY_DMA) {
        let (client, memory, offset, len, address, status) =
            match argument.len() < size_of::<NVOS46_PARAMETERS>() {
                true => {
                    let a: NVOS46_PARAMETERS_R535 = view(argument)?;
                    (a.hClient, a.hMemory, a.offset, a.length, a.dmaOffset, a.status)
                }
                false => {
                    let a: NVOS46_PARAMETERS = view(argument)?;
                    (a.hClient, a.hMemory, a.offset, a.length, a.dmaOffset, a.status)
                }
            };
        return (status == 0).then_some(Change::GpuMap { client, memory, address, len, offset });
    }
    if is(NV_ESC_RM_DUP_OBJECT) {
        let args: NVOS55_PARAMETERS = view(argument)?;
        let of = (args.hClientSrc, args.hObjectSrc);
        return (args.status == 0).then_some(Change::Duplicate {
            client: args.hClient,
            object: args.hObject,
            of,
        });
    }
    let args: NVOS00_PARAMETERS = view(argument)?;
    let is_free = is(NV_ESC_RM_FREE) && args.status == 0;
    is_free.then_some(Change::Free { client: args.hRoot, object: args.hObjectOld })
}

fn alloc(
    argument: &[u8],
    release: Option<Release>,
    read: impl Fn(u64, usize) -> Option<Vec<u8>>,
) -> Option<Change> {
    let (client, object, class, parameters, status) = match argument.len() < size_of::<NVOS64_PARAMETERS>() {
        true => {
            let a: NVOS21_PARAMETERS = view(argument)?;
            (a.hRoot, a.hObjectNew, a.hClass, a.pAllocParms, a.status)
        }
        false => {
            let a: NVOS64_PARAMETERS = view(argument)?;
            (a.hRoot, a.hObjectNew, a.hClass, a.pAllocParms, a.status)
        }
    };
    if status != 0 || Kind::of(class) != Some(Kind::Host) || parameters == 0 {
        return None;
    }
    let (ring, entries, userd) = if release.is_some_and(|release| release >= Release::R610) {
        let a: NV_CHANNEL_ALLOC_PARAMS_R610 =
            view(&read(parameters, size_of::<NV_CHANNEL_ALLOC_PARAMS_R610>())?)?;
        (a.gpFifoOffset, a.gpFifoEntries, (a.hUserdMemory[0], a.userdOffset[0]))
    } else {
        // Of releases before 580 the struct ends earlier; the fields used are at its start.
        let start = std::mem::offset_of!(NV_CHANNEL_ALLOC_PARAMS, engineType);
        let mut bytes = read(parameters, start)?;
        bytes.resize(size_of::<NV_CHANNEL_ALLOC_PARAMS>(), 0);
        let a: NV_CHANNEL_ALLOC_PARAMS = view(&bytes)?;
        (a.gpFifoOffset, a.gpFifoEntries, (a.hUserdMemory[0], a.userdOffset[0]))
    };
    Some(Change::Channel { client, object, class, ring, entries, userd })
}

#[cfg(test)]
mod tests {
    use super::*;
    use zerocopy::{FromZeros, IntoBytes};

    fn nothing(_: u64, _: usize) -> Option<Vec<u8>> {
        None
    }

    #[test]
    fn requests_of_uvm_are_read_as_their_release_has_them() {
        let mapped = Change::GpuMap { client: 7, memory: 9, address: 1 << 40, len: 4096, offset: 8192 };
        let mut old = UVM_MAP_EXTERNAL_ALLOCATION_PARAMS_R535::new_zeroed();
        (old.base, old.length, old.offset, old.hClient, old.hMemory) = (1 << 40, 4096, 8192, 7, 9);
        let mut new = UVM_MAP_EXTERNAL_ALLOCATION_PARAMS::new_zeroed();
        (new.base, new.length, new.offset, new.hClient, new.hMemory) = (1 << 40, 4096, 8192, 7, 9);
        for (release, bytes) in [(Release::R535, old.as_bytes()), (Release::R580, new.as_bytes())] {
            let len = argument_bytes(UVM_MAP_EXTERNAL_ALLOCATION, Some(release), || true);
            assert_eq!(len, Some(bytes.len()));
            assert_eq!(change(UVM_MAP_EXTERNAL_ALLOCATION, bytes, Some(release), nothing), Some(mapped));
        }
        new.rmStatus = 0x31;
        assert_eq!(change(UVM_MAP_EXTERNAL_ALLOCATION, new.as_bytes(), Some(Release::R580), nothing), None);
        // Another driver's request of that number, and a release that is not known.
        assert_eq!(argument_bytes(UVM_MAP_EXTERNAL_ALLOCATION, Some(Release::R580), || false), None);
        assert_eq!(argument_bytes(UVM_MAP_EXTERNAL_ALLOCATION, None, || true), None);
        let range = [1u64 << 40, 4096];
        let unmapped = Change::GpuUnmap { address: 1 << 40, len: Some(4096) };
        assert_eq!(change(UVM_UNMAP_EXTERNAL, range.as_bytes(), None, nothing), Some(unmapped));
    }

    #[test]
    fn a_channel_is_read_at_the_places_of_its_release() {
        let mut new = NV_CHANNEL_ALLOC_PARAMS_R610::new_zeroed();
        (new.gpFifoOffset, new.gpFifoEntries) = (1 << 33, 512);
        (new.hUserdMemory[0], new.userdOffset[0]) = (5, 0x200);
        let mut usual = NV_CHANNEL_ALLOC_PARAMS::new_zeroed();
        (usual.gpFifoOffset, usual.gpFifoEntries) = (1 << 33, 512);
        (usual.hUserdMemory[0], usual.userdOffset[0]) = (5, 0x200);
        let args = NVOS64_PARAMETERS {
            hRoot: 1,
            hObjectNew: 2,
            hClass: class::HOPPER_CHANNEL_GPFIFO_A,
            pAllocParms: 0x1000,
            ..NVOS64_PARAMETERS::new_zeroed()
        };
        let channel = Change::Channel {
            client: 1,
            object: 2,
            class: class::HOPPER_CHANNEL_GPFIFO_A,
            ring: 1 << 33,
            entries: 512,
            userd: (5, 0x200),
        };
        for (release, bytes) in [(Release::R580, usual.as_bytes()), (Release::R610, new.as_bytes())] {
            let read = |at: u64, len: usize| (at == 0x1000).then(|| bytes[..len].to_vec());
            assert_eq!(change(NV_ESC_RM_ALLOC, args.as_bytes(), Some(release), read), Some(channel));
        }
        for refused in [
            NVOS64_PARAMETERS { hClass: class::HOPPER_DMA_COPY_A, ..args },
            NVOS64_PARAMETERS { status: 3, ..args },
        ] {
            let read = |_: u64, len: usize| Some(vec![0; len]);
            assert_eq!(change(NV_ESC_RM_ALLOC, refused.as_bytes(), None, read), None);
        }
    }
}
