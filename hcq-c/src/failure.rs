//! Why a call failed: its code, its text, and the report of the fault behind it.

use hcq::FaultReport;

use crate::registry::Refused;
use crate::status::{self, hcq_status};

/// Why a call failed.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub status: hcq_status,
    pub text: String,
    pub fault: Option<Box<FaultReport>>,
}

impl Failure {
    pub fn new(status: hcq_status, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), fault: None }
    }

    /// A number that the call does not take.
    pub fn value(text: impl Into<String>) -> Self {
        Self::new(hcq_status::HCQ_ERROR_VALUE, text)
    }
}

impl From<hcq::Error> for Failure {
    fn from(error: hcq::Error) -> Self {
        // The message, its causes, and what to try.
        let (status, text) = (status::of(&error), format!("{error:?}"));
        let fault = match error {
            hcq::Error::Fault(report) | hcq::Error::Lost(report) => Some(report),
            _ => None,
        };
        Self { status, text, fault }
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        Self::new(refused.status(), refused.text())
    }
}
