//! Owner of a fault, and lines that it is tied to.

use serde::Serialize;

use crate::catalogue::Class;

/// Certainty of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sure {
    /// Others are as likely.
    Possible,
    /// Others are rare.
    Likely,
    /// The lines say so.
    Certain,
}

/// Owner of a fault.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Owner.
    pub whose: Class,
    /// Certainty.
    pub sure: Sure,
    /// Action.
    pub action: String,
}

impl Judgement {
    pub(super) fn new(whose: Class, sure: Sure, action: impl Into<String>) -> Self {
        Self { whose, sure, action: action.into() }
    }

    /// In words: `the program (likely)`.
    #[must_use]
    pub fn words(&self) -> String {
        let sure = match self.sure {
            Sure::Possible => "possibly",
            Sure::Likely => "likely",
            Sure::Certain => "certain",
        };
        format!("{} ({sure})", self.whose.words())
    }
}

/// Another line of the story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Link {
    /// Number of the line.
    pub line: u64,
    /// Meaning.
    pub what: String,
    /// Evidence for the link.
    pub evidence: String,
    /// The message as printed.
    pub text: String,
}
