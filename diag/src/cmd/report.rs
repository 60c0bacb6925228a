//! `nvdiag report`: one archive for a ticket.

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, anyhow, bail, ensure};
use nvdiag::Report;
use nvdiag::doctor::{Machine, examine};
use nvdiag::document;
use nvdiag::machine_report::{Entry, Manifest, Redactor, Versions, collect, listing};
use nvdiag::process_map::{self, ProcessMap};
use nvdiag::session::Session;

use crate::cmd::finding::{Finding, show};
use crate::cmd::machine_files::Files;
use crate::cmd::output_file::OutputFile;
use crate::cmd::replaced::ensure_same_kind;
use crate::cmd::{process, snapshot};

/// Most faults of the log that are explained, the last ones.
const FAULTS: usize = 100;

/// Write one archive for a ticket: versions, errors, temperatures, clocks, power, the kernel log, its faults.
///
/// Shows the list of what it holds first, and asks. Names of users and hosts, folders of users, serial
/// numbers, MAC and IP addresses, command lines and what reads like a password or a token are replaced;
/// environments are not read. Names that programs print stay: look at the log before you send it. What the
/// machine lacks is named in the list. With --pid the address map of a process is added.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo nvdiag report                 lists, asks, writes nvdiag-report-<date>.tar.gz
  nvdiag report --list               what it would hold, and nothing is written
  sudo nvdiag report --yes -o t.tar.gz --pid 4711
  nvdiag report --root DIR --yes     of a machine whose files were copied to a folder

Exit codes: 0 written or listed; 1 the same, and the versions of module, libraries and firmware do not fit; \
                        2 bad usage, it cannot be written, or the answer was no.")]
pub struct Args {
    /// Where the archive goes [default: nvdiag-report-<date>.tar.gz].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Write without asking.
    #[arg(long)]
    yes: bool,
    /// Show what the archive would hold, and write nothing.
    #[arg(long, conflicts_with_all = ["output", "yes"])]
    list: bool,
    /// Add the address map of this process, and explain the log's faults with it.
    #[arg(long, value_name = "PID", value_parser = process::number, conflicts_with = "root")]
    pid: Option<u32>,
    /// Read the files under this folder instead of the machine's own, as `nvdiag doctor --root` does.
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
}

/// Names of users and hosts of a machine.
fn names(files: &Files) -> Vec<String> {
    let lines = |path: &str| files.read(path).unwrap_or_default();
    let mut names = vec![lines("/proc/sys/kernel/hostname"), lines("/etc/hostname")];
    // A host's name stands without its domain, too.
    let short = names.iter().filter_map(|name| Some(name.split_once('.')?.0.to_owned()));
    names.extend(short.collect::<Vec<_>>());
    // Accounts of people; those of services have lower numbers (login.defs), and 65534 is nobody.
    let is_person = |id: &str| id.parse().is_ok_and(|id: u32| id >= 1000 && id != 65534);
    let mut account = |line: &str| {
        let fields: Vec<_> = line.split(':').collect();
        if let [name, _, id, ..] = fields[..]
            && is_person(id)
        {
            names.push(name.to_owned());
            // Its own name, with commas between name, room and telephone.
            names.extend(fields.get(4).and_then(|own| own.split(',').next()).map(str::to_owned));
        }
    };
    lines("/etc/passwd").lines().for_each(&mut account);
    names.extend(files.list("/home"));
    if !files.is_copy() {
        names
            .extend(["USER", "LOGNAME", "SUDO_USER"].into_iter().filter_map(|name| std::env::var(name).ok()));
    }
    names
}

/// An archive that is being filled.
struct Archive {
    redactor: Redactor,
    manifest: Manifest,
    entries: Vec<(String, Vec<u8>)>,
}

impl Archive {
    fn of(files: &Files, pid: Option<u32>) -> anyhow::Result<Self> {
        let names = names(files);
        let mut redactor = Redactor::new(names.iter().map(String::as_str));
        let collected = collect(files, &mut redactor);
        let versions = Versions::of(files);
        let manifest = Manifest {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            versions,
            absent: collected.absent,
            ..Manifest::default()
        };
        let mut archive = Self { redactor, manifest, entries: Vec::new() };
        archive.add_report("doctor", &examine(files), "what `nvdiag doctor` finds")?;
        let mut map = ProcessMap::default();
        if let Some(pid) = pid {
            let (bytes, _) = snapshot::map_of(pid, None).map_err(|why| anyhow!("{why}"))?;
            map.add_json(&bytes).context("cannot use the address map of the process")?;
            let document = archive.redactor.json(document::read(&bytes, process_map::BOUNDS)?);
            archive.add("map.json", format!("{document:#}\n"), "address map of the process");
        }
        archive.add_log(files, map)?;
        archive.add(&format!("{}dev.txt", Manifest::MACHINE), listing(files), "device nodes");
        for file in collected.files {
            archive.add(&format!("{}{}", Manifest::MACHINE, &file.path[1..]), file.text, file.subject);
        }
        archive.manifest.replaced = archive.redactor.counts().clone();
        Ok(archive)
    }

    fn add(&mut self, name: &str, text: String, what: &str) {
        let size_bytes = text.len() as u64;
        self.manifest.entries.push(Entry { name: name.to_owned(), size_bytes, what: what.to_owned() });
        self.entries.push((name.to_owned(), text.into_bytes()));
    }

    /// Adds a report as text and as JSON.
    fn add_report(&mut self, name: &str, report: &impl Report, what: &str) -> anyhow::Result<()> {
        let mut text = Vec::new();
        report.print(&mut text)?;
        let text = String::from_utf8_lossy(&text).into_owned();
        let text = self.redactor.text(&anstream::adapter::strip_str(&text).to_string());
        let document = self.redactor.json(report.json()?);
        self.add(&format!("{name}.txt"), text, what);
        self.add(&format!("{name}.json"), format!("{document:#}\n"), what);
        Ok(())
    }

    /// Adds the kernel log, and the report of its faults.
    fn add_log(&mut self, files: &Files, map: ProcessMap) -> anyhow::Result<()> {
        const NAME: &str = "kernel-log.txt";
        let log = match files.kernel_log() {
            Ok(log) => log,
            Err(why) => {
                self.manifest.lacks("kernel log", "/dev/kmsg", &why.to_string());
                return Ok(());
            }
        };
        if log.contains(&0) {
            self.manifest.lacks("kernel log", "/dev/kmsg", "it has bytes of zero: a binary, no log");
            return Ok(());
        }
        // From the log as it is: no name that is replaced can hide a fault.
        let mut session = Session::new(map, FAULTS);
        session.feed(&log);
        let faults = session.finish(NAME);
        self.add_report("faults", &faults, "what `nvdiag esr` finds in the kernel log")?;
        let log = self.redactor.text(&String::from_utf8_lossy(&log));
        self.add(NAME, log, "the kernel log");
        Ok(())
    }
}

/// Asks on the terminal whether to go on.
fn is_wanted(out: &mut dyn Write) -> anyhow::Result<bool> {
    write!(out, "write it? [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).context("cannot read the answer")?;
    Ok(["y", "yes"].contains(&answer.trim().to_ascii_lowercase().as_str()))
}

impl Args {
    /// Collects, lists, asks and writes.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let asks = !self.yes && !self.list;
        if asks && (json || !io::stdin().is_terminal() || !io::stdout().is_terminal()) {
            bail!(
                "nobody can be asked here\n  try: --list shows what the archive would hold, --yes writes it"
            );
        }
        if let Some(path) = &self.output {
            ensure_same_kind(path, "a tar.gz file", |start| start.starts_with(&[0x1f, 0x8b]))?;
        }
        let files = match self.root.as_deref() {
            None => Files::own(),
            Some(root) if root == Path::new("/") => Files::own(),
            Some(root) => Files::copied(root)?,
        };
        let mut archive = Archive::of(&files, self.pid)?;
        if self.list {
            return show(&archive.manifest, json, out);
        }
        if !json {
            show(&archive.manifest, false, out)?;
        }
        ensure!(!asks || is_wanted(out)?, "nothing is written");
        let mut document = Vec::new();
        archive.manifest.print_json(&mut document)?;
        archive.entries.insert(0, (Manifest::NAME.to_owned(), document));
        let mut file = match &self.output {
            Some(path) => OutputFile::named(path, "-o")?,
            None => {
                let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
                OutputFile::usual(&format!("nvdiag-report-{}", &now[..10]), "tar.gz")?
            }
        };
        file.write(&archive.entries)?;
        archive.manifest.file = Some(file.path().display().to_string());
        if json {
            return show(&archive.manifest, true, out);
        }
        writeln!(out, "written: {}", file.path().display())?;
        Ok(if archive.manifest.has_problem() { Finding::Problem } else { Finding::Clean })
    }
}
