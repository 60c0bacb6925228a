//! Start of a program so that it reports its submissions.

use std::collections::{BTreeMap, HashSet};
use std::ffi::{CString, OsString};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::Context;
use ga10b_capture::Limits;
use nvdiag::Hex;
use nvdiag::trace::decode::decode;
use nvdiag::trace::submission::Submission;
use nvdiag::trace::{Call, Event};

/// The library that reads rings inside the program.
const LIBRARY: &str = "libnvdiag_capture.so";
/// QMDs that are saved at most.
const MOST_SAVED: usize = 10_000;

/// Options about submissions.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Show what the program submits to its queues: a line for each launch, copy and semaphore; with -v its
    /// calls too, and methods and QMDs field by field.
    #[arg(long, conflicts_with = "pid")]
    pub submissions: bool,
    /// Entries of a channel that are read; those after them are counted.
    #[arg(long, value_name = "COUNT", requires = "submissions", conflicts_with = "replay")]
    submission_limit: Option<u64>,
    /// Save each QMD in this folder, as a file for `nvdiag qmd`.
    #[arg(long, value_name = "DIR")]
    pub qmd: Option<PathBuf>,
}

impl Args {
    /// Variables of the program's environment.
    ///
    /// # Errors
    /// A path that the environment cannot hold.
    pub fn variables(&self) -> anyhow::Result<Vec<(CString, CString)>> {
        if !self.submissions {
            return Ok(Vec::new());
        }
        let mut variables = vec![("NVGPU_SIM_SUBMISSIONS", OsString::from("1"))];
        variables.extend(self.submission_limit.map(|limit| (Limits::ENTRIES, limit.to_string().into())));
        // Without it the software ga10b still reports; whether others were missed is known at the end.
        if let Some(library) = library()? {
            let mut list = library.into_os_string();
            if let Some(before) = std::env::var_os("LD_PRELOAD").filter(|list| !list.is_empty()) {
                list.push(":");
                list.push(before);
            }
            variables.push(("LD_PRELOAD", list));
        }
        let c = |text: &[u8]| CString::new(text).context("a path holds a zero byte");
        variables.iter().map(|(name, value)| Ok((c(name.as_bytes())?, c(value.as_bytes())?))).collect()
    }

    /// Returns the records of channels, if their rings are read.
    pub fn rings(&self) -> Option<Rings> {
        let is_installed = library().is_ok_and(|library| library.is_some());
        self.submissions.then(|| Rings { is_installed, processes: BTreeMap::new() })
    }
}

/// The library beside this program, if it is there.
fn library() -> anyhow::Result<Option<PathBuf>> {
    let program = std::env::current_exe().context("cannot find the path of nvdiag")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    // `deps` is where Cargo puts it for tests.
    let places = ["", "deps", "../lib", "../lib/nvdiag"].map(|place| folder.join(place).join(LIBRARY));
    Ok(places.into_iter().find(|path| path.is_file()))
}

/// Processes that made channels, and whether their rings were read.
#[derive(Debug)]
pub struct Rings {
    /// Whether the library that reads them is beside this program.
    is_installed: bool,
    processes: BTreeMap<i32, Process>,
}

#[derive(Debug, Default)]
struct Process {
    channels: u64,
    submissions: u64,
    /// Whether the library was absent when a channel was made.
    lacks_library: bool,
}

impl Rings {
    /// Notes an event, while its thread is stopped.
    pub fn event(&mut self, event: &Event) {
        if matches!(event.call, Call::Submission(_)) {
            self.processes.entry(event.pid).or_default().submissions += 1;
        } else if is_channel(event) {
            let process = self.processes.entry(event.pid).or_default();
            process.channels += 1;
            let maps = fs::read_to_string(format!("/proc/{}/maps", event.pid));
            process.lacks_library |= maps.is_ok_and(|maps| !maps.contains(LIBRARY));
        }
    }

    /// Says on stderr which channels were not read, and why.
    pub fn explain(&self) {
        let silent = self.processes.iter().filter(|(_, process)| process.submissions == 0);
        for (pid, Process { channels, lacks_library, .. }) in silent {
            let channels =
                if *channels == 1 { "1 channel".to_owned() } else { format!("{channels} channels") };
            match lacks_library {
                true if !self.is_installed => eprintln!(
                    "nvdiag: process {pid} made {channels}, whose submissions are not seen: {LIBRARY} is neither beside \
                     nvdiag nor in ../lib\n  \
                     try: cargo build -p ga10b-capture-preload"
                ),
                true => eprintln!(
                    "nvdiag: process {pid} made {channels}, whose submissions are not seen: {LIBRARY} is not in it\n  \
                     where the command or the program sets LD_PRELOAD, name {LIBRARY} there too\n  \
                     a program that is linked statically, or is setuid, does not load it"
                ),
                false => eprintln!(
                    "nvdiag: process {pid} made {channels}, and nothing was found in their rings, although {LIBRARY} is in it"
                ),
            }
        }
    }
}

/// Whether a call made a channel with a ring.
fn is_channel(event: &Event) -> bool {
    let Call::Ioctl { request, .. } = &event.call else { return false };
    if event.result < 0 {
        return false;
    }
    let bind = Hex(u64::from(nvgpu_sys::NVGPU_IOCTL_CHANNEL_SETUP_BIND));
    *request == bind
        || decode(event).is_some_and(|decoded| {
            let is_class = decoded.about.as_ref().is_some_and(|about| about.contains("_CHANNEL_GPFIFO"));
            decoded.name == "NV_ESC_RM_ALLOC" && is_class && decoded.status.is_none()
        })
}

/// Saves QMDs, each once.
#[derive(Debug)]
pub struct Saver {
    folder: PathBuf,
    known: HashSet<(u64, Vec<u8>)>,
}

impl Saver {
    /// Into a folder, which is made if there is none.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {}", folder.display()))?;
        Ok(Self { folder: folder.to_owned(), known: HashSet::new() })
    }

    /// Saves those of a submission.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn save(&mut self, submission: &Submission) -> anyhow::Result<()> {
        for launch in &submission.launches {
            let Some(bytes) = &launch.bytes else { continue };
            if self.known.len() >= MOST_SAVED || !self.known.insert((launch.address.0, bytes.0.clone())) {
                continue;
            }
            let name = format!("{:04}-{}.qmd", self.known.len(), launch.address);
            let path = self.folder.join(name);
            // One of an earlier run is replaced; a link there is not written to.
            let _ = fs::remove_file(&path);
            let written = File::create_new(&path).and_then(|mut file| file.write_all(&bytes.0));
            written.with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
}
