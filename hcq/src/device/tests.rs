//! The device that `Selector::Auto` opens, and its report of those that it passes over.

use std::ffi::{CStr, c_void};
use std::fs;
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;

use nix::errno::Errno as Nix;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollTimeout};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::mman::{MapFlags, ProtFlags};
use rm_sys::{nv_ioctl_card_info_t, nv_ioctl_rm_api_version_t};
use zerocopy::{FromBytes, IntoBytes};

use super::*;
use crate::sync::lock;

const NVGPU: &CStr = c"/dev/nvgpu/igpu0/ctrl";
const RM: &CStr = c"/dev/nvidiactl";
const CARD: &CStr = c"/dev/nvidia0";

/// A machine's nodes: those listed refuse to be opened, others are not there. A driver of a version serves
/// those that do open, and lists one GPU.
#[derive(Debug)]
struct Nodes {
    refused: Vec<(&'static CStr, Nix)>,
    version: Option<&'static str>,
}

// SAFETY: descriptors are memfds, and nothing is mapped.
unsafe impl Sys for Nodes {
    fn open(&self, path: &CStr, _: OFlag) -> Result<OwnedFd, Nix> {
        if let Some((_, errno)) = self.refused.iter().find(|(node, _)| *node == path) {
            return Err(*errno);
        }
        if self.version.is_none() || path != RM {
            return Err(Nix::ENOENT);
        }
        memfd_create(c"fake-nodes", MFdFlags::MFD_CLOEXEC)
    }

    unsafe fn ioctl(&self, _: BorrowedFd<'_>, request: u32, arg: &mut [u8]) -> Result<i32, Nix> {
        match request & 0xff {
            200 => {
                let card = nv_ioctl_card_info_t { valid: 1, ..Default::default() };
                arg[..size_of_val(&card)].copy_from_slice(card.as_bytes());
            }
            210 => {
                let (answer, _) = nv_ioctl_rm_api_version_t::mut_from_prefix(arg).expect("the whole struct");
                let version = self.version.expect("a driver is asked");
                answer.versionString[..version.len()].copy_from_slice(version.as_bytes());
            }
            _ => return Err(Nix::ENOTTY),
        }
        Ok(0)
    }

    unsafe fn mmap(
        &self,
        _: NonZeroUsize,
        _: ProtFlags,
        _: MapFlags,
        _: BorrowedFd<'_>,
        _: i64,
    ) -> Result<NonNull<c_void>, Nix> {
        Err(Nix::ENODEV)
    }

    unsafe fn munmap(&self, _: NonNull<c_void>, _: usize) -> Result<(), Nix> {
        Err(Nix::EINVAL)
    }

    fn poll(&self, _: &mut [PollFd<'_>], _: PollTimeout) -> Result<i32, Nix> {
        Ok(0)
    }

    fn close(&self, fd: OwnedFd) -> Result<(), Nix> {
        drop(fd);
        Ok(())
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lock(&self.0).write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The backend opened, and the lines about those passed over: those at info level, and the warnings.
fn choose(nodes: Nodes, machine: &Machine) -> (BackendKind, Vec<String>, Vec<String>) {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::INFO)
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    let sys: Arc<dyn Sys> = Arc::new(nodes);
    let opened = tracing::subscriber::with_default(subscriber, || {
        Device::any(&sys, machine, DeviceOptions::default())
    });
    let text = String::from_utf8(lock(&log.0).clone()).expect("UTF-8");
    let lines =
        |part: &str| text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect::<Vec<_>>();
    let infos = lines("INFO").into_iter().filter(|line| line.contains("passed over")).collect();
    (opened.expect("the software ga10b").info().backend, infos, lines("WARN"))
}

/// A machine without a GPU.
fn bare() -> (tempfile::TempDir, Machine) {
    let root = tempfile::tempdir().expect("a folder");
    let machine = Machine::at(root.path().to_owned());
    (root, machine)
}

fn assert_has(line: &str, parts: &[&str]) {
    for part in parts {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}

#[test]
fn a_machine_without_a_gpu_gets_one_line_and_no_warning() {
    let (_root, machine) = bare();
    let (opened, infos, warnings) = choose(Nodes { refused: vec![], version: None }, &machine);
    assert_eq!(opened, BackendKind::Sim);
    assert_eq!(warnings, [""; 0]);
    assert_eq!(infos.len(), 1, "{infos:?}");
    assert_has(
        &infos[0],
        &["nvgpu: cannot open /dev/nvgpu/igpu0/ctrl: ", "rm: cannot open /dev/nvidiactl: "],
    );
}

#[test]
fn a_node_without_permission_is_an_error_and_never_another_device() {
    let (_root, machine) = bare();
    let cases = [
        (NVGPU, None),
        (RM, None),
        // The driver answers, and the GPU's own node is closed.
        (CARD, Some("580.142")),
    ];
    for (node, version) in cases {
        for errno in [Nix::EACCES, Nix::EPERM] {
            let nodes: Arc<dyn Sys> = Arc::new(Nodes { refused: vec![(node, errno)], version });
            let error = Device::any(&nodes, &machine, DeviceOptions::default()).expect_err("a closed node");
            let path = node.to_str().expect("ASCII");
            assert_has(&format!("{error:?}"), &[path, errno.desc(), "group, video on a Jetson"]);
        }
    }
}

#[test]
fn a_closed_node_names_the_group_that_may_open_it() {
    // Any file that exists has a group; this one's is that of the process.
    let file = tempfile::NamedTempFile::new().expect("a file");
    let path = std::ffi::CString::new(file.path().to_str().expect("ASCII")).expect("no NUL");
    let gid = nix::unistd::getegid();
    let group = nix::unistd::Group::from_gid(gid).ok().flatten().map_or(gid.to_string(), |group| group.name);
    let error = Error::open(&path, Nix::EACCES);
    assert_has(&error.to_string(), &["cannot open ", &format!(", which belongs to group {group}")]);
    assert!(!Error::open(&path, Nix::ENOENT).to_string().contains("group"));
}

#[test]
fn a_driver_of_an_unknown_release_is_a_warning_that_lists_those_that_are_known() {
    let (_root, machine) = bare();
    let nodes = Nodes { refused: vec![], version: Some("999.10") };
    let (opened, _, warnings) = choose(nodes, &machine);
    assert_eq!((opened, warnings.len()), (BackendKind::Sim, 1), "{warnings:?}");
    assert_has(&warnings[0], &["rm", "999.10", "580", "install one of these driver branches"]);
}

#[test]
fn a_gpu_whose_modules_are_not_loaded_is_a_warning() {
    let (root, machine) = bare();
    let pci = root.path().join("sys/bus/pci/devices/0000:01:00.0");
    fs::create_dir_all(&pci).expect("a folder");
    fs::write(pci.join("vendor"), "0x10de\n").expect("written");
    // The GPU's sound controller is no reason to load the driver.
    fs::write(pci.join("class"), "0x040300\n").expect("written");
    let without_node = || Nodes { refused: vec![], version: None };
    assert_eq!(choose(without_node(), &machine).2, [""; 0]);
    fs::write(pci.join("class"), "0x030000\n").expect("written");
    for nodes in [without_node(), Nodes { refused: vec![(RM, Nix::ENXIO)], version: None }] {
        let warnings = choose(nodes, &machine).2;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_has(&warnings[0], &["rm", "/dev/nvidiactl", "load the module nvidia"]);
    }
}

/// A machine of a Tegra chip, with these files besides.
fn tegra(chip: &str, files: &[&str]) -> (tempfile::TempDir, Machine) {
    let (root, machine) = bare();
    let names = format!("nvidia,p0-0000+p0-0000\0nvidia,{chip}\0");
    for (path, text) in files.iter().map(|path| (*path, "")).chain([("proc/device-tree/compatible", &*names)])
    {
        let path = root.path().join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("created");
        fs::write(path, text).expect("written");
    }
    (root, machine)
}

#[test]
fn an_orin_without_its_node_is_told_what_makes_it() {
    let cases: [(&[&str], &str); 3] = [
        (&[], "load the modules nvgpu and nvmap"),
        (&["etc/modprobe.d/denylist-oot-modules.conf"], "systemctl restart nv-load-display-modules"),
        (&["dev/nvgpu/igpu0/power", "etc/modprobe.d/denylist-oot-modules.conf"], "did not start"),
    ];
    for (files, mend) in cases {
        let (_root, machine) = tegra("tegra234", files);
        let warnings = choose(Nodes { refused: vec![], version: None }, &machine).2;
        assert_eq!(warnings.len(), 1, "{warnings:?}");
        assert_has(&warnings[0], &["nvgpu", "/dev/nvgpu/igpu0/ctrl", "an Orin", mend]);
    }
}

#[test]
fn a_gpu_that_did_not_start_is_an_error_of_that_name() {
    let explained = |files: &[&str], errno| {
        let (_root, machine) = tegra("tegra234", files);
        let path = c"/dev/nvgpu/igpu0/ctrl".to_owned();
        machine.explain(Error::Open(OpenError::Node { path, group: None, errno: crate::Errno::of(errno) }))
    };
    let error = explained(&["dev/nvgpu/igpu0/power"], Nix::ENOENT);
    assert_has(&error.to_string(), &["/dev/nvgpu/igpu0/ctrl", "the GPU did not start", "`power` alone"]);
    assert_has(error.hint().expect("a hint"), &["nvdiag doctor"]);
    for (files, errno) in [
        (&["dev/nvgpu/igpu0/power", "dev/nvgpu/igpu0/ctrl"][..], Nix::ENOENT),
        (&["dev/nvgpu/igpu0/power"], Nix::EACCES),
        (&[], Nix::ENOENT),
    ] {
        assert!(matches!(explained(files, errno), Error::Open(OpenError::Node { .. })), "{files:?}");
    }
}

#[test]
fn an_orin_without_its_device_tree_is_known_by_nvgpus_nodes() {
    for node in ["power", "ctrl"] {
        let (root, machine) = bare();
        for path in [&format!("dev/nvgpu/igpu0/{node}"), "dev/nvidiactl"] {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("created");
            fs::write(path, "").expect("written");
        }
        let nodes = Nodes { refused: vec![], version: Some("540.4.0") };
        let (_, infos, warnings) = choose(nodes, &machine);
        assert_has(&infos[0], &["rm: /dev/nvidiactl is that of an Orin's display"]);
        assert_has(
            &warnings[0],
            &["nvgpu", if node == "power" { "did not start" } else { "load the modules" }],
        );
    }
}

#[test]
fn the_driver_of_an_orins_display_is_no_gpu_and_that_of_a_card_beside_it_is() {
    let nodes = || Nodes { refused: vec![], version: Some("595.78") };
    let (root, machine) = tegra("tegra234", &["dev/nvidiactl"]);
    let (opened, infos, warnings) = choose(nodes(), &machine);
    assert_eq!((opened, warnings.len()), (BackendKind::Sim, 1), "{warnings:?}");
    assert_has(&infos[0], &["rm: /dev/nvidiactl is that of an Orin's display"]);
    let pci = root.path().join("sys/bus/pci/devices/0005:01:00.0");
    fs::create_dir_all(&pci).expect("a folder");
    fs::write(pci.join("vendor"), "0x10de\n").expect("written");
    fs::write(pci.join("class"), "0x030000\n").expect("written");
    let infos = choose(nodes(), &machine).1;
    assert_has(&infos[0], &["rm: cannot open /dev/nvidia0"]);
}

#[test]
fn the_owner_of_another_tegra_is_told_which_it_is() {
    for (chip, name) in [("tegra264", "gb10b of Thor (tegra264)"), ("tegra194", "gv11b of Xavier (tegra194)")]
    {
        let (_root, machine) = tegra(chip, &["dev/nvidiactl"]);
        for version in [None, Some("595.78")] {
            let (opened, _, warnings) = choose(Nodes { refused: vec![], version }, &machine);
            assert_eq!((opened, warnings.len()), (BackendKind::Sim, 1), "{warnings:?}");
            assert_has(&warnings[0], &["nvgpu: cannot open ", name, "that of Orin alone"]);
        }
    }
    assert_has(
        &Error::Open(OpenError::UnsupportedSm { sm: 72 }).to_string(),
        &["the GPU is an sm_72, gv11b of Xavier (tegra194); sm_80"],
    );
    assert_has(
        &Error::Open(OpenError::UnsupportedSm { sm: 120 }).to_string(),
        &["the GPU is an sm_120; sm_80"],
    );
}

#[test]
fn a_desktop_gpu_that_no_code_is_for_is_a_warning() {
    let (_root, machine) = bare();
    let refusal = |sm| Refusal::new(BackendKind::Rm, Error::Open(OpenError::UnsupportedSm { sm }), &machine);
    assert_has(&format!("{:?}", refusal(120)), &["Some(\"no code here runs on it; HCQ_DEVICE=sim"]);
    // Thor's owner has had one line, of nvgpu.
    let (_root, thor) = tegra("tegra264", &[]);
    let refusal = Refusal::new(BackendKind::Rm, Error::Open(OpenError::UnsupportedSm { sm: 110 }), &thor);
    assert_has(&format!("{refusal:?}"), &["mend: None"]);
}

/// The allocator's node of images that make it `root:video` 0440.
#[derive(Debug)]
struct ReadOnlyAllocator(Arc<ga10b_sim::Sim>);

// SAFETY: every call is passed on, or refused.
unsafe impl nvgpu_sys::Layer for ReadOnlyAllocator {
    fn below(&self) -> &dyn Sys {
        &*self.0
    }

    fn open(&self, path: &CStr, flags: OFlag) -> Result<OwnedFd, Nix> {
        match path == nvgpu_sys::MEMORY_NODE && flags & OFlag::O_ACCMODE != OFlag::O_RDONLY {
            true => Err(Nix::EACCES),
            false => self.0.open(path, flags),
        }
    }
}

#[test]
fn an_allocator_that_may_only_be_read_gives_memory_that_can_be_written() {
    let sim = crate::backend::software::start().expect("a machine");
    let log = Box::new(crate::backend::software::Log::new(sim.clone()));
    let sys = Arc::new(ReadOnlyAllocator(sim));
    let device = Device::over(sys, BackendKind::Sim, log, DeviceOptions::default()).expect("a device");
    let buffer = device.alloc(4096).expect("a buffer");
    buffer.write(0, &[7; 64]).expect("written");
    let mut read = [0; 64];
    buffer.read(0, &mut read).expect("read");
    assert_eq!(read, [7; 64]);
}
