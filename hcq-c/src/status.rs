//! Codes of errors: one for each cause that the library tells apart.

use std::ffi::CStr;

use hcq::{CubinError, DriverError, Error, LaunchError, MemoryError, OpenError, ProgramError, QueueError};

/// The outcome of a call. Codes keep their numbers; later versions add some.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(C)]
pub enum hcq_status {
    /// The call did what it is for.
    HCQ_OK = 0,
    /// A handle is `NULL`.
    HCQ_ERROR_HANDLE_NULL = 1,
    /// A handle was freed before.
    HCQ_ERROR_HANDLE_FREED,
    /// A handle stands for an object of another kind.
    HCQ_ERROR_HANDLE_KIND,
    /// A pointer is no handle of this library.
    HCQ_ERROR_HANDLE_UNKNOWN,
    /// 2^28 handles of a kind are in use.
    HCQ_ERROR_HANDLES_USED_UP,
    /// Another thread is in a call with this queue, graph builder or argument list, which one thread uses at a
    /// time.
    HCQ_ERROR_BUSY,
    /// A pointer to data is `NULL`, or not aligned for its type.
    HCQ_ERROR_POINTER,
    /// A text is not UTF-8, or in C++ has a NUL inside.
    HCQ_ERROR_TEXT,
    /// A number is none that the call takes, such as a negative deadline.
    HCQ_ERROR_VALUE,
    /// A structure has a size that this library does not know.
    HCQ_ERROR_SIZE,
    /// A file could not be read.
    HCQ_ERROR_FILE,
    /// The GPU has not taken the timestamp.
    HCQ_ERROR_NOT_TAKEN,
    /// The last error of this thread is no fault of the GPU.
    HCQ_ERROR_NO_FAULT,
    /// A mistake of this library; the object that the call was about is not used any more.
    HCQ_ERROR_PANIC,
    /// An error that this interface has no code for; the text says which.
    HCQ_ERROR_OTHER,
    /// No device has that name: "auto", "nvgpu", "rm" or "sim".
    HCQ_ERROR_OPEN_UNKNOWN_SELECTOR = 100,
    /// A variable of the environment has a value that means nothing.
    HCQ_ERROR_OPEN_UNKNOWN_SETTING,
    /// The file that `HCQ_PROFILE` names cannot be used.
    HCQ_ERROR_OPEN_PROFILE,
    /// The device is not part of this build.
    HCQ_ERROR_OPEN_NOT_BUILT,
    /// No GPU can be used.
    HCQ_ERROR_OPEN_NO_DEVICE,
    /// A device's node cannot be opened.
    HCQ_ERROR_OPEN_NODE,
    /// The GPU did not start.
    HCQ_ERROR_OPEN_NOT_STARTED,
    /// The desktop driver cannot be used.
    HCQ_ERROR_OPEN_DRIVER,
    /// The driver or the GPU has a property that is not supported.
    HCQ_ERROR_OPEN_UNSUPPORTED,
    /// The node is that of an Orin's display.
    HCQ_ERROR_OPEN_DISPLAY_DRIVER,
    /// The GPU's SM version is not supported.
    HCQ_ERROR_OPEN_UNSUPPORTED_SM,
    /// The driver refused a request.
    HCQ_ERROR_DRIVER_IOCTL = 200,
    /// The driver gave an answer that is not expected.
    HCQ_ERROR_DRIVER_ANSWER,
    /// Memory could not be mapped into the process.
    HCQ_ERROR_DRIVER_MMAP,
    /// The desktop driver refused a request.
    HCQ_ERROR_DRIVER_STATUS,
    /// Signals interrupted a request for as long as the device's patience.
    HCQ_ERROR_DRIVER_INTERRUPTED,
    /// Memory is used up.
    HCQ_ERROR_MEMORY_OUT_OF_MEMORY = 300,
    /// The process may not map so much (`RLIMIT_AS`).
    HCQ_ERROR_MEMORY_PROCESS_LIMIT,
    /// No free range of GPU addresses is long enough.
    HCQ_ERROR_MEMORY_OUT_OF_ADDRESSES,
    /// The range overlaps a window that the hardware claims.
    HCQ_ERROR_MEMORY_IN_WINDOW,
    /// The range is not free, not aligned or outside the address space.
    HCQ_ERROR_MEMORY_ADDRESS_TAKEN,
    /// The range does not lie in the buffer.
    HCQ_ERROR_MEMORY_OUT_OF_BOUNDS,
    /// The CPU cannot reach the memory.
    HCQ_ERROR_MEMORY_NOT_MAPPED,
    /// A buffer of no bytes was asked for.
    HCQ_ERROR_MEMORY_EMPTY_BUFFER,
    /// A copy would read what it writes.
    HCQ_ERROR_MEMORY_OVERLAP,
    /// The program has no such kernel; the text names those it has.
    HCQ_ERROR_PROGRAM_NO_KERNEL = 400,
    /// The image is no ELF file.
    HCQ_ERROR_CUBIN_ELF,
    /// The image is another kind of file: PTX, a fat binary.
    HCQ_ERROR_CUBIN_OTHER,
    /// The ELF file is for another machine.
    HCQ_ERROR_CUBIN_NOT_CUDA,
    /// The code is for an SM that is not known.
    HCQ_ERROR_CUBIN_UNKNOWN_SM,
    /// The code is for another SM.
    HCQ_ERROR_CUBIN_WRONG_SM,
    /// None of the images runs on the device.
    HCQ_ERROR_CUBIN_NONE_FITS,
    /// The cubin ends early.
    HCQ_ERROR_CUBIN_TRUNCATED,
    /// The cubin has an attribute that cannot be read.
    HCQ_ERROR_CUBIN_ATTRIBUTE,
    /// A section has an alignment that is none.
    HCQ_ERROR_CUBIN_ALIGNMENT,
    /// A section is too large.
    HCQ_ERROR_CUBIN_TOO_LARGE,
    /// A symbol is missing.
    HCQ_ERROR_CUBIN_SYMBOL,
    /// A relocation is of a kind that is not known.
    HCQ_ERROR_CUBIN_RELOCATION,
    /// The image is compressed, and cannot be unpacked.
    HCQ_ERROR_CUBIN_COMPRESSED,
    /// The table of source lines cannot be read.
    HCQ_ERROR_CUBIN_LINES,
    /// A kernel lacks something that a launch needs.
    HCQ_ERROR_CUBIN_MISSING,
    /// The launch exceeds a limit of the GPU or the kernel.
    HCQ_ERROR_LAUNCH_LIMIT = 500,
    /// The kernel was compiled for blocks of another shape.
    HCQ_ERROR_LAUNCH_BLOCK_SHAPE,
    /// The kernel has no `griddepcontrol.wait`.
    HCQ_ERROR_LAUNCH_NO_GRID_WAIT,
    /// The arguments have another size than the parameters of a kernel whose cubin does not list them.
    HCQ_ERROR_LAUNCH_ARGUMENTS,
    /// The launch has no such argument to patch.
    HCQ_ERROR_LAUNCH_NO_ARGUMENT,
    /// An argument has another width than its parameter, or than the one that it replaces.
    HCQ_ERROR_LAUNCH_ARGUMENT_WIDTH,
    /// An argument's alignment is no power of two up to 4096.
    HCQ_ERROR_LAUNCH_ALIGNMENT,
    /// The launch cannot be encoded.
    HCQ_ERROR_LAUNCH_QMD,
    /// The node of the graph is no launch.
    HCQ_ERROR_LAUNCH_NOT_A_LAUNCH,
    /// The node belongs to another graph.
    HCQ_ERROR_LAUNCH_FOREIGN_NODE,
    /// The kernel has more parameters than there are arguments, or fewer.
    HCQ_ERROR_LAUNCH_ARGUMENT_COUNT,
    /// An argument lies at another place than its parameter, as it has another alignment.
    HCQ_ERROR_LAUNCH_ARGUMENT_PLACE,
    /// The driver lets the device have no more queues.
    HCQ_ERROR_QUEUE_TOO_MANY = 600,
    /// A queue of this kind cannot do that.
    HCQ_ERROR_QUEUE_WRONG_QUEUE,
    /// The work is larger than the queue's ring.
    HCQ_ERROR_QUEUE_RING_TOO_SMALL,
    /// The GPU did not finish in time.
    HCQ_ERROR_QUEUE_TIMEOUT,
    /// The queue was freed, and its work did not end in time.
    HCQ_ERROR_QUEUE_STOPPED,
    /// The work waits for work of a queue that was freed, which did not end.
    HCQ_ERROR_QUEUE_STARVED,
    /// The queue was freed before the work was submitted.
    HCQ_ERROR_QUEUE_DISCARDED,
    /// Two objects belong to different devices.
    HCQ_ERROR_FOREIGN_DEVICE = 700,
    /// The device belongs to the process that this one was forked from.
    HCQ_ERROR_FORKED,
    /// The GPU stopped; `hcq_last_fault` has the report.
    HCQ_ERROR_FAULT,
    /// The device was lost to an earlier fault; `hcq_last_fault` has its report.
    HCQ_ERROR_LOST,
}

macro_rules! names {
    ($($status:ident)*) => {
        /// Each code and its name.
        const NAMES: &[(hcq_status, &CStr)] = &[$((
            hcq_status::$status,
            match CStr::from_bytes_with_nul(concat!(stringify!($status), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => unreachable!(),
            },
        )),*];
    };
}
names! {
    HCQ_OK HCQ_ERROR_HANDLE_NULL HCQ_ERROR_HANDLE_FREED HCQ_ERROR_HANDLE_KIND HCQ_ERROR_HANDLE_UNKNOWN
    HCQ_ERROR_HANDLES_USED_UP HCQ_ERROR_BUSY HCQ_ERROR_POINTER HCQ_ERROR_TEXT HCQ_ERROR_VALUE
    HCQ_ERROR_SIZE HCQ_ERROR_FILE HCQ_ERROR_NOT_TAKEN HCQ_ERROR_NO_FAULT HCQ_ERROR_PANIC HCQ_ERROR_OTHER
    HCQ_ERROR_OPEN_UNKNOWN_SELECTOR HCQ_ERROR_OPEN_UNKNOWN_SETTING HCQ_ERROR_OPEN_PROFILE
    HCQ_ERROR_OPEN_NOT_BUILT HCQ_ERROR_OPEN_NO_DEVICE HCQ_ERROR_OPEN_NODE HCQ_ERROR_OPEN_NOT_STARTED
    HCQ_ERROR_OPEN_DRIVER HCQ_ERROR_OPEN_UNSUPPORTED HCQ_ERROR_OPEN_DISPLAY_DRIVER
    HCQ_ERROR_OPEN_UNSUPPORTED_SM HCQ_ERROR_DRIVER_IOCTL HCQ_ERROR_DRIVER_ANSWER HCQ_ERROR_DRIVER_MMAP
    HCQ_ERROR_DRIVER_STATUS HCQ_ERROR_DRIVER_INTERRUPTED HCQ_ERROR_MEMORY_OUT_OF_MEMORY
    HCQ_ERROR_MEMORY_PROCESS_LIMIT HCQ_ERROR_MEMORY_OUT_OF_ADDRESSES HCQ_ERROR_MEMORY_IN_WINDOW
    HCQ_ERROR_MEMORY_ADDRESS_TAKEN HCQ_ERROR_MEMORY_OUT_OF_BOUNDS HCQ_ERROR_MEMORY_NOT_MAPPED
    HCQ_ERROR_MEMORY_EMPTY_BUFFER HCQ_ERROR_MEMORY_OVERLAP HCQ_ERROR_PROGRAM_NO_KERNEL
    HCQ_ERROR_CUBIN_ELF HCQ_ERROR_CUBIN_OTHER HCQ_ERROR_CUBIN_NOT_CUDA HCQ_ERROR_CUBIN_UNKNOWN_SM
    HCQ_ERROR_CUBIN_WRONG_SM HCQ_ERROR_CUBIN_NONE_FITS HCQ_ERROR_CUBIN_TRUNCATED
    HCQ_ERROR_CUBIN_ATTRIBUTE HCQ_ERROR_CUBIN_ALIGNMENT HCQ_ERROR_CUBIN_TOO_LARGE HCQ_ERROR_CUBIN_SYMBOL
    HCQ_ERROR_CUBIN_RELOCATION HCQ_ERROR_CUBIN_COMPRESSED HCQ_ERROR_CUBIN_LINES HCQ_ERROR_CUBIN_MISSING
    HCQ_ERROR_LAUNCH_LIMIT HCQ_ERROR_LAUNCH_BLOCK_SHAPE HCQ_ERROR_LAUNCH_NO_GRID_WAIT
    HCQ_ERROR_LAUNCH_ARGUMENTS HCQ_ERROR_LAUNCH_NO_ARGUMENT HCQ_ERROR_LAUNCH_ARGUMENT_WIDTH
    HCQ_ERROR_LAUNCH_ALIGNMENT HCQ_ERROR_LAUNCH_QMD HCQ_ERROR_LAUNCH_NOT_A_LAUNCH
    HCQ_ERROR_LAUNCH_FOREIGN_NODE HCQ_ERROR_LAUNCH_ARGUMENT_COUNT HCQ_ERROR_LAUNCH_ARGUMENT_PLACE
    HCQ_ERROR_QUEUE_TOO_MANY HCQ_ERROR_QUEUE_WRONG_QUEUE
    HCQ_ERROR_QUEUE_RING_TOO_SMALL HCQ_ERROR_QUEUE_TIMEOUT HCQ_ERROR_QUEUE_STOPPED
    HCQ_ERROR_QUEUE_STARVED HCQ_ERROR_QUEUE_DISCARDED HCQ_ERROR_FOREIGN_DEVICE HCQ_ERROR_FORKED
    HCQ_ERROR_FAULT HCQ_ERROR_LOST
}

/// The name of a code, as the header spells it; `None` for a number that is no code.
pub(crate) fn name(status: i32) -> Option<&'static CStr> {
    NAMES.iter().find(|(known, _)| *known as i32 == status).map(|(_, name)| *name)
}

/// The code of an error. The library's errors may grow: a test compares this list with its API.
pub(crate) fn of(error: &Error) -> hcq_status {
    match error {
        Error::Open(error) => of_open(error),
        Error::Driver(error) => of_driver(error),
        Error::Memory(error) => of_memory(error),
        Error::Program(ProgramError::Cubin(error)) => of_cubin(error),
        Error::Program(ProgramError::NoKernel { .. }) => hcq_status::HCQ_ERROR_PROGRAM_NO_KERNEL,
        Error::Launch(error) => of_launch(error),
        Error::Queue(error) => of_queue(error),
        Error::ForeignDevice { .. } => hcq_status::HCQ_ERROR_FOREIGN_DEVICE,
        Error::Forked { .. } => hcq_status::HCQ_ERROR_FORKED,
        Error::Fault(_) => hcq_status::HCQ_ERROR_FAULT,
        Error::Lost(_) => hcq_status::HCQ_ERROR_LOST,
        _ => hcq_status::HCQ_ERROR_OTHER,
    }
}

fn of_open(error: &OpenError) -> hcq_status {
    match error {
        OpenError::UnknownSelector { .. } => hcq_status::HCQ_ERROR_OPEN_UNKNOWN_SELECTOR,
        OpenError::UnknownSetting { .. } => hcq_status::HCQ_ERROR_OPEN_UNKNOWN_SETTING,
        OpenError::Profile { .. } => hcq_status::HCQ_ERROR_OPEN_PROFILE,
        OpenError::NotBuilt { .. } => hcq_status::HCQ_ERROR_OPEN_NOT_BUILT,
        OpenError::NoDevice { .. } => hcq_status::HCQ_ERROR_OPEN_NO_DEVICE,
        OpenError::Node { .. } => hcq_status::HCQ_ERROR_OPEN_NODE,
        OpenError::NotStarted { .. } => hcq_status::HCQ_ERROR_OPEN_NOT_STARTED,
        OpenError::Driver { .. } => hcq_status::HCQ_ERROR_OPEN_DRIVER,
        OpenError::Unsupported { .. } => hcq_status::HCQ_ERROR_OPEN_UNSUPPORTED,
        OpenError::DisplayDriver => hcq_status::HCQ_ERROR_OPEN_DISPLAY_DRIVER,
        OpenError::UnsupportedSm { .. } => hcq_status::HCQ_ERROR_OPEN_UNSUPPORTED_SM,
        _ => hcq_status::HCQ_ERROR_OTHER,
    }
}

fn of_driver(error: &DriverError) -> hcq_status {
    match error {
        DriverError::Ioctl { .. } => hcq_status::HCQ_ERROR_DRIVER_IOCTL,
        DriverError::Answer { .. } => hcq_status::HCQ_ERROR_DRIVER_ANSWER,
        DriverError::Mmap { .. } => hcq_status::HCQ_ERROR_DRIVER_MMAP,
        DriverError::Status { .. } => hcq_status::HCQ_ERROR_DRIVER_STATUS,
        DriverError::Interrupted { .. } => hcq_status::HCQ_ERROR_DRIVER_INTERRUPTED,
        _ => hcq_status::HCQ_ERROR_OTHER,
    }
}

fn of_memory(error: &MemoryError) -> hcq_status {
    match error {
        MemoryError::OutOfMemory { .. } => hcq_status::HCQ_ERROR_MEMORY_OUT_OF_MEMORY,
        MemoryError::ProcessLimit { .. } => hcq_status::HCQ_ERROR_MEMORY_PROCESS_LIMIT,
        MemoryError::OutOfAddresses { .. } => hcq_status::HCQ_ERROR_MEMORY_OUT_OF_ADDRESSES,
        MemoryError::InWindow { .. } => hcq_status::HCQ_ERROR_MEMORY_IN_WINDOW,
        MemoryError::AddressTaken { .. } => hcq_status::HCQ_ERROR_MEMORY_ADDRESS_TAKEN,
        MemoryError::OutOfBounds { .. } => hcq_status::HCQ_ERROR_MEMORY_OUT_OF_BOUNDS,
        MemoryError::NotMapped { .. } => hcq_status::HCQ_ERROR_MEMORY_NOT_MAPPED,
        MemoryError::EmptyBuffer => hcq_status::HCQ_ERROR_MEMORY_EMPTY_BUFFER,
        MemoryError::Overlap { .. } => hcq_status::HCQ_ERROR_MEMORY_OVERLAP,
        _ => hcq_status::HCQ_ERROR_OTHER,
    }
}

fn of_cubin(error: &CubinError) -> hcq_status {
    match error {
        CubinError::Elf { .. } => hcq_status::HCQ_ERROR_CUBIN_ELF,
        CubinError::Other { .. } => hcq_status::HCQ_ERROR_CUBIN_OTHER,
        CubinError::NotCuda { .. } => hcq_status::HCQ_ERROR_CUBIN_NOT_CUDA,
        CubinError::UnknownSm { .. } => hcq_status::HCQ_ERROR_CUBIN_UNKNOWN_SM,
        CubinError::WrongSm { .. } => hcq_status::HCQ_ERROR_CUBIN_WRONG_SM,
        CubinError::NoneFits { .. } => hcq_status::HCQ_ERROR_CUBIN_NONE_FITS,
        CubinError::Truncated { .. } => hcq_status::HCQ_ERROR_CUBIN_TRUNCATED,
        CubinError::Attribute { .. } => hcq_status::HCQ_ERROR_CUBIN_ATTRIBUTE,
        CubinError::Alignment { .. } => hcq_status::HCQ_ERROR_CUBIN_ALIGNMENT,
        CubinError::TooLarge { .. } => hcq_status::HCQ_ERROR_CUBIN_TOO_LARGE,
        CubinError::Symbol { .. } => hcq_status::HCQ_ERROR_CUBIN_SYMBOL,
        CubinError::Relocation { .. } => hcq_status::HCQ_ERROR_CUBIN_RELOCATION,
        CubinError::Compressed { .. } => hcq_status::HCQ_ERROR_CUBIN_COMPRESSED,
        CubinError::Lines { .. } => hcq_status::HCQ_ERROR_CUBIN_LINES,
        CubinError::Missing { .. } => hcq_status::HCQ_ERROR_CUBIN_MISSING,
        _ => hcq_status::HCQ_ERROR_OTHER,
    }
}

fn of_launch(error: &LaunchError) -> hcq_status {
    match error {
        LaunchError::Limit { .. } => hcq_status::HCQ_ERROR_LAUNCH_LIMIT,
        LaunchError::BlockShape { .. } => hcq_status::HCQ_ERROR_LAUNCH_BLOCK_SHAPE,
        LaunchError::NoGridWait { .. } => hcq_status::HCQ_ERROR_LAUNCH_NO_GRID_WAIT,
        LaunchError::Arguments { .. } => hcq_status::HCQ_ERROR_LAUNCH_ARGUMENTS,
        LaunchError::ArgumentCount { .. } => hcq_status::HCQ_ERROR_LAUNCH_ARGUMENT_COUNT,
        LaunchError::ArgumentPlace { .. } => hcq_status::HCQ_ERROR_LAUNCH_ARGUMENT_PLACE,
        LaunchError::NoArgument { .. } => hcq_status::HCQ_ERROR_LAUNCH_NO_ARGUMENT,
        LaunchError::ArgumentWidth { .. } => hcq_status::HCQ_ERROR_LAUNCH_ARGUMENT_WIDTH,
        LaunchError::Alignment { .. } => hcq_status::HCQ_ERROR_LAUNCH_ALIGNMENT,
        LaunchError::Qmd { .. } => hcq_status::HCQ_ERROR_LAUNCH_QMD,
        LaunchError::NotALaunch { .. } => hcq_status::HCQ_ERROR_LAUNCH_NOT_A_LAUNCH,
        LaunchError::ForeignNode { .. } => hcq_status::HCQ_ERROR_LAUNCH_FOREIGN_NODE,
        _ => hcq_status::HCQ_ERROR_OTHER,
    }
}

fn of_queue(error: &QueueError) -> hcq_status {
    match error {
        QueueError::TooMany { .. } => hcq_status::HCQ_ERROR_QUEUE_TOO_MANY,
        QueueError::WrongQueue { .. } => hcq_status::HCQ_ERROR_QUEUE_WRONG_QUEUE,
        QueueError::RingTooSmall { .. } => hcq_status::HCQ_ERROR_QUEUE_RING_TOO_SMALL,
        QueueError::Timeout { .. } => hcq_status::HCQ_ERROR_QUEUE_TIMEOUT,
        QueueError::Stopped => hcq_status::HCQ_ERROR_QUEUE_STOPPED,
        QueueError::Starved => hcq_status::HCQ_ERROR_QUEUE_STARVED,
        QueueError::Discarded => hcq_status::HCQ_ERROR_QUEUE_DISCARDED,
        _ => hcq_status::HCQ_ERROR_OTHER,
    }
}
