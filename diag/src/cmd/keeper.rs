//! Actions of `nvdiag watch` on a fault: explains it with the mappings of its process, saves it once, counts
//! equal ones, and waits while the disk is full.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::bail;
use nvdiag::Report;
use nvdiag::fault::{FaultList, FaultReport, Incident, UnknownLine, explain};
use nvdiag::saved::{Entry, Saved};
use nvdiag::session::Session;

use crate::cmd::finding::Finding;
use crate::cmd::snapshot::Snapshot;
use crate::cmd::store::{REPORT_JSON, REPORT_TEXT, Record, Store};

/// Bytes kept of the log before a fault and after it.
const LOG_BYTES: usize = 128 << 10;
/// Faults remembered, to recognize equal ones.
const RECENT: usize = 16;
/// Time after which an equal fault is saved again.
const EQUAL: Duration = Duration::from_secs(60);
/// Most faults saved in a minute, so that a flood does not remove earlier ones.
const PER_MINUTE: usize = 20;
/// Faults kept in memory while they cannot be saved.
const WAITING: usize = 4;
/// Time between attempts to save them.
const AGAIN: Duration = Duration::from_secs(30);

/// The end of a log.
#[derive(Debug, Default)]
pub struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    /// Adds bytes, and drops the oldest lines of those that are too many.
    pub fn add(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        if self.bytes.len() <= LOG_BYTES {
            return;
        }
        let from = self.bytes.len() - LOG_BYTES / 2;
        let line = self.bytes[from..].iter().position(|b| *b == b'\n').map_or(from, |end| from + end + 1);
        self.bytes.drain(..line);
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A fault that was seen a moment ago.
#[derive(Debug)]
struct Recent {
    list: FaultList,
    /// Its number is 0 until it is saved.
    entry: Entry,
    seen: Instant,
}

/// Saves faults, each once.
#[derive(Debug)]
pub struct Keeper {
    store: Store,
    maps: Option<PathBuf>,
    source: String,
    recent: VecDeque<Recent>,
    /// Times at which the last ones were saved.
    times: VecDeque<Instant>,
    /// Faults that could not be saved yet, oldest first.
    waiting: VecDeque<Record>,
    /// Time of the last attempt.
    tried: Instant,
    /// Faults that could not be saved and are not kept in memory.
    lost: u64,
    /// Faults that are too many to save, since the last report of that.
    flooded: u64,
    finding: Finding,
}

impl Keeper {
    /// A keeper that saves the faults of a log to `store`; `source` is the name of the log, `maps` the folder
    /// in which programs leave their address maps.
    pub fn new(store: Store, maps: Option<PathBuf>, source: String) -> Self {
        Self {
            store,
            maps,
            source,
            recent: VecDeque::new(),
            times: VecDeque::new(),
            waiting: VecDeque::new(),
            tried: Instant::now(),
            lost: 0,
            flooded: 0,
            finding: Finding::Clean,
        }
    }

    /// Saves the faults that a session has found since the last call; `log` holds the bytes it read last.
    pub fn hear(&mut self, session: &mut Session, log: &[u8]) -> Vec<Saved> {
        let faults = session.take_faults();
        let mut rest = session.take_reports(&self.source);
        let explained = faults.iter().map(|(seen, _)| seen.repeats.count).sum();
        self.flooded += std::mem::take(&mut rest.found).saturating_sub(explained);
        let mut saved = Vec::new();
        for (seen, incident) in faults {
            saved.extend(self.fault(&seen, &incident, &mut rest, log));
        }
        if rest.has_problem() {
            let entry = self.entry(words_of(&rest), None);
            saved.extend(self.keep(rest, entry, log, Snapshot::default()));
        }
        match std::mem::take(&mut self.flooded) {
            0 => {}
            count => eprintln!("nvdiag: {count} more seen and not saved: over {PER_MINUTE} in a minute"),
        }
        if self.tried.elapsed() > AGAIN {
            saved.extend(self.save_waiting());
        }
        saved
    }

    /// Tries once more to save the faults that are left, and announces those that were saved.
    ///
    /// # Errors
    /// Faults could not be saved.
    pub fn end(mut self, announce: &mut dyn FnMut(&Saved)) -> anyhow::Result<Finding> {
        self.save_waiting().iter().for_each(announce);
        match self.lost + self.waiting.len() as u64 {
            0 => Ok(self.finding),
            1 => bail!("1 fault could not be saved"),
            lost => bail!("{lost} faults could not be saved"),
        }
    }

    /// Saves a fault. Errors of the driver at the time of one that was not seen before belong to it.
    fn fault(
        &mut self,
        seen: &FaultReport,
        incident: &Incident,
        rest: &mut FaultList,
        log: &[u8],
    ) -> Vec<Saved> {
        self.times.retain(|at| at.elapsed() <= Duration::from_secs(60));
        let snapshot = match self.times.len() < PER_MINUTE {
            true => Snapshot::of(&seen.owners, self.maps.as_deref()),
            false => Snapshot::default(),
        };
        let report = FaultReport { repeats: seen.repeats.clone(), ..explain(incident, &snapshot.map) };
        let mut entry = self.entry(report.verdict.clone(), Some(&report));
        entry.processes.clone_from(&snapshot.processes);
        entry.notes.clone_from(&snapshot.notes);
        let source = self.source.clone();
        let seen_before = |recent: &Recent| recent.list.faults.iter().any(|fault| fault.is_same(&report));
        let rest = match self.recent.iter().any(seen_before) {
            true => FaultList::default(),
            false => std::mem::take(rest),
        };
        let list = FaultList { source, found: report.repeats.count, faults: vec![report], ..rest };
        self.keep(list, entry, log, snapshot)
    }

    fn entry(&self, verdict: String, report: Option<&FaultReport>) -> Entry {
        let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        Entry {
            saved: now.clone(),
            last_seen: now,
            count: report.map_or(1, |report| report.repeats.count),
            verdict,
            device: report.and_then(|report| report.device.clone()),
            time_us: report.and_then(|report| report.time_us),
            source: self.source.clone(),
            ..Entry::default()
        }
    }

    /// Saves a fault, or counts it if it is one that was seen a moment ago.
    fn keep(&mut self, list: FaultList, entry: Entry, log: &[u8], snapshot: Snapshot) -> Vec<Saved> {
        self.finding = Finding::Problem;
        self.recent.retain(|recent| recent.seen.elapsed() <= EQUAL);
        if let Some(same) = self.recent.iter_mut().find(|recent| is_same(&recent.list, &list)) {
            same.seen = Instant::now();
            same.entry.count += entry.count;
            same.entry.last_seen = entry.last_seen;
            self.store.count(&same.entry);
            return Vec::new();
        }
        self.times.retain(|at| at.elapsed() <= Duration::from_secs(60));
        if self.times.len() >= PER_MINUTE {
            self.flooded += entry.count;
            return Vec::new();
        }
        self.times.push_back(Instant::now());
        let record = match record(&list, entry.clone(), log, snapshot) {
            Ok(record) => record,
            Err(error) => {
                self.lost += 1;
                eprintln!("nvdiag: cannot write the report of {}: {error:#}", entry.verdict);
                return Vec::new();
            }
        };
        self.recent.push_back(Recent { list, entry, seen: Instant::now() });
        if self.recent.len() > RECENT {
            self.recent.pop_front();
        }
        if self.waiting.len() < WAITING {
            self.waiting.push_back(record);
        } else {
            self.lost += 1;
            eprintln!("nvdiag: not saved, {WAITING} others wait for the disk: {}", record.entry.verdict);
        }
        self.save_waiting()
    }

    /// Saves what waits, up to the first that cannot be saved.
    fn save_waiting(&mut self) -> Vec<Saved> {
        let mut all = Vec::new();
        self.tried = Instant::now();
        while let Some(record) = self.waiting.front() {
            let saved = match self.store.save(record) {
                Ok(saved) => saved,
                Err(error) => {
                    eprintln!("nvdiag: cannot save yet: {}: {error}", record.entry.verdict);
                    break;
                }
            };
            let first = |recent: &&mut Recent| {
                recent.entry.number == 0
                    && (&recent.entry.verdict, &recent.entry.saved)
                        == (&saved.entry.verdict, &saved.entry.saved)
            };
            if let Some(recent) = self.recent.iter_mut().find(first) {
                recent.entry.number = saved.entry.number;
                // Equal ones that came while it waited.
                if recent.entry != saved.entry {
                    self.store.count(&recent.entry);
                }
            }
            self.waiting.pop_front();
            all.push(saved);
        }
        all
    }
}

/// Whether two of these are the same fault, or the same messages of a driver.
fn is_same(a: &FaultList, b: &FaultList) -> bool {
    match (a.faults.as_slice(), b.faults.as_slice()) {
        ([a], [b]) => a.is_same(b),
        ([], []) => {
            let meanings = |list: &FaultList| -> Vec<String> {
                let problems = list.messages.iter().filter(|message| message.is_problem);
                problems.map(|message| message.meaning.clone()).collect()
            };
            // Times and values differ.
            let words = |line: &UnknownLine| line.text.chars().filter(|c| !c.is_ascii_digit()).collect();
            let unknown = |list: &FaultList| -> Vec<String> {
                list.unknown.iter().filter(|line| line.is_error).map(words).collect()
            };
            (meanings(a), unknown(a)) == (meanings(b), unknown(b))
        }
        _ => false,
    }
}

/// Errors of a driver that are no fault of a channel, in one sentence.
fn words_of(list: &FaultList) -> String {
    match list.messages.iter().find(|message| message.is_problem) {
        Some(message) => message.meaning.clone(),
        None => "the driver reported an error that nvdiag cannot explain".to_owned(),
    }
}

/// The files of a fault.
fn record(list: &FaultList, entry: Entry, log: &[u8], snapshot: Snapshot) -> anyhow::Result<Record> {
    let (mut json, mut text) = (Vec::new(), Vec::new());
    list.print_json(&mut json)?;
    list.print(&mut text)?;
    let text = anstream::adapter::strip_bytes(&text).into_vec();
    let mut files = snapshot.files;
    files.push((REPORT_JSON.to_owned(), json));
    files.push((REPORT_TEXT.to_owned(), text));
    files.push(("log.txt".to_owned(), log.to_vec()));
    Ok(Record { entry, files })
}
