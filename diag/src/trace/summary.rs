//! A table of the calls: how often, how long, and how often they failed.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};
use crate::trace::decode::decode;
use crate::trace::event::{Call, Event};

/// One row: all calls of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Row {
    /// The call: `open`, `mmap`, or the name of a request with its class or command.
    pub name: String,
    /// Calls.
    pub calls: u64,
    /// Calls that failed, by errno or by the driver's own status.
    pub failed: u64,
    /// Time in all of them.
    pub total_ns: u64,
    /// Time in the longest.
    pub longest_ns: u64,
}

/// The table, longest time first.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Summary {
    /// Rows.
    pub rows: Vec<Row>,
    /// All calls.
    pub calls: u64,
    /// Calls of `ioctl`.
    pub ioctls: u64,
    /// Requests whose name is not known.
    pub unknown: u64,
    /// Submissions, which are no calls.
    pub submissions: u64,
    #[serde(skip)]
    by_name: BTreeMap<String, Row>,
}

impl Summary {
    /// Counts an event.
    pub fn add(&mut self, event: &Event) {
        if matches!(event.call, Call::Submission(_)) {
            self.submissions += 1;
            return;
        }
        let decoded = decode(event);
        let (name, bad_status) = match decoded {
            Some(decoded) => {
                self.ioctls += 1;
                self.unknown += u64::from(!decoded.known);
                let name = match decoded.about {
                    Some(about) => format!("{} {about}", decoded.name),
                    // The argument's address is another each time.
                    None => decoded.name.split(" (").next().unwrap_or_default().to_owned(),
                };
                (name, decoded.status.is_some())
            }
            None => (event.call.name().0.to_owned(), false),
        };
        self.calls += 1;
        let row = self.by_name.entry(name.clone()).or_insert(Row { name, ..Row::default() });
        let took = event.duration_ns.unwrap_or(0);
        row.calls += 1;
        row.failed += u64::from(event.result < 0 || bad_status);
        row.total_ns += took;
        row.longest_ns = row.longest_ns.max(took);
    }

    /// Sorts the rows; nothing is counted afterwards.
    #[must_use]
    pub fn finish(mut self) -> Self {
        self.rows = std::mem::take(&mut self.by_name).into_values().collect();
        self.rows.sort_by(|a, b| b.total_ns.cmp(&a.total_ns).then_with(|| a.name.cmp(&b.name)));
        self
    }
}

impl Report for Summary {
    const SCHEMA: &'static str = "nvdiag.trace-summary/1";

    fn has_problem(&self) -> bool {
        false
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}   calls  failed    total us  longest us  call{HEADING:#}")?;
        for row in &self.rows {
            let failed = match row.failed {
                0 => format!("{ASIDE}{:>6}{ASIDE:#}", ""),
                n => format!("{PROBLEM}{n:>6}{PROBLEM:#}"),
            };
            let (total, longest) = (row.total_ns / 1000, row.longest_ns / 1000);
            writeln!(
                out,
                "{:>8}  {failed}  {total:>10}  {longest:>10}  {NAME}{}{NAME:#}",
                row.calls, row.name
            )?;
        }
        let (calls, ioctls, unknown) = (self.calls, self.ioctls, self.unknown);
        let calls = counted(calls, "call");
        write!(out, "{calls}, {ioctls} of them ioctl, {unknown} of those of unknown requests")?;
        match self.submissions {
            0 => writeln!(out),
            n => writeln!(out, "; {}", counted(n, "submission")),
        }
    }
}
