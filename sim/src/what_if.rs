//! Facts of a real machine that are not known for certain here, or that this project once got wrong: each can
//! be changed by itself, to see the effect for its owner.

use std::borrow::Cow;
use std::str::FromStr;

bitflags::bitflags! {
    /// Facts that are other than the model has them, none by default. A healthy board may show any of them.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WhatIf: u32 {
        /// The first word of the doorbell page holds another class.
        const DOORBELL_CLASS = 1 << 0;
        /// `GP_GET` is written back 100 µs after the fetch.
        const LATE_GP_GET = 1 << 1;
        /// A channel counts as unserviceable 20 ms after its error notifier was written.
        const LATE_UNSERVICEABLE = 1 << 2;
        /// The SM's exception is handled before the MMU's fault that caused it.
        const SM_FIRST = 1 << 3;
        /// The MMU's fault is handled before the SM's exception that comes with it.
        const MMU_FIRST = 1 << 4;
        /// Preemption between instructions is offered, and refused on request.
        const CILP_REFUSED = 1 << 5;
        /// Preemption takes 500 ms.
        const SLOW_PREEMPTION = 1 << 6;
        /// The GPU reads zeros where the CPU wrote through a write-combined mapping.
        const STALE_WRITE_COMBINED = 1 << 7;
        /// Channels of VEID 0 do nothing.
        const DEAD_VEID_0 = 1 << 8;
        /// The driver's characteristics have 400 bytes.
        const CHARACTERISTICS_400 = 1 << 9;
        /// The driver's characteristics have 312 bytes.
        const CHARACTERISTICS_312 = 1 << 10;
        /// The kernel log may not be read.
        const NO_KERNEL_LOG = 1 << 11;
        /// The GPU's devfreq node is not there yet.
        const LATE_DEVFREQ = 1 << 12;
        /// The GPU's firmware did not start: `/dev/nvgpu/igpu0` holds `power` alone.
        const ONLY_POWER = 1 << 13;
        /// A display driver has `/dev/nvidiactl` beside nvgpu's nodes.
        const DISPLAY_DRIVER = 1 << 14;
    }
}

/// Names, as [`SimConfig::WHAT_IF`](crate::SimConfig::WHAT_IF) takes them.
const NAMES: [(&str, WhatIf); 15] = [
    ("doorbell-class", WhatIf::DOORBELL_CLASS),
    ("late-gp-get", WhatIf::LATE_GP_GET),
    ("late-unserviceable", WhatIf::LATE_UNSERVICEABLE),
    ("sm-first", WhatIf::SM_FIRST),
    ("mmu-first", WhatIf::MMU_FIRST),
    ("cilp-refused", WhatIf::CILP_REFUSED),
    ("slow-preemption", WhatIf::SLOW_PREEMPTION),
    ("stale-write-combined", WhatIf::STALE_WRITE_COMBINED),
    ("dead-veid-0", WhatIf::DEAD_VEID_0),
    ("characteristics-400", WhatIf::CHARACTERISTICS_400),
    ("characteristics-312", WhatIf::CHARACTERISTICS_312),
    ("no-kernel-log", WhatIf::NO_KERNEL_LOG),
    ("late-devfreq", WhatIf::LATE_DEVFREQ),
    ("only-power", WhatIf::ONLY_POWER),
    ("display-driver", WhatIf::DISPLAY_DRIVER),
];

/// Facts of which one alone can be.
const CONTRARY: [(&str, &str); 2] =
    [("characteristics-400", "characteristics-312"), ("sm-first", "mmu-first")];

/// Text before the name of a request that the driver does not know.
const UNKNOWN_REQUEST: &str = "enotty=";

/// Facts in which the machine differs from the model's default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhatIfs {
    /// Facts.
    pub facts: WhatIf,
    /// Names of requests that answer `ENOTTY`, as the headers have them: `NVMAP_IOC_QUERY_HEAP_PARAMS`. A name
    /// that no header has is an error: of the text that a list is read from, and of
    /// [`Sim::try_new`](crate::Sim::try_new).
    pub unknown_requests: Vec<String>,
}

impl WhatIfs {
    /// Values that a text can have.
    pub(crate) const EXPECTED: &str = "a list of doorbell-class, late-gp-get, late-unserviceable, sm-first, \
        mmu-first, cilp-refused, slow-preemption, stale-write-combined, dead-veid-0, characteristics-400, \
        characteristics-312, no-kernel-log, late-devfreq, only-power, display-driver and enotty=REQUEST with a \
        request's name as the headers have it";

    /// All facts by name.
    pub fn names() -> impl Iterator<Item = (&'static str, WhatIf)> {
        NAMES.into_iter()
    }

    /// Whether a fact differs from the model's default.
    #[must_use]
    pub fn has(&self, fact: WhatIf) -> bool {
        self.facts.contains(fact)
    }

    /// Numbers of the requests that answer `ENOTTY`.
    ///
    /// # Errors
    /// The first name that no header has.
    pub(crate) fn unknown_numbers(&self) -> Result<Vec<u32>, UnknownWhatIf> {
        self.unknown_requests.iter().map(|name| number(name)).collect()
    }
}

/// A request by its name.
fn request(name: &str) -> Result<&'static nvgpu_sys::Request, UnknownWhatIf> {
    let found = nvgpu_sys::REQUESTS.iter().find(|request| request.name == name);
    found.ok_or_else(|| {
        let what = format!("{UNKNOWN_REQUEST}{name}");
        match near(name).as_slice() {
            [] => UnknownWhatIf { what, expected: WhatIfs::EXPECTED.into() },
            near => {
                let expected =
                    format!("a request's name as the headers have it, such as {}", near.join(", "));
                UnknownWhatIf { what, expected: expected.into() }
            }
        }
    })
}

/// The number of a request by its name.
fn number(name: &str) -> Result<u32, UnknownWhatIf> {
    request(name).map(|request| request.request)
}

/// The requests that a name can mean: those that end in it, else those that are spelt nearly so.
fn near(name: &str) -> Vec<&'static str> {
    /// Least similarity of a name, from 0 to 1: another one is no misspelling.
    const LIKE: f64 = 0.95;
    let names = nvgpu_sys::REQUESTS.iter().map(|request| request.name);
    let end = format!("_{}", name.to_ascii_uppercase());
    let ends: Vec<_> = names.clone().filter(|name| !end.ends_with('_') && name.ends_with(&end)).collect();
    if !ends.is_empty() {
        return ends;
    }
    names.filter(|known| strsim::jaro_winkler(&end[1..], known) >= LIKE).collect()
}

impl From<WhatIf> for WhatIfs {
    fn from(facts: WhatIf) -> Self {
        Self { facts, unknown_requests: Vec::new() }
    }
}

/// A name that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: expected {expected}")]
pub struct UnknownWhatIf {
    what: String,
    /// Values that it can have.
    pub(crate) expected: Cow<'static, str>,
}

impl FromStr for WhatIfs {
    type Err = UnknownWhatIf;

    fn from_str(list: &str) -> Result<Self, UnknownWhatIf> {
        let mut all = Self::default();
        if list.is_empty() {
            return Ok(all);
        }
        let names: Vec<&str> = list.split(',').map(str::trim).collect();
        for name in &names {
            match NAMES.iter().find(|(known, _)| known == name) {
                Some((_, fact)) => all.facts |= *fact,
                None => {
                    let of = name.strip_prefix(UNKNOWN_REQUEST);
                    let of = of.ok_or_else(|| UnknownWhatIf {
                        what: (*name).to_owned(),
                        expected: Self::EXPECTED.into(),
                    })?;
                    all.unknown_requests.push(request(of)?.name.to_owned());
                }
            }
        }
        match CONTRARY.iter().find(|(one, other)| names.contains(one) && names.contains(other)) {
            Some((one, other)) => Err(UnknownWhatIf {
                what: list.to_owned(),
                expected: format!("{one} or {other}, and not both").into(),
            }),
            None => Ok(all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fact_has_a_name_and_every_name_is_offered() {
        assert_eq!(NAMES.into_iter().map(|(_, fact)| fact).collect::<WhatIf>(), WhatIf::all());
        for (name, fact) in NAMES {
            assert_eq!(name.parse::<WhatIfs>(), Ok(fact.into()));
            assert!(WhatIfs::EXPECTED.contains(name), "{name}");
        }
    }

    #[test]
    fn lists_are_read_and_what_means_nothing_is_named() {
        let all: WhatIfs = "sm-first, enotty=NVMAP_IOC_ALLOC,dead-veid-0".parse().unwrap();
        assert!(all.has(WhatIf::SM_FIRST | WhatIf::DEAD_VEID_0) && !all.has(WhatIf::MMU_FIRST));
        assert_eq!(all.unknown_requests, ["NVMAP_IOC_ALLOC"]);
        let error = |bad: &str| bad.parse::<WhatIfs>().unwrap_err().to_string();
        assert_eq!("".parse(), Ok(WhatIfs::default()));
        for bad in ["late", "enotty=", "enotty", "enotty=NONE"] {
            assert!(error(bad).starts_with(bad) && error(bad).contains("late-gp-get"), "{}", error(bad));
        }
        for bad in [",", "sm-first,"] {
            assert!(error(bad).starts_with(": expected a list of doorbell-class"), "{}", error(bad));
        }
        for (bad, near) in [
            ("enotty=NVMAP_IOC_ALOC", "such as NVMAP_IOC_ALLOC"),
            ("enotty=ALLOC_OBJ_CTX", "such as NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX"),
            ("enotty=alloc_obj_ctx", "such as NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX"),
        ] {
            let error = error(bad);
            assert!(error.starts_with(bad) && error.contains(near) && error.len() < 400, "{error}");
        }
        for [one, other] in [["characteristics-400", "characteristics-312"], ["sm-first", "mmu-first"]] {
            for list in [format!("{one},{other}"), format!("{other},dead-veid-0,{one}")] {
                let error = error(&list);
                assert_eq!(error, format!("{list}: expected {one} or {other}, and not both"));
            }
        }
    }
}
