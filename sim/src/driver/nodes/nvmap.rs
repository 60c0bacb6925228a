//! The memory node: `N` commands, and the buffer metadata of the control node.

use crate::driver::descriptor::borrow;
use crate::driver::dmabuf::{BufferFacts, BufferRequest, DmaBuf, Metadata};
use crate::driver::heaps::{
    CARVEOUT_BYTES, CARVEOUTS, CONTIGUOUS_BYTES, first_carveout, has_system, order as heap_order,
};
use crate::driver::machine::{Driver, Machine};
use crate::driver::nodes::argument::Reply;
use crate::findings::Checks;
use crate::violations::Consequence;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::os::fd::IntoRawFd;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes};

/// Heaps that exclude others in one mask, in the order in which the driver looks for them.
const EXCLUSIVE: [u32; 2] = [NVMAP_HEAP_CARVEOUT_IVM, NVMAP_HEAP_CARVEOUT_VIDMEM];
const PAGE: u64 = crate::dram::PAGE;
/// NUMA nodes that pass the driver's check: -1 for any, and up to the `MAX_NUMNODES` of the arm64 default
/// configuration, itself included.
const NUMA_NODES: std::ops::RangeInclusive<i32> = -1..=16;
/// `heap_number` of a buffer that is shared with no other virtual machine (`NVMAP_IVM_INVALID_PEER`).
const NO_PEER: u32 = u32::MAX;
/// Characters of a tag's label that are read (`NVMAP_TAG_LABEL_MAXLEN`).
const LABEL_BYTES: u32 = 31;

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
            a.dup_handle = duplicate(machine, a.handle, a.access_flags)?;
            Ok(())
        }),
        NVMAP_IOC_PARAMETERS => serve(arg, |a| parameters(machine, a)),
        NVMAP_IOC_WRITE => transfer(machine, arg, true),
        NVMAP_IOC_READ => transfer(machine, arg, false),
        NVMAP_IOC_CACHE => serve(arg, |a: &mut nvmap_cache_op| {
            let (addr, handle, len, op) = (a.addr, a.handle, a.len.into(), a.op);
            cache(machine, &nvmap_cache_op_64 { addr, handle, len, op, ..Default::default() })
        }),
        NVMAP_IOC_CACHE_64 => serve(arg, |a| cache(machine, a)),
        NVMAP_IOC_CACHE_LIST => serve(arg, |a| cache_list(machine, a)),
        NVMAP_IOC_SET_TAG_LABEL => serve(arg, |a: &mut nvmap_set_tag_label| {
            machine.user.read(a.addr, a.len.min(LABEL_BYTES) as usize).map(drop)
        }),
        NVMAP_IOC_GET_AVAILABLE_HEAPS => serve(arg, |a: &mut nvmap_available_heaps| {
            a.heaps = CARVEOUTS.into_iter().fold(0, |heaps, heap| heaps | u64::from(heap));
            Ok(())
        }),
        NVMAP_IOC_GET_HEAP_SIZE => serve(arg, |a: &mut nvmap_heap_size| {
            first_carveout(a.heap).ok_or(Errno::ENODEV)?;
            a.size = CARVEOUT_BYTES;
            Ok(())
        }),
        NVMAP_IOC_QUERY_HEAP_PARAMS => serve(arg, |a: &mut nvmap_query_heap_params| query_heap(machine, a)),
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

/// The handle's buffer, or `EINVAL`.
fn buffer_of(driver: &Driver, handle: u32) -> Result<Arc<DmaBuf>, Errno> {
    driver.handles.get(handle).map(Arc::clone).ok_or(Errno::EINVAL)
}

fn alloc(machine: &Machine, a: &nvmap_alloc_handle) -> Result<(), Errno> {
    if !NUMA_NODES.contains(&a.numa_nid) || a.align != 0 && !a.align.is_power_of_two() || a.handle == 0 {
        return Err(Errno::EINVAL);
    }
    let mut driver = machine.driver();
    let buffer = buffer_of(&driver, a.handle)?;
    let (mask, size) = (a.heap_mask, buffer.size());
    // The size is checked first, also of a handle that has memory (`is_nvmap_memory_available`).
    let most = if has_system(mask) {
        machine.dram.size()
    } else {
        driver.buffers.taken(first_carveout(mask).ok_or(Errno::ENOMEM)?).free()
    };
    if size > most {
        return Err(Errno::ENOMEM);
    }
    if buffer.facts().heap != 0 {
        return Err(Errno::EEXIST);
    }
    // The driver keeps the request also when it then has no memory for it.
    let cached = if mask & NVMAP_HEAP_CARVEOUT_VPR == 0 { a.flags & NVMAP_HANDLE_CACHE_FLAG } else { 0 };
    let flags = a.flags & !NVMAP_HANDLE_KIND_SPECIFIED;
    buffer.request(BufferRequest { flags, coherency: cached, align: a.align.max(PAGE as u32) });
    machine.remember(&mut driver, &buffer);
    if EXCLUSIVE.iter().any(|one| mask & one != 0 && mask & !one != 0) {
        return Err(Errno::EINVAL);
    }
    for heap in heap_order(mask, size) {
        let place = if heap != NVMAP_HEAP_IOVMM {
            driver.buffers.taken(heap).find(size)
        } else if flags & NVMAP_HANDLE_PHYS_CONTIG != 0 && size > CONTIGUOUS_BYTES {
            None
        } else {
            check_node(machine, a.numa_nid)?;
            Some(0)
        };
        if let Some(offset) = place {
            let poisoned = machine.config.checks().contains(Checks::INIT);
            buffer.allocate(heap, offset, &machine.dram, poisoned)?;
            if let Some(backing) = buffer.backing() {
                machine.forget(&backing);
            }
            machine.remember(&mut driver, &buffer);
            return Ok(());
        }
    }
    Err(Errno::ENOMEM)
}

/// The memory of an Orin is one NUMA node.
fn check_node(machine: &Machine, node: i32) -> Result<(), Errno> {
    if node <= 0 {
        return Ok(());
    }
    let text = format!("there is no NUMA node {node}: the kernel follows a null pointer; pass -1");
    machine.violations.freeze("NVMAP_IOC_ALLOC", text)
}

/// A handle of the same buffer, or of what may only be read of it.
fn duplicate(machine: &Machine, handle: u32, access: u32) -> Result<u32, Errno> {
    let mut driver = machine.driver();
    let buffer = buffer_of(&driver, handle)?;
    let reads = access == NVMAP_HANDLE_RO;
    if buffer.is_read_only() && !reads {
        return Err(Errno::EPERM);
    }
    // Without memory the number is tried as a descriptor.
    if buffer.facts().heap == 0 {
        return Err(Errno::EBADF);
    }
    let buffer = match reads && !buffer.is_read_only() {
        true => driver.buffers.find_or_add(buffer.read_only()?)?,
        false => buffer,
    };
    Ok(driver.handles.add(buffer))
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
    let mut driver = machine.driver();
    if let Some(buffer) = driver.handles.get(handle) {
        return Ok(buffer.descriptor()?.into_raw_fd());
    }
    // The number is then tried as a descriptor.
    machine.buffer(&mut driver, handle as i32)?;
    machine.violations.record(
        Consequence::Corruption,
        "NVMAP_IOC_GET_FD",
        format!(
            "{handle} is a buffer's descriptor and not a handle: the driver drops a reference of its file"
        ),
    );
    Err(Errno::EINVAL)
}

fn from_fd(machine: &Machine, fd: i32) -> Result<u32, Errno> {
    let mut driver = machine.driver();
    let buffer = machine.buffer(&mut driver, fd)?;
    if buffer.facts().heap == 0 {
        return Err(Errno::EINVAL);
    }
    if let Some(fd) = borrow(fd) {
        buffer.adopt_descriptor(fd)?;
    }
    Ok(driver.handles.add(buffer))
}

/// Fields that the driver does not set stay as the program passed them.
fn parameters(machine: &Machine, a: &mut nvmap_handle_parameters) -> Result<(), Errno> {
    let facts = machine.driver().handles.get(a.handle).ok_or(Errno::ENODEV)?.facts();
    let scattered = facts.heap == NVMAP_HEAP_IOVMM && facts.request.flags & NVMAP_HANDLE_PHYS_CONTIG == 0;
    a.contig = (facts.heap != 0 && !scattered).into();
    a.heap = facts.heap.into();
    a.heap_number = NO_PEER;
    a.size = facts.size;
    a.align = facts.request.align.into();
    a.offset = 0;
    a.coherency = facts.request.coherency.into();
    if facts.read_only {
        a.access_flags = NVMAP_HANDLE_RO;
    }
    a.serial_id = facts.serial;
    Ok(())
}

/// Strided copy between a buffer and the program's memory. Once the access is allowed the driver writes `count`
/// back, in bytes, also when it fails.
fn transfer(machine: &Machine, arg: &mut [u8], write: bool) -> Reply {
    let bytes = arg.get_mut(..size_of::<nvmap_rw_handle>()).ok_or(Errno::EFAULT)?;
    let mut a = nvmap_rw_handle::read_from_bytes(bytes).map_err(|_| Errno::EFAULT)?;
    if a.addr == 0 || a.count == 0 || a.elem_size == 0 {
        return Err(Errno::EINVAL);
    }
    let buffer = buffer_of(&machine.driver(), a.handle)?;
    if write && buffer.is_read_only() || !write && buffer.facts().heap == NVMAP_HEAP_CARVEOUT_VPR {
        return Err(Errno::EPERM);
    }
    let asked = a.count.wrapping_mul(a.elem_size);
    let copied = copy(machine, &buffer, &a, write);
    a.count = copied.unwrap_or(0);
    a.write_to(bytes).map_err(|_| Errno::EFAULT)?;
    if copied? < asked { Err(Errno::EINTR) } else { Ok(0) }
}

/// Bytes that were copied; of the element that could not be copied, as the driver has it, its size
/// (`rw_handle`).
fn copy(machine: &Machine, buffer: &DmaBuf, a: &nvmap_rw_handle, write: bool) -> Result<u64, Errno> {
    let backing = buffer.backing().ok_or(Errno::EPERM)?;
    let (size, mut offset, mut user) = (buffer.size(), a.offset, a.addr);
    let (mut element, mut stride, mut user_stride, mut count) =
        (a.elem_size, a.hmem_stride, a.user_stride, a.count);
    if element == stride && element == user_stride && offset.is_multiple_of(8) {
        element = element.wrapping_mul(count);
        (stride, user_stride, count) = (element, element, 1);
    }
    let end = stride.wrapping_mul(count - 1).wrapping_add(offset).wrapping_add(element);
    let is_outside = element > size || offset >= size || end > size;
    if is_outside || element > stride.min(user_stride) || user_stride > (size - offset) / count {
        return Err(Errno::EINVAL);
    }
    let mut copied = 0;
    for _ in 0..count {
        if offset.wrapping_add(element) > size {
            return Err(Errno::EFAULT);
        }
        let host = backing.ptr().as_ptr() as u64 + offset;
        let (from, to) = if write { (user, host) } else { (host, user) };
        if machine.user.copy(from, to, element).is_err() {
            if write {
                // As `copy_from_user` does.
                machine.user.write_own(host, &vec![0; element as usize])?;
            }
            return Ok(element);
        }
        copied += element;
        user = user.wrapping_add(user_stride);
        offset = offset.wrapping_add(stride);
    }
    Ok(copied)
}

/// Cache maintenance of a mapping: nothing to do on a coherent SoC, but the arguments are checked.
fn cache(machine: &Machine, a: &nvmap_cache_op_64) -> Result<(), Errno> {
    if a.addr == 0 || !(0..=2).contains(&a.op) {
        return Err(Errno::EINVAL);
    }
    let buffer = buffer_of(&machine.driver(), a.handle)?;
    let (into, mapping) = machine.mappings.find(a.addr as usize).ok_or(Errno::EADDRNOTAVAIL)?;
    if a.len > (mapping.len.next_multiple_of(PAGE as usize) - into) as u64 {
        return Err(Errno::EADDRNOTAVAIL);
    }
    let start = mapping.offset + into as u64;
    if mapping.buffer.facts().serial != buffer.facts().serial || start + a.len > buffer.size() {
        return Err(Errno::EFAULT);
    }
    Ok(())
}

/// Cache maintenance of parts of buffers: the driver looks at the handles, and no further (`nvmap_ioctl_cache_maint_list`,
/// `nvmap_do_cache_maint_list`).
fn cache_list(machine: &Machine, a: &nvmap_cache_op_list) -> Result<(), Errno> {
    if a.nr == 0 || a.nr > u32::MAX / 4 {
        return Err(Errno::EINVAL);
    }
    let element = if a.op as u32 & NVMAP_ELEM_SIZE_U64 == 0 { 4 } else { 8 };
    // A list takes memory of the kernel's; it gives no more than there is.
    if u64::from(a.nr) * (12 + 2 * element) > machine.dram.size() {
        return Err(Errno::ENOMEM);
    }
    if a.handles == 0 || a.offsets == 0 || a.sizes == 0 {
        return Err(Errno::EINVAL);
    }
    let count = a.nr as usize;
    let handles = machine.user.read_array::<u32>(a.handles, count)?;
    machine.user.read(a.offsets, count * element as usize)?;
    machine.user.read(a.sizes, count * element as usize)?;
    let mut driver = machine.driver();
    let (mut synced, mut of_system) = (0, 0);
    for handle in handles {
        let buffer = buffer_of(&driver, handle)?;
        let facts = buffer.facts();
        if facts.heap == 0 {
            let text = format!("{handle:#x} has no memory: the driver keeps the buffer for ever");
            machine.violations.record(Consequence::Leak, "NVMAP_IOC_CACHE_LIST", text);
            driver.handles.lose(buffer);
            return Err(Errno::EPERM);
        }
        synced += usize::from(facts.request.flags & NVMAP_HANDLE_CACHE_SYNC_AT_RESERVE != 0);
        of_system += usize::from(facts.heap == NVMAP_HEAP_IOVMM);
    }
    let is_mixed = |some: usize| !some.is_multiple_of(count);
    if is_mixed(synced) || synced != 0 && is_mixed(of_system) { Err(Errno::EINVAL) } else { Ok(()) }
}

/// `QUERY_HEAP_PARAMS`: fields that a heap has not, the driver leaves as the program passed them
/// (`nvmap_ioctl_query_heap_params`).
fn query_heap(machine: &Machine, a: &mut nvmap_query_heap_params) -> Result<(), Errno> {
    a.largest_free_block = PAGE;
    if a.heap_mask & NVMAP_HEAP_CARVEOUT_MASK != 0 {
        let heap = first_carveout(a.heap_mask).ok_or(Errno::ENODEV)?;
        (a.total, a.free) = (CARVEOUT_BYTES, machine.driver().buffers.taken(heap).free());
    } else if a.heap_mask & NVMAP_HEAP_IOVMM != 0 {
        (a.total, a.free) = (machine.dram.size(), machine.dram.free_bytes());
        a.granule_size = PAGE as u32;
    }
    Ok(())
}

/// Whether a buffer's descriptor may be mapped by the CPU, `writes` shared with others.
///
/// # Errors
/// `EACCES` for writes to what may only be read; `EINVAL` beyond its end; `EPERM` before it has memory, and
/// for memory that the CPU may not see.
pub(crate) fn check_mmap(facts: BufferFacts, writes: bool, len: u64, offset: i64) -> Result<(), Errno> {
    if facts.read_only && writes {
        return Err(Errno::EACCES);
    }
    let end = u64::try_from(offset).ok().and_then(|o| o.checked_add(len));
    if end.is_none_or(|end| end > facts.size) {
        return Err(Errno::EINVAL);
    }
    if facts.heap == 0 || facts.heap == NVMAP_HEAP_CARVEOUT_VPR { Err(Errno::EPERM) } else { Ok(()) }
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
    let buffer = machine.buffer(&mut machine.driver(), a.dmabuf_fd)?;
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
    let buffer = machine.buffer(&mut machine.driver(), fd)?;
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
