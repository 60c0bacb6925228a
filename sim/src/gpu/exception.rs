//! The GPU's exceptions, as the hardware reports them to the driver.

use crate::gpu::sm;
use crate::gpu::sm::launch::MemoryFault;
use nv_hw::fault::hub_client;

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
    /// Its number.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Esc => hub_client::ESC,
            Self::Host => hub_client::HOST,
            Self::Sked => hub_client::SKED0,
            Self::FrontEnd => hub_client::FE0,
            Self::CopyEngine => hub_client::CE0,
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
        /// The registers that the driver prints with it.
        registers: PbdmaRegisters,
    },
    /// A hub unit touched an address that is not mapped for it.
    HubFault {
        /// The unit.
        client: HubClient,
        /// The MMU's report.
        fault: MemoryFault,
    },
    /// An error inside an SM, MMU faults of kernels among them.
    Sm {
        /// The SM's report.
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
        /// Error code, one of `nv_hw::fault::class_error`.
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
    /// Inline data that does not fit the announced length.
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
        /// One of `nv_hw::fault::ce_launch_error`.
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
