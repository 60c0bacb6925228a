//! A line of the table: its format, its driver, and its meaning.

use serde::{Deserialize, Serialize};

use crate::known_lines::pieces::Piece;

/// Letters and digits from which on a format is identified by its text alone.
const TELLING: usize = 16;
/// Severity of a line for the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Can be ignored.
    Noise,
    /// A value printed along with another line.
    Detail,
    /// Something is degraded, corrected or unusual; nothing failed.
    Notice,
    /// A system call was refused or failed.
    Call,
    /// A channel or TSG is stopped.
    Channel,
    /// The GPU does not work until it is reset, or did not start.
    Gpu,
}

impl Severity {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Noise => "can be ignored",
            Self::Detail => "a value that belongs to another line",
            Self::Notice => "degraded, corrected or unusual; nothing failed",
            Self::Call => "a system call failed",
            Self::Channel => "a channel or its group is stopped",
            Self::Gpu => "the GPU does not work until it is reset, or did not start",
        }
    }
}

/// At which level a line is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// `[ERR]` of nvgpu, `dev_err` of others.
    Error,
    /// `[WRN]`, `dev_warn`.
    Warning,
    /// `[INFO]`.
    Info,
    /// A line of nvgpu's dumps, `__ga10b__`.
    Dump,
}

/// A place that prints a line.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Site {
    /// File, from the driver's folder.
    pub file: String,
    /// Function.
    pub function: String,
    /// Releases that have it, such as `r36`.
    pub releases: Vec<String>,
}

/// A line of the table.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Line {
    /// The printf format.
    pub text: String,
    /// Driver that prints it: `nvgpu`, `nvrm`, `arm-smmu`, `nvgpu`, `nvrm`, `arm-smmu`, ...
    pub driver: String,
    /// At which level.
    pub level: Level,
    /// Releases that print it; `desktop` for drivers that are not of a Jetson.
    pub releases: Vec<String>,
    /// The part of the driver, by name.
    pub unit: String,
    /// The hardware meant: `gr`, `host`, `pbdma`, `ce`, `mmu`, `l2`, `fb`, `bus`, `mc`, `pmu`, `fecs`, `acr`,
    /// `gsp`, `sec2`,
    /// `clk`, `nvlink` or `none`.
    pub engine: String,
    /// Severity for the GPU.
    pub severity: Severity,
    /// Meaning.
    pub meaning: String,
    /// Name of the advice in `Table::advice`.
    pub advice: String,
    /// Whether a person wrote the meaning; otherwise it is drawn from the wording and the part of the driver.
    pub by_hand: bool,
    /// Places of the source that print it.
    pub sites: Vec<Site>,
    /// The format as pieces.
    #[serde(rename = "match")]
    pub pieces: Vec<Piece>,
}

impl Line {
    /// Whether a log with this line has a problem: something failed, at the level of errors.
    #[must_use]
    pub fn is_problem(&self) -> bool {
        self.severity >= Severity::Call && self.level == Level::Error
    }

    /// Letters and digits of the format's literals.
    fn telling(&self) -> usize {
        let count = |piece: &Piece| match piece {
            Piece::Literal(text) => text.bytes().filter(u8::is_ascii_alphanumeric).count(),
            Piece::Value(..) => 0,
        };
        self.pieces.iter().map(count).sum()
    }

    /// Whether the format is so specific that it identifies a line without the driver's name.
    #[must_use]
    pub fn is_telling(&self) -> bool {
        self.telling() >= TELLING
    }

    pub(super) fn is_of(&self, function: &str) -> bool {
        self.sites.iter().any(|site| site.function == function)
    }
}
