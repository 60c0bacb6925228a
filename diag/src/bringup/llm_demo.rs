//! `llm-demo` as a program beside this one: the steps with a language model run it, and read its output.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use hcq::Selector;
use nix::unistd::{AccessFlags, access};
use serde::Deserialize;

use crate::bringup::outcome::Figure;
use crate::bringup::process::{self, Ended};
use crate::document::{self, Bounds};

/// Why a step was not run that needs it.
pub const NOT_INSTALLED: &str = "not run: llm-demo is not installed beside nvdiag";
/// Remedy where llm-demo is not installed.
pub const INSTALL: &str =
    "put llm-demo, which the package has, into the folder of nvdiag or into one that PATH names";

/// The name of its file.
const NAME: &str = "llm-demo";
/// The form of its measurements.
const BENCH: &str = "llm-demo.bench/2";
/// Time limit of one run, which needs seconds on a GPU: step 20 has two of them before its own deadline.
const LIMIT: Duration = Duration::from_secs(250);

/// Why a run of it gave no answer, or which.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be started or ended.
    #[error("llm-demo {0}")]
    Start(&'static str, #[source] anyhow::Error),
    /// It failed, was killed or did not end.
    #[error("llm-demo {0}: {1}")]
    Process(&'static str, String),
    /// The device computes something else than the reference.
    #[error("llm-demo {0} found a difference: {1}")]
    Different(&'static str, String),
    /// Its output is not in its format.
    #[error("llm-demo {0} printed something else than a result: {1}")]
    Output(&'static str, String),
}

/// Figures of [`LlmDemo::bench`], all with the embedded model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bench {
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Tokens decoded: with their logits, and chosen by the device in two ways.
    pub decode: u32,
    /// Measured runs of each test.
    pub repeats: u32,
    /// Name of the engine for `--engine`; `None` for the default.
    pub engine: Option<&'static str>,
}

/// The program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LlmDemo {
    /// Its file.
    pub file: PathBuf,
    /// Time limit of one run.
    pub limit: Duration,
}

impl LlmDemo {
    /// The program of a file.
    #[must_use]
    pub fn new(file: PathBuf) -> Self {
        Self { file, limit: LIMIT }
    }

    /// The one in the folder of this program, else in one of `PATH`.
    #[must_use]
    pub fn installed() -> Option<Self> {
        let own = std::env::current_exe().ok();
        let path = std::env::var_os("PATH").unwrap_or_default();
        Self::find(own.as_deref().and_then(Path::parent), &path)
    }

    /// The one in `folder`, else in the first folder of `path` that has one. A relative folder is passed
    /// over: its meaning depends on where the program was started.
    #[must_use]
    pub fn find(folder: Option<&Path>, path: &OsStr) -> Option<Self> {
        let others = std::env::split_paths(path).filter(|folder| folder.is_absolute());
        let files = folder.map(Path::to_owned).into_iter().chain(others).map(|folder| folder.join(NAME));
        let mut programs = files.filter(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok());
        programs.next().map(Self::new)
    }

    /// Compares the logits of `steps` tokens on a device with those of the CPU: the error, as it prints it.
    ///
    /// # Errors
    /// [`Error`].
    pub fn verify(&self, device: Selector, engine: &str, steps: u32) -> Result<String, Error> {
        const COMMAND: &str = "verify";
        let count = steps.to_string();
        let text = self.text(device, COMMAND, &["--engine", engine, "--no-tuning", "-n", &count])?;
        let compared = field(&text, "steps").and_then(|steps| steps.parse().ok());
        let nmse = field(&text, "NMSE").filter(|nmse| nmse.parse::<f64>().is_ok_and(f64::is_finite));
        match (compared == Some(steps), nmse, text.lines().last()) {
            (true, Some(nmse), Some("within bounds")) => Ok(format!("NMSE {nmse}")),
            _ => Err(Error::Output(COMMAND, beginning(&text))),
        }
    }

    /// Compares as many greedy tokens of the step in one launch with those of the batch step.
    ///
    /// # Errors
    /// [`Error`].
    pub fn same_tokens(&self, device: Selector, count: u32) -> Result<(), Error> {
        const COMMAND: &str = "verify --greedy";
        let count = count.to_string();
        let text = self.text(device, COMMAND, &["--engine", "stream", "--no-tuning", "--greedy", &count])?;
        let same = format!("the same {count} tokens");
        match text.lines().last().is_some_and(|line| line.starts_with(&same)) {
            true => Ok(()),
            false => Err(Error::Output(COMMAND, beginning(&text))),
        }
    }

    /// Measures tokens per second.
    ///
    /// # Errors
    /// [`Error`].
    pub fn bench(&self, device: Selector, tests: &Bench) -> Result<Vec<Figure>, Error> {
        const COMMAND: &str = "bench";
        let [prompt, decode, repeats] = [tests.prompt, tests.decode, tests.repeats].map(|n| n.to_string());
        let mut args = vec!["-o", "json", "--no-tuning", "--choice", "logits,greedy,sampled"];
        args.extend(["-p", &prompt, "-n", &decode, "-r", &repeats]);
        args.extend(tests.engine.into_iter().flat_map(|engine| ["--engine", engine]));
        let text = self.text(device, COMMAND, &args)?;
        figures(&text).map_err(|problem| Error::Output(COMMAND, problem))
    }

    /// Runs a command, whose words may be several, with arguments, and returns its output.
    fn text(&self, device: Selector, command: &'static str, args: &[&str]) -> Result<String, Error> {
        let mut program = Command::new(&self.file);
        program.args(command.split(' ').next()).arg("--device").arg(device.to_string()).args(args);
        let ended =
            process::run(&mut program, self.limit, &|| None).map_err(|error| Error::Start(command, error))?;
        match &ended {
            Ended::Printed(bytes) => Ok(String::from_utf8_lossy(bytes).into_owned()),
            Ended::Failed { printed, .. } => {
                let text = String::from_utf8_lossy(printed);
                let verdict = text.lines().last().unwrap_or_default();
                match verdict == "PAST THE BOUNDS" || verdict.starts_with("DIFFERENT ") {
                    true => Err(Error::Different(command, found(&text))),
                    false => Err(Error::Process(command, ended.reason())),
                }
            }
            Ended::Late(_) | Ended::Interrupted(_) => Err(Error::Process(command, ended.reason())),
        }
    }
}

/// The first word after a name at the beginning of a line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut words = text.lines().map(str::split_whitespace);
    words.find_map(|mut line| line.next().filter(|first| *first == name).and_then(|_| line.next()))
}

/// The lines that say by how much a comparison differs: its error or its first difference, and its verdict.
fn found(text: &str) -> String {
    let says = |line: &&str| line.starts_with("NMSE") || line.starts_with("difference");
    let lines = text.lines().filter(says).chain(text.lines().last());
    let words: Vec<String> =
        lines.map(|line| beginning(&line.split_whitespace().collect::<Vec<_>>().join(" "))).collect();
    words.join("; ")
}

/// The beginning of a text, for an error.
fn beginning(text: &str) -> String {
    const MOST: usize = 200;
    match text.trim() {
        "" => "nothing".to_owned(),
        text => text.chars().take(MOST).collect(),
    }
}

/// Most of the measurements.
const BENCH_BOUNDS: Bounds = Bounds { bytes: 8 << 20, values: 1 << 18 };

/// A test of the measurements.
#[derive(Deserialize)]
struct Row {
    /// Its name.
    test: String,
    /// Tokens per second of each run.
    samples_ts: Vec<f64>,
}

/// The figures of measurements; an error names their defect.
fn figures(text: &str) -> Result<Vec<Figure>, String> {
    let document: Vec<serde_json::Value> = document::read(text.as_bytes(), BENCH_BOUNDS)
        .map_err(|error| format!("{error}: {}", beginning(text)))?;
    if document.is_empty() {
        return Err("no test".to_owned());
    }
    let figure = |row: serde_json::Value| {
        match row["schema"].as_str() {
            Some(BENCH) => {}
            Some(other) => return Err(format!("its schema is {}, and {BENCH} is read", beginning(other))),
            None => return Err("a test without a schema".to_owned()),
        }
        let Row { test, samples_ts } = serde_json::from_value(row).map_err(|error| error.to_string())?;
        let name = beginning(&test);
        match samples_ts.iter().all(|rate| rate.is_finite() && *rate > 0.0) {
            true => Figure::of(format!("embedded model, {name}"), "tokens/s", samples_ts)
                .ok_or_else(|| format!("no run of {name}")),
            false => Err(format!("a rate of {name} that is none")),
        }
    };
    document.into_iter().map(figure).collect()
}
