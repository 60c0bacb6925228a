//! The fault that stopped the GPU: decoded from the driver's records, joined with this process's own memory
//! tables.

use std::fmt;
use std::path::PathBuf;

use nv_hw::Shown;
use nv_hw::fault::{fault_type, global_esr, hww_esr, notifier, warp_esr};

use crate::address::{Bytes, GpuVa};

/// The kind of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FaultKind {
    /// An address that is not mapped, or not for this access; the MMU's fault type where it is known.
    Mmu {
        /// 0 and 2: not mapped, 6: write to read-only memory, 15: atomic access refused, ...
        fault_type: Option<u32>,
    },
    /// An access that is not aligned to its size.
    MisalignedAddress,
    /// A generic access into a window that does not take it, e.g. a global access into the shared-memory
    /// window.
    InvalidAddressSpace,
    /// An address outside what the access can reach.
    OutOfRangeAddress,
    /// A word that is not an instruction.
    IllegalInstruction,
    /// An instruction with operands it does not take.
    IllegalParameter,
    /// A register beyond the kernel's, or a misaligned register tuple.
    BadRegister,
    /// A program counter that is misaligned or outside the program.
    BadProgramCounter,
    /// A constant bank read past its end.
    InvalidConstantAddress,
    /// Another exception of an SM; its `HWW_WARP_ESR` code.
    SmException {
        /// Error code.
        code: u32,
    },
    /// A malformed pushbuffer.
    Pushbuffer,
    /// A class method that the engine refused, or another exception of the graphics engine.
    Engine,
    /// The driver's limit for switching away was exceeded: a hang, or a kernel too long beside other GPU
    /// users.
    SwitchTimeout,
    /// The driver gave the channel's group up without an error notification: a channel of it was closed
    /// beside a kernel that did not give way.
    TornDown,
    /// A `trap` or a breakpoint.
    Trap,
    /// The channel was reset.
    Reset,
    /// Another error; the notifier's code.
    Other {
        /// Notifier code.
        code: u32,
    },
}

impl FaultKind {
    /// By the warp error code of an SM.
    pub(crate) fn of_warp(code: u32, fault_type: Option<u32>) -> Self {
        match code {
            warp_esr::MISALIGNED_PC | warp_esr::PC_OVERFLOW => Self::BadProgramCounter,
            warp_esr::MISALIGNED_REG | warp_esr::OOR_REG => Self::BadRegister,
            warp_esr::ILLEGAL_INSTR_ENCODING => Self::IllegalInstruction,
            warp_esr::ILLEGAL_INSTR_PARAM => Self::IllegalParameter,
            warp_esr::OOR_ADDR => Self::OutOfRangeAddress,
            warp_esr::MISALIGNED_ADDR => Self::MisalignedAddress,
            warp_esr::INVALID_ADDR_SPACE => Self::InvalidAddressSpace,
            warp_esr::INVALID_CONST_ADDR_LDC => Self::InvalidConstantAddress,
            _ if is_of_mmu(code) => Self::Mmu { fault_type },
            code => Self::SmException { code },
        }
    }

    /// By the error notifier alone.
    pub(crate) fn of_notifier(code: u32, fault_type: Option<u32>) -> Self {
        match code {
            0 => Self::TornDown,
            notifier::FIFO_ERROR_IDLE_TIMEOUT => Self::SwitchTimeout,
            notifier::GR_ERROR_SW_METHOD | notifier::GR_EXCEPTION | notifier::GR_ILLEGAL_NOTIFY => {
                Self::Engine
            }
            notifier::FIFO_ERROR_MMU_ERR_FLT => Self::Mmu { fault_type },
            notifier::PBDMA_ERROR => Self::Pushbuffer,
            notifier::RESETCHANNEL_VERIF_ERROR => Self::Reset,
            code => Self::Other { code },
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mmu { fault_type: Some(fault_type::RO_VIOLATION) } => f.write_str("write to read-only memory"),
            Self::Mmu { fault_type: Some(fault_type::PDE..=fault_type::PTE) | None } => f.write_str("access to unmapped memory"),
            Self::Mmu { fault_type: Some(t) } => write!(f, "MMU fault of type {t}"),
            Self::MisalignedAddress => f.write_str("misaligned address"),
            Self::InvalidAddressSpace => f.write_str("access into a memory window that does not take it"),
            Self::OutOfRangeAddress => f.write_str("address out of range"),
            Self::IllegalInstruction => f.write_str("illegal instruction"),
            Self::IllegalParameter => f.write_str("illegal instruction parameter"),
            Self::BadRegister => f.write_str("register out of range or misaligned"),
            Self::BadProgramCounter => f.write_str("program counter outside the program"),
            Self::InvalidConstantAddress => f.write_str("constant bank read past its end"),
            Self::SmException { code } => write!(f, "SM exception {code:#x}"),
            Self::Pushbuffer => f.write_str("malformed pushbuffer"),
            Self::Engine => f.write_str("exception of the compute engine"),
            Self::SwitchTimeout => f.write_str("context-switch timeout"),
            Self::TornDown => f.write_str(
                "the driver tore the channel group down without an error notification (a channel closed beside a kernel that did not give way)",
            ),
            Self::Trap => f.write_str("a trap instruction"),
            Self::Reset => f.write_str("channel reset"),
            Self::Other { code } => write!(f, "channel error {code}"),
        }
    }
}

/// A mapping that contains an address or lies near it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Neighbour {
    /// Start of the mapping.
    pub va: GpuVa,
    /// Its length in bytes.
    pub len: u64,
    /// The kind of object: "buffer", "program", ...
    pub what: &'static str,
    /// Bytes from the mapping's end (positive) or its start (negative) to the address; 0 if it contains it.
    pub distance: i64,
}

/// Whether a warp's error code stands for an access that the MMU refused.
const fn is_of_mmu(code: u32) -> bool {
    matches!(code, warp_esr::MMU_FAULT | warp_esr::MMU_NACK)
}

/// A breakpoint interrupt, a breakpoint that pauses.
const BREAKPOINTS: u32 = 1 << global_esr::BPT_INT | 1 << global_esr::BPT_PAUSE;

/// The exception registers of an SM, as the driver recorded them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmRecord {
    /// SM number.
    pub sm: u32,
    /// `HWW_GLOBAL_ESR`.
    pub global_esr: u32,
    /// `HWW_WARP_ESR`: the error code is in bits 15:0.
    pub warp_esr: u32,
    /// Program counter, an absolute GPU address; 0 where the driver does not report it.
    pub pc: u64,
}

impl SmRecord {
    /// The error code, 0 for none.
    pub(crate) const fn code(&self) -> u32 {
        hww_esr::ERROR.of(self.warp_esr)
    }

    /// Whether the MMU refused an access.
    pub(crate) const fn is_mmu_error(&self) -> bool {
        is_of_mmu(self.code())
    }

    /// Whether a trap or a breakpoint is all that the registers show: it may be in the global register alone.
    pub(crate) const fn is_trap(&self) -> bool {
        self.code() == 0 && self.global_esr & BREAKPOINTS != 0
    }
}

/// The driver's records of a fault, undecoded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct FaultRecord {
    /// Error notifier code.
    pub notifier: u32,
    /// Each SM with an exception.
    pub sms: Vec<SmRecord>,
    /// Kernel-log lines about it, where they could be read.
    pub log: Vec<String>,
}

/// The cause and the place of a fault that stopped the GPU.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FaultReport {
    /// The kind of the fault.
    pub kind: FaultKind,
    /// The address accessed, where the driver reports it; hardware may give its page only.
    pub address: Option<GpuVa>,
    /// The function that was running: by its program counter, or because no other kernel was in flight.
    pub kernel: Option<String>,
    /// If no program counter is known: the kernels of the submissions that had not ended. One of them was
    /// running.
    pub in_flight: Vec<String>,
    /// Program counter, an absolute address; where the driver does not report it, that of the only
    /// instruction that can have made the access.
    pub pc: Option<u64>,
    /// Bytes from the start of the function to the program counter.
    pub offset: Option<u64>,
    /// The instruction there.
    pub instruction: Option<String>,
    /// The mapping nearest to the address. `None` where none lies within 1 MiB, or within one page of the GPU
    /// where its pages are larger: such a mapping has nothing to do with the access.
    pub nearest: Option<Neighbour>,
    /// The software ga10b's account of it: block, warp and lanes; the reason it stopped a launch that cannot
    /// end; and calls before the fault that a real machine does not survive. Empty on hardware.
    pub explanation: Vec<String>,
    /// The GPU core dump that was written of it, or why there is none: `HCQ_CORE` names the folder.
    pub core: Option<Result<PathBuf, String>>,
    /// The driver's records, from which all this was decoded.
    pub raw: FaultRecord,
}

impl fmt::Display for FaultReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the GPU stopped: {}", self.kind)?;
        if let Some(address) = self.address {
            write!(f, " at {address}")?;
        }
        if let Some(n) = &self.nearest {
            let distance = match n.distance.unsigned_abs() {
                1 => "1 byte".to_owned(),
                bytes => format!("{bytes} bytes"),
            };
            let place = match n.distance {
                0 => "inside".to_owned(),
                1.. => format!("{distance} past the end of"),
                _ => format!("{distance} before"),
            };
            write!(f, " ({place} the {} of {} at {})", n.what, Bytes(n.len), n.va)?;
        }
        if let Some(kernel) = &self.kernel {
            write!(f, ", in kernel {}", Shown(kernel))?;
        } else if !self.in_flight.is_empty() {
            write!(f, ", in one of the kernels {}", Shown(self.in_flight.join(", ")))?;
        }
        if let Some(offset) = self.offset {
            write!(f, "+{offset:#x}")?;
        }
        if let Some(instruction) = &self.instruction {
            write!(f, ": {instruction}")?;
        }
        write!(f, " [notifier {}]", self.raw.notifier)?;
        // An SM's error code says what the explanation would; without one, nothing else does.
        if self.raw.sms.iter().all(|sm| sm.code() == 0) {
            self.explanation.iter().try_for_each(|words| write!(f, "; {}", Shown(words)))?;
        }
        match &self.core {
            Some(Ok(core)) => write!(f, "; GPU core dump in {}", core.display())?,
            Some(Err(why)) => write!(f, "; no GPU core dump (HCQ_CORE): {why}")?,
            None => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warp_codes_come_before_the_notifier() {
        assert_eq!(FaultKind::of_warp(0xf, None), FaultKind::MisalignedAddress);
        assert_eq!(FaultKind::of_warp(0x17, Some(2)), FaultKind::Mmu { fault_type: Some(2) });
        assert_eq!(FaultKind::of_warp(0x33, None), FaultKind::SmException { code: 0x33 });
        assert_eq!(FaultKind::of_notifier(31, None), FaultKind::Mmu { fault_type: None });
        assert_eq!(FaultKind::of_notifier(0, None), FaultKind::TornDown);
        let record = |global_esr, warp_esr| SmRecord { sm: 0, global_esr, warp_esr, pc: 0 };
        assert!(record(1 << 4, 0).is_trap() && record(1 << 5 | 4, 0).is_trap());
        assert!(!record(1 << 4, 0xf).is_trap() && !record(4, 0).is_trap());
        assert_eq!(FaultKind::of_notifier(99, None), FaultKind::Other { code: 99 });
    }

    #[test]
    fn a_report_reads_as_one_sentence() {
        let report = FaultReport {
            kind: FaultKind::Mmu { fault_type: Some(2) },
            address: GpuVa::new(0x10_0000_3000),
            kernel: Some("vecadd".into()),
            in_flight: Vec::new(),
            pc: Some(0x10_0020_0040),
            offset: Some(0x40),
            instruction: Some("LDG.E R2, [R2.64]".into()),
            nearest: Some(Neighbour {
                va: GpuVa::inside(0x10_0000_2000),
                len: 4096,
                what: "buffer",
                distance: 1,
            }),
            explanation: Vec::new(),
            core: Some(Ok("cores/gpu-core.7.0.nvcudmp".into())),
            raw: FaultRecord { notifier: 31, ..Default::default() },
        };
        assert_eq!(
            report.to_string(),
            "the GPU stopped: access to unmapped memory at 0x1000003000 (1 byte past the end of the buffer of 4 KiB at \
             0x1000002000), in kernel vecadd+0x40: LDG.E R2, [R2.64] [notifier 31]; GPU core dump in \
             cores/gpu-core.7.0.nvcudmp"
        );
    }
}
