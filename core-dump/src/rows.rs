//! The rows of the tables, and the types of sections: `cudacoredump.h` of cuda-gdb.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::error::Error;

/// Section types: `SHT_LOUSER` and a number.
pub(crate) mod sht {
    const USER: u32 = 0x8000_0000;
    pub const MANAGED_MEMORY: u32 = USER + 1;
    pub const GLOBAL_MEMORY: u32 = USER + 2;
    pub const LOCAL_MEMORY: u32 = USER + 3;
    pub const SHARED_MEMORY: u32 = USER + 4;
    pub const REGISTERS: u32 = USER + 5;
    pub const ELF_IMAGE: u32 = USER + 6;
    pub const RELOCATED_IMAGE: u32 = USER + 7;
    pub const BACKTRACE: u32 = USER + 8;
    pub const DEVICES: u32 = USER + 9;
    pub const CONTEXTS: u32 = USER + 10;
    pub const SMS: u32 = USER + 11;
    pub const GRIDS: u32 = USER + 12;
    pub const BLOCKS: u32 = USER + 13;
    pub const WARPS: u32 = USER + 14;
    pub const LANES: u32 = USER + 15;
    pub const MODULES: u32 = USER + 16;
    pub const PREDICATES: u32 = USER + 17;
    pub const PARAMETERS: u32 = USER + 18;
    pub const UNIFORM_REGISTERS: u32 = USER + 19;
    pub const UNIFORM_PREDICATES: u32 = USER + 20;
    pub const METADATA: u32 = USER + 22;
}

/// A row of a table.
pub(crate) trait Row: FromBytes + IntoBytes + Immutable + KnownLayout {
    /// Name of the table.
    const TABLE: &'static str;
    /// Bytes of a row that the first drivers wrote.
    const LEAST: usize;
}

/// Reads the rows of a table: what a shorter row does not have is zero, what a longer one has more is left.
pub(crate) fn rows<T: Row>(section: usize, data: &[u8], size: u64) -> Result<Vec<T>, Error> {
    let step = usize::try_from(size).unwrap_or(usize::MAX);
    if step < T::LEAST {
        return Err(Error::Row { section, name: T::TABLE, size, least: T::LEAST });
    }
    let read = |bytes: &[u8]| {
        let mut row = T::new_zeroed();
        let shared = step.min(size_of::<T>());
        row.as_mut_bytes()[..shared].copy_from_slice(&bytes[..shared]);
        row
    };
    Ok(data.chunks_exact(step).map(read).collect())
}

macro_rules! rows {
    ($($(#[$m:meta])* $name:ident $table:literal $least:literal { $($field:ident: $ty:ty,)* })*) => { $(
        $(#[$m])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        pub(crate) struct $name { $(pub $field: $ty,)* }

        impl Row for $name {
            const TABLE: &'static str = $table;
            const LEAST: usize = $least;
        }
    )* };
}

rows! {
    /// `CudbgDeviceTableEntry`, to r400. The names are places in `.strtab`.
    DeviceRow "devices" 72 {
        name: U64, chip: U64, sm_type: U64, id: U32, pci: [U32; 2], sm_count: U32, warps_per_sm: U32,
        lanes_per_warp: U32, registers_per_lane: U32, predicates_per_lane: U32, capability: [U32; 2],
        instruction_bytes: U32, status: U32, uniform_registers: U32, uniform_predicates: U32,
    }
    /// `CudbgContextTableEntry`.
    ContextRow "contexts" 40 {
        id: U64, shared_window: U64, local_window: U64, global_window: U64, device: U32, thread: U32,
    }
    /// `CudbgModuleTableEntry`.
    ModuleRow "modules" 8 { handle: U64, }
    /// `CudbgGridTableEntry`, to r346.
    GridRow "grids" 104 {
        id: U64, context: U64, function: U64, entry: U64, module: U64, parent: U64, parameter_offset: U64,
        kind: U32, origin: U32, status: U32, registers: U32, grid: [U32; 3], block: [U32; 3], blocking: U32,
        thread: U32,
    }
    /// `CudbgSmTableEntry`, to the pc of r555.
    SmRow "SMs" 8 { id: U32, padding: U32, exception: U32, has_pc: U32, pc: U64, }
    /// `CudbgCTATableEntry`, to r346.
    BlockRow "blocks" 24 { grid: U64, index: [U32; 3], padding: U32, }
    /// `CudbgWarpTableEntry`, to r346.
    WarpRow "warps" 32 {
        pc: U64, id: U32, valid: U32, active: U32, is_broken: U32, has_pc: U32, padding: U32,
    }
    /// `CudbgThreadTableEntry`, to r346.
    LaneRow "lanes" 48 {
        pc: U64, offset: U64, lane: U32, thread: [U32; 3], exception: U32, depth: U32, syscall_depth: U32,
        carry: U32,
    }
    /// `CudbgBacktraceTableEntry`.
    CallRow "return addresses" 24 { offset: U64, return_pc: U64, level: U32, padding: U32, }
    /// `CudbgMetaDataEntry`.
    MetadataRow "metadata" 32 { generator: U64, driver: [U32; 2], cuda: [U32; 2], flags: U32, time: U32, }
}

/// Numbers from the words of a row.
pub(crate) fn numbers<const N: usize>(words: [U32; N]) -> [u32; N] {
    words.map(U32::get)
}

/// Words of a row from numbers.
pub(crate) fn words<const N: usize>(numbers: [u32; N]) -> [U32; N] {
    numbers.map(U32::new)
}

/// `CUDBGGridStatus`: the grid is on the device.
pub(crate) const GRID_ACTIVE: u32 = 2;
/// `CUDBGKernelType`: a program's own kernel. The origin that is zero (`CUDBGKernelOrigin`) is the host.
pub(crate) const KERNEL_APPLICATION: u32 = 2;
