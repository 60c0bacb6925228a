//! The calls of a record, made to the model.

use super::record::{Answer, Handle, Map, Remap, Request};
use super::tables::{Pages, Tables};
use ga10b_sim::{Sim, SimConfig};
use nix::fcntl::OFlag;
use nix::sys::mman::{MapFlags, ProtFlags};
use nvgpu_sys::*;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::Arc;

use crate::machine;

const PAGE: u64 = 4096;

/// A machine with at most one address space.
pub struct Client {
    sim: Arc<Sim>,
    ctrl: OwnedFd,
    nvmap: OwnedFd,
    space: Option<OwnedFd>,
    range: (u64, u64),
    buffers: Vec<OwnedFd>,
}

/// Sends a request; the model's answer is its result.
fn ask<A: Ioctl>(sim: &Sim, fd: BorrowedFd<'_>, args: &mut A) -> Result<i32, Answer> {
    // SAFETY: addresses in the arguments are those of live arrays of the announced sizes.
    unsafe { call(sim, fd, args) }.map_err(|e| Answer::Refused(e.errno as i32))
}

fn take(fd: i32) -> OwnedFd {
    assert!(fd > 2);
    // SAFETY: the driver made it for us just now.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

impl Client {
    pub fn new() -> Self {
        let sim = Sim::new(SimConfig { sm_count: 2, memory: 8 << 30, ..SimConfig::default() });
        let flags = OFlag::O_RDWR | OFlag::O_CLOEXEC;
        let ctrl = sim.open(c"/dev/nvgpu/igpu0/ctrl", flags).unwrap();
        let nvmap = sim.open(c"/dev/nvmap", flags).unwrap();
        Self { sim, ctrl, nvmap, space: None, range: (0, 0), buffers: Vec::new() }
    }

    /// The user's range of the address space.
    pub fn range(&self) -> (u64, u64) {
        self.range
    }

    /// A buffer whose pages say which they are: the first words of each are the mark, its number and that of
    /// the page.
    pub fn buffer(&mut self, bytes: u64, read_only: bool) {
        let sim = &*self.sim;
        let handle = machine::nvmap_create(sim, &self.nvmap, bytes).unwrap();
        let mut alloc =
            nvmap_alloc_handle { handle, heap_mask: NVMAP_HEAP_IOVMM, align: 4096, ..Default::default() };
        ask(sim, self.nvmap.as_fd(), &mut alloc).unwrap();
        let mut fd = machine::nvmap_fd(sim, &self.nvmap, handle).unwrap();
        let len = NonZeroUsize::new(bytes as usize).unwrap();
        let prot = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a new mapping of the whole buffer.
        let cpu = unsafe { sim.mmap(len, prot, MapFlags::MAP_SHARED, fd.as_fd(), 0) }.unwrap();
        for page in 0..bytes / PAGE {
            let mark = [Pages::MARK, self.buffers.len() as u64, page];
            // SAFETY: inside the mapping, which nothing else uses.
            unsafe { cpu.cast::<[u64; 3]>().byte_add((page * PAGE) as usize).write(mark) };
        }
        // SAFETY: mapped above, not used any more.
        unsafe { sim.munmap(cpu, len.get()) }.unwrap();
        if read_only {
            let handle = machine::nvmap_read_only(sim, &self.nvmap, handle).unwrap();
            fd = machine::nvmap_fd(sim, &self.nvmap, handle).unwrap();
        }
        self.buffers.push(fd);
    }

    fn space(&self) -> BorrowedFd<'_> {
        self.space.as_ref().expect("no address space was opened").as_fd()
    }

    fn descriptor(&self, buffer: Option<usize>) -> u32 {
        // A number that no descriptor has.
        buffer.map_or(0x7fff_0000, |number| self.buffers[number].as_raw_fd() as u32)
    }

    fn map_arguments(&self, map: &Map) -> nvgpu_as_map_buffer_ex_args {
        nvgpu_as_map_buffer_ex_args {
            flags: map.flags,
            compr_kind: map.compr_kind,
            incompr_kind: map.incompr_kind,
            dmabuf_fd: self.descriptor(map.buffer),
            page_size: map.page_size,
            buffer_offset: map.buffer_offset,
            mapping_size: map.mapping_size,
            offset: map.offset,
        }
    }

    /// Makes a call.
    pub fn call(&mut self, request: &Request) -> Answer {
        self.try_call(request).map_or_else(|refused| refused, Answer::Numbers)
    }

    fn try_call(&mut self, request: &Request) -> Result<Vec<u64>, Answer> {
        let sim = &*self.sim;
        match *request {
            Request::Open { big_page_size, flags, start, end, split } => {
                let mut args = nvgpu_alloc_as_args {
                    big_page_size,
                    flags,
                    va_range_start: start,
                    va_range_end: end,
                    va_range_split: split,
                    ..Default::default()
                };
                ask(sim, self.ctrl.as_fd(), &mut args)?;
                self.space = Some(take(args.as_fd));
                self.range = (start, end);
                Ok(vec![0])
            }
            Request::AllocSpace { pages, page_size, flags, offset } => {
                let mut args =
                    nvgpu_as_alloc_space_args { pages, page_size, flags, o_a: offset, ..Default::default() };
                ask(sim, self.space(), &mut args)?;
                Ok(vec![args.o_a])
            }
            Request::FreeSpace { offset } => {
                let mut args = nvgpu_as_free_space_args { offset, ..Default::default() };
                ask(sim, self.space(), &mut args)?;
                Ok(vec![0])
            }
            Request::Map(map) => {
                let mut args = self.map_arguments(&map);
                ask(sim, self.space(), &mut args)?;
                Ok(vec![args.offset])
            }
            Request::Unmap { offset } => {
                ask(sim, self.space(), &mut nvgpu_as_unmap_buffer_args { offset })?;
                Ok(vec![0])
            }
            Request::Modify { address, offset, size, compr_kind, incompr_kind } => {
                let mut args = nvgpu_as_mapping_modify_args {
                    map_address: address,
                    buffer_offset: offset,
                    buffer_size: size,
                    compr_kind,
                    incompr_kind,
                    ..Default::default()
                };
                ask(sim, self.space(), &mut args)?;
                Ok(vec![0])
            }
            Request::Remap(ref ops) => self.remap(ops),
            Request::Batch { ref unmaps, ref maps } => self.batch(unmaps, maps),
            Request::SyncMap => {
                let mut args = nvgpu_as_get_sync_ro_map_args::default();
                ask(sim, self.space(), &mut args)?;
                Ok(vec![args.base_gpuva, args.sync_size.into(), args.num_syncpoints.into()])
            }
            Request::Regions => {
                let mut region = nvgpu_as_va_region::default();
                let mut args = nvgpu_as_get_va_regions_args {
                    buf_addr: (&raw mut region) as u64,
                    buf_size: size_of_val(&region) as u32,
                    ..Default::default()
                };
                ask(sim, self.space(), &mut args)?;
                Ok(vec![region.offset, region.pages])
            }
        }
    }

    fn remap(&self, ops: &[Remap]) -> Result<Vec<u64>, Answer> {
        let mut ops: Vec<nvgpu_as_remap_op> = ops.iter().map(|op| self.remap_operation(op)).collect();
        let mut args = nvgpu_as_remap_args {
            ops: ops.as_mut_ptr() as u64,
            num_ops: ops.len() as u32,
            ..Default::default()
        };
        ask(&self.sim, self.space(), &mut args)?;
        Ok(vec![args.num_ops.into()])
    }

    fn batch(&self, unmaps: &[u64], maps: &[Map]) -> Result<Vec<u64>, Answer> {
        let unmaps: Vec<_> = unmaps.iter().map(|&offset| nvgpu_as_unmap_buffer_args { offset }).collect();
        let maps: Vec<_> = maps.iter().map(|map| self.map_arguments(map)).collect();
        let mut args = nvgpu_as_map_buffer_batch_args {
            unmaps: unmaps.as_ptr() as u64,
            maps: maps.as_ptr() as u64,
            num_unmaps: unmaps.len() as u32,
            num_maps: maps.len() as u32,
            ..Default::default()
        };
        ask(&self.sim, self.space(), &mut args)?;
        Ok(vec![args.num_maps.into()])
    }

    fn remap_operation(&self, op: &Remap) -> nvgpu_as_remap_op {
        nvgpu_as_remap_op {
            flags: op.flags,
            compr_kind: op.compr_kind,
            incompr_kind: op.incompr_kind,
            mem_handle: match op.buffer {
                Handle::None => 0,
                Handle::Bad => self.descriptor(None),
                Handle::Buffer(number) => self.descriptor(Some(number)),
            },
            mem_offset_in_pages: op.memory_page,
            virt_offset_in_pages: op.page,
            num_pages: op.pages,
            ..Default::default()
        }
    }

    /// Whether addresses are in use twice since a call that the model warned of: the driver's behaviour then
    /// depends on memory it has freed.
    pub fn is_corrupt(&self) -> bool {
        self.sim.violations().iter().any(|v| v.call == "NVGPU_AS_IOCTL_FREE_SPACE")
    }

    /// The page tables of the address space.
    pub fn tables(&self) -> Tables {
        let mut dump = Vec::new();
        self.sim.dump_memory(&mut dump).unwrap();
        let spaces = self.sim.page_tables();
        let [(_, root)] = spaces[..] else { panic!("{} address spaces", spaces.len()) };
        Tables::walk(&Pages::read(&dump), root)
    }
}
