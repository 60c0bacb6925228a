//! Faults made on purpose: the kinds, and the report of one by the program that made it.

use nv_hw::fault::warp_esr;
use std::fmt;
use std::io::{self, Write};
use std::str::FromStr;

use sass::{Arch, Opcode, WORD_BYTES, Word};
use serde::{Deserialize, Serialize};

use crate::fault::explain::explain;
use crate::fault::incident::Incident;
use crate::fault::report::{FaultReport, Subject};
use crate::hex::Hex;
use crate::kernel_log::lines::Kind as LineKind;
use crate::kernel_log::{Parsed, Reader};
use crate::process_map::document::Document;
use crate::process_map::map::ProcessMap;
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A vector load at an address that is not a multiple of 16.
    Misaligned,
    /// A store past the end of a buffer.
    Oob,
    /// A load through a null pointer.
    Unmapped,
    /// A word that is no instruction.
    IllegalInstruction,
    /// A load from a buffer in the shared-memory window.
    Window,
    /// A stack array written far past its end.
    Stack,
    /// A shared-memory array written far past its end.
    Shared,
    /// A constant bank read past its end.
    Constant,
    /// A trap instruction, as a failed assertion runs into.
    Trap,
    /// A kernel that waits for a flag that is never set.
    Timeout,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 10] = [
        Self::Misaligned,
        Self::Oob,
        Self::Unmapped,
        Self::IllegalInstruction,
        Self::Window,
        Self::Stack,
        Self::Shared,
        Self::Constant,
        Self::Trap,
        Self::Timeout,
    ];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Misaligned => "misaligned",
            Self::Oob => "oob",
            Self::Unmapped => "unmapped",
            Self::IllegalInstruction => "illegal-instruction",
            Self::Window => "window",
            Self::Stack => "stack",
            Self::Shared => "shared",
            Self::Constant => "constant",
            Self::Trap => "trap",
            Self::Timeout => "timeout",
        }
    }

    /// Returns its description in one sentence.
    #[must_use]
    pub const fn does(self) -> &'static str {
        match self {
            Self::Misaligned => {
                "loads four words at once from an address that is 4 bytes off a multiple of 16"
            }
            Self::Oob => "stores past the end of a buffer, where nothing is mapped",
            Self::Unmapped => "loads through a null pointer",
            Self::IllegalInstruction => "runs into a word that is no instruction",
            Self::Window => "loads from a buffer that lies inside the shared-memory window",
            Self::Stack => "writes an array on the stack far past its end",
            Self::Shared => "writes an array in shared memory far past its end",
            Self::Constant => "reads a constant bank past its end",
            Self::Trap => "executes a trap instruction, as a failed assertion does",
            Self::Timeout => "waits for a flag that nobody sets",
        }
    }

    /// The report that it is to end in, as [`Kind::is_met_by`] tests it.
    #[must_use]
    pub const fn expects(self) -> &'static str {
        match self {
            Self::Misaligned => "an SM's report MISALIGNED_ADDR",
            Self::Oob | Self::Unmapped => "a fault of the MMU",
            Self::IllegalInstruction => "an SM's report ILLEGAL_INSTR_ENCODING",
            Self::Window => "an SM's report INVALID_ADDR_SPACE",
            Self::Stack | Self::Shared => "an SM's report OOR_ADDR",
            Self::Constant => "an SM's report INVALID_CONST_ADDR_LDC",
            Self::Trap => "an SM's report ILLEGAL_INSTR_ENCODING, or its breakpoint",
            Self::Timeout => "a time-out",
        }
    }

    /// The kernel that does it.
    #[must_use]
    pub const fn kernel(self) -> &'static str {
        match self {
            Self::Misaligned => "load_vector",
            Self::Oob => "store",
            Self::Unmapped | Self::Window => "load",
            Self::IllegalInstruction => "illegal",
            Self::Stack => "stack",
            Self::Shared => "shared",
            Self::Constant => "constant",
            Self::Trap => "trap",
            Self::Timeout => "endless",
        }
    }

    /// Whether a report is of this fault.
    #[must_use]
    pub fn is_met_by(self, report: &FaultReport) -> bool {
        let warp = |wanted: &[u32]| report.sms.iter().any(|sm| wanted.contains(&sm.warp_esr.code));
        match self {
            Self::Misaligned => warp(&[warp_esr::MISALIGNED_ADDR]),
            Self::Oob | Self::Unmapped => {
                report.subject == Subject::Mmu || warp(&[warp_esr::MMU_FAULT, warp_esr::MMU_NACK])
            }
            Self::IllegalInstruction => warp(&[warp_esr::ILLEGAL_INSTR_ENCODING]),
            Self::Window => warp(&[warp_esr::INVALID_ADDR_SPACE]) && report.window_trap.is_some(),
            Self::Stack | Self::Shared => warp(&[warp_esr::OOR_ADDR]),
            Self::Constant => warp(&[warp_esr::INVALID_CONST_ADDR_LDC]),
            Self::Trap => {
                let breakpoint =
                    |r: &crate::fault::sm::SmRecord| r.global_esr.bits.iter().any(|b| b == "BPT_INT");
                warp(&[warp_esr::ILLEGAL_INSTR_ENCODING]) || report.sms.iter().any(breakpoint)
            }
            Self::Timeout => report.subject == Subject::Timeout,
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Kind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name() == text)
            .ok_or_else(|| format!("no such kind; there are: {}", Self::ALL.map(Self::name).join(", ")))
    }
}

/// The cubins with the kernels. The code for sm_80 also serves the later SMs of its major version.
pub const IMAGES: hcq::Images<'_> = hcq::images!("../kernels/provoke", sm_80, sm_87, sm_90);

/// The cubin with the first load of `kernel` replaced by zeros, which are no instruction; `None` if there is
/// no such load.
#[must_use]
pub fn plant_illegal_word(arch: Arch, kernel: &str) -> Option<Vec<u8>> {
    let image = IMAGES.for_sm(arch.sm()).ok()?;
    let parsed = crate::cubin::Cubin::parse(image, None).ok()?;
    let section = parsed.sections.iter().find(|s| s.name == format!(".text.{kernel}"))?;
    let start = usize::try_from(section.file_offset?.0).ok()?;
    let code = parsed.kernels.iter().find(|k| k.name == kernel)?.code;
    let load = code.chunks_exact(WORD_BYTES).position(|bytes| {
        bytes.first_chunk().is_some_and(|word| {
            sass::decode(arch, Word::from_bytes(*word)).is_ok_and(|i| i.opcode == Opcode::Ldg)
        })
    })?;
    let mut image = image.to_vec();
    image.get_mut(start + load * WORD_BYTES..)?.get_mut(..WORD_BYTES)?.fill(0);
    Some(image)
}

/// Outcome of a provoked fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The GPU stopped the channel.
    Fault,
    /// The work did not end in time.
    Timeout,
    /// The kernel ran to its end.
    Finished,
}

/// An SM's registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SmRegisters {
    /// SM number.
    pub sm_id: u32,
    /// `HWW_GLOBAL_ESR`.
    pub global_esr: Hex,
    /// `HWW_WARP_ESR`.
    pub warp_esr: Hex,
    /// Program counter.
    pub pc: Hex,
}

/// A program's knowledge of its own fault: enough to explain it elsewhere.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Capture {
    /// Outcome.
    pub outcome: Outcome,
    /// The device's name and driver.
    pub device: String,
    /// The launch: kernel, size and arguments.
    #[serde(default)]
    pub launched: String,
    /// The first words of the kernel's output, where it ran to its end.
    #[serde(default)]
    pub came_back: Vec<Hex>,
    /// The error as the library words it.
    pub error: String,
    /// Error notifier.
    pub notifier: u32,
    /// Registers of the SMs that reported.
    pub sms: Vec<SmRegisters>,
    /// The address accessed.
    pub address: Option<Hex>,
    /// Whether the MMU refused it.
    pub is_mmu_fault: bool,
    /// Type of an MMU fault.
    pub fault_type: Option<u32>,
    /// Lines of the kernel log, where they can be read.
    pub log: Vec<String>,
    /// The address space.
    pub map: Document,
}

impl Capture {
    /// No fault, of a program with that address space.
    #[must_use]
    pub fn new(outcome: Outcome, error: String, map: Document) -> Self {
        Self {
            outcome,
            device: String::new(),
            launched: String::new(),
            came_back: Vec::new(),
            error,
            notifier: 0,
            sms: Vec::new(),
            address: None,
            is_mmu_fault: false,
            fault_type: None,
            log: Vec::new(),
            map,
        }
    }

    /// A fault as the library reports it.
    #[must_use]
    pub fn of_fault(report: &hcq::FaultReport, map: Document) -> Self {
        let register = |value: u32| Hex(value.into());
        let sms = report.raw.sms.iter().map(|sm| SmRegisters {
            sm_id: sm.sm,
            global_esr: register(sm.global_esr),
            warp_esr: register(sm.warp_esr),
            pc: Hex(sm.pc),
        });
        let (is_mmu_fault, fault_type) = match report.kind {
            hcq::FaultKind::Mmu { fault_type } => (true, fault_type),
            _ => (false, None),
        };
        Self {
            notifier: report.raw.notifier,
            sms: sms.collect(),
            address: report.address.map(|address| Hex(address.raw())),
            is_mmu_fault,
            fault_type,
            log: report.raw.log.clone(),
            ..Self::new(Outcome::Fault, report.to_string(), map)
        }
    }

    /// The report of the fault; `None` if there was none.
    #[must_use]
    pub fn explain(&self) -> Option<FaultReport> {
        if self.outcome == Outcome::Finished {
            return None;
        }
        let mut incident = Incident::default();
        let mut reader = Reader::new();
        let mut take = |parsed| {
            if let Parsed::Entry(entry) = parsed {
                incident.entries.push(entry);
            }
        };
        for line in &self.log {
            reader.feed(line.as_bytes(), &mut take);
            reader.feed(b"\n", &mut take);
        }
        reader.finish(&mut take);
        if !incident.has(LineKind::SmErrorState) {
            for sm in &self.sms {
                let (warp, global) = (sm.warp_esr.0 as u32, sm.global_esr.0 as u32);
                let address = self.address.filter(|_| !self.is_mmu_fault).map(|a| a.0);
                incident.add_registers(Some(sm.sm_id), warp, global, Some(sm.pc.0), address);
            }
        }
        if let Some(address) = self.address
            && self.is_mmu_fault
            && !incident.has(LineKind::MmuFault)
            && !incident.has(LineKind::XidMmuFault)
        {
            incident.add_mmu_fault(address.0, self.fault_type);
        }
        if self.outcome == Outcome::Timeout && incident.entries.is_empty() {
            incident.add_deadline(&self.error);
        }
        if incident.entries.is_empty() {
            incident.add_notice(self.notifier);
        }
        Some(explain(&incident, &ProcessMap::from(self.map.clone())))
    }
}

/// A fault made on purpose, and its report.
#[derive(Clone, Debug, Serialize)]
pub struct Provoked {
    /// The kind.
    pub kind: Kind,
    /// Description of the kind.
    pub does: &'static str,
    /// Device on which it was provoked.
    pub device: String,
    /// Outcome.
    pub outcome: Outcome,
    /// Whether the fault is the one that was meant.
    pub as_meant: bool,
    /// The launch: kernel, size and arguments.
    pub launched: String,
    /// The first words of the kernel's output, where it ran to its end.
    pub came_back: Vec<Hex>,
    /// The error as the program saw it.
    pub error: String,
    /// The report.
    pub fault: Option<FaultReport>,
}

impl Provoked {
    /// Explains a capture.
    #[must_use]
    pub fn new(kind: Kind, capture: &Capture) -> Self {
        let fault = capture.explain();
        Self {
            kind,
            does: kind.does(),
            device: capture.device.clone(),
            outcome: capture.outcome,
            as_meant: fault.as_ref().is_some_and(|fault| kind.is_met_by(fault)),
            launched: capture.launched.clone(),
            came_back: capture.came_back.clone(),
            error: capture.error.clone(),
            fault,
        }
    }
}

impl Report for Provoked {
    const SCHEMA: &'static str = "nvdiag.provoke/1";

    fn has_problem(&self) -> bool {
        !self.as_meant
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}{}{HEADING:#}: a kernel on {} {}", self.kind, self.device, self.does)?;
        if !self.error.is_empty() {
            writeln!(out, "{ASIDE}the program saw: {}{ASIDE:#}", self.error)?;
        }
        writeln!(out)?;
        match &self.fault {
            Some(fault) => fault.print(out)?,
            None => {
                let words: Vec<_> = self.came_back.iter().map(Hex::to_string).collect();
                writeln!(
                    out,
                    "no fault came: the kernel ran to its end, and this device let the access pass"
                )?;
                writeln!(out, "  launched    {}", self.launched)?;
                writeln!(out, "  came back   output {}", words.join(" "))?;
                writeln!(out, "  expected    {}", self.kind.expects())?;
            }
        }
        if !self.as_meant && self.fault.is_some() {
            let expects = self.kind.expects();
            writeln!(
                out,
                "\nthis is not the fault that was meant: {expects}\n  launched    {}",
                self.launched
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_name_and_a_kernel_in_every_cubin() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            for arch in [Arch::Sm87, Arch::Sm90] {
                let parsed = crate::cubin::Cubin::parse(IMAGES.for_sm(arch.sm()).expect("code"), None)
                    .expect("a cubin");
                assert!(parsed.kernels.iter().any(|k| k.name == kind.kernel()), "{kind}");
            }
        }
        assert!("nothing".parse::<Kind>().is_err());
    }

    #[test]
    fn a_fault_that_does_not_come_is_told_with_what_was_launched_and_what_came_back() {
        let capture = Capture {
            device: "a GPU (rm)".to_owned(),
            launched: "kernel constant in 1 block of 1 thread, words of arguments 0x1000 0x0 0x3f00"
                .to_owned(),
            came_back: vec![Hex(0), Hex(7)],
            ..Capture::new(Outcome::Finished, String::new(), ProcessMap::default().document())
        };
        let provoked = Provoked::new(Kind::Constant, &capture);
        let mut text = Vec::new();
        provoked.print(&mut text).expect("a vector takes everything");
        let text = String::from_utf8(text).expect("text");
        assert!(provoked.has_problem());
        for told in
            ["no fault came", &capture.launched, "came back   output 0x0 0x7", "INVALID_CONST_ADDR_LDC"]
        {
            assert!(text.contains(told), "{told} in {text}");
        }
        let document = provoked.json().expect("JSON");
        assert_eq!((&document["as_meant"], &document["came_back"][1]), (&false.into(), &"0x7".into()));
    }

    #[test]
    fn one_word_of_the_cubin_is_replaced() {
        for arch in [Arch::Sm87, Arch::Sm90] {
            let planted = plant_illegal_word(arch, "illegal").expect("there is a load");
            let cubin = IMAGES.for_sm(arch.sm()).expect("code");
            let changed = planted.iter().zip(cubin).filter(|(a, b)| a != b).count();
            assert!((1..=WORD_BYTES).contains(&changed), "{changed} bytes");
            assert_eq!(plant_illegal_word(arch, "no such kernel"), None);
        }
    }
}
