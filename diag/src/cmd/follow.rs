//! Logs that grow: the kernel's own, a file that is appended to, a pipe.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nvdiag::session::Session;

use crate::cmd::kernel_log::Kmsg;
use crate::cmd::replaced::is_same;

/// Bytes taken at once.
const PIECE: usize = 1 << 16;

/// A log that is followed.
#[derive(Debug)]
pub enum Log {
    /// The kernel's ring of messages.
    Kernel(Kmsg),
    /// A file, by name: others take its place, or it is cut short, as programs that rotate logs do.
    File {
        /// Its name.
        path: PathBuf,
        /// The file of that name that is open.
        file: File,
    },
    /// A pipe or a terminal.
    Stream(File),
}

/// Result of a read of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// Something new.
    More,
    /// Nothing new.
    Quiet,
    /// Nothing new, ever again.
    Ended,
}

impl Log {
    /// The kernel's log, from now on.
    pub fn of_kernel() -> anyhow::Result<Self> {
        let mut kmsg = Kmsg::open().context(
            "cannot follow /dev/kmsg: run as root, or follow a log with --log FILE (`-` for stdin)",
        )?;
        kmsg.drain(&mut |_| {})?;
        Ok(Self::Kernel(kmsg))
    }

    /// A file, from its present end on; a pipe, or stdin for `-`, from its beginning.
    pub fn of(path: &Path) -> anyhow::Result<Self> {
        if path.as_os_str() == "-" {
            let stdin = io::stdin().as_fd().try_clone_to_owned().context("cannot read stdin")?;
            return Ok(Self::Stream(stdin.into()));
        }
        // A pipe without a writer must not block.
        let open = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
        let mut file = open.with_context(|| format!("cannot read {}", path.display()))?;
        let kind = file.metadata().with_context(|| format!("cannot read {}", path.display()))?.file_type();
        anyhow::ensure!(!kind.is_dir(), "{} is a folder", path.display());
        if kind.is_fifo() || kind.is_char_device() || kind.is_socket() {
            return Ok(Self::Stream(file));
        }
        file.seek(SeekFrom::End(0)).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(Self::File { path: path.to_owned(), file })
    }

    /// Returns its name.
    pub fn name(&self) -> String {
        match self {
            Self::Kernel(_) => "the kernel log (/dev/kmsg)".to_owned(),
            Self::File { path, .. } => path.display().to_string(),
            Self::Stream(_) => "the log from a pipe".to_owned(),
        }
    }

    /// Passes on new bytes.
    pub fn look(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<Look> {
        let mut look = Look::Quiet;
        let mut more = |bytes: &[u8]| {
            look = Look::More;
            take(bytes);
        };
        match self {
            Self::Kernel(kmsg) => kmsg.drain(&mut more)?,
            Self::File { path, file } => {
                // Truncated and written again: all of it is new. One that has grown past the old end since
                // the last read cannot be distinguished from one that was appended to.
                if file.metadata()?.len() < file.stream_position()? {
                    file.rewind()?;
                }
                read_on(file, &mut more)?;
                // The name may be absent for a moment, between one file and the next.
                if let Ok(named) = std::fs::metadata(&*path)
                    && !is_same(&named, &file.metadata()?)
                    && let Ok(next) = File::open(&*path)
                {
                    // Lines added to the old file after the last read.
                    read_on(file, &mut more)?;
                    *file = next;
                    read_on(file, &mut more)?;
                }
            }
            Self::Stream(stream) => {
                let mut bytes = vec![0; PIECE];
                loop {
                    let mut fds = [PollFd::new(stream.as_fd(), PollFlags::POLLIN)];
                    // A pipe is at its end only after a writer has opened it.
                    let Ok(1..) = poll(&mut fds, PollTimeout::ZERO) else { break };
                    match stream.read(&mut bytes) {
                        Ok(0) if look == Look::Quiet => return Ok(Look::Ended),
                        Ok(0) => break,
                        Ok(len) => {
                            look = Look::More;
                            take(&bytes[..len]);
                        }
                        Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(e),
                    }
                }
            }
        }
        Ok(look)
    }
}

/// Whether to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Wait for more.
    Continue,
    /// Stop.
    End,
}

/// Follows a log until it ends or a signal comes (SIGINT, SIGTERM). `hear` is given the bytes, `report` the
/// session after each read, with all faults that are complete.
pub fn follow(
    mut log: Log,
    session: &mut Session,
    hear: &mut dyn FnMut(&[u8]),
    report: &mut dyn FnMut(&mut Session) -> anyhow::Result<Next>,
) -> anyhow::Result<()> {
    /// Time between reads of the log.
    const LOOK: Duration = Duration::from_millis(200);
    /// Reads after which a line that has not ended is used as it is.
    const PATIENCE: u32 = 10;
    let interrupted = Arc::new(AtomicBool::new(false));
    for signal in [libc::SIGINT, libc::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&interrupted)).context("cannot wait for ctrl-c")?;
    }
    let name = log.name();
    eprintln!("nvdiag: following {name}; ctrl-c ends");
    let (mut quiet, mut whole_lines) = (0, true);
    loop {
        // Checked before the read, so that lines that were there when it was set are still reported.
        let last = interrupted.load(Ordering::Relaxed);
        let look = log.look(&mut |bytes| {
            whole_lines = bytes.last() == Some(&b'\n');
            hear(bytes);
            session.feed(bytes);
        });
        let look = look.with_context(|| format!("cannot read {name}"))?;
        quiet = if look == Look::More { 0 } else { quiet + 1 };
        let ends = last || look == Look::Ended;
        // A fault whose lines are older than a read is complete.
        if ends || quiet >= if whole_lines { 1 } else { PATIENCE } {
            session.close();
        }
        if report(session)? == Next::End || ends {
            return Ok(());
        }
        std::thread::sleep(LOOK);
    }
}

/// Reads what there is, to the end.
fn read_on(file: &mut File, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    let mut bytes = vec![0; PIECE];
    loop {
        match file.read(&mut bytes) {
            Ok(0) => return Ok(()),
            Ok(len) => take(&bytes[..len]),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write;

    use super::*;

    fn looked(log: &mut Log) -> (Look, String) {
        let mut text = Vec::new();
        let look = log.look(&mut |bytes| text.extend_from_slice(bytes)).expect("readable");
        (look, String::from_utf8(text).expect("text"))
    }

    fn append(path: &Path, text: &str) {
        let mut file = OpenOptions::new().append(true).create(true).open(path).expect("a file");
        file.write_all(text.as_bytes()).expect("written");
    }

    #[test]
    fn a_file_is_followed_from_its_end_through_rotation_and_truncation() {
        let folder = tempfile::tempdir().expect("a folder");
        let (path, old) = (folder.path().join("kern.log"), folder.path().join("kern.log.1"));
        append(&path, "before\n");
        let mut log = Log::of(&path).expect("opened");
        assert_eq!(looked(&mut log), (Look::Quiet, String::new()));
        append(&path, "one\n");
        assert_eq!(looked(&mut log), (Look::More, "one\n".to_owned()));
        // Renamed, written to once more, and followed by a new one.
        fs::rename(&path, &old).expect("renamed");
        assert_eq!(looked(&mut log), (Look::Quiet, String::new()));
        append(&old, "two\n");
        append(&path, "three\n");
        assert_eq!(looked(&mut log), (Look::More, "two\nthree\n".to_owned()));
        // Copied and cut short.
        File::create(&path).expect("truncated");
        assert_eq!(looked(&mut log).0, Look::Quiet);
        append(&path, "4\n");
        assert_eq!(looked(&mut log), (Look::More, "4\n".to_owned()));
    }

    #[test]
    fn a_pipe_ends_when_its_writer_is_gone_and_not_before_it_came() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("pipe");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        let mut log = Log::of(&path).expect("opened");
        assert_eq!(looked(&mut log).0, Look::Quiet);
        let mut writer = OpenOptions::new().write(true).open(&path).expect("opened");
        assert_eq!(looked(&mut log).0, Look::Quiet);
        writer.write_all(b"line\n").expect("written");
        assert_eq!(looked(&mut log), (Look::More, "line\n".to_owned()));
        drop(writer);
        assert_eq!(looked(&mut log).0, Look::Ended);
    }

    #[test]
    fn what_cannot_be_followed_is_refused() {
        assert!(Log::of(Path::new("/no/such/file")).is_err());
        assert!(Log::of(Path::new("/")).expect_err("a folder").to_string().contains("is a folder"));
    }
}
