//! `nvdiag bringup`: the first hour with a machine, step by step.

mod bisect;
mod collect;
mod text;
mod twice;

use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, ensure};
use hcq::{DeviceOptions, Profile, Selector};
use nix::sys::signal::Signal;
use nvdiag::Report;
use nvdiag::bringup::figures::{self, Measured};
use nvdiag::bringup::llm_demo::{LlmDemo, NOT_INSTALLED};
use nvdiag::bringup::outcome::{Status, StepResult};
use nvdiag::bringup::plan::{self, STEPS, Step, WITH_MODEL};
use nvdiag::bringup::process::{self, Ended};
use nvdiag::bringup::report::{Bringup, Interruption, print_step};
use nvdiag::bringup::rig::{Platform, Rig};
use nvdiag::bringup::{bundle, steps};
use nvdiag::doctor::{self, examine};

use crate::cmd::finding::{Finding, show};
use crate::cmd::input::open_regular;
use crate::cmd::interrupts::Interrupts;
use crate::cmd::machine_files::Files;
use crate::cmd::output_file::OutputFile;
use text::Text;

/// Bring up a machine: 21 numbered steps from the driver's nodes to a language model, each with its remedy.
///
/// Each step says what it proves, what was expected and found, and what to try where that differs. A step
/// fails where work is not done; what else differs is a fact, marked with `!`. The
/// command stops where what is left would mean nothing. Each step runs in a process of its own, with a
/// deadline. At the end settings are tried one by one, and those that this board works with written to a
/// profile; and one file is written that can be attached to a report, what it holds is printed first.
///
/// Steps 20 and 21 and figures of a language model are the work of llm-demo: the one in the folder of nvdiag, else
/// in PATH. Where it is not installed they are not run, which is no failure.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag bringup                       all steps, then bringup-<machine>-<date>.tar.gz
  nvdiag bringup --list                what the steps are
  nvdiag bringup --only 14             one step again
  nvdiag bringup --from 17 --soak 3600 the last steps, an hour of the last one
  nvdiag bringup --bisect              which settings work, and the profile for HCQ_PROFILE
  nvdiag bringup --read FILE           show a file that somebody else's machine left

Exit codes: 0 no step failed; 1 a step failed, or no settings work; 2 bad usage, or the file cannot be read or written; \
                        128 and the number of the signal that interrupted it.")]
pub struct Args {
    /// Which driver: nvgpu (a Jetson's), rm (a desktop GPU), sim (the software ga10b), auto (the driver that
    /// is installed).
    #[arg(long, env = "HCQ_DEVICE", default_value_t = Selector::Auto)]
    device: Selector,
    /// Begin with this step.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=STEPS.len() as i64))]
    from: Option<u32>,
    /// Run this step alone, and write no file.
    #[arg(long, value_name = "N", conflicts_with = "from", value_parser = clap::value_parser!(u32).range(1..=STEPS.len() as i64))]
    only: Option<u32>,
    /// Try settings alone, without the steps: which of them this board works with.
    #[arg(long, conflicts_with_all = ["from", "only", "list", "soak", "read"])]
    bisect: bool,
    /// Where the profile goes [default: bringup-profile-<machine>-<date>.txt].
    #[arg(long, value_name = "FILE", conflicts_with_all = ["only", "list", "read"])]
    profile: Option<PathBuf>,
    /// Print the steps, and do nothing.
    #[arg(long)]
    list: bool,
    /// How long the last step loads the GPU [default: 60; 3 on the software ga10b].
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    soak: Option<u64>,
    /// Where the file goes [default: bringup-<machine>-<date>.tar.gz].
    #[arg(short, long, value_name = "FILE", conflicts_with_all = ["no_report", "only"])]
    output: Option<PathBuf>,
    /// Write no file.
    #[arg(long)]
    no_report: bool,
    /// Name the machine in the file, instead of by a number that tells nothing.
    #[arg(long, value_name = "NAME", value_parser = host_name)]
    host: Option<String>,
    /// Show a file that this command wrote.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["list", "from", "only", "output", "no_report", "host", "soak"])]
    read: Option<PathBuf>,
    /// Run one step here, and print its result for the process that asked.
    #[arg(long, hide = true, value_name = "N")]
    step_here: Option<u32>,
    /// Try these settings here, and print what came of it.
    #[arg(long, hide = true, value_name = "PROFILE")]
    cell_here: Option<Profile>,
    /// Measure the figures here.
    #[arg(long, hide = true)]
    figures_here: bool,
}

/// Reads the duration of the last step's load.
fn seconds(text: &str) -> Result<u64, &'static str> {
    let seconds = text.parse().ok().filter(|seconds| (1..=7 * 86_400).contains(seconds));
    seconds.ok_or("whole seconds, 1 to 604800 (a week), are expected")
}

/// A name with a visible character.
fn host_name(name: &str) -> Result<String, &'static str> {
    match name.chars().any(|c| !c.is_whitespace() && !c.is_control()) {
        true => Ok(name.to_owned()),
        false => Err("a name of at least one visible character is needed"),
    }
}

/// The driver that is used, by the machine's nodes where the user did not say.
fn chosen(device: Selector) -> Selector {
    match device {
        Selector::Auto => match examine(&Files::own()).platform {
            doctor::Platform::Jetson | doctor::Platform::Software => Selector::Nvgpu,
            doctor::Platform::Desktop => Selector::Rm,
            doctor::Platform::Neither => Selector::Sim,
        },
        named => named,
    }
}

/// Whether the driver's GPU is the software ga10b.
fn is_software(driver: Selector) -> bool {
    driver == Selector::Sim || driver == Selector::Nvgpu && doctor::is_software(&Files::own())
}

fn platform(driver: Selector) -> Platform {
    if driver == Selector::Rm { Platform::Desktop } else { Platform::Nvgpu }
}

impl Args {
    /// Runs the steps, or the other task that the arguments name.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        if let Some(file) = &self.read {
            return read(file, json, out);
        }
        if self.list {
            return list(json, out);
        }
        let driver = chosen(self.device);
        if let Some(number) = self.step_here {
            let step = plan::find(number).context("there is no such step")?;
            let result = self.with_rig(driver, |rig| Ok(steps::run(step, rig)))?;
            serde_json::to_writer(&mut *out, &result)?;
            return Ok(Finding::Clean);
        }
        if let Some(settings) = self.cell_here {
            let conservative = DeviceOptions::from_env()?.conservative == Some(true);
            let cell = self.with_rig(driver, |rig| Ok(steps::try_settings(rig, settings, conservative)))?;
            serde_json::to_writer(&mut *out, &cell)?;
            return Ok(Finding::Clean);
        }
        if self.figures_here {
            let measured = self.with_rig(driver, figures::measure)?;
            serde_json::to_writer(&mut *out, &measured)?;
            return Ok(Finding::Clean);
        }
        self.all(driver, json, out)
    }

    /// Calls `work` with this machine, or with a software one.
    fn with_rig<T>(
        &self,
        driver: Selector,
        work: impl FnOnce(&Rig<'_>) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let files = Files::own();
        let mut rig = match driver {
            Selector::Sim => {
                let config = ga10b_sim::SimConfig::from_env()?;
                let sim = ga10b_sim::Sim::try_new(config).context("cannot start the software ga10b")?;
                Rig::software(sim, &files)
            }
            real => Rig::own(platform(real), &files, Box::new(collect::kernel_log)),
        };
        rig.llm_demo = LlmDemo::installed();
        if let Some(seconds) = self.soak {
            rig.soak = Duration::from_secs(seconds);
        }
        work(&rig)
    }

    fn all(&self, driver: Selector, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        check_settings(driver)?;
        ensure!(
            !self.bisect || platform(driver) == Platform::Nvgpu,
            "the settings of --bisect are those of nvgpu, a Jetson's driver; --device {driver} has none of them"
        );
        let interrupts = Interrupts::hear()?;
        let mut results = self.begin(driver);
        // Before anything runs: an hour's work is not to be lost to a folder that is not there.
        let mut report = match &self.output {
            Some(path) => Some(OutputFile::named(path, "-o")?),
            None if self.only.is_some() || self.bisect || self.no_report => None,
            None => Some(OutputFile::usual(&collect::stem("bringup", &results), "tar.gz")?),
        };
        let profile = self.profile.as_deref().map(bisect::profile_file).transpose()?;
        if let (Some(report), Some(profile)) = (&report, &profile) {
            ensure!(!report.is(profile)?, "-o and --profile name one file, and each needs its own");
        }
        // Complete from here on, even if nothing can be printed.
        save(&mut results, &mut report, (!self.bisect).then_some(self.from.unwrap_or(1)))?;
        results.interrupted = None;
        let leaves_profile = profile.is_some() || self.bisect && !self.no_report;
        let has_file = report.is_some() || leaves_profile;
        let mut text = Text { out, on: !json, has_file, failed: None };
        text.print(|out| results.print_head(out))?;
        let run = Run { args: self, driver, interrupts: &interrupts, llm_demo: LlmDemo::installed() };
        if !self.bisect {
            run.steps(&mut results, &mut report, &mut text)?;
        }
        if self.tries_settings(driver, &results) {
            run.settings(&mut results, &mut report, &mut text)?;
        }
        if computes(&results) && self.only.is_none() && results.interrupted.is_none() {
            run.figures(&mut results, &mut report)?;
        }
        text.print(|out| results.print_end(out))?;
        if profile.is_some() || !self.no_report {
            bisect::write_profile(&results, profile, &mut text)?;
        }
        if let Some(mut file) = report {
            finish(&mut file, driver, &results, &mut text)?;
        }
        if json {
            show(&results, true, text.out)?;
        }
        if let Some(error) = text.failed.filter(|error| error.kind() != ErrorKind::BrokenPipe) {
            return Err(error.into());
        }
        let found = if results.has_problem() { Finding::Problem } else { Finding::Clean };
        let signal = interrupts.signal().filter(|_| results.interrupted.is_some());
        Ok(signal.map_or(found, |signal| Finding::Program(128 + signal as u8)))
    }

    /// Whether settings are tried: by an option, or where a step has used them.
    fn tries_settings(&self, driver: Selector, results: &Bringup) -> bool {
        let used = results
            .steps
            .iter()
            .any(|step| plan::WITH_SETTINGS.contains(&step.number) && step.status != Status::Skipped);
        let is_whole = platform(driver) == Platform::Nvgpu && self.only.is_none();
        self.bisect || used && is_whole && results.interrupted.is_none()
    }

    /// Returns the report before the first step.
    fn begin(&self, driver: Selector) -> Bringup {
        Bringup {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            date: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
            host: self.host.clone().unwrap_or_else(collect::pseudonym),
            driver: driver.to_string(),
            software: is_software(driver),
            interrupted: None,
            steps: vec![],
            settings: None,
            figures: vec![],
            unmeasured: None,
        }
    }
}

/// Whether the step of the language model found nothing wrong: figures of a GPU that computes wrong mean nothing.
fn computes(results: &Bringup) -> bool {
    let model = results.steps.iter().find(|step| step.number == *WITH_MODEL.start());
    model.is_some_and(|step| step.status == Status::Passed || step.reason.as_deref() == Some(NOT_INSTALLED))
}

/// Refuses settings that no step could run with.
fn check_settings(driver: Selector) -> anyhow::Result<()> {
    DeviceOptions::from_env()?;
    if is_software(driver) {
        ga10b_sim::SimConfig::from_env()?;
    }
    Ok(())
}

/// A run of the steps.
struct Run<'a> {
    args: &'a Args,
    driver: Selector,
    interrupts: &'a Interrupts,
    llm_demo: Option<LlmDemo>,
}

impl Run<'_> {
    /// Runs the selected steps, until a signal comes.
    fn steps(
        &self,
        results: &mut Bringup,
        report: &mut Option<OutputFile>,
        text: &mut Text<'_>,
    ) -> anyhow::Result<()> {
        let first = self.args.from.or(self.args.only).unwrap_or(1);
        let last = self.args.only.unwrap_or(STEPS.len() as u32);
        for step in STEPS.iter().filter(|step| (first..=last).contains(&step.number)) {
            if let Some(skipped) = steps::pointless(step, &results.steps) {
                text.print(|out| print_step(&skipped, out))?;
                results.steps.push(skipped);
                continue;
            }
            save(results, report, Some(step.number))?;
            if let Some(notice) = step.notice.filter(|_| self.left_out(step).is_none()) {
                text.print(|out| writeln!(out, "    step {} {notice}", step.number))?;
            }
            let result = match self.step(step)? {
                Outcome::Done(result) => result,
                Outcome::Interrupted(signal) => {
                    let signal = Some(signal.as_str().to_owned());
                    results.interrupted = Some(Interruption { step: Some(step.number), signal });
                    return Ok(());
                }
            };
            results.interrupted = None;
            text.print(|out| print_step(&result, out))?;
            results.steps.push(result);
        }
        Ok(())
    }

    fn figures(&self, results: &mut Bringup, report: &mut Option<OutputFile>) -> anyhow::Result<()> {
        save(results, report, None)?;
        let ended = self.child(&["--figures-here"], Duration::from_secs(300), None)?;
        results.interrupted = None;
        match ended {
            Ended::Printed(bytes) => {
                let Measured { figures, unmeasured } = serde_json::from_slice(&bytes)?;
                (results.figures, results.unmeasured) = (figures, unmeasured);
            }
            Ended::Interrupted(signal) => {
                let signal = Some(signal.as_str().to_owned());
                results.interrupted = Some(Interruption { step: None, signal });
            }
            other => results.unmeasured = Some(other.reason()),
        }
        Ok(())
    }

    /// Tries settings until it is known which to use, or a signal comes.
    fn settings(
        &self,
        results: &mut Bringup,
        report: &mut Option<OutputFile>,
        text: &mut Text<'_>,
    ) -> anyhow::Result<()> {
        let child = |settings: Profile, conservative: bool| {
            let variable = (DeviceOptions::CONSERVATIVE, if conservative { "1" } else { "0" });
            self.child(&["--cell-here", &settings.to_string()], bisect::DEADLINE, Some(variable))
        };
        let mut keep = |table| {
            results.settings = Some(table);
            save(results, report, None)
        };
        let (table, signal) = bisect::search(&child, &mut keep, text)?;
        results.settings = Some(table);
        results.interrupted =
            signal.map(|signal| Interruption { step: None, signal: Some(signal.as_str().to_owned()) });
        Ok(())
    }

    /// Runs a step in a process of its own: first with its variable, if it has one.
    fn step(&self, step: &Step) -> anyhow::Result<Outcome> {
        if let Some(result) = self.left_out(step) {
            return Ok(Outcome::Done(result));
        }
        let Some((variable, value)) = step.first_with else { return self.once(step, None) };
        let with = match self.once(step, Some((variable, value)))? {
            Outcome::Done(result) => result,
            interrupted => return Ok(interrupted),
        };
        let without = match self.once(step, None)? {
            Outcome::Done(result) => result,
            interrupted => return Ok(interrupted),
        };
        let setting = twice::setting(variable, value, std::env::var_os(Profile::VARIABLE).as_deref());
        Ok(Outcome::Done(twice::both(&setting, with, without)))
    }

    fn left_out(&self, step: &Step) -> Option<StepResult> {
        steps::left_out(step, platform(self.driver), self.llm_demo.as_ref())
    }

    fn once(&self, step: &Step, with: Option<(&str, &str)>) -> anyhow::Result<Outcome> {
        let number = step.number.to_string();
        let mut deadline = step.deadline;
        if let Some(seconds) = self.args.soak.filter(|_| step.number == plan::SOAK) {
            deadline += 2 * Duration::from_secs(seconds);
        }
        let began = Instant::now();
        let ended = self.child(&["--step-here", &number], deadline, with)?;
        let seconds = began.elapsed().as_secs_f64();
        let reason = match ended {
            Ended::Printed(bytes) => match serde_json::from_slice(&bytes) {
                Ok(result) => return Ok(Outcome::Done(result)),
                Err(error) => format!("its process printed something else than a result: {error}"),
            },
            Ended::Interrupted(signal) => return Ok(Outcome::Interrupted(signal)),
            other => other.reason(),
        };
        let lost = StepResult::skipped(step.number, step.title, reason);
        let remedy = Some(step.if_not());
        let log = collect::last_lines(self.driver);
        Ok(Outcome::Done(StepResult { status: Status::Failed, seconds, remedy, log, ..lost }))
    }

    fn child(&self, args: &[&str], deadline: Duration, with: Option<(&str, &str)>) -> anyhow::Result<Ended> {
        let mut command = Command::new(std::env::current_exe().context("cannot find the program itself")?);
        command.args(["bringup", "--device", &self.driver.to_string()]).args(args).envs(with);
        if let Some(seconds) = self.args.soak {
            command.args(["--soak", &seconds.to_string()]);
        }
        process::run(&mut command, deadline, &|| self.interrupts.signal())
    }
}

/// Outcome of a step.
enum Outcome {
    Done(StepResult),
    /// With the whole program, by this signal.
    Interrupted(Signal),
}

/// Saves the progress so far, and that the next step has no end yet.
fn save(results: &mut Bringup, report: &mut Option<OutputFile>, next: Option<u32>) -> anyhow::Result<()> {
    results.interrupted = Some(Interruption { step: next, signal: None });
    match report {
        Some(file) => file.write(&[collect::results(results)?]),
        None => Ok(()),
    }
}

/// Prints the contents of the file, and writes it.
fn finish(
    file: &mut OutputFile,
    driver: Selector,
    results: &Bringup,
    text: &mut Text<'_>,
) -> anyhow::Result<()> {
    let entries = collect::entries(driver, results)?;
    text.print_always(|out| {
        writeln!(out, "the file holds, and nothing else:")?;
        for (name, bytes) in &entries {
            let what = bundle::ENTRIES.iter().find(|known| known.0 == *name).map_or("", |known| known.1);
            writeln!(out, "  {name:<15} {:>8} bytes  {what}", bytes.len())?;
        }
        Ok(())
    })?;
    file.write(&entries)?;
    text.print_always(|out| writeln!(out, "written: {}", file.path().display()))
}

fn list(json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    if json {
        let step = |step: &Step| {
            let Step { number, title, proves, expects, needs, notice, .. } = step;
            serde_json::json!({ "number": number, "title": title, "proves": proves, "expects": expects,
                "remedy": step.if_not(), "needs": needs, "notice": notice })
        };
        let steps: Vec<_> = STEPS.iter().map(step).collect();
        let list = serde_json::json!({ "schema": "nvdiag.bringup-steps/1", "steps": steps });
        writeln!(out, "{list:#}")?;
        return Ok(Finding::Clean);
    }
    for step in &STEPS {
        writeln!(out, "{:>2}  {}: {}", step.number, step.title, step.proves)?;
        writeln!(out, "    expected: {}", step.expects)?;
        writeln!(out, "    if not: {}", step.if_not())?;
        if let Some(needed) = step.notice {
            writeln!(out, "    it {needed}")?;
        }
    }
    Ok(Finding::Clean)
}

fn read(path: &Path, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    let cannot = || format!("cannot read {}", path.display());
    let file = open_regular(path, OpenOptions::new().read(true)).with_context(cannot)?;
    let contents = bundle::read(file).with_context(cannot)?;
    let unknown = contents.entries.iter().filter(|entry| !entry.2).count();
    let found = show(&contents.results, json, out)?;
    if unknown > 0 && !json {
        writeln!(out, "{unknown} entries of the file are none that this command writes; they were not read")?;
    }
    Ok(found)
}
