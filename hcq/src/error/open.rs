//! Why a device could not be opened.

use std::borrow::Cow;
use std::ffi::CString;
use std::path::PathBuf;

use crate::errno::Errno;
use crate::error::{Error, with_causes};
use crate::tegra::Tegra;

/// Why a device, or the settings that it is to be opened with, cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// `HCQ_DEVICE` or a command line named a backend that does not exist.
    #[error("unknown device {name:?}: expected auto, nvgpu, rm or sim")]
    UnknownSelector {
        /// The name asked for.
        name: String,
    },
    /// An environment variable, or an option of the device, has a value that means nothing there.
    #[error("{variable} is {value:?}: expected {expected}")]
    UnknownSetting {
        /// The variable or option.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The values it may have.
        expected: Cow<'static, str>,
    },
    /// The file of settings that `HCQ_PROFILE` names cannot be read, or one of its lines means nothing.
    #[error("cannot use the profile {}, which HCQ_PROFILE names", path.display())]
    Profile {
        /// The file.
        path: PathBuf,
        /// A [`BadProfile`](crate::BadProfile), or the reason it cannot be read.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The backend asked for is not part of this build.
    #[error("the {backend} backend is not part of this build")]
    NotBuilt {
        /// Which backend.
        backend: &'static str,
    },
    /// Neither a Jetson's GPU nor a desktop GPU can be used, and the software ga10b is not part of this
    /// build.
    #[error("no GPU can be used: {}; {}", with_causes(nvgpu), with_causes(rm))]
    NoDevice {
        /// Why a Jetson's cannot.
        nvgpu: Box<Error>,
        /// Why a desktop GPU cannot.
        rm: Box<Error>,
    },
    /// A device node could not be opened.
    #[error("cannot open {}{}", path.to_string_lossy(), of_group(group))]
    Node {
        /// The node.
        path: CString,
        /// The group whose members may open it, where that is why it could not be opened.
        group: Option<String>,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// nvgpu is loaded and its GPU did not start: of the nodes in `/dev/nvgpu/igpu0` `power` alone is there.
    #[error("cannot open {}: the GPU did not start, its node `power` alone is there", path.to_string_lossy())]
    NotStarted {
        /// The node that is not there.
        path: CString,
        /// The kernel's reason.
        #[source]
        errno: Errno,
    },
    /// The desktop driver is not loaded, or of a release whose structs are not known.
    #[error("the desktop driver cannot be used")]
    Driver {
        /// The fault of its version.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The GPU is of a kind this crate does not drive.
    #[error("{what} {value:#x} is not supported (supported: {supported})")]
    Unsupported {
        /// The quantity: an SM version, a class, a driver version.
        what: &'static str,
        /// The number found.
        value: u64,
        /// The numbers that would do.
        supported: &'static str,
    },
    /// `/dev/nvidiactl` is that of an Orin's display, whose driver computes nothing: `nvgpu` does that.
    #[error("/dev/nvidiactl is that of an Orin's display, and no GPU to compute on: nvgpu serves that one")]
    DisplayDriver,
    /// The GPU's SMs are of a version this crate has no launch descriptors and no kernels for.
    #[error("the GPU is an sm_{sm}{}; sm_80, sm_86, sm_87, sm_89 and sm_90 are supported", of_tegra(*sm))]
    UnsupportedSm {
        /// The version, 120 for 12.0.
        sm: u32,
    },
}

/// Of which Tegra chip the GPU is, if only one has SMs of that version.
fn of_tegra(sm: u32) -> String {
    Tegra::of_sm(sm).map_or_else(String::new, |tegra| format!(", {tegra}"))
}

fn of_group(group: &Option<String>) -> String {
    group.as_ref().map_or_else(String::new, |group| format!(", which belongs to group {group}"))
}
