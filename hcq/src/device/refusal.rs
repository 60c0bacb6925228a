//! The reason `Selector::Auto` passed a backend over, and whether the user can mend it.

use std::fmt;
use std::path::{Path, PathBuf};

use nix::errno::Errno as Nix;

use crate::error::{Error, OpenError, with_causes};
use crate::info::BackendKind;
use crate::tegra::Tegra;

/// PCI's number of NVIDIA.
const NVIDIA: &str = "0x10de";
/// First digits of the PCI class of display controllers.
const DISPLAY: &str = "0x03";
/// With this file modprobe does not load nvgpu at boot: a service does (developer guide of r39.2,
/// NvLoadDisplayModulesService).
const DENYLIST: &str = "etc/modprobe.d/denylist-oot-modules.conf";

/// The files in which the machine lists its GPUs, whether or not their driver is loaded.
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

    /// The Tegra chip that it is, if it is one.
    fn tegra(&self) -> Option<Tegra> {
        Tegra::in_device_tree(&std::fs::read(self.root.join("proc/device-tree/compatible")).ok()?)
    }

    /// Whether it is an Orin: by the device tree; where a container hides that, by nvgpu's nodes.
    fn is_orin(&self) -> bool {
        self.tegra().map_or_else(|| self.root.join("dev/nvgpu/igpu0").exists(), Tegra::is_orin)
    }

    /// Whether nvgpu is loaded and its GPU did not start: the driver makes `power` when it is loaded, and the
    /// other nodes when the GPU has started (`driver_common.c` and `module.c` of nvgpu, r36.4.3).
    fn has_power_alone(&self) -> bool {
        let has = |node| self.root.join("dev/nvgpu/igpu0").join(node).exists();
        has("power") && !has("ctrl")
    }

    /// The error with the facts known of an nvgpu node that could not be opened.
    pub fn explain(&self, error: Error) -> Error {
        match error {
            Error::Open(OpenError::Node { path, errno, .. })
                if Nix::from_raw(errno.raw()) == Nix::ENOENT && self.has_power_alone() =>
            {
                Error::Open(OpenError::NotStarted { path, errno })
            }
            other => other,
        }
    }

    /// Refuses a desktop driver that is here for a display alone: an Orin's, whose GPU nvgpu serves. With a
    /// card in a PCI slot the driver may well be the card's.
    ///
    /// # Errors
    /// [`OpenError::DisplayDriver`].
    pub fn check_desktop_driver(&self) -> Result<(), Error> {
        match self.is_orin() && self.root.join("dev/nvidiactl").exists() && !self.has_pci_gpu() {
            true => Err(Error::Open(OpenError::DisplayDriver)),
            false => Ok(()),
        }
    }

    /// The remedy of an Orin's owner where nvgpu's control node is not there.
    fn mend_orin(&self) -> &'static str {
        let has = |path| self.root.join(path).exists();
        if self.has_power_alone() {
            "the machine is an Orin whose GPU did not start: `nvdiag doctor` looks for the reason"
        } else if has(DENYLIST) {
            "the machine is an Orin with JetPack 7: sudo systemctl restart nv-load-display-modules loads nvgpu; \
             give a container the nodes"
        } else {
            "the machine is an Orin: load the modules nvgpu and nvmap; give a container the nodes"
        }
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
    /// The user's remedy.
    mend: Option<String>,
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
        if let Some(mend) = &self.mend {
            tracing::warn!("GPU passed over: {self}: {mend}");
        }
    }

    /// The error.
    pub fn into_error(self) -> Box<Error> {
        self.error
    }
}

/// The user's remedy for `error`, if the GPU is there; for one that cannot be used, its name.
fn mend(backend: BackendKind, error: &Error, machine: &Machine) -> Option<String> {
    let tegra = machine.tegra();
    let mend = match error {
        Error::Open(OpenError::Node { errno, .. }) => match Nix::from_raw(errno.raw()) {
            // No node, or one that no driver serves.
            Nix::ENOENT | Nix::ENODEV | Nix::ENXIO | Nix::EIO => match (backend, tegra) {
                (BackendKind::Nvgpu, _) if machine.is_orin() => machine.mend_orin(),
                // Thor's driver is the desktop's: this is said once, of nvgpu.
                (BackendKind::Nvgpu, Some(tegra)) => return Some(unsupported(tegra)),
                (BackendKind::Rm, _) if machine.has_pci_gpu() => {
                    "the PCI bus has an NVIDIA GPU: load the module nvidia; give a container the nodes"
                }
                _ => return None,
            },
            _ => return None,
        },
        Error::Open(OpenError::Driver { .. }) if tegra.is_none() => {
            "install one of these driver branches, or load the driver's modules"
        }
        Error::Open(OpenError::Unsupported { .. } | OpenError::UnsupportedSm { .. }) if tegra.is_none() => {
            "no code here runs on it; HCQ_DEVICE=sim asks for the software ga10b"
        }
        _ => return None,
    };
    Some(mend.to_owned())
}

/// The message to the owner of another Tegra.
fn unsupported(tegra: Tegra) -> String {
    format!("the machine's GPU is the {tegra}: of these chips that of Orin alone is driven")
}
