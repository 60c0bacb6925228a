//! The tuned shapes that a command uses.

use std::io::{self, Write};

use ga10b_llm::Model;
use ga10b_llm::tuning::{Method, Store, Subject, Tuning, target};
use hcq::BackendKind;
use serde::Serialize;

/// The shapes in use, for reports.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "source", rename_all = "lowercase")]
pub enum TuningReport {
    /// The shapes of the committed kernels.
    Default,
    /// The result of a search.
    File {
        path: String,
        /// When, in UTC.
        date: String,
        method: Method,
    },
}

/// Shapes, and their origin.
pub struct InUse {
    pub tuning: Tuning,
    pub report: TuningReport,
}

impl TuningReport {
    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::Default => writeln!(out, "tuning      default"),
            Self::File { path, date, method } => {
                writeln!(out, "tuning      {path} ({date}, {})", method.name())
            }
        }
    }
}

/// The stored shapes for `model` on the device of `info`, or the default ones. Results that cannot be used
/// are reported on standard error.
pub fn find(wanted: bool, info: &hcq::Info, model: &Model) -> InUse {
    let usual = InUse { tuning: Tuning::default(), report: TuningReport::Default };
    let Some(store) = Store::of_user().filter(|_| wanted) else { return usual };
    let Ok(target) = target(info.sm_number()) else { return usual };
    let method = if info.backend == BackendKind::Sim { Method::Predicted } else { Method::Measured };
    let loaded = match store.load(&Subject::new(info, model), method, target) {
        Ok(Some(loaded)) => loaded,
        Ok(None) => return usual,
        Err(error) => {
            let error = anyhow::Error::from(error);
            tracing::warn!("tuned shapes are not used: {error:#}");
            return usual;
        }
    };
    for problem in &loaded.problems {
        tracing::warn!(
            "{}: {problem}; the default shape is used, run llm-demo tune again",
            store.path().display()
        );
    }
    if loaded.tuning == Tuning::default() {
        return usual;
    }
    let path = store.path().display().to_string();
    let report = TuningReport::File { path, date: loaded.entry.date, method };
    InUse { tuning: loaded.tuning, report }
}
