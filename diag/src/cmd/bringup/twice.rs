//! A step that runs with a variable first, and without it then: the combined result.

use std::ffi::OsStr;

use hcq::Profile;
use nvdiag::bringup::outcome::{Status, StepResult};

/// A variable with its value; beside the profile in use, which decides before it.
pub fn setting(variable: &str, value: &str, profile: Option<&OsStr>) -> String {
    match profile.filter(|path| !path.is_empty()) {
        Some(path) => format!("{variable}={value} beside {}={}", Profile::VARIABLE, path.display()),
        None => format!("{variable}={value}"),
    }
}

/// The step's result: that without the setting. The result with the setting alone is a fact.
pub fn both(setting: &str, with: StepResult, without: StepResult) -> StepResult {
    let mut both = without;
    both.seconds += with.seconds;
    let failure = (with.status == Status::Failed).then(|| with.reason.unwrap_or_default());
    match (both.status, failure) {
        (Status::Failed, failure) => {
            let it = failure.map_or(" it passes".to_owned(), |failure| format!(": {failure}"));
            both.reason = both.reason.map(|reason| format!("{reason} (with {setting}{it})"));
        }
        (_, Some(failure)) => {
            const SEEN: &str = "its settings have run on an AGX Orin: docs/orin.md, Settings";
            both.notes.judge(setting, failure, false, "passes too; where it does not, leave it unset", SEEN);
        }
        (_, None) => both.notes.fact(setting, "passes too"),
    }
    both
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(status: Status, reason: Option<&str>) -> StepResult {
        StepResult { status, reason: reason.map(str::to_owned), ..StepResult::skipped(12, "a step", "") }
    }

    #[test]
    fn a_step_passes_or_fails_by_what_it_does_without_the_variable() {
        let passed = || result(Status::Passed, None);
        let failed = |reason| result(Status::Failed, Some(reason));
        let all = both("V=1", passed(), passed());
        assert_eq!((all.status, all.notes.facts[0].differs()), (Status::Passed, false));
        let marked = both("V=1", failed("no end"), passed());
        let fact = &marked.notes.facts[0];
        assert_eq!((marked.status, marked.reason), (Status::Passed, None));
        assert_eq!((fact.name.as_str(), fact.value.as_str(), fact.differs()), ("V=1", "no end", true));
        let lost = both("V=1", passed(), failed("no end"));
        assert_eq!(
            (lost.status, lost.reason.as_deref()),
            (Status::Failed, Some("no end (with V=1 it passes)"))
        );
        let lost = both("V=1", failed("no start"), failed("no end"));
        assert_eq!(lost.reason.as_deref(), Some("no end (with V=1: no start)"));
    }

    #[test]
    fn the_profile_in_use_is_named_beside_a_variable() {
        let profile = |path: &'static str| setting("V", "1", Some(OsStr::new(path)));
        assert_eq!((setting("V", "1", None), profile("")), ("V=1".to_owned(), "V=1".to_owned()));
        assert_eq!(profile("sync.p"), "V=1 beside HCQ_PROFILE=sync.p");
    }
}
