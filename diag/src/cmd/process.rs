//! Other processes: their descriptors, copies of those, and the driver behind them.

#![allow(
    unsafe_code,
    reason = "the C library has no functions for pidfds, so the system calls are made by number"
)]

use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, ensure};
use ga10b_sim::Remote;
use nix::errno::Errno;
use nvdiag::process_map::HostRange;
use nvgpu_sys::{Linux, Sys};

/// Reads the number of a process.
pub fn number(text: &str) -> Result<u32, &'static str> {
    let number = text.parse().ok().filter(|number| *number > 0);
    number.ok_or("a process's number, 1 or more, is expected")
}

/// A descriptor of another process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// Its number there.
    pub number: i32,
    /// Name of the open file, as the kernel has it.
    pub name: String,
}

/// A running process whose GPU state can be read.
#[derive(Debug)]
pub struct Process {
    pid: u32,
    name: String,
    pidfd: OwnedFd,
    /// The driver of the software ga10b lives in the process itself; or why there is none to ask.
    software: Result<Remote, Errno>,
}

impl Process {
    /// Opens a process.
    ///
    /// # Errors
    /// There is no such process, or its software ga10b does not answer.
    pub fn open(pid: u32) -> anyhow::Result<Self> {
        // SAFETY: the call takes numbers alone.
        let pidfd = owned(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) });
        let pidfd = pidfd.map_err(|error| match error.raw_os_error() {
            Some(libc::ESRCH) => {
                anyhow!(
                    "there is no process {pid}: it has ended, or runs in another container (what it had mapped went with it)"
                )
            }
            // Which of them depends on the kernel's release.
            Some(libc::EINVAL | libc::ENOENT) => {
                anyhow!("{pid} is no process: the number of one is wanted, not that of a thread")
            }
            Some(libc::ENOSYS) => {
                anyhow!("this kernel cannot open processes (pidfd_open): Linux 5.6 is needed")
            }
            _ => anyhow::Error::new(error).context(format!("cannot open process {pid}")),
        })?;
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim_end().to_owned();
        let process = Self { pid, name, pidfd, software: Remote::connect(pid) };
        let state = state(pid);
        ensure!(
            state != Some('Z'),
            "process {pid} ({}) has ended: its state is Z in /proc/{pid}/stat until its parent has waited for it, and \
             nothing of it is open",
            process.name
        );
        match &process.software {
            Ok(_) if is_stopped(state) => Err(process.silent()),
            Err(Errno::ETIMEDOUT) => Err(process.silent()),
            _ => Ok(process),
        }
    }

    /// Why its software ga10b does not answer.
    fn silent(&self) -> anyhow::Error {
        let Self { pid, name, .. } = self;
        match state(*pid) {
            state @ Some(letter) if is_stopped(state) => anyhow!(
                "process {pid} ({name}) is stopped (state {letter} in /proc/{pid}/stat), and so is the software ga10b \
                 in it: let it go on (kill -CONT {pid}, or in its debugger)"
            ),
            _ => anyhow!(
                "the software ga10b of process {pid} ({name}) does not answer: it ends, hangs, or others inspect it; \
                 try again"
            ),
        }
    }

    /// Its number.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// The process in words.
    pub fn title(&self) -> String {
        let on = if self.software.is_ok() { " on the software ga10b" } else { "" };
        format!("process {} ({}){on}", self.pid, self.name)
    }

    /// Returns the system calls of its GPU.
    pub fn driver(&self) -> &dyn Sys {
        match &self.software {
            Ok(remote) => remote,
            Err(_) => &Linux,
        }
    }

    /// Its descriptors, by number.
    ///
    /// # Errors
    /// It has ended, does not answer, or this user may not inspect it.
    pub fn descriptors(&self) -> anyhow::Result<Vec<Descriptor>> {
        let entries = descriptors(self.pid).map_err(|error| match error.kind() {
            ErrorKind::NotFound => anyhow!("process {} has ended", self.pid),
            ErrorKind::PermissionDenied => anyhow!(
                "process {} ({}) belongs to another user, or does not permit inspection: run as root (sudo)",
                self.pid,
                self.name
            ),
            _ => anyhow::Error::new(error)
                .context(format!("cannot list the descriptors of process {}", self.pid)),
        })?;
        let Ok(remote) = &self.software else { return Ok(entries) };
        let named = entries.into_iter().map(|descriptor| {
            // To the kernel these are pipes and files without a name.
            if !descriptor.name.starts_with("pipe:") && !descriptor.name.starts_with("/memfd:") {
                return Ok(Some(descriptor));
            }
            let Some(copy) = self.duplicate(descriptor.number)? else { return Ok(None) };
            let name = remote.descriptor_name(copy.as_fd()).map_err(|_| self.silent())?;
            let name = name.unwrap_or(descriptor.name);
            Ok(Some(Descriptor { number: descriptor.number, name }))
        });
        named.filter_map(Result::transpose).collect()
    }

    /// Copies a descriptor: both then mean the same open file, which lives until both are closed. `None` if the
    /// process has none of this number any more.
    ///
    /// # Errors
    /// It takes the right to trace the process.
    fn duplicate(&self, fd: i32) -> anyhow::Result<Option<OwnedFd>> {
        // SAFETY: the call takes numbers alone.
        let copy = owned(unsafe { libc::syscall(libc::SYS_pidfd_getfd, self.pidfd.as_raw_fd(), fd, 0) });
        let error = match copy {
            Ok(copy) => return Ok(Some(copy)),
            Err(error) => error,
        };
        let why = match error.raw_os_error() {
            Some(libc::EBADF) => return Ok(None),
            Some(libc::EPERM) => {
                "it takes the right to trace the process: run as root (sudo), or set \
                 /proc/sys/kernel/yama/ptrace_scope to 0"
            }
            Some(libc::ESRCH) => "the process has ended",
            Some(libc::ENOSYS) => "this kernel cannot copy them (pidfd_getfd): Linux 5.6 is needed",
            _ => "the kernel refused",
        };
        let context = format!("cannot copy descriptor {fd} of process {}: {why}", self.pid);
        Err(anyhow::Error::new(error).context(context))
    }

    /// Copies what a descriptor meant when it was listed; `None` if its number means nothing any more, or
    /// something else.
    ///
    /// # Errors
    /// Those of [`Process::duplicate`], or the software ga10b does not answer.
    pub fn copy(&self, descriptor: &Descriptor) -> anyhow::Result<Option<OwnedFd>> {
        let Some(copy) = self.duplicate(descriptor.number)? else { return Ok(None) };
        let name = match &self.software {
            Ok(remote) => remote.descriptor_name(copy.as_fd()).map_err(|_| self.silent())?,
            Err(_) => link_name(format!("/proc/self/fd/{}", copy.as_raw_fd())).ok(),
        };
        Ok(name.is_none_or(|name| name == descriptor.name).then_some(copy))
    }

    /// The value of a key of `/proc/PID/fdinfo/FD`.
    pub fn fd_info(&self, fd: i32, key: &str) -> Option<String> {
        let text = fs::read_to_string(format!("/proc/{}/fdinfo/{fd}", self.pid)).ok()?;
        let value = |line: &str| Some(line.strip_prefix(key)?.strip_prefix(':')?.trim().to_owned());
        text.lines().find_map(value)
    }

    /// The size of a descriptor's file, where it has one.
    pub fn fd_size(&self, fd: i32) -> Option<u64> {
        let size = fs::metadata(format!("/proc/{}/fd/{fd}", self.pid)).ok()?.len();
        (size > 0).then_some(size)
    }

    /// Returns its CPU mappings; none without the right to know.
    pub fn host_ranges(&self) -> Vec<HostRange> {
        host_ranges(self.pid)
    }
}

/// The value of an environment variable that a process was started with.
fn variable(pid: u32, name: &str) -> Option<String> {
    let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
    let value = |set: &[u8]| Some(set.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?.to_vec());
    String::from_utf8(environment.split(|b| *b == 0).find_map(value)?).ok()
}

/// The map that a process writes of its own address space, if `HCQ_MAP_DIR` is set.
pub fn map_file(pid: u32) -> Option<PathBuf> {
    let folder = variable(pid, "HCQ_MAP_DIR").filter(|folder| !folder.is_empty())?;
    // A relative folder is one below where the process works.
    let base = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    Some(base.join(folder).join(format!("{pid}.json"))).filter(|path| path.exists())
}

/// Returns the CPU mappings of a process; none if it has ended, or without the right to know.
pub fn host_ranges(pid: u32) -> Vec<HostRange> {
    HostRange::read(&fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default())
}

/// The letter of a process's state in `/proc/PID/stat`.
fn state(pid: u32) -> Option<char> {
    let stat = fs::read(format!("/proc/{pid}/stat")).ok()?;
    // Its name, in parentheses, may hold any.
    String::from_utf8_lossy(&stat).rsplit_once(") ")?.1.chars().next()
}

/// Whether a signal or a debugger has stopped a process in that state.
fn is_stopped(state: Option<char>) -> bool {
    matches!(state, Some('T' | 't'))
}

/// The descriptors of a process, as the kernel shows them.
fn descriptors(pid: u32) -> io::Result<Vec<Descriptor>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(format!("/proc/{pid}/fd"))? {
        let entry = entry?;
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        // Those that are closed meanwhile have no name any more.
        if let (Some(number), Ok(name)) = (number, link_name(entry.path())) {
            found.push(Descriptor { number, name });
        }
    }
    found.sort_by_key(|descriptor| descriptor.number);
    Ok(found)
}

/// The name that the kernel shows for a descriptor, by its path in `/proc`.
fn link_name(path: impl AsRef<Path>) -> io::Result<String> {
    fs::read_link(path).map(|name| name.to_string_lossy().into_owned())
}

/// The descriptor a system call answered with.
fn owned(answer: libc::c_long) -> io::Result<OwnedFd> {
    match i32::try_from(answer) {
        // SAFETY: the kernel made the descriptor just now, and nothing else knows of it.
        Ok(fd) if fd >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(fd) }),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Why a process that was opened has nothing of nvgpu to inspect.
pub fn nothing_to_ask(process: &Process, what: &str) -> anyhow::Error {
    const VISIBLE: &str = ga10b_sim::SimConfig::VISIBLE;
    let why = match (&process.software, variable(process.pid, VISIBLE).as_deref()) {
        (Ok(_), _) => "it has made none yet, or has closed it".to_owned(),
        (Err(Errno::EACCES), _) => "its software ga10b is shown to its own user alone".to_owned(),
        (Err(_), Some("1")) => format!(
            "it was started with {VISIBLE}=1, and has opened no software ga10b yet, has closed it, or uses another GPU"
        ),
        (Err(_), _) => format!(
            "on a Jetson: is it the process that uses the GPU? On the software ga10b it has to be started with \
             {VISIBLE}=1; the desktop driver cannot be asked from outside"
        ),
    };
    anyhow!("{} holds no {what} of nvgpu: {why}", process.title())
}

/// Opens a process and lists its descriptors.
pub fn look_at(pid: u32) -> anyhow::Result<(Process, Vec<Descriptor>)> {
    let process = Process::open(pid)?;
    let descriptors = process.descriptors().with_context(|| format!("cannot inspect process {pid}"))?;
    Ok((process, descriptors))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek, Write};

    use super::*;

    #[test]
    fn a_descriptor_is_found_and_copied() {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(b"shared").expect("written");
        let process = match Process::open(std::process::id()) {
            Err(error) if error.to_string().contains("this kernel cannot") => {
                ga10b_oracles::skipped("no pidfds here");
                return;
            }
            process => process.expect("ourselves"),
        };
        let ours = process.descriptors().expect("our own");
        assert!(ours.iter().any(|d| d.number == file.as_raw_fd() && !d.name.is_empty()), "{ours:?}");
        let copy = match process.duplicate(file.as_raw_fd()) {
            Err(error)
                if error.to_string().contains("right to trace")
                    || error.to_string().contains("this kernel") =>
            {
                ga10b_oracles::skipped(format_args!("descriptors cannot be copied here: {error}"));
                return;
            }
            copy => copy.expect("copied").expect("open"),
        };
        let mut copy = std::fs::File::from(copy);
        copy.rewind().expect("a file");
        let mut text = String::new();
        copy.read_to_string(&mut text).expect("readable");
        assert_eq!(text, "shared");
        assert!(process.duplicate(i32::MAX).expect("asked").is_none(), "not open");
        // Its number means another file than when it was listed.
        let listed = Descriptor { number: file.as_raw_fd(), name: "pipe:[1]".into() };
        assert!(process.copy(&listed).expect("asked").is_none(), "reused");
    }

    #[test]
    fn a_process_that_is_not_there_is_an_error_that_says_so() {
        let error = Process::open(0x7fff_fff0).expect_err("no such process");
        assert!(
            error.to_string().contains("there is no process") || error.to_string().contains("this kernel"),
            "{error}"
        );
    }
}
