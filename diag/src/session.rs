//! From the bytes of a log to reports of its faults, in bounded memory.

use std::collections::VecDeque;

use crate::catalogue::{Class, class_of};
use crate::fault::explain::explain;
use crate::fault::incident::{Grouper, Incident};
use crate::fault::message::Messages;
use crate::fault::report::{FaultList, FaultReport, Subject, UnknownLine};
use crate::fault::story::{Context, follow, tell};
use crate::kernel_log::{Entry, Kind, Parsed, Reader, Role, Source, Unread, says_failure};
use crate::known_lines::table::Table;
use crate::process_map::map::ProcessMap;

/// Faults kept beside those that are shown, since some turn out to follow from another.
const SPARE: usize = 32;
/// Unknown lines kept.
const UNKNOWN: usize = 8;

/// A log that is being read.
#[derive(Debug)]
pub struct Session {
    reader: Reader,
    grouper: Grouper,
    found: Found,
}

#[derive(Debug)]
struct Found {
    map: ProcessMap,
    last: usize,
    count: u64,
    /// How many of them are of other units of the chip.
    of_platform: u64,
    /// With the lines of the first of equal ones.
    faults: VecDeque<(FaultReport, Incident)>,
    messages: Messages,
    context: Context,
    unknown_count: u64,
    unknown_errors: u64,
    unknown: VecDeque<UnknownLine>,
}

impl Found {
    fn take(&mut self, incident: &Incident) {
        if let Some((first, second)) = incident.parted() {
            self.take(&first);
            return self.take(&second);
        }
        self.count += 1;
        let report = explain(incident, &self.map);
        self.of_platform += u64::from(report.subject == Subject::Platform);
        if let Some(same) = self.faults.iter_mut().find(|fault| fault.0.is_same(&report)) {
            return same.0.repeats.absorb(&report.repeats);
        }
        self.faults.push_back((report, incident.clone()));
        if self.faults.len() > self.last + SPARE {
            self.faults.pop_front();
        }
    }

    /// Takes a line that is not explained.
    fn unknown(&mut self, unread: Unread) {
        self.unknown_count += 1;
        self.unknown_errors += u64::from(unread.is_error);
        let unit = Table::built_in().unit_around(&unread.text).map(str::to_owned);
        let (line, is_error) = (unread.line, unread.is_error);
        self.unknown.push_back(UnknownLine { line, is_error, unit, text: unread.text });
        if self.unknown.len() > UNKNOWN {
            self.unknown.pop_front();
        }
    }

    /// Takes the line of an Xid that is no fault.
    fn notice(&mut self, entry: Entry) {
        let device = entry.device.unwrap_or_default();
        let text = format!("NVRM: Xid (PCI:{device}): {}, {}", entry.xid.unwrap_or(0), entry.text);
        self.messages.notice(entry.line, entry.time, entry.xid.unwrap_or(0), text);
    }
}

impl Session {
    /// A session that keeps the reports of the last `last` faults.
    #[must_use]
    pub fn new(map: ProcessMap, last: usize) -> Self {
        Self {
            reader: Reader::new(),
            grouper: Grouper::new(),
            found: Found {
                map,
                last,
                count: 0,
                of_platform: 0,
                faults: VecDeque::new(),
                messages: Messages::default(),
                context: Context::default(),
                unknown_count: 0,
                unknown_errors: 0,
                unknown: VecDeque::new(),
            },
        }
    }

    /// Returns the map of the process's address space.
    #[must_use]
    pub const fn map(&self) -> &ProcessMap {
        &self.found.map
    }

    /// Takes the next bytes of the log.
    pub fn feed(&mut self, bytes: &[u8]) {
        let Self { reader, grouper, found } = self;
        reader.feed(bytes, &mut |parsed| sort(parsed, grouper, found));
    }

    /// Takes an incident of another source.
    pub fn take(&mut self, incident: &Incident) {
        self.found.take(incident);
    }

    /// Ends the open incidents: further lines do not belong to them.
    pub fn close(&mut self) {
        let Self { reader, grouper, found } = self;
        reader.finish(&mut |parsed| sort(parsed, grouper, found));
        grouper.finish(&mut |incident| found.take(&incident));
    }

    /// The faults since the last call, each with the lines that explain it, for callers that know more of its
    /// process than this session does. [`Session::take_reports`] then returns the rest.
    pub fn take_faults(&mut self) -> Vec<(FaultReport, Incident)> {
        let found = &mut self.found;
        let mut faults: Vec<_> = std::mem::take(&mut found.faults).into();
        // Incidents end in another order than they begin.
        faults.sort_by_key(|(f, _): &(FaultReport, _)| f.evidence.first().map_or(0, |e| e.line));
        let count =
            |faults: &[(FaultReport, Incident)]| -> u64 { faults.iter().map(|(f, _)| f.repeats.count).sum() };
        let before = count(&faults);
        let mut told = tell(faults, &found.messages.kept(), &mut found.context);
        found.count -= before - count(&told);
        told.drain(..told.len().saturating_sub(found.last));
        told
    }

    /// The reports since the last call.
    pub fn take_reports(&mut self, source: &str) -> FaultList {
        let faults: Vec<FaultReport> = self.take_faults().into_iter().map(|(report, _)| report).collect();
        let found = &mut self.found;
        for entry in found.context.failures() {
            let (line, time, text) = (entry.line, entry.time, entry.text);
            let is_error = says_failure(&text);
            found.unknown(Unread { line, time, source: Source::Other, is_error, text });
        }
        let (mut messages, messages_dropped) = found.messages.hand_out();
        follow(&mut messages, &faults);
        FaultList {
            source: source.to_owned(),
            lines: self.reader.lines(),
            found: std::mem::take(&mut found.count),
            faults,
            messages,
            messages_dropped,
            unknown_errors: std::mem::take(&mut found.unknown_errors),
            unknown_found: std::mem::take(&mut found.unknown_count),
            unknown: std::mem::take(&mut found.unknown).into(),
        }
    }

    /// Returns how many faults the log has, without those of other units of the chip.
    #[must_use]
    pub fn faults_of_gpu(mut self) -> u64 {
        self.close();
        self.found.count - self.found.of_platform
    }

    /// All reports.
    #[must_use]
    pub fn finish(mut self, source: &str) -> FaultList {
        self.close();
        self.take_reports(source)
    }
}

/// A notice whose numbers are none that the driver prints, as a line that is not explained: it has no negative
/// ones.
fn doubted(parsed: Parsed) -> Parsed {
    let is_wrong = |entry: &Entry, name| entry.fields.get(name).is_some() && entry.fields.id(name).is_none();
    match parsed {
        Parsed::Entry(entry)
            if entry.kind == Kind::Notifier && (is_wrong(&entry, "code") || is_wrong(&entry, "channel")) =>
        {
            let (line, time, text) = (entry.line, entry.time, entry.text);
            Parsed::Unknown(Unread { line, time, source: entry.kind.source(), is_error: true, text })
        }
        other => other,
    }
}

/// Whether an Xid reports that nothing failed.
fn is_notice(entry: &Entry) -> bool {
    entry.kind == Kind::XidOther && class_of(entry.xid) == Some(Class::Notice)
}

fn sort(parsed: Parsed, grouper: &mut Grouper, found: &mut Found) {
    match doubted(parsed) {
        Parsed::Entry(entry) if entry.kind.role() == Role::Context => found.context.push(entry),
        Parsed::Entry(entry) if is_notice(&entry) => found.notice(entry),
        Parsed::Entry(entry) => grouper.push(entry, &mut |incident| found.take(&incident)),
        Parsed::Unknown(unread) => {
            if found.messages.take(&unread) {
                return;
            }
            // The name of a driver alone is no finding.
            if unread.source == Source::Other && !unread.is_error {
                return;
            }
            found.unknown(unread);
        }
    }
}
