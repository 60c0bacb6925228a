//! A machine's files: this one's, or copies of another's in a folder.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ffi::{CString, OsString};
use std::fs;
use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};
use nix::unistd::{AccessFlags, access};
use nvdiag::doctor::{Machine, Node, Unread};
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;

use crate::cmd::input::read_regular;
use crate::cmd::kernel_log;

/// No file that is read here is longer.
const LIMIT: u64 = 1 << 20;
/// A copied kernel log: twice the largest ring that a kernel can be built with (`LOG_BUF_SHIFT` 25).
const LOG_LIMIT: u64 = 64 << 20;
/// The listing of a copied machine's device nodes, which cannot be copied themselves.
const LISTING: &str = "dev.txt";

/// The files of a machine under a folder.
pub struct Files {
    root: PathBuf,
    /// Facts of a copied machine besides its files.
    copied: Option<Copied>,
}

struct Copied {
    user: User,
    /// The nodes by path, if there is a listing.
    nodes: Option<BTreeMap<String, Listed>>,
}

/// Metadata of a file.
#[derive(Clone, Copy, Debug)]
struct Listed {
    /// Permission bits.
    mode: u32,
    uid: u32,
    gid: u32,
    /// Whether it is a device, or stands for one.
    device: bool,
}

/// User who ran the programs of a copied machine.
#[derive(Default)]
struct User {
    uid: Option<u32>,
    groups: BTreeSet<u32>,
}

impl User {
    /// Out of `/proc/self/status`; without it a user in no group, without files.
    fn of(status: &str) -> Self {
        let numbers = |key: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(key)).unwrap_or_default();
            line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<u32>>()
        };
        let groups = numbers("Gid:").into_iter().chain(numbers("Groups:")).collect();
        Self { uid: numbers("Uid:").get(1).copied(), groups }
    }

    /// Returns the user's permissions by the bits `mode` of a file of `uid` and `gid`: read 4, write 2.
    fn may(&self, Listed { mode, uid, gid, .. }: Listed) -> u32 {
        match self.uid {
            Some(0) => 0o7,
            Some(own) if own == uid => mode >> 6 & 0o7,
            _ if self.groups.contains(&gid) => mode >> 3 & 0o7,
            _ => mode & 0o7,
        }
    }
}

/// A line of the listing, as `stat -c '%A %u %g %n'` prints it: `crw-rw---- 0 44 /dev/nvmap`.
fn listed(line: &str) -> Option<(String, Listed)> {
    let mut words = line.split_whitespace();
    let (mode, uid, gid, path) = (words.next()?, words.next()?, words.next()?, words.next()?);
    // The kind of file, then nine permissions.
    let (kind, permissions) = (mode.get(..1)?, mode.get(1..)?);
    (permissions.len() == 9 && "bcdlps-".contains(kind)).then_some(())?;
    let bits = permissions.bytes().enumerate().try_fold(0, |bits, (at, letter)| {
        // Set-id and sticky bits take the place of x: small with it, large without.
        let (with_x, without) = if at == 8 { (b't', b'T') } else { (b's', b'S') };
        let set = b"rwx"[at % 3];
        match letter {
            b'-' => Some(bits << 1),
            letter if letter == set || set == b'x' && letter == with_x => Some(bits << 1 | 1),
            letter if set == b'x' && letter == without => Some(bits << 1),
            _ => None,
        }
    })?;
    path.starts_with("/dev/").then_some(())?;
    let device = "bc".contains(kind);
    Some((path.to_owned(), Listed { mode: bits, uid: uid.parse().ok()?, gid: gid.parse().ok()?, device }))
}

impl Files {
    /// Those of this machine.
    pub fn own() -> Self {
        Self { root: PathBuf::from("/"), copied: None }
    }

    /// Those of a machine that were copied to a folder.
    ///
    /// # Errors
    /// The folder is none; its listing or the user's `/proc/self/status` cannot be read; the latter names no
    /// user; a line of the listing is none, or names a node again.
    pub fn copied(root: &Path) -> anyhow::Result<Self> {
        ensure!(root.is_dir(), "--root {} is no folder", root.display());
        let mut files = Self { root: root.to_owned(), copied: None };
        let nodes = match files.needed(LISTING)? {
            // A listing that lists nothing was not made, or not copied.
            Some(text) if text.trim().is_empty() => None,
            Some(text) => Some(listing(&text).with_context(|| format!("{}/{LISTING}", root.display()))?),
            None => None,
        };
        let status = files.needed("/proc/self/status")?.unwrap_or_default();
        let user = User::of(&status);
        ensure!(
            status.trim().is_empty() || user.uid.is_some(),
            "{}/proc/self/status has no line of Uid: with four numbers",
            root.display()
        );
        files.copied = Some(Copied { user, nodes });
        Ok(files)
    }

    /// A file that decides permissions, if it is there: where it cannot be read, no check would be right.
    fn needed(&self, path: &str) -> anyhow::Result<Option<String>> {
        match self.text(path) {
            Ok(text) => Ok(Some(text)),
            Err(Unread::Absent) => Ok(None),
            Err(unread) => bail!("{} {unread}", self.path(path).display()),
        }
    }

    /// The bytes of a file.
    fn bytes(&self, path: &str, most: u64) -> Result<Vec<u8>, Unread> {
        let found = self.path(path);
        if found.as_os_str().is_empty() {
            return Err(Unread::Refused("Too many levels of links".to_owned()));
        }
        read_regular(&found, most).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Unread::Absent,
            ErrorKind::PermissionDenied => Unread::Forbidden,
            _ => Unread::Refused(error.to_string()),
        })
    }

    /// The kernel log: this machine's ring, or the copy `dev/kmsg`.
    pub fn kernel_log(&self) -> Result<Vec<u8>, Unread> {
        if self.copied.is_some() {
            return self.bytes("/dev/kmsg", LOG_LIMIT);
        }
        let mut log = Vec::new();
        kernel_log::read(&mut |bytes| log.extend_from_slice(bytes)).map_err(|_| Unread::Forbidden)?;
        Ok(log)
    }

    fn path(&self, path: &str) -> PathBuf {
        match self.copied {
            // A circle of links leads to no file.
            Some(_) => inside(&self.root, Path::new(path)).unwrap_or_default(),
            None => self.root.join(path.trim_start_matches('/')),
        }
    }

    /// The nodes of a listing, if there is one and it lists `path`.
    fn listing(&self, path: &str) -> Option<&BTreeMap<String, Listed>> {
        let nodes = self.copied.as_ref()?.nodes.as_ref()?;
        (path == "/dev" || path.starts_with("/dev/")).then_some(nodes)
    }
}

/// Where `path` leads in a copy of a machine: links are those of that machine, so absolute ones begin at
/// `root`, and none leads out of it. `None` for a circle of links.
fn inside(root: &Path, path: &Path) -> Option<PathBuf> {
    /// Links that are followed, as the kernel does.
    const LINKS: usize = 40;
    let parts = |path: &Path| -> VecDeque<OsString> {
        path.components().map(|part| part.as_os_str().to_owned()).collect()
    };
    let (mut left, mut found, mut links) = (parts(path), Vec::<OsString>::new(), 0);
    while let Some(part) = left.pop_front() {
        match part.as_encoded_bytes() {
            b"/" | b"." => {}
            b".." => drop(found.pop()),
            _ => {
                let here: PathBuf = found.iter().chain([&part]).collect();
                match fs::read_link(root.join(here)) {
                    Ok(target) if links < LINKS => {
                        links += 1;
                        if target.is_absolute() {
                            found.clear();
                        }
                        left = parts(&target).into_iter().chain(left).collect();
                    }
                    Ok(_) => return None,
                    Err(_) => found.push(part),
                }
            }
        }
    }
    Some(root.join(found.iter().collect::<PathBuf>()))
}

fn listing(text: &str) -> anyhow::Result<BTreeMap<String, Listed>> {
    let mut nodes = BTreeMap::new();
    for (number, line) in (1..).zip(text.lines()).filter(|(_, line)| !line.trim().is_empty()) {
        let (path, node) =
            listed(line).with_context(|| format!("line {number}: not as stat -c '%A %u %g %n' prints it"))?;
        ensure!(!nodes.contains_key(&path), "line {number}: {path} is there twice");
        nodes.insert(path, node);
    }
    Ok(nodes)
}

/// The name below `folder` that leads to `path`.
fn below(folder: &str, path: &str) -> Option<String> {
    let rest = path.strip_prefix(folder)?.strip_prefix('/')?;
    rest.split('/').next().map(str::to_owned)
}

impl Machine for Files {
    fn text(&self, path: &str) -> Result<String, Unread> {
        Ok(String::from_utf8_lossy(&self.bytes(path, LIMIT)?).into_owned())
    }

    fn list(&self, path: &str) -> Vec<String> {
        let names: BTreeSet<String> = match self.listing(path) {
            Some(nodes) => nodes.keys().filter_map(|node| below(path, node)).collect(),
            None => {
                let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
                entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
            }
        };
        names.into_iter().collect()
    }

    fn node(&self, path: &str) -> Option<Node> {
        let known = match self.listing(path) {
            Some(nodes) => match nodes.get(path) {
                Some(node) => *node,
                // A folder of which a node is listed.
                None => nodes.keys().any(|node| below(path, node).is_some()).then_some(Listed {
                    mode: 0o755,
                    uid: 0,
                    gid: 0,
                    device: false,
                })?,
            },
            None => {
                let metadata = fs::metadata(self.path(path)).ok()?;
                let kind = metadata.file_type();
                let stands_for_one = self.copied.is_some() && kind.is_file();
                let device = kind.is_char_device() || kind.is_block_device() || stands_for_one;
                Listed { mode: metadata.mode(), uid: metadata.uid(), gid: metadata.gid(), device }
            }
        };
        let may = match &self.copied {
            Some(copied) => copied.user.may(known),
            None => allowed(&self.path(path)),
        };
        let Listed { mode, uid, gid, device } = known;
        Some(Node { mode, uid, gid, readable: may & 4 != 0, usable: may & 6 == 6, device })
    }

    fn faults(&self) -> Result<u64, Unread> {
        let log = self.kernel_log()?;
        let mut session = Session::new(ProcessMap::default(), 1);
        session.feed(&log);
        match session.faults_of_gpu() {
            0 if self.is_copy() && log.trim_ascii().is_empty() => {
                Err(Unread::Refused("it is empty".to_owned()))
            }
            // The kernel escapes control characters: its log has none below the tab.
            0 if log.iter().any(|byte| *byte < b'\t') => Err(Unread::Refused("it is no text".to_owned())),
            faults => Ok(faults),
        }
    }

    fn is_copy(&self) -> bool {
        self.copied.is_some()
    }

    fn has_nodes(&self) -> bool {
        let Some(copied) = &self.copied else { return true };
        // Without a listing files stand for the nodes; the kernel log is copied for itself.
        copied.nodes.is_some() || self.list("/dev").iter().any(|name| name != "kmsg")
    }
}

/// Returns this process's permissions on a file: read 4, write 2.
fn allowed(path: &Path) -> u32 {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return 0 };
    let may = |flag| access(path.as_c_str(), flag).is_ok();
    u32::from(may(AccessFlags::R_OK)) << 2 | u32::from(may(AccessFlags::W_OK)) << 1
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn links_of_a_copy_stay_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path();
        fs::create_dir_all(root.join("etc/real")).expect("folders");
        fs::write(root.join("etc/real/file"), "inside").expect("a file");
        for (target, name) in [
            ("/etc/shadow", "etc/out"),
            ("/etc/real", "etc/absolute"),
            ("../../../../../etc/real/file", "etc/up"),
            ("circle", "etc/circle"),
        ] {
            symlink(target, root.join(name)).expect("a link");
        }
        for (path, expected) in [
            ("/etc/out", "etc/shadow"),
            ("/etc/absolute/file", "etc/real/file"),
            ("/etc/up", "etc/real/file"),
            ("/etc/none/file", "etc/none/file"),
        ] {
            assert_eq!(inside(root, Path::new(path)), Some(root.join(expected)), "{path}");
        }
        assert_eq!(inside(root, Path::new("/etc/circle")), None);
    }
}
