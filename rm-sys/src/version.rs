//! The loaded driver, and the set of struct layouts it takes.
//!
//! The driver compares the size of every struct with its own exactly, and sizes differ between releases; so
//! the release is determined first, and one whose structs are unknown is refused by name.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// File in which the loaded module states its version, alone.
pub const VERSION_FILE: &str = "/sys/module/nvidia/version";
/// File in which the module states its version in the first line of a longer text; containers may have only
/// this file.
pub const VERSION_TEXT_FILE: &str = "/proc/driver/nvidia/version";

/// A driver version such as 580.159.04.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The release branch.
    pub major: u32,
    /// The build within the branch.
    pub minor: u32,
    /// The last part; 0 if there is none.
    pub patch: u32,
}

impl Version {
    /// Reads the version of the loaded driver from [`VERSION_FILE`] or [`VERSION_TEXT_FILE`].
    ///
    /// # Errors
    /// [`VersionError::NoDriver`] if there is neither, [`VersionError::Malformed`] if they hold something
    /// else.
    pub fn of_loaded_driver() -> Result<Self, VersionError> {
        let first = Self::read(Path::new(VERSION_FILE));
        first.or_else(|error| Self::read(Path::new(VERSION_TEXT_FILE)).map_err(|_| error))
    }

    fn read(path: &Path) -> Result<Self, VersionError> {
        let text = std::fs::read_to_string(path);
        Self::in_text(&text.map_err(|source| VersionError::NoDriver { path: path.to_path_buf(), source })?)
    }

    /// The first word of the first line that is a version.
    ///
    /// # Errors
    /// [`VersionError::Malformed`] if there is none.
    pub fn in_text(text: &str) -> Result<Self, VersionError> {
        let line = text.lines().next().unwrap_or("").trim();
        line.split_whitespace().find_map(|word| word.parse().ok()).ok_or_else(|| malformed(line))
    }
}

fn malformed(text: &str) -> VersionError {
    VersionError::Malformed { text: text.chars().take(64).collect() }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // NVIDIA writes 580.159.04, and 540.4.0 of Tegra's.
        let width = if self.patch == 0 { 1 } else { 2 };
        write!(f, "{}.{}.{:0width$}", self.major, self.minor, self.patch)
    }
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let malformed = || malformed(text);
        let mut parts = text.split('.').map(str::parse::<u32>);
        let mut next = || parts.next().map(|part| part.map_err(|_| malformed()));
        let (Some(major), Some(minor), patch, None) = (next(), next(), next(), next()) else {
            return Err(malformed());
        };
        Ok(Self { major: major?, minor: minor?, patch: patch.unwrap_or(Ok(0))? })
    }
}

/// A release branch whose struct layouts this crate holds.
///
/// The structs without a suffix are those of [`Release::R580`]; `_R535` and so on mark the layout that a
/// release differs in, and the name is that of the first release that has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Release {
    /// 535, compared with 535.183.01.
    R535,
    /// 550, compared with 550.163.01.
    R550,
    /// 570, compared with 570.211.01.
    R570,
    /// 580, compared with 580.142.
    R580,
    /// 595, compared with 595.45.04.
    R595,
    /// 610, compared with another project's definitions.
    R610,
}

impl Release {
    /// All of them, oldest first.
    pub const ALL: [Self; 6] = [Self::R535, Self::R550, Self::R570, Self::R580, Self::R595, Self::R610];

    /// The release branch's number.
    pub const fn major(self) -> u32 {
        match self {
            Self::R535 => 535,
            Self::R550 => 550,
            Self::R570 => 570,
            Self::R580 => 580,
            Self::R595 => 595,
            Self::R610 => 610,
        }
    }

    /// The release a version belongs to.
    ///
    /// # Errors
    /// [`VersionError::Unknown`] for a branch that is not in [`Release::ALL`].
    pub fn of(version: Version) -> Result<Self, VersionError> {
        let found = Self::ALL.into_iter().find(|r| r.major() == version.major);
        found.ok_or(VersionError::Unknown { version })
    }
}

/// Why the release of the driver is not known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VersionError {
    /// No driver is loaded, or its version cannot be read.
    #[error("{} cannot be read: is the nvidia kernel module loaded?", path.display())]
    NoDriver {
        /// The file that states the version.
        path: PathBuf,
        /// Why it could not be read.
        #[source]
        source: std::io::Error,
    },
    /// The text is not a version.
    #[error("{text:?} is not a driver version such as 580.159.04")]
    Malformed {
        /// The text found, at most 64 characters of it.
        text: String,
    },
    /// The branch's struct layouts are not known.
    #[error(
        "driver {version} has structs this build does not know; it knows branches 535, 550, 570, 580, 595, 610"
    )]
    Unknown {
        /// The loaded driver.
        version: Version,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_back_as_they_are_written() {
        for text in ["580.159.04", "535.183.01", "610.43.02", "540.4.0"] {
            assert_eq!(text.parse::<Version>().unwrap().to_string(), text);
        }
        assert_eq!("580.142".parse::<Version>().unwrap(), Version { major: 580, minor: 142, patch: 0 });
    }

    #[test]
    fn what_is_no_version_is_refused_with_the_text() {
        for text in ["", "580", "580.x", "1.2.3.4", "580.", "-1.2"] {
            let error = text.parse::<Version>().unwrap_err();
            assert!(matches!(&error, VersionError::Malformed { text: t } if t == text), "{text:?}: {error}");
        }
    }

    #[test]
    fn a_version_is_found_in_the_drivers_text() {
        let text = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (dvs)\n\
                    GCC version:  gcc version 12.3.0\n";
        assert_eq!(Version::in_text(text).unwrap().to_string(), "580.159.04");
        assert_eq!(Version::in_text("580.142\n").unwrap().minor, 142);
        assert!(Version::in_text("no version here\n580.142").is_err());
        assert!(Version::in_text("").is_err());
    }

    #[test]
    fn an_unknown_branch_is_refused_by_name() {
        let error = Release::of("560.35.03".parse().unwrap()).unwrap_err();
        assert!(error.to_string().starts_with("driver 560.35.03 has structs this build does not know"));
        for release in Release::ALL {
            assert!(error.to_string().contains(&release.major().to_string()));
        }
        assert_eq!(Release::of("580.159.04".parse().unwrap()).unwrap(), Release::R580);
    }

    #[test]
    fn a_machine_without_the_driver_says_so() {
        let error = Version::read(Path::new("/no/such/file")).unwrap_err();
        assert_eq!(error.to_string(), "/no/such/file cannot be read: is the nvidia kernel module loaded?");
    }
}
