//! A dump as data. Each type is a table of the file, or a row of one; addresses are GPU virtual addresses.

use crate::exception::Exception;

/// A GPU core dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CoreDump {
    /// The program that wrote it; drivers before r565 do not say.
    pub generator: Option<Generator>,
    /// The devices that the program saw.
    pub devices: Vec<Device>,
    /// Global memory whose contents the file has. They are not read, and nothing of it is written.
    pub memory: Vec<MemoryRange>,
}

/// The program that wrote a dump.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Generator {
    /// Its name.
    pub name: String,
    /// Version of the GPU driver, major and minor; zeros where it is not set, as on Tegra.
    pub driver: [u32; 2],
    /// Version of CUDA that the driver offers, major and minor; zeros where it is not set.
    pub cuda: [u32; 2],
    /// Time of the dump in seconds since 1970.
    pub time: u32,
}

/// A range of GPU memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryRange {
    /// Its first address.
    pub address: u64,
    /// Its length in bytes.
    pub len: u64,
    /// Whether it is managed memory.
    pub managed: bool,
}

/// A GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// Name for people.
    pub name: String,
    /// Name of the chip.
    pub chip: String,
    /// Instruction set, as `sm_87`.
    pub sm_type: String,
    /// CUDA's number of the device.
    pub id: u32,
    /// PCI bus and device number.
    pub pci: [u32; 2],
    /// Number of SMs.
    pub sm_count: u32,
    /// Warps that an SM holds.
    pub warps_per_sm: u32,
    /// Lanes of a warp.
    pub lanes_per_warp: u32,
    /// Most registers of a lane.
    pub registers_per_lane: u32,
    /// Predicates of a lane.
    pub predicates_per_lane: u32,
    /// Compute capability, major and minor.
    pub capability: [u32; 2],
    /// Length of an instruction in bytes.
    pub instruction_bytes: u32,
    /// Uniform registers of a warp.
    pub uniform_registers: u32,
    /// Uniform predicates of a warp.
    pub uniform_predicates: u32,
    /// Its contexts.
    pub contexts: Vec<Context>,
    /// The grids that ran.
    pub grids: Vec<Grid>,
    /// Its SMs.
    pub sms: Vec<Sm>,
}

/// A context: an address space and what is loaded there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Its handle.
    pub id: u64,
    /// Start of the shared-memory window.
    pub shared_window: u64,
    /// Start of the local-memory window.
    pub local_window: u64,
    /// Start of the global-memory window.
    pub global_window: u64,
    /// Thread of the host that owns it.
    pub thread: u32,
    /// The modules that are loaded.
    pub modules: Vec<Module>,
}

/// A loaded module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Module {
    /// Its handle.
    pub handle: u64,
    /// The cubin with the addresses of its sections and symbols, and with its code as loaded.
    pub relocated: Option<Vec<u8>>,
    /// The cubin as it was before.
    pub original: Option<Vec<u8>>,
}

/// A grid: a kernel that was launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    /// Its number.
    pub id: u64,
    /// Handle of its context.
    pub context: u64,
    /// Handle of its kernel.
    pub function: u64,
    /// Address of its kernel's first instruction.
    pub entry: u64,
    /// Handle of the module of its kernel.
    pub module: u64,
    /// Number of the grid that launched it; 0 for one that the host launched.
    pub parent: u64,
    /// Offset of the parameters in constant bank 0.
    pub parameter_offset: u64,
    /// Registers of a thread.
    pub registers: u32,
    /// Size in blocks.
    pub grid: [u32; 3],
    /// Size of a block in threads.
    pub block: [u32; 3],
    /// The parameters, where the file has them.
    pub parameters: Vec<u8>,
}

/// An SM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sm {
    /// Its number.
    pub id: u32,
    /// An exception of any of its warps; drivers before r555 give those of lanes alone.
    pub exception: Exception,
    /// The pc of that exception, where it is known.
    pub error_pc: Option<u64>,
    /// The blocks on it.
    pub blocks: Vec<Block>,
}

/// A block (CTA).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Number of its grid.
    pub grid: u64,
    /// Its index in the grid.
    pub index: [u32; 3],
    /// Its shared memory, where the file has it.
    pub shared: Vec<u8>,
    /// Its warps.
    pub warps: Vec<Warp>,
}

/// A warp.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Warp {
    /// Its number on the SM.
    pub id: u32,
    /// Lanes that have a thread, as a mask.
    pub valid: u32,
    /// Lanes that were executing, as a mask.
    pub active: u32,
    /// Whether it ran into a breakpoint or a trap.
    pub is_broken: bool,
    /// The pc of its error, if it had one and that is known.
    pub error_pc: Option<u64>,
    /// Its uniform registers, from UR0 on.
    pub uniform_registers: Vec<u32>,
    /// Its uniform predicates, from UP0 on.
    pub uniform_predicates: Vec<bool>,
    /// Its lanes that have a thread.
    pub lanes: Vec<Lane>,
}

/// A lane with a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lane {
    /// Its number in the warp.
    pub lane: u32,
    /// Index of its thread in the block.
    pub thread: [u32; 3],
    /// Its exception.
    pub exception: Exception,
    /// Its pc: an address of the GPU, or with older drivers one of the host's copy of the code. The addresses
    /// of relocated modules are of the same kind.
    pub pc: u64,
    /// Offset of the pc in the function.
    pub offset: u64,
    /// Its registers, from R0 on; those that the kernel does not use are left out.
    pub registers: Vec<u32>,
    /// Its predicates, from P0 on.
    pub predicates: Vec<bool>,
    /// Its local memory, where the file has it.
    pub local: Option<LocalMemory>,
    /// Depth of calls, where the file has no more than that.
    pub depth: u32,
    /// Return addresses, the innermost first.
    pub calls: Vec<Call>,
}

/// Local memory of a lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LocalMemory {
    /// Its first address, from the start of the local-memory window.
    pub address: u64,
    /// Its contents.
    pub bytes: Vec<u8>,
}

/// A return address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Distance from the innermost frame, from 0.
    pub level: u32,
    /// The address, as [`Lane::pc`].
    pub return_pc: u64,
    /// Its offset in the function that is returned to.
    pub offset: u64,
}
