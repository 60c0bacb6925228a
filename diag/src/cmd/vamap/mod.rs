//! `nvdiag vamap`: shows the contents of a GPU address space.

mod live;
mod spaces;

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use clap::ArgGroup;
use hcq::{Device, Selector};
use nvdiag::address_map::difference::MapDifference;
use nvdiag::address_map::spaces::AddressMaps;
use nvdiag::address_map::{AddressMap, BufferObject, Mapping, Parts, Range, Window, ga10b_windows};
use nvdiag::page_table::walk;
use nvdiag::physical_dump::{PhysicalDump, Source};
use nvdiag::process_map::{self, ProcessMap};

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::input::{number, read_map};
use crate::cmd::pictures::put;
use crate::cmd::process::{self, Descriptor, Process, look_at, nothing_to_ask};

/// Show a GPU address space: regions, mappings, windows, holes, and mappings at addresses that are not
/// allowed.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  sudo nvdiag vamap --pid 4711                    a process on a Jetson
  sudo nvdiag vamap --pid 4711 --json > map.json  for `nvdiag esr --map`
  nvdiag vamap --device sim --svg map.svg         of a device of its own
  nvdiag vamap map.json --svg map.svg             a map that was saved
  nvdiag vamap --diff before.json after.json      what came, went and changed
  nvdiag vamap --dump memory.lime --pdb 0x1f4c0000

Exit codes: 0 nothing wrong; 1 a problem: overlaps, mappings in windows, damaged tables, or maps of
--diff that differ; 2 bad usage, or something cannot be read.")]
#[command(override_usage = "nvdiag vamap [OPTIONS] <--pid PID|--dump FILE|--device DEVICE|MAP|--diff A B>")]
#[group(skip)]
#[command(group = ArgGroup::new("source").required(true).args(["pid", "dump", "device", "map", "file", "diff"]))]
pub struct Args {
    /// The address spaces of a running process (a Jetson's; needs permission to trace it, and root for its
    /// mappings).
    #[arg(long, value_parser = process::number)]
    pid: Option<u32>,
    /// Page tables in a dump of physical memory: of LiME, or an ELF core (kdump). For authors of drivers: they
    /// tell the kinds and flags of mappings, which no request does.
    #[arg(long, value_name = "FILE")]
    dump: Option<PathBuf>,
    /// The address space of a device that this command opens itself: auto, nvgpu, rm or sim.
    #[arg(long)]
    device: Option<Selector>,
    /// A map that was saved: the output of `nvdiag vamap --json`, or a file that hcq wrote (HCQ_MAP_DIR).
    #[arg(long, value_name = "FILE", conflicts_with = "window")]
    map: Option<PathBuf>,
    /// The same as --map MAP.
    #[arg(value_name = "MAP", conflicts_with = "window")]
    file: Option<PathBuf>,
    /// Two maps that were saved: shows what came, what went and what changed from one to the other; exits
    /// with 1 if they differ.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["window", "svg"])]
    diff: Vec<PathBuf>,
    /// With --dump: physical address of the root of the page tables. Not needed if the dump names only one.
    #[arg(long, value_name = "ADDRESS", value_parser = number, requires = "dump")]
    pdb: Option<u64>,
    /// A window of the process; without any, those that ports to ga10b use.
    #[arg(long, value_name = "NAME@ADDRESS", value_parser = window, conflicts_with = "device")]
    window: Vec<Window>,
    /// Draw the map to this file too.
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// Reads a window as a user gives it.
pub(super) fn window(text: &str) -> Result<Window, String> {
    let (name, address) =
        text.rsplit_once('@').ok_or("expected a name and an address, such as shared@0xfe00000000")?;
    Ok(Window::new(name, number(address)?))
}

impl Args {
    /// Reads the address spaces and prints them.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        if let [first, second] = &self.diff[..] {
            let names = [first, second].map(|path| path.display().to_string());
            return show(&MapDifference::of(names, &saved_one(first)?, &saved_one(second)?), json, out);
        }
        let windows = if self.window.is_empty() { ga10b_windows() } else { self.window.clone() };
        let maps = match (self.pid, &self.dump, self.map.as_ref().or(self.file.as_ref()), self.device) {
            (Some(pid), ..) => of_process(pid, windows)?,
            (_, Some(dump), ..) => self.of_dump(dump, windows)?.into(),
            (_, _, Some(path), _) => saved(path)?,
            (.., device) => {
                let selector = device.unwrap_or(Selector::Auto);
                let device =
                    Device::open(selector).with_context(|| format!("cannot open device {selector}"))?;
                // A queue, so that the map shows what every user of a device has in it.
                let _queue = device.queue().context("cannot open a queue")?;
                AddressMap::of_device(&device).into()
            }
        };
        if let Some(path) = &self.svg {
            put(path, &maps.svg(&[]))?;
        }
        show(&maps, json, out)
    }

    fn of_dump(&self, path: &Path, windows: Vec<Window>) -> anyhow::Result<AddressMap> {
        let file = DumpFile::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        let dump = PhysicalDump::open(file);
        let dump = dump.with_context(|| format!("cannot read {}", path.display()))?;
        let root = match self.pdb {
            Some(root) => root,
            None => match dump.roots().as_slice() {
                [root] => *root,
                [] => bail!("{} names no page tables: give their root with --pdb", path.display()),
                roots => {
                    let roots: Vec<_> = roots.iter().map(|root| format!("{root:#x}")).collect();
                    bail!(
                        "{} names several page tables: give --pdb one of {}",
                        path.display(),
                        roots.join(", ")
                    )
                }
            },
        };
        Ok(AddressMap::of_tables(
            format!("{}, tables at {root:#x}", path.display()),
            windows,
            walk(&dump, root),
        ))
    }
}

/// A map that was saved as a document.
fn saved(path: &Path) -> anyhow::Result<AddressMaps> {
    let mut documents = ProcessMap::default();
    let bytes = read_map(path)?;
    documents.add_json(&bytes).with_context(|| format!("cannot use {} as a map", path.display()))?;
    Ok(AddressMaps::of_documents(&path.display().to_string(), &documents))
}

/// A map of one address space, to compare it.
fn saved_one(path: &Path) -> anyhow::Result<AddressMap> {
    let mut maps = saved(path)?.spaces;
    match (maps.pop(), maps.len()) {
        (Some(map), 0) => Ok(map),
        (_, more) => {
            bail!("{} holds {} address spaces: --diff compares those of one", path.display(), more + 1)
        }
    }
}

/// A dump that is read piece by piece: it may be larger than memory.
struct DumpFile {
    file: File,
    len: u64,
}

impl DumpFile {
    fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(std::io::ErrorKind::IsADirectory.into());
        }
        let len = metadata.len();
        Ok(Self { file, len })
    }
}

impl Source for DumpFile {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> bool {
        self.file.read_exact_at(bytes, offset).is_ok()
    }
}

fn of_process(pid: u32, windows: Vec<Window>) -> anyhow::Result<AddressMaps> {
    let (process, descriptors) = look_at(pid)?;
    read_process(&process, &descriptors, windows)
}

/// The address spaces of a process that was opened.
pub(super) fn read_process(
    process: &Process,
    descriptors: &[Descriptor],
    windows: Vec<Window>,
) -> anyhow::Result<AddressMaps> {
    let spaces = spaces::read(process, descriptors)?;
    if spaces.is_empty() {
        return Err(nothing_to_ask(process, "address space"));
    }
    let shared = Parts {
        source: process.title(),
        process: Some(process_map::Process { pid: process.pid() }),
        buffers: descriptors.iter().filter_map(|descriptor| buffer(process, descriptor)).collect(),
        host: process.host_ranges(),
        ..Parts::default()
    };
    let is_one = spaces.len() == 1;
    let parts = spaces.into_iter().map(|space| {
        let mut untold: Vec<&str> = match space.mappings {
            Some(_) => UNTOLD.to_vec(),
            None => vec!["mappings (no channel with a context is of this address space)"],
        };
        if !is_one {
            untold.push("which channel is of which address space (taken: by what they map, and by age)");
        }
        let untold = untold.into_iter().map(str::to_owned).collect();
        let (regions, mut mappings) = (space.regions, space.mappings.unwrap_or_default());
        name_by_size(&mut mappings, &shared.buffers);
        size_pages(&mut mappings, &regions);
        Parts { windows: windows.clone(), regions, mappings, untold, ..Parts::default() }
    });
    let parts = parts.collect();
    Ok(AddressMaps::new(shared, parts))
}

/// Properties of a mapping that the driver knows and does not report: its answer has an address and a length.
const UNTOLD: [&str; 4] =
    ["memory kinds", "flags (cached, read-only)", "physical addresses", "which buffer is mapped"];

/// The dma-buf of a descriptor.
fn buffer(process: &Process, descriptor: &Descriptor) -> Option<BufferObject> {
    let fd = descriptor.number;
    if !descriptor.name.contains("dmabuf") {
        return None;
    }
    let label = process.fd_info(fd, "name").filter(|name| !name.is_empty());
    let size_bytes = process.fd_info(fd, "size").and_then(|size| size.parse().ok());
    // Kernels without that line in fdinfo have it in fstat.
    let size_bytes = size_bytes.or_else(|| process.fd_size(fd));
    Some(BufferObject { name: label, size_bytes, fd })
}

/// An address space has one size of pages for each region.
fn size_pages(mappings: &mut [Mapping], regions: &[Range]) {
    for mapping in mappings {
        let holds = |r: &&Range| r.va <= mapping.va && mapping.va.0 - r.va.0 < r.size_bytes;
        mapping.page_bytes = regions.iter().find(holds).and_then(|r| r.page_bytes);
    }
}

/// The driver does not report which buffer a mapping is of: if sizes leave one choice, it is taken.
fn name_by_size(mappings: &mut [Mapping], buffers: &[BufferObject]) {
    let sizes: Vec<u64> = mappings.iter().map(|m| m.size_bytes).collect();
    for mapping in mappings {
        let same: Vec<_> = buffers.iter().filter(|b| b.size_bytes == Some(mapping.size_bytes)).collect();
        let once = sizes.iter().filter(|size| **size == mapping.size_bytes).count() == 1;
        if let (true, [BufferObject { name: Some(name), .. }]) = (once, same.as_slice()) {
            mapping.name = Some(format!("{name} (by its size)"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvdiag::Hex;

    #[test]
    fn a_mapping_takes_the_name_of_the_only_buffer_of_its_size() {
        let mapping = |va, size_bytes| Mapping { va: Hex(va), size_bytes, ..Mapping::default() };
        let buffer =
            |name: &str, size| BufferObject { name: Some(name.to_owned()), size_bytes: Some(size), fd: 3 };
        let mut mappings = [mapping(0, 4096), mapping(8192, 8192), mapping(1 << 20, 1 << 20)];
        name_by_size(&mut mappings, &[buffer("a", 4096), buffer("b", 8192), buffer("c", 8192)]);
        assert_eq!(mappings[0].name.as_deref(), Some("a (by its size)"));
        assert_eq!((&mappings[1].name, &mappings[2].name), (&None, &None));
    }

    #[test]
    fn a_buffer_whose_size_fdinfo_omits_has_that_of_fstat() {
        use nix::sys::memfd::{MFdFlags, memfd_create};
        use std::os::fd::AsRawFd;

        let file = memfd_create(c"dmabuf", MFdFlags::MFD_CLOEXEC).expect("a file");
        nix::unistd::ftruncate(&file, 8192).expect("a file");
        let Ok(process) = Process::open(std::process::id()) else {
            ga10b_oracles::skipped("no pidfds here");
            return;
        };
        let descriptor = Descriptor { number: file.as_raw_fd(), name: "/memfd:dmabuf (deleted)".to_owned() };
        let found = buffer(&process, &descriptor).expect("a buffer");
        assert_eq!(found.size_bytes, Some(8192));
    }

    #[test]
    fn windows_are_given_with_their_address() {
        assert_eq!(window("shared@0xfe_0000_0000"), Ok(Window::new("shared", 0xfe_0000_0000)));
        assert!(window("shared").is_err());
        assert!(window("shared@x").is_err());
    }
}
