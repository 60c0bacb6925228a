//! The report of a fault, for people and for programs.

use std::io::{self, Write};

use serde::Serialize;

use crate::fault::judgement::{Judgement, Link};
use crate::fault::message::DriverMessage;
use crate::fault::mmu::MmuFault;
use crate::fault::repeats::Repeats;
use crate::fault::sm::SmRecord;
use crate::hex::Hex;
use crate::kernel_log::lines::{Kind, Role};
use crate::kernel_log::shape::Fields;
use crate::process_map::code::Code;
use crate::process_map::loose::Guess;
use crate::process_map::map::Mapping;
use crate::process_map::whereabouts::Whereabouts;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};

/// Subject of a fault: the unit that the blame falls on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A bit error in a memory of the GPU.
    Hardware,
    /// A launch descriptor, a method or a class.
    FrontEnd,
    /// A pushbuffer or a ring entry.
    Pushbuffer,
    /// A translation.
    Mmu,
    /// A warp.
    Sm,
    /// A copy.
    Copy,
    /// The context firmware.
    Firmware,
    /// An access to a register.
    Register,
    /// Work that does not end, or a semaphore that is never released.
    Timeout,
    /// Memory or start-up of the driver itself.
    Driver,
    /// A channel that was stopped; the lines do not say why.
    Channel,
    /// Another unit of the chip.
    Platform,
}

/// The error itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct What {
    /// The number the hardware or the driver gave, where there is one.
    pub code: Option<Hex>,
    /// Its name.
    pub name: String,
    /// In plain words.
    pub words: String,
}

/// Owner of the work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Owner {
    /// Channel number.
    pub channel: Option<u32>,
    /// Channel group.
    pub tsg: Option<u32>,
    /// Process.
    pub pid: Option<u32>,
    /// Its name, 15 characters of it.
    pub comm: Option<String>,
    /// Value that the error notifier was set to.
    pub notifier: Option<u32>,
    /// The name of that.
    pub notifier_name: Option<&'static str>,
}

/// The trap of the memory windows: a buffer that lies where the SM looks for shared or local memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WindowTrap {
    /// Whether a mapping in a window, or the address, proves it.
    pub certain: bool,
    /// The window.
    pub window: Option<String>,
    /// The mapping that lies in it.
    pub mapping: Option<Mapping>,
}

/// A line the report rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Evidence {
    /// Number of the line.
    pub line: u64,
    /// Kind of the line.
    pub kind: Kind,
    /// Number of the error, of the desktop driver's lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub xid: Option<u32>,
    /// Its part in the fault.
    pub role: Role,
    /// Meaning of such a line.
    pub meaning: &'static str,
    /// Its values.
    pub fields: Fields,
    /// Values lost because the line is cut short.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub missing: Vec<&'static str>,
    /// The message as printed.
    pub text: String,
}

/// One fault, explained.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultReport {
    /// Subject.
    pub subject: Subject,
    /// The fault in one sentence.
    pub verdict: String,
    /// The error.
    pub what: What,
    /// Device that the lines name.
    pub device: Option<String>,
    /// Machine that the lines name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Time, in µs since boot, or since midnight where the log gives no more.
    pub time_us: Option<u64>,
    /// Equal faults: how many, until when, of which channels.
    pub repeats: Repeats,
    /// Owners of the work.
    pub owners: Vec<Owner>,
    /// The SMs that reported, those that failed first.
    pub sms: Vec<SmRecord>,
    /// The faults of the MMU.
    pub mmu: Vec<MmuFault>,
    /// The instruction, for each SM whose program counter is known and lies in known code.
    pub code: Vec<Code>,
    /// Candidates among which it was guessed, where it is a guess.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guess: Option<Guess>,
    /// Memory at the address.
    pub access: Option<Whereabouts>,
    /// The trap of the memory windows, where the fault looks like it.
    pub window_trap: Option<WindowTrap>,
    /// Number of the error, of the desktop driver's lines.
    pub xid: Option<u32>,
    /// Number of the error that the driver names as its cause.
    pub previous: Option<u32>,
    /// Owner of the fault.
    pub judgement: Judgement,
    /// Number of the line that reports the cause.
    pub cause_line: u64,
    /// The cause, where it is another line than those of the fault.
    pub root: Option<Link>,
    /// Faults and lines that follow from it.
    pub consequences: Vec<Link>,
    /// Xids among them.
    pub led_to: Vec<u32>,
    /// Consequences that were too many to keep.
    pub consequences_dropped: u64,
    /// Likely causes, the likeliest first.
    pub causes: Vec<String>,
    /// Remedies.
    pub try_next: Vec<String>,
    /// Further notes from the lines.
    pub notes: Vec<String>,
    /// The lines.
    pub evidence: Vec<Evidence>,
    /// Lines that were too many to keep.
    pub evidence_dropped: u64,
}

/// A line that cannot be explained: of a GPU driver, or one about a GPU's error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnknownLine {
    /// Number of the line.
    pub line: u64,
    /// Whether it reports an error.
    pub is_error: bool,
    /// The part of the driver that printed it, where its function is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
    /// The whole line.
    pub text: String,
}

/// All faults of a log.
#[derive(Clone, Debug, Default, Serialize)]
pub struct FaultList {
    /// Origin of the lines.
    pub source: String,
    /// Lines read.
    pub lines: u64,
    /// Faults found; `faults` holds the last of them.
    pub found: u64,
    /// The faults, oldest first.
    pub faults: Vec<FaultReport>,
    /// Messages that are no fault of a channel and that the table of the drivers' formats explains, by
    /// format.
    pub messages: Vec<DriverMessage>,
    /// Lines of more formats than are kept.
    pub messages_dropped: u64,
    /// Lines that cannot be explained; `unknown` holds the last of them.
    pub unknown_found: u64,
    /// Those of them that report an error.
    pub unknown_errors: u64,
    /// Those lines.
    pub unknown: Vec<UnknownLine>,
}

impl FaultReport {
    /// Whether another fault is the same at another time or of another channel.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let place = |f: &Self| {
            let failed =
                f.sms.iter().find(|sm| sm.is_error()).map(|sm| (sm.pc, sm.warp_esr.code, sm.address));
            (failed, f.mmu.first().and_then(|m| m.address))
        };
        let pid = |f: &Self| f.owners.iter().find_map(|o| o.pid);
        let machine = |f: &Self| (f.device.clone(), f.host.clone());
        (self.subject, &self.what, machine(self)) == (other.subject, &other.what, machine(other))
            && self.verdict == other.verdict
            && place(self) == place(other)
            && pid(self) == pid(other)
            && self.causes == other.causes
            && self.notes == other.notes
    }

    /// Returns the error, the owners and the place: names and values. The SMs that failed come first; those
    /// that were only stopped are counted, unless there is nothing else.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        let mut row = |name, value| facts.push((name, value));
        row("fault of", self.judgement.words());
        row("do", self.judgement.action.clone());
        if let Some(root) = &self.root {
            row("caused by", format!("line {}: {} ({})", root.line, root.what, root.evidence));
        }
        if let Some(words) = self.repeats.words() {
            row("how often", words);
        }
        // An Xid's name is its number, decimal as people search for it.
        let code = self.what.code.filter(|_| !self.what.name.starts_with("Xid "));
        let code = code.map_or(String::new(), |code| format!(" ({code})"));
        row("what", format!("{}{code}: {}", self.what.name, self.what.words));
        for owner in self.owners.iter().map(Owner::words).filter(|words| !words.is_empty()) {
            row("who", owner);
        }
        let failed = self.sms.iter().filter(|sm| sm.is_error()).count();
        let shown = failed.max(1).min(self.sms.len());
        for sm in &self.sms[..shown] {
            row("where", sm_words(sm));
            for note in &sm.notes {
                row("", note.clone());
            }
        }
        match self.sms.len() - shown {
            0 => {}
            rest => row(
                "",
                format!("and {} only stopped, or whose record was cleared", counted(rest as u64, "SM")),
            ),
        }
        for fault in &self.mmu {
            row("address", mmu_words(fault));
        }
        facts
    }

    /// Returns the memory at the address, and further facts of the lines: names and values.
    pub(super) fn circumstances(&self) -> Vec<(&'static str, String)> {
        let mut rows = Vec::new();
        if let Some(access) = &self.access {
            rows.push(("touched", format!("{}: {}", access.address, access.words)));
        }
        if let Some(trap) = &self.window_trap {
            let how = if trap.certain { "this is" } else { "this looks like" };
            let words = format!("{how} a global access that the SM took for shared or local memory");
            rows.push(("window trap", words));
            if let (Some(mapping), Some(window)) = (&trap.mapping, &trap.window) {
                let (what, va, end) = (&mapping.what, mapping.va, Hex(mapping.end()));
                rows.push(("", format!("the {what} at {va}..{end} lies in the {window} window")));
            }
        }
        rows.extend(self.notes.iter().map(|note| ("note", note.clone())));
        rows
    }

    /// The device and the time, as they follow the verdict.
    pub(super) fn on_device(&self) -> String {
        let device = self.device.as_ref().map_or(String::new(), |device| format!(" on {device}"));
        let time = self.repeats.first().map_or(String::new(), |time| format!(" at {time}"));
        format!("{device}{time}")
    }

    /// Writes the report as text.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{PROBLEM}{}{PROBLEM:#}{}", self.verdict, self.on_device())?;
        for (name, value) in self.facts() {
            row(out, name, &value)?;
        }
        if let Some(guess) = &self.guess {
            row(out, "guess", &guess.words())?;
        }
        for code in &self.code {
            self.print_code(out, code)?;
        }
        for (name, value) in self.circumstances() {
            row(out, name, &value)?;
        }
        list(out, "likely causes", &self.causes)?;
        list(out, "try", &self.try_next)?;
        if !self.evidence.is_empty() {
            writeln!(out, "  {NAME}from these lines{NAME:#}")?;
        }
        for e in self.evidence.iter().filter(|e| e.role != Role::Dump) {
            let number = e.xid.map_or(String::new(), |number| format!("Xid {number}: "));
            writeln!(out, "    {ASIDE}{:>6}{ASIDE:#}  {number}{}", e.line, e.text)?;
            if !e.missing.is_empty() {
                writeln!(out, "            {ASIDE}cut short: no {}{ASIDE:#}", e.missing.join(", "))?;
            }
        }
        let dump = self.evidence.iter().filter(|e| e.role == Role::Dump).count();
        if dump > 0 {
            let lines = counted(dump as u64, "line");
            writeln!(out, "            {ASIDE}and {lines} of the dump that followed{ASIDE:#}")?;
        }
        if !self.consequences.is_empty() {
            writeln!(out, "  {NAME}followed by{NAME:#}")?;
        }
        for link in &self.consequences {
            writeln!(out, "    {ASIDE}{:>6}{ASIDE:#}  {} ({})", link.line, link.what, link.evidence)?;
            writeln!(out, "            {ASIDE}{}{ASIDE:#}", link.text)?;
        }
        if self.consequences_dropped > 0 {
            writeln!(out, "            {ASIDE}and {} more{ASIDE:#}", self.consequences_dropped)?;
        }
        if self.evidence_dropped > 0 {
            let lines = counted(self.evidence_dropped, "line");
            writeln!(out, "            {ASIDE}and {lines} more{ASIDE:#}")?;
        }
        Ok(())
    }

    fn print_code(&self, out: &mut dyn Write, code: &Code) -> io::Result<()> {
        row(out, "instruction", &place_words(code))?;
        code.source.iter().try_for_each(|source| source.print(out, "                "))?;
        for line in &code.listing {
            let mark = if line.here { "-->" } else { "   " };
            writeln!(out, "                {mark} {:>7}  {}", line.offset, line.text)?;
        }
        Ok(())
    }
}

impl Owner {
    fn words(&self) -> String {
        let mut parts = Vec::new();
        match (&self.comm, self.pid) {
            (Some(comm), Some(pid)) => parts.push(format!("{comm} (pid {pid})")),
            (Some(comm), None) => parts.push(comm.clone()),
            (None, Some(pid)) => parts.push(format!("pid {pid}")),
            (None, None) => {}
        }
        parts.extend(self.channel.map(|c| format!("channel {c}")));
        parts.extend(self.tsg.map(|t| format!("group {t}")));
        if let (Some(code), Some(name)) = (self.notifier, self.notifier_name) {
            parts.push(format!("notified of {code} {name}"));
        }
        parts.join(", ")
    }
}

/// The place of an instruction, and whether that is a guess.
pub(super) fn place_words(code: &Code) -> String {
    let place = match code.place() {
        Some(place) => format!("{place} in {}", code.module),
        _ if code.named_by_log => format!("as {} names it", code.module),
        _ => format!("in {}, outside its functions", code.module),
    };
    let option = code.option;
    let guess = match (code.certain, code.base) {
        _ if code.doubtful => " (it cannot raise this error: the base given is doubtful)".to_owned(),
        (true, _) => String::new(),
        (false, Some(base)) => {
            // A name to copy, unless it is longer than a command line should be.
            let kernel = code.function.as_deref().filter(|name| name.len() <= 80).unwrap_or("KERNEL");
            format!(" (one that fits; {option} FILE:{kernel}@{base} if it is this)")
        }
        (false, None) => " (one that fits)".to_owned(),
    };
    format!("{place}{guess}")
}

fn sm_words(sm: &SmRecord) -> String {
    let mut parts = Vec::new();
    if let Some(place) = sm.place {
        let in_tpc = place.sm.map_or(String::new(), |sm| format!(" SM {sm}"));
        parts.push(format!("GPC {} TPC {}{in_tpc}", place.gpc, place.tpc));
    }
    parts.extend(sm.sm_id.map(|id| format!("SM number {id}")));
    if sm.warp_esr.code != 0 {
        parts.push(format!("warp {}", sm.warp_esr.warp));
        parts.push(format!("{} (ESR {})", sm.warp_esr.name.unwrap_or("unknown code"), sm.warp_esr.value));
    }
    if !sm.global_esr.bits.is_empty() {
        parts.push(format!("{} (global {})", sm.global_esr.bits.join(" | "), sm.global_esr.value));
    }
    parts.extend(sm.pc.map(|pc| format!("pc {pc}")));
    parts.extend(sm.address.map(|address| format!("address {address}")));
    parts.join(", ")
}

fn mmu_words(fault: &MmuFault) -> String {
    let mut parts = Vec::new();
    parts.extend(fault.address.map(|a| a.to_string()));
    parts.extend(fault.fault.clone());
    parts.extend(fault.access_name.clone());
    if let Some(client) = &fault.client {
        let gpc = fault.gpc.map_or(String::new(), |gpc| format!(" of GPC {gpc}"));
        parts.push(format!("by {client}{gpc} ({})", fault.client_words()));
    }
    parts.extend(fault.engine.as_ref().map(|e| format!("engine {e}")));
    parts.join(", ")
}

fn row(out: &mut dyn Write, name: &str, value: &str) -> io::Result<()> {
    writeln!(out, "  {NAME}{name:<14}{NAME:#}{value}")
}

fn list(out: &mut dyn Write, name: &str, items: &[String]) -> io::Result<()> {
    if items.is_empty() {
        return Ok(());
    }
    writeln!(out, "  {NAME}{name}{NAME:#}")?;
    for (index, item) in items.iter().enumerate() {
        writeln!(out, "    {}. {item}", index + 1)?;
    }
    Ok(())
}

impl Report for FaultList {
    const SCHEMA: &'static str = "nvdiag.esr/1";

    fn has_problem(&self) -> bool {
        self.found > 0 || self.unknown_errors > 0 || self.messages.iter().any(|m| m.is_problem)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let earlier = self.found.saturating_sub(self.faults.iter().map(|f| f.repeats.count).sum());
        let kinds = earlier + self.faults.len() as u64;
        if earlier > 0 {
            writeln!(
                out,
                "{ASIDE}not shown: {}; --last {} shows all{ASIDE:#}\n",
                counted(earlier, "earlier fault"),
                self.found
            )?;
        }
        for (index, fault) in self.faults.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            if kinds > 1 {
                let number = earlier + index as u64 + 1;
                writeln!(out, "{HEADING}fault {number} of {kinds}{HEADING:#}")?;
            }
            fault.print(out)?;
        }
        self.print_messages(out)?;
        self.print_unknown(out)
    }
}

impl FaultList {
    /// Prints the drivers' reports beside faults of channels, and whether there was anything at all.
    pub(super) fn print_messages(&self, out: &mut dyn Write) -> io::Result<()> {
        let (errors, others): (Vec<_>, Vec<_>) = self.messages.iter().partition(|m| m.is_problem);
        match (self.found, self.lines) {
            (1.., _) if errors.is_empty() => {}
            (1.., _) => writeln!(out)?,
            (0, 0) => writeln!(out, "no GPU fault in {}: no lines at all", self.source)?,
            _ if !errors.is_empty() || self.unknown_errors > 0 => {}
            (0, lines) => writeln!(out, "no GPU fault in {} ({})", self.source, counted(lines, "line"))?,
        }
        let (first, followed): (Vec<_>, Vec<_>) = errors.into_iter().partition(|m| m.follows.is_none());
        for message in first {
            message.print(out)?;
        }
        if !followed.is_empty() {
            let lines = followed.iter().map(|m| m.count).sum();
            writeln!(out, "{ASIDE}after it the driver also reported {}:{ASIDE:#}", counted(lines, "error"))?;
        }
        for message in followed {
            message.print_folded(out)?;
        }
        if !others.is_empty() {
            writeln!(out, "{ASIDE}the drivers also printed (nothing that failed):{ASIDE:#}")?;
        }
        for message in others {
            message.print_folded(out)?;
        }
        if self.messages_dropped > 0 {
            let lines = counted(self.messages_dropped, "line");
            writeln!(out, "    {ASIDE}and {lines} more, of other formats{ASIDE:#}")?;
        }
        Ok(())
    }

    pub(super) fn print_unknown(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.unknown_found == 0 {
            return Ok(());
        }
        if self.unknown_errors > 0 {
            let errors = counted(self.unknown_errors, "error");
            writeln!(out, "{PROBLEM}the driver reported {errors} that nvdiag cannot explain{PROBLEM:#}")?;
        }
        let shown = self.unknown.len() as u64;
        let rest = self.unknown_found - self.unknown_errors;
        if rest > 0 {
            writeln!(
                out,
                "{ASIDE}{} of a GPU driver, no errors, are not known{ASIDE:#}",
                counted(rest, "line")
            )?;
        }
        if shown < self.unknown_found {
            writeln!(out, "    {ASIDE}the last {shown} of them:{ASIDE:#}")?;
        }
        for line in &self.unknown {
            writeln!(out, "    {ASIDE}{:>6}{ASIDE:#}  {}", line.line, line.text)?;
            if let Some(unit) = &line.unit {
                writeln!(out, "            {ASIDE}from {unit}{ASIDE:#}")?;
            }
        }
        Ok(())
    }
}
