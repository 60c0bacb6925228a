//! The kernel's reasons, as numbers with names.

use std::{fmt, io};

/// An error number of the kernel (`errno.h`), such as 13, `EACCES`.
///
/// [`io::Error::from`] turns it into the standard library's type, whose
/// [`kind`](io::Error::kind) groups the numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(i32);

impl Errno {
    /// The reason with that number.
    pub const fn from_raw(number: i32) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn raw(self) -> i32 {
        self.0
    }

    /// Its name in `errno.h`; `None` for a number that has none.
    pub fn name(self) -> Option<String> {
        match self.nix() {
            nix::errno::Errno::UnknownErrno => None,
            known => Some(format!("{known:?}")),
        }
    }

    /// Its meaning, in a few words.
    pub fn text(self) -> &'static str {
        self.nix().desc()
    }

    /// As the system-call layer has it.
    pub(crate) const fn of(errno: nix::errno::Errno) -> Self {
        Self(errno as i32)
    }

    fn nix(self) -> nix::errno::Errno {
        nix::errno::Errno::from_raw(self.0)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(&name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}: {}", self.text())
    }
}

impl std::error::Error for Errno {}

impl From<Errno> for io::Error {
    fn from(errno: Errno) -> Self {
        Self::from_raw_os_error(errno.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_its_name_its_text_and_its_kind() {
        let denied = Errno::of(nix::errno::Errno::EACCES);
        assert_eq!((denied, denied.raw()), (Errno::from_raw(13), 13));
        assert_eq!(denied.to_string(), "EACCES: Permission denied");
        assert_eq!(io::Error::from(denied).kind(), io::ErrorKind::PermissionDenied);
        let unknown = Errno::from_raw(9999);
        assert_eq!((unknown.raw(), unknown.name()), (9999, None));
        assert!(unknown.to_string().starts_with("errno 9999: "));
    }
}
