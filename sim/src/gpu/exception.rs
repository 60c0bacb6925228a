//! The GPU's exceptions, as the hardware reports them to the driver.

use crate::gpu::sm;
use crate::gpu::sm::launch::MemoryFault;

/// Interrupt bits of the pushbuffer unit (`INTR_0`).
pub(crate) mod intr {
    /// GP_PUT beyond the ring.
    pub(crate) const GPPTR: u32 = 1 << 14;
    /// A ring entry that means nothing.
    pub(crate) const GPENTRY: u32 = 1 << 15;
    /// A method header that means nothing.
    pub(crate) const PBENTRY: u32 = 1 << 18;
    /// A host method that does not exist or may not be used.
    pub(crate) const METHOD: u32 = 1 << 21;
    /// A software class.
    pub(crate) const DEVICE: u32 = 1 << 23;
    /// A semaphore method with a bad address or operation.
    pub(crate) const SEMAPHORE: u32 = 1 << 25;
}

/// Interrupt bits for the copy engine's own checks and missing contexts (`INTR_1`).
pub(crate) mod intr1 {
    /// A method of the copy class that does not exist.
    pub(crate) const HCE_ILLEGAL_METHOD: u32 = 1 << 3;
    /// A class that is not the copy class.
    pub(crate) const HCE_ILLEGAL_CLASS: u32 = 1 << 4;
    /// The channel's group has no context for the engine.
    pub(crate) const CONTEXT_NOT_VALID: u32 = 1 << 31;
}

/// Registers that the driver prints when the pushbuffer unit stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PbdmaRegisters {
    /// Decoded header.
    pub(crate) header: u32,
    /// Raw header.
    pub(crate) shadow: u32,
    /// Ring entry.
    pub(crate) entry: u64,
    /// First method of the method FIFO.
    pub(crate) method: u32,
    /// Fetch index.
    pub(crate) gp_get: u32,
    /// Address of the next word.
    pub(crate) get: u64,
    /// End of the segment.
    pub(crate) put: u64,
    /// Semaphore: address, payload, operation.
    pub(crate) semaphore: (u64, u64, u32),
}

/// Units of the hub that access memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HubClient {
    /// Fetches ring entries and pushbuffers.
    Esc,
    /// Executes semaphore methods.
    Host,
    /// Reads launch descriptors, writes their releases.
    Sked,
    /// Front end: inline data and report semaphores.
    FrontEnd,
    /// Copy engine of the graphics runlist.
    CopyEngine,
}

impl HubClient {
    /// Name in the driver's table for ga10b.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Esc => "esc",
            Self::Host => "host",
            Self::Sked => "sked0/sked",
            Self::FrontEnd => "fe0/fe",
            Self::CopyEngine => "ce0",
        }
    }

    /// Engine number of the MMU for a channel in subcontext `veid` on pushbuffer unit `pbdma`.
    pub(crate) fn engine(self, veid: u32, pbdma: u32) -> u32 {
        match self {
            Self::Esc | Self::Host => 32 + pbdma,
            Self::Sked | Self::FrontEnd => 64 + veid,
            Self::CopyEngine => 15,
        }
    }
}

/// A problem that stops a channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Exception {
    /// The pushbuffer unit.
    Pbdma {
        /// `INTR_0`.
        intr_0: u32,
        /// `INTR_1`.
        intr_1: u32,
        /// What the driver prints with it.
        registers: PbdmaRegisters,
    },
    /// A hub unit touched an address that is not mapped for it.
    HubFault {
        /// Which unit.
        client: HubClient,
        /// The MMU's report.
        fault: MemoryFault,
    },
    /// An error inside an SM, MMU faults of kernels among them.
    Sm {
        /// What the SM reports.
        fault: sm::Fault,
        /// Whether further warps may have failed as well.
        several: bool,
    },
    /// The scheduler refused a launch descriptor.
    Sked {
        /// Bits of its exception register.
        esr: u32,
    },
    /// A class bound to the wrong subchannel.
    ClassMismatch {
        /// Class number.
        class: u32,
        /// Subchannel.
        subchannel: u32,
    },
    /// A class that this GPU does not have.
    IllegalClass {
        /// Class number.
        class: u32,
    },
    /// A method that the class does not have.
    IllegalMethod {
        /// Class number.
        class: u32,
        /// Subchannel.
        subchannel: u32,
        /// Byte address.
        address: u32,
        /// Value.
        value: u32,
    },
    /// A method with a value that the class does not take.
    ClassError {
        /// Class number.
        class: u32,
        /// Subchannel.
        subchannel: u32,
        /// Byte address.
        address: u32,
        /// Value.
        value: u32,
        /// Error code (4 invalid value, 0xb alignment, ...).
        code: u32,
    },
    /// A method for the context firmware that it does not have.
    FirmwareMethod {
        /// Class number.
        class: u32,
        /// Byte address.
        address: u32,
        /// Value.
        value: u32,
    },
    /// Inline data that does not fit the announced length: 1 too much, 2 too little.
    MemoryFormat {
        /// Bits of the exception register.
        esr: u32,
    },
    /// A macro call; macros are not loaded.
    Macro {
        /// Bits of the exception register.
        esr: u32,
    },
    /// The copy engine refused a transfer.
    CopyLaunch {
        /// Launch error code.
        code: u32,
    },
    /// A context switch that takes too long.
    Timeout {
        /// Context-switch time of the group so far, in milliseconds.
        ms: u32,
    },
    /// The program requested it (`FORCE_RESET`).
    ForcedReset,
}

impl Exception {
    /// A fault of a hub unit.
    pub(crate) fn hub(client: HubClient, fault: MemoryFault) -> Self {
        Self::HubFault { client, fault }
    }

    /// A pushbuffer exception without its registers.
    pub(crate) fn pbdma(intr_0: u32, intr_1: u32) -> Self {
        Self::Pbdma { intr_0, intr_1, registers: PbdmaRegisters::default() }
    }

    /// Fills in the registers of a pushbuffer exception.
    pub(crate) fn with_registers(self, registers: PbdmaRegisters) -> Self {
        match self {
            Self::Pbdma { intr_0, intr_1, .. } => Self::Pbdma { intr_0, intr_1, registers },
            other => other,
        }
    }
}
