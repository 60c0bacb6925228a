//! Settings of a Jetson's channels and launches where more than one way is right by the driver's source: a
//! bring-up proves them on a board.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A setting with two values: their names in a profile, and the type.
macro_rules! settings {
    ($($(#[$doc:meta])* $name:ident { $($(#[$value_doc:meta])* $value:ident = $text:literal),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $($(#[$value_doc])* $value),+ }

        impl $name {
            /// Both.
            pub const ALL: [Self; 2] = [$(Self::$value),+];

            fn of(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|value| value.as_str() == text)
            }

            /// Its name in a profile.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$value => $text),+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )+};
}

settings! {
    /// CPU mapping of pushbuffers, launch descriptors and constant banks. A Jetson's alone.
    CommandMemory {
        /// Cached; the GPU's reads snoop the caches. The default.
        Cacheable = "cacheable",
        /// Uncached, stores combined.
        WriteCombined = "write-combined",
    }
    /// The subcontext that channels run in. A Jetson's alone.
    Subcontext {
        /// VEID 1, the second pushbuffer unit. The default; where the driver refuses it and no profile asks for
        /// it, VEID 0, with a warning.
        Async = "async",
        /// VEID 0.
        Sync = "sync",
    }
    /// The points at which a kernel can be interrupted for another context. A Jetson's alone.
    Preemption {
        /// At its end: wait for idle. The default, as it is the driver's.
        WaitForIdle = "wfi",
        /// Between two instructions. Where the driver refuses it, kernels are interrupted at their end, with a
        /// warning.
        Instructions = "cilp",
    }
    /// The write of the value that ends a submission.
    Release {
        /// A semaphore method of the channel's class, after a wait for the engine.
        Host = "host",
        /// The launch descriptor of the last kernel, where it can; else as `host`. The default.
        Launch = "qmd",
    }
    /// Fields of launch descriptors that more than one value is right for, and the method that schedules one.
    Descriptor {
        /// The values that other people have run on an Orin.
        Conservative = "conservative",
        /// Those of this library. The default.
        Own = "own",
    }
}

/// Settings of a Jetson's channels and launches; what is `None` is left to the defaults.
///
/// As text: a line `NAME = VALUE` for each setting, and comments from `#` on. `nvdiag bringup` writes such a
/// file, and the environment variable [`Profile::VARIABLE`] names the one that devices are opened with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Profile {
    /// `command-memory`: `cacheable` or `write-combined`.
    pub command_memory: Option<CommandMemory>,
    /// `subcontext`: `async` or `sync`.
    pub subcontext: Option<Subcontext>,
    /// `preemption`: `wfi` or `cilp`.
    pub preemption: Option<Preemption>,
    /// `release`: `host` or `qmd`.
    pub release: Option<Release>,
    /// `descriptor`: `conservative` or `own`.
    pub descriptor: Option<Descriptor>,
}

/// A line of a profile that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {text:?}: expected {expected}")]
pub struct BadProfile {
    /// Number of the line, from 1.
    pub line: usize,
    /// The line.
    pub text: String,
    /// The values it can have, or that another line has set it.
    pub expected: &'static str,
}

/// The values of each line.
const LINES: &str = "command-memory = cacheable or write-combined, subcontext = async or sync, \
    preemption = wfi or cilp, release = host or qmd, descriptor = conservative or own";

impl Profile {
    /// The environment variable that names the file.
    pub const VARIABLE: &str = "HCQ_PROFILE";

    /// The settings that others have run on an Orin, where the defaults are this library's.
    pub const CONSERVATIVE: Self = Self {
        command_memory: None,
        subcontext: None,
        preemption: None,
        release: Some(Release::Host),
        descriptor: Some(Descriptor::Conservative),
    };

    /// Its settings, then those of `other` where it has none.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            command_memory: self.command_memory.or(other.command_memory),
            subcontext: self.subcontext.or(other.subcontext),
            preemption: self.preemption.or(other.preemption),
            release: self.release.or(other.release),
            descriptor: self.descriptor.or(other.descriptor),
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Option<()> {
        match name {
            "command-memory" => self.command_memory = Some(CommandMemory::of(value)?),
            "subcontext" => self.subcontext = Some(Subcontext::of(value)?),
            "preemption" => self.preemption = Some(Preemption::of(value)?),
            "release" => self.release = Some(Release::of(value)?),
            "descriptor" => self.descriptor = Some(Descriptor::of(value)?),
            _ => return None,
        }
        Some(())
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let settings = [
            ("command-memory", self.command_memory.map(CommandMemory::as_str)),
            ("subcontext", self.subcontext.map(Subcontext::as_str)),
            ("preemption", self.preemption.map(Preemption::as_str)),
            ("release", self.release.map(Release::as_str)),
            ("descriptor", self.descriptor.map(Descriptor::as_str)),
        ];
        settings
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .try_for_each(|(name, value)| writeln!(f, "{name} = {value}"))
    }
}

impl FromStr for Profile {
    type Err = BadProfile;

    fn from_str(text: &str) -> Result<Self, BadProfile> {
        let mut profile = Self::default();
        let mut names = BTreeSet::new();
        // An editor's mark of UTF-8.
        for (line, number) in text.trim_start_matches('\u{feff}').lines().zip(1..) {
            let said = line.split('#').next().unwrap_or_default().trim();
            if said.is_empty() {
                continue;
            }
            let bad = |expected| BadProfile { line: number, text: said.to_owned(), expected };
            let (name, value) = said.split_once('=').ok_or(bad(LINES))?;
            profile.set(name.trim(), value.trim()).ok_or(bad(LINES))?;
            if !names.insert(name.trim()) {
                return Err(bad("each setting once"));
            }
        }
        Ok(profile)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_read_as_it_was_written() {
        let all = Profile {
            command_memory: Some(CommandMemory::WriteCombined),
            subcontext: Some(Subcontext::Sync),
            preemption: Some(Preemption::Instructions),
            release: Some(Release::Host),
            descriptor: Some(Descriptor::Conservative),
        };
        assert_eq!(all.to_string().parse(), Ok(all));
        assert_eq!("# nothing\n\n".parse(), Ok(Profile::default()));
        let some: Profile = "subcontext=async # VEID 1".parse().unwrap();
        assert_eq!(some.subcontext, Some(Subcontext::Async));
        assert_eq!(some.or(all), Profile { subcontext: Some(Subcontext::Async), ..all });
    }

    #[test]
    fn a_line_that_means_nothing_is_named() {
        let error = "release = host\nrelease = qmd".parse::<Profile>().unwrap_err();
        assert_eq!((error.line, error.expected), (2, "each setting once"));
        for bad in ["subcontext = 1", "subcontext", "veid = 1", "= async"] {
            let error = format!("# a profile\n{bad}\n").parse::<Profile>().unwrap_err();
            assert_eq!((error.line, error.text.as_str()), (2, bad.trim()));
            assert!(error.to_string().contains("async or sync"), "{error}");
        }
    }
}
