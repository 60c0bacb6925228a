//! Why `Selector::Auto` passed a backend over, and whether the user can mend that.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as Nix;

use crate::error::{Error, with_causes};
use crate::info::BackendKind;

/// PCI's number of NVIDIA.
const NVIDIA: &str = "0x10de";
/// First digits of the PCI class of display controllers.
const DISPLAY: &str = "0x03";

/// Where the machine says which GPUs it has, whether or not their driver is loaded.
#[derive(Debug)]
pub(crate) struct Machine {
    root: PathBuf,
}

impl Machine {
    /// The one this program runs on.
    pub fn own() -> Self {
        Self::at(PathBuf::from("/"))
    }

    /// A machine whose `/proc` and `/sys` are in `root`.
    pub fn at(root: PathBuf) -> Self {
        Self { root }
    }

    /// Whether it has a GPU of the kind that `backend` drives.
    fn has(&self, backend: BackendKind) -> bool {
        match backend {
            BackendKind::Nvgpu => self.is_orin(),
            BackendKind::Rm => self.has_pci_gpu(),
            BackendKind::Sim => true,
        }
    }

    fn is_orin(&self) -> bool {
        let compatible = std::fs::read(self.root.join("proc/device-tree/compatible")).unwrap_or_default();
        compatible.split(|byte| *byte == 0).any(|name| name == b"nvidia,tegra234")
    }

    fn has_pci_gpu(&self) -> bool {
        let entries = std::fs::read_dir(self.root.join("sys/bus/pci/devices")).into_iter().flatten();
        let read = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
        entries.flatten().any(|entry| {
            let device = entry.path();
            read(&device.join("vendor")).trim() == NVIDIA && read(&device.join("class")).starts_with(DISPLAY)
        })
    }
}

/// A backend that was passed over.
#[derive(Debug)]
pub(crate) struct Refusal {
    backend: BackendKind,
    error: Box<Error>,
    /// What the user can do.
    mend: Option<&'static str>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.backend, with_causes(&*self.error))
    }
}

impl Refusal {
    /// `backend` could not be opened on `machine`.
    pub fn new(backend: BackendKind, error: Error, machine: &Machine) -> Self {
        let mend = mend(backend, &error, machine);
        Self { backend, error: Box::new(error), mend }
    }

    /// Warns where the user can mend it: else the program would run on another device than the one that is
    /// wanted, and nothing would say so.
    pub fn warn(&self) {
        if let Some(mend) = self.mend {
            tracing::warn!("GPU passed over: {self}: {mend}");
        }
    }

    /// The error.
    pub fn into_error(self) -> Box<Error> {
        self.error
    }
}

/// What the user can do about `error`, if the GPU is there.
fn mend(backend: BackendKind, error: &Error, machine: &Machine) -> Option<&'static str> {
    match error {
        Error::Open { errno, .. } => match Nix::from_raw(errno.raw()) {
            // No node, or one that no driver serves.
            Nix::ENOENT | Nix::ENODEV | Nix::ENXIO | Nix::EIO if machine.has(backend) => {
                Some(match backend {
                    BackendKind::Nvgpu => {
                        "the machine is an Orin: load the modules nvgpu and nvmap; give a container the nodes"
                    }
                    _ => "the PCI bus has an NVIDIA GPU: load the module nvidia; give a container the nodes",
                })
            }
            _ => None,
        },
        Error::Driver { .. } => Some("install one of these driver branches, or load the driver's modules"),
        _ => None,
    }
}
