//! The live kernel log: `/dev/kmsg`, else `dmesg`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

/// Advice on access to the log.
const PERMISSION: &str = "the kernel log is restricted here: run as root, or let everybody read it with \
                          `sudo sysctl kernel.dmesg_restrict=0`, or pass a saved one with --log FILE";

/// A record of `/dev/kmsg` is at most this long.
const RECORD: usize = 8192;

/// The kernel's ring of messages.
#[derive(Debug)]
pub struct Kmsg {
    file: File,
}

impl Kmsg {
    /// Opens it at its oldest message.
    pub fn open() -> io::Result<Self> {
        let file = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open("/dev/kmsg")?;
        Ok(Self { file })
    }

    /// Hands out the records there are, oldest first, each with its end of line. Returns without waiting for
    /// more.
    pub fn drain(&mut self, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
        let mut record = [0; RECORD];
        loop {
            match self.file.read(&mut record) {
                Ok(0) => return Ok(()),
                Ok(len) => take(first_line(&record[..len])),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Messages were overwritten before they were read: the next read continues after them.
                Err(e) if e.raw_os_error() == Some(nix::libc::EPIPE) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// A record's message with the end of its line; properties of the device follow on lines of their own.
fn first_line(record: &[u8]) -> &[u8] {
    record.iter().position(|b| *b == b'\n').map_or(record, |end| &record[..=end])
}

/// Reads the whole log as it is now, and returns its name.
pub fn read(take: &mut dyn FnMut(&[u8])) -> anyhow::Result<&'static str> {
    let refused = match Kmsg::open() {
        Ok(mut kmsg) => match kmsg.drain(take) {
            Ok(()) => return Ok("the kernel log (/dev/kmsg)"),
            Err(error) => error,
        },
        Err(error) => error,
    };
    dmesg(take).map_err(|error| error.context(format!("cannot read /dev/kmsg ({refused}); {PERMISSION}")))?;
    Ok("the kernel log (dmesg)")
}

fn dmesg(take: &mut dyn FnMut(&[u8])) -> anyhow::Result<()> {
    const LIMIT: Duration = Duration::from_secs(10);
    let mut child = Command::new("dmesg")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .context("cannot start dmesg")?;
    let began = Instant::now();
    if let Some(mut out) = child.stdout.take() {
        let mut bytes = [0; RECORD];
        while let Ok(len @ 1..) = out.read(&mut bytes) {
            take(&bytes[..len]);
            if began.elapsed() > LIMIT {
                let _ = child.kill();
            }
        }
    }
    let status = child.wait().context("cannot wait for dmesg")?;
    anyhow::ensure!(status.success(), "dmesg ended with {status}");
    Ok(())
}
