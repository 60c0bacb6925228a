//! The memory node: `N` commands, and the buffer metadata of the control node.

use crate::driver::descriptor::borrow;
use crate::driver::dmabuf::{DmaBuf, Metadata};
use crate::driver::machine::{Driver, Machine};
use crate::driver::nodes::argument::Reply;
use crate::findings::Checks;
use crate::violations::Consequence;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd};
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Heaps of an Orin AGX that `GET_AVAILABLE_HEAPS` lists (the virtual-memory heap is not among them).
const CARVEOUTS: u32 = 0x1000_0004;
/// Bytes of each carveout.
const CARVEOUT_BYTES: u64 = 64 << 20;
/// Heaps that exclude others in one mask.
const EXCLUSIVE: u32 = NVMAP_HEAP_CARVEOUT_IVM | NVMAP_HEAP_CARVEOUT_VIDMEM;
/// Heaps the driver knows.
const KNOWN: u32 = NVMAP_HEAP_IOVMM
    | NVMAP_HEAP_CARVEOUT_VPR
    | NVMAP_HEAP_CARVEOUT_TSEC
    | NVMAP_HEAP_CARVEOUT_VIDMEM
    | NVMAP_HEAP_CARVEOUT_GPU
    | NVMAP_HEAP_CARVEOUT_FSI
    | NVMAP_HEAP_CARVEOUT_IVM
    | NVMAP_HEAP_CARVEOUT_GENERIC;
const PAGE: u64 = crate::dram::PAGE;
/// NUMA nodes that pass the driver's check: -1 for any, and up to the `MAX_NUMNODES` of the arm64 default
/// configuration, itself included.
const NUMA_NODES: std::ops::RangeInclusive<i32> = -1..=16;

/// Serves an `N` command.
pub(super) fn ioctl(machine: &Arc<Machine>, request: u32, arg: &mut [u8]) -> Reply {
    match request {
        NVMAP_IOC_CREATE => serve(arg, |a: &mut nvmap_create_handle| {
            a.handle = create(machine, a.size.into())?;
            Ok(())
        }),
        NVMAP_IOC_CREATE_64 => serve(arg, |a: &mut nvmap_create_handle| {
            a.size = create(machine, u64::from(a.handle) << 32 | u64::from(a.size))?;
            Ok(())
        }),
        NVMAP_IOC_ALLOC => serve(arg, |a| alloc(machine, a)),
        NVMAP_IOC_FREE => free(machine, arg),
        NVMAP_IOC_GET_FD => serve(arg, |a: &mut nvmap_create_handle| {
            a.size = get_fd(machine, a.handle)? as u32;
            Ok(())
        }),
        NVMAP_IOC_FROM_FD => serve(arg, |a: &mut nvmap_create_handle| {
            a.handle = from_fd(machine, a.size as i32)?;
            Ok(())
        }),
        NVMAP_IOC_DUP_HANDLE => serve(arg, |a: &mut nvmap_duplicate_handle| {
            let mut driver = machine.driver();
            let buffer = Arc::clone(driver.handles.get(a.handle).ok_or(Errno::EINVAL)?);
            if buffer.is_read_only() && a.access_flags & 2 != 0 {
                return Err(Errno::EPERM);
            }
            a.dup_handle = driver.handles.add(buffer);
            Ok(())
        }),
        NVMAP_IOC_PARAMETERS => serve(arg, |a| parameters(machine, a)),
        NVMAP_IOC_WRITE => serve(arg, |a| transfer(machine, a, true)),
        NVMAP_IOC_READ => serve(arg, |a| transfer(machine, a, false)),
        NVMAP_IOC_CACHE => serve(arg, |a: &mut nvmap_cache_op| cache(machine, a.handle, a.len.into(), a.op)),
        NVMAP_IOC_CACHE_64 => serve(arg, |a: &mut nvmap_cache_op_64| cache(machine, a.handle, a.len, a.op)),
        NVMAP_IOC_CACHE_LIST => serve(arg, |a: &mut nvmap_cache_op_list| {
            let count = a.nr & !NVMAP_ELEM_SIZE_U64;
            if count == 0 || a.handles == 0 || a.offsets == 0 || a.sizes == 0 || !(0..=2).contains(&a.op) {
                return Err(Errno::EINVAL);
            }
            // The SoC is I/O coherent: the driver does nothing more.
            Ok(())
        }),
        NVMAP_IOC_SET_TAG_LABEL => serve(arg, |a: &mut nvmap_set_tag_label| {
            machine.user.read(a.addr, a.len.min(63) as usize).map(drop)
        }),
        NVMAP_IOC_GET_AVAILABLE_HEAPS => serve(arg, |a: &mut nvmap_available_heaps| {
            a.heaps = CARVEOUTS.into();
            Ok(())
        }),
        NVMAP_IOC_GET_HEAP_SIZE => serve(arg, |a: &mut nvmap_heap_size| {
            a.size = heap_bytes(machine, a.heap)?.0;
            Ok(())
        }),
        NVMAP_IOC_QUERY_HEAP_PARAMS => serve(arg, |a: &mut nvmap_query_heap_params| {
            (a.total, a.free) = heap_bytes(machine, a.heap_mask)?;
            a.granule_size = PAGE as u32;
            a.largest_free_block = if a.heap_mask == NVMAP_HEAP_IOVMM { PAGE } else { a.free };
            a.contig = (a.heap_mask != NVMAP_HEAP_IOVMM).into();
            Ok(())
        }),
        _ => Err(Errno::ENOTTY),
    }
}

/// Copies the argument in, runs `f`, and copies it out when that succeeded.
fn serve<A: FromBytes + IntoBytes + Immutable>(
    arg: &mut [u8],
    f: impl FnOnce(&mut A) -> Result<(), Errno>,
) -> Reply {
    let bytes = arg.get_mut(..size_of::<A>()).ok_or(Errno::EFAULT)?;
    let mut args = A::read_from_bytes(bytes).map_err(|_| Errno::EFAULT)?;
    f(&mut args)?;
    args.write_to(bytes).map_err(|_| Errno::EFAULT)?;
    Ok(0)
}

fn create(machine: &Machine, size: u64) -> Result<u32, Errno> {
    if size == 0 {
        return Err(Errno::EINVAL);
    }
    let size = size.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
    let mut driver = machine.driver();
    let buffer = machine.new_buffer(&mut driver, size)?;
    Ok(driver.handles.add(buffer))
}

fn alloc(machine: &Machine, a: &nvmap_alloc_handle) -> Result<(), Errno> {
    if !NUMA_NODES.contains(&a.numa_nid) || a.align != 0 && !a.align.is_power_of_two() || a.handle == 0 {
        return Err(Errno::EINVAL);
    }
    let mut driver = machine.driver();
    let buffer = Arc::clone(driver.handles.get(a.handle).ok_or(Errno::EINVAL)?);
    if buffer.backing().is_some() {
        return Err(Errno::EEXIST);
    }
    if a.heap_mask & EXCLUSIVE != 0 && a.heap_mask & !EXCLUSIVE != 0 {
        return Err(Errno::EINVAL);
    }
    if a.heap_mask & !KNOWN != 0 || buffer.size() > machine.dram.size() {
        return Err(Errno::ENOMEM);
    }
    // Without a generic carveout the virtual-memory heap replaces it. Heaps are tried from the highest
    // bit down.
    let mut mask = a.heap_mask;
    if mask & NVMAP_HEAP_CARVEOUT_GENERIC != 0 {
        mask = mask & !NVMAP_HEAP_CARVEOUT_GENERIC | NVMAP_HEAP_IOVMM;
    }
    let present = mask & (NVMAP_HEAP_IOVMM | CARVEOUTS);
    let small = buffer.size() <= CARVEOUT_BYTES;
    let usable = if small { present } else { present & NVMAP_HEAP_IOVMM };
    let heap = usable.checked_ilog2().map(|bit| 1 << bit).ok_or(Errno::ENOMEM)?;
    let poisoned = machine.config.checks().contains(Checks::INIT);
    buffer.allocate(heap, a.flags, a.align, &machine.dram, poisoned)?;
    if let Some(backing) = buffer.backing() {
        machine.forget(&backing);
    }
    machine.remember(&mut driver, &buffer);
    Ok(())
}

/// `FREE` takes its number by value, never fails, and closes a buffer's descriptor that is passed by mistake.
fn free(machine: &Machine, arg: &[u8]) -> Reply {
    let number = arg.get(..4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
    let mut driver = machine.driver();
    if !driver.handles.remove(number) && machine.is_buffer(&driver, number as i32) {
        machine.violations.record(
            Consequence::Corruption,
            "NVMAP_IOC_FREE",
            format!(
                "{number} is a buffer's descriptor and not a handle: the driver closes it, and the next file that is opened \
                 gets its number; pass handles, which have bit 31 set"
            ),
        );
        let _ = nix::unistd::close(number as i32);
    }
    Ok(0)
}

fn get_fd(machine: &Machine, handle: u32) -> Result<i32, Errno> {
    let driver = machine.driver();
    if let Some(buffer) = driver.handles.get(handle) {
        return Ok(buffer.descriptor()?.into_raw_fd());
    }
    // The number is then tried as a descriptor.
    if machine.is_buffer(&driver, handle as i32) {
        return Err(Errno::EINVAL);
    }
    Err(Errno::EBADF)
}

fn from_fd(machine: &Machine, fd: i32) -> Result<u32, Errno> {
    let mut driver = machine.driver();
    let buffer = machine.buffer(&mut driver, fd)?;
    if buffer.backing().is_none() {
        return Err(Errno::EINVAL);
    }
    if let Some(fd) = borrow(fd) {
        buffer.adopt_descriptor(fd)?;
    }
    Ok(driver.handles.add(buffer))
}

fn parameters(machine: &Machine, a: &mut nvmap_handle_parameters) -> Result<(), Errno> {
    let driver = machine.driver();
    let facts = driver.handles.get(a.handle).ok_or(Errno::ENODEV)?.facts();
    *a = nvmap_handle_parameters {
        handle: a.handle,
        access_flags: if facts.flags & NVMAP_HANDLE_RO != 0 { 1 } else { 3 },
        heap: facts.heap.into(),
        align: facts.align.into(),
        coherency: (facts.flags & NVMAP_HANDLE_CACHE_FLAG).into(),
        size: facts.size,
        serial_id: facts.serial,
        ..Default::default()
    };
    Ok(())
}

/// Strided copy between a buffer and the program's memory.
fn transfer(machine: &Machine, a: &mut nvmap_rw_handle, write: bool) -> Result<(), Errno> {
    let buffer = Arc::clone(machine.driver().handles.get(a.handle).ok_or(Errno::EINVAL)?);
    if a.addr == 0 || a.count == 0 || a.elem_size == 0 {
        return Err(Errno::EINVAL);
    }
    let backing = buffer.backing().ok_or(Errno::EPERM)?;
    if write && buffer.is_read_only() {
        return Err(Errno::EPERM);
    }
    let count = std::mem::take(&mut a.count);
    let element = a.elem_size;
    for i in 0..count {
        let offset =
            i.checked_mul(a.hmem_stride).and_then(|o| o.checked_add(a.offset)).ok_or(Errno::EINVAL)?;
        let end = offset.checked_add(element).ok_or(Errno::EINVAL)?;
        let user = i.checked_mul(a.user_stride).and_then(|o| o.checked_add(a.addr)).ok_or(Errno::EINVAL)?;
        if end > backing.len() {
            return Err(Errno::EINVAL);
        }
        let host = backing.ptr().as_ptr() as u64 + offset;
        let (from, to) = if write { (user, host) } else { (host, user) };
        machine.user.copy(from, to, element)?;
        a.count += 1;
        if a.hmem_stride == 0 && a.user_stride == 0 {
            // The same bytes over and over: once is enough.
            a.count = count;
            break;
        }
    }
    Ok(())
}

/// Cache maintenance: nothing to do on a coherent SoC, but the arguments are checked.
fn cache(machine: &Machine, handle: u32, len: u64, op: i32) -> Result<(), Errno> {
    let driver = machine.driver();
    let buffer = driver.handles.get(handle).ok_or(Errno::EINVAL)?;
    if !(0..=2).contains(&op) || len > buffer.size() {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// Total and free bytes of one heap.
fn heap_bytes(machine: &Machine, heap: u32) -> Result<(u64, u64), Errno> {
    match heap {
        NVMAP_HEAP_IOVMM => Ok((machine.dram.size(), machine.dram.free_bytes())),
        one if one.is_power_of_two() && one & CARVEOUTS != 0 => Ok((CARVEOUT_BYTES, CARVEOUT_BYTES)),
        _ => Err(Errno::ENODEV),
    }
}

/// Whether a buffer's descriptor may be mapped by the CPU.
///
/// # Errors
/// `EPERM` before it has memory, `EINVAL` beyond its end.
pub(crate) fn check_mmap(machine: &Machine, fd: BorrowedFd<'_>, len: u64, offset: i64) -> Result<(), Errno> {
    if machine.buffer_state(fd) == Some(false) {
        return Err(Errno::EPERM);
    }
    let size = nix::sys::stat::fstat(fd.as_fd())?.st_size;
    let end = u64::try_from(offset).ok().and_then(|o| o.checked_add(len));
    if end.is_none_or(|end| end > (size as u64).next_multiple_of(PAGE)) {
        return Err(Errno::EINVAL);
    }
    Ok(())
}

/// `REGISTER_BUFFER`: attaches metadata.
pub(super) fn register(machine: &Machine, a: &mut nvgpu_gpu_register_buffer_args) -> Reply {
    let known = NVGPU_GPU_REGISTER_BUFFER_FLAGS_MUTABLE | NVGPU_GPU_REGISTER_BUFFER_FLAGS_MODIFY;
    let size = a.metadata_size;
    if size > NVGPU_GPU_REGISTER_BUFFER_METADATA_MAX_SIZE
        || u32::from(a.comptags_alloc_control) > NVGPU_GPU_COMPTAGS_ALLOC_REQUIRED
    {
        return Err(Errno::EINVAL);
    }
    let buffer = find(machine, &mut machine.driver(), a.dmabuf_fd)?;
    let modify = a.flags & NVGPU_GPU_REGISTER_BUFFER_FLAGS_MODIFY != 0;
    if buffer.metadata().is_some_and(|m| !(modify && m.mutable)) {
        return Err(Errno::EINVAL);
    }
    // This machine has no compression tags to give.
    if u32::from(a.comptags_alloc_control) == NVGPU_GPU_COMPTAGS_ALLOC_REQUIRED {
        return Err(Errno::ENOMEM);
    }
    let bytes = machine.user.read(a.metadata_addr, size as usize)?;
    let mutable = a.flags & known & NVGPU_GPU_REGISTER_BUFFER_FLAGS_MUTABLE != 0;
    buffer.set_metadata(Metadata { bytes, mutable });
    a.flags = 0;
    Ok(0)
}

/// `GET_BUFFER_INFO`: what `REGISTER_BUFFER` attached.
pub(super) fn info(machine: &Machine, a: &mut nvgpu_gpu_get_buffer_info_args) -> Reply {
    let (fd, room, address) = (a.in_dmabuf_fd(), a.in_metadata_size(), a.in_metadata_addr());
    let buffer = find(machine, &mut machine.driver(), fd)?;
    let metadata = buffer.metadata();
    let bytes = metadata.as_ref().map_or(&[][..], |m| &m.bytes);
    machine.user.write(address, &bytes[..bytes.len().min(room as usize)])?;
    let mut flags = 0;
    if let Some(metadata) = &metadata {
        flags |= NVGPU_GPU_BUFFER_INFO_FLAGS_METADATA_REGISTERED;
        if metadata.mutable {
            flags |= NVGPU_GPU_BUFFER_INFO_FLAGS_MUTABLE_METADATA;
        }
    }
    *a = nvgpu_gpu_get_buffer_info_args {
        out_flags: flags.into(),
        out_metadata_size: bytes.len() as u32,
        out_reserved: 0,
        out_size: buffer.size(),
    };
    Ok(0)
}

fn find(machine: &Machine, driver: &mut Driver, fd: i32) -> Result<Arc<DmaBuf>, Errno> {
    machine.buffer(driver, fd).map_err(|_| Errno::EINVAL)
}
