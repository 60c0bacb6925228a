//! The command line.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use clap_complete::Shell;
use ga10b_llm::search::Part;
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm::{CacheType, Mode, SamplerOptions};
use ga10b_llm_tools::chips::Chip;
use ga10b_llm_tools::roofline::Constant;
use ga10b_sim::Checks;
use hcq::Selector;

/// Decodes a LLaMA model on a GPU without the CUDA runtime.
///
/// Without -m it continues a story with the embedded model. Exit codes: 0 done, 1 failed or past the bounds
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

    /// Text to continue
    #[arg(short, long)]
    pub prompt: Option<String>,

    /// Continue the text of a file, without its last line feed; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,

    /// Most tokens to generate, verify, profile, predict or answer with [default: 256, 32, 16, 4 or 512]
    #[arg(global = true, short = 'n', long = "count", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: Option<u32>,

    /// Temperature of the choice; 0 takes the most likely token [default: 0, or 0.8 with another sampling
    /// option]
    #[arg(global = true, long, value_name = "T", value_parser = not_negative, help_heading = "Sampling")]
    pub temp: Option<f32>,

    /// Choose among the K most likely tokens; 0 for all [default: 40]
    #[arg(global = true, long, value_name = "K", help_heading = "Sampling")]
    pub top_k: Option<u32>,

    /// Choose among the most likely tokens that have this probability together [default: 0.95]
    #[arg(global = true, long, value_name = "P", value_parser = fraction, help_heading = "Sampling")]
    pub top_p: Option<f32>,

    /// Exclude tokens less likely than this share of the most likely one's probability [default: 0.05]
    #[arg(global = true, long, value_name = "P", value_parser = fraction, help_heading = "Sampling")]
    pub min_p: Option<f32>,

    /// Seed of the random sequence (also for --synthesize) [default: 0]
    #[arg(global = true, long, value_name = "S", help_heading = "Sampling")]
    pub seed: Option<u64>,

    /// Measure tokens per second, as llama-bench does
    #[arg(long, group = "mode", help_heading = "Other tasks")]
    pub bench: bool,

    /// Tokens of the prompt in --bench [default: 512, 16 on the software device; at most the context]; with
    /// --profile a prompt of N tokens is timed instead of steps
    #[arg(long, value_name = "N", help_heading = "Other tasks")]
    pub pp: Option<u32>,

    /// Tokens decoded in --bench [default: 128, 16 on the software device; at most the context]
    #[arg(long, value_name = "N", requires = "bench", help_heading = "Other tasks")]
    pub tg: Option<u32>,

    /// Tokens in the context before those decoded in --bench, as if a prompt had put them there; several,
    /// separated by commas, are measured one after the other
    #[arg(short, long, value_name = "N,..", value_delimiter = ',', requires = "bench")]
    #[arg(default_value = "0", help_heading = "Other tasks")]
    pub depth: Vec<u32>,

    /// Measured runs of --bench, after warm-up [default: 5, 2 on the software device]
    #[arg(short, long, value_name = "N", requires = "bench", help_heading = "Other tasks")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub repeats: Option<u32>,

    /// Print the result of --bench, --profile, --predict or --tune as JSON
    #[arg(long, help_heading = "Other tasks")]
    pub json: bool,

    /// Compare logits with the CPU reference
    #[arg(long, group = "mode", help_heading = "Other tasks")]
    pub verify: bool,

    /// With --verify: compare N greedy tokens with those of one launch per operation instead of logits
    #[arg(long, value_name = "N", requires = "verify", help_heading = "Other tasks")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub greedy: Option<u32>,

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

    /// Write the manual page into a folder
    #[arg(long, group = "mode", value_name = "FOLDER", help_heading = "Other tasks")]
    pub man: Option<PathBuf>,

    /// Print a completion script
    #[arg(long, group = "mode", value_name = "SHELL", help_heading = "Other tasks")]
    pub completions: Option<Shell>,
}

/// What to do instead of continuing a text.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Talk with a model on the terminal
    ///
    /// Needs a model with a template of conversations, as files of instruction-tuned models have. Ctrl-C stops
    /// an answer, Ctrl-D ends the program, /help lists the commands. From a file or a pipe each line is a
    /// message. Without a sampling option the temperature is 0.
    Chat(Chat),
}

/// Options of a conversation.
#[derive(Debug, Args)]
pub struct Chat {
    /// A system message, which says how to answer
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// Template of the conversation in Jinja, instead of the model's
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,

    /// Tokens of the conversation that the cache holds; the oldest messages are removed to fit [default: 4096,
    /// or what the model has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..))]
    pub ctx: Option<u32>,
}

/// Parts of a search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts(pub Vec<Part>);

/// What the command line asks for.
pub enum Task<'a> {
    Generate,
    Chat(&'a Chat),
    Bench,
    Verify,
    VerifyGreedy(usize),
    DumpLogits(&'a Path),
    Profile,
    Predict,
    Tune(&'a [Part]),
    Synthesize(Synthesis, PathBuf),
    Man(&'a Path),
    Completions(Shell),
}

impl Cli {
    /// Reads the command line. Ends the program for a usage error, `--help` and `--version`.
    pub fn read() -> Self {
        let error = match Self::try_parse() {
            Ok(cli) => return cli,
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
        if let Some(Command::Chat(chat)) = &self.command {
            self.only_common_options();
            return Task::Chat(chat);
        }
        if self.json && !(self.bench || self.profile || self.predict || self.tune.is_some()) {
            let message = "--json goes with --bench, --profile, --predict or --tune";
            usage(ErrorKind::MissingRequiredArgument, message);
        }
        if self.pp.is_some() && !(self.bench || self.profile) {
            usage(ErrorKind::MissingRequiredArgument, "--pp goes with --bench or --profile");
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
            Cli { bench: true, .. } => Task::Bench,
            Cli { verify: true, greedy: Some(count), .. } => Task::VerifyGreedy(*count as usize),
            Cli { verify: true, .. } => Task::Verify,
            Cli { profile: true, .. } => Task::Profile,
            Cli { predict: true, .. } => Task::Predict,
            _ => Task::Generate,
        }
    }

    /// Ends the program with a usage error if there are options of other tasks beside a subcommand.
    fn only_common_options(&self) {
        let texts = self.prompt.is_some() || self.file.is_some();
        let tasks = self.bench || self.verify || self.profile || self.predict || self.tune.is_some();
        let files = self.synthesize.is_some() || self.dump_logits.is_some() || self.man.is_some();
        let others = self.completions.is_some() || self.trace.is_some() || self.check.is_some() || self.json;
        if texts || tasks || files || others || self.pp.is_some() {
            let message = "before a subcommand there are only the options that its --help lists";
            usage(ErrorKind::ArgumentConflict, message);
        }
    }

    /// How tokens are chosen. Any sampling option disables greedy choice.
    pub fn sampling(&self) -> SamplerOptions {
        let asked =
            self.top_k.is_some() || self.top_p.is_some() || self.min_p.is_some() || self.seed.is_some();
        SamplerOptions {
            temperature: self.temp.unwrap_or(if asked { 0.8 } else { 0.0 }),
            top_k: self.top_k.unwrap_or(40) as usize,
            top_p: self.top_p.unwrap_or(0.95),
            min_p: self.min_p.unwrap_or(0.05),
            seed: self.seed.unwrap_or(0),
        }
    }
}

fn usage(kind: ErrorKind, message: &str) -> ! {
    Cli::command().error(kind, message).exit()
}

fn engine(text: &str) -> Result<Mode, String> {
    let mode = Mode::ALL.into_iter().find(|m| m.name() == text);
    mode.ok_or_else(|| match text {
        "phases" => {
            "a step is one launch (persistent), whose phases --profile and --trace show; a launch per \
                     operation is operations"
                .to_owned()
        }
        _ => format!("expected one of {}", Mode::ALL.map(Mode::name).join(", ")),
    })
}

fn parts(text: &str) -> Result<Parts, String> {
    if text == "all" {
        return Ok(Parts(Part::ALL.to_vec()));
    }
    let part = |name: &str| {
        let part = Part::ALL.into_iter().find(|p| p.name() == name);
        part.ok_or_else(|| {
            format!("expected some of {}, separated by commas", Part::ALL.map(Part::name).join(", "))
        })
    };
    text.split(',').map(part).collect::<Result<_, _>>().map(Parts)
}

fn cache_type(text: &str) -> Result<CacheType, String> {
    let kv = CacheType::ALL.into_iter().find(|t| t.name() == text);
    kv.ok_or_else(|| format!("expected one of {}", CacheType::ALL.map(CacheType::name).join(", ")))
}

fn not_negative(text: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| v.is_finite() && *v >= 0.0);
    value.ok_or_else(|| "expected a number that is 0 or more".into())
}

fn fraction(text: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| (0.0..=1.0).contains(v));
    value.ok_or_else(|| "expected a number from 0 to 1".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Cli, clap::Error> {
        Cli::try_parse_from(std::iter::once(&"llm-demo").chain(args))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn sampling_is_greedy_until_asked_for() {
        let temperature = |args: &[&str]| parse(args).expect("valid").sampling().temperature;
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
}
