//! Settings of the machine to model.

use std::borrow::Cow;
use std::io::{Write, stderr};
use std::path::PathBuf;
use std::sync::Once;

use crate::clock::Time;
use crate::defects::Defects;
use crate::findings::Checks;
use crate::gpu::chip::{Chip, MOST_SMS};
use crate::gpu::session::Session;
use crate::gpu::sm;
use crate::gpu::sm::launch::Schedule;
use crate::violations::Traps;
use crate::what_if::{UnknownWhatIf, WhatIfs};
use sass::Arch;

/// Prefix of the environment variables.
const PREFIX: &str = "NVGPU_SIM_";

/// Settings of a [`Sim`](crate::Sim). The default is an Orin AGX 64 GB with all its SMs.
#[derive(Clone, Debug)]
pub struct SimConfig {
    /// DRAM in bytes. Memory is only taken from the host when it is touched.
    pub memory: u64,
    /// Streaming multiprocessors: 2 per TPC, at most 16. A real Orin AGX shows 8 in its lower power modes.
    pub sm_count: u32,
    /// Version of the SMs: instruction set, warps, shared memory. A ga10b has sm_87. With sm_80, sm_86 or
    /// sm_89 the driver and the front end stay those of a ga10b, and the SMs execute code that was compiled
    /// for these versions; with sm_90 launch descriptors are Hopper's too.
    pub arch: Arch,
    /// Execution of kernels: worker threads, schedule, arithmetic.
    pub executor: sm::Config,
    /// Mistakes of kernels to search for, besides those of [`executor`](Self::executor): none by default.
    /// Findings are printed on stderr as they happen, and kept for [`Sim::findings`](crate::Sim::findings).
    pub check: Checks,
    /// File in which findings, faults and calls that a real machine does not survive are left, in place of
    /// stderr: a [`Record`](crate::Record) a line, appended. Several machines may name one; none by default.
    pub findings: Option<PathBuf>,
    /// Parts of the GPU that do not work, for tests of diagnoses; none by default.
    pub defects: Defects,
    /// Facts of a real machine that are other than the model has them; none by default.
    pub what_if: WhatIfs,
    /// The machine's time: the host's, or virtual.
    pub time: Time,
    /// Print the driver's kernel-log lines to stderr as they appear.
    pub verbose: bool,
    /// Time that the first `ALLOC_OBJ_CTX` takes, in milliseconds. A real machine needs about 1000, which few
    /// programs can afford to wait for.
    pub first_context_ms: u32,
    /// Other users of the GPU, which decide when a program's groups are switched out.
    pub session: Session,
    /// Treatment of calls that a real machine does not survive.
    pub traps: Traps,
    /// Whether kernels can be preempted between two instructions (CILP), as the driver of a ga10b reports.
    pub cilp: bool,
    /// Lets other processes of the same user inspect the machine, as a debugger inspects a real one:
    /// [`Remote`](crate::Remote). One machine of a process can be visible at a time.
    pub visible: bool,
    /// Reports each GPFIFO entry that the host unit fetches, with its segment and the launches that it names, to
    /// the tracer of the process, as `nvdiag trace --submissions` expects it.
    pub report_submissions: bool,
}

/// An environment variable has a value that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value}: expected {expected}")]
pub struct UnknownSetting {
    /// The variable.
    pub variable: &'static str,
    /// Its value.
    pub value: String,
    /// The values it takes.
    pub expected: Cow<'static, str>,
}

/// Returns the message for an unknown variable that begins like those of [`SimConfig`].
fn unknown(name: &str) -> Option<String> {
    /// Least similarity of a name that is suggested, from 0 to 1: another word is no misspelling.
    const LIKE: f64 = 0.7;
    let rest = name.strip_prefix(PREFIX)?;
    if SimConfig::VARIABLES.contains(&name) {
        return None;
    }
    let likeness = |known: &&str| strsim::jaro_winkler(&rest.to_ascii_uppercase(), &known[PREFIX.len()..]);
    let nearest = SimConfig::VARIABLES.iter().max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let advice = match nearest.filter(|known| likeness(known) >= LIKE) {
        Some(known) => format!("is {known} meant?"),
        None => format!("there are {}", SimConfig::VARIABLES.join(", ")),
    };
    Some(format!("ga10b: {name} is no setting, and is ignored: {advice}"))
}

impl Default for SimConfig {
    fn default() -> Self {
        Self {
            memory: 64 << 30,
            sm_count: 16,
            arch: Arch::Sm87,
            executor: sm::Config::default(),
            check: Checks::empty(),
            findings: None,
            defects: Defects::empty(),
            what_if: WhatIfs::default(),
            time: Time::Host,
            verbose: false,
            first_context_ms: 0,
            session: Session::Headless,
            traps: Traps::Error,
            cilp: true,
            visible: false,
            report_submissions: false,
        }
    }
}

impl SimConfig {
    /// Version of the SMs: `sm_80`, `sm_86`, `sm_87`, `sm_89` or `sm_90`.
    pub const ARCH: &str = "NVGPU_SIM_ARCH";
    /// Bytes of DRAM.
    pub const MEMORY: &str = "NVGPU_SIM_MEMORY";
    /// Number of SMs.
    pub const SMS: &str = "NVGPU_SIM_SMS";
    /// Mistakes of kernels to search for: a list of `memory`, `init`, `race`, `sync` and `order`, or `all`.
    pub const CHECK: &str = "NVGPU_SIM_CHECK";
    /// File in which findings are left, a line each, in place of stderr.
    pub const FINDINGS: &str = "NVGPU_SIM_FINDINGS";
    /// A number: work that nothing orders runs in the random order that follows from it.
    pub const SEED: &str = "NVGPU_SIM_SEED";
    /// Other users of the GPU: `headless`, `desktop`, or `desktop:N` for one whose frame comes due once in
    /// each grid, after N of its blocks have started.
    pub const SESSION: &str = "NVGPU_SIM_SESSION";
    /// Treatment of calls that a real machine does not survive: `error`, `warn` or `off`.
    pub const TRAPS: &str = "NVGPU_SIM_TRAPS";
    /// Facts of a real machine that are other than the model has them, by name: `late-gp-get,dead-veid-0`;
    /// [`WhatIfs`] has them all.
    pub const WHAT_IF: &str = "NVGPU_SIM_WHATIF";
    /// `1`: kernel-log lines on stderr; `0`: none.
    pub const VERBOSE: &str = "NVGPU_SIM_VERBOSE";
    /// `1`: other processes of the user may inspect the machine; `0`: none may.
    pub const VISIBLE: &str = "NVGPU_SIM_VISIBLE";
    /// `1`: what channels fetch is reported to a tracer; `0`: it is not.
    pub const SUBMISSIONS: &str = "NVGPU_SIM_SUBMISSIONS";

    /// `1`: `libnvgpu_sim.so` reports each call to `nvdiag trace`; `0`: none. The library alone does so.
    pub const TRACE: &str = "NVGPU_SIM_TRACE";

    /// All variables.
    const VARIABLES: [&str; 13] = [
        Self::ARCH,
        Self::CHECK,
        Self::FINDINGS,
        Self::MEMORY,
        Self::SEED,
        Self::SESSION,
        Self::SMS,
        Self::SUBMISSIONS,
        Self::TRACE,
        Self::TRAPS,
        Self::VERBOSE,
        Self::VISIBLE,
        Self::WHAT_IF,
    ];

    /// The default, changed by those environment variables that are set. The first call of a process names
    /// variables on stderr that begin as these do and are none of them.
    ///
    /// # Errors
    /// [`UnknownSetting`] for a value that cannot be read.
    pub fn from_env() -> Result<Self, UnknownSetting> {
        static WARNED: Once = Once::new();
        WARNED.call_once(|| {
            let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
            // A closed stderr is no error.
            let _ = names.filter_map(|name| unknown(&name)).try_for_each(|line| writeln!(stderr(), "{line}"));
        });
        Self::from_settings(|variable| {
            std::env::var_os(variable).map(|value| value.to_string_lossy().into_owned())
        })
    }

    fn from_settings(value: impl Fn(&str) -> Option<String>) -> Result<Self, UnknownSetting> {
        let read = |variable, expected: &'static str, read: &mut dyn FnMut(&str) -> Option<()>| {
            let Some(value) = value(variable).filter(|value| !value.is_empty()) else { return Ok(()) };
            read(&value).ok_or(UnknownSetting { variable, value, expected: expected.into() })
        };
        let mut config = Self::default();
        read(Self::ARCH, "sm_80, sm_86, sm_87, sm_89 or sm_90", &mut |value| {
            config.arch = value
                .strip_prefix("sm_")?
                .parse()
                .ok()
                .and_then(Arch::from_sm)
                .filter(|arch| arch.is_run())?;
            Some(())
        })?;
        read(Self::MEMORY, "a number of bytes from 1048576 on", &mut |value| {
            config.memory = value.parse().ok().filter(|bytes| *bytes >= 1 << 20)?;
            Some(())
        })?;
        read(Self::SMS, "an even number of SMs, 2 to 16", &mut |value| {
            let whole_tpcs = |sms: &u32| (1..=MOST_SMS).contains(sms) && sms.is_multiple_of(2);
            config.sm_count = value.parse().ok().filter(whole_tpcs)?;
            Some(())
        })?;
        read(Self::CHECK, Checks::EXPECTED, &mut |value| {
            config.check = value.parse().ok()?;
            Some(())
        })?;
        config.findings = value(Self::FINDINGS).filter(|path| !path.is_empty()).map(PathBuf::from);
        read(Self::SEED, "a number", &mut |value| {
            config.executor.schedule = Schedule::Shuffled(value.parse().ok()?);
            Some(())
        })?;
        read(Self::SESSION, Session::EXPECTED, &mut |value| {
            config.session = value.parse().ok()?;
            Some(())
        })?;
        read(Self::TRAPS, "error, warn or off", &mut |value| {
            config.traps = value.parse().ok()?;
            Some(())
        })?;
        if let Some(value) = value(Self::WHAT_IF) {
            let variable = Self::WHAT_IF;
            config.what_if = match value.parse() {
                Ok(what_if) => what_if,
                Err(UnknownWhatIf { expected, .. }) => {
                    return Err(UnknownSetting { variable, value, expected });
                }
            };
        }
        let mut is_traced = false;
        for (variable, setting) in [
            (Self::VERBOSE, &mut config.verbose),
            (Self::VISIBLE, &mut config.visible),
            (Self::SUBMISSIONS, &mut config.report_submissions),
            (Self::TRACE, &mut is_traced),
        ] {
            read(variable, "0 or 1", &mut |value| {
                *setting = match value {
                    "0" => false,
                    "1" => true,
                    _ => return None,
                };
                Some(())
            })?;
        }
        Ok(config)
    }

    /// Everything that is checked.
    pub(crate) fn checks(&self) -> Checks {
        self.check | self.executor.checks
    }

    /// The chip of this machine.
    pub(crate) fn chip(&self) -> Chip {
        Chip::new(self.arch, self.sm_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variable: &str, value: &str) -> Result<SimConfig, UnknownSetting> {
        SimConfig::from_settings(|asked| (asked == variable).then(|| value.to_owned()))
    }

    #[test]
    fn the_environment_changes_what_it_names() {
        assert_eq!(of(SimConfig::ARCH, "sm_86").unwrap().arch, Arch::Sm86);
        // Decoded and not run.
        assert!(of(SimConfig::ARCH, "sm_88").is_err());
        assert_eq!(of(SimConfig::MEMORY, "1048576").unwrap().memory, 1 << 20);
        assert_eq!(of(SimConfig::CHECK, "race,sync").unwrap().check, Checks::RACE | Checks::SYNC);
        assert_eq!(of(SimConfig::SMS, "8").unwrap().sm_count, 8);
        let findings = |value| of(SimConfig::FINDINGS, value).unwrap().findings;
        assert_eq!(["/a b", ""].map(findings), [Some(PathBuf::from("/a b")), None]);
        assert_eq!(of(SimConfig::SEED, "7").unwrap().executor.schedule, Schedule::Shuffled(7));
        let traps = |value| of(SimConfig::TRAPS, value).unwrap().traps;
        assert_eq!(["error", "warn", "off"].map(traps), [Traps::Error, Traps::Warn, Traps::Off]);
        let session = |value| of(SimConfig::SESSION, value).unwrap().session;
        assert_eq!(
            ["headless", "desktop", "desktop:3"].map(session),
            [Session::Headless, Session::Desktop, Session::DesktopAfterBlocks(3)]
        );
        assert!(
            of(SimConfig::VERBOSE, "1").unwrap().verbose && !of(SimConfig::VERBOSE, "0").unwrap().verbose
        );
        assert!(of(SimConfig::VISIBLE, "1").unwrap().visible && !of("", "").unwrap().visible);
        let reports = |value| of(SimConfig::SUBMISSIONS, value).unwrap().report_submissions;
        assert!(reports("1") && !reports("0") && !reports(""));
    }

    #[test]
    fn a_name_that_means_nothing_is_answered_with_the_nearest() {
        for (name, meant) in [
            ("NVGPU_SIM_SM", "NVGPU_SIM_SMS"),
            ("NVGPU_SIM_MEM", "NVGPU_SIM_MEMORY"),
            ("NVGPU_SIM_TRAP", "NVGPU_SIM_TRAPS"),
            ("NVGPU_SIM_CHECKS", "NVGPU_SIM_CHECK"),
            ("NVGPU_SIM_verbose", "NVGPU_SIM_VERBOSE"),
        ] {
            let said = unknown(name).unwrap();
            assert!(said.contains(name) && said.ends_with(&format!("is {meant} meant?")), "{said}");
        }
        let said = unknown("NVGPU_SIM_FOO").unwrap();
        assert!(SimConfig::VARIABLES.iter().all(|known| said.contains(known)), "{said}");
        let others = ["NVGPU_SIMULATION", "PATH", ""];
        assert!(SimConfig::VARIABLES.into_iter().chain(others).all(|name| unknown(name).is_none()));
    }

    #[test]
    fn a_value_that_means_nothing_is_an_error() {
        for (variable, value) in [
            (SimConfig::ARCH, "86"),
            (SimConfig::ARCH, "sm_88"),
            (SimConfig::MEMORY, "4 GiB"),
            (SimConfig::MEMORY, "4096"),
            (SimConfig::CHECK, "races"),
            (SimConfig::SEED, "random"),
            (SimConfig::SESSION, "desktop:"),
            (SimConfig::TRAPS, "yes"),
            (SimConfig::SUBMISSIONS, "2"),
            (SimConfig::TRACE, "on"),
            (SimConfig::VERBOSE, "yes"),
            (SimConfig::VISIBLE, "yes"),
            (SimConfig::WHAT_IF, "late"),
            (SimConfig::SMS, "0"),
            (SimConfig::SMS, "17"),
            (SimConfig::SMS, "3"),
        ] {
            let error = of(variable, value).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{variable}={value}: expected ")), "{error}");
        }
    }
}
