//! Contents of an archive, and what is missing from it.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::machine_report::collect::Absent;
use crate::machine_report::versions::Versions;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};
use crate::size::size;

/// A file in the archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// Its name there.
    pub name: String,
    /// Its size.
    pub size_bytes: u64,
    /// Its content in words; of a file of the machine the subject.
    pub what: String,
}

/// Contents of an archive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Manifest {
    /// Version of this program.
    pub version: String,
    /// The archive, once it is written.
    pub file: Option<String>,
    /// Versions of the driver's parts.
    pub versions: Versions,
    /// The files, without this list itself.
    pub entries: Vec<Entry>,
    /// Paths at which nothing was read.
    pub absent: Vec<Absent>,
    /// How much was replaced, by kind.
    pub replaced: BTreeMap<&'static str, u64>,
}

/// Name of this list in the archive.
pub(super) const NAME_OF_LIST: &str = "manifest.json";
/// Folder of the machine's files, which `nvdiag doctor --root` reads.
pub(super) const FOLDER: &str = "machine/";

impl Manifest {
    /// Name of the list itself in the archive.
    pub const NAME: &str = NAME_OF_LIST;
    /// Folder in the archive with the machine's files.
    pub const MACHINE: &str = FOLDER;

    /// Notes that the archive lacks something besides the files of the table.
    pub fn lacks(&mut self, subject: &'static str, path: &str, why: &str) {
        let (path, why) = (path.to_owned(), why.to_owned());
        self.absent.push(Absent { subject, path, why, source: "kernel: ABI/testing/dev-kmsg" });
    }

    fn print_entries(&self, out: &mut dyn Write) -> io::Result<()> {
        let (files, own): (Vec<_>, Vec<_>) = self.entries.iter().partition(|e| e.name.starts_with(FOLDER));
        let row = |name: &str, bytes: u64, what: &str| format!("  {name:<22} {:>12}  {what}", size(bytes));
        writeln!(out, "  {NAME_OF_LIST:<22} {:>12}  this list, with every file and path", "")?;
        for entry in own {
            writeln!(out, "{}", row(&entry.name, entry.size_bytes, &entry.what))?;
        }
        let mut subjects: Vec<(&str, u64, u64)> = Vec::new();
        for Entry { size_bytes, what, .. } in files {
            match subjects.iter_mut().find(|subject| subject.0 == what) {
                Some(subject) => (subject.1, subject.2) = (subject.1 + 1, subject.2 + size_bytes),
                None => subjects.push((what, 1, *size_bytes)),
            }
        }
        for (what, count, bytes) in subjects {
            writeln!(out, "{}", row(FOLDER, bytes, &format!("{what}: {}", counted(count, "file"))))?;
        }
        Ok(())
    }

    fn print_versions(&self, out: &mut dyn Write) -> io::Result<()> {
        let Versions { kernel, l4t, nvidia_module, nvgpu_srcversion, .. } = &self.versions;
        writeln!(out, "{HEADING}versions{HEADING:#}")?;
        let named = [
            ("kernel", kernel),
            ("L4T", l4t),
            ("nvidia module", nvidia_module),
            ("nvgpu source", nvgpu_srcversion),
        ];
        for (name, version) in named {
            writeln!(out, "  {NAME}{name:<22}{NAME:#} {}", version.as_deref().unwrap_or("not stated"))?;
        }
        for (address, version) in &self.versions.gpu_firmware {
            writeln!(out, "  {NAME}{:<22}{NAME:#} {version}, on {address}", "firmware")?;
        }
        let files = self.versions.firmware_files.len() as u64;
        writeln!(out, "  {NAME}{:<22}{NAME:#} {}", "firmware files", counted(files, "file"))?;
        for library in self.versions.libraries.iter().filter(|library| library.version.is_some()) {
            writeln!(out, "  {NAME}{:<22}{NAME:#} {}", "library", library.path)?;
        }
        for mismatch in &self.versions.mismatches {
            writeln!(out, "  {PROBLEM}{:<22}{PROBLEM:#} {mismatch}", "MISMATCH")?;
        }
        Ok(())
    }
}

impl Report for Manifest {
    const SCHEMA: &'static str = "nvdiag.report/1";

    fn has_problem(&self) -> bool {
        !self.versions.mismatches.is_empty()
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        self.print_versions(out)?;
        writeln!(out, "{HEADING}the archive holds, and nothing else{HEADING:#}")?;
        self.print_entries(out)?;
        let replaced: Vec<_> = self.replaced.iter().map(|(kind, count)| format!("{kind}: {count}")).collect();
        match replaced.as_slice() {
            [] => writeln!(out, "replaced in them: nothing")?,
            some => writeln!(out, "replaced in them, by kind: {}", some.join(", "))?,
        }
        for absent in self.absent.iter().filter(|absent| !absent.is_lacking()) {
            writeln!(out, "not read: {} {}", absent.path, absent.why)?;
        }
        let has = |subject: &str| self.entries.iter().any(|entry| entry.what == subject);
        let mut lacks: Vec<_> =
            self.absent.iter().map(|a| a.subject).filter(|subject| !has(subject)).collect();
        lacks.dedup();
        match lacks.as_slice() {
            [] => Ok(()),
            lacks => writeln!(out, "{ASIDE}not on this machine: {}{ASIDE:#}", lacks.join(", ")),
        }
    }
}
