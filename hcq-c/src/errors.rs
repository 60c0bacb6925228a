//! Questions of a program about the calls that failed, and about the library.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::ptr;

use hcq::FaultKind;

use crate::call::{c_text, call, last, put_sized};
use crate::failure::Failure;
use crate::status::{self, hcq_status};

/// A number that is not known, in fields whose comment says so.
pub const HCQ_UNKNOWN: u64 = u64::MAX;

/// The kind of a fault.
#[allow(non_camel_case_types, reason = "the names are those of the header")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum hcq_fault_kind {
    /// A kind that this version of the header does not name.
    HCQ_FAULT_UNNAMED = 0,
    /// An address that is not mapped, or not for this access. The code is the MMU's fault type, where known.
    HCQ_FAULT_MMU,
    /// An access that is not aligned to its size.
    HCQ_FAULT_MISALIGNED_ADDRESS,
    /// An access into a memory window that does not take it.
    HCQ_FAULT_INVALID_ADDRESS_SPACE,
    /// An address outside what the access can reach.
    HCQ_FAULT_OUT_OF_RANGE_ADDRESS,
    /// A word that is not an instruction.
    HCQ_FAULT_ILLEGAL_INSTRUCTION,
    /// An instruction with operands it does not take.
    HCQ_FAULT_ILLEGAL_PARAMETER,
    /// A register beyond the kernel's, or a misaligned register tuple.
    HCQ_FAULT_BAD_REGISTER,
    /// A program counter that is misaligned or outside the program.
    HCQ_FAULT_BAD_PROGRAM_COUNTER,
    /// A constant bank read past its end.
    HCQ_FAULT_INVALID_CONSTANT_ADDRESS,
    /// Another exception of an SM; its `HWW_WARP_ESR` code.
    HCQ_FAULT_SM_EXCEPTION,
    /// A malformed pushbuffer.
    HCQ_FAULT_PUSHBUFFER,
    /// An exception of the compute engine.
    HCQ_FAULT_ENGINE,
    /// The driver's limit for switching away was exceeded: a hang, or a kernel too long beside other users.
    HCQ_FAULT_SWITCH_TIMEOUT,
    /// The driver gave the channels up without a notification.
    HCQ_FAULT_TORN_DOWN,
    /// A `trap` or a breakpoint.
    HCQ_FAULT_TRAP,
    /// The channel was reset.
    HCQ_FAULT_RESET,
    /// Another error; the notifier's code.
    HCQ_FAULT_OTHER,
}

/// The report of a fault. Texts are `NULL` where nothing is known, and belong to the library: they stay until the
/// thread calls `hcq_last_fault` again.
#[allow(non_camel_case_types, reason = "the name is that of the header")]
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct hcq_fault {
    /// The kind of the fault.
    pub kind: hcq_fault_kind,
    /// The code that goes with the kind; 0xffffffff where there is none.
    pub code: u32,
    /// The driver's error notifier.
    pub notifier: u32,
    /// Not used.
    pub reserved: u32,
    /// The address accessed; `HCQ_UNKNOWN` where the driver does not report it.
    pub address: u64,
    /// The program counter, an absolute GPU address; `HCQ_UNKNOWN` where it is not known.
    pub pc: u64,
    /// Bytes from the start of the kernel to the program counter; `HCQ_UNKNOWN` where it is not known.
    pub offset: u64,
    /// Start of the mapping nearest to the address; `HCQ_UNKNOWN` where none is near.
    pub nearest_address: u64,
    /// Its length in bytes.
    pub nearest_len: u64,
    /// Bytes from its end (positive) or its start (negative) to the address; 0 if it contains it.
    pub nearest_distance: i64,
    /// The object that it is: "buffer", "program", ...
    pub nearest: *const c_char,
    /// The kernel that was running.
    pub kernel: *const c_char,
    /// If the kernel is not known: those that had not ended, separated by commas.
    pub in_flight: *const c_char,
    /// The instruction at the program counter.
    pub instruction: *const c_char,
    /// The software GPU's account: block, warp and lanes. Lines.
    pub explanation: *const c_char,
    /// Lines of the kernel log about it.
    pub log: *const c_char,
    /// The GPU core dump that was written of it (`HCQ_CORE`).
    pub core: *const c_char,
    /// All of it in one sentence, as `hcq_last_error` has it.
    pub report: *const c_char,
}

thread_local! {
    /// Texts of the last `hcq_last_fault`.
    static TEXTS: RefCell<Vec<CString>> = const { RefCell::new(Vec::new()) };
}

fn kind(kind: FaultKind) -> (hcq_fault_kind, Option<u32>) {
    match kind {
        FaultKind::Mmu { fault_type } => (hcq_fault_kind::HCQ_FAULT_MMU, fault_type),
        FaultKind::MisalignedAddress => (hcq_fault_kind::HCQ_FAULT_MISALIGNED_ADDRESS, None),
        FaultKind::InvalidAddressSpace => (hcq_fault_kind::HCQ_FAULT_INVALID_ADDRESS_SPACE, None),
        FaultKind::OutOfRangeAddress => (hcq_fault_kind::HCQ_FAULT_OUT_OF_RANGE_ADDRESS, None),
        FaultKind::IllegalInstruction => (hcq_fault_kind::HCQ_FAULT_ILLEGAL_INSTRUCTION, None),
        FaultKind::IllegalParameter => (hcq_fault_kind::HCQ_FAULT_ILLEGAL_PARAMETER, None),
        FaultKind::BadRegister => (hcq_fault_kind::HCQ_FAULT_BAD_REGISTER, None),
        FaultKind::BadProgramCounter => (hcq_fault_kind::HCQ_FAULT_BAD_PROGRAM_COUNTER, None),
        FaultKind::InvalidConstantAddress => (hcq_fault_kind::HCQ_FAULT_INVALID_CONSTANT_ADDRESS, None),
        FaultKind::SmException { code } => (hcq_fault_kind::HCQ_FAULT_SM_EXCEPTION, Some(code)),
        FaultKind::Pushbuffer => (hcq_fault_kind::HCQ_FAULT_PUSHBUFFER, None),
        FaultKind::Engine => (hcq_fault_kind::HCQ_FAULT_ENGINE, None),
        FaultKind::SwitchTimeout => (hcq_fault_kind::HCQ_FAULT_SWITCH_TIMEOUT, None),
        FaultKind::TornDown => (hcq_fault_kind::HCQ_FAULT_TORN_DOWN, None),
        FaultKind::Trap => (hcq_fault_kind::HCQ_FAULT_TRAP, None),
        FaultKind::Reset => (hcq_fault_kind::HCQ_FAULT_RESET, None),
        FaultKind::Other { code } => (hcq_fault_kind::HCQ_FAULT_OTHER, Some(code)),
        _ => (hcq_fault_kind::HCQ_FAULT_UNNAMED, None),
    }
}

/// The version of the library, such as "1.2.3".
#[unsafe(no_mangle)]
pub extern "C" fn hcq_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}

/// The name of a code, as it stands in this header; "unknown status" for a number that is none.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_status_name(status: i32) -> *const c_char {
    status::name(status).unwrap_or(c"unknown status").as_ptr()
}

/// Why the last call of this thread that failed did: the message, its causes and, on a line of its own, what to
/// try; the report of a fault. Empty where none failed. The text stays until the next failure of the thread.
#[unsafe(no_mangle)]
pub extern "C" fn hcq_last_error() -> *const c_char {
    last(|last| last.text.as_ptr()).unwrap_or(c"".as_ptr())
}

/// The report of the fault that the last failure of this thread was about.
///
/// `size` is `sizeof(hcq_fault)`. `HCQ_ERROR_NO_FAULT` where that failure was none of `HCQ_ERROR_FAULT` and
/// `HCQ_ERROR_LOST`; itself it leaves `hcq_last_error` as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn hcq_last_fault(fault: *mut hcq_fault, size: usize) -> hcq_status {
    let Some(report) = last(|last| last.failure.fault.clone()).flatten() else {
        return hcq_status::HCQ_ERROR_NO_FAULT;
    };
    let lines = |lines: &[String], between: &str| (!lines.is_empty()).then(|| lines.join(between));
    let mut texts = Vec::new();
    let mut text = |text: Option<String>| -> *const c_char {
        let Some(text) = text else { return ptr::null() };
        texts.push(c_text(&text));
        texts.last().map_or(ptr::null(), |text| text.as_ptr())
    };
    let (kind, code) = kind(report.kind);
    let nearest = report.nearest.as_ref();
    let value = hcq_fault {
        kind,
        code: code.unwrap_or(u32::MAX),
        notifier: report.raw.notifier,
        reserved: 0,
        address: report.address.map_or(HCQ_UNKNOWN, |address| address.raw()),
        pc: report.pc.unwrap_or(HCQ_UNKNOWN),
        offset: report.offset.unwrap_or(HCQ_UNKNOWN),
        nearest_address: nearest.map_or(HCQ_UNKNOWN, |nearest| nearest.va.raw()),
        nearest_len: nearest.map_or(0, |nearest| nearest.len),
        nearest_distance: nearest.map_or(0, |nearest| nearest.distance),
        nearest: text(nearest.map(|nearest| nearest.what.to_owned())),
        kernel: text(report.kernel.clone()),
        in_flight: text(lines(&report.in_flight, ", ")),
        instruction: text(report.instruction.clone()),
        explanation: text(lines(&report.explanation, "\n")),
        log: text(lines(&report.raw.log, "\n")),
        core: text(report.core.as_ref().and_then(|core| Some(core.as_ref().ok()?.display().to_string()))),
        report: text(Some(report.to_string())),
    };
    call(|| {
        // The texts before, whose last reader is this call.
        let kept = TEXTS.try_with(|kept| drop(kept.replace(texts)));
        kept.map_err(|_| Failure::new(hcq_status::HCQ_ERROR_NO_FAULT, "the thread is about to end"))?;
        // SAFETY: the caller's promise.
        unsafe { put_sized(fault, size, "fault", &value) }
    })
}
