//! Faults that `nvdiag watch` has saved: their entries, and the list of them.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};
use crate::size::size;

/// A process whose work faulted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, if it is known.
    pub pid: Option<u32>,
    /// Its name.
    pub comm: Option<String>,
    /// Path of its program, if it was alive.
    pub exe: Option<String>,
}

impl Process {
    /// `python3 (4711)`.
    fn words(&self) -> String {
        match (&self.comm, self.pid) {
            (Some(comm), Some(pid)) => format!("{comm} ({pid})"),
            (Some(comm), None) => comm.clone(),
            (None, Some(pid)) => format!("({pid})"),
            (None, None) => "-".to_owned(),
        }
    }
}

/// Entry of a saved fault.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its number in its folder.
    pub number: u64,
    /// Time of saving, as RFC 3339 in UTC.
    pub saved: String,
    /// Time of the last equal one.
    pub last_seen: String,
    /// Number of equal ones within a minute of each other.
    pub count: u64,
    /// The fault in one sentence.
    pub verdict: String,
    /// Device that the lines name.
    pub device: Option<String>,
    /// Time that the log gives, in µs.
    pub time_us: Option<u64>,
    /// The log.
    pub source: String,
    /// Owners of the work.
    pub processes: Vec<Process>,
    /// Notes on parts that could not be kept, and where the address map is from.
    pub notes: Vec<String>,
}

/// A file of a saved fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SavedFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub size_bytes: u64,
}

/// A saved fault.
#[derive(Clone, Debug, Serialize)]
pub struct Saved {
    /// Its entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// The folder that its files are in.
    pub folder: String,
    /// Its files, by name.
    pub files: Vec<SavedFile>,
    /// The report, as `nvdiag esr --json` prints it; none where the fault was saved just now.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub report: Value,
    /// The same as text.
    #[serde(skip)]
    pub text: String,
}

/// The saved faults of a folder.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SavedList {
    /// The folder.
    pub folder: String,
    /// The faults, oldest first.
    pub faults: Vec<Entry>,
    /// Those that cannot be read, and why.
    pub unreadable: Vec<String>,
}

/// Text that was read from a file, without escape sequences for a terminal.
fn harmless(text: &str) -> String {
    let keep = |c: char| !nv_hw::is_obeyed(c) || c == '\n' || c == '\t';
    text.chars().map(|c| if keep(c) { c } else { '\u{fffd}' }).collect()
}

impl Report for Saved {
    const SCHEMA: &'static str = "nvdiag.saved/1";

    fn has_problem(&self) -> bool {
        false
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let Self { entry, folder, files, .. } = self;
        let mut row =
            |name: &str, value: &str| writeln!(out, "  {NAME}{name:<14}{NAME:#}{}", harmless(value));
        row("number", &entry.number.to_string())?;
        row("saved", &entry.saved)?;
        if entry.count > 1 {
            row("how often", &format!("{} times, last at {}", entry.count, entry.last_seen))?;
        }
        row("log", &entry.source)?;
        for process in &entry.processes {
            let exe = process.exe.as_ref().map_or(String::new(), |exe| format!(", {exe}"));
            row("process", &format!("{}{exe}", process.words()))?;
        }
        for note in &entry.notes {
            row("note", note)?;
        }
        row("folder", folder)?;
        for file in files {
            row("", &format!("{} ({})", file.name, size(file.size_bytes)))?;
        }
        writeln!(out)?;
        write!(out, "{}", harmless(&self.text))
    }
}

impl Report for SavedList {
    const SCHEMA: &'static str = "nvdiag.saved-list/1";

    fn has_problem(&self) -> bool {
        false
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.faults.is_empty() {
            writeln!(out, "no faults are saved in {}", self.folder)?;
        } else {
            writeln!(
                out,
                "{HEADING}{:>6}  {:<20}  {:>5}  {:<24}  fault{HEADING:#}",
                "number", "saved", "times", "process"
            )?;
        }
        for entry in &self.faults {
            let names: Vec<String> = entry.processes.iter().map(Process::words).collect();
            let names = if names.is_empty() { "-".to_owned() } else { names.join(", ") };
            writeln!(
                out,
                "{:>6}  {:<20}  {:>5}  {:<24}  {}",
                entry.number,
                harmless(&entry.saved),
                entry.count,
                harmless(&names),
                harmless(&entry.verdict)
            )?;
        }
        if !self.unreadable.is_empty() {
            let what = counted(self.unreadable.len() as u64, "fault");
            writeln!(out, "{PROBLEM}{what} cannot be read{PROBLEM:#}")?;
        }
        for why in &self.unreadable {
            writeln!(out, "  {ASIDE}{}{ASIDE:#}", harmless(why))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Entry {
        Entry {
            number: 7,
            saved: "2026-01-02T03:04:05Z".to_owned(),
            last_seen: "2026-01-02T03:04:09Z".to_owned(),
            count: 3,
            verdict: "a \u{1b}[31mred verdict".to_owned(),
            processes: vec![Process { pid: Some(4711), comm: Some("python3".to_owned()), exe: None }],
            ..Entry::default()
        }
    }

    fn text(report: &impl Report) -> String {
        let mut bytes = Vec::new();
        report.print(&mut bytes).expect("a vector takes everything");
        anstream::adapter::strip_str(std::str::from_utf8(&bytes).expect("UTF-8")).to_string()
    }

    #[test]
    fn a_list_has_a_line_for_each_fault_and_obeys_none() {
        let list = SavedList {
            folder: "/f".to_owned(),
            faults: vec![entry()],
            unreadable: vec!["8: cut".to_owned()],
        };
        let shown = text(&list);
        assert!(
            shown.contains("7  2026-01-02T03:04:05Z      3  python3 (4711)            a \u{fffd}[31mred")
        );
        assert!(shown.contains("1 fault cannot be read\n  8: cut\n"), "{shown}");
        assert!(text(&SavedList::default()).starts_with("no faults are saved in "));
    }

    #[test]
    fn an_entry_is_read_as_it_was_written() {
        let text = serde_json::to_string(&entry()).expect("JSON");
        assert_eq!(serde_json::from_str::<Entry>(&text).expect("an entry"), entry());
    }

    #[test]
    fn a_saved_fault_names_its_files_and_ends_with_its_report() {
        let saved = Saved {
            entry: entry(),
            folder: "/f/000007".to_owned(),
            files: vec![SavedFile { name: "log.txt".to_owned(), size_bytes: 2048 }],
            report: Value::Null,
            text: "the report\n".to_owned(),
        };
        let shown = text(&saved);
        assert!(shown.contains("how often     3 times, last at 2026-01-02T03:04:09Z"), "{shown}");
        assert!(shown.contains("log.txt (2 KiB)") && shown.ends_with("\nthe report\n"), "{shown}");
        let document = saved.json().expect("JSON");
        assert_eq!((&document["schema"], &document["number"]), (&"nvdiag.saved/1".into(), &7.into()));
    }
}
