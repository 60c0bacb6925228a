//! Devices: opening one, and what it is.

use std::ffi::c_char;
use std::time::{Duration, Instant};

use hcq::{BackendKind, Device, DeviceOptions, GpuCache, Interleave, Preemption, Selector};
use nix::time::{ClockId, clock_gettime};

use crate::call::{call, get as read, put, put_sized, room, text};
use crate::errors::HCQ_UNKNOWN;
use crate::failure::Failure;
use crate::handle::{Handle, free, get, hand_out};
use crate::registry::{Kind, Registry};
use crate::status::hcq_status;

/// A GPU with an address space.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_device {
    _private: (),
}

impl Handle for hcq_device {
    type Object = Device;

    fn registry() -> &'static Registry<Device> {
        static ALL: Registry<Device> = Registry::new(Kind::Device);
        &ALL
    }
}

/// The driver that serves a device.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum hcq_backend {
    /// One that this version of the header does not name.
    HCQ_BACKEND_UNNAMED = 0,
    /// A Jetson's `nvgpu`.
    HCQ_BACKEND_NVGPU,
    /// NVIDIA's desktop driver.
    HCQ_BACKEND_RM,
    /// The software ga10b.
    HCQ_BACKEND_SIM,
}

/// A device's description.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_info {
    /// Marketing or chip name, such as "ga10b"; cut where it is longer.
    pub name: [c_char; 64],
    /// Version of the driver, as far as it reports one; cut where it is longer.
    pub driver_version: [c_char; 64],
    /// Bytes of memory the GPU can use.
    pub memory: u64,
    /// Largest shared memory of one thread block in bytes, static and dynamic together.
    pub max_shared_per_block: u64,
    /// Highest clock of the SMs in Hz; 0 where the driver does not report it.
    pub max_clock_hz: u64,
    /// The driver that serves it.
    pub backend: hcq_backend,
    /// The `sm_NN` number, such as 87.
    pub sm: u32,
    /// Number of streaming multiprocessors.
    pub sm_count: u32,
    /// Number of texture processing clusters that scratch memory is provided for.
    pub tpc_count: u32,
    /// Resident warps per SM.
    pub max_warps_per_sm: u32,
    /// Class of the compute engine, such as 0xc7c0.
    pub compute_class: u32,
    /// Class of the copy engine, such as 0xc7b5.
    pub copy_class: u32,
    /// Class of the channel, such as 0xc76f.
    pub channel_class: u32,
    /// Whether the level-2 cache may keep buffers: 0 no, 1 yes, -1 where that is not for the library to say.
    pub gpu_cache: i32,
    /// Whether buffers are the CPU's own memory.
    pub unified_memory: bool,
}

/// The options of `hcq_device_open`. `hcq_options_init` fills them.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_options {
    /// `sizeof(hcq_options)`.
    pub size: usize,
    /// Time in ns for which calls without a deadline (reading, writing, freeing a queue) wait for the GPU.
    pub patience_ns: u64,
    /// Time in ns for which a wait spins before it yields; `HCQ_UNKNOWN` for the device's own choice.
    pub spin_ns: u64,
    /// Bytes of freed buffers that are kept for later ones; `HCQ_UNKNOWN` for the device's own choice.
    pub keep_freed: u64,
    /// Copies of a compute queue use a kernel from this many bytes on; `HCQ_UNKNOWN` for the device's choice.
    pub kernel_copies_from: u64,
    /// Context-switch time in ns after which a Jetson's driver stops a channel; `HCQ_UNKNOWN` for the driver's.
    pub switch_limit_ns: u64,
    /// Time slice in ns on a Jetson's GPU, 1000000 to 50000000 where root has not set the driver other bounds;
    /// `HCQ_UNKNOWN` for its 1024000.
    pub timeslice_ns: u64,
    /// Settings of channels and launches, as lines `NAME = VALUE`; `NULL` for what `HCQ_PROFILE` says.
    pub profile: *const c_char,
    /// As close as can be to what others have run on an Orin: 0, 1, or -1 for what `HCQ_CONSERVATIVE` says.
    pub conservative: i32,
    /// Whether a Jetson's level-2 cache may keep buffers: 0, 1, or -1 for what `HCQ_GPU_CACHE` says.
    pub gpu_cache: i32,
    /// Whether dependent launches follow each other inside the GPU's scheduler.
    pub chain_launches: i32,
    /// How often the device's work appears on a Jetson's run list: 0 low, 1 medium, 2 high, or -1 for the driver's,
    /// which is low. Refused on the desktop driver, which has no such levels.
    pub interleave: i32,
}

/// A mapping of a device's address space.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_mapping {
    /// First GPU address.
    pub address: u64,
    /// Length in bytes; 0 for a window, whose end the hardware gives.
    pub len: u64,
    /// The object that lies there, such as "buffer"; cut where it is longer.
    pub what: [c_char; 32],
}

/// One moment on the clocks of GPU and CPU.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_clock_pair {
    /// The GPU's clock in ns, from which timestamps are taken.
    pub gpu_ns: u64,
    /// `CLOCK_MONOTONIC` in ns.
    pub cpu_ns: u64,
    /// Largest difference of the two, in ns.
    pub error_ns: u64,
}

fn chars<const N: usize>(text: &str) -> [c_char; N] {
    let mut chars = [0; N];
    for (to, byte) in chars[..N - 1].iter_mut().zip(text.bytes().filter(|byte| *byte != 0)) {
        *to = byte.cast_signed() as c_char;
    }
    chars
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(HCQ_UNKNOWN - 1)
}

fn known(value: u64) -> Option<u64> {
    (value != HCQ_UNKNOWN).then_some(value)
}

/// A choice of no, yes, and what the environment says.
fn choice(value: i32, name: &str) -> Result<Option<bool>, Failure> {
    match value {
        -1 => Ok(None),
        0 | 1 => Ok(Some(value == 1)),
        _ => Err(Failure::value(format!("{name} is {value}: expected 0, 1 or -1"))),
    }
}

/// # Safety
/// The profile is null, or a text.
unsafe fn device_options(options: &hcq_options) -> Result<DeviceOptions, Failure> {
    let mut to = DeviceOptions::default();
    to.patience = Duration::from_nanos(options.patience_ns);
    to.spin = known(options.spin_ns).map(Duration::from_nanos);
    to.keep_freed = known(options.keep_freed);
    to.kernel_copies_from = known(options.kernel_copies_from);
    to.switch_limit = known(options.switch_limit_ns).map(Duration::from_nanos);
    to.timeslice = known(options.timeslice_ns).map(Duration::from_nanos);
    to.conservative = choice(options.conservative, "conservative")?;
    to.gpu_cache = choice(options.gpu_cache, "gpu_cache")?.map(|keep| match keep {
        true => GpuCache::Keep,
        false => GpuCache::Bypass,
    });
    to.interleave = match options.interleave {
        -1 => None,
        0 => Some(Interleave::Low),
        1 => Some(Interleave::Medium),
        2 => Some(Interleave::High),
        level => return Err(Failure::value(format!("interleave is {level}: expected 0, 1, 2 or -1"))),
    };
    to.chain_launches = choice(options.chain_launches, "chain_launches")?.unwrap_or(to.chain_launches);
    if !options.profile.is_null() {
        // SAFETY: the caller's promise.
        let profile = unsafe { text(options.profile, "profile") }?;
        to.profile = profile.parse().map_err(|bad: hcq::BadProfile| Failure::value(bad.to_string()))?;
    }
    Ok(to)
}

/// Fills options with the defaults. `size` is `sizeof(hcq_options)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_options_init(options: *mut hcq_options, size: usize) -> hcq_status {
    call(|| {
        let default = DeviceOptions::default();
        let ns = |duration: Option<Duration>| duration.map_or(HCQ_UNKNOWN, nanoseconds);
        let value = hcq_options {
            size,
            patience_ns: nanoseconds(default.patience),
            spin_ns: ns(default.spin),
            keep_freed: default.keep_freed.unwrap_or(HCQ_UNKNOWN),
            kernel_copies_from: default.kernel_copies_from.unwrap_or(HCQ_UNKNOWN),
            switch_limit_ns: ns(default.switch_limit),
            timeslice_ns: ns(default.timeslice),
            profile: std::ptr::null(),
            conservative: -1,
            gpu_cache: -1,
            chain_launches: i32::from(default.chain_launches),
            interleave: -1,
        };
        // SAFETY: the caller's promise.
        unsafe { put_sized(options, size, "options", &value) }
    })
}

/// Opens a device.
///
/// `name` is "auto" (a Jetson's GPU, else a desktop GPU, else the software ga10b), "nvgpu", "rm" or "sim";
/// `NULL` for what `HCQ_DEVICE` says, and "auto" if it says nothing. `options` may be `NULL`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_open(
    name: *const c_char,
    options: *const hcq_options,
    device: *mut *mut hcq_device,
) -> hcq_status {
    // SAFETY: the caller's promise, here and below.
    call(|| unsafe {
        hand_out(device, || {
            let selector = match name.is_null() {
                true => Selector::from_env()?,
                false => text(name, "name")?.parse()?,
            };
            if options.is_null() {
                return Ok(Device::open(selector)?);
            }
            // The size comes first in every version.
            let size = read(options.cast::<usize>(), "options")?;
            if size != size_of::<hcq_options>() {
                let text =
                    format!("options have {size} bytes, this library knows {}", size_of::<hcq_options>());
                return Err(Failure::new(hcq_status::HCQ_ERROR_SIZE, text));
            }
            Ok(Device::open_with(selector, device_options(&read(options, "options")?)?)?)
        })
    })
}

/// Frees a device's handle. The device closes when everything that was made from it is freed too. `NULL` is
/// no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_device_free(device: *mut hcq_device) -> hcq_status {
    free(device)
}

/// Describes a device. `size` is `sizeof(hcq_info)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_get_info(
    device: *const hcq_device,
    info: *mut hcq_info,
    size: usize,
) -> hcq_status {
    call(|| {
        let device = get(device)?;
        let of = device.info();
        let value = hcq_info {
            name: chars(&of.name),
            driver_version: chars(&of.driver_version),
            memory: of.memory,
            max_shared_per_block: of.max_shared_per_block,
            max_clock_hz: of.max_clock_hz.unwrap_or(0),
            backend: match of.backend {
                BackendKind::Nvgpu => hcq_backend::HCQ_BACKEND_NVGPU,
                BackendKind::Rm => hcq_backend::HCQ_BACKEND_RM,
                BackendKind::Sim => hcq_backend::HCQ_BACKEND_SIM,
                _ => hcq_backend::HCQ_BACKEND_UNNAMED,
            },
            sm: of.sm_number(),
            sm_count: of.sm_count,
            tpc_count: of.tpc_count,
            max_warps_per_sm: of.max_warps_per_sm,
            compute_class: of.classes.compute,
            copy_class: of.classes.copy,
            channel_class: of.classes.channel,
            gpu_cache: of.gpu_cache.map_or(-1, |cache| i32::from(cache == GpuCache::Keep)),
            unified_memory: of.unified_memory,
        };
        // SAFETY: the caller's promise.
        unsafe { put_sized(info, size, "info", &value) }
    })
}

/// Whether kernels are interrupted between two instructions when another program is to have the GPU, or else at
/// their end. Known once the first queue is open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_gives_way(device: *const hcq_device, gives_way: *mut bool) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(gives_way, "gives_way", get(device)?.preemption() == Preemption::Instructions) })
}

/// Bytes of memory that can be allocated now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_free_memory(device: *const hcq_device, bytes: *mut u64) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(bytes, "bytes", get(device)?.free_memory()?) })
}

/// Gives the memory of freed buffers back that the device keeps for later ones.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_device_trim(device: *const hcq_device) -> hcq_status {
    call(|| Ok(get(device)?.trim()?))
}

/// Bytes of device memory that stacks of `stack` bytes per thread take.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_stack_memory(
    device: *const hcq_device,
    stack: u32,
    bytes: *mut u64,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(bytes, "bytes", get(device)?.stack_memory(stack)) })
}

/// Allocates the memory for stacks of `stack` bytes per thread now.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_device_reserve_stacks(device: *const hcq_device, stack: u32) -> hcq_status {
    call(|| Ok(get(device)?.reserve_stacks(stack)?))
}

/// Lists what is mapped in a device's address space, by address. Writes at most `capacity` mappings, and to
/// `count`, which may be `NULL`, how many there are.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_memory_map(
    device: *const hcq_device,
    mappings: *mut hcq_mapping,
    capacity: usize,
    count: *mut usize,
) -> hcq_status {
    call(|| {
        let found = get(device)?.memory_map();
        let found = found.iter().map(|mapping| (mapping.va.raw(), mapping.len, mapping.what));
        // SAFETY: the caller's promise.
        unsafe { put_mappings(found, mappings, capacity, count) }
    })
}

/// Lists the windows through which kernels reach shared and local memory, as `hcq_device_memory_map` lists
/// mappings.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_windows(
    device: *const hcq_device,
    windows: *mut hcq_mapping,
    capacity: usize,
    count: *mut usize,
) -> hcq_status {
    call(|| {
        let found = get(device)?.windows();
        let found = found.iter().map(|(name, va)| (va.raw(), 0, *name));
        // SAFETY: the caller's promise.
        unsafe { put_mappings(found, windows, capacity, count) }
    })
}

/// # Safety
/// `to` has room for `capacity` mappings, `count` is null or valid for a write.
unsafe fn put_mappings<'a>(
    found: impl ExactSizeIterator<Item = (u64, u64, &'a str)>,
    to: *mut hcq_mapping,
    capacity: usize,
    count: *mut usize,
) -> Result<(), Failure> {
    if !count.is_null() {
        // SAFETY: the caller's promise.
        unsafe { put(count, "count", found.len()) }?;
    }
    // SAFETY: the caller's promise.
    let room = unsafe { room(to, capacity, "room for mappings") }?;
    for (to, (address, len, what)) in room.iter_mut().zip(found) {
        *to = hcq_mapping { address, len, what: chars(what) };
    }
    Ok(())
}

/// The GPU's clock in ns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_gpu_time(device: *const hcq_device, ns: *mut u64) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(ns, "ns", get(device)?.gpu_time()?) })
}

/// Reads the clocks of GPU and CPU together. Two pairs, some time apart, relate every timestamp between to the
/// CPU's clock.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_device_clock_pair(
    device: *const hcq_device,
    pair: *mut hcq_clock_pair,
) -> hcq_status {
    call(|| {
        let found = get(device)?.clock_pair()?;
        let before = Instant::now();
        let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
            .map_err(|errno| Failure::new(hcq_status::HCQ_ERROR_OTHER, format!("clock_gettime: {errno}")))?;
        let between = before.elapsed();
        let value = hcq_clock_pair {
            gpu_ns: found.gpu_ns,
            cpu_ns: nanoseconds(Duration::from(now).saturating_sub(before.duration_since(found.cpu))),
            error_ns: nanoseconds(found.error + between),
        };
        // SAFETY: the caller's promise.
        unsafe { put(pair, "pair", value) }
    })
}
