//! The command line: subcommands, and flags for the same tasks. A subcommand sets the fields of its flags, so
//! that both forms do the same.

pub mod commands;
pub mod constraints;
pub mod sampling;
pub mod speculation;
mod values;

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{CommandFactory, Parser};
use clap_complete::Shell;
use ga10b_llm::search::Part;
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, Mode};
use ga10b_llm_tools::chips::Chip;
use ga10b_llm_tools::roofline::Constant;
use ga10b_sim::Checks;
use hcq::Selector;

use crate::cli::commands::{
    Bench as BenchLists, Chat, Command, Info, Predict, Profile, Run, Serve, Synthesize, Text, Tokenize, Tune,
    Verify,
};
use crate::cli::constraints::Constraints;
use crate::cli::sampling::Sampling;
use crate::cli::speculation::Speculation;
use crate::cli::values::{Parts, cache_type, count, engine, parts, sequences, whole};

/// Decodes a language model on a GPU without the CUDA runtime.
///
/// Without a command it continues a text, as run does; without -m a story with the embedded model. The tasks of
/// the other commands have flags too, which are listed below. Exit codes: 0 done, 1 failed or past the bounds
/// of --verify, 2 bad usage, 3 mistakes found by --check, 130 ended by Ctrl-C.
#[derive(Debug, Parser)]
#[command(name = "llm-demo", version, max_term_width = 100)]
pub struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,

    /// Model in a GGUF file; by default the embedded model
    #[arg(global = true, short, long, value_name = "FILE")]
    pub model: Option<PathBuf>,

    /// Which device to run on: auto, nvgpu (Jetson), rm (desktop GPU) or sim (software ga10b)
    #[arg(global = true, long, env = "HCQ_DEVICE", default_value = "auto", value_name = "DEVICE")]
    #[arg(value_parser = Selector::from_str)]
    pub device: Selector,

    /// How the kernels of a token are launched: persistent (one launch) or operations (one per operation,
    /// activations in single precision) [default: persistent; operations on the software device, where
    /// launches cost nothing]
    #[arg(global = true, long, value_name = "ENGINE", value_parser = engine)]
    pub engine: Option<Mode>,

    /// Type of the key/value cache: f16 or q8_0 (8 bits and a scale per 32 values; heads of a multiple of 32)
    #[arg(global = true, long, value_name = "TYPE", default_value = "f16", value_parser = cache_type)]
    pub kv: CacheType,

    #[command(flatten)]
    pub text: Text,

    /// Most tokens to generate, verify, profile, predict or answer with [default: 256, 32, 16, 4 or 512]
    #[arg(short = 'n', long = "count", value_name = "N", value_parser = count, allow_negative_numbers = true)]
    pub count: Option<u32>,

    #[command(flatten)]
    pub sampling: Sampling,

    #[command(flatten)]
    pub constraints: Constraints,

    #[command(flatten)]
    pub speculation: Speculation,

    /// Measure tokens per second, as llama-bench does; with --lookup or --draft what the draft gains for a text
    /// (-p, -f)
    #[arg(long, group = "mode", help_heading = "Other tasks")]
    pub bench: bool,

    /// Tokens of the prompt in --bench [default: 512, 16 on the software device; at most the context]; with
    /// --profile a prompt of N tokens is timed instead of steps
    #[arg(long, value_name = "N", value_parser = whole, allow_negative_numbers = true)]
    #[arg(help_heading = "Other tasks")]
    pub pp: Option<u32>,

    /// Tokens decoded in --bench [default: 128, 16 on the software device; at most the context]
    #[arg(long, value_name = "N", requires = "bench", help_heading = "Other tasks")]
    #[arg(value_parser = whole, allow_negative_numbers = true)]
    pub tg: Option<u32>,

    /// Tokens in the context before those decoded in --bench, as if a prompt had put them there; several,
    /// separated by commas, are measured one after the other
    #[arg(short, long, value_name = "N,..", value_delimiter = ',', requires = "bench")]
    #[arg(default_value = "0", help_heading = "Other tasks")]
    #[arg(value_parser = whole, allow_negative_numbers = true)]
    pub depth: Vec<u32>,

    /// With --bench: measure several sequences that are processed together, as llama-batched-bench does; numbers of
    /// sequences up to 32, separated by commas, each with prompts of --pp and then --tg tokens [default of both:
    /// 128]. With --predict: predict a step of so many sequences, at --context [default: 192]
    #[arg(short, long, value_name = "N,..", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["depth", "against"])]
    #[arg(value_parser = sequences, allow_negative_numbers = true, help_heading = "Other tasks")]
    pub batch: Vec<u32>,

    /// With --batch: show the time of a step of each, kernel by kernel
    #[arg(long, requires = "batch", help_heading = "Other tasks")]
    pub profile_batch: bool,

    /// Measured runs of --bench, after warm-up [default: 5, 2 on the software device]
    #[arg(short, long, value_name = "N", requires = "bench", help_heading = "Other tasks")]
    #[arg(value_parser = count, allow_negative_numbers = true)]
    pub repeats: Option<u32>,

    /// Print the result of --bench, --profile, --predict or --tune as JSON
    #[arg(long, help_heading = "Other tasks")]
    pub json: bool,

    /// Compare logits with the CPU reference
    #[arg(long, group = "mode", help_heading = "Other tasks")]
    pub verify: bool,

    /// With --verify: compare N greedy tokens with those of one launch per operation instead of logits
    #[arg(long, value_name = "N", requires = "verify", help_heading = "Other tasks")]
    #[arg(value_parser = count, allow_negative_numbers = true)]
    pub greedy: Option<u32>,

    /// While generating: go on with the text of a file, if it exists, and save it there at the end, as run
    /// --session does
    #[arg(long, value_name = "FILE", conflicts_with = "mode", help_heading = "Other tasks")]
    pub session: Option<PathBuf>,

    /// While generating, write a trace of GPU and host to a file for ui.perfetto.dev
    #[arg(long, value_name = "FILE.json", conflicts_with = "mode", help_heading = "Other tasks")]
    pub trace: Option<PathBuf>,

    /// Run on the software ga10b and search for mistakes of kernels while generating or with --verify
    ///
    /// CHECKS are the searches, separated by commas: memory, init, race, sync, order; by default all of them. What is found
    /// is printed on standard error, and the exit code is 3.
    #[arg(long, value_name = "CHECKS", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    #[arg(conflicts_with_all = ["bench", "greedy", "trace", "dump_logits", "profile", "predict", "tune", "synthesize"])]
    #[arg(value_parser = Checks::from_str, help_heading = "Other tasks")]
    pub check: Option<Checks>,

    /// Write the logits after each of --tokens to a file, - for standard output: little-endian f32, one row per
    /// token
    #[arg(long, group = "mode", value_name = "OUT", requires = "tokens", help_heading = "Other tasks")]
    pub dump_logits: Option<PathBuf>,

    /// Token numbers for --dump-logits, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', requires = "dump_logits")]
    #[arg(help_heading = "Other tasks")]
    pub tokens: Vec<u32>,

    /// Show the time of a token, kernel by kernel
    #[arg(long, group = "mode", help_heading = "Other tasks")]
    pub profile: bool,

    /// Count the cost of a token on the software ga10b, and predict its time on an Orin or another chip
    #[arg(long, group = "mode", help_heading = "Other tasks")]
    pub predict: bool,

    /// Chip that --predict is for: orin-agx-64, orin-agx-32, orin-nx-16, orin-nx-8, orin-nano-8, orin-nano-4
    /// or h200
    #[arg(long, value_name = "CHIP", requires = "predict", default_value = Chip::usual().key)]
    #[arg(value_parser = Chip::from_str, help_heading = "Other tasks")]
    pub chip: Chip,

    /// With --predict: compare predictions with the measurements of a file, without a model
    #[arg(long, value_name = "FILE", requires = "predict", help_heading = "Other tasks")]
    #[arg(conflicts_with_all = ["model", "context", "count", "chip"])]
    pub against: Option<PathBuf>,

    /// With --against: find the constants that fit the measurements best, and compare with those
    #[arg(long, requires = "against", help_heading = "Other tasks")]
    pub fit: bool,

    /// Positions at which --predict counts a token, separated by commas, as if the cache were full up to
    /// there
    #[arg(long, value_name = "N,..", value_delimiter = ',', requires = "predict")]
    #[arg(conflicts_with = "count", help_heading = "Other tasks")]
    #[arg(value_parser = whole, allow_negative_numbers = true)]
    pub context: Vec<u32>,

    /// Overrides a constant of --predict: sms, mhz, gbps, share, ipc, attention-ipc, exchange-cycles,
    /// launch-us or link-us
    #[arg(long, value_name = "KEY=VALUE", requires = "predict", help_heading = "Other tasks")]
    pub orin: Vec<Constant>,

    /// Search the shapes of kernels that are fastest on this device for this model, and store them for later
    /// runs
    ///
    /// PARTS is what to search, separated by commas: matvec (matrix times vector, for --engine operations and
    /// the last layer of prompts), prompt (matrix times the tokens of a prompt); by default all. The step
    /// kernel has one shape. The search needs a ptxas to compile candidates; later runs do not. Results are
    /// stored per GPU, model shape and types in the file that LLM_DEMO_TUNING names, else in
    /// llm-demo/tuning.json in the user's cache directory; --bench reports whether they are in use. On the
    /// software device times are predicted for an AGX Orin.
    #[arg(long, group = "mode", value_name = "PARTS", num_args = 0..=1, require_equals = true)]
    #[arg(default_missing_value = "all", value_parser = parts, help_heading = "Other tasks")]
    pub tune: Option<Parts>,

    /// Time after which --tune starts no further candidate [default: 120]
    #[arg(long, value_name = "SECONDS", requires = "tune", help_heading = "Other tasks")]
    pub tune_budget: Option<u32>,

    /// Use the default shapes, not the results of --tune
    #[arg(global = true, long, help_heading = "Other tasks")]
    pub no_tuning: bool,

    /// Write a model of a real shape with random weights, e.g. llama-3.2-1b:q6_k
    #[arg(long, group = "mode", num_args = 2, value_names = ["SHAPE:QUANT", "FILE"])]
    #[arg(help_heading = "Other tasks")]
    pub synthesize: Option<Vec<String>>,

    /// Write the manual pages into a folder
    #[arg(long, group = "mode", value_name = "FOLDER", help_heading = "Other tasks")]
    pub man: Option<PathBuf>,

    /// Print a completion script
    #[arg(long, group = "mode", value_name = "SHELL", help_heading = "Other tasks")]
    pub completions: Option<Shell>,
}

/// What the command line asks for.
pub enum Task<'a> {
    Generate,
    Chat(&'a Chat),
    Serve(&'a Serve),
    Tokenize(&'a Tokenize),
    Info(&'a Info),
    Bench,
    BenchLists(&'a BenchLists),
    Batch,
    Speculate,
    Verify,
    VerifyGreedy(usize),
    DumpLogits(&'a Path),
    Profile,
    Predict,
    PredictColumns,
    Tune(&'a [Part]),
    Synthesize(Synthesis, PathBuf),
    Man(&'a Path),
    Completions(Shell),
}

impl Cli {
    /// Reads the command line. Ends the program for a usage error, `--help` and `--version`.
    pub fn read() -> Self {
        let error = match Self::try_parse() {
            Ok(mut cli) => {
                cli.set_flags();
                return cli;
            }
            Err(error) => error,
        };
        // The parser names the option also where the value came from the variable.
        let named = std::env::args().any(|argument| argument.starts_with("--device"));
        match Selector::from_env() {
            Err(bad) if error.kind() == ErrorKind::ValueValidation && !named => {
                usage(ErrorKind::ValueValidation, &format!("the environment variable HCQ_DEVICE: {bad}"))
            }
            _ => error.exit(),
        }
    }

    /// The task among the flags. Ends the program with a usage error that the parser cannot find.
    pub fn task(&self) -> Task<'_> {
        self.check_speculation();
        match &self.command {
            Some(Command::Chat(chat)) => return Task::Chat(chat),
            Some(Command::Serve(serve)) => return Task::Serve(serve),
            Some(Command::Tokenize(tokenize)) => return Task::Tokenize(tokenize),
            Some(Command::Info(info)) => return Task::Info(info),
            Some(Command::Bench(bench)) => return Task::BenchLists(bench),
            _ => {}
        }
        if self.json && !(self.bench || self.profile || self.predict || self.tune.is_some()) {
            let message = "--json goes with --bench, --profile, --predict or --tune";
            usage(ErrorKind::MissingRequiredArgument, message);
        }
        if !(self.batch.is_empty() || self.bench || self.predict) {
            usage(ErrorKind::MissingRequiredArgument, "--batch goes with --bench or --predict");
        }
        if self.pp.is_some() && !(self.bench || self.profile) {
            usage(ErrorKind::MissingRequiredArgument, "--pp goes with --bench or --profile");
        }
        if self.pp == Some(0) && (self.profile || !self.batch.is_empty()) {
            let message = "--pp is 0: --profile and --batch process a prompt of at least 1 token";
            usage(ErrorKind::ValueValidation, message);
        }
        let measures = self.bench || self.verify || self.profile || self.predict || self.tune.is_some();
        let writes = self.synthesize.is_some() || self.dump_logits.is_some();
        if (measures || writes) && self.constraints.are_given() {
            usage(ErrorKind::ArgumentConflict, "--json-schema and --grammar are for texts: run and chat");
        }
        if let Some([spec, path]) = self.synthesize.as_deref() {
            let synthesis = Synthesis::from_str(spec);
            let synthesis = synthesis.unwrap_or_else(|e| usage(ErrorKind::ValueValidation, &e.to_string()));
            return Task::Synthesize(synthesis, path.into());
        }
        if let Some(parts) = &self.tune {
            return Task::Tune(&parts.0);
        }
        if let Some(path) = &self.dump_logits {
            return Task::DumpLogits(path);
        }
        if let Some(folder) = &self.man {
            return Task::Man(folder);
        }
        if let Some(shell) = self.completions {
            return Task::Completions(shell);
        }
        match self {
            Cli { bench: true, batch, .. } if !batch.is_empty() => Task::Batch,
            Cli { bench: true, .. } if self.speculation.is_asked() => Task::Speculate,
            Cli { bench: true, .. } => Task::Bench,
            Cli { verify: true, greedy: Some(count), .. } => Task::VerifyGreedy(*count as usize),
            Cli { verify: true, .. } => Task::Verify,
            Cli { profile: true, .. } => Task::Profile,
            Cli { predict: true, batch, .. } if !batch.is_empty() => Task::PredictColumns,
            Cli { predict: true, .. } => Task::Predict,
            _ => Task::Generate,
        }
    }

    /// Ends the program with a usage error if there is a draft and nothing that it could speed up.
    fn check_speculation(&self) {
        let Speculation { draft_max, draft_always, .. } = self.speculation;
        if !self.speculation.is_asked() {
            if draft_max.is_some() || draft_always {
                let message = "--draft-max and --draft-always go with --lookup or --draft";
                usage(ErrorKind::MissingRequiredArgument, message);
            }
            return;
        }
        let others = self.verify || self.profile || self.predict || self.tune.is_some();
        let files = self.synthesize.is_some() || self.dump_logits.is_some() || self.man.is_some();
        let commands =
            matches!(self.command, Some(Command::Bench(_) | Command::Info(_) | Command::Tokenize(_)));
        if others || files || commands || self.completions.is_some() || !self.batch.is_empty() {
            let message =
                "--lookup and --draft go with run, chat, serve and the flag --bench, without --batch";
            usage(ErrorKind::ArgumentConflict, message);
        }
        if self.engine.is_some() && !self.bench {
            let message = "--engine is for a token per step, --lookup and --draft are for several";
            usage(ErrorKind::ArgumentConflict, message);
        }
        let of_chat = matches!(&self.command, Some(Command::Chat(chat)) if chat.session.is_some());
        if of_chat || self.session.is_some() {
            let message = "--session saves the cache of a token per step, --lookup and --draft have another";
            usage(ErrorKind::ArgumentConflict, message);
        }
        if self.trace.is_some() || self.depth.iter().any(|depth| *depth > 0) || self.pp.is_some() {
            let message = "with --lookup and --draft there is no --trace, --depth or --pp";
            usage(ErrorKind::ArgumentConflict, message);
        }
    }

    /// Sets the flags of the subcommand's task from its options.
    fn set_flags(&mut self) {
        if let Some(command) = self.command.take() {
            self.only_common_options();
            let without = matches!(
                command,
                Command::Bench(_)
                    | Command::Info(_)
                    | Command::Tokenize(_)
                    | Command::Tune(_)
                    | Command::Synthesize(_)
            );
            if without && self.count.is_some() {
                usage(ErrorKind::ArgumentConflict, "this command has no number of tokens (-n) before it");
            }
            self.take(&command);
            self.command = Some(command);
        }
    }

    fn take(&mut self, command: &Command) {
        match command {
            Command::Run(Run { text, count, sampling, constraints, speculation, session, trace, check }) => {
                self.constraints.clone_from(constraints);
                self.text = text.clone();
                self.session.clone_from(session);
                self.count = count.or(self.count);
                self.sampling.replace(sampling);
                self.speculation.replace(speculation);
                (self.trace, self.check) = (trace.clone(), *check);
            }
            Command::Chat(Chat { count, sampling, constraints, speculation, .. }) => {
                self.constraints.clone_from(constraints);
                self.count = count.or(self.count);
                self.sampling.replace(sampling);
                self.speculation.replace(speculation);
            }
            Command::Serve(Serve { count, sampling, speculation, .. }) => {
                self.count = count.or(self.count);
                self.sampling.replace(sampling);
                self.speculation.replace(speculation);
            }
            Command::Verify(Verify { text, count, greedy, check }) => {
                self.text = text.clone();
                self.count = count.or(self.count);
                (self.verify, self.greedy, self.check) = (true, *greedy, *check);
            }
            Command::Info(_) | Command::Bench(_) => {}
            Command::Tokenize(Tokenize { text, .. }) => self.text = text.clone(),
            Command::Tune(Tune { parts, budget, json }) => {
                self.tune = Some(parts.clone().unwrap_or_else(|| Parts(Part::ALL.to_vec())));
                (self.tune_budget, self.json) = (*budget, *json);
            }
            Command::Profile(Profile { count, pp, json }) => {
                self.count = count.or(self.count);
                (self.profile, self.pp, self.json) = (true, *pp, *json);
            }
            Command::Predict(Predict { count, chip, against, fit, context, batch, orin, json }) => {
                self.batch.clone_from(batch);
                self.count = count.or(self.count);
                (self.predict, self.fit, self.json, self.chip) = (true, *fit, *json, *chip);
                self.against.clone_from(against);
                self.context.clone_from(context);
                self.orin.clone_from(orin);
            }
            Command::Synthesize(Synthesize { spec, file, seed }) => {
                self.synthesize = Some(vec![spec.clone(), file.clone()]);
                self.sampling.seed = seed.or(self.sampling.seed);
            }
        }
    }

    /// Ends the program with a usage error if there are options of other tasks beside a subcommand.
    fn only_common_options(&self) {
        let texts = self.text.prompt.is_some() || self.text.file.is_some();
        let tasks = self.bench || self.verify || self.profile || self.predict || self.tune.is_some();
        let files = self.synthesize.is_some() || self.dump_logits.is_some() || self.man.is_some();
        let files = files || self.session.is_some() || self.trace.is_some();
        let others = self.completions.is_some() || self.check.is_some() || self.json;
        if texts || tasks || files || others || self.constraints.are_given() || self.pp.is_some() {
            let message = "before a subcommand there are only the options that its --help lists";
            usage(ErrorKind::ArgumentConflict, message);
        }
    }
}

fn usage(kind: ErrorKind, message: &str) -> ! {
    Cli::command().error(kind, message).exit()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        let mut cli = Cli::try_parse_from(std::iter::once(&"llm-demo").chain(args))?;
        cli.set_flags();
        Ok(cli)
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sampling_is_greedy_until_asked_for() {
        let temperature = |args: &[&str]| parse(args).expect("valid").sampling.options().temperature;
        assert_eq!(temperature(&[]), 0.0);
        assert_eq!(temperature(&["--seed", "3"]), 0.8);
        assert_eq!(temperature(&["--top-k", "5", "--temp", "0.3"]), 0.3);
    }

    #[test]
    fn modes_exclude_each_other_and_own_their_options() {
        for args in [
            &["--bench", "--verify"][..],
            &["--profile", "--synthesize", "tiny-llama:q6_k", "x"],
            &["--tg", "3"],
            &["--greedy", "3"],
            &["--trace", "x", "--bench"],
            &["--session", "x", "--verify"],
            &["--dump-logits", "x"],
            &["--tokens", "1"],
            &["--synthesize", "tiny-llama:q6_k"],
            &["--temp", "-1"],
            &["-p", "a", "-f", "b"],
            &["--man", "x", "--bench"],
            &["--completions", "sh"],
            &["--tune=gemm"],
            &["--tune-budget", "3"],
            &["--tune", "--bench"],
            &["--top-p", "1.5"],
            &["-n", "0"],
            &["--device", "cuda"],
            &["--check=speed"],
            &["--check", "--bench"],
            &["--check", "--verify", "--greedy", "3"],
            &["--lookup", "--draft", "x"],
            &["--lookup", "--draft-max", "32"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
        let cli = parse(&["--dump-logits", "x", "--tokens", "1,2,3"]).expect("valid");
        assert_eq!(cli.tokens, [1, 2, 3]);
        assert_eq!(parse(&["--check", "--verify"]).expect("valid").check, Some(Checks::all()));
        let tune = |args: &[&str]| parse(args).expect("valid").tune;
        assert_eq!(tune(&["--tune"]), Some(Parts(Part::ALL.to_vec())));
        assert_eq!(tune(&["--tune=prompt,matvec"]), Some(Parts(vec![Part::Prompt, Part::Matvec])));
    }

    #[test]
    fn a_subcommand_sets_the_flags_of_its_task() {
        let same = |command: &[&str], flags: &[&str]| {
            let (mut a, b) = (parse(command).expect("valid"), parse(flags).expect("valid"));
            a.command = None;
            assert_eq!(format!("{a:?}"), format!("{b:?}"), "{command:?}");
        };
        same(&["run"], &[]);
        same(
            &["run", "-p", "a", "-n", "3", "--temp", "1", "--check"],
            &["-p", "a", "-n", "3", "--temp", "1", "--check"],
        );
        same(&["-n", "3", "run", "-f", "x", "--trace", "t"], &["-n", "3", "-f", "x", "--trace", "t"]);
        same(&["run", "--session", "s"], &["--session", "s"]);
        same(&["run", "--lookup", "--draft-max", "3"], &["--lookup", "--draft-max", "3"]);
        same(&["verify", "-n", "4", "-p", "a"], &["--verify", "-n", "4", "-p", "a"]);
        same(&["verify", "--greedy", "4", "-m", "x"], &["--verify", "--greedy", "4", "-m", "x"]);
        same(&["tune", "prompt", "--budget", "3"], &["--tune=prompt", "--tune-budget", "3"]);
        same(&["tune", "--json"], &["--tune", "--json"]);
        same(&["profile", "--pp", "9", "--json"], &["--profile", "--pp", "9", "--json"]);
        same(
            &["predict", "--context", "1,2", "--orin", "sms=8"],
            &["--predict", "--context", "1,2", "--orin", "sms=8"],
        );
        same(&["predict", "--against", "x", "--fit"], &["--predict", "--against", "x", "--fit"]);
        same(&["predict", "-b", "1,8"], &["--predict", "-b", "1,8"]);
        same(
            &["synthesize", "tiny-llama:q6_k", "x", "--seed", "3"],
            &["--synthesize", "tiny-llama:q6_k", "x", "--seed", "3"],
        );
    }

    #[test]
    fn a_subcommand_has_no_options_of_others() {
        for args in [
            &["chat", "--bench"][..],
            &["run", "--json"],
            &["serve", "--session", "x"],
            &["bench", "--temp", "1"],
            &["bench", "-o", "xml"],
            &["verify", "--greedy", "3", "--check"],
            &["info", "-n", "3"],
            &["serve", "--port", "70000"],
            &["serve", "--api-key", "a", "--api-key-file", "b"],
            &["predict", "--fit"],
            &["predict", "--against", "x", "--context", "3"],
            &["run", "--logit-bias", "a=1"],
            &["run", "--repeat-penalty", "0"],
        ] {
            assert!(parse(args).is_err(), "{args:?}");
        }
        let bench = parse(&["bench", "-p", "128,512", "-n", "64,128", "-d", "0,256"]).expect("valid");
        let Some(Command::Bench(bench)) = bench.command else { panic!("another command") };
        assert_eq!(
            (bench.prompt, bench.generate, bench.depth),
            (vec![128, 512], vec![64, 128], vec![0, 256])
        );
    }
}
