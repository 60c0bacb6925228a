//! The folder of saved faults: one folder for each, by number.
//!
//! A fault appears whole or not at all: it is written under a temporary name, synchronized, and renamed.
//! Folders of other names are never touched.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use nvdiag::saved::{Entry, Saved, SavedFile};

/// File of the fault's entry, as JSON.
const ENTRY: &str = "entry.json";
/// The report as JSON.
pub const REPORT_JSON: &str = "report.json";
/// The report as text.
pub const REPORT_TEXT: &str = "report.txt";
/// Held by the process that saves here.
const LOCK: &str = ".lock";
/// Start of the names of incomplete folders.
const TEMPORARY: &str = ".part-";
/// Most bytes read of a file that is shown.
const LONGEST: u64 = 16 << 20;
/// The folder of a service that runs as root.
const SYSTEM: &str = "/var/lib/nvdiag";

/// A fault to save.
#[derive(Debug)]
pub struct Record {
    /// Its entry; the number is that of the folder it will have.
    pub entry: Entry,
    /// Its files: names and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

/// Limits of a folder.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Faults.
    pub faults: usize,
    /// Bytes of their files.
    pub bytes: u64,
}

/// A folder that faults are saved to.
#[derive(Debug)]
pub struct Store {
    folder: PathBuf,
    limits: Limits,
    /// Held as long as this lives.
    _lock: File,
}

/// The folder of this user's saved faults: `/var/lib/nvdiag` of root, `~/.local/state/nvdiag` of others.
pub fn default_folder() -> anyhow::Result<PathBuf> {
    if nix::unistd::geteuid().is_root() {
        return Ok(SYSTEM.into());
    }
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")));
    Ok(state
        .context("neither XDG_STATE_HOME nor HOME names a folder: name one to keep faults in")?
        .join("nvdiag"))
}

/// The folder to read from: the one given, or else this user's, or the service's.
pub fn folder_to_read(given: Option<&Path>) -> anyhow::Result<PathBuf> {
    if let Some(folder) = given {
        return Ok(folder.to_owned());
    }
    let own = default_folder()?;
    Ok(if !own.exists() && Path::new(SYSTEM).exists() { SYSTEM.into() } else { own })
}

/// Makes a folder that this user alone may read: command lines and maps are private.
fn make_folder(path: &Path, with_parents: bool) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(with_parents).create(path)
}

fn name_of(number: u64) -> String {
    format!("{number:06}")
}

/// Writes a file and waits until the disk has it.
fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Numbers of the faults in a folder, in order.
pub fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        if let Some(number) = number.filter(|number| name.to_str() == Some(&name_of(*number)))
            && entry.file_type()?.is_dir()
        {
            numbers.push(number);
        }
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// Reads a file of a saved fault.
fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    read.with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(bytes.len() as u64 <= LONGEST, "{} is longer than any that is saved", path.display());
    Ok(bytes)
}

/// Reads the entry of a saved fault.
pub fn entry(folder: &Path, number: u64) -> anyhow::Result<Entry> {
    let path = folder.join(name_of(number)).join(ENTRY);
    let entry = serde_json::from_slice(&read_file(&path)?);
    let entry: Entry =
        entry.with_context(|| format!("{} is not what nvdiag watch writes", path.display()))?;
    Ok(Entry { number, ..entry })
}

/// Names and lengths of the files of a saved fault.
fn files(folder: &Path) -> io::Result<Vec<SavedFile>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        files.push(SavedFile { name, size_bytes: entry.metadata()?.len() });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// A saved fault, with its report.
pub fn open(folder: &Path, number: u64) -> anyhow::Result<Saved> {
    let own = folder.join(name_of(number));
    if !own.is_dir() {
        return Err(anyhow!(
            "there is no fault {number} in {}: `nvdiag list` says which there are",
            folder.display()
        ));
    }
    let report = own.join(REPORT_JSON);
    Ok(Saved {
        entry: entry(folder, number)?,
        files: files(&own).with_context(|| format!("cannot read {}", own.display()))?,
        report: serde_json::from_slice(&read_file(&report)?)
            .with_context(|| format!("{} is no JSON document", report.display()))?,
        text: String::from_utf8_lossy(&read_file(&own.join(REPORT_TEXT))?).into_owned(),
        folder: own.display().to_string(),
    })
}

impl Store {
    /// Opens a folder to save to, made if it is not there, and removes the folders that an earlier process
    /// left incomplete.
    ///
    /// # Errors
    /// It cannot be made or written to, or another process saves there.
    pub fn open(folder: PathBuf, limits: Limits) -> anyhow::Result<Self> {
        let failed = || format!("cannot save faults to {}", folder.display());
        make_folder(&folder, true).with_context(failed)?;
        let lock = File::options().create(true).truncate(false).write(true).open(folder.join(LOCK));
        let lock = lock.with_context(failed)?;
        lock.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => {
                anyhow!(
                    "another nvdiag watch saves to {}: end it, or save to another folder",
                    folder.display()
                )
            }
            TryLockError::Error(error) => anyhow::Error::new(error).context(failed()),
        })?;
        for entry in fs::read_dir(&folder).with_context(failed)?.flatten() {
            if entry.file_name().to_string_lossy().starts_with(TEMPORARY) {
                // A folder that cannot be removed is no reason not to save.
                let _ = fs::remove_dir_all(entry.path());
            }
        }
        Ok(Self { folder, limits, _lock: lock })
    }

    /// Saves a fault under the next number, which it returns with the folder, then removes the oldest ones that
    /// are too many.
    ///
    /// # Errors
    /// Those of the file system; then nothing of the fault is left.
    pub fn save(&self, record: &Record) -> io::Result<Saved> {
        make_folder(&self.folder, true)?;
        let mut number = numbers(&self.folder)?.last().map_or(1, |last| last + 1);
        let part = self.folder.join(format!("{TEMPORARY}{number}"));
        let written = self.write(&part, record, &mut number);
        if written.is_err() {
            let _ = fs::remove_dir_all(&part);
        }
        written?;
        let own = self.folder.join(name_of(number));
        self.prune(number);
        Ok(Saved {
            entry: Entry { number, ..record.entry.clone() },
            files: files(&own)?,
            folder: own.display().to_string(),
            report: serde_json::Value::Null,
            text: String::new(),
        })
    }

    fn write(&self, part: &Path, record: &Record, number: &mut u64) -> io::Result<()> {
        // An earlier attempt may have left one that could not be removed then.
        match fs::remove_dir_all(part) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => make_folder(part, false)?,
        }
        for (name, bytes) in &record.files {
            write_through(&part.join(name), bytes)?;
        }
        write_through(
            &part.join(ENTRY),
            &serde_json::to_vec_pretty(&Entry { number: *number, ..record.entry.clone() })?,
        )?;
        File::open(part)?.sync_all()?;
        loop {
            match fs::rename(part, self.folder.join(name_of(*number))) {
                // Somebody else's.
                Err(error) if error.kind() == ErrorKind::DirectoryNotEmpty => *number += 1,
                renamed => break renamed?,
            }
        }
        File::open(&self.folder)?.sync_all()
    }

    /// Counts a saved fault again; one that is not saved yet is not there to count. Failures are only reported.
    pub fn count(&self, entry: &Entry) {
        if entry.number > 0
            && let Err(error) = self.change(entry)
        {
            eprintln!("nvdiag: cannot count fault {} again: {error}", entry.number);
        }
    }

    /// Changes the entry of a saved fault.
    ///
    /// # Errors
    /// Those of the file system; then it is as it was. One that was removed meanwhile stays so.
    fn change(&self, entry: &Entry) -> io::Result<()> {
        let own = self.folder.join(name_of(entry.number));
        let part = own.join(format!("{TEMPORARY}{ENTRY}"));
        // One that was left, or a link there, is not written to.
        let _ = fs::remove_file(&part);
        let changed = write_through(&part, &serde_json::to_vec_pretty(entry)?)
            .and_then(|()| fs::rename(&part, own.join(ENTRY)));
        if changed.is_err() {
            let _ = fs::remove_file(&part);
        }
        match changed {
            Err(error) if error.kind() == ErrorKind::NotFound && !own.exists() => Ok(()),
            changed => changed,
        }
    }

    /// Removes the oldest faults, but never `newest`, until the rest are within the limits.
    fn prune(&self, newest: u64) {
        let size = |number: &u64| -> u64 {
            let files = files(&self.folder.join(name_of(*number))).unwrap_or_default();
            files.iter().map(|file| file.size_bytes).sum()
        };
        let numbers = numbers(&self.folder).unwrap_or_default();
        let sizes: Vec<u64> = numbers.iter().map(size).collect();
        let (mut count, mut bytes) = (numbers.len(), sizes.iter().sum::<u64>());
        for (number, size) in numbers.iter().zip(sizes) {
            if *number == newest || count <= self.limits.faults && bytes <= self.limits.bytes {
                break;
            }
            let own = self.folder.join(name_of(*number));
            // Readers see all of it or nothing.
            let part = self.folder.join(format!("{TEMPORARY}{number}"));
            let removed = fs::rename(&own, &part).and_then(|()| fs::remove_dir_all(&part));
            if let Err(error) = removed {
                eprintln!("nvdiag: cannot remove {}: {error}", own.display());
            }
            (count, bytes) = (count - 1, bytes - size);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANY: Limits = Limits { faults: 100, bytes: 1 << 20 };

    fn record(verdict: &str, bytes: usize) -> Record {
        Record {
            entry: Entry { verdict: verdict.to_owned(), count: 1, ..Entry::default() },
            files: vec![
                (REPORT_JSON.to_owned(), b"{\"lines\":1}".to_vec()),
                (REPORT_TEXT.to_owned(), vec![b'x'; bytes]),
            ],
        }
    }

    #[test]
    fn what_is_saved_is_read_again() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().join("a/b"), MANY).expect("made");
        for (number, verdict) in [(1, "one"), (2, "two")] {
            assert_eq!(store.save(&record(verdict, 9)).expect("saved").entry.number, number);
        }
        let saved = open(&store.folder, 2).expect("there");
        assert_eq!((saved.entry.number, saved.entry.verdict.as_str()), (2, "two"));
        assert_eq!((saved.report["lines"].as_u64(), saved.text.as_str()), (Some(1), "xxxxxxxxx"));
        let names: Vec<_> = saved.files.iter().map(|file| file.name.as_str()).collect();
        assert_eq!(names, [ENTRY, REPORT_JSON, REPORT_TEXT]);
        assert!(open(&store.folder, 3).expect_err("not there").to_string().contains("there is no fault 3"));
        store.change(&Entry { count: 5, ..saved.entry }).expect("changed");
        assert_eq!(entry(&store.folder, 2).expect("there").count, 5);
        store.change(&Entry { number: 9, ..Entry::default() }).expect("it was removed, which is no error");
        assert_eq!(numbers(&store.folder).expect("a folder"), [1, 2]);
    }

    #[test]
    fn the_oldest_are_removed_by_number_and_by_size_and_nothing_else_is() {
        let folder = tempfile::tempdir().expect("a folder");
        for other in ["notes", "7", "0000001", "000003.txt"] {
            fs::create_dir(folder.path().join(other)).expect("made");
        }
        let store = Store::open(folder.path().to_owned(), Limits { faults: 3, bytes: 10_000 }).expect("made");
        for _ in 0..5 {
            store.save(&record("one", 10)).expect("saved");
        }
        assert_eq!(numbers(folder.path()).expect("a folder"), [3, 4, 5]);
        store.save(&record("large", 9_000)).expect("saved");
        assert_eq!(numbers(folder.path()).expect("a folder"), [4, 5, 6]);
        store.save(&record("too large for the limit, but the newest", 20_000)).expect("saved");
        assert_eq!(numbers(folder.path()).expect("a folder"), [7]);
        let all = fs::read_dir(folder.path()).expect("a folder").count();
        assert_eq!(all, 4 + 1 + 1, "four others, the lock and the newest");
    }

    #[test]
    fn one_process_saves_to_a_folder_and_starts_by_removing_what_is_incomplete() {
        let folder = tempfile::tempdir().expect("a folder");
        let part = folder.path().join(".part-7");
        fs::create_dir(&part).expect("made");
        fs::write(part.join("log.txt"), "half a li").expect("written");
        let store = Store::open(folder.path().to_owned(), MANY).expect("made");
        assert!(!part.exists());
        let error = Store::open(folder.path().to_owned(), MANY).expect_err("locked");
        assert!(error.to_string().contains("another nvdiag watch saves to"), "{error}");
        drop(store);
        Store::open(folder.path().to_owned(), MANY).expect("free again");
    }

    #[test]
    fn what_cannot_be_written_whole_leaves_nothing() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::open(folder.path().to_owned(), MANY).expect("made");
        let mut bad = record("one", 10);
        bad.files.push(("no/such/folder".to_owned(), Vec::new()));
        store.save(&bad).expect_err("a file in a folder that is not there");
        assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 1, "the lock alone");
        assert_eq!(store.save(&record("two", 10)).expect("saved").entry.number, 1);
    }
}
