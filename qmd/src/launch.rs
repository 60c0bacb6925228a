//! The typed builder: a grid described in the caller's units, checked, then encoded.

use crate::cache::{Invalidate, Membar, SamplerIndex};
use crate::constant_buffer::ConstantBuffer;
use crate::dependent::Dependent;
use crate::error::{Axis, Error};
use crate::image::{Qmd, layout};
use crate::release::Release;
use crate::target::{RESERVED_SHARED_BYTES, Target, carve_out_code};
use crate::version::Version;

/// Most blocks along x, y and z.
pub const MAX_GRID: [u32; 3] = [0x7fff_ffff, 65535, 65535];
/// Most threads of a block along x, y and z.
pub const MAX_BLOCK: [u32; 3] = [1024, 1024, 64];
/// Most threads of a block.
pub const MAX_THREADS: u32 = 1024;
/// Most registers per thread.
pub const MAX_REGISTERS: u32 = 255;
/// Most barriers of a block.
pub const MAX_BARRIERS: u32 = 16;
/// Alignment of a program, in bytes.
pub const PROGRAM_ALIGN: u64 = 128;
/// Unit of shared memory, in bytes.
pub const SHARED_UNIT: u32 = 128;
/// The smallest carve-out a launch uses, in bytes. Parts list 0 as well, but no driver is known to use it.
const MIN_CARVE_OUT: u32 = 8 * 1024;
/// Unit of local memory per thread, in bytes.
pub const LOCAL_UNIT: u32 = 16;
/// Size of the local-memory window, in bytes: the most a thread can have.
pub const LOCAL_WINDOW: u32 = 1 << 24;

/// Shared memory of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SharedMemory {
    /// Size of the kernel's `.nv.shared` section, in bytes. On sm_90 it counts CUDA's reserved KiB already.
    pub static_bytes: u32,
    /// Bytes added at launch.
    pub dynamic_bytes: u32,
    /// Whether to add CUDA's reserved KiB on sm_8x, for code that uses it (cooperative groups). On sm_90 it
    /// is always there.
    pub reserved: bool,
}

impl SharedMemory {
    /// Static and dynamic bytes, without the reserved area.
    #[must_use]
    pub const fn new(static_bytes: u32, dynamic_bytes: u32) -> Self {
        Self { static_bytes, dynamic_bytes, reserved: false }
    }

    /// The value `target` needs in `SHARED_MEMORY_SIZE`: everything, rounded up to 128 bytes.
    #[must_use]
    pub fn bytes_on(self, target: Target) -> u64 {
        let (fixed, reserved) = match target.version() {
            Version::V03 => (self.static_bytes, if self.reserved { RESERVED_SHARED_BYTES } else { 0 }),
            Version::V04 => (self.static_bytes.max(RESERVED_SHARED_BYTES), 0),
        };
        let bytes = u64::from(fixed) + u64::from(self.dynamic_bytes) + u64::from(reserved);
        bytes.next_multiple_of(SHARED_UNIT.into())
    }
}

#[derive(Clone, Copy, Debug)]
struct Program {
    address: u64,
    code_bytes: u64,
}

/// A launch of one grid, to be built into a [`Qmd`].
///
/// Everything except the program and the register count, which must be set, starts with the value that a
/// plain CUDA kernel needs. [`build`](Self::build) checks the values.
#[derive(Clone, Debug)]
pub struct Launch {
    target: Target,
    program: Option<Program>,
    grid: [u32; 3],
    block: [u32; 3],
    registers: Option<u32>,
    barriers: u32,
    shared: SharedMemory,
    carve_out_target: u32,
    carve_out_max: Option<u32>,
    local_low: u32,
    local_high: u32,
    constant_buffers: Vec<(usize, ConstantBuffer)>,
    releases: Vec<(usize, Release)>,
    dependents: Vec<(usize, Dependent)>,
    invalidate: Invalidate,
    membar: Membar,
    sampler_index: SamplerIndex,
    limit_calls: bool,
    sequential: bool,
    group: u32,
    dependence_counter: u16,
    debug_id: u64,
}

impl Launch {
    /// A grid of one block of one thread, one barrier, no memory beyond registers.
    #[must_use]
    pub const fn new(target: Target) -> Self {
        Self {
            target,
            program: None,
            grid: [1; 3],
            block: [1; 3],
            registers: None,
            barriers: 1,
            shared: SharedMemory::new(0, 0),
            carve_out_target: 0,
            carve_out_max: None,
            local_low: 0,
            local_high: 0,
            constant_buffers: Vec::new(),
            releases: Vec::new(),
            dependents: Vec::new(),
            invalidate: Invalidate::empty(),
            membar: Membar::None,
            sampler_index: SamplerIndex::ViaHeaderIndex,
            limit_calls: false,
            sequential: false,
            group: 0x3f,
            dependence_counter: 0,
            debug_id: 0,
        }
    }

    /// Sets the code: its GPU virtual address, a multiple of 128, and its size in bytes.
    ///
    /// The size is how much the scheduler prefetches (up to 128 KiB, in units of 256 bytes); 0 prefetches
    /// nothing.
    #[must_use]
    pub const fn program(mut self, address: u64, code_bytes: u64) -> Self {
        self.program = Some(Program { address, code_bytes });
        self
    }

    /// Sets the grid, in blocks along x, y and z: 1 to 2^31-1, 65535 and 65535.
    #[must_use]
    pub const fn grid(mut self, blocks: [u32; 3]) -> Self {
        self.grid = blocks;
        self
    }

    /// Sets the block, in threads along x, y and z: 1 to 1024, 1024 and 64, at most 1024 together.
    #[must_use]
    pub const fn block(mut self, threads: [u32; 3]) -> Self {
        self.block = threads;
        self
    }

    /// Sets the registers per thread, 1 to 255, as the cubin's `EIATTR_REGCOUNT` says.
    #[must_use]
    pub const fn registers(mut self, count: u32) -> Self {
        self.registers = Some(count);
        self
    }

    /// Sets the number of block barriers, highest id plus one, 0 to 16. Too few corrupt the state of the SM.
    #[must_use]
    pub const fn barriers(mut self, count: u32) -> Self {
        self.barriers = count;
        self
    }

    /// Sets the shared memory of a block.
    #[must_use]
    pub const fn shared(mut self, shared: SharedMemory) -> Self {
        self.shared = shared;
        self
    }

    /// Sets the target carve-out: shared memory of each SM in bytes, for several blocks at once, rounded up
    /// to a carve-out of the part. Without it the launch takes the smallest that holds one block; the L1
    /// cache has the rest.
    #[must_use]
    pub const fn carve_out(mut self, bytes: u32) -> Self {
        self.carve_out_target = bytes;
        self
    }

    /// Allows at most `bytes`, rounded up to a carve-out, instead of all the part has.
    #[must_use]
    pub const fn carve_out_cap(mut self, bytes: u32) -> Self {
        self.carve_out_max = Some(bytes);
        self
    }

    /// Sets the local memory per thread in bytes, from the bottom and from the top of the window; both are
    /// rounded up to 16. CUDA code keeps its stack at the top: the frame plus 0x240.
    #[must_use]
    pub const fn local(mut self, low_bytes: u32, high_bytes: u32) -> Self {
        self.local_low = low_bytes;
        self.local_high = high_bytes;
        self
    }

    /// Binds constant bank `index`, 0 to 7.
    #[must_use]
    pub fn constant_buffer(mut self, index: usize, buffer: ConstantBuffer) -> Self {
        self.constant_buffers.push((index, buffer));
        self
    }

    /// Writes a semaphore after the grid; `slot` is 0 to 2.
    #[must_use]
    pub fn release(mut self, slot: usize, release: Release) -> Self {
        self.releases.push((slot, release));
        self
    }

    /// Makes another QMD start after this one; `slot` is 0, or 1 on v4.0.
    #[must_use]
    pub fn dependent(mut self, slot: usize, dependent: Dependent) -> Self {
        self.dependents.push((slot, dependent));
        self
    }

    /// Invalidates the named caches before the grid starts.
    #[must_use]
    pub const fn invalidate(mut self, caches: Invalidate) -> Self {
        self.invalidate = caches;
        self
    }

    /// Sets the caches flushed after the grid, before its releases.
    #[must_use]
    pub const fn membar(mut self, membar: Membar) -> Self {
        self.membar = membar;
        self
    }

    /// Sets how samplers are chosen; matters only with textures.
    #[must_use]
    pub const fn sampler_index(mut self, index: SamplerIndex) -> Self {
        self.sampler_index = index;
        self
    }

    /// Limits the depth of calls to 32, which is otherwise unchecked.
    #[must_use]
    pub const fn limit_calls(mut self, limit: bool) -> Self {
        self.limit_calls = limit;
        self
    }

    /// Runs the blocks one after the other.
    #[must_use]
    pub const fn sequential(mut self, sequential: bool) -> Self {
        self.sequential = sequential;
        self
    }

    /// Sets the scheduling group, 0 to 63.
    #[must_use]
    pub const fn group(mut self, group: u32) -> Self {
        self.group = group;
        self
    }

    /// Makes the QMD wait until that many others have applied
    /// [`DependentAction::DecrementDependence`](crate::DependentAction::DecrementDependence) to it.
    ///
    /// An H200 does so; the scheduler's own counter has to be set before
    /// ([`set_dependence_counter`](crate::Qmd::set_dependence_counter)).
    #[must_use]
    pub const fn dependence_counter(mut self, count: u16) -> Self {
        self.dependence_counter = count;
        self
    }

    /// Sets a number that the hardware ignores, for readers of dumps.
    #[must_use]
    pub const fn debug_id(mut self, id: u64) -> Self {
        self.debug_id = id;
        self
    }

    /// Checks everything and encodes it.
    ///
    /// # Errors
    /// An [`Error`] for the first value that the hardware would refuse, or accept and never run.
    pub fn build(&self) -> Result<Qmd, Error> {
        if !self.target.is_run() {
            return Err(Error::NotRun { target: self.target });
        }
        let mut qmd = Qmd::new(self.target.version());
        let layout = layout(qmd.version());
        for &(field, value) in layout.defaults {
            qmd.put(field, value);
        }
        if self.group > layout.group.max() {
            return Err(Error::Group { group: self.group });
        }
        qmd.put(layout.group, self.group);
        qmd.put(layout.sass_version, self.target.sass_version().into());
        qmd.put(layout.call_limit, (!self.limit_calls).into());
        qmd.put(layout.sampler_index, self.sampler_index as u32);
        qmd.put(layout.membar, self.membar.number());
        qmd.put(layout.sequential, self.sequential.into());
        for (bit, field) in layout.invalidate.into_iter().enumerate() {
            qmd.put(field, (self.invalidate.bits() >> bit & 1).into());
        }
        qmd.put(layout.dependence_counter, self.dependence_counter.into());
        qmd.put(layout.require_scheduling, (self.dependence_counter != 0).into());
        qmd.put(layout.debug_id[0], self.debug_id as u32);
        qmd.put(layout.debug_id[1], (self.debug_id >> 32) as u32);

        self.put_program(&mut qmd)?;
        qmd.set_grid(self.grid)?;
        self.put_block(&mut qmd)?;
        self.put_shared(&mut qmd)?;
        self.put_local(&mut qmd)?;
        for (index, buffer) in &self.constant_buffers {
            qmd.set_constant_buffer(*index, buffer)?;
        }
        for (slot, release) in &self.releases {
            qmd.set_release(*slot, release)?;
        }
        for (slot, dependent) in &self.dependents {
            qmd.set_dependent(*slot, dependent)?;
        }
        Ok(qmd)
    }

    fn put_program(&self, qmd: &mut Qmd) -> Result<(), Error> {
        let layout = layout(qmd.version());
        let Program { address, code_bytes } = self.program.ok_or(Error::Missing { what: "program" })?;
        if address == 0 {
            return Err(Error::Missing { what: "program address (it is 0)" });
        }
        qmd.place(layout.program, "a program", address, PROGRAM_ALIGN)?;
        let units = (code_bytes >> 8).min(layout.program_prefetch_size.max().into());
        if units != 0 {
            qmd.put_address(layout.program_prefetch, address);
            qmd.put(layout.program_prefetch_size, units as u32);
        }
        Ok(())
    }

    fn put_block(&self, qmd: &mut Qmd) -> Result<(), Error> {
        let layout = layout(qmd.version());
        for ((axis, value), limit) in Axis::ALL.into_iter().zip(self.block).zip(MAX_BLOCK) {
            if value == 0 || value > limit {
                return Err(Error::Block { axis, value, limit });
            }
        }
        let threads: u64 = self.block.iter().copied().map(u64::from).product();
        if threads > MAX_THREADS.into() {
            return Err(Error::Threads { threads });
        }
        for (field, value) in layout.block.into_iter().zip(self.block) {
            qmd.put(field, value);
        }

        let registers = self.registers.ok_or(Error::Missing { what: "register count" })?;
        if registers == 0 || registers > MAX_REGISTERS {
            return Err(Error::Registers { count: registers });
        }
        let warps = (threads as u32).div_ceil(32);
        let limit = self.target.warps_by_registers(registers);
        if warps.next_multiple_of(4) > limit {
            return Err(Error::RegisterFile { warps, registers, limit });
        }
        qmd.put(layout.registers, registers);

        if self.barriers > MAX_BARRIERS {
            return Err(Error::Barriers { count: self.barriers });
        }
        qmd.put(layout.barriers, self.barriers);
        Ok(())
    }

    fn put_shared(&self, qmd: &mut Qmd) -> Result<(), Error> {
        let layout = layout(qmd.version());
        let target = self.target;
        let limit = target.max_shared_bytes();
        // On sm_8x the reserved KiB counts against the limit of a block even where the program does not use
        // it.
        let spare = match target.version() {
            Version::V03 if !self.shared.reserved => RESERVED_SHARED_BYTES,
            Version::V03 | Version::V04 => 0,
        };
        let total = self.shared.bytes_on(target);
        if total + u64::from(spare) > limit.into() {
            return Err(Error::SharedMemory { bytes: total, limit: limit - spare, target });
        }
        let bytes = total as u32;
        let carve_out =
            |bytes: u32| target.carve_out_for(bytes).ok_or(Error::CarveOut { bytes, limit, target });
        let min = carve_out(bytes.max(MIN_CARVE_OUT))?;
        let wanted = carve_out(self.carve_out_target)?.max(min);
        let max = carve_out(self.carve_out_max.unwrap_or(limit))?;
        if wanted > max {
            return Err(Error::CarveOutCap { cap: max * 1024, needed: wanted * 1024 });
        }
        qmd.put(layout.shared, bytes);
        qmd.put(layout.carve_out_min, carve_out_code(min));
        qmd.put(layout.carve_out_target, carve_out_code(wanted));
        qmd.put(layout.carve_out_max, carve_out_code(max));
        Ok(())
    }

    fn put_local(&self, qmd: &mut Qmd) -> Result<(), Error> {
        let layout = layout(qmd.version());
        let round = |bytes: u32| u64::from(bytes).next_multiple_of(LOCAL_UNIT.into());
        let (low, high) = (round(self.local_low), round(self.local_high));
        // One unit below the window itself: each field holds 24 bits.
        let limit = LOCAL_WINDOW - LOCAL_UNIT;
        if low + high > limit.into() {
            return Err(Error::LocalMemory { bytes: low + high, limit });
        }
        qmd.put(layout.local_low, low as u32);
        qmd.put(layout.local_high, high as u32);
        Ok(())
    }
}

impl Qmd {
    /// Sets the grid, in blocks along x, y and z.
    ///
    /// Each dimension has a word of its own, so a recorded QMD can be patched by three 32-bit stores.
    ///
    /// # Errors
    /// [`Error::Grid`] names the axis, the value and the limit.
    pub fn set_grid(&mut self, blocks: [u32; 3]) -> Result<(), Error> {
        for ((axis, value), limit) in Axis::ALL.into_iter().zip(blocks).zip(MAX_GRID) {
            if value == 0 || value > limit {
                return Err(Error::Grid { axis, value, limit });
            }
        }
        for (field, value) in layout(self.version()).grid.into_iter().zip(blocks) {
            self.put(field, value);
        }
        Ok(())
    }
}
