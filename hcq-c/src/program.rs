//! Programs and their kernels.

use std::ffi::{OsStr, c_char, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use hcq::{Images, Kernel, OccupancyLimit, Program};

use crate::call::{array, bytes, c_path, call, put, put_sized, put_text, text};
use crate::device::hcq_device;
use crate::failure::Failure;
use crate::handle::{Handle, free, get, hand_out};
use crate::registry::{Kind, Registry};
use crate::status::hcq_status;

/// A cubin in a device's memory.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_program {
    _private: (),
}

impl Handle for hcq_program {
    type Object = Program;

    fn registry() -> &'static Registry<Program> {
        static ALL: Registry<Program> = Registry::new(Kind::Program);
        &ALL
    }
}

/// A kernel of a program.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Debug)]
pub struct hcq_kernel {
    _private: (),
}

impl Handle for hcq_kernel {
    type Object = Kernel;

    fn registry() -> &'static Registry<Kernel> {
        static ALL: Registry<Kernel> = Registry::new(Kind::Kernel);
        &ALL
    }
}

/// A cubin in the program's memory.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_image {
    /// Its first byte.
    pub data: *const c_void,
    /// Its length in bytes.
    pub len: usize,
}

/// Facts of a kernel.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_kernel_info {
    /// GPU address of the code.
    pub address: u64,
    /// Bytes of code.
    pub code_bytes: u64,
    /// Registers per thread.
    pub registers: u32,
    /// Bytes of static shared memory per block.
    pub static_shared: u32,
    /// Bytes of stack per thread.
    pub local_bytes: u32,
    /// Bytes of parameters.
    pub param_bytes: u32,
    /// Most threads per block.
    pub max_threads: u32,
    /// Whether its code has `griddepcontrol.wait`.
    pub waits_for_grids: bool,
}

/// The resource that keeps more blocks off an SM.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum hcq_occupancy_limit {
    /// One that this version of the header does not name.
    HCQ_LIMIT_UNNAMED = 0,
    /// The number of warps an SM holds.
    HCQ_LIMIT_WARPS,
    /// The number of blocks an SM holds.
    HCQ_LIMIT_BLOCKS,
    /// The register file.
    HCQ_LIMIT_REGISTERS,
    /// Shared memory.
    HCQ_LIMIT_SHARED_MEMORY,
}

/// The occupancy of an SM by blocks of one size.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_occupancy {
    /// Blocks on an SM at once; 0 for blocks that cannot be launched.
    pub blocks_per_sm: u32,
    /// Warps on an SM at once.
    pub warps_per_sm: u32,
    /// Most warps an SM holds.
    pub max_warps_per_sm: u32,
    /// The resource that limits it.
    pub limit: hcq_occupancy_limit,
}

/// Loads a cubin: of the given ones, for example of one source for several SMs, the one that runs on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_program_load(
    device: *const hcq_device,
    images: *const hcq_image,
    count: usize,
    program: *mut *mut hcq_program,
) -> hcq_status {
    // SAFETY: the caller's promise, here and below.
    call(|| unsafe {
        hand_out(program, || {
            let device = get(device)?;
            let images = array(images, count, "images")?.iter();
            let images = images.map(|image| bytes(image.data, image.len, "an image"));
            let images = images.collect::<Result<Vec<_>, _>>()?;
            Ok(device.load(Images::new(&images))?)
        })
    })
}

/// Loads a cubin from a file: of the given ones the one that runs on the device.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_program_load_files(
    device: *const hcq_device,
    paths: *const *const c_char,
    count: usize,
    program: *mut *mut hcq_program,
) -> hcq_status {
    // SAFETY: the caller's promise, here and below.
    call(|| unsafe {
        hand_out(program, || {
            let device = get(device)?;
            let paths = array(paths, count, "paths")?.iter();
            let files = paths.map(|path| read(c_path(*path, "a path")?)).collect::<Result<Vec<_>, _>>()?;
            let images: Vec<&[u8]> = files.iter().map(Vec::as_slice).collect();
            Ok(device.load(Images::new(&images))?)
        })
    })
}

/// Most bytes of a file that is read.
const MOST: u64 = 1 << 30;

/// A regular file of at most [`MOST`] bytes: reading others may not end.
fn read(path: &[u8]) -> Result<Vec<u8>, Failure> {
    let path = Path::new(OsStr::from_bytes(path));
    let failure =
        |why: String| Failure::new(hcq_status::HCQ_ERROR_FILE, format!("{}: {why}", path.display()));
    let facts = std::fs::metadata(path).map_err(|error| failure(error.to_string()))?;
    match facts.is_file() {
        false => Err(failure("not a regular file".to_owned())),
        true if facts.len() > MOST => Err(failure(format!("{} bytes are too many for a cubin", facts.len()))),
        true => std::fs::read(path).map_err(|error| failure(error.to_string())),
    }
}

/// Frees a program's handle. The code goes back when the last kernel, graph and launch of it has. `NULL` is no
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_program_free(program: *mut hcq_program) -> hcq_status {
    free(program)
}

/// The number of kernels of a program.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_program_kernel_count(
    program: *const hcq_program,
    count: *mut usize,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(count, "count", get(program)?.kernels().count()) })
}

/// The kernel of that number, from 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_program_kernel_at(
    program: *const hcq_program,
    index: usize,
    kernel: *mut *mut hcq_kernel,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe {
        hand_out(kernel, || {
            let program = get(program)?;
            let count = program.kernels().count();
            let found = program.kernels().nth(index);
            found.ok_or_else(|| {
                Failure::value(format!("the program has {count} kernels, none of number {index}"))
            })
        })
    })
}

/// The kernel of that name, mangled where the compiler mangled it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_program_kernel(
    program: *const hcq_program,
    name: *const c_char,
    kernel: *mut *mut hcq_kernel,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { hand_out(kernel, || Ok(get(program)?.kernel(text(name, "name")?)?)) })
}

/// Bytes per thread of the largest stack that a kernel of a cubin needs, for `hcq_device_reserve_stacks`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_largest_stack(cubin: *const c_void, len: usize, stack: *mut u32) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put(stack, "stack", Program::largest_stack(bytes(cubin, len, "cubin")?)?) })
}

/// Frees a kernel's handle. `NULL` is no error.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_kernel_free(kernel: *mut hcq_kernel) -> hcq_status {
    free(kernel)
}

/// Copies a kernel's name to `name`, cut to `size` bytes with its NUL; `len`, which may be `NULL`, gets its whole
/// length without the NUL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_kernel_name(
    kernel: *const hcq_kernel,
    name: *mut c_char,
    size: usize,
    len: *mut usize,
) -> hcq_status {
    // SAFETY: the caller's promise.
    call(|| unsafe { put_text(get(kernel)?.name(), name, size, len) })
}

/// Facts of a kernel. `size` is `sizeof(hcq_kernel_info)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_kernel_get_info(
    kernel: *const hcq_kernel,
    info: *mut hcq_kernel_info,
    size: usize,
) -> hcq_status {
    call(|| {
        let kernel = get(kernel)?;
        let value = hcq_kernel_info {
            address: kernel.address().raw(),
            code_bytes: kernel.code_bytes(),
            registers: kernel.registers(),
            static_shared: kernel.static_shared(),
            local_bytes: kernel.local_bytes(),
            param_bytes: kernel.param_bytes(),
            max_threads: kernel.max_threads(),
            waits_for_grids: kernel.waits_for_grids(),
        };
        // SAFETY: the caller's promise.
        unsafe { put_sized(info, size, "info", &value) }
    })
}

/// The occupancy of an SM by blocks of `threads` threads with `dynamic_shared` bytes of shared memory beyond the
/// static ones. A grid whose blocks wait for each other has at most `blocks_per_sm` times the SMs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_kernel_occupancy(
    kernel: *const hcq_kernel,
    threads: u32,
    dynamic_shared: u32,
    occupancy: *mut hcq_occupancy,
) -> hcq_status {
    call(|| {
        let kernel = get(kernel)?;
        let found = kernel.occupancy(threads, dynamic_shared);
        let value = hcq_occupancy {
            blocks_per_sm: kernel.blocks_per_sm(threads, dynamic_shared),
            warps_per_sm: found.map_or(0, |found| found.warps_per_sm),
            max_warps_per_sm: found.map_or(0, |found| found.max_warps_per_sm),
            limit: match found.map(|found| found.limit) {
                Some(OccupancyLimit::Warps) => hcq_occupancy_limit::HCQ_LIMIT_WARPS,
                Some(OccupancyLimit::Blocks) => hcq_occupancy_limit::HCQ_LIMIT_BLOCKS,
                Some(OccupancyLimit::Registers) => hcq_occupancy_limit::HCQ_LIMIT_REGISTERS,
                Some(OccupancyLimit::SharedMemory) => hcq_occupancy_limit::HCQ_LIMIT_SHARED_MEMORY,
                _ => hcq_occupancy_limit::HCQ_LIMIT_UNNAMED,
            },
        };
        // SAFETY: the caller's promise.
        unsafe { put(occupancy, "occupancy", value) }
    })
}
