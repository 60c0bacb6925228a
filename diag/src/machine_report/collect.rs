//! Copies of a machine's files, in bounded memory.

use serde::Serialize;

use crate::doctor::{Machine, Unread};
use crate::machine_report::redact::Redactor;
use crate::machine_report::sources::{Kept, SUBJECTS};

/// Most files of one path with `*`: more than any machine has.
const MOST: usize = 4096;
/// Most bytes of all files.
const TOTAL: usize = 64 << 20;

/// A file of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Its subject.
    pub subject: &'static str,
    /// Where it is on the machine.
    pub path: String,
    /// Files that are copied of it.
    pub text: String,
}

/// A path at which nothing was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Absent {
    /// The subject.
    pub subject: &'static str,
    /// The path, with its `*` where nothing fits it.
    pub path: String,
    /// Why.
    pub why: String,
    /// Where a file of that name is described.
    pub source: &'static str,
}

impl Absent {
    /// Whether the machine has no such file, rather than one that cannot be read.
    #[must_use]
    pub fn is_lacking(&self) -> bool {
        self.why == Unread::Absent.to_string()
    }
}

/// The files of a machine that could be read, and the others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Collected {
    /// Files, in the order of [`SUBJECTS`].
    pub files: Vec<Copied>,
    /// Paths that the machine does not have, or does not let read.
    pub absent: Vec<Absent>,
}

/// Whether `name` is one that `pattern` describes, whose `*` stand for any text.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == name };
    let Some(mut left) = name.strip_prefix(first) else { return false };
    let (middle, last) = rest.rsplit_once('*').map_or((None, rest), |(middle, last)| (Some(middle), last));
    for part in middle.into_iter().flat_map(|middle| middle.split('*')) {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}

/// The paths that `pattern` describes; a name without `*` is taken to be there.
fn expand(machine: &dyn Machine, pattern: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for part in pattern.split('/').skip(1) {
        let mut next = Vec::new();
        for folder in found {
            match part.contains('*') {
                true => {
                    let names = machine.list(&folder).into_iter().filter(|name| fits(part, name));
                    next.extend(names.take(MOST - next.len()).map(|name| format!("{folder}/{name}")));
                }
                false => next.push(format!("{folder}/{part}")),
            }
        }
        found = next;
    }
    found
}

fn kept(text: String, kept: Kept) -> String {
    match kept {
        Kept::Whole => text,
        Kept::Presence => String::new(),
        Kept::Lines(starts) => {
            let is_kept = |line: &&str| starts.iter().any(|start| line.starts_with(start));
            text.lines().filter(is_kept).flat_map(|line| [line, "\n"]).collect()
        }
    }
}

/// Copies the files of [`SUBJECTS`], without what names a person or a machine.
pub fn collect(machine: &dyn Machine, redactor: &mut Redactor) -> Collected {
    let mut collected = Collected::default();
    let mut left = TOTAL;
    for (subject, pattern) in
        SUBJECTS.iter().flat_map(|subject| subject.paths.iter().map(move |p| (subject, *p)))
    {
        let mut is_there = false;
        let mut absent = |path: &str, why: String| {
            let (subject, path, source) = (subject.name, path.to_owned(), subject.source);
            collected.absent.push(Absent { subject, path, why, source });
        };
        for path in expand(machine, pattern) {
            let text = match machine.text(&path) {
                Ok(text) => redactor.text(&kept(text, subject.kept)),
                // Named once, by its pattern.
                Err(Unread::Absent) => continue,
                Err(unread) => {
                    is_there = true;
                    absent(&path, unread.to_string());
                    continue;
                }
            };
            is_there = true;
            let Some(rest) = left.checked_sub(text.len()) else {
                absent(&path, format!("left out, with what follows: {TOTAL} bytes of files are the most"));
                return collected;
            };
            left = rest;
            collected.files.push(Copied { subject: subject.name, path, text });
        }
        if !is_there {
            absent(pattern, Unread::Absent.to_string());
        }
    }
    collected
}

/// Folders of device nodes, and the names in them that are a GPU's; and one that every machine has, so that a
/// machine without a GPU has a listing.
const NODES: &[(&str, &[&str])] = &[
    ("/dev", &["null", "nvmap", "nvidia*", "nvhost-*"]),
    ("/dev/nvgpu/igpu0", &["*"]),
    ("/dev/dri", &["renderD*", "card*"]),
];

/// The device nodes as `stat -c '%A %u %g %n'` lists them, which `nvdiag doctor --root` reads as `dev.txt`.
#[must_use]
pub fn listing(machine: &dyn Machine) -> String {
    let mut text = String::new();
    for (folder, patterns) in NODES {
        for name in machine.list(folder).iter().filter(|name| patterns.iter().any(|p| fits(p, name))) {
            let path = format!("{folder}/{name}");
            let Some(node) = machine.node(&path).filter(|node| node.device) else { continue };
            let letter = |bit: u32| match node.mode >> bit & 1 {
                1 => ['x', 'w', 'r'][bit as usize % 3],
                _ => '-',
            };
            let permissions: String = (0..9).rev().map(letter).collect();
            text += &format!("c{permissions} {} {} {path}\n", node.uid, node.gid);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn stars_stand_for_any_part_of_a_name() {
        for (pattern, name) in [
            ("*", ""),
            ("a*", "abc"),
            ("*c", "abc"),
            ("a*c", "ac"),
            ("*_ecc_*_count", "gpc0_ecc_x_count"),
            ("a*b*c", "axbyc"),
        ] {
            assert!(fits(pattern, name), "{pattern} {name}");
        }
        for (pattern, name) in
            [("a", "ab"), ("a*c", "ab"), ("ab*bc", "abc"), ("*_ecc_*_count", "x_ecc_count"), ("a*b*c", "acb")]
        {
            assert!(!fits(pattern, name), "{pattern} {name}");
        }
    }
}
