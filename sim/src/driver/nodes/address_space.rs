//! Address-space descriptors: `A` commands.

use crate::dram::PAGE;
use crate::driver::address_space::mapping::MapRequest;
use crate::driver::address_space::remap::RemapOp;
use crate::driver::address_space::space::{AddressSpace, KERNEL_RANGE};
use crate::driver::files::Object;
use crate::driver::machine::Machine;
use crate::driver::nodes::argument::{Reply, with};
use crate::gpu::instance::Instance;
use crate::gpu::syncpoint::{SYNCPOINT_STRIDE, SYNCPOINTS};
use crate::violations::Consequence;
use nix::errno::Errno;
use nvgpu_sys::*;
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Most mappings and unmappings of one batch.
const BATCH_LIMIT: u32 = 256;
/// Operations of one `REMAP` that this model accepts: 16 bytes of argument can ask for more than any machine
/// maps.
const REMAP_LIMIT: u32 = 1 << 16;

/// Serves an `A` command.
pub(super) fn ioctl(
    machine: &Arc<Machine>,
    space: &Arc<AddressSpace>,
    request: u32,
    bytes: &mut [u8],
) -> Reply {
    match request {
        NVGPU_AS_IOCTL_BIND_CHANNEL => with(bytes, |a: &mut nvgpu_as_bind_channel_args| {
            let Some(Object::Channel(channel)) = machine.object_by_number(a.channel_fd as i32) else {
                return Err(Errno::EINVAL);
            };
            let mut state = channel.state();
            if state.address_space.is_some() {
                return Err(Errno::EINVAL);
            }
            state.address_space = Some(Arc::clone(space));
            Ok(0)
        }),
        NVGPU32_AS_IOCTL_ALLOC_SPACE => with(bytes, |a: &mut nvgpu32_as_alloc_space_args| {
            a.o_a = alloc_space(space, a.pages.into(), a.page_size, a.flags, a.o_a)?;
            Ok(0)
        }),
        NVGPU_AS_IOCTL_ALLOC_SPACE => with(bytes, |a: &mut nvgpu_as_alloc_space_args| {
            a.o_a = alloc_space(space, a.pages, a.page_size, a.flags, a.o_a)?;
            Ok(0)
        }),
        NVGPU_AS_IOCTL_FREE_SPACE => with(bytes, |a: &mut nvgpu_as_free_space_args| {
            if space.free_space(a.offset) > 0 {
                machine.violations.record(
                    Consequence::Corruption,
                    "NVGPU_AS_IOCTL_FREE_SPACE",
                    "mappings inside the area still have references: their addresses are free while their pages stay mapped; \
                     unmap as often as mapped, then free",
                );
            }
            Ok(0)
        }),
        NVGPU_AS_IOCTL_MAP_BUFFER_EX => with(bytes, |a: &mut nvgpu_as_map_buffer_ex_args| {
            a.offset = map(machine, space, a)?;
            Ok(0)
        }),
        NVGPU_AS_IOCTL_UNMAP_BUFFER => with(bytes, |a: &mut nvgpu_as_unmap_buffer_args| {
            unmap(machine, space, a.offset);
            Ok(0)
        }),
        NVGPU_AS_IOCTL_MAP_BUFFER_BATCH => with(bytes, |a| batch(machine, space, a)),
        NVGPU_AS_IOCTL_GET_VA_REGIONS => with(bytes, |a: &mut nvgpu_as_get_va_regions_args| {
            let (start, pages) = space.user_region();
            let region = nvgpu_as_va_region { offset: start, page_size: 4096, pages, ..Default::default() };
            let whole = size_of::<nvgpu_as_va_region>() as u32;
            if a.buf_size >= whole {
                machine.user.write(a.buf_addr, region.as_bytes())?;
            }
            a.buf_size = whole;
            Ok(0)
        }),
        NVGPU_AS_IOCTL_GET_SYNC_RO_MAP => with(bytes, |a: &mut nvgpu_as_get_sync_ro_map_args| {
            let pages = machine.syncpoints.pages()?;
            a.base_gpuva = space.sync_map(|id| pages[id as usize])?;
            a.sync_size = SYNCPOINT_STRIDE as u32;
            a.num_syncpoints = SYNCPOINTS;
            Ok(0)
        }),
        NVGPU_AS_IOCTL_MAPPING_MODIFY => with(bytes, |a: &mut nvgpu_as_mapping_modify_args| {
            if !space.modify(a.map_address, a.buffer_offset, a.buffer_size, a.incompr_kind)? {
                machine.violations.record(
                    Consequence::Corruption,
                    "NVGPU_AS_IOCTL_MAPPING_MODIFY",
                    "the mapping begins inside its buffer: its pages now are those from the begin of the buffer on",
                );
            }
            Ok(0)
        }),
        NVGPU_AS_IOCTL_REMAP => with(bytes, |a: &mut nvgpu_as_remap_args| {
            let done = remap(machine, space, a);
            if done.is_err() {
                a.num_ops = 0;
            }
            done
        }),
        _ => Err(Errno::ENOTTY),
    }
}

fn alloc_space(
    space: &AddressSpace,
    pages: u64,
    page_size: u32,
    flags: u32,
    offset: u64,
) -> Result<u64, Errno> {
    let fixed = (flags & NVGPU_AS_ALLOC_SPACE_FLAGS_FIXED_OFFSET != 0).then_some(offset);
    space.alloc_space(pages, page_size, fixed, flags & NVGPU_AS_ALLOC_SPACE_FLAGS_SPARSE != 0)
}

fn map(machine: &Machine, space: &AddressSpace, a: &nvgpu_as_map_buffer_ex_args) -> Result<u64, Errno> {
    let buffer = machine.buffer(&mut machine.driver(), a.dmabuf_fd as i32)?;
    let request = MapRequest {
        flags: a.flags,
        compr_kind: a.compr_kind,
        incompr_kind: a.incompr_kind,
        offset: a.offset,
        buffer_offset: a.buffer_offset,
        mapping_size: a.mapping_size,
    };
    let conflict = space.maps_otherwise(&buffer, &request);
    let va = space.map(&buffer, &request)?;
    if let Some(other) = conflict.filter(|other| *other != va) {
        machine.violations.record(
            Consequence::Corruption,
            "NVGPU_AS_IOCTL_MAP_BUFFER_EX",
            format!(
                "the buffer at {va:#x} is mapped at {other:#x} with other flags: the two mappings may be cached differently; use one \
                 set of flags for each buffer"
            ),
        );
    }
    Ok(va)
}

fn unmap(machine: &Machine, space: &AddressSpace, va: u64) {
    let uses = |instance: &Instance| {
        instance.is_busy()
            && instance.bindings().tables.as_ref().is_some_and(|t| Arc::ptr_eq(t, space.tables()))
    };
    let running = machine.gpu.runlist().iter().any(|entry| uses(&entry.instance));
    if !space.unmap(va, running.then(|| machine.clock.uptime())) {
        let text = format!("sync-unmap failed on {va:#x}");
        machine.log.error(&machine.clock, ("nvgpu_vm_unmap_sync_buffer", 0), &text);
    }
}

/// All unmappings, then mappings until the first error. Addresses are not written back, as in the driver.
fn batch(machine: &Machine, space: &AddressSpace, a: &mut nvgpu_as_map_buffer_batch_args) -> Reply {
    if a.num_unmaps > BATCH_LIMIT || a.num_maps > BATCH_LIMIT {
        return Err(Errno::EINVAL);
    }
    let unmaps: Vec<nvgpu_as_unmap_buffer_args> = machine.user.read_array(a.unmaps, a.num_unmaps as usize)?;
    for unmap in unmaps {
        self::unmap(machine, space, unmap.offset);
    }
    let maps: Vec<nvgpu_as_map_buffer_ex_args> = machine.user.read_array(a.maps, a.num_maps as usize)?;
    for args in &maps {
        map(machine, space, args)?;
        if args.flags & NVGPU_AS_MAP_BUFFER_FLAGS_FIXED_OFFSET == 0 {
            machine.violations.record(
                Consequence::Leak,
                "NVGPU_AS_IOCTL_MAP_BUFFER_BATCH",
                "a mapping without a fixed address: the driver does not write its address back, and nobody can unmap it; give \
                 every mapping of a batch its address",
            );
        }
    }
    Ok(0)
}

fn remap(machine: &Machine, space: &AddressSpace, a: &nvgpu_as_remap_args) -> Reply {
    const PAGE_SIZES: u32 = NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K
        | NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_64K
        | NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_128K;
    const KNOWN: u32 =
        PAGE_SIZES | NVGPU_AS_REMAP_OP_FLAGS_CACHEABLE | NVGPU_AS_REMAP_OP_FLAGS_ACCESS_NO_WRITE;
    if a.num_ops == 0 {
        return Ok(0);
    }
    if a.num_ops > REMAP_LIMIT {
        return Err(Errno::EINVAL);
    }
    let ops: Vec<nvgpu_as_remap_op> = machine.user.read_array(a.ops, a.num_ops as usize)?;
    let (start, pages) = space.user_region();
    // Page numbers up to the end of the address space, the driver's own range included.
    let limit = start / PAGE + pages + KERNEL_RANGE / PAGE;
    let mut pages_of = Vec::with_capacity(ops.len());
    for op in &ops {
        let size = match op.flags & PAGE_SIZES {
            NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_4K => PAGE,
            NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_64K => 1 << 16,
            NVGPU_AS_REMAP_OP_FLAGS_PAGESIZE_128K => 1 << 17,
            _ => return Err(Errno::EINVAL),
        };
        let none = op.mem_handle == 0;
        let bare = op.compr_kind == -1 && op.incompr_kind == -1 && op.mem_offset_in_pages == 0;
        let known = if none { PAGE_SIZES } else { KNOWN };
        let most = limit * PAGE / size;
        let far = op.num_pages > most || op.mem_offset_in_pages > most || op.virt_offset_in_pages > most;
        if op.flags & !known != 0 || none && !bare || op.num_pages == 0 || far {
            return Err(Errno::EINVAL);
        }
        pages_of.push(size);
    }
    if pages_of[0] != PAGE {
        return Err(Errno::EINVAL);
    }
    let mut checked = Vec::with_capacity(ops.len());
    let mut last = 0;
    for (op, page_size) in ops.iter().zip(pages_of) {
        let buffer = match op.mem_handle {
            0 => None,
            fd => Some(machine.buffer(&mut machine.driver(), fd as i32).map_err(|_| Errno::EINVAL)?),
        };
        checked.push(RemapOp {
            buffer,
            fresh: op.mem_handle != last,
            buffer_page: op.mem_offset_in_pages,
            page: op.virt_offset_in_pages,
            count: op.num_pages,
            page_size,
            cached: op.flags & NVGPU_AS_REMAP_OP_FLAGS_CACHEABLE != 0,
            read_only: op.flags & NVGPU_AS_REMAP_OP_FLAGS_ACCESS_NO_WRITE != 0,
            kind: op.incompr_kind as u8,
        });
        if op.mem_handle != 0 {
            last = op.mem_handle;
        }
    }
    space.remap(&checked)?;
    Ok(0)
}
