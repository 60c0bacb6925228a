//! Which device to open, and how.

use std::ffi::OsStr;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::address::Bytes;
use crate::error::Error;
use crate::info::GpuCache;

/// Most bytes of freed memory that are kept where the caller does not say.
const MOST_KEPT: u64 = 1 << 30;

/// Which device to open.
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
    /// [`Error::UnknownSelector`] for a name that is not `auto`, `nvgpu`, `rm` or `sim`.
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
            _ => Err(Error::UnknownSelector { name: name.to_owned() }),
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

/// How to open a device. [`DeviceOptions::default`] is right for everything but tests and measurements.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// For tests only: `false` leaves the shared and local memory windows free for buffers, as a driver
    /// without this crate's reservation does, so that the fault this causes can be reproduced.
    pub reserve_windows: bool,
    /// For tests and measurements: `true` moves data through the copy engine even where the CPU could reach
    /// the buffer itself.
    pub staged_copies: bool,
    /// Makes dependent launches follow each other inside the GPU's scheduler instead of through the
    /// pushbuffer.
    pub chain_launches: bool,
    /// Lets the last kernel of a submission signal its end by itself, where it can, instead of a wait for the
    /// whole engine after it.
    pub release_in_launch: bool,
    /// Copies between buffers on a compute queue are done by a kernel instead of the copy engine from this
    /// many bytes on; `None` for what suits the device.
    pub kernel_copies_from: Option<u64>,
    /// Whether a Jetson's GPU may keep bulk memory in its level-2 cache; `None` for what `HCQ_GPU_CACHE`
    /// says, and no if it says nothing.
    pub gpu_cache: Option<GpuCache>,
    /// Launches as close as can be to those that other people have run on an Orin: the launch descriptor's
    /// fields, the semaphore that ends a submission, the ring's entries, the subcontext. Slower; to find out
    /// whether one of the differences is at fault. `None` for what `HCQ_CONSERVATIVE` says (`0` or `1`), and
    /// no if it says nothing.
    pub conservative: Option<bool>,
    /// Whether a Jetson's channels run in an asynchronous subcontext (VEID 1, the second pushbuffer unit)
    /// instead of the synchronous one (VEID 0); `None` for yes where launches are conservative.
    pub async_subcontext: Option<bool>,
    /// Context-switch time, over the life of a channel, after which a Jetson's driver stops it: each switch
    /// adds 100 ms for each 100 ms that it waits for a kernel. `None` for the driver's 3 s.
    pub switch_limit: Option<Duration>,
    /// How long a Jetson's GPU stays with this device when others wait, 1 to 50 ms; `None` for the driver's
    /// 1.024 ms. A longer slice means fewer switches beside a desktop, and a less smooth one.
    pub timeslice: Option<Duration>,
    /// How long a wait spins before it yields and then sleeps; `None` for what suits the device.
    pub spin: Option<Duration>,
    /// Most bytes of freed buffers above 256 KiB that the device keeps for later ones of about their size: the
    /// driver takes 100 us and more for each. `None` for a 64th of the memory, at most 1 GiB; 0 gives all back
    /// at once. They go back when an allocation lacks memory, and by [`Device::trim`](crate::Device::trim).
    /// Where kernels are checked (`NVGPU_SIM_CHECK`), nothing is kept.
    pub keep_freed: Option<Bytes>,
    /// For tests: the value timelines start from. They count modulo 2^64.
    pub timeline_start: u64,
    /// How long operations without a deadline of their own (reading, writing, ring space, dropping) wait for
    /// the GPU, and how long a request is repeated that signals interrupt, or that the driver cannot serve
    /// beside a kernel that does not give way. Dropping a queue takes in addition what the driver takes to
    /// close a channel: some tenths of a second, where a kernel does not end.
    pub patience: Duration,
}

impl DeviceOptions {
    /// The environment variable that decides where [`conservative`](Self::conservative) does not: `0` or `1`.
    pub const CONSERVATIVE: &str = "HCQ_CONSERVATIVE";

    /// The default, with what the environment decides.
    ///
    /// # Errors
    /// [`Error::UnknownSetting`] for a variable with a value that means nothing.
    pub fn from_env() -> Result<Self, Error> {
        let conservative = Some(conservative(std::env::var_os(Self::CONSERVATIVE).as_deref())?);
        Ok(Self { gpu_cache: Some(GpuCache::from_env()?), conservative, ..Self::default() })
    }

    /// Resolves what the environment decides.
    ///
    /// A conservative device neither links launches nor lets them signal.
    pub(crate) fn resolve(mut self) -> Result<Self, Error> {
        let conservative = match self.conservative {
            Some(conservative) => conservative,
            None => conservative(std::env::var_os(Self::CONSERVATIVE).as_deref())?,
        };
        self.conservative = Some(conservative);
        self.async_subcontext.get_or_insert(conservative);
        if conservative {
            (self.chain_launches, self.release_in_launch) = (false, false);
        }
        Ok(self)
    }

    /// Most bytes of freed memory that are kept, on a device with `memory` bytes.
    pub(crate) fn keep(&self, memory: Bytes) -> Bytes {
        self.keep_freed.unwrap_or(Bytes::new((memory.count() / 64).min(MOST_KEPT)))
    }

    /// Whether launches are conservative, once that is resolved.
    pub(crate) fn is_conservative(&self) -> bool {
        self.conservative == Some(true)
    }
}

/// What a value of [`DeviceOptions::CONSERVATIVE`] means.
fn conservative(value: Option<&OsStr>) -> Result<bool, Error> {
    let value = value.unwrap_or_default();
    match value.to_str() {
        Some("" | "0" | "off") => Ok(false),
        Some("1" | "on") => Ok(true),
        _ => Err(Error::UnknownSetting {
            variable: DeviceOptions::CONSERVATIVE,
            value: value.to_string_lossy().into_owned(),
            expected: "0 or 1",
        }),
    }
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self {
            reserve_windows: true,
            staged_copies: false,
            chain_launches: true,
            release_in_launch: true,
            kernel_copies_from: None,
            gpu_cache: None,
            conservative: None,
            async_subcontext: None,
            switch_limit: Some(Duration::from_secs(60)),
            timeslice: None,
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
    fn every_selector_parses_from_its_own_name() {
        for s in [Selector::Auto, Selector::Nvgpu, Selector::Rm, Selector::Sim] {
            assert_eq!(s.to_string().parse::<Selector>().ok(), Some(s));
        }
        assert!(matches!("cuda".parse::<Selector>(), Err(Error::UnknownSelector { name }) if name == "cuda"));
    }
}
