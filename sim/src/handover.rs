//! The file in which machines leave what they found, for the program that started the process.
//!
//! It has a JSON object a line. Processes append whole lines to it; a line whose event comes again ends with a
//! count, which is written anew in its place. The file is opened for each: a descriptor that was kept could be
//! closed by the program, and its number be another file's.

use std::fs::OpenOptions;
use std::io::{self, Seek as _, Write as _};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use serde::Serialize;

/// Characters of a count with the end of its line: spaces, then `}` and the end.
const COUNT: usize = 22;

/// Place of a count in the file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CountPlace(u64);

/// A file, by its name.
#[derive(Debug)]
pub(crate) struct Handover {
    path: PathBuf,
    has_failed: AtomicBool,
}

impl Handover {
    /// A file that is made when there is something to write.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, has_failed: AtomicBool::new(false) }
    }

    /// Appends an object, with a count of 1.
    pub(crate) fn add(&self, object: &impl Serialize) -> Option<CountPlace> {
        let text = serde_json::to_string(object).ok()?;
        let open = text.strip_suffix('}')?;
        let line = format!("{open},\"count\":{}", count(1));
        self.told(|| {
            let mut file = self.options().append(true).create(true).mode(0o600).open(&self.path)?;
            file.write_all(line.as_bytes())?;
            Ok(CountPlace(file.stream_position()? - COUNT as u64))
        })
    }

    /// Writes a count anew.
    pub(crate) fn set_count(&self, place: CountPlace, value: u64) {
        self.told(|| {
            let file = self.options().write(true).open(&self.path)?;
            file.write_all_at(count(value).as_bytes(), place.0)
        });
    }

    /// A link is not followed: it could lead to a file of the user's. A FIFO without a reader is an error, not a wait.
    fn options(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
        options
    }

    /// Says the first failure on stderr.
    fn told<T>(&self, write: impl FnOnce() -> io::Result<T>) -> Option<T> {
        let failed = |error: &io::Error| {
            if !self.has_failed.swap(true, Ordering::Relaxed) {
                // A failed write to stderr is no reason to stop.
                let path = self.path.display();
                let _ = writeln!(io::stderr(), "ga10b: findings cannot be written to {path}: {error}");
            }
        };
        write().inspect_err(failed).ok()
    }
}

/// A count, and the end of its line.
fn count(value: u64) -> String {
    format!("{value:>20}}}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    fn lines(path: &Path) -> Vec<serde_json::Value> {
        let text = std::fs::read_to_string(path).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn counts_are_written_in_their_place_whoever_else_writes() {
        let folder = std::env::temp_dir().join(format!("ga10b-handover-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("findings");
        let (one, other) = (Handover::new(path.clone()), Handover::new(path.clone()));
        let places = [&one, &other, &one].map(|file| file.add(&serde_json::json!({ "a": "}" })).unwrap());
        one.set_count(places[0], u64::MAX);
        other.set_count(places[1], 7);
        let counts: Vec<_> = lines(&path).iter().map(|line| line["count"].as_u64().unwrap()).collect();
        assert_eq!(counts, [u64::MAX, 7, 1]);
        let link = folder.join("link");
        symlink(&path, &link).unwrap();
        assert!(Handover::new(link).add(&serde_json::json!({ "a": 1 })).is_none());
        assert_eq!(lines(&path).len(), 3);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
