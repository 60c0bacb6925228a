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

use nix::errno::Errno;

use crate::bringup::client::Unopened;
use crate::bringup::outcome::{Notes, Status, StepResult};
use crate::bringup::plan::Step;
use crate::bringup::rig::{Platform, Rig};

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
        Some(Err(error)) => Some((format!("{error:#}"), remedy(step, rig.platform, &error))),
        None => Some(("there is no such step".to_owned(), step.remedy.to_owned())),
    };
    let status = if failure.is_some() { Status::Failed } else { Status::Passed };
    let (reason, remedy) = failure.unzip();
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

/// What to try after `error`: what the step says, unless it was not even reached because a node is missing or
/// is not ours.
fn remedy(step: &Step, platform: Platform, error: &anyhow::Error) -> String {
    match (platform, unopened(error)) {
        (Platform::Desktop, Some(Errno::EACCES | Errno::EPERM)) => {
            "this user may not open the node: `ls -l /dev/nvidia*` shows who may; `nvdiag doctor` names each node"
                .to_owned()
        }
        (Platform::Desktop, Some(_)) => {
            "NVIDIA's desktop driver is not there: no GPU, or its modules are not loaded or its nodes not made \
             (`sudo modprobe -a nvidia nvidia-uvm`, `sudo nvidia-modprobe -u -c 0`, then `nvdiag doctor`); \
             --device sim runs the steps on the software ga10b"
                .to_owned()
        }
        (Platform::Nvgpu, Some(Errno::ENOENT)) => {
            "a node of the driver is missing: no Jetson, or a driver that is not loaded (`sudo modprobe nvgpu`, \
             then `nvdiag doctor`); --device sim runs the steps on the software ga10b"
                .to_owned()
        }
        (Platform::Nvgpu, Some(Errno::EACCES | Errno::EPERM)) => {
            "this user may not open the node: `sudo usermod -aG video $USER`, then log in again; `nvdiag doctor` \
             names the node's group"
                .to_owned()
        }
        _ => match hint(error) {
            Some(hint) => format!("{}; {hint}", step.remedy),
            None => step.remedy.to_owned(),
        },
    }
}

/// Why a node of nvgpu could not be opened, if that is what failed.
fn unopened(error: &anyhow::Error) -> Option<Errno> {
    error.chain().find_map(|cause| match cause.downcast_ref::<hcq::Error>() {
        Some(hcq::Error::Open { errno, .. }) => Some(Errno::from_raw(errno.raw())),
        _ => Some(cause.downcast_ref::<Unopened>()?.errno),
    })
}

/// What the library says to try.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| match cause.downcast_ref::<ga10b_llm::Error>() {
        Some(ga10b_llm::Error::Device(error)) => error.hint(),
        _ => cause.downcast_ref::<hcq::Error>()?.hint(),
    })
}
