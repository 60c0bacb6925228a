//! Causes and consequences among the faults of a log: per GPU and time one story.
//!
//! A link says which line leads to which and why that is so: the driver names the cause, or the lines are of
//! one GPU or program and close in time.

use std::collections::VecDeque;

use crate::catalogue::{self, Class};
use crate::fault::judgement::{Judgement, Link, Sure};
use crate::fault::message::DriverMessage;
use crate::fault::report::{FaultReport, Owner, Subject};
use crate::kernel_log::lines::Kind;
use crate::kernel_log::{Entry, Time};
use crate::known_lines::line::Severity;

/// Lines near a fault that are kept in case it is one's cause or consequence.
const MAX_CONTEXT: usize = 64;
/// Consequences kept of one fault.
const MAX_LINKS: usize = 32;
/// Lines between cause and consequence in a log without times.
const MAX_LINES: u64 = 100;
const SECOND: u64 = 1_000_000;

/// Lines that are no fault by themselves.
#[derive(Debug, Default)]
pub(crate) struct Context(VecDeque<(Entry, bool)>);

impl Context {
    /// Keeps a line.
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.0.len() == MAX_CONTEXT {
            self.0.pop_front();
        }
        self.0.push_back((entry, false));
    }

    /// Lines of the desktop driver that report a failure and belong to no fault.
    pub(crate) fn failures(&mut self) -> Vec<Entry> {
        let is_left =
            |(entry, used): &(Entry, bool)| entry.kind == Kind::Nvrm && !used && says_trouble(&entry.text);
        std::mem::take(&mut self.0).into_iter().filter(is_left).map(|(entry, _)| entry).collect()
    }
}

/// Place of a line in the log.
#[derive(Clone, Copy)]
struct At {
    line: u64,
    time: Option<Time>,
}

impl At {
    /// The distance to a later line in words, if it is at most `micros` away.
    fn before(self, later: Self, micros: u64) -> Option<String> {
        match (self.time, later.time) {
            (Some(a), Some(b)) => a.is_within(b, micros).then(|| match b.micros.saturating_sub(a.micros) {
                gap if gap >= SECOND => format!("{} s later", gap / SECOND),
                gap if gap >= 1000 => format!("{} ms later", gap / 1000),
                _ => "at once".to_owned(),
            }),
            _ => {
                let lines = later.line.saturating_sub(self.line);
                (lines <= MAX_LINES).then(|| format!("{lines} lines later"))
            }
        }
    }
}

fn at(report: &FaultReport) -> At {
    At { line: report.cause_line, time: report.repeats.first() }
}

/// Orders faults into stories: those that follow from another become its consequences.
pub(crate) fn tell<T>(
    faults: Vec<(FaultReport, T)>,
    messages: &[DriverMessage],
    context: &mut Context,
) -> Vec<(FaultReport, T)> {
    let mut told: Vec<(FaultReport, T)> = Vec::new();
    for (fault, incident) in faults {
        let cause = told.iter_mut().rev().find_map(|(cause, _)| Some((leads_to(cause, &fault)?, cause)));
        match cause {
            Some((evidence, cause)) => {
                if let Some(number) = fault.xid.filter(|number| !cause.led_to.contains(number)) {
                    cause.led_to.push(number);
                }
                cause.absorb(Link {
                    line: fault.cause_line,
                    what: format!("{}{}", fault.verdict, fault.on_device()),
                    evidence,
                    text: fault.cause_text(),
                });
                fault.consequences.into_iter().for_each(|link| cause.absorb(link));
            }
            None => told.push((fault, incident)),
        }
    }
    told.retain(|(fault, _)| !is_of_container(fault, messages));
    for (fault, _) in &mut told {
        fault.recover();
        fault.led_to.truncate(4);
        if !fault.led_to.is_empty() {
            let numbers = fault.led_to.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            fault.verdict += &format!(", then Xid {numbers}");
        }
        of_context(fault, context);
        if fault.root.is_none() {
            of_message(fault, messages);
        }
    }
    told
}

impl FaultReport {
    fn absorb(&mut self, link: Link) {
        match self.consequences.len() < MAX_LINKS {
            true => self.consequences.push(link),
            false => self.consequences_dropped += 1,
        }
    }

    /// The line that reports the cause.
    fn cause_text(&self) -> String {
        let line = self.evidence.iter().find(|e| e.line == self.cause_line).or(self.evidence.first());
        line.map_or(String::new(), |e| e.text.clone())
    }

    fn has(&self, kinds: &[Kind]) -> bool {
        self.evidence.iter().any(|e| kinds.contains(&e.kind))
    }

    /// Whether it names no reason of its own: a channel that was stopped, or a recovery that failed.
    fn is_sequel(&self) -> bool {
        let gave_up = self.has(&[Kind::Quiesce, Kind::RecoveryFailed, Kind::PreemptTimeout]);
        match self.xid.and_then(catalogue::xid) {
            Some(known) => known.class == Class::Consequence || matches!(known.number, 43 | 45 | 154),
            None => matches!(self.subject, Subject::Channel) || gave_up && self.subject == Subject::Driver,
        }
    }

    /// Whether it leaves the GPU unusable, so that all of its work fails.
    fn takes_gpu_down(&self) -> bool {
        matches!(self.xid, Some(61 | 62 | 119 | 120))
            || catalogue::class_of(self.xid) == Some(Class::Hardware)
    }
}

/// The evidence that `effect` follows from `cause`.
fn leads_to(cause: &FaultReport, effect: &FaultReport) -> Option<String> {
    let (from, to) = (at(cause), at(effect));
    if cause.host.as_ref().zip(effect.host.as_ref()).is_some_and(|(a, b)| a != b) {
        return None;
    }
    let same_gpu = cause.device == effect.device || cause.device.is_none() || effect.device.is_none();
    if effect.previous.is_some() && effect.previous == cause.xid && same_gpu {
        let number = effect.previous.unwrap_or(0);
        from.before(to, 600 * SECOND)?;
        return Some(format!("the driver names Xid {number} as its cause"));
    }
    let near = |seconds| from.before(to, seconds * SECOND);
    let link = [Kind::PcieError, Kind::PcieLinkDown];
    if cause.has(&link) && effect.has(&link) {
        return near(10).map(|gap| format!("the link above or below, {gap}"));
    }
    let failed_start = [Kind::InitFailed, Kind::Refused];
    if cause.has(&[Kind::FirmwareMissing, Kind::PowerCable, Kind::BarInvalid, Kind::InitFailed])
        && effect.has(&failed_start)
    {
        return near(10).map(|gap| format!("the same start, {gap}"));
    }
    if cause.has(&[Kind::HeatShutdown]) && effect.has(&[Kind::HeatShutdown]) {
        return near(60).map(|gap| format!("the same shutdown, {gap}"));
    }
    let is_lost = cause.xid == Some(79) && effect.has(&[Kind::GpuLost]);
    if is_lost || cause.has(&[Kind::NvSwitch]) && effect.xid.is_some_and(|x| matches!(x, 74 | 144..=150)) {
        return near(10).map(|gap| format!("same link, {gap}"));
    }
    if cause.has(&link) && is_of_link(effect) {
        let port = cause.port_of(effect)?;
        return near(10).map(|gap| format!("{port}; the GPU's error {gap}"));
    }
    if cause.has(&[Kind::OomKill]) && is_of_memory(cause, effect) {
        return near(10).map(|gap| format!("the process was ended for want of memory; {gap}"));
    }
    let stopped = matches!(effect.subject, Subject::Timeout | Subject::Channel) || effect.is_sequel();
    if cause.has(&[Kind::OverCurrent, Kind::HeatShutdown])
        && (stopped || effect.xid.is_some_and(|x| matches!(x, 8 | 62 | 79 | 109)))
    {
        return near(60).map(|gap| format!("power or heat before; {gap}"));
    }
    let same_driver = cause.xid.is_some() == effect.xid.is_some();
    if !same_gpu || !same_driver || cause.subject == Subject::Platform {
        return None;
    }
    // A reset channel of another program may have a fault of its own.
    let pid = |fault: &FaultReport| fault.owners.iter().find_map(|owner| owner.pid);
    let other_program = pid(cause).is_some() && pid(effect).is_some() && pid(cause) != pid(effect);
    if effect.xid == Some(43) && other_program && !cause.takes_gpu_down() {
        return None;
    }
    if effect.is_sequel() {
        return near(10).map(|gap| format!("same GPU, {gap}"));
    }
    let is_other = cause.xid != effect.xid;
    (cause.takes_gpu_down() && is_other).then(|| near(10).map(|gap| format!("same GPU, {gap}")))?
}

impl FaultReport {
    /// The port or device that reports, if it can be that of the other fault's GPU.
    fn port_of(&self, gpu: &Self) -> Option<String> {
        let gpu = gpu.device.as_deref().unwrap_or("");
        let from = self.evidence.iter().find_map(|e| e.fields.text("from"));
        let named: Vec<&str> = from.into_iter().chain(self.device.as_deref()).collect();
        let is_gpu = !gpu.is_empty() && named.iter().any(|name| name.starts_with(gpu));
        match (is_gpu, from) {
            (true, _) => Some(format!("PCIe names the GPU ({gpu})")),
            // A port, which may be that above the GPU.
            (false, Some(from)) if Some(from) != self.device.as_deref() => None,
            (false, _) => self.device.as_ref().map(|port| format!("the port {port} reports before")),
        }
    }
}

/// Whether a broken link explains the fault.
fn is_of_link(fault: &FaultReport) -> bool {
    fault.xid.is_some_and(|x| matches!(x, 61 | 62 | 79 | 119 | 120 | 140 | 154 | 45))
        || fault.has(&[Kind::InitFailed, Kind::Refused, Kind::GpuLost])
}

/// Whether a process was ended for the limit of its container, and no line says that it used the GPU.
fn is_of_container(fault: &FaultReport, messages: &[DriverMessage]) -> bool {
    let here = at(fault);
    let is_near = |m: &DriverMessage| {
        let there = At { line: m.line, time: m.time };
        let (first, second) = if there.line < here.line { (there, here) } else { (here, there) };
        m.is_problem && first.before(second, 60 * SECOND).is_some()
    };
    let is_cgroup = fault.evidence.iter().any(|e| e.text.starts_with("Memory cgroup out of memory"));
    is_cgroup && fault.consequences.is_empty() && !messages.iter().any(is_near)
}

/// Whether the end of a process for want of memory explains the fault.
fn is_of_memory(killed: &FaultReport, fault: &FaultReport) -> bool {
    let kinds = [Kind::NvmapFreed, Kind::NvmapHandle, Kind::AllocationFailed];
    let same =
        |a: &Owner, b: &Owner| a.pid.is_some() && a.pid == b.pid || a.comm.is_some() && a.comm == b.comm;
    let is_same = fault.owners.iter().any(|a| killed.owners.iter().any(|b| same(a, b)));
    fault.has(&kinds) || is_same && fault.is_sequel()
}

/// Links lines that are no fault by themselves.
fn of_context(fault: &mut FaultReport, context: &mut Context) {
    let here = at(fault);
    let mut last = fault.evidence.last().map_or(here.line, |e| e.line);
    let is_near = |there: At| here.time.zip(there.time).is_none_or(|(a, b)| a.is_within(b, SECOND));
    let host = fault.host.clone();
    // Further lines of a sentence have no head.
    let is_here =
        |(entry, _): &&mut (Entry, bool)| host.is_none() || entry.host.is_none() || entry.host == host;
    for (entry, used) in context.0.iter_mut().filter(is_here) {
        let there = At { line: entry.line, time: entry.time };
        let link = |evidence: String| Link {
            line: entry.line,
            what: entry.kind.meaning().to_owned(),
            evidence,
            text: entry.text.clone(),
        };
        match entry.kind {
            Kind::HungTask if there.line > here.line && fault.is_waited_for(entry) => {
                if let Some(gap) = here.before(there, 400 * SECOND) {
                    fault.absorb(link(format!("a task waits for the GPU, {gap}")));
                }
            }
            Kind::ModuleKey
                if fault.has(&[Kind::KeyRejected])
                    && fault.root.is_none()
                    && there.line < here.line
                    && there.before(here, 30 * SECOND).is_some() =>
            {
                fault.root = Some(link("the module of the GPU was refused behind it".to_owned()));
            }
            Kind::Nvrm if fault.has_number() && there.line > here.line && says_trouble(&entry.text) => {
                if let Some(gap) = here.before(there, 10 * SECOND).filter(|_| !*used) {
                    *used = true;
                    fault.absorb(link(gap));
                }
            }
            // The driver prints a sentence over several lines.
            Kind::Nvrm
                if fault.is_of_nvrm() && there.line > last && there.line <= last + 2 && is_near(there) =>
            {
                fault.say(entry);
                (last, *used) = (there.line, true);
            }
            Kind::Nvrm
                if fault.has(&[Kind::OtherDriver])
                    && there.line < here.line
                    && entry.text.contains("already bound to") =>
            {
                fault.say(entry);
            }
            Kind::Nvrm
                if fault.has(&[Kind::InitFailed, Kind::Refused])
                    && there.line < here.line
                    && says_trouble(&entry.text)
                    && there.before(here, 10 * SECOND).is_some() =>
            {
                *used = true;
                if fault.root.is_none() {
                    fault.root = Some(link("the driver's first error before it".to_owned()));
                    fault.say(entry);
                }
            }
            _ => {}
        }
    }
    if let Some(root) = &fault.root {
        fault.cause_line = root.line;
    }
}

/// Whether a line of the desktop driver says that something failed.
fn says_trouble(text: &str) -> bool {
    let text = text.to_ascii_lowercase();
    ["not responding", "fail", "error", "cannot", "unexpected", "no firmware", "timeout", "bad state"]
        .iter()
        .any(|word| text.contains(word))
}

impl FaultReport {
    fn has_number(&self) -> bool {
        self.xid.is_some() || !self.led_to.is_empty()
    }

    fn is_of_nvrm(&self) -> bool {
        self.has(&[Kind::ApiMismatch, Kind::Refused, Kind::BarInvalid, Kind::InitFailed, Kind::PowerCable])
    }

    /// Whether a task that hangs waits for this fault: its own program's, or any after a failed recovery.
    fn is_waited_for(&self, task: &Entry) -> bool {
        let (pid, comm) = (task.fields.id("pid"), task.fields.text("comm"));
        let is_own = |owner: &Owner| owner.pid.is_some() && owner.pid == pid || owner.comm.as_deref() == comm;
        let gave_up = self.has(&[Kind::Quiesce, Kind::RecoveryFailed]);
        self.subject != Subject::Platform && (gave_up || self.owners.iter().any(is_own))
    }

    /// Adds the recovery that the driver asks for (Xid 154) to the action.
    fn recover(&mut self) {
        let texts =
            self.evidence.iter().map(|e| &e.text).chain(self.consequences.iter().map(|link| &link.text));
        let last = texts.rev().find(|text| text.contains("recovery action changed"));
        let asked = last.and_then(|text| text.rsplit_once('(')?.1.split_once(')'));
        if let Some((asked, _)) = asked.filter(|(asked, _)| *asked != "None") {
            self.judgement.action += &format!("; the driver asks for: {asked}");
        }
    }

    /// Adds what the driver says in a line of its own.
    fn say(&mut self, entry: &Entry) {
        let says = entry.fields.text("says").unwrap_or("");
        if self.notes.len() < 12 {
            self.notes.push(format!("the driver says: {says}"));
        }
        if says.contains("fallen off the bus") {
            let action = "power-cycle the machine; reseat the GPU and check its power cables; if it returns, replace it (RMA)";
            self.judgement = Judgement::new(Class::Hardware, Sure::Likely, action);
        }
        if says.contains("GFW") || says.contains("FSP") {
            let action =
                "power-cycle the machine: the board's own firmware did not start; if it returns, replace it";
            self.judgement = Judgement::new(Class::Hardware, Sure::Possible, action);
        } else if says.contains("WPR2") || says.contains("bad state") {
            let action = "reset the GPU or power-cycle the machine";
            self.judgement = Judgement::new(Class::Driver, Sure::Possible, action);
        }
    }
}

/// A message of the driver before a fault that names no reason of its own is its cause.
fn of_message(fault: &mut FaultReport, messages: &[DriverMessage]) {
    let is_sequel = fault.is_sequel() || fault.has(&[Kind::BringUpFailed]);
    if !is_sequel || fault.has(&[Kind::Notifier]) && fault.subject != Subject::Channel {
        return;
    }
    let here = at(fault);
    let near = |m: &&DriverMessage| {
        let there = At { line: m.line, time: m.time };
        m.is_problem
            && m.severity >= Severity::Channel
            && m.line < here.line
            && there.before(here, 10 * SECOND).is_some()
    };
    if let Some(message) = messages.iter().filter(near).min_by_key(|m| m.line) {
        fault.judgement = Judgement::new(message.whose, Sure::Likely, message.advice.clone());
        fault.cause_line = message.line;
        fault.root = Some(Link {
            line: message.line,
            what: message.meaning.clone(),
            evidence: "the driver's first error before it".to_owned(),
            text: message.text.clone(),
        });
    }
}

/// Marks messages that follow from a fault, or from the first message of the same second.
pub(crate) fn follow(messages: &mut [DriverMessage], faults: &[FaultReport]) {
    messages.sort_by_key(|m| m.line);
    let places: Vec<At> = faults.iter().map(at).collect();
    let mut first: Option<At> = None;
    for message in messages.iter_mut().filter(|m| m.is_problem) {
        let here = At { line: message.line, time: message.time };
        let fault = places.iter().find(|there| {
            there.line == here.line || there.line < here.line && there.before(here, 10 * SECOND).is_some()
        });
        if let Some(there) = fault {
            message.follows = Some(there.line);
            continue;
        }
        match first.filter(|there| there.before(here, 2 * SECOND).is_some()) {
            Some(there) => message.follows = Some(there.line),
            None => first = Some(here),
        }
    }
}
