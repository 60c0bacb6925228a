//! Processes of a fault: their command line, program, memory and GPU address space, as far as they still live
//! or have left a map.
//!
//! Environments are not read, but for the folder of `HCQ_MAP_DIR`, and no memory is. The files of other users
//! are not trusted: lengths have limits, and a file that is not a regular one is not opened for long.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use nvdiag::Report;
use nvdiag::address_map::ga10b_windows;
use nvdiag::fault::Owner;
use nvdiag::process_map::ProcessMap;
use nvdiag::saved;

use crate::cmd::input::open_regular;
use crate::cmd::process;
use crate::cmd::vamap;

/// Most processes of one fault.
const MOST: usize = 4;
/// Most bytes kept of a file of `/proc`.
const PROC_BYTES: u64 = 1 << 20;
/// Most bytes of a map.
const MAP_BYTES: u64 = 16 << 20;
/// Age of a map file that may be of the fault: `hcq` writes it when the fault stops the device.
const FRESH: Duration = Duration::from_secs(10);

/// Facts about the processes of a fault.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// The processes.
    pub processes: Vec<saved::Process>,
    /// Files to keep: names and contents.
    pub files: Vec<(String, Vec<u8>)>,
    /// Address map of the one process, if there is one.
    pub map: ProcessMap,
    /// Notes on parts that could not be kept, and where the map is from.
    pub notes: Vec<String>,
}

impl Snapshot {
    /// Inspects the processes that the lines of a fault name. `maps` is the folder in which programs leave
    /// their maps.
    pub fn of(owners: &[Owner], maps: Option<&Path>) -> Self {
        let mut snapshot = Self::default();
        let mut pids: Vec<u32> = owners.iter().filter_map(|owner| owner.pid).collect();
        for name in owners.iter().filter(|owner| owner.pid.is_none()).filter_map(|o| o.comm.as_deref()) {
            let named = named(name);
            if !named.iter().any(|pid| pids.contains(pid)) {
                snapshot.explain_names(name, &named);
                pids.extend(named);
            }
        }
        pids.sort_unstable();
        pids.dedup();
        pids.truncate(MOST);
        for pid in &pids {
            snapshot.inspect(*pid, owners);
        }
        match pids.as_slice() {
            [pid] => snapshot.add_map(*pid, maps),
            [] => {
                let fresh: Vec<u32> = maps.map(fresh_maps).unwrap_or_default();
                if let [pid] = fresh.as_slice() {
                    snapshot.add_map(*pid, maps);
                    snapshot.notes.push(format!(
                        "process {pid} is the only one whose map changed in the {} s before the fault was saved",
                        FRESH.as_secs()
                    ));
                }
            }
            _ => snapshot.notes.push("no address map: several processes may be meant".to_owned()),
        }
        if snapshot.processes.is_empty() {
            let named = owners.iter().filter(|owner| owner.comm.is_some());
            snapshot.processes.extend(named.map(|owner| saved::Process {
                comm: owner.comm.clone(),
                pid: owner.pid,
                exe: None,
            }));
            snapshot.processes.dedup();
        }
        snapshot
    }

    fn explain_names(&mut self, name: &str, found: &[u32]) {
        match found.len() {
            0 => self.notes.push(format!("no process is called {name} any more")),
            1 => {}
            count => self.notes.push(format!("the log has no process number, and {count} are called {name}")),
        }
    }

    /// Keeps the files of a process in `/proc`.
    fn inspect(&mut self, pid: u32, owners: &[Owner]) {
        let comm = read(&PathBuf::from(format!("/proc/{pid}/comm")), PROC_BYTES);
        let named = || owners.iter().find(|owner| owner.pid == Some(pid))?.comm.clone();
        let exe = fs::read_link(format!("/proc/{pid}/exe")).ok();
        self.processes.push(saved::Process {
            pid: Some(pid),
            comm: comm.as_ref().map(|c| String::from_utf8_lossy(c).trim_end().to_owned()).or_else(named),
            exe: exe.map(|exe| exe.display().to_string()),
        });
        if comm.is_none() {
            self.notes.push(format!("process {pid} has ended"));
            return;
        }
        for name in ["cmdline", "maps", "status"] {
            let Some(mut bytes) = read(&PathBuf::from(format!("/proc/{pid}/{name}")), PROC_BYTES) else {
                self.notes.push(format!("/proc/{pid}/{name} cannot be read"));
                continue;
            };
            if name == "cmdline" {
                bytes.iter_mut().filter(|b| **b == 0).for_each(|b| *b = b'\n');
            }
            self.files.push((format!("{pid}.{name}"), bytes));
        }
    }

    /// Keeps the map of a process: its own file, or the driver's answer.
    fn add_map(&mut self, pid: u32, maps: Option<&Path>) {
        let used = map_of(pid, maps).and_then(|(bytes, note)| match self.map.add_json(&bytes) {
            Ok(()) => Ok((bytes, note)),
            Err(error) => Err(format!("no address map: {error}")),
        });
        match used {
            Ok((bytes, note)) => {
                self.notes.push(note);
                self.files.push((format!("{pid}.map.json"), bytes));
            }
            Err(why) => return self.notes.push(why),
        }
        if self.map.host.is_empty() {
            self.map.host = process::host_ranges(pid);
        }
        if self.map.windows.is_empty() {
            for window in ga10b_windows() {
                self.map.add_window(&format!("assumed {}", window.name), window.base.0);
            }
        }
    }
}

/// The address map of a process as JSON, and where it is from: its own file, or the driver's answer.
///
/// # Errors
/// Why there is none.
pub fn map_of(pid: u32, maps: Option<&Path>) -> Result<(Vec<u8>, String), String> {
    let left = maps.map(|folder| folder.join(format!("{pid}.json"))).filter(|path| path.exists());
    if let Some(path) = left.or_else(|| process::map_file(pid)) {
        let bytes =
            read(&path, MAP_BYTES).ok_or_else(|| format!("the map {} cannot be read", path.display()))?;
        return Ok((bytes, format!("the address map is the one that the process kept, {}", path.display())));
    }
    let answered = || {
        let (process, descriptors) = process::look_at(pid)?;
        let map = vamap::read_process(&process, &descriptors, Vec::new())?;
        anyhow::Ok(map.json()?.to_string().into_bytes())
    };
    let bytes = answered().map_err(|error| format!("no address map: {error:#}"))?;
    Ok((bytes, "the address map is that of the process after the fault, by the driver".to_owned()))
}

/// The start of a file; `None` if it is none, or is too long for a map.
fn read(path: &Path, most: u64) -> Option<Vec<u8>> {
    let file = open_regular(path, OpenOptions::new().read(true)).ok()?;
    file.metadata().ok().filter(|data| data.len() <= most)?;
    let mut bytes = Vec::new();
    File::take(file, most).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

/// Processes of which a thread has this name, but for this one; those that use a GPU, if any does.
fn named(name: &str) -> Vec<u32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let has_name = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads
            .map(|thread| fs::read_to_string(thread.path().join("comm")))
            .any(|comm| comm.is_ok_and(|c| c.trim_end() == name))
    };
    let found: Vec<u32> = pids.filter(|pid| *pid != std::process::id()).filter(has_name).collect();
    let users: Vec<u32> = found.iter().copied().filter(|pid| uses_gpu(*pid)).collect();
    if users.is_empty() { found } else { users }
}

/// Whether a process has a descriptor of a GPU driver.
fn uses_gpu(pid: u32) -> bool {
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    open.filter_map(|entry| fs::read_link(entry.path()).ok()).any(|target| {
        let target = target.to_string_lossy();
        ["nvgpu", "nvhost", "/dev/nvidia", "/dev/dri/"].iter().any(|part| target.contains(part))
    })
}

/// Processes whose maps changed a moment ago.
fn fresh_maps(folder: &Path) -> Vec<u32> {
    let all = fs::read_dir(folder).into_iter().flatten().flatten();
    let fresh = all.filter(|entry| {
        let changed = entry.metadata().and_then(|data| data.modified());
        changed.is_ok_and(|at| SystemTime::now().duration_since(at).is_ok_and(|age| age <= FRESH))
    });
    fresh.filter_map(|entry| entry.file_name().to_str()?.strip_suffix(".json")?.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(pid: Option<u32>, comm: &str) -> Owner {
        Owner { pid, comm: Some(comm.to_owned()), ..Owner::default() }
    }

    #[test]
    fn a_process_is_described_by_proc_without_its_environment() {
        let own = std::process::id();
        let snapshot = Snapshot::of(&[owner(Some(own), "x")], None);
        let [process] = snapshot.processes.as_slice() else { panic!("{snapshot:?}") };
        assert_eq!((process.pid, process.exe.is_some()), (Some(own), true));
        let names: Vec<_> = snapshot.files.iter().map(|(name, _)| name.clone()).collect();
        assert_eq!(names, ["cmdline", "maps", "status"].map(|name| format!("{own}.{name}")));
        assert!(snapshot.notes.iter().any(|note| note.starts_with("no address map: ")), "{snapshot:?}");
    }

    #[test]
    fn a_process_that_has_ended_leaves_its_name_and_the_map_that_it_wrote() {
        let maps = tempfile::tempdir().expect("a folder");
        let map = r#"{"schema":"nvdiag.map/1","process":{"pid":4194305},"windows":[],"mappings":[{"what":"buffer","va":"0x1000","size_bytes":16}]}"#;
        fs::write(maps.path().join("4194305.json"), map).expect("written");
        // Numbers of processes end at 2^22.
        for owners in [vec![owner(Some(4_194_305), "gone")], vec![owner(None, "no\u{1}body")]] {
            let snapshot = Snapshot::of(&owners, Some(maps.path()));
            assert_eq!(snapshot.processes[0].comm, owners[0].comm);
            assert_eq!(snapshot.files.len(), 1, "{snapshot:?}");
            assert_eq!(snapshot.files[0], ("4194305.map.json".to_owned(), map.as_bytes().to_vec()));
            assert_eq!(snapshot.map.mappings.len(), 1);
        }
    }

    #[test]
    fn files_that_are_none_or_too_long_are_not_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let pipe = folder.path().join("1.json");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("a pipe");
        assert_eq!(read(&pipe, 16), None);
        let long = folder.path().join("2.json");
        fs::write(&long, [0; 17]).expect("written");
        assert_eq!((read(&long, 16), read(&long, 17).map(|b| b.len())), (None, Some(17)));
    }
}
