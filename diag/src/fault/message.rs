//! Messages of drivers that are no fault of a channel, by the table of their formats.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::catalogue::{self, Class};
use crate::kernel_log::{Source, Time, Unread};
use crate::known_lines::line::{Level, Severity, Site};
use crate::known_lines::table::{Known, Table};
use crate::report::style::{ASIDE, NAME, PROBLEM};

/// Formats kept.
const FORMATS: usize = 64;

/// All lines of a log that were printed with one format.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DriverMessage {
    /// Number of the first line.
    pub line: u64,
    /// Number of the last one.
    pub last_line: u64,
    /// Their number.
    pub count: u64,
    /// Time of the first, in µs since boot, or of a clock where the log gives no more.
    pub time_us: Option<u64>,
    /// The same, exact.
    #[serde(skip)]
    pub(super) time: Option<Time>,
    /// Whether something failed: a call, a channel or the GPU, at the level of errors.
    pub is_problem: bool,
    /// Severity for the GPU.
    pub severity: Severity,
    /// At which level it was printed.
    pub level: Level,
    /// Driver that printed it: `nvgpu`, `nvmap`, `nvrm`, `nvgpu`, `nvmap`, `nvrm`, ...
    pub driver: String,
    /// The part of the driver, by name.
    pub unit: String,
    /// The hardware meant.
    pub engine: String,
    /// Meaning.
    pub meaning: String,
    /// Whether the meaning is of this format; otherwise it is drawn from its wording and the part of the
    /// driver.
    pub is_exact: bool,
    /// Owner of the fault.
    pub whose: Class,
    /// Number of an earlier line that it follows from.
    pub follows: Option<u64>,
    /// Advice.
    pub advice: String,
    /// File of the driver, where the table has one.
    pub file: Option<String>,
    /// Function that printed it.
    pub function: Option<String>,
    /// Releases of the driver that have this format.
    pub releases: Vec<String>,
    /// Values of the first line, by name.
    pub values: BTreeMap<String, String>,
    /// The first line.
    pub text: String,
}

impl DriverMessage {
    fn of(unread: &Unread, known: &Known<'_>) -> Self {
        let line = known.line;
        let named = |site: &&Site| !site.function.is_empty() && unread.text.contains(&site.function);
        let site = line.sites.iter().find(named).or_else(|| line.sites.first());
        let given = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        Self {
            line: unread.line,
            last_line: unread.line,
            count: 1,
            time_us: unread.time.map(|time| time.micros),
            time: unread.time,
            // A line's own level counts where it has one.
            is_problem: line.is_problem() && (unread.source == Source::Other || unread.is_error),
            severity: line.severity,
            level: line.level,
            driver: line.driver.clone(),
            unit: line.unit.clone(),
            engine: line.engine.clone(),
            meaning: line.meaning.clone(),
            is_exact: line.by_hand,
            whose: owner(&line.advice, line.severity),
            follows: None,
            advice: match (owner(&line.advice, line.severity), line.advice.as_str()) {
                (Class::Driver, "arguments" | "order" | "space") => {
                    Table::built_in().advice("firmware").to_owned()
                }
                _ => known.advice.to_owned(),
            },
            file: site.and_then(|site| given(&site.file)),
            function: site.and_then(|site| given(&site.function)),
            releases: line.releases.clone(),
            values: known.values.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect(),
            text: unread.text.clone(),
        }
    }

    /// Returns owner, severity, origin, advice and number of its line: names and values.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let severity = self.severity.words().to_owned();
        let owner = self.whose.words().to_owned();
        let mut rows = vec![("fault of", owner), ("severity", severity), ("from", self.origin())];
        if !self.is_exact {
            let how = "the meaning is drawn from the wording of the message and from the part of the driver";
            rows.push(("note", how.to_owned()));
        }
        rows.push(("try", self.advice.clone()));
        rows.push(("line", format!("{}{}", self.line, self.repeated())));
        rows
    }

    /// Writes the message as text.
    pub(super) fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{PROBLEM}{}{PROBLEM:#}", self.meaning)?;
        for (name, value) in self.facts() {
            writeln!(out, "  {NAME}{name:<14}{NAME:#}{value}")?;
        }
        writeln!(out, "    {}", self.text)
    }

    /// Writes the message in one line.
    pub(super) fn print_folded(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "    {ASIDE}{:>6}{ASIDE:#}  {}{}", self.line, self.text, self.repeated())?;
        writeln!(out, "            {ASIDE}{}{ASIDE:#}", self.meaning)
    }

    pub(super) fn repeated(&self) -> String {
        match self.count {
            1 => String::new(),
            count => format!(" ({count} times, the last in line {})", self.last_line),
        }
    }

    fn origin(&self) -> String {
        let place = match (&self.function, &self.file) {
            (Some(function), Some(file)) => format!(", {function} in {file}"),
            (None, Some(file)) => format!(", {file}"),
            (Some(function), None) => format!(", {function}"),
            (None, None) => String::new(),
        };
        format!("{}: {}{place} ({})", self.driver, self.unit, self.releases.join(", "))
    }
}

/// Owner of the fault that a message reports, by the name of the advice on it.
fn owner(advice: &str, severity: Severity) -> Class {
    match advice {
        // What stops the GPU before any program has a part in it.
        "arguments" | "order" | "space" | "memory" | "profiler" if severity == Severity::Gpu => Class::Driver,
        "kernel" | "esr" | "hang" | "command" | "arguments" | "order" | "space" | "memory" | "profiler" => {
            Class::Program
        }
        "ecc" => Class::Hardware,
        "power" => Class::Power,
        "rights" => Class::Configuration,
        "corrected" | "nothing" => Class::Notice,
        _ => Class::Driver,
    }
}

/// The messages of a log, in bounded memory.
#[derive(Debug, Default)]
pub(crate) struct Messages {
    kept: Vec<(&'static str, DriverMessage)>,
    dropped: u64,
}

impl Messages {
    /// Takes a line if the table explains it.
    pub(crate) fn take(&mut self, unread: &Unread) -> bool {
        let Some(known) = Table::built_in().find(&unread.text) else { return false };
        // Without a frame, words such as `busy` may be of any driver.
        if unread.source == Source::Other && !known.function_agrees && !known.line.is_telling() {
            return false;
        }
        // What is printed for information is known, and no finding.
        let is_ecc = matches!(known.line.advice.as_str(), "corrected" | "ecc");
        if known.line.level == Level::Info && !is_ecc && !unread.is_error {
            return true;
        }
        let format = known.line.text.as_str();
        let same = |(kept, message): &&mut (&str, DriverMessage)| {
            *kept == format && message.unit == known.line.unit && message.driver == known.line.driver
        };
        if let Some((_, message)) = self.kept.iter_mut().find(same) {
            message.count += 1;
            message.last_line = unread.line;
        } else if self.kept.len() < FORMATS {
            self.kept.push((format, DriverMessage::of(unread, &known)));
        } else {
            self.dropped += 1;
        }
        true
    }

    /// The messages so far.
    pub(crate) fn kept(&self) -> Vec<DriverMessage> {
        self.kept.iter().map(|(_, message)| message.clone()).collect()
    }

    /// Takes the line of an Xid that reports no fault.
    pub(crate) fn notice(&mut self, line: u64, time: Option<Time>, number: u32, text: String) {
        let Some(known) = catalogue::xid(number) else { return };
        let format = known.title.as_str();
        if let Some((_, message)) = self.kept.iter_mut().find(|(kept, _)| *kept == format) {
            message.count += 1;
            message.last_line = line;
            return;
        }
        let message = DriverMessage {
            line,
            last_line: line,
            count: 1,
            time_us: time.map(|time| time.micros),
            time,
            is_problem: false,
            severity: Severity::Notice,
            level: Level::Info,
            driver: "nvrm".to_owned(),
            unit: "Xid".to_owned(),
            engine: "none".to_owned(),
            meaning: format!("Xid {number}: {}. {}", known.title, known.meaning),
            is_exact: true,
            whose: Class::Notice,
            follows: None,
            advice: known.action.clone(),
            file: None,
            function: None,
            releases: vec!["desktop".to_owned()],
            values: BTreeMap::new(),
            text,
        };
        self.kept.push((format, message));
    }

    /// The messages since the last call, and how many lines of further formats there were.
    pub(crate) fn hand_out(&mut self) -> (Vec<DriverMessage>, u64) {
        let kept = std::mem::take(&mut self.kept);
        (kept.into_iter().map(|(_, message)| message).collect(), std::mem::take(&mut self.dropped))
    }
}
