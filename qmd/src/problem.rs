//! Problems of a QMD: values that the scheduler rejects, and values that it accepts and never runs.

use crate::constant_buffer::{CONSTANT_BUFFER_ALIGN, CONSTANT_BUFFER_MAX, CONSTANT_BUFFERS};
use crate::error::Axis;
use crate::image::{Qmd, layout};
use crate::launch::{
    LOCAL_UNIT, LOCAL_WINDOW, MAX_BARRIERS, MAX_BLOCK, MAX_GRID, MAX_REGISTERS, MAX_THREADS, PROGRAM_ALIGN,
    SHARED_UNIT,
};
use crate::release::RELEASES;
use crate::sked::SkedCheck;
use crate::table::field::Field;
use crate::target::{Target, carve_out_kib};
use crate::version::{ALIGN, Version};

/// The hardware's reaction to a [`Problem`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The scheduler raises an exception and the channel dies.
    Refused(SkedCheck),
    /// The launch is accepted and no block is ever placed: no fault, no progress.
    Hangs,
    /// The launch runs and does something else than was meant.
    Undefined,
}

/// The three carve-out fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CarveOutField {
    /// `MIN_SM_CONFIG_SHARED_MEM_SIZE`.
    Min,
    /// `TARGET_SM_CONFIG_SHARED_MEM_SIZE`.
    Target,
    /// `MAX_SM_CONFIG_SHARED_MEM_SIZE`.
    Max,
}

impl std::fmt::Display for CarveOutField {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Min => "minimum",
            Self::Target => "target",
            Self::Max => "maximum",
        })
    }
}

/// A value in a QMD that does not launch the intended work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    /// The version fields do not name the layout.
    #[error("the version fields say {major}.{minor}")]
    Version {
        /// `QMD_MAJOR_VERSION`.
        major: u32,
        /// `QMD_VERSION` or `QMD_MINOR_VERSION`.
        minor: u32,
    },
    /// A grid dimension out of range.
    #[error("grid {axis} is {value}, not 1 to {limit}")]
    Grid {
        /// The dimension.
        axis: Axis,
        /// Blocks along it.
        value: u32,
        /// The most it can be.
        limit: u32,
    },
    /// The block to resume at lies outside the grid.
    #[error("the block to resume at is {value} along {axis}, where the grid has {blocks}")]
    Resume {
        /// The dimension.
        axis: Axis,
        /// Index of the block along it.
        value: u32,
        /// Blocks along it.
        blocks: u32,
    },
    /// A block dimension is zero.
    #[error("block {axis} is 0")]
    BlockZero {
        /// The dimension.
        axis: Axis,
    },
    /// A block dimension is too large.
    #[error("block {axis} is {value}; {limit} is the most")]
    BlockTooLong {
        /// The dimension.
        axis: Axis,
        /// Threads along it.
        value: u32,
        /// The most it can be.
        limit: u32,
    },
    /// Too many threads in a block.
    #[error("a block has {threads} threads; 1024 is the most")]
    Threads {
        /// Product of the dimensions.
        threads: u64,
    },
    /// A register count out of range.
    #[error("{count} registers per thread, not 1 to 255")]
    Registers {
        /// The count.
        count: u32,
    },
    /// A block needs more registers than an SM has.
    #[error(
        "a block of {warps} warps with {registers} registers per thread; an SM of {target} holds {limit} such warps"
    )]
    RegisterFile {
        /// Warps of a block.
        warps: u32,
        /// Registers per thread.
        registers: u32,
        /// Warps that fit.
        limit: u32,
        /// The part.
        target: Target,
    },
    /// Too many barriers.
    #[error("{count} barriers; 16 is the most")]
    Barriers {
        /// The count.
        count: u32,
    },
    /// A shared-memory size that is not a multiple of 128 or larger than the part has.
    #[error("{bytes} bytes of shared memory; {target} takes multiples of 128 up to {limit}")]
    SharedMemory {
        /// The size.
        bytes: u32,
        /// The most there is.
        limit: u32,
        /// The part.
        target: Target,
    },
    /// A carve-out code of 0.
    #[error("the {field} shared-memory carve-out is not set (code 0)")]
    CarveOutUnset {
        /// The field.
        field: CarveOutField,
    },
    /// A carve-out the part does not have.
    #[error("the {field} shared-memory carve-out is {kib} KiB (code {code}), which {target} does not have")]
    CarveOut {
        /// The field.
        field: CarveOutField,
        /// Its size.
        kib: u32,
        /// The stored code.
        code: u32,
        /// The part.
        target: Target,
    },
    /// The carve-outs are not in order.
    #[error(
        "the shared-memory carve-outs are out of order: minimum {min}, target {wanted}, maximum {max} KiB"
    )]
    CarveOutOrder {
        /// Minimum in KiB.
        min: u32,
        /// Target in KiB.
        wanted: u32,
        /// Maximum in KiB.
        max: u32,
    },
    /// The carve-out does not hold one block.
    #[error("a block has {bytes} bytes of shared memory, the target carve-out {kib} KiB")]
    CarveOutTooSmall {
        /// Shared memory of a block.
        bytes: u32,
        /// Target carve-out in KiB.
        kib: u32,
    },
    /// Local memory that is not a multiple of 16.
    #[error("{bytes} bytes of local memory at the bottom of the window are not a multiple of 16")]
    LocalLow {
        /// The size.
        bytes: u32,
    },
    /// Local memory that is not a multiple of 16.
    #[error("{bytes} bytes of local memory at the top of the window are not a multiple of 16")]
    LocalHigh {
        /// The size.
        bytes: u32,
    },
    /// More local memory than the window holds.
    #[error("{bytes} bytes of local memory per thread; the window holds 16 MiB")]
    LocalTotal {
        /// Both parts together.
        bytes: u64,
    },
    /// A program address that is 0 or not a multiple of 128.
    #[error("the program address is {address:#x}, not a multiple of 128 above 0")]
    Program {
        /// The address.
        address: u64,
    },
    /// A constant buffer of 0 or more than 65536 bytes.
    #[error("constant buffer {index} has {bytes} bytes, not 16 to 65536")]
    ConstantBufferSize {
        /// The bank.
        index: usize,
        /// Its size.
        bytes: u32,
    },
    /// A constant buffer that is not aligned.
    #[error("constant buffer {index} at {address:#x} is not a multiple of 64")]
    ConstantBufferAddress {
        /// The bank.
        index: usize,
        /// Its address.
        address: u64,
    },
    /// A release that is not aligned to its size.
    #[error("release {slot} writes {bytes} bytes at {address:#x}, which is not a multiple of that")]
    ReleaseAddress {
        /// The slot.
        slot: usize,
        /// Its address.
        address: u64,
        /// Size of the structure.
        bytes: u64,
    },
    /// A dependent QMD that cannot be one.
    #[error("dependent {slot} points to {address:#x}")]
    DependentAddress {
        /// The slot.
        slot: usize,
        /// The address.
        address: u64,
    },
    /// A dependent that is enabled and has no pointer field.
    #[error("dependent {slot} is enabled, but QMD v3.0 names no pointer for it")]
    DependentWithoutPointer {
        /// The slot.
        slot: usize,
    },
    /// A value that has no meaning.
    #[error("{} is {value}, which has no meaning", .field.name())]
    Undefined {
        /// The field.
        field: Field,
        /// Its value.
        value: u32,
    },
}

impl Problem {
    /// Returns the hardware's reaction.
    ///
    /// The pairs of checks and values are read from the names of the checks, except for those seen in kernel
    /// logs.
    #[must_use]
    pub const fn effect(&self) -> Effect {
        match self {
            Self::Resume { .. } => Effect::Refused(SkedCheck::CtaResume),
            Self::BlockZero { .. } => Effect::Refused(SkedCheck::CtaThreadDimensionZero),
            Self::BlockTooLong { .. } | Self::Threads { .. } => Effect::Refused(SkedCheck::TotalThreads),
            Self::Registers { .. } => Effect::Refused(SkedCheck::RegisterCount),
            Self::RegisterFile { .. } => Effect::Refused(SkedCheck::CtaRegisterConsumption),
            Self::SharedMemory { .. } => Effect::Refused(SkedCheck::SharedMemorySize),
            Self::CarveOutUnset { .. } | Self::CarveOutTooSmall { .. } => {
                Effect::Refused(SkedCheck::L1ConfigTooSmall)
            }
            Self::LocalLow { .. } => Effect::Refused(SkedCheck::LocalMemoryLowSize),
            Self::LocalHigh { .. } => Effect::Refused(SkedCheck::LocalMemoryHighSize),
            Self::LocalTotal { .. } => Effect::Refused(SkedCheck::LocalMemoryTotalSize),
            Self::Program { .. } => Effect::Refused(SkedCheck::ProgramOffset),
            Self::ConstantBufferSize { .. } => Effect::Refused(SkedCheck::ConstantBufferSize),
            Self::CarveOut { .. } | Self::CarveOutOrder { .. } => Effect::Hangs,
            Self::Version { .. }
            | Self::Grid { .. }
            | Self::Barriers { .. }
            | Self::ConstantBufferAddress { .. }
            | Self::ReleaseAddress { .. }
            | Self::DependentAddress { .. }
            | Self::DependentWithoutPointer { .. }
            | Self::Undefined { .. } => Effect::Undefined,
        }
    }

    /// The scheduler's check that catches it, if one does.
    #[must_use]
    pub const fn check(&self) -> Option<SkedCheck> {
        match self.effect() {
            Effect::Refused(check) => Some(check),
            Effect::Hangs | Effect::Undefined => None,
        }
    }
}

impl Qmd {
    /// Returns the problems of this QMD on the part its `SASS_VERSION` names, or, where that names none, on
    /// ga10b (v3.0) or GH100 (v4.0). Empty for everything [`Launch`](crate::Launch) builds.
    #[must_use]
    pub fn problems(&self) -> Vec<Problem> {
        let default = match self.version() {
            Version::V03 => Target::Sm87,
            Version::V04 => Target::Sm90,
        };
        self.problems_on(self.target().filter(|t| t.version() == self.version()).unwrap_or(default))
    }

    /// Returns the problems of this QMD on `target` that its bytes alone show. Not checked is what depends on
    /// the state of the channel: the memory windows, the local-memory buffer, the memory at its addresses.
    #[must_use]
    pub fn problems_on(&self, target: Target) -> Vec<Problem> {
        let mut found = Vec::new();
        let layout = layout(self.version());
        let (major, minor) = (self.get_own(layout.major), self.get_own(layout.minor));
        if (major, minor) != (self.version().major(), 0) {
            found.push(Problem::Version { major, minor });
        }
        if !self.is_queue() {
            self.check_shape(target, &mut found);
            self.check_memory(target, &mut found);
        }
        self.check_links(&mut found);
        self.check_values(&mut found);
        found
    }

    fn check_shape(&self, target: Target, found: &mut Vec<Problem>) {
        let layout = layout(self.version());
        let address = self.program_address();
        if address == 0 || address % PROGRAM_ALIGN != 0 {
            found.push(Problem::Program { address });
        }
        let resume = layout.resume.map(|f| self.get_own(f));
        for (i, axis) in Axis::ALL.into_iter().enumerate() {
            let (blocks, limit) = (self.grid()[i], MAX_GRID[i]);
            if blocks == 0 || blocks > limit {
                found.push(Problem::Grid { axis, value: blocks, limit });
            } else if resume[i] >= blocks {
                found.push(Problem::Resume { axis, value: resume[i], blocks });
            }
        }
        for (i, axis) in Axis::ALL.into_iter().enumerate() {
            let (value, limit) = (self.block()[i], MAX_BLOCK[i]);
            if value == 0 {
                found.push(Problem::BlockZero { axis });
            } else if value > limit {
                found.push(Problem::BlockTooLong { axis, value, limit });
            }
        }
        let (threads, registers) = (self.threads(), self.registers());
        if threads > MAX_THREADS.into() && self.block().into_iter().zip(MAX_BLOCK).all(|(n, most)| n <= most)
        {
            found.push(Problem::Threads { threads });
        }
        if registers == 0 || registers > MAX_REGISTERS {
            found.push(Problem::Registers { count: registers });
        } else if threads <= MAX_THREADS.into() {
            let (warps, limit) = ((threads as u32).div_ceil(32), target.warps_by_registers(registers));
            if warps.next_multiple_of(4) > limit {
                found.push(Problem::RegisterFile { warps, registers, limit, target });
            }
        }
        if self.barriers() > MAX_BARRIERS {
            found.push(Problem::Barriers { count: self.barriers() });
        }
    }

    fn check_memory(&self, target: Target, found: &mut Vec<Problem>) {
        let (bytes, limit) = (self.shared_bytes(), target.max_shared_bytes());
        if bytes % SHARED_UNIT != 0 || bytes > limit {
            found.push(Problem::SharedMemory { bytes, limit, target });
        }
        let layout = layout(self.version());
        let codes = [
            (CarveOutField::Min, self.get_own(layout.carve_out_min)),
            (CarveOutField::Target, self.get_own(layout.carve_out_target)),
            (CarveOutField::Max, self.get_own(layout.carve_out_max)),
        ];
        for (field, code) in codes {
            match carve_out_kib(code) {
                None => found.push(Problem::CarveOutUnset { field }),
                Some(kib) if !target.carve_outs_kib().contains(&kib) => {
                    found.push(Problem::CarveOut { field, kib, code, target });
                }
                Some(_) => {}
            }
        }
        if let [Some(min), Some(wanted), Some(max)] = codes.map(|(_, code)| carve_out_kib(code)) {
            if min > wanted || wanted > max {
                found.push(Problem::CarveOutOrder { min, wanted, max });
            }
            if bytes <= limit && wanted * 1024 < bytes {
                found.push(Problem::CarveOutTooSmall { bytes, kib: wanted });
            }
        }

        let (low, high) = (self.local_low(), self.local_high());
        if low % LOCAL_UNIT != 0 {
            found.push(Problem::LocalLow { bytes: low });
        }
        if high % LOCAL_UNIT != 0 {
            found.push(Problem::LocalHigh { bytes: high });
        }
        let total = u64::from(low) + u64::from(high);
        if total > LOCAL_WINDOW.into() {
            found.push(Problem::LocalTotal { bytes: total });
        }

        for index in 0..CONSTANT_BUFFERS {
            let Some(buffer) = self.constant_buffer(index) else { continue };
            if buffer.len == 0 || buffer.len > CONSTANT_BUFFER_MAX {
                found.push(Problem::ConstantBufferSize { index, bytes: buffer.len });
            }
            if buffer.address % CONSTANT_BUFFER_ALIGN != 0 {
                found.push(Problem::ConstantBufferAddress { index, address: buffer.address });
            }
        }
    }

    fn check_links(&self, found: &mut Vec<Problem>) {
        for slot in 0..RELEASES {
            let Some(release) = self.release(slot) else { continue };
            let (address, bytes) = (release.address, release.structure.bytes());
            if address % bytes != 0 {
                found.push(Problem::ReleaseAddress { slot, address, bytes });
            }
        }
        for (slot, fields) in layout(self.version()).dependents.iter().enumerate() {
            if self.get_own(fields.enable) == 0 {
                continue;
            }
            match fields.pointer.map(|p| self.get_address(p)) {
                None => found.push(Problem::DependentWithoutPointer { slot }),
                Some(address) if address < ALIGN => found.push(Problem::DependentAddress { slot, address }),
                Some(_) => {}
            }
        }
    }

    /// Values without a name in fields whose values have names.
    fn check_values(&self, found: &mut Vec<Problem>) {
        for entry in self.entries() {
            let field = entry.field;
            if !field.values().is_empty() && field.value_name(entry.value).is_none() {
                found.push(Problem::Undefined { field, value: entry.value });
            }
        }
    }
}
