//! Runs one step against a rig.

mod answer;
mod coherency;
mod driver;
mod faults;
mod kernel;
mod lifetime;
mod memory;
mod model;
mod submission;
mod trial;

pub use trial::try_settings;

use std::time::Instant;

use nix::errno::Errno;

use answer::refused;

use crate::bringup::client::Unopened;
use crate::bringup::llm_demo::{INSTALL, LlmDemo, NOT_INSTALLED};
use crate::bringup::outcome::{Notes, Status, StepResult};
use crate::bringup::plan::{Step, WITH_MODEL};
use crate::bringup::rig::{Platform, Rig};

/// Most lines of the kernel log that a result holds.
const LOG_LINES: usize = 64;

/// Remedy where the driver is of another release.
const OTHER_RELEASE: &str = "nvgpu or nvmap of another release, without this request: L4T r36.2 to r36.4.3 (JetPack 6) \
                             have it, r35 and older (JetPack 5) lack some that work needs; `nvdiag doctor` \
                             names the release";

/// Work of a step.
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
    if let Some(result) = left_out(step, rig.platform, rig.llm_demo.as_ref()) {
        return result;
    }
    let before = rig.logged();
    let (began, mut notes) = (Instant::now(), Notes::default());
    let index = step.number.saturating_sub(1) as usize;
    let done = WORK.get(index).map(|work| work(rig, &mut notes));
    let seconds = began.elapsed().as_secs_f64();
    let mut log = rig.logged_since(&before);
    log.truncate(LOG_LINES);
    let unseen = notes.take_unseen();
    let (status, why) = match done {
        Some(Ok(())) => match unseen {
            None => (Status::Passed, None),
            Some(what) => (Status::Unseen, Some((what, rig.log_remedy.to_owned()))),
        },
        Some(Err(error)) => {
            (Status::Failed, Some((format!("{error:#}"), remedy(step, rig.platform, &error))))
        }
        None => (Status::Failed, Some(("there is no such step".to_owned(), step.if_not()))),
    };
    let (reason, remedy) = why.unzip();
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

/// The result of a step that has nothing to do on a platform, or that lacks its program.
#[must_use]
pub fn left_out(step: &Step, platform: Platform, llm_demo: Option<&LlmDemo>) -> Option<StepResult> {
    if let Some(why) = step.skipped_on(platform) {
        return Some(StepResult::skipped(step.number, step.title, why));
    }
    let lacks = WITH_MODEL.contains(&step.number) && llm_demo.is_none();
    let skipped = lacks.then(|| StepResult::skipped(step.number, step.title, NOT_INSTALLED))?;
    Some(StepResult { remedy: Some(INSTALL.to_owned()), ..skipped })
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

/// Returns the remedy after `error`: the step's own, unless it was not even reached because a node is missing
/// or is not ours.
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
        (Platform::Nvgpu, Some(Errno::ENOENT)) if has_only_power(error) => {
            "the GPU's firmware did not start (`ACR bootstrap failed` in the kernel log): switch the power off \
             and on again, a warm reboot may not do; then `nvdiag doctor`"
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
        (Platform::Nvgpu, None) if refused(error) == Some(Errno::ENOTTY) => OTHER_RELEASE.to_owned(),
        _ => {
            let busy = step.busy.filter(|_| refused(error) == Some(Errno::EBUSY));
            let own = busy.unwrap_or(step.remedy);
            hint(error).map_or(own.to_owned(), |hint| format!("{own}; {hint}"))
        }
    }
}

/// Why a node of nvgpu could not be opened, if that is what failed.
fn unopened(error: &anyhow::Error) -> Option<Errno> {
    error.chain().find_map(|cause| match cause.downcast_ref::<hcq::Error>() {
        Some(hcq::Error::Open(hcq::OpenError::Node { errno, .. })) => Some(Errno::from_raw(errno.raw())),
        _ => Some(cause.downcast_ref::<Unopened>()?.errno),
    })
}

/// Whether the driver has made no node but `power`.
fn has_only_power(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| cause.downcast_ref::<Unopened>().is_some_and(|unopened| unopened.only_power))
}

/// Returns the library's hint.
fn hint(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| cause.downcast_ref::<hcq::Error>()?.hint())
}
