//! The kernel log, where it can be read.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Mutex;

use crate::backend::Stopped;
use crate::sync::lock;

/// Lines the driver has printed since this was made.
pub(crate) trait KernelLog: Send + Sync {
    /// The lines, oldest first; `None` where the log cannot be read.
    fn lines(&self) -> Option<Vec<String>>;

    /// A software GPU's account of faults, beyond a driver's log; empty on hardware.
    fn explanation(&self) -> Vec<String> {
        Vec::new()
    }

    /// The block that a fault of a channel stopped, which a software GPU alone knows.
    fn stopped(&self, _channel: u32) -> Option<Box<Stopped>> {
        None
    }
}

/// Nothing can be read.
#[cfg(any(feature = "sys", test))]
#[derive(Debug)]
pub(crate) struct NoLog;

#[cfg(any(feature = "sys", test))]
impl KernelLog for NoLog {
    fn lines(&self) -> Option<Vec<String>> {
        None
    }
}

/// `/dev/kmsg`, from where it stood when it was opened.
#[derive(Debug)]
pub(crate) struct Kmsg(Mutex<Option<Tail>>);

/// The end of a file that grows.
#[derive(Debug)]
struct Tail {
    file: File,
    /// The driver's lines that were read so far.
    lines: Vec<String>,
}

impl Kmsg {
    /// Reads nothing where the log may not be opened (`dmesg_restrict`).
    pub fn open() -> Self {
        let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open("/dev/kmsg");
        let at_end = file.ok().and_then(|mut f| f.seek(SeekFrom::End(0)).ok().map(|_| f));
        Self(Mutex::new(at_end.map(|file| Tail { file, lines: Vec::new() })))
    }
}

impl KernelLog for Kmsg {
    fn lines(&self) -> Option<Vec<String>> {
        let mut tail = lock(&self.0);
        let Tail { file, lines } = tail.as_mut()?;
        let mut record = [0; 8192];
        // One read gives one record; an error means none is left, or some were overwritten.
        for _ in 0..4096 {
            match file.read(&mut record) {
                Ok(0) => break,
                Ok(len) => lines.extend(
                    message(&record[..len]).filter(|m| m.contains("nvgpu") || m.contains("NVRM: Xid")),
                ),
                Err(e) if e.raw_os_error() == Some(libc::EPIPE) => {}
                Err(_) => break,
            }
        }
        Some(lines.clone())
    }
}

/// The text of a record: what follows the first semicolon, up to the end of the line.
fn message(record: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(record);
    let (_, message) = text.split_once(';')?;
    Some(message.lines().next()?.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_record_follows_its_header() {
        assert_eq!(message(b"3,1234,5678,-;nvgpu: hello\n SUBSYSTEM=x\n").as_deref(), Some("nvgpu: hello"));
        assert_eq!(message(b"garbage"), None);
    }
}
