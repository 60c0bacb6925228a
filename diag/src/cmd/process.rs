//! Other processes: their descriptors, and copies of those.

#![allow(
    unsafe_code,
    reason = "the C library has no functions for pidfds, so the system calls are made by number"
)]

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// A descriptor of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number there.
    pub number: i32,
    /// What it is open on, as the kernel names it.
    pub name: String,
}

/// The descriptors of a process, by number.
///
/// # Errors
/// Those of reading `/proc/PID/fd`: no such process, no permission.
pub fn descriptors(pid: u32) -> io::Result<Vec<Descriptor>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // Those that are closed meanwhile have no name any more.
        if let (Some(number), Ok(name)) = (number, fs::read_link(entry.path())) {
            found.push(Descriptor { number, name: name.to_string_lossy().into_owned() });
        }
    }
    found.sort_by_key(|descriptor| descriptor.number);
    Ok(found)
}

/// The name of a process, as `/proc/PID/comm` has it.
pub fn name(pid: u32) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned()
}

/// The value of a key of `/proc/PID/fdinfo/FD`.
pub fn fd_info(pid: u32, fd: i32, key: &str) -> Option<String> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let value = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
    text.lines().find_map(value)
}

/// A process that descriptors can be copied from.
#[derive(Debug)]
pub struct Process(OwnedFd);

impl Process {
    /// Opens a process.
    ///
    /// # Errors
    /// Those of `pidfd_open(2)`: no such process.
    pub fn open(pid: u32) -> io::Result<Self> {
        // SAFETY: the call takes numbers alone.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) }).map(Self)
    }

    /// Copies a descriptor: both then mean the same open file, which lives until both are closed.
    ///
    /// # Errors
    /// Those of `pidfd_getfd(2)`: `EPERM` without the right to trace the process.
    pub fn duplicate(&self, fd: i32) -> io::Result<OwnedFd> {
        // SAFETY: the call takes numbers alone.
        owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.0.as_raw_fd(), fd, 0) })
    }
}

/// The descriptor a system call answered with.
fn owned(answer: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the kernel made the descriptor just now, and nothing else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn a_descriptor_is_found_and_copied() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"shared").expect("written");
        let pid = std::process::id();
        let ours = descriptors(pid).expect("our own");
        let known = ours.iter().find(|d| d.number == file.as_raw_fd()).expect("listed");
        assert!(known.name.contains("/tmp") || known.name.contains("deleted") || !known.name.is_empty());
        let process = match Process::open(pid) {
            Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => {
                eprintln!("skipped: no pidfds here");
                return;
            }
            process => process.expect("ourselves"),
        };
        let copy = match process.duplicate(file.as_raw_fd()) {
            Err(error) if matches!(error.raw_os_error(), Some(libc::ENOSYS | libc::EPERM)) => {
                eprintln!("skipped: descriptors cannot be copied here");
                return;
            }
            copy => copy.expect("a copy"),
        };
        let mut copy = std::fs::File::from(copy);
        copy.rewind().expect("a file");
        let mut text = String::new();
        copy.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "shared");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error() {
        assert!(descriptors(u32::MAX).is_err());
        assert_eq!(name(u32::MAX), "");
        assert_eq!(fd_info(u32::MAX, 0, "pos"), None);
    }
}
