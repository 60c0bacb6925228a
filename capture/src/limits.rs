//! Limits on reading a program's submissions.

use std::time::Duration;

/// Bounds of reading, so that a program that submits without end is not slowed down without end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Entries of one channel whose segments are read; later ones are counted.
    pub entries: u64,
    /// Words of one segment.
    pub segment_words: usize,
    /// Launches of one record, with those that depend on them.
    pub launches: usize,
    /// Time between two readings of `GP_PUT`.
    pub interval: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { entries: 10_000, segment_words: 1 << 16, launches: 2048, interval: Duration::from_micros(50) }
    }
}

impl Limits {
    /// Entries of one channel.
    pub const ENTRIES: &str = "NVDIAG_CAPTURE_ENTRIES";

    /// The default, with as many entries as the environment variable says, if it is a number.
    #[must_use]
    pub fn from_env() -> Self {
        let entries = std::env::var(Self::ENTRIES).ok().and_then(|value| value.parse().ok());
        let default = Self::default();
        Self { entries: entries.unwrap_or(default.entries), ..default }
    }
}
