//! Runs one step against a rig.

mod coherency;
mod driver;
mod faults;
mod kernel;
mod lifetime;
mod memory;
mod model;
mod submission;

use std::time::Instant;

use crate::bringup::outcome::{Notes, Status, StepResult};
use crate::bringup::plan::Step;
use crate::bringup::rig::Rig;

/// Most lines of the kernel log that a result holds.
const LOG_LINES: usize = 64;

/// What stands for the work of each step, by its number.
type Work = fn(&Rig<'_>, &mut Notes) -> anyhow::Result<()>;

/// The work of the steps, in order.
const WORK: [Work; 21] = [
    driver::machine,
    driver::characteristics,
    driver::extent,
    memory::memory,
    memory::addresses,
    memory::doorbell,
    submission::channel,
    submission::context,
    submission::release,
    submission::windows,
    kernel::copies,
    kernel::first_kernel,
    kernel::stack,
    coherency::coherency,
    coherency::atomics,
    kernel::chains,
    lifetime::idle,
    lifetime::beside_a_kernel,
    faults::faults,
    model::model,
    model::soak,
];

/// Runs a step in this process.
#[must_use]
pub fn run(step: &Step, rig: &Rig<'_>) -> StepResult {
    if let Some(why) = step.skipped_on(rig.platform) {
        return StepResult::skipped(step.number, step.title, why);
    }
    let before = rig.logged();
    let (began, mut notes) = (Instant::now(), Notes::default());
    let index = step.number.saturating_sub(1) as usize;
    let done = WORK.get(index).map(|work| work(rig, &mut notes));
    let seconds = began.elapsed().as_secs_f64();
    let mut log = rig.logged_since(&before);
    log.truncate(LOG_LINES);
    let failure = match done {
        Some(Ok(())) => None,
        Some(Err(error)) => Some((format!("{error:#}"), hint(&error))),
        None => Some(("there is no such step".to_owned(), None)),
    };
    let status = if failure.is_some() { Status::Failed } else { Status::Passed };
    let (reason, more) = failure.unzip();
    let remedy = reason.is_some().then(|| match more.flatten() {
        Some(hint) => format!("{}; {hint}", step.remedy),
        None => step.remedy.to_owned(),
    });
    StepResult {
        number: step.number,
        title: step.title.to_owned(),
        status,
        seconds,
        notes,
        reason,
        remedy,
        log,
    }
}

/// The result of a step that means nothing after those before it.
#[must_use]
pub fn pointless(step: &Step, done: &[StepResult]) -> Option<StepResult> {
    const RESTS_ON: &str = "it rests on step";
    let lost = |number: u32| {
        done.iter().any(|result| {
            let skipped = result.reason.as_ref().is_some_and(|reason| reason.starts_with(RESTS_ON));
            result.number == number && (result.status == Status::Failed || skipped)
        })
    };
    let number = step.needs.iter().find(|number| lost(**number))?;
    Some(StepResult::skipped(step.number, step.title, format!("{RESTS_ON} {number}, which did not pass")))
}

/// What the library says to try.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| match cause.downcast_ref::<ga10b_llm::Error>() {
        Some(ga10b_llm::Error::Device(error)) => error.hint(),
        _ => cause.downcast_ref::<hcq::Error>()?.hint(),
    })
}
