//! `nvdiag doctor`: checks the machine, and says what to do.

use std::ffi::CString;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, access};
use nvdiag::doctor::{Machine, Node, examine};
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::kernel_log;

/// Check the machine: nodes and permissions, driver, clocks, memory, kernel log; each with its remedy.
///
/// Warnings are about speed; after a bad check the GPU cannot be used, and the exit code is 1.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag doctor                 this machine
  nvdiag doctor --json          the same, for a program
  nvdiag doctor --root /mnt     the files of another machine, under a folder

Exit codes: 0 no bad check; 1 a bad check: the GPU cannot be used; 2 bad usage, or no such folder.")]
pub struct Args {
    /// Read the files under this folder instead of the machine's own.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

impl Args {
    /// Checks, and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        anyhow::ensure!(self.root.is_dir(), "--root {} is no folder", self.root.display());
        show(&examine(&Files { root: &self.root }), json, out)
    }
}

/// The files of a machine under a folder.
pub(super) struct Files<'a> {
    root: &'a Path,
}

impl Files<'_> {
    /// Those of this machine.
    pub(super) fn own() -> Self {
        Self { root: Path::new("/") }
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path.trim_start_matches('/'))
    }

    fn is_own(&self) -> bool {
        self.root == Path::new("/")
    }
}

impl Machine for Files<'_> {
    fn read(&self, path: &str) -> Option<String> {
        /// No file that is read here is longer.
        const LIMIT: u64 = 1 << 20;
        let mut bytes = Vec::new();
        fs::File::open(self.path(path)).ok()?.take(LIMIT).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn list(&self, path: &str) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    fn node(&self, path: &str) -> Option<Node> {
        let path = self.path(path);
        let metadata = fs::metadata(&path).ok()?;
        let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
        let usable = match self.is_own() {
            true => CString::new(path.as_os_str().as_bytes())
                .is_ok_and(|path| access(path.as_c_str(), AccessFlags::R_OK | AccessFlags::W_OK).is_ok()),
            // In a made-up tree the files are all ours: their permission bits for others say what was meant.
            false => mode & 0o006 == 0o006,
        };
        Some(Node { mode, uid, gid, usable })
    }

    fn faults(&self) -> Option<u64> {
        let mut session = Session::new(ProcessMap::default(), 1);
        match self.is_own() {
            true => {
                kernel_log::read(&mut |bytes| session.feed(bytes)).ok()?;
            }
            false => session.feed(self.read("/dev/kmsg")?.as_bytes()),
        }
        Some(session.finish("the kernel log").found)
    }
}
