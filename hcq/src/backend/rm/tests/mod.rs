//! The backend against a resource manager that keeps books: what is created, mapped and freed, and in which
//! order.

mod failures;
mod shortage;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{CStr, c_void};
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags};
use nix::unistd::ftruncate;
use nvgpu_sys::{Linux, Sys};
use rm_sys::*;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::Rm;
use crate::address::GpuVa;
use crate::backend::kernel_log::NoLog;
use crate::backend::{Backend, ChannelRequest, Engine, MemoryKind, MemoryRequest};
use crate::error::{DriverError, Error, OpenError};
use crate::sync::lock;

const VIDEO_NODE: &CStr = c"/dev/nvidia2";
const TOKEN: u32 = 0x8000_0007;
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
struct Books {
    /// Parent and class of each live object.
    objects: BTreeMap<u32, (u32, u32)>,
    next: u32,
    /// Length of each live CPU mapping's object, by cookie, and its file.
    cpu: BTreeMap<u64, (u32, OwnedFd)>,
    /// Live maps made by the process, by address.
    mapped: BTreeMap<usize, usize>,
    /// Length and memory of each GPU mapping.
    gpu: BTreeMap<u64, (u64, u32)>,
    /// Calls that carry a status so far, and the one to refuse.
    calls: usize,
    refuse: Option<usize>,
    /// Shift added to fixed addresses.
    misplace: u64,
    /// The SMs' error state.
    trapped: Option<(u32, u32, u64, u64)>,
    /// The debugger's record of the last MMU fault: address, type, access.
    mmu_fault: Option<(u64, u32, u32)>,
    schedules: usize,
    /// Whether each request for video memory asked for one stretch.
    contiguous: Vec<bool>,
    /// Objects, CPU mappings and GPU mappings that the process knows nothing of, or could not remove: they end
    /// with what they are part of.
    lost: BTreeSet<u64>,
}

/// A resource manager with one H200, as node 2 of which 0 may not be opened.
#[derive(Debug)]
struct FakeRm {
    release: Release,
    version: String,
    classes: Vec<u32>,
    books: Mutex<Books>,
}

fn view<T: FromBytes + IntoBytes + Immutable + KnownLayout>(bytes: &mut [u8]) -> &mut T {
    T::mut_from_bytes(bytes).expect("the struct's size belongs to the request")
}

/// The struct at an address that the code under test passed.
fn at<T>(address: u64) -> &'static mut T {
    // SAFETY: the code under test passes the address of a live struct of the type that the request names.
    unsafe { &mut *std::ptr::with_exposed_provenance_mut(address as usize) }
}

impl FakeRm {
    fn new(release: Release) -> Arc<Self> {
        let classes = vec![
            HOPPER_COMPUTE_A,
            HOPPER_DMA_COPY_A,
            HOPPER_CHANNEL_GPFIFO_A,
            AMPERE_CHANNEL_GPFIFO_A,
            HOPPER_USERMODE_A,
        ];
        Self::of_version(release, format!("{}.1.02", release.major()), classes)
    }

    fn of_version(release: Release, version: String, classes: Vec<u32>) -> Arc<Self> {
        let books = Books { next: 0xcaf0_0000, ..Default::default() };
        Arc::new(Self { release, version, classes, books: Mutex::new(books) })
    }

    fn open(self: &Arc<Self>) -> Result<Rm, Error> {
        Rm::open(self.clone(), Box::new(NoLog), PATIENCE)
    }

    /// Everything the books hold is gone.
    fn assert_empty(&self) {
        let mut books = lock(&self.books);
        // Clients end with their descriptor.
        books.forget_lost(0);
        assert!(books.objects.is_empty(), "objects left: {:x?}", books.objects);
        assert!(books.cpu.is_empty() && books.mapped.is_empty(), "CPU mappings left: {:x?}", books.cpu);
        assert!(books.gpu.is_empty(), "GPU mappings left: {:x?}", books.gpu);
    }

    fn live(&self, class: u32) -> usize {
        lock(&self.books).objects.values().filter(|(_, c)| *c == class).count()
    }

    /// Writes an error record into every notifier.
    fn stop_channels(&self, code: u32) {
        let books = lock(&self.books);
        for (_, fd) in books.cpu.values() {
            let len = nix::sys::stat::fstat(fd).unwrap().st_size;
            if len == 4096 {
                let record = NvNotification { info32: code, status: 0xffff, ..Default::default() };
                File::from(fd.try_clone().unwrap()).write_all_at(record.as_bytes(), 0).unwrap();
            }
        }
    }

    fn create(&self, books: &mut Books, args: &mut NVOS64_PARAMETERS) -> u32 {
        let known = args.hClass == NV01_ROOT_CLIENT || books.objects.contains_key(&args.hObjectParent);
        if !known {
            return NV_ERR_INVALID_OBJECT_PARENT;
        }
        if args.hClass == NV01_MEMORY_LOCAL_USER {
            // 5 GiB are free, 3 of them in one stretch.
            let wanted = at::<NV_MEMORY_ALLOCATION_PARAMS>(args.pAllocParms);
            let contiguous = NVOS32_ATTR_PHYSICALITY.get(wanted.attr) == NVOS32_ATTR_PHYSICALITY_CONTIGUOUS;
            books.contiguous.push(contiguous);
            if wanted.size > if contiguous { 3 << 30 } else { 5 << 30 } {
                return NV_ERR_NO_MEMORY;
            }
        }
        if args.hClass == NV01_DEVICE_0 {
            assert_eq!(at::<NV0080_ALLOC_PARAMETERS>(args.pAllocParms).hClientShare, args.hRoot);
        }
        if args.hClass == HOPPER_CHANNEL_GPFIFO_A {
            let (ring, userd) = if self.release == Release::R610 {
                let p = at::<NV_CHANNEL_ALLOC_PARAMS_R610>(args.pAllocParms);
                (p.gpFifoOffset, p.hUserdMemory[0])
            } else {
                let p = at::<NV_CHANNEL_ALLOC_PARAMS>(args.pAllocParms);
                (p.gpFifoOffset, p.hUserdMemory[0])
            };
            assert_eq!(books.gpu.get(&ring).map(|m| m.1), Some(userd), "ring and USERD share their memory");
        }
        books.next += 1;
        args.hObjectNew = books.next;
        books.objects.insert(args.hObjectNew, (args.hObjectParent, args.hClass));
        NV_OK
    }

    /// The size of a control's parameters in this release; none for a control that it lacks.
    fn control_size(&self, command: u32) -> Option<usize> {
        let newer = |release| self.release >= release;
        match command {
            NVA06C_CTRL_CMD_GPFIFO_SCHEDULE => Some(if newer(Release::R580) { 3 } else { 2 }),
            NV2080_CTRL_CMD_GPU_GET_NAME_STRING => Some(if newer(Release::R595) { 68 } else { 132 }),
            NV2080_CTRL_CMD_CE_GET_ALL_CAPS if self.release == Release::R535 => None,
            _ => Some(CONTROLS.iter().find(|c| c.number == command).map_or(0, |c| c.size)),
        }
    }

    fn control(&self, books: &mut Books, args: &NVOS54_PARAMETERS) -> u32 {
        let Some(expected) = self.control_size(args.cmd) else { return NV_ERR_INVALID_ARGUMENT };
        if args.paramsSize as usize != expected {
            return NV_ERR_INVALID_ARGUMENT;
        }
        match args.cmd {
            NV0000_CTRL_CMD_GPU_GET_ID_INFO_V2 => {
                assert_eq!(at::<NV0000_CTRL_GPU_GET_ID_INFO_V2_PARAMS>(args.params).gpuId, 0x1700);
            }
            NV0080_CTRL_CMD_GPU_GET_CLASSLIST => {
                let list = at::<NV0080_CTRL_GPU_GET_CLASSLIST_PARAMS>(args.params);
                if list.classList != 0 {
                    for (i, class) in self.classes.iter().enumerate() {
                        *at::<u32>(list.classList + 4 * i as u64) = *class;
                    }
                }
                list.numClasses = self.classes.len() as u32;
            }
            NV2080_CTRL_CMD_GR_GET_INFO => {
                let list = at::<NV2080_CTRL_GR_GET_INFO_PARAMS>(args.params);
                for i in 0..u64::from(list.grInfoListSize) {
                    let info = at::<NV2080_CTRL_GR_INFO>(list.grInfoList + 8 * i);
                    info.data = match info.index {
                        NV2080_CTRL_GR_INFO_INDEX_SM_VERSION => 0x900,
                        NV2080_CTRL_GR_INFO_INDEX_MAX_WARPS_PER_SM => 64,
                        NV2080_CTRL_GR_INFO_INDEX_SHADER_PIPE_SUB_COUNT => 66,
                        NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_GPCS => 8,
                        NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_TPC_PER_GPC => 9,
                        NV2080_CTRL_GR_INFO_INDEX_LITTER_NUM_SM_PER_TPC => 2,
                        index => panic!("index {index} is not one the backend needs"),
                    };
                }
            }
            NV2080_CTRL_CMD_FB_GET_INFO => {
                let list = at::<NV2080_CTRL_FB_GET_INFO_PARAMS>(args.params);
                let info = at::<NV2080_CTRL_FB_INFO>(list.fbInfoList);
                info.data = match info.index {
                    NV2080_CTRL_FB_INFO_INDEX_RAM_SIZE => 141 << 20,
                    NV2080_CTRL_FB_INFO_INDEX_HEAP_FREE => 5 << 20,
                    index => panic!("index {index} is not one the backend needs"),
                };
            }
            NV2080_CTRL_CMD_GPU_GET_NAME_STRING => {
                let text = at::<[u8; 12]>(args.params);
                text[4..].copy_from_slice(b"Fake H20");
            }
            NV2080_CTRL_CMD_CE_GET_ALL_CAPS => {
                let caps = at::<NV2080_CTRL_CE_GET_ALL_CAPS_PARAMS>(args.params);
                caps.present = 0b1101;
                let table = caps.capsTbl.as_mut_bytes();
                (table[0], table[4], table[6]) = (1, 1, 0); // engines 0 and 2 share the graphics runlist, 3 does not
            }
            NVC36F_CTRL_CMD_GPFIFO_GET_WORK_SUBMIT_TOKEN => *at::<u32>(args.params) = TOKEN,
            NVA06C_CTRL_CMD_GPFIFO_SCHEDULE => books.schedules += 1,
            NV906F_CTRL_CMD_GET_MMU_FAULT_INFO => {
                let info = at::<NV906F_CTRL_GET_MMU_FAULT_INFO_PARAMS>(args.params);
                (info.addrHi, info.addrLo, info.faultType) = (0x123, 0x4567_8000, 2);
            }
            NV83DE_CTRL_CMD_DEBUG_READ_ALL_SM_ERROR_STATES => {
                let states = at::<NV83DE_CTRL_DEBUG_READ_ALL_SM_ERROR_STATES_PARAMS>(args.params);
                assert!(states.numSMsToRead <= 100);
                let asked = states.startingSM..states.startingSM + states.numSMsToRead;
                if let Some((sm, esr, pc, address)) = books.trapped.filter(|t| asked.contains(&t.0)) {
                    let state = &mut states.smErrorStateArray[(sm - states.startingSM) as usize];
                    (state.hwwWarpEsr, state.hwwWarpEsrPc64, state.hwwEsrAddr) = (esr, pc, address);
                }
            }
            NV83DE_CTRL_CMD_DEBUG_READ_MMU_FAULT_INFO => {
                let info = at::<NV83DE_CTRL_DEBUG_READ_MMU_FAULT_INFO_PARAMS>(args.params);
                if let Some((address, kind, access)) = books.mmu_fault {
                    let entry = &mut info.mmuFaultInfoList[0];
                    (entry.faultAddress, entry.faultType, entry.accessType) = (address, kind, access);
                    info.count = 1;
                }
            }
            command => panic!("control {command:#x} is not one the backend needs"),
        }
        NV_OK
    }

    fn map_gpu(&self, books: &mut Books, memory: u32, len: u64, va: &mut u64) -> u32 {
        if !books.objects.contains_key(&memory) {
            return NV_ERR_INVALID_OBJECT_HANDLE;
        }
        *va += books.misplace;
        let taken = books.gpu.iter().any(|(at, (l, _))| *va < at + l && *at < *va + len);
        if taken {
            return NV_ERR_NO_MEMORY;
        }
        books.gpu.insert(*va, (len, memory));
        NV_OK
    }

    /// Whether this call is the one to refuse.
    fn refused(books: &mut Books) -> bool {
        books.calls += 1;
        books.refuse == Some(books.calls)
    }
}

impl Books {
    /// Removes what is lost of an object that goes.
    fn forget_lost(&mut self, object: u32) {
        let Self { objects, gpu, cpu, lost, .. } = self;
        gpu.retain(|va, (_, memory)| *memory != object || !lost.contains(va));
        cpu.retain(|cookie, (memory, _)| *memory != object || !lost.contains(cookie));
        let child = |(child, (parent, _)): (&u32, &(u32, u32))| {
            (*parent == object && lost.contains(&u64::from(*child))).then_some(*child)
        };
        for child in objects.iter().filter_map(child).collect::<Vec<_>>() {
            self.forget_lost(child);
            self.objects.remove(&child);
        }
    }

    /// Frees an object that has no children and is mapped nowhere.
    fn free(&mut self, object: u32) {
        self.forget_lost(object);
        let orphans = self.objects.values().filter(|(parent, _)| *parent == object).count();
        assert_eq!(orphans, 0, "{object:x} is freed before its children");
        assert!(!self.gpu.values().any(|(_, memory)| *memory == object), "freed while mapped");
        assert!(!self.cpu.values().any(|(memory, _)| *memory == object), "freed while mapped");
        assert!(self.objects.remove(&object).is_some(), "freed twice");
    }
}

/// The cards of the machine: one that is not valid, and two that are.
fn list_cards(arg: &mut [u8]) {
    let card = |valid, id, minor| nv_ioctl_card_info_t {
        valid,
        gpu_id: id,
        minor_number: minor,
        ..Default::default()
    };
    for (i, card) in [card(0, 1, 1), card(1, 0x100, 0), card(1, 0x1700, 2)].iter().enumerate() {
        arg[72 * i..72 * (i + 1)].copy_from_slice(card.as_bytes());
    }
}

// SAFETY: descriptors and mappings are those of memfds; arguments are written as the driver's structs.
unsafe impl Sys for FakeRm {
    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Errno> {
        assert!(flags.contains(OFlag::O_CLOEXEC));
        if path != VIDEO_NODE && path != c"/dev/nvidiactl" {
            return Err(Errno::EACCES);
        }
        memfd_create(c"fake-rm", MFdFlags::MFD_CLOEXEC)
    }

    unsafe fn ioctl(&self, _: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Errno> {
        assert_eq!((request >> 16) & 0x3fff, arg.len() as u32, "the request carries the size");
        let mut books = lock(&self.books);
        let books = &mut *books;
        match request & 0xff {
            200 => list_cards(arg),
            201 => {}
            210 => {
                let args = view::<nv_ioctl_rm_api_version_t>(arg);
                assert_eq!(args.cmd, NV_RM_API_VERSION_CMD_QUERY);
                args.versionString[..self.version.len()].copy_from_slice(self.version.as_bytes());
            }
            0x29 => {
                let args = view::<NVOS00_PARAMETERS>(arg);
                books.free(args.hObjectOld);
            }
            0x2a => {
                let refused = Self::refused(books);
                let args = view::<NVOS54_PARAMETERS>(arg);
                args.status = if refused { NV_ERR_GPU_IS_LOST } else { self.control(books, args) };
            }
            0x2b => {
                let refused = Self::refused(books);
                let args = view::<NVOS64_PARAMETERS>(arg);
                args.status = if refused { NV_ERR_GPU_IS_LOST } else { self.create(books, args) };
            }
            0x4e => {
                let refused = Self::refused(books);
                let args = view::<nv_ioctl_nvos33_parameters_with_fd>(arg);
                if refused {
                    args.params_status = NV_ERR_GPU_IS_LOST;
                    return Ok(0);
                }
                // SAFETY: the code under test keeps the descriptor open across the call.
                let fd = unsafe { BorrowedFd::borrow_raw(args.fd) };
                ftruncate(fd, args.params_length as i64)?;
                args.params_pLinearAddress = 0xc00c_0000_0000 + u64::from(args.params_hMemory);
                let file = fd.try_clone_to_owned().map_err(|_| Errno::EMFILE)?;
                books.cpu.insert(args.params_pLinearAddress, (args.params_hMemory, file));
            }
            0x4f => {
                let args = view::<NVOS34_PARAMETERS>(arg);
                assert!(books.cpu.remove(&args.pLinearAddress).is_some(), "unmapped twice");
            }
            0x57 if self.release >= Release::R580 => {
                let refused = Self::refused(books);
                let args = view::<NVOS46_PARAMETERS>(arg);
                let status = self.map_gpu(books, args.hMemory, args.length, &mut args.dmaOffset);
                args.status = if refused { NV_ERR_GPU_IS_LOST } else { status };
                if refused {
                    books.gpu.remove(&args.dmaOffset);
                }
            }
            0x57 => {
                let args = view::<NVOS46_PARAMETERS_R535>(arg);
                args.status = self.map_gpu(books, args.hMemory, args.length, &mut args.dmaOffset);
            }
            0x58 if self.release >= Release::R550 => {
                let args = view::<NVOS47_PARAMETERS>(arg);
                assert!(books.gpu.remove(&args.dmaOffset).is_some(), "unmapped twice");
            }
            0x58 => {
                let args = view::<NVOS47_PARAMETERS_R535>(arg);
                assert!(books.gpu.remove(&args.dmaOffset).is_some(), "unmapped twice");
            }
            number => panic!("escape {number:#x} is not one the backend needs"),
        }
        Ok(0)
    }

    unsafe fn mmap(
        &self,
        len: NonZeroUsize,
        prot: ProtFlags,
        flags: MapFlags,
        fd: BorrowedFd<'_>,
        offset: i64,
    ) -> Result<NonNull<c_void>, Errno> {
        // SAFETY: passed on to the caller.
        let base = unsafe { Linux.mmap(len, prot, flags, fd, offset) }?;
        lock(&self.books).mapped.insert(base.as_ptr().addr(), len.get());
        Ok(base)
    }

    unsafe fn munmap(&self, addr: NonNull<c_void>, len: usize) -> Result<(), Errno> {
        assert_eq!(lock(&self.books).mapped.remove(&addr.as_ptr().addr()), Some(len));
        // SAFETY: passed on to the caller.
        unsafe { Linux.munmap(addr, len) }
    }

    fn poll(&self, fds: &mut [PollFd<'_>], timeout: PollTimeout) -> Result<i32, Errno> {
        Linux.poll(fds, timeout)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Errno> {
        Linux.close(fd)
    }
}

fn memory(kind: MemoryKind, va: u64) -> MemoryRequest {
    MemoryRequest { len: 2 << 20, kind, va: GpuVa::inside(va) }
}

fn channel(engine: Engine, va: u64) -> ChannelRequest {
    ChannelRequest { engine, entries: 1024, va: Some(GpuVa::inside(va)) }
}

/// Opens a device and uses all of it once.
fn use_everything(rm: Arc<dyn Sys>) -> Result<Rm, Error> {
    let device = Rm::open(rm, Box::new(NoLog), PATIENCE)?;
    for (i, kind) in [MemoryKind::Device, MemoryKind::Command, MemoryKind::Shared].into_iter().enumerate() {
        let memory = device.allocate(&memory(kind, (0x10_0000_0000) + ((i as u64) << 21)))?;
        assert_eq!(memory.cpu.is_some(), kind != MemoryKind::Device);
    }
    for (i, engine) in [Engine::Compute, Engine::Copy].into_iter().enumerate() {
        let made = device.create_channel(&channel(engine, 0x20_0000_0000 + ((i as u64) << 21)))?;
        assert_eq!(made.token, TOKEN);
    }
    Ok(device)
}

#[test]
fn a_device_describes_itself() {
    let rm = FakeRm::new(Release::R580);
    let device = rm.open().unwrap();
    let info = device.info();
    assert_eq!((info.sm, info.sm_number(), info.sm_count, info.tpc_count), (0x900, 90, 132, 72));
    assert_eq!((info.max_warps_per_sm, info.memory), (64, 141 << 30));
    assert_eq!((info.name.as_str(), info.driver_version.as_str()), ("Fake H20", "580.1.02"));
    assert_eq!((info.classes.compute, info.classes.copy, info.classes.channel), (0xcbc0, 0xc8b5, 0xc86f));
    assert!(!info.unified_memory);
    drop(device);
    rm.assert_empty();
}

#[test]
fn everything_is_freed_on_every_release() {
    for release in Release::ALL {
        let rm = FakeRm::new(release);
        let device = use_everything(rm.clone()).unwrap_or_else(|e| panic!("{release:?}: {e}"));
        assert_eq!(lock(&rm.books).schedules, 2);
        drop(device);
        rm.assert_empty();
    }
}

#[test]
fn whatever_the_driver_refuses_nothing_is_left_behind() {
    for refuse in 1.. {
        let rm = FakeRm::new(Release::R580);
        lock(&rm.books).refuse = Some(refuse);
        let outcome = use_everything(rm.clone());
        let reached = lock(&rm.books).calls >= refuse;
        if let Err(error) = &outcome {
            assert!(
                error.to_string().ends_with("gpu is lost (NV_ERR_GPU_IS_LOST, 0xf)"),
                "call {refuse}: {error}"
            );
        }
        drop(outcome);
        rm.assert_empty();
        if !reached {
            assert!(refuse > 30, "only {refuse} calls were made");
            return;
        }
    }
}

#[test]
fn a_panic_frees_everything() {
    let rm = FakeRm::new(Release::R580);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let _device = use_everything(rm.clone()).unwrap();
        panic!("on purpose");
    }));
    assert!(outcome.is_err());
    rm.assert_empty();
}

#[test]
fn freed_memory_and_channels_leave_their_addresses() {
    let rm = FakeRm::new(Release::R580);
    let device = rm.open().unwrap();
    for _ in 0..3 {
        let memory = device.allocate(&memory(MemoryKind::Command, 0x10_0000_0000)).unwrap();
        let channel = device.create_channel(&channel(Engine::Compute, 0x20_0000_0000)).unwrap();
        device.destroy_channel(channel.id);
        device.free(memory.id).unwrap();
        assert!(lock(&rm.books).gpu.is_empty());
    }
}

#[test]
fn memory_at_another_address_than_asked_for_is_refused() {
    let rm = FakeRm::new(Release::R580);
    let device = rm.open().unwrap();
    lock(&rm.books).misplace = 1 << 21;
    let error = device.allocate(&memory(MemoryKind::Device, 0x10_0000_0000)).unwrap_err();
    assert!(matches!(error, Error::Driver(DriverError::Answer { value: 0x10_0020_0000, .. })), "{error}");
    assert!(lock(&rm.books).gpu.is_empty());
}

#[test]
fn a_copy_channel_uses_an_engine_of_its_own() {
    let rm = FakeRm::new(Release::R580);
    let device = rm.open().unwrap();
    assert_eq!(device.copy_engine, Some(NV2080_ENGINE_TYPE_COPY3));
    device.create_channel(&channel(Engine::Copy, 0x20_0000_0000)).unwrap();
    assert_eq!((rm.live(FERMI_CONTEXT_SHARE_A), rm.live(HOPPER_DMA_COPY_A)), (0, 1));
}

#[test]
fn a_stopped_channel_tells_its_code_and_address() {
    let rm = FakeRm::new(Release::R580);
    let device = rm.open().unwrap();
    let made = device.create_channel(&channel(Engine::Compute, 0x20_0000_0000)).unwrap();
    assert_eq!(device.channel_error(made.id), None);
    rm.stop_channels(31);
    assert_eq!(device.channel_error(made.id), Some(31));
    let fault = device.fault(made.id);
    let mmu = fault.mmu.unwrap();
    assert_eq!((fault.notifier, mmu.va, mmu.kind, mmu.store), (31, 0x123_4567_8000, Some(2), None));
    for (access, store) in [(0, Some(false)), (1, Some(true)), (2, None)] {
        lock(&rm.books).mmu_fault = Some((0x55_0000, 6, access));
        let mmu = device.fault(made.id).mmu.unwrap();
        assert_eq!((mmu.va, mmu.kind, mmu.store), (0x55_0000, Some(6), store));
    }
}

#[test]
fn a_trapped_sm_is_found_and_its_channel_taken_away() {
    let rm = FakeRm::new(Release::R580);
    let device = rm.open().unwrap();
    let made = device.create_channel(&channel(Engine::Compute, 0x20_0000_0000)).unwrap();
    lock(&rm.books).trapped = Some((117, 0xf, 0x100_0000_0450, 0x1_2345_6789));
    std::thread::sleep(Duration::from_millis(25));
    assert_eq!(device.channel_error(made.id), Some(13));
    let fault = device.fault(made.id);
    let sm = fault.sms[0];
    assert_eq!((fault.sms.len(), sm.sm, sm.warp_esr, sm.pc), (1, 117, 0xf, 0x100_0000_0450));
    assert_eq!(fault.mmu.map(|m| m.va), Some(0x1_2345_6789));
    assert_eq!((rm.live(HOPPER_CHANNEL_GPFIFO_A), rm.live(GT200_DEBUGGER)), (0, 0));
    // The ring stays mapped for whoever still holds its pointer.
    assert_eq!(lock(&rm.books).gpu.len(), 1);
    device.destroy_channel(made.id);
    assert!(lock(&rm.books).gpu.is_empty());
}

#[test]
fn an_unknown_release_is_refused_before_anything_is_created() {
    let rm = FakeRm::of_version(Release::R550, "560.35.03".to_owned(), Vec::new());
    let error = rm.open().unwrap_err();
    let Error::Open(OpenError::Driver { source }) = &error else { panic!("{error}") };
    assert!(matches!(source.downcast_ref(), Some(VersionError::Unknown { .. })), "{source}");
    assert_eq!(lock(&rm.books).next, 0xcaf0_0000);
}

#[test]
fn a_gpu_of_another_generation_is_refused_by_name() {
    let rm = FakeRm::of_version(Release::R580, "580.142".to_owned(), vec![BLACKWELL_COMPUTE_B]);
    let error = rm.open().unwrap_err();
    assert!(error.to_string().contains("Blackwell"), "{error}");
    rm.assert_empty();
}
