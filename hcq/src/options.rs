//! The choice of a device, and its options.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{Error, OpenError};
use crate::info::GpuCache;
use crate::profile::{Descriptor, Profile, Release};

/// Most bytes of freed memory that are kept where the caller does not say.
const MOST_KEPT: u64 = 1 << 30;
/// Most bytes of a file of settings: a profile has five lines.
const LONGEST_PROFILE: u64 = 1 << 16;

/// The device to open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Selector {
    /// A Jetson's GPU, else a desktop GPU, else the software ga10b where it is part of the build. What was
    /// passed over, and why, is reported through `tracing` at info level; where the user can mend it (no
    /// permission, no modules, a driver of another release), also as a warning.
    #[default]
    Auto,
    /// A Jetson's GPU.
    Nvgpu,
    /// A desktop or data-centre GPU.
    Rm,
    /// The software ga10b; needs feature `sim`.
    Sim,
}

impl Selector {
    /// Reads `HCQ_DEVICE`; [`Selector::Auto`] when it is not set.
    ///
    /// # Errors
    /// [`OpenError::UnknownSelector`] for a name that is not `auto`, `nvgpu`, `rm` or `sim`.
    pub fn from_env() -> Result<Self, Error> {
        match std::env::var_os("HCQ_DEVICE") {
            Some(name) => name.to_string_lossy().parse(),
            None => Ok(Self::Auto),
        }
    }
}

impl FromStr for Selector {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "auto" | "" => Ok(Self::Auto),
            "nvgpu" => Ok(Self::Nvgpu),
            "rm" => Ok(Self::Rm),
            "sim" => Ok(Self::Sim),
            _ => Err(Error::Open(OpenError::UnknownSelector { name: name.to_owned() })),
        }
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Nvgpu => "nvgpu",
            Self::Rm => "rm",
            Self::Sim => "sim",
        })
    }
}

/// A level of a Jetson's run list (`NVGPU_RUNLIST_INTERLEAVE_LEVEL_*` of nvgpu.h): all work of a higher level stands
/// there before each of a lower one (source: nvgpu, common/fifo/runlist.c, `nvgpu_runlist_append_prio` and its
/// callers).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Interleave {
    /// The driver's default.
    Low,
    /// Between the two.
    Medium,
    /// The most often.
    High,
}

impl FromStr for Interleave {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        match name {
            "low" => Ok(Self::Low),
            "medium" => Ok(Self::Medium),
            "high" => Ok(Self::High),
            _ => Err(Self::refused(name, "low, medium or high")),
        }
    }
}

impl fmt::Display for Interleave {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
        })
    }
}

impl Interleave {
    pub(crate) fn refused(value: impl fmt::Display, expected: &'static str) -> Error {
        let (variable, value) = ("interleave", value.to_string());
        Error::Open(OpenError::UnknownSetting { variable, value, expected: expected.into() })
    }
}

/// Options of a device. [`DeviceOptions::default`] is right for everything but tests and measurements.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// For tests only: `false` leaves the shared and local memory windows free for buffers, as a driver
    /// without this crate's reservation does, so that the fault this causes can be reproduced.
    #[doc(hidden)]
    pub reserve_windows: bool,
    /// For tests and measurements: `true` moves data through the copy engine even where the CPU could reach
    /// the buffer itself.
    #[doc(hidden)]
    pub staged_copies: bool,
    /// Makes dependent launches follow each other inside the GPU's scheduler instead of through the
    /// pushbuffer.
    pub chain_launches: bool,
    /// Copies between buffers on a compute queue are done by a kernel instead of the copy engine from this
    /// many bytes on; `None` for what suits the device.
    pub kernel_copies_from: Option<u64>,
    /// Whether a Jetson's GPU may keep bulk memory in its level-2 cache; `None` for what `HCQ_GPU_CACHE`
    /// says, and no if it says nothing.
    pub gpu_cache: Option<GpuCache>,
    /// Channels and launches as close as can be to those that other people have run on an Orin: what
    /// [`Profile::CONSERVATIVE`] says and [`profile`](Self::profile) leaves open, no links between launches, the
    /// ring's entries, write-combined signals, the driver's own [`switch_limit`](Self::switch_limit). Slower; to
    /// find out whether one of the differences is at fault. `None` for what `HCQ_CONSERVATIVE` says (`0` or
    /// `1`), and no if it says nothing.
    pub conservative: Option<bool>,
    /// The make-up of channels and launches; settings left open come from the file that `HCQ_PROFILE` names,
    /// then from [`conservative`](Self::conservative), then from the defaults. On the desktop driver its
    /// release and descriptor count, the others are a Jetson's.
    ///
    /// By default a Jetson's kernels run to their end (`wfi`) whoever waits for the GPU. Beside a desktop a
    /// kernel of seconds, as persistent grids are, makes it stand still, and can cost its channel by
    /// [`switch_limit`](Self::switch_limit). [`Device::preemption`](crate::Device::preemption) says what is in
    /// effect; a profile with `preemption = cilp` changes it where the board's driver can.
    pub profile: Profile,
    /// Context-switch time, over the life of a channel, after which a Jetson's driver stops it: each switch
    /// adds 100 ms for each 100 ms that it waits for a kernel. A desktop stands still as long. `None` for the
    /// driver's 3 s.
    pub switch_limit: Option<Duration>,
    /// The time slice of this device on a Jetson's GPU when others wait, 1 to 50 ms where root has not set the driver
    /// other bounds; `None` for its 1.024 ms. A longer slice means fewer switches beside a desktop, and a less smooth one.
    pub timeslice: Option<Duration>,
    /// How often this device's work appears on the list that a Jetson's GPU goes through when others wait; `None` for
    /// the driver's, which is low. Refused on the desktop driver, which has no such setting, and by a driver whose
    /// scheduling a daemon has locked (`EPERM`).
    pub interleave: Option<Interleave>,
    /// Time for which a wait spins before it yields and then sleeps; `None` for the device's own choice.
    pub spin: Option<Duration>,
    /// Most bytes of freed buffers above 256 KiB that the device keeps for later ones of about their size: the
    /// driver takes 100 us and more for each. `None` for a 64th of the memory, at most 1 GiB; 0 gives all back
    /// at once. They go back when an allocation lacks memory, and by [`Device::trim`](crate::Device::trim).
    /// The software ga10b keeps nothing where it checks accesses to memory.
    pub keep_freed: Option<u64>,
    /// For tests: the value timelines start from. They count modulo 2^64.
    #[doc(hidden)]
    pub timeline_start: u64,
    /// Time for which operations without a deadline of their own (reading, writing, ring space, dropping)
    /// wait for the GPU, and for which a request is repeated that signals interrupt, or that the driver
    /// cannot serve beside a kernel that does not give way. Dropping a queue takes in addition what the
    /// driver takes to close a channel: some tenths of a second, where a kernel does not end.
    pub patience: Duration,
}

impl DeviceOptions {
    /// The environment variable that decides where [`conservative`](Self::conservative) does not: `0` or `1`.
    pub const CONSERVATIVE: &str = "HCQ_CONSERVATIVE";

    /// The default, with what the environment decides.
    ///
    /// # Errors
    /// [`OpenError::UnknownSetting`] for a variable with a value that means nothing; [`OpenError::Profile`]
    /// for a file of settings that cannot be used.
    pub fn from_env() -> Result<Self, Error> {
        let conservative = Some(conservative(std::env::var_os(Self::CONSERVATIVE).as_deref())?);
        let profile = profile(std::env::var_os(Profile::VARIABLE))?;
        Ok(Self { gpu_cache: Some(GpuCache::from_env()?), conservative, profile, ..Self::default() })
    }

    /// Resolves what the environment decides, and what being conservative does.
    pub(crate) fn resolve(mut self) -> Result<Self, Error> {
        let conservative = match self.conservative {
            Some(conservative) => conservative,
            None => conservative(std::env::var_os(Self::CONSERVATIVE).as_deref())?,
        };
        self.conservative = Some(conservative);
        self.profile = self.profile.or(profile(std::env::var_os(Profile::VARIABLE))?);
        if conservative {
            self.profile = self.profile.or(Profile::CONSERVATIVE);
            (self.chain_launches, self.switch_limit) = (false, None);
        }
        Ok(self)
    }

    /// Most bytes of freed memory that are kept, on a device with `memory` bytes.
    pub(crate) fn keep(&self, memory: u64) -> u64 {
        self.keep_freed.unwrap_or((memory / 64).min(MOST_KEPT))
    }

    /// Whether channels and launches are conservative, once that is resolved.
    pub(crate) fn is_conservative(&self) -> bool {
        self.conservative == Some(true)
    }

    /// Whether the last kernel of a submission may signal its end by itself, once that is resolved.
    pub(crate) fn releases_in_launch(&self) -> bool {
        self.profile.release != Some(Release::Host)
    }

    /// Whether launch descriptors are conservative, once that is resolved.
    pub(crate) fn has_conservative_descriptors(&self) -> bool {
        self.profile.descriptor == Some(Descriptor::Conservative)
    }
}

/// The meaning of a value of [`DeviceOptions::CONSERVATIVE`].
fn conservative(value: Option<&OsStr>) -> Result<bool, Error> {
    let value = value.unwrap_or_default();
    match value.to_str() {
        Some("" | "0" | "off") => Ok(false),
        Some("1" | "on") => Ok(true),
        _ => Err(Error::Open(OpenError::UnknownSetting {
            variable: DeviceOptions::CONSERVATIVE,
            value: value.to_string_lossy().into_owned(),
            expected: "0 or 1".into(),
        })),
    }
}

/// The settings in the file that [`Profile::VARIABLE`] names; none where it names none.
fn profile(path: Option<OsString>) -> Result<Profile, Error> {
    let Some(path) = path.filter(|path| !path.is_empty()).map(PathBuf::from) else {
        return Ok(Profile::default());
    };
    let read = || -> Result<Profile, Box<dyn std::error::Error + Send + Sync>> {
        // The open of a pipe would wait for its other end.
        let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("it is no regular file").into());
        }
        let mut bytes = Vec::new();
        file.take(LONGEST_PROFILE + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > LONGEST_PROFILE {
            return Err(io::Error::from(io::ErrorKind::FileTooLarge).into());
        }
        let profile = String::from_utf8_lossy(&bytes).parse::<Profile>()?;
        if profile == Profile::default() {
            // As a bring-up leaves it that did not come to its end.
            return Err(io::Error::other("it has no setting").into());
        }
        Ok(profile)
    };
    read().map_err(|source| Error::Open(OpenError::Profile { path: path.clone(), source }))
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            reserve_windows: true,
            staged_copies: false,
            chain_launches: true,
            kernel_copies_from: None,
            gpu_cache: None,
            conservative: None,
            profile: Profile::default(),
            switch_limit: Some(Duration::from_secs(10)),
            timeslice: None,
            interleave: None,
            spin: None,
            keep_freed: None,
            timeline_start: 0,
            patience: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::with_causes;

    #[test]
    fn conservative_is_one_of_two_values() {
        let of = |value: &str| super::conservative(Some(OsStr::new(value)));
        assert_eq!(super::conservative(None).ok(), Some(false));
        assert_eq!(
            ["", "0", "off", "1", "on"].map(|v| of(v).ok()),
            [false, false, false, true, true].map(Some)
        );
        let error = of("nonsense").unwrap_err().to_string();
        assert!(error.contains("HCQ_CONSERVATIVE") && error.contains("nonsense"), "{error}");
        assert!(error.contains("0 or 1"), "{error}");
    }

    #[test]
    fn what_a_profile_leaves_open_is_decided_by_being_conservative_and_then_by_the_defaults() {
        let resolved = |profile: Profile, conservative| {
            let options =
                DeviceOptions { profile, conservative: Some(conservative), ..DeviceOptions::default() };
            let options = options.resolve().unwrap();
            let settings = (options.releases_in_launch(), options.has_conservative_descriptors());
            (settings, options.chain_launches, options.switch_limit)
        };
        let budget = Some(Duration::from_secs(10));
        let (none, own) = (Profile::default(), Some(Descriptor::Own));
        assert_eq!(resolved(none, false), ((true, false), true, budget));
        assert_eq!(resolved(none, true), ((false, true), false, None));
        assert_eq!(resolved(Profile { descriptor: own, ..none }, true), ((false, false), false, None));
        let release = Some(Release::Host);
        assert_eq!(resolved(Profile { release, ..none }, false), ((false, false), true, budget));
    }

    #[test]
    fn a_profile_that_cannot_be_used_names_its_file_the_line_and_what_is_expected() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let read = || super::profile(Some(file.path().into()));
        let full = |error: &Error| format!("{}; {}", with_causes(error), error.hint().unwrap_or_default());
        std::fs::write(file.path(), "release = host # T\n").unwrap();
        assert_eq!(read().unwrap(), Profile { release: Some(Release::Host), ..Profile::default() });
        std::fs::write(file.path(), "# settings\nrelease = never\n").unwrap();
        let error = full(&read().unwrap_err());
        for part in
            [&*file.path().to_string_lossy(), "line 2", "release = never", "host or qmd", "HCQ_PROFILE"]
        {
            assert!(error.contains(part), "{part}: {error}");
        }
        std::fs::write(file.path(), "#".repeat(1 + LONGEST_PROFILE as usize)).unwrap();
        assert!(matches!(read(), Err(Error::Open(OpenError::Profile { .. }))));
        std::fs::write(file.path(), b"release\xff = host").unwrap();
        assert!(full(&read().unwrap_err()).contains("line 1"));
        std::fs::write(file.path(), b"\xef\xbb\xbfrelease = host\r\n").unwrap();
        assert_eq!(read().unwrap().release, Some(Release::Host));
        for nothing in ["", "# settings\n"] {
            std::fs::write(file.path(), nothing).unwrap();
            assert!(full(&read().unwrap_err()).contains("it has no setting"));
        }
        let folder = tempfile::tempdir().unwrap();
        let pipe = folder.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
        for other in [pipe, "/dev/zero".into(), "/".into()] {
            let error = full(&super::profile(Some(other.into())).unwrap_err());
            assert!(error.contains("it is no regular file"), "{error}");
        }
        for missing in ["/nowhere/profile", "/etc/passwd/x"] {
            let error = full(&super::profile(Some(missing.into())).unwrap_err());
            assert!(error.contains(missing) && error.contains("nvdiag bringup"), "{error}");
        }
        assert_eq!(super::profile(None).unwrap(), Profile::default());
        assert_eq!(super::profile(Some(OsString::new())).unwrap(), Profile::default());
    }

    #[test]
    fn every_level_parses_from_its_own_name() {
        for level in [Interleave::Low, Interleave::Medium, Interleave::High] {
            assert_eq!(level.to_string().parse::<Interleave>().ok(), Some(level));
        }
        let error = "highest".parse::<Interleave>().unwrap_err().to_string();
        assert_eq!(error, "interleave is \"highest\": expected low, medium or high");
    }

    #[test]
    fn every_selector_parses_from_its_own_name() {
        for s in [Selector::Auto, Selector::Nvgpu, Selector::Rm, Selector::Sim] {
            assert_eq!(s.to_string().parse::<Selector>().ok(), Some(s));
        }
        assert!(
            matches!("cuda".parse::<Selector>(), Err(Error::Open(OpenError::UnknownSelector { name })) if name == "cuda")
        );
    }
}
