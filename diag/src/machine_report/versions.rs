//! Versions of the kernel module, the libraries and the firmware of a driver, and whether they fit.
//!
//! The desktop driver's library and module refuse each other where their versions differ, and the module says
//! so as "API mismatch" (`osapi.c` of open-gpu-kernel-modules). On a Jetson neither nvgpu nor its libraries have
//! that number: the release of L4T stands for all.

use rm_sys::Version;
use serde::Serialize;

use crate::doctor::{Machine, Surroundings};

/// Folders of the driver's libraries: Debian's and Ubuntu's, the others', NixOS's, WSL's, L4T's of r35 and of
/// r36.
const LIBRARY_FOLDERS: [&str; 10] = [
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu/nvidia/current",
    "/usr/lib64",
    "/usr/lib64/nvidia",
    "/usr/lib",
    "/run/opengl-driver/lib",
    "/usr/lib/wsl/lib",
    "/usr/lib/aarch64-linux-gnu/tegra",
    "/usr/lib/aarch64-linux-gnu/nvidia",
];
/// The libraries that talk to the module, CUDA's and NVML's.
const LIBRARIES: [&str; 2] = ["libcuda.so", "libnvidia-ml.so"];
/// The kernel's folder of firmware (`fw_search_path.rst`), and where distributions have merged it to.
const FIRMWARE_FOLDERS: [&str; 2] = ["/lib/firmware", "/usr/lib/firmware"];
/// Branches of the desktop driver have three digits; `libcuda.so.1.1` of L4T and of WSL has no version of it.
const BRANCHES: u32 = 100;

/// A library of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Library {
    /// Where it is.
    pub path: String,
    /// The version in its name, where that has one.
    pub version: Option<String>,
}

/// The versions of a machine's driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// `osrelease` of the kernel.
    pub kernel: Option<String>,
    /// Release of L4T.
    pub l4t: Option<String>,
    /// Version of the desktop driver's module that is loaded.
    pub nvidia_module: Option<String>,
    /// `srcversion` of nvgpu's module, the sum of its source.
    pub nvgpu_srcversion: Option<String>,
    /// Firmware that GPUs of the desktop driver run, by their PCI address.
    pub gpu_firmware: Vec<(String, String)>,
    /// Files of firmware: ga10b's, or the desktop driver's by version.
    pub firmware_files: Vec<String>,
    /// The libraries that were found.
    pub libraries: Vec<Library>,
    /// Mismatches, one sentence each.
    pub mismatches: Vec<String>,
}

fn line(machine: &dyn Machine, path: &str) -> Option<String> {
    let text = machine.read(path)?;
    Some(text.lines().next()?.trim().to_owned()).filter(|line| !line.is_empty())
}

/// The version in a library's name, `libcuda.so.580.95.05`.
fn version_of(file: &str, library: &str) -> Option<Version> {
    let version: Version = file.strip_prefix(library)?.strip_prefix('.')?.parse().ok()?;
    (version.major >= BRANCHES).then_some(version)
}

fn libraries(machine: &dyn Machine) -> Vec<Library> {
    let mut found = Vec::new();
    for folder in LIBRARY_FOLDERS {
        for name in machine.list(folder) {
            if LIBRARIES.iter().any(|library| name.strip_prefix(library).is_some_and(|n| n.starts_with('.')))
            {
                let version = LIBRARIES.iter().find_map(|library| version_of(&name, library));
                let path = format!("{folder}/{name}");
                found.push(Library { path, version: version.map(|version| version.to_string()) });
            }
        }
    }
    found
}

/// Files of firmware that the module would load: of ga10b by nvgpu (`os/linux/firmware.c`), of the GSP by the
/// desktop driver (`kernel-open/nvidia/nv.c`).
fn firmware_files(machine: &dyn Machine) -> Vec<String> {
    let named = line(machine, "/sys/module/firmware_class/parameters/path");
    let folders = named.iter().map(String::as_str).chain(FIRMWARE_FOLDERS);
    let mut found = Vec::new();
    for folder in folders.map(|folder| folder.trim_end_matches('/')) {
        let is_branch = |name: &String| name.parse::<Version>().is_ok();
        let versions = machine.list(&format!("{folder}/nvidia")).into_iter().filter(is_branch);
        let versions = versions.map(|version| format!("nvidia/{version}"));
        for set in ["ga10b", "nvidia/ga10b"].map(str::to_owned).into_iter().chain(versions) {
            let files = machine.list(&format!("{folder}/{set}"));
            found.extend(files.iter().map(|file| format!("{folder}/{set}/{file}")));
        }
    }
    found
}

/// Firmware that each GPU runs, as the driver states it.
fn gpu_firmware(machine: &dyn Machine) -> Vec<(String, String)> {
    const FOLDER: &str = "/proc/driver/nvidia/gpus";
    let of = |address: String| {
        let text = machine.read(&format!("{FOLDER}/{address}/information"))?;
        let version = text.lines().find_map(|line| line.strip_prefix("GPU Firmware:"))?.trim().to_owned();
        Some((address, version))
    };
    machine.list(FOLDER).into_iter().filter_map(of).collect()
}

impl Versions {
    /// Reads a machine.
    #[must_use]
    pub fn of(machine: &dyn Machine) -> Self {
        let module = [rm_sys::VERSION_FILE, rm_sys::VERSION_TEXT_FILE]
            .into_iter()
            .find_map(|path| Version::in_text(&machine.read(path)?).ok());
        let mut versions = Self {
            kernel: line(machine, "/proc/sys/kernel/osrelease"),
            l4t: Surroundings::of(machine).release,
            nvidia_module: module.map(|version| version.to_string()),
            nvgpu_srcversion: line(machine, "/sys/module/nvgpu/srcversion"),
            gpu_firmware: gpu_firmware(machine),
            firmware_files: firmware_files(machine),
            libraries: libraries(machine),
            mismatches: Vec::new(),
        };
        // The module of a Jetson's display serves no library that computes.
        if let Some(module) = module.filter(|_| machine.node("/sys/module/nvgpu").is_none()) {
            versions.compare(module);
        }
        versions
    }

    fn compare(&mut self, module: Version) {
        for library in LIBRARIES {
            let files = self.libraries.iter().filter_map(|file| {
                let name = file.path.rsplit('/').next()?;
                Some((file.path.as_str(), version_of(name, library)?))
            });
            let files: Vec<_> = files.collect();
            if files.is_empty() || files.iter().any(|(_, version)| *version == module) {
                continue;
            }
            let paths: Vec<_> = files.iter().map(|(path, _)| *path).collect();
            self.mismatches.push(format!(
                "the loaded module is {module}, and {library} is not: {}; after an update reboot, or unload and load \
                 the modules; in a container the host's module counts",
                paths.join(", ")
            ));
        }
        let other = |text: &str| text.parse::<Version>().ok().filter(|version| *version != module);
        for (address, firmware) in &self.gpu_firmware {
            if let Some(firmware) = other(firmware) {
                self.mismatches
                    .push(format!("GPU {address} runs firmware {firmware}, and the module is {module}"));
            }
        }
    }
}
