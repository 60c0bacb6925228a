//! Whether the kernels of a cubin wait for their own results: [`sass::lint`] over each of them.

use std::io::{self, Write};

use sass::lint::{Finding, Hazard, Missing, StopReason};
use sass::{Arch, Listing, WORD_BYTES};
use serde::Serialize;

use crate::cubin::{Cubin, Error, Kernel};
use crate::demangle::{demangled, shown};
use crate::hex::Hex;
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// Missing waits in the kernels of a cubin.
#[derive(Clone, Debug, Serialize)]
pub struct Lint {
    /// The part the code is for, e.g. `sm_87`.
    pub target: String,
    /// Kernels, by name.
    pub kernels: Vec<KernelLint>,
}

/// Missing waits in a kernel.
#[derive(Clone, Debug, Serialize)]
pub struct KernelLint {
    /// Its name.
    pub name: String,
    /// As C++ or Rust spells it, where it is mangled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub demangled: Option<String>,
    /// Number of examined instructions.
    pub instructions: usize,
    /// Instructions that do not wait for an earlier one.
    pub findings: Vec<Race>,
    /// Places at which paths were not followed further.
    pub stops: Vec<PathEnd>,
}

/// An instruction that does not wait for an earlier one.
#[derive(Clone, Debug, Serialize)]
pub struct Race {
    /// Hazard, as a compiler writer names it: `read after write`.
    pub hazard: &'static str,
    /// The registers concerned.
    pub registers: Vec<String>,
    /// The earlier instruction.
    pub first: Instruction,
    /// The one that does not wait.
    pub next: Instruction,
    /// The missing wait.
    pub missing: String,
    /// The instructions of one such path that do not follow the one before them in memory.
    pub jumps: Vec<Jump>,
    /// Number of instructions on that path, both ends included.
    pub path_instructions: usize,
}

/// An instruction and its scheduling field.
#[derive(Clone, Debug, Serialize)]
pub struct Instruction {
    /// Offset from the start of the kernel.
    pub offset: Hex,
    /// Its text.
    pub text: String,
    /// Barriers waited for, read barrier, write barrier, yield, stall.
    pub control: String,
}

/// A jump that a path takes.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Jump {
    /// Offset of the branch.
    pub from: Hex,
    /// Target.
    pub to: Hex,
}

/// Place at which a path was not followed further.
#[derive(Clone, Debug, Serialize)]
pub struct PathEnd {
    /// Offset of the instruction.
    pub offset: Hex,
    /// Its text.
    pub text: String,
    /// Why.
    pub reason: &'static str,
}

impl Lint {
    /// Examines a cubin, or one kernel of it.
    ///
    /// # Errors
    /// One of [`Error`].
    pub fn read(bytes: &[u8], kernel: Option<&str>) -> Result<Self, Error> {
        let cubin = Cubin::parse(bytes, kernel)?;
        let kernels = cubin.kernels.iter().map(|kernel| KernelLint::of(cubin.arch, kernel)).collect();
        Ok(Self { target: format!("sm_{}", cubin.sm), kernels })
    }
}

impl KernelLint {
    fn of(arch: Arch, kernel: &Kernel<'_>) -> Self {
        let code = Code { arch, bytes: kernel.code };
        let report = sass::lint::lint(arch, kernel.code, 0);
        let stop = |stop: &sass::lint::Stop| PathEnd {
            offset: Hex(stop.pc),
            text: code.instruction(stop.pc).text,
            reason: match stop.reason {
                StopReason::Indirect => "a register holds the target",
                StopReason::Outside => "the target lies outside the kernel",
                StopReason::Unknown => "the operands of the instruction are not known",
                StopReason::End => "the code ends here",
            },
        };
        Self {
            name: kernel.name.to_owned(),
            demangled: demangled(kernel.name),
            instructions: kernel.code.len() / WORD_BYTES,
            findings: report.findings.iter().map(|finding| code.race(finding)).collect(),
            stops: report.stops.iter().map(stop).collect(),
        }
    }
}

/// A kernel's code.
#[derive(Clone, Copy)]
struct Code<'a> {
    arch: Arch,
    bytes: &'a [u8],
}

impl Code<'_> {
    fn instruction(&self, pc: u64) -> Instruction {
        let line = Listing::around(self.arch, self.bytes, 0, pc, 0).and_then(|mut listing| listing.next());
        let control = line.and_then(|line| line.decoded.ok()).map(|i| i.control().to_string());
        Instruction {
            offset: Hex(pc),
            text: line.map_or(String::new(), |line| line.text()),
            control: control.unwrap_or_default(),
        }
    }

    fn race(&self, finding: &Finding) -> Race {
        let jumps = finding.path.windows(2).filter(|pair| pair[1] != pair[0] + WORD_BYTES as u64);
        Race {
            hazard: match finding.hazard {
                Hazard::ReadAfterWrite => "read after write",
                Hazard::WriteAfterWrite => "write after write",
                Hazard::WriteAfterRead => "write after read",
            },
            registers: finding.registers.iter().map(|register| register.to_string()).collect(),
            first: self.instruction(finding.first),
            next: self.instruction(finding.next),
            missing: missing(finding),
            jumps: jumps.map(|pair| Jump { from: Hex(pair[0]), to: Hex(pair[1]) }).collect(),
            path_instructions: finding.path.len(),
        }
    }
}

fn missing(finding: &Finding) -> String {
    match (finding.missing, finding.hazard) {
        (Missing::Wait { barrier }, _) => {
            format!("no instruction on the path waits for barrier {barrier}, which the first one sets")
        }
        (Missing::Barrier, Hazard::WriteAfterRead) => {
            "the first instruction sets no barrier that says when it has read its sources".to_owned()
        }
        (Missing::Barrier, _) => "the first instruction sets no barrier that says when it is done".to_owned(),
        (Missing::Cycles { needed, passed }, _) => {
            format!("the result takes {needed} cycles; the stall counts of the path add up to {passed}")
        }
    }
}

impl Report for Lint {
    const SCHEMA: &'static str = "nvdiag.lint/1";

    fn has_problem(&self) -> bool {
        self.kernels.iter().any(|kernel| !kernel.findings.is_empty())
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for kernel in &self.kernels {
            kernel.print(out)?;
        }
        let findings: usize = self.kernels.iter().map(|kernel| kernel.findings.len()).sum();
        let instructions: usize = self.kernels.iter().map(|kernel| kernel.instructions).sum();
        let stops: usize = self.kernels.iter().map(|kernel| kernel.stops.len()).sum();
        let found = match findings {
            0 => "every result is waited for".to_owned(),
            1 => "1 result is not waited for".to_owned(),
            n => format!("{n} results are not waited for"),
        };
        let ends = match stops {
            0 => String::new(),
            1 => "; 1 path not followed to its end".to_owned(),
            n => format!("; {n} paths not followed to their ends"),
        };
        writeln!(out, "{HEADING}{}, {instructions} instructions: {found}{ends}{HEADING:#}", self.target)
    }
}

impl KernelLint {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.findings.is_empty() && self.stops.is_empty() {
            return Ok(());
        }
        writeln!(out, "{HEADING}kernel {}{HEADING:#}", shown(&self.name))?;
        for race in &self.findings {
            let registers = race.registers.join(" ");
            writeln!(out, "  {PROBLEM}{} of {registers}{PROBLEM:#}", race.hazard)?;
            for instruction in [&race.first, &race.next] {
                writeln!(
                    out,
                    "    {ASIDE}/*{:04x}*/{ASIDE:#}  {:<60} {ASIDE}{}{ASIDE:#}",
                    instruction.offset.0, instruction.text, instruction.control
                )?;
            }
            let jumps: Vec<_> =
                race.jumps.iter().map(|jump| format!("{:#x} -> {:#x}", jump.from.0, jump.to.0)).collect();
            let jumps = if jumps.is_empty() { "straight on".to_owned() } else { jumps.join(", ") };
            writeln!(out, "    {NAME}missing{NAME:#}  {}", race.missing)?;
            writeln!(out, "    {NAME}path{NAME:#}     {} instructions, {jumps}", race.path_instructions)?;
        }
        for stop in &self.stops {
            writeln!(
                out,
                "  not followed beyond {ASIDE}/*{:04x}*/{ASIDE:#} {}: {}",
                stop.offset.0, stop.text, stop.reason
            )?;
        }
        Ok(())
    }
}
