//! The subcommands and their options.

use std::path::PathBuf;
use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use clap_complete::Shell;
use ga10b_llm::model::Pooling;
use ga10b_llm::synthesize::Synthesis;
use ga10b_llm_tools::chips::Chip;
use ga10b_llm_tools::roofline::Constant;

use crate::cli::options::{Checking, Common, Constraints, Launching, ModelFile, OnDevice, Text};
use crate::cli::sampling::Sampling;
use crate::cli::speculation::Speculation;
use crate::cli::values::{count, pooling, seed, sequences, whole};

/// The subcommand.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Continue a text
    Run(Run),
    /// Talk with a model on the terminal
    ///
    /// Needs a model with a template of conversations, as files of instruction-tuned models have. Ctrl-C stops
    /// an answer, Ctrl-D ends the program, /help lists the commands. From a file or a pipe each line is a
    /// message. Without a sampling option the temperature is 0.
    Chat(Chat),
    /// Serve a model over HTTP, with OpenAI's interface and a page to chat with
    ///
    /// Routes: /v1/chat/completions, /v1/completions, /v1/responses, /v1/embeddings, /v1/models, /tokenize,
    /// /detokenize, /tokenizer_info, /props, /health, /metrics (Prometheus), and the page at /. Requests are
    /// admitted in order of arrival, --parallel of them at the same time. Sampling options are for requests that do
    /// not say; without --temp their temperature is 0.8, without --seed each has another seed. Ctrl-C or SIGTERM ends
    /// the server after the requests that it has.
    Serve(Serve),
    /// Measure tokens per second, as llama-bench does
    ///
    /// Each number of -p is a test of a prompt, each of -n one of decode, at each depth of -d. With -b several
    /// sequences are processed together, as llama-batched-bench does: prompts of -p tokens each, and then -n
    /// tokens of each.
    Bench(Bench),
    /// Measure what --lookup or --draft gains for a text
    ///
    /// The same text by the engine, by the batch engine a token at a time, and by the batch engine with the
    /// draft. The exit code is 1 if the draft changes the text.
    Speculate(Speculate),
    /// Compare logits with the CPU reference
    Verify(Verify),
    /// Write the logits after each of some tokens to a file
    ///
    /// Little-endian f32, one row per token.
    Logits(Logits),
    /// Print the tokens of a text
    Tokenize(Tokenize),
    /// Show what a model's file holds, and whether it fits the device; or what a session's file holds
    ///
    /// Nothing of the model is copied. The exit code is 1 if it does not fit, and for a session that is damaged
    /// or of another model.
    Info(Info),
    /// Search the shapes of kernels that are fastest on this device for this model, and store them for later
    /// runs
    ///
    /// The persistent step has one shape. The search needs a ptxas to compile candidates; later runs do not.
    /// Results are stored per GPU, model shape and types in the file that LLM_DEMO_TUNING names, else in
    /// llm-demo/tuning.json in the user's cache directory; bench reports whether they are in use. On the
    /// software device times are predicted for an AGX Orin.
    Tune(Tune),
    /// Show the time of a token, kernel by kernel
    Profile(Profile),
    /// Predict the time of a token on an Orin or another chip, from its cost on the software ga10b
    Predict(Predict),
    /// Write a model of a real shape with random weights
    Synthesize(Synthesize),
    /// Write the manual pages into a folder
    Man { folder: PathBuf },
    /// Print a completion script
    Completions {
        #[arg(value_parser = PossibleValuesParser::new(["bash", "fish", "zsh"]).try_map(|name| name.parse::<Shell>()))]
        shell: Shell,
    },
}

/// Options of a text.
#[derive(Debug, Args)]
#[command(mut_arg("engine", |engine| engine.conflicts_with("drafting")))]
pub struct Run {
    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    pub text: Text,

    /// Most tokens to generate [default: 256]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<u32>,

    #[command(flatten)]
    pub sampling: Sampling,

    /// Go on with what a file holds, if it exists, and save it there at the end, also after Ctrl-C
    ///
    /// Keys and values are loaded instead of computed, for the same model and type of cache. Without -p and -f
    /// the saved text goes on; a prompt that begins like it is processed from where they differ. The file takes
    /// what the cache takes, for each token 32 KiB with LLaMA 3.2 1B and 128 KiB with LLaMA 3.1 8B in f16; with
    /// --kv q8_0 17/32 of it. Only its owner may read it. Not beside --lookup and --draft.
    #[arg(long, value_name = "FILE", conflicts_with = "drafting")]
    pub session: Option<PathBuf>,

    #[command(flatten)]
    pub speculation: Speculation,

    #[command(flatten)]
    pub constraints: Constraints,

    /// Write a trace of GPU and host to a file for ui.perfetto.dev
    #[arg(long, value_name = "FILE.json", conflicts_with_all = ["drafting", "check"])]
    pub trace: Option<PathBuf>,

    #[command(flatten)]
    pub checking: Checking,
}

/// Options of a conversation.
#[derive(Debug, Args)]
#[command(mut_arg("engine", |engine| engine.conflicts_with("drafting")))]
pub struct Chat {
    #[command(flatten)]
    pub common: Common,

    /// A system message, which says how to answer
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,

    /// Template of the conversation in Jinja, instead of the model's
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,

    /// Go on with the conversation of a file, if it exists, and save it there at the end
    ///
    /// Keys and values are loaded instead of computed, for the same model and type of cache. The file takes what
    /// the cache takes of the conversation, for each token 32 KiB with LLaMA 3.2 1B and 128 KiB with LLaMA 3.1
    /// 8B in f16; with --kv q8_0 17/32 of it. Only its owner may read it.
    #[arg(long, value_name = "FILE", conflicts_with = "drafting")]
    pub session: Option<PathBuf>,

    /// Tokens of the conversation that the cache holds; the oldest messages are removed to fit [default: 4096,
    /// or what the model has]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(64..))]
    pub ctx: Option<u32>,

    /// Most tokens of an answer [default: 512]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<u32>,

    #[command(flatten)]
    pub sampling: Sampling,

    #[command(flatten)]
    pub speculation: Speculation,

    #[command(flatten)]
    pub constraints: Constraints,
}

/// Options of the server.
#[derive(Debug, Args)]
#[command(mut_arg("temp", |temp| temp.help("Temperature of requests that do not say; 0 takes the most likely token \
                                            [default: 0.8]")))]
#[command(mut_arg("seed", |seed| seed.help("Seed of requests that do not say [default: another for each]")))]
#[command(mut_arg("engine", |engine| engine.conflicts_with("drafting")))]
pub struct Serve {
    #[command(flatten)]
    pub common: Common,

    /// Address or name to listen on; 0.0.0.0 or :: for all, which other machines reach
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1")]
    pub host: String,

    /// Port to listen on; 0 for a free one, which is reported
    #[arg(long, value_name = "PORT", default_value_t = 8080)]
    pub port: u16,

    /// Key that requests have to name; others see it in the list of processes, unlike in the variable or in
    /// --api-key-file
    #[arg(long, value_name = "KEY", env = "LLM_DEMO_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,

    /// File with the key
    #[arg(long, value_name = "FILE", conflicts_with = "api_key")]
    pub api_key_file: Option<PathBuf>,

    /// Name of this server that requests may have as Host, with a port or for all; may be repeated
    ///
    /// On a loopback address a request names localhost or a loopback address, one of these, or the key: another
    /// name may be that of a page's site which was made to resolve to this machine.
    #[arg(long, value_name = "HOST")]
    pub allow_host: Vec<String>,

    /// Site whose pages may ask the server, as `https://chat.example`, or * for all; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub allow_origin: Vec<String>,

    /// Refuse requests with a field that is not known, instead of a warning for each name
    #[arg(long)]
    pub strict: bool,

    /// Tokens of a prompt and its text together, of which the last needs no place [default: 4096, or what the model
    /// has]
    #[arg(long, value_name = "N", value_parser = count)]
    pub ctx: Option<u32>,

    /// Requests that are processed at the same time, 1 to 32 [default: 8, or 1 with --draft, and with --engine,
    /// which is for 1]
    ///
    /// Requests share a cache in pages: what prompts begin with in common is processed once. From 2 on each step
    /// processes a token of every request and pieces of prompts. 1 processes requests one after the other by
    /// the steps of --engine, which are faster for one alone; a text may then differ from that of --parallel 2,
    /// because it is rounded in another way.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=32))]
    pub parallel: Option<u32>,

    /// Milliseconds for which a chunk of a prompt may hold back the next tokens of other texts [default: a
    /// chunk is up to 256 tokens, as long as it takes]
    ///
    /// A chunk is then processed in slices, one or more layers at a time, with a step of the texts between
    /// them. Texts are the same; prompts that arrive beside them take longer. Not for --parallel 1.
    #[arg(long, value_name = "MS", value_parser = count)]
    pub latency_ms: Option<u32>,

    /// Process every prompt as a whole, also what it has in common with others
    #[arg(long)]
    pub no_prefix_cache: bool,

    /// Requests that wait at most; others are refused with 429
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = count)]
    pub queue: u32,

    /// Seconds that requests which run or wait have to end when the server does; then they are cut
    #[arg(long, value_name = "SECONDS", default_value_t = 3)]
    pub patience: u32,

    /// Name of the model in requests [default: its file's name]
    #[arg(long, value_name = "NAME")]
    pub alias: Option<String>,

    /// Most tokens of requests that do not say [default: what the context has room for]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<u32>,

    /// Template of conversations in Jinja, instead of the model's
    #[arg(long, value_name = "FILE")]
    pub template: Option<PathBuf>,

    /// The embedding of a text, of its tokens: mean or last [default: what the file says, or last]
    #[arg(long, value_name = "WAY", value_parser = pooling)]
    pub pooling: Option<Pooling>,

    #[command(flatten)]
    pub sampling: Sampling,

    #[command(flatten)]
    pub speculation: Speculation,
}

/// Options of a measurement.
#[derive(Debug, Args)]
pub struct Bench {
    #[command(flatten)]
    pub common: Common,

    /// Tokens of the prompts [default: 512, 16 on the software device; with -b 128, 4; at most the context]
    #[arg(short = 'p', long = "n-prompt", visible_alias = "pp", value_name = "N,..", value_delimiter = ',')]
    #[arg(value_parser = whole)]
    pub prompt: Vec<u32>,

    /// Tokens decoded [default: 128, 16 on the software device; with -b 128, 4; at most the context]
    #[arg(short = 'n', long = "n-gen", visible_alias = "tg", value_name = "N,..", value_delimiter = ',')]
    #[arg(value_parser = whole)]
    pub generate: Vec<u32>,

    /// Tokens in the context before, as if a prompt had put them there
    #[arg(short = 'd', long = "n-depth", value_name = "N,..", value_delimiter = ',', default_value = "0")]
    #[arg(value_parser = whole)]
    pub depth: Vec<u32>,

    /// Choosers of the next token in tests of decode, separated by commas
    #[arg(long, value_name = "CHOICE,..", value_delimiter = ',', default_value = "logits")]
    pub choice: Vec<Choice>,

    /// Sequences that are processed together, up to 32
    #[arg(short, long, value_name = "N,..", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["depth", "choice", "engine", "no_tuning"])]
    #[arg(value_parser = sequences)]
    pub batch: Vec<u32>,

    /// Measured runs of each test, after warm-up [default: 5, 2 on the software device]
    #[arg(short, long = "repetitions", value_name = "N", value_parser = count)]
    pub repeats: Option<u32>,

    /// Format, with llama-bench's fields
    #[arg(short, long, value_name = "FORMAT", default_value = "md")]
    pub output: Format,
}

/// The chooser of the next token in a test of decode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Choice {
    /// Tokens are random, and all logits are copied to the host, as llama-bench does
    Logits,
    /// The device takes the most likely one
    Greedy,
    /// The engine draws it: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05
    Sampled,
}

impl Choice {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Logits => "logits",
            Self::Greedy => "greedy",
            Self::Sampled => "sampled",
        }
    }
}

/// A format of results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A table in Markdown
    Md,
    /// A list of objects
    Json,
    /// An object per line
    Jsonl,
    /// A line per test after a line of names
    Csv,
}

/// Options of a measurement of drafts.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("drafting").required(true))]
pub struct Speculate {
    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    pub text: Text,

    /// Most tokens of the text [default: 128, 32 on the software device]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<u32>,

    /// Measured runs, after warm-up [default: 5, 2 on the software device]
    #[arg(short, long = "repetitions", value_name = "N", value_parser = count)]
    pub repeats: Option<u32>,

    #[command(flatten)]
    pub sampling: Sampling,

    #[command(flatten)]
    pub speculation: Speculation,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of a comparison.
#[derive(Debug, Args)]
pub struct Verify {
    #[command(flatten)]
    pub common: Common,

    #[command(flatten)]
    pub text: Text,

    /// Steps [default: 32]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<u32>,

    /// Compare N greedy tokens with those of --engine batch instead of logits
    #[arg(long, value_name = "N", value_parser = count)]
    #[arg(conflicts_with_all = ["count", "check"])]
    pub greedy: Option<u32>,

    /// Verify the batch step, which several requests and drafts take, and its prompts in chunks
    #[arg(long, conflicts_with_all = ["greedy", "engine"])]
    pub batch: bool,

    #[command(flatten)]
    pub checking: Checking,
}

/// Options of raw logits.
#[derive(Debug, Args)]
pub struct Logits {
    #[command(flatten)]
    pub common: Common,

    /// File to write; - for standard output
    #[arg(value_name = "OUT")]
    pub out: PathBuf,

    /// Token numbers, separated by commas
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    pub tokens: Vec<u32>,
}

/// Options of the tokenizer.
#[derive(Debug, Args)]
pub struct Tokenize {
    #[command(flatten)]
    pub model: ModelFile,

    #[command(flatten)]
    pub text: Text,

    /// Print numbers alone, separated by commas, as llm-demo logits takes them
    #[arg(long)]
    pub ids: bool,

    /// Add no token at the beginning
    #[arg(long)]
    pub no_bos: bool,

    /// Print numbers, texts and bytes as JSON
    #[arg(long, conflicts_with = "ids")]
    pub json: bool,
}

/// Options of the report on a file.
#[derive(Debug, Args)]
pub struct Info {
    #[command(flatten)]
    pub common: Common,

    /// File of a model, as -m, or of a session; with -m whether the session is of that model
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,

    /// Context to compute for, beside powers of two up to the model's
    #[arg(long, value_name = "N", value_parser = count)]
    pub ctx: Option<u32>,

    /// List the tensors too
    #[arg(long)]
    pub tensors: bool,

    /// List the metadata too
    #[arg(long)]
    pub metadata: bool,

    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of a search.
#[derive(Debug, Args)]
pub struct Tune {
    #[command(flatten)]
    pub model: ModelFile,

    #[command(flatten)]
    pub device: OnDevice,

    /// Time after which no further candidate is started [default: 120]
    #[arg(long, value_name = "SECONDS")]
    pub budget: Option<u32>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of a profile.
#[derive(Debug, Args)]
pub struct Profile {
    #[command(flatten)]
    pub common: Common,

    /// Tokens decoded [default: 16]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    #[arg(conflicts_with = "pp")]
    pub count: Option<u32>,

    /// Time a prompt of N tokens instead; with -b the tokens of each sequence before the step [default of that:
    /// 128, 4 on the software device]
    #[arg(long, value_name = "N", value_parser = count)]
    pub pp: Option<u32>,

    /// Time a step of N sequences instead, up to 32
    #[arg(short, long, value_name = "N", value_parser = sequences)]
    #[arg(conflicts_with_all = ["count", "engine", "no_tuning"])]
    pub batch: Option<u32>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of a prediction.
#[derive(Debug, Args)]
pub struct Predict {
    #[command(flatten)]
    pub model: ModelFile,

    #[command(flatten)]
    pub launching: Launching,

    /// Tokens decoded; the last one is counted [default: 4]
    #[arg(short = 'n', long, value_name = "N", value_parser = count)]
    pub count: Option<u32>,

    /// Chip that it is for: orin-agx-64, orin-agx-32, orin-nx-16, orin-nx-8, orin-nano-8, orin-nano-4 or h100
    #[arg(long, value_name = "CHIP", default_value = Chip::usual().key, value_parser = Chip::from_str)]
    pub chip: Chip,

    /// Compare predictions with the measurements of a file, without a model
    #[arg(long, value_name = "FILE", conflicts_with_all = ["model", "context", "count", "chip"])]
    pub against: Option<PathBuf>,

    /// With --against: find the constants that fit the measurements best, and compare with those
    #[arg(long, requires = "against")]
    pub fit: bool,

    /// Positions at which a token is counted, separated by commas, as if the cache were full up to there
    #[arg(long, value_name = "N,..", value_delimiter = ',', conflicts_with = "count")]
    #[arg(value_parser = whole)]
    pub context: Vec<u32>,

    /// Predict a step of so many sequences, up to 32, separated by commas, at the position of --context [default:
    /// 192]
    #[arg(short, long, value_name = "N,..", value_delimiter = ',')]
    #[arg(conflicts_with_all = ["count", "against", "engine", "no_tuning"])]
    #[arg(value_parser = sequences)]
    pub batch: Vec<u32>,

    /// Overrides a constant: sms, mhz, gbps, share, ipc, attention-ipc, exchange-cycles, launch-us or link-us
    #[arg(long, value_name = "KEY=VALUE")]
    pub orin: Vec<Constant>,

    /// Print the result as JSON
    #[arg(long)]
    pub json: bool,
}

/// Options of a synthetic model.
#[derive(Debug, Args)]
pub struct Synthesize {
    /// Shape and quantization, e.g. llama-3.2-1b:q6_k
    #[arg(value_name = "SHAPE:QUANT")]
    pub spec: Synthesis,

    /// File to write
    #[arg(value_name = "FILE")]
    pub file: PathBuf,

    /// Seed of the weights
    #[arg(long, value_name = "S", default_value_t = 0, value_parser = seed)]
    pub seed: u64,
}
