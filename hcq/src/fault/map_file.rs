//! The map file: what this process has in its GPU address space, written for other programs to read.
//!
//! If `HCQ_MAP_DIR` names a folder, each process that uses this crate keeps `PID.json` there: windows,
//! mappings and loaded programs of its open devices, each as of the last program loaded and of the fault that
//! stopped it. `nvdiag esr --map FILE` names kernels, instructions and buffers by it. Each device has an address
//! space of its own.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::core::Core;
use crate::fault::new_file;
use crate::memory::manager::MemoryManager;
use crate::program::registry::Registry;
use crate::sync::lock;

/// The folder, if the environment names one.
fn folder() -> Option<&'static PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    FOLDER.get_or_init(|| super::folder("HCQ_MAP_DIR")).as_ref()
}

/// An address space of this process, as the file has it.
struct Space {
    owner: Weak<MemoryManager>,
    /// Windows and mappings: members of an object.
    members: String,
    /// Programs: items of a list.
    modules: String,
}

/// The address spaces of this process that have something to write, oldest first.
static SPACES: Mutex<Vec<Space>> = Mutex::new(Vec::new());

/// Writes the file anew, if it is asked for: this address space as it is now, the others of this process as
/// they were written last. A failure to write is logged: a map is no reason to fail.
pub(crate) fn write(core: &Core, programs: &Registry) {
    let Some(folder) = folder() else { return };
    let owner = Arc::downgrade(core.memory());
    let space = Space { members: members(core), modules: modules(programs), owner };
    let mut spaces = lock(&SPACES);
    spaces.retain(|other| other.owner.strong_count() > 0);
    match spaces.iter_mut().find(|other| other.owner.ptr_eq(&space.owner)) {
        Some(before) => *before = space,
        None => spaces.push(space),
    }
    if let Err(error) = replace(folder, &document(&spaces)) {
        tracing::warn!(folder = %folder.display(), %error, "the map file cannot be written");
    }
}

/// Replaces the file of this process in the folder. A reader sees the old file or the new one, never half of one.
fn replace(folder: &Path, text: &str) -> io::Result<()> {
    let pid = std::process::id();
    let fresh = |number| folder.join(format!(".{pid}.{number}.json.new"));
    let fresh = new_file::write(fresh, text.as_bytes())?;
    let replaced = std::fs::rename(&fresh, folder.join(format!("{pid}.json")));
    if replaced.is_err() {
        let _ = std::fs::remove_file(&fresh);
    }
    replaced
}

/// The file: `nvdiag.map/1` of one address space, `nvdiag.map/2` of several.
fn document(spaces: &[Space]) -> String {
    let version = if spaces.len() == 1 { 1 } else { 2 };
    let mut text = format!("{{\"schema\":\"nvdiag.map/{version}\",");
    let _ = write!(text, "\"process\":{{\"pid\":{}}},", std::process::id());
    match spaces {
        [space] => text.push_str(&space.members),
        _ => {
            text.push_str("\"spaces\":[");
            list(&mut text, spaces, |text, space| text.extend(["{", &space.members, "}"]));
            text.push(']');
        }
    }
    text.push_str(",\"modules\":[");
    let of_any = spaces.iter().map(|space| &space.modules).filter(|modules| !modules.is_empty());
    list(&mut text, of_any, |text, modules| text.push_str(modules));
    text.push_str("]}\n");
    text
}

/// Windows and mappings.
fn members(core: &Core) -> String {
    let layout = core.backend().layout();
    let hopper = core.info().sm >= 0x900;
    let mut text = String::from("\"windows\":[");
    // Hopper's shared memory of a cluster is seen through a window of 4 GiB.
    let shared = if hopper { 4_u64 << 30 } else { 16 << 20 };
    let windows =
        [("shared memory", layout.shared_window, shared), ("local memory", layout.local_window, 16 << 20)];
    list(&mut text, windows, |text, (name, base, size)| {
        let _ = write!(text, "{{\"name\":\"{name}\",\"base\":\"{:#x}\",\"size_bytes\":{size}}}", base.raw());
    });
    text.push_str("],\"mappings\":[");
    list(&mut text, core.memory().mappings(), |text, m| {
        let (va, size) = (m.va.raw(), m.len);
        let _ = write!(text, "{{\"what\":\"{}\",\"va\":\"{va:#x}\",\"size_bytes\":{size}}}", m.what);
    });
    text.push(']');
    text
}

fn modules(programs: &Registry) -> String {
    let mut text = String::new();
    list(&mut text, programs.images(), |text, image| {
        let base = image.base().raw();
        let _ = write!(
            text,
            "{{\"name\":\"program at {base:#x}\",\"sm\":{},\"va\":\"{base:#x}\",\"functions\":[",
            image.sm()
        );
        list(text, image.functions(), |text, (name, offset, len)| {
            text.push_str("{\"name\":");
            string(text, name);
            let _ = write!(text, ",\"va\":\"{:#x}\",\"size_bytes\":{len}}}", base + offset);
        });
        text.push_str("],\"code\":\"");
        for byte in image.content() {
            let _ = write!(text, "{byte:02x}");
        }
        text.push_str("\"}");
    });
    text
}

/// Writes items with commas between them.
fn list<T>(text: &mut String, items: impl IntoIterator<Item = T>, mut item: impl FnMut(&mut String, T)) {
    for (index, value) in items.into_iter().enumerate() {
        if index > 0 {
            text.push(',');
        }
        item(text, value);
    }
}

/// Writes a JSON string.
fn string(text: &mut String, value: &str) {
    text.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => text.extend(['\\', c]),
            c if c < ' ' => {
                let _ = write!(text, "\\u{:04x}", u32::from(c));
            }
            c => text.push(c),
        }
    }
    text.push('"');
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn the_file_is_private_and_links_in_its_place_are_replaced_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let pid = std::process::id();
        let (target, path) = (folder.path().join("target"), folder.path().join(format!("{pid}.json")));
        for link in [path.clone(), folder.path().join(format!(".{pid}.0.json.new"))] {
            symlink(&target, link).expect("a link");
        }
        for text in ["first", "second"] {
            replace(folder.path(), text).expect("written");
            assert_eq!(std::fs::read_to_string(&path).expect("a file"), text);
            let metadata = std::fs::symlink_metadata(&path).expect("a file");
            assert!(metadata.is_file() && metadata.permissions().mode() & 0o777 == 0o600);
        }
        assert!(!target.exists(), "no link is followed");
        std::fs::remove_file(&path).expect("removed");
        std::fs::create_dir(&path).expect("a folder");
        replace(folder.path(), "third").expect_err("a folder is no file to replace");
        assert_eq!(std::fs::read_dir(folder.path()).expect("a folder").count(), 2, "the link and the folder");
    }

    #[test]
    fn names_are_escaped() {
        let mut text = String::new();
        string(&mut text, "a\"b\\c\nd");
        assert_eq!(text, r#""a\"b\\c\u000ad""#);
    }
}
