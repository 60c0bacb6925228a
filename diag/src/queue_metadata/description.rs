//! A QMD: the launch it describes, its fields, and the values that the hardware would reject.

use std::io::{self, Write};

use qmd::{ConstantPrefetch, Effect, Membar, Problem, Qmd, Structure, Trap};
use serde::Serialize;

use crate::hex::Hex;
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// Everything a QMD says.
#[derive(Clone, Debug, Serialize)]
pub struct Metadata {
    /// Layout version, `3.0` or `4.0`.
    pub version: String,
    /// Size of the structure.
    pub size_bytes: usize,
    /// The launch in ordinary units; absent for a queue.
    pub launch: Option<Launch>,
    /// Every field that is not zero.
    pub fields: Vec<Field>,
    /// Words with bits set that no field names.
    pub unnamed: Vec<Unnamed>,
    /// Problems.
    pub problems: Vec<Complaint>,
    /// The structure itself.
    #[serde(skip)]
    pub image: Qmd,
}

/// A launch in ordinary units.
#[derive(Clone, Debug, Serialize)]
pub struct Launch {
    /// Address of the first instruction.
    pub program: Hex,
    /// The part the code is for, where the QMD says.
    pub target: Option<String>,
    /// Blocks.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub block: [u32; 3],
    /// Registers per thread.
    pub registers: u32,
    /// Barriers of a block.
    pub barriers: u32,
    /// Shared memory of a block.
    pub shared_bytes: u32,
    /// Shared-memory carve-outs in KiB: minimum, target, maximum.
    pub carve_outs_kib: [Option<u32>; 3],
    /// Local memory per thread from the bottom of the window.
    pub local_low_bytes: u32,
    /// Local memory per thread from the top of the window.
    pub local_high_bytes: u32,
    /// Caches dropped first.
    pub invalidates: Vec<String>,
    /// Caches flushed at the end: `none`, `system` or `device`.
    pub membar: Option<&'static str>,
    /// Constant buffers.
    pub constant_buffers: Vec<ConstantBuffer>,
    /// Releases.
    pub releases: Vec<Release>,
    /// QMDs that follow.
    pub dependents: Vec<Dependent>,
}

/// A constant buffer.
#[derive(Clone, Debug, Serialize)]
pub struct ConstantBuffer {
    /// Bank number.
    pub bank: usize,
    /// Its address.
    pub address: Hex,
    /// Its size.
    pub size_bytes: u32,
    /// Whether cached copies are dropped.
    pub invalidate: bool,
    /// `none`, `pre` or `post`.
    pub prefetch: &'static str,
}

/// A release semaphore.
#[derive(Clone, Debug, Serialize)]
pub struct Release {
    /// Slot.
    pub slot: usize,
    /// Address that it writes.
    pub address: Hex,
    /// Value written.
    pub payload: Hex,
    /// Number of its bits.
    pub payload_bits: u32,
    /// Bytes written.
    pub size_bytes: u64,
    /// Whether the time is written after it.
    pub timestamp: bool,
    /// The atomic operation, where it is not a plain write.
    pub reduction: Option<String>,
    /// Whether a system membar precedes it.
    pub membar: bool,
    /// Whether it raises an interrupt.
    pub trap: bool,
}

/// A QMD that follows.
#[derive(Clone, Debug, Serialize)]
pub struct Dependent {
    /// Slot.
    pub slot: usize,
    /// Its address.
    pub address: Hex,
    /// Action on it.
    pub action: String,
    /// Whether it may be read early.
    pub prefetch: bool,
}

/// One field.
#[derive(Clone, Debug, Serialize)]
pub struct Field {
    /// Name in NVIDIA's header.
    pub name: &'static str,
    /// Element of an array.
    pub index: Option<u8>,
    /// Highest and lowest bit.
    pub bits: [u16; 2],
    /// Its value.
    pub value: u32,
    /// The name of the value.
    pub value_name: Option<&'static str>,
    #[serde(skip)]
    line: String,
}

/// A word with bits set that no field names.
#[derive(Clone, Debug, Serialize)]
pub struct Unnamed {
    /// Index of the word.
    pub word: usize,
    /// The bits.
    pub value: Hex,
    #[serde(skip)]
    line: String,
}

/// One complaint.
#[derive(Clone, Debug, Serialize)]
pub struct Complaint {
    /// The problem.
    pub text: String,
    /// `refused`, `hangs` or `undefined`.
    pub effect: &'static str,
    /// The scheduler's check that catches it.
    pub check: Option<String>,
    /// The bit of that check in the SKED exception register.
    pub esr_bit: Option<u8>,
}

impl Metadata {
    /// Reads the QMD at the start of `bytes`, whose version fields say which layout it has.
    ///
    /// # Errors
    /// [`qmd::Error::Truncated`], [`qmd::Error::UnknownVersion`].
    pub fn read(bytes: &[u8]) -> Result<Self, qmd::Error> {
        Qmd::from_bytes(bytes).map(Self::of)
    }

    /// Describes a QMD.
    #[must_use]
    pub fn of(image: Qmd) -> Self {
        let mut entries: Vec<_> = image.entries().filter(|e| e.value != 0).collect();
        entries.sort_by_key(|e| e.field.lo());
        Self {
            version: image.version().to_string().trim_start_matches('v').to_owned(),
            size_bytes: image.version().size(),
            launch: (!image.is_queue()).then(|| Launch::of(&image)),
            fields: entries.iter().map(Field::of).collect(),
            unnamed: image
                .unnamed()
                .map(|u| Unnamed { word: u.word, value: Hex(u.bits.into()), line: u.to_string() })
                .collect(),
            problems: image.problems().iter().map(Complaint::of).collect(),
            image,
        }
    }
}

impl Launch {
    fn of(image: &Qmd) -> Self {
        let carve_outs = image.carve_outs();
        Self {
            program: Hex(image.program_address()),
            target: image.target().map(|t| t.to_string()),
            grid: image.grid(),
            block: image.block(),
            registers: image.registers(),
            barriers: image.barriers(),
            shared_bytes: image.shared_bytes(),
            carve_outs_kib: [carve_outs.min_kib, carve_outs.target_kib, carve_outs.max_kib],
            local_low_bytes: image.local_low(),
            local_high_bytes: image.local_high(),
            invalidates: image.invalidates().iter_names().map(|(name, _)| name.to_lowercase()).collect(),
            membar: image.membar().map(|membar| match membar {
                Membar::None => "none",
                Membar::System => "system",
                Membar::Device => "device",
            }),
            constant_buffers: (0..qmd::CONSTANT_BUFFERS)
                .filter_map(|bank| Some(ConstantBuffer::of(bank, image.constant_buffer(bank)?)))
                .collect(),
            releases: (0..qmd::RELEASES)
                .filter_map(|slot| Some(Release::of(slot, image.release(slot)?)))
                .collect(),
            dependents: (0..image.dependents())
                .filter_map(|slot| {
                    let dependent = image.dependent(slot)?;
                    Some(Dependent {
                        slot,
                        address: Hex(dependent.address),
                        action: snake(&format!("{:?}", dependent.action)),
                        prefetch: dependent.prefetch,
                    })
                })
                .collect(),
        }
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut row = |name: &str, value: String| writeln!(out, "  {NAME}{name:<18}{NAME:#}{value}");
        let axes = |v: [u32; 3]| format!("{} x {} x {}", v[0], v[1], v[2]);
        let target = self.target.as_deref().map_or(String::new(), |t| format!(" ({t})"));
        row("program", format!("{}{target}", self.program))?;
        row("grid", format!("{} blocks", axes(self.grid)))?;
        row("block", format!("{} threads", axes(self.block)))?;
        row("registers", format!("{} per thread", self.registers))?;
        row("barriers", self.barriers.to_string())?;
        let [min, target, max] =
            self.carve_outs_kib.map(|kib| kib.map_or("unset".into(), |kib| kib.to_string()));
        row(
            "shared memory",
            format!("{} bytes per block; carve-out {min} to {max}, target {target} KiB", self.shared_bytes),
        )?;
        row(
            "local memory",
            format!("{} bytes low, {} bytes high per thread", self.local_low_bytes, self.local_high_bytes),
        )?;
        let invalidates = match self.invalidates.is_empty() {
            true => "nothing".to_owned(),
            false => self.invalidates.join(", "),
        };
        row("invalidates", invalidates)?;
        row("membar", self.membar.unwrap_or("undefined").to_owned())?;
        for bank in &self.constant_buffers {
            let invalidate = if bank.invalidate { ", invalidated" } else { "" };
            let prefetch = match bank.prefetch {
                "none" => String::new(),
                when => format!(", prefetched {when}"),
            };
            row(
                &format!("constant bank {}", bank.bank),
                format!("{} bytes at {}{invalidate}{prefetch}", bank.size_bytes, bank.address),
            )?;
        }
        for release in &self.releases {
            let operation = release.reduction.as_deref().unwrap_or("write");
            let timestamp = if release.timestamp { " and the time" } else { "" };
            let membar = if release.membar { ", after a membar" } else { "" };
            let trap = if release.trap { ", interrupt" } else { "" };
            let value = format!(
                "{operation} {} ({} bits){timestamp} at {}{membar}{trap}",
                release.payload, release.payload_bits, release.address
            );
            row(&format!("release {}", release.slot), value)?;
        }
        for dependent in &self.dependents {
            let prefetch = if dependent.prefetch { ", prefetched" } else { "" };
            row(
                &format!("dependent {}", dependent.slot),
                format!("{} {}{prefetch}", dependent.action, dependent.address),
            )?;
        }
        Ok(())
    }
}

impl ConstantBuffer {
    fn of(bank: usize, buffer: qmd::ConstantBuffer) -> Self {
        Self {
            bank,
            address: Hex(buffer.address),
            size_bytes: buffer.len,
            invalidate: buffer.invalidate,
            prefetch: match buffer.prefetch {
                ConstantPrefetch::None => "none",
                ConstantPrefetch::Pre => "pre",
                ConstantPrefetch::Post => "post",
            },
        }
    }
}

impl Release {
    fn of(slot: usize, release: qmd::Release) -> Self {
        Self {
            slot,
            address: Hex(release.address),
            payload: Hex(release.payload),
            payload_bits: if release.wide { 64 } else { 32 },
            size_bytes: release.structure.bytes(),
            timestamp: release.structure == Structure::FourWords,
            reduction: release.reduction.map(|r| {
                let sign = if r.signed { "signed" } else { "unsigned" };
                format!("{sign} {}", snake(&format!("{:?}", r.op)))
            }),
            membar: release.membar,
            trap: release.trap != Trap::None,
        }
    }
}

impl Field {
    pub(super) fn of(entry: &qmd::Entry) -> Self {
        Self {
            name: entry.field.name(),
            index: entry.indexed.then(|| entry.field.index()),
            bits: [entry.field.hi(), entry.field.lo()],
            value: entry.value,
            value_name: entry.value_name(),
            line: entry.to_string(),
        }
    }
}

impl Complaint {
    fn of(problem: &Problem) -> Self {
        let check = problem.check();
        Self {
            text: problem.to_string(),
            effect: match problem.effect() {
                Effect::Refused(_) => "refused",
                Effect::Hangs => "hangs",
                Effect::Undefined => "undefined",
            },
            check: check.map(|c| c.to_string()),
            esr_bit: check.map(qmd::SkedCheck::bit),
        }
    }

    fn consequence(&self) -> String {
        match (&self.check, self.esr_bit, self.effect) {
            (Some(check), Some(bit), _) => format!("the scheduler refuses it: {check} (esr bit {bit})"),
            (_, _, "hangs") => "accepted, and no block is ever placed: a silent hang".to_owned(),
            _ => "no check catches it".to_owned(),
        }
    }
}

/// `InvalidateCopySchedule` as `invalidate copy schedule`.
fn snake(variant: &str) -> String {
    let mut words = String::new();
    for (i, c) in variant.chars().enumerate() {
        if c.is_uppercase() && i > 0 {
            words.push(' ');
        }
        words.extend(c.to_lowercase());
    }
    words
}

impl Report for Metadata {
    const SCHEMA: &'static str = "nvdiag.qmd/1";

    fn has_problem(&self) -> bool {
        !self.problems.is_empty()
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}QMD v{}, {} bytes{HEADING:#}", self.version, self.size_bytes)?;
        match &self.launch {
            Some(launch) => launch.print(out)?,
            None => writeln!(out, "  a queue, not a grid")?,
        }
        writeln!(out, "{HEADING}Fields that are not zero{HEADING:#}")?;
        for field in &self.fields {
            writeln!(out, "  {}", field.line)?;
        }
        for unnamed in &self.unnamed {
            writeln!(out, "  {ASIDE}{}{ASIDE:#}", unnamed.line)?;
        }
        if self.problems.is_empty() {
            return writeln!(out, "{HEADING}No problems found{HEADING:#}");
        }
        writeln!(out, "{PROBLEM}Problems{PROBLEM:#}")?;
        for problem in &self.problems {
            writeln!(out, "  {PROBLEM}{}{PROBLEM:#}", problem.text)?;
            writeln!(out, "    {}", problem.consequence())?;
        }
        Ok(())
    }
}
