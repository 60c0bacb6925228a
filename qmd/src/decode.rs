//! Reading the launch parameters back out of a QMD, in the units the builder takes them.

use crate::cache::{Invalidate, Membar, SamplerIndex};
use crate::image::{Qmd, layout};
use crate::table::v04;
use crate::target::{Target, carve_out_kib};
use crate::version::Version;

/// The shared-memory carve-outs a QMD asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CarveOuts {
    /// The least an SM must have, in KiB; `None` for the code 0.
    pub min_kib: Option<u32>,
    /// Size that the launch asks for, in KiB.
    pub target_kib: Option<u32>,
    /// The most an SM may have, in KiB.
    pub max_kib: Option<u32>,
}

impl Qmd {
    /// Whether this describes a queue rather than a grid.
    ///
    /// On v4.0 type 0 means a queue, but drivers also leave it 0 for grids: there a queue must have a size
    /// too.
    #[must_use]
    pub fn is_queue(&self) -> bool {
        let (field, value) = layout(self.version()).is_queue;
        let sized = match self.version() {
            Version::V03 => true,
            Version::V04 => self.get_own(v04::CIRCULAR_QUEUE_SIZE) != 0,
        };
        self.get_own(field) == value && sized
    }

    /// Blocks along x, y and z.
    #[must_use]
    pub fn grid(&self) -> [u32; 3] {
        layout(self.version()).grid.map(|f| self.get_own(f))
    }

    /// Threads of a block along x, y and z.
    #[must_use]
    pub fn block(&self) -> [u32; 3] {
        layout(self.version()).block.map(|f| self.get_own(f))
    }

    /// Threads of a block.
    #[must_use]
    pub fn threads(&self) -> u64 {
        self.block().into_iter().map(u64::from).product()
    }

    /// GPU virtual address of the first instruction.
    #[must_use]
    pub fn program_address(&self) -> u64 {
        self.get_address(layout(self.version()).program)
    }

    /// Address and size in bytes of the code the scheduler prefetches, in units of 256 bytes; `None` if it
    /// does not.
    #[must_use]
    pub fn program_prefetch(&self) -> Option<(u64, u32)> {
        let layout = layout(self.version());
        let units = self.get_own(layout.program_prefetch_size);
        (units != 0).then(|| (self.get_address(layout.program_prefetch), units * 256))
    }

    /// Registers per thread.
    #[must_use]
    pub fn registers(&self) -> u32 {
        self.get_own(layout(self.version()).registers)
    }

    /// Barriers of a block.
    #[must_use]
    pub fn barriers(&self) -> u32 {
        self.get_own(layout(self.version()).barriers)
    }

    /// Shared memory of a block in bytes.
    #[must_use]
    pub fn shared_bytes(&self) -> u32 {
        self.get_own(layout(self.version()).shared)
    }

    /// The shared-memory carve-outs.
    #[must_use]
    pub fn carve_outs(&self) -> CarveOuts {
        let layout = layout(self.version());
        CarveOuts {
            min_kib: carve_out_kib(self.get_own(layout.carve_out_min)),
            target_kib: carve_out_kib(self.get_own(layout.carve_out_target)),
            max_kib: carve_out_kib(self.get_own(layout.carve_out_max)),
        }
    }

    /// Local memory per thread from the bottom of the window, in bytes.
    #[must_use]
    pub fn local_low(&self) -> u32 {
        self.get_own(layout(self.version()).local_low)
    }

    /// Local memory per thread from the top of the window, in bytes.
    #[must_use]
    pub fn local_high(&self) -> u32 {
        self.get_own(layout(self.version()).local_high)
    }

    /// The raw value of `SASS_VERSION`.
    #[must_use]
    pub fn sass_version(&self) -> u8 {
        self.get_own(layout(self.version()).sass_version) as u8
    }

    /// The part that `SASS_VERSION` names; `None` for 0, which some drivers leave, and for unknown parts.
    #[must_use]
    pub fn target(&self) -> Option<Target> {
        Target::from_sass_version(self.sass_version())
    }

    /// Caches invalidated before the grid starts.
    #[must_use]
    pub fn invalidates(&self) -> Invalidate {
        let mut caches = Invalidate::empty();
        for (bit, field) in layout(self.version()).invalidate.into_iter().enumerate() {
            if self.get_own(field) != 0 {
                caches |= Invalidate::from_bits_truncate(1 << bit);
            }
        }
        caches
    }

    /// Returns the caches flushed after the grid; `None` for the undefined value 2.
    #[must_use]
    pub fn membar(&self) -> Option<Membar> {
        Membar::from_number(self.get_own(layout(self.version()).membar))
    }

    /// Returns how samplers are chosen.
    #[must_use]
    pub fn sampler_index(&self) -> SamplerIndex {
        match self.get_own(layout(self.version()).sampler_index) {
            0 => SamplerIndex::Independently,
            _ => SamplerIndex::ViaHeaderIndex,
        }
    }

    /// Whether the depth of calls is limited to 32.
    #[must_use]
    pub fn limits_calls(&self) -> bool {
        self.get_own(layout(self.version()).call_limit) == 0
    }

    /// Whether blocks run one after the other.
    #[must_use]
    pub fn is_sequential(&self) -> bool {
        self.get_own(layout(self.version()).sequential) != 0
    }

    /// Scheduling group.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.get_own(layout(self.version()).group)
    }

    /// Returns the number of QMDs that must decrement this one before it starts.
    #[must_use]
    pub fn dependence_counter(&self) -> u16 {
        self.get_own(layout(self.version()).dependence_counter) as u16
    }

    /// The number set by [`Launch::debug_id`](crate::Launch::debug_id).
    #[must_use]
    pub fn debug_id(&self) -> u64 {
        let [lower, upper] = layout(self.version()).debug_id.map(|f| u64::from(self.get_own(f)));
        upper << 32 | lower
    }
}
