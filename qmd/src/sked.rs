//! The checks of the compute scheduler (SKED) on a QMD, and the bits that report them.

use std::fmt;

macro_rules! checks {
    ($($(#[$doc:meta])* $variant:ident = $bit:literal, $number:literal, $name:literal;)*) => {
        /// One check of the compute scheduler.
        ///
        /// A failed one sets its bit in the SKED exception register (`NV_PGRAPH_PRI_SKED_HWW_ESR`, 0x407020),
        /// which nvgpu logs as `sked exception: esr`; desktop drivers print `SKEDCHECKnn` with its number.
        ///
        /// Source: the ga100 manuals in NVIDIA's open-gpu-doc; that ga10b has the same bits is inferred,
        /// except for bit 24, which was seen.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum SkedCheck {
            $($(#[$doc])* $variant = $bit,)*
        }

        impl SkedCheck {
            /// All of them, by bit.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The number in `SKEDCHECKnn`.
            #[must_use]
            pub const fn number(self) -> u8 {
                match self { $(Self::$variant => $number,)* }
            }

            /// The name in the manual.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }
        }
    };
}

checks! {
    /// A group went idle that may not.
    ScgTypeGoIdleRestriction = 0, 33, "SCG_TYPE_GO_IDLE_RESTRICTION";
    /// Registers or warps of steered blocks.
    CtaSteerRegWarp = 1, 34, "CTA_STEER_REG_WARP";
    /// A QMD with semaphores where they are restricted.
    PcasWithSem = 2, 28, "PCAS_WITH_SEM";
    /// Too many spans.
    VspanOverflow = 3, 27, "VSPAN_OVERFLOW";
    /// Spans left at preemption.
    VspanNonemptyPreempt = 4, 32, "VSPAN_NONEMPTY_PREEMPT";
    /// A throttled grid where none is allowed.
    ThrottledIsRestricted = 5, 25, "THROTTLED_IS_RESTRICTED";
    /// The block to resume at lies outside the grid.
    CtaResume = 6, 24, "CTA_RESUME";
    /// Size of a constant buffer.
    ConstantBufferSize = 7, 23, "CONSTANT_BUFFER_SIZE";
    /// A dependence counter went below zero.
    DependenceCounterUnderflow = 8, 36, "DEPENDENCE_COUNTER_UNDERFLOW";
    /// Local memory from the bottom of the window.
    LocalMemoryLowSize = 9, 2, "LOCAL_MEMORY_LOW_SIZE";
    /// Local memory from the top of the window.
    LocalMemoryHighSize = 10, 3, "LOCAL_MEMORY_HIGH_SIZE";
    /// Local memory for the call stack.
    LocalMemoryCrsSize = 11, 4, "LOCAL_MEMORY_CRS_SIZE";
    /// Local memory together.
    LocalMemoryTotalSize = 12, 5, "LOCAL_MEMORY_TOTAL_SIZE";
    /// Registers per thread.
    RegisterCount = 13, 6, "REGISTER_COUNT";
    /// Put index of the outer queue.
    OuterPut = 14, 7, "OUTER_PUT";
    /// Put index of the inner queue.
    InnerPut = 15, 8, "INNER_PUT";
    /// Get index of the inner queue.
    InnerGet = 16, 9, "INNER_GET";
    /// Get index of the outer queue.
    OuterGet = 17, 10, "OUTER_GET";
    /// Threads of a block.
    TotalThreads = 18, 11, "TOTAL_THREADS";
    /// A cache line of another engine context.
    IgnoreVeidCacheLine = 19, 35, "IGNORE_VEID_CACHE_LINE";
    /// Alignment of the program.
    ProgramOffset = 20, 13, "PROGRAM_OFFSET";
    /// Shared memory of a block.
    SharedMemorySize = 21, 14, "SHARED_MEMORY_SIZE";
    /// Not used.
    Unused = 22, 15, "UNUSED";
    /// A block dimension is zero.
    CtaThreadDimensionZero = 23, 16, "CTA_THREAD_DIMENSION_ZERO";
    /// The shared and the local window overlap; both at 0, where they start, do.
    MemoryWindowOverlap = 24, 17, "MEMORY_WINDOW_OVERLAP";
    /// The carve-out does not hold the shared memory of a block.
    L1ConfigTooSmall = 25, 18, "L1_CONFIG_TOO_SMALL";
    /// Registers of a whole block.
    CtaRegisterConsumption = 26, 19, "CTA_REGISTER_CONSUMPTION";
    /// An index of a queue is past its end.
    GetPutTooLarge = 27, 20, "GET_PUT_TOO_LARGE";
    /// Size of a queue.
    CircularQueueSize = 28, 21, "CIRCULAR_QUEUE_SIZE";
    /// An active QMD was invalidated.
    InvalidateActiveQmd = 29, 22, "INVALIDATE_ACTIVE_QMD";
}

impl SkedCheck {
    /// The bit in the exception register.
    #[must_use]
    pub const fn bit(self) -> u8 {
        self as u8
    }

    /// The check that reports by that bit.
    #[must_use]
    pub fn from_bit(bit: u8) -> Option<Self> {
        Self::ALL.get(usize::from(bit)).copied()
    }

    /// The checks an exception register reports; its bits 30 and 31 are controls and mean nothing here.
    pub fn from_esr(esr: u32) -> impl Iterator<Item = Self> {
        Self::ALL.iter().copied().filter(move |check| esr >> check.bit() & 1 != 0)
    }
}

impl fmt::Display for SkedCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKEDCHECK{:02}_{}", self.number(), self.name())
    }
}
