//! Options that several subcommands have.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use ga10b_llm::{CacheType, Mode};
use ga10b_sim::Checks;
use hcq::Selector;

use crate::cli::values::{cache_type, engine, prompt_weights};

/// The model, the device, and how one runs on the other.
#[derive(Clone, Debug, Args)]
pub struct Common {
    #[command(flatten)]
    pub model: ModelFile,

    #[command(flatten)]
    pub device: OnDevice,

    #[command(flatten)]
    pub launching: Launching,
}

#[derive(Clone, Debug, Args)]
pub struct ModelFile {
    /// Model in a GGUF file; by default the embedded model
    #[arg(id = "model", short, long, value_name = "FILE")]
    pub path: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct OnDevice {
    /// Device to run on: auto, nvgpu (Jetson), rm (desktop GPU) or sim (software ga10b)
    #[arg(id = "device", long, env = "HCQ_DEVICE", default_value = "auto", value_name = "DEVICE")]
    #[arg(value_parser = Selector::from_str)]
    pub selector: Selector,
}

/// Options of an engine.
#[derive(Clone, Debug, Args)]
pub struct Launching {
    /// Launches of a token's kernels: stream (one launch) or batch (some ten per layer, those of serve
    /// --parallel) [default: stream; batch for models without such a kernel and on the software device]
    #[arg(long, value_name = "ENGINE", value_parser = engine)]
    pub engine: Option<Mode>,

    /// Type of the key/value cache: f16 or q8_0 (8 bits and a scale per 32 values; heads of a multiple of 32)
    #[arg(long, value_name = "TYPE", default_value = "f16", value_parser = cache_type)]
    pub kv: CacheType,

    /// Weights of prompts in f16: keep (2 bytes more of memory per weight of the layers but experts) or expand (in
    /// every chunk of a prompt)
    /// [default: keep on a GPU with memory of its own where all takes at most half of what is free, else expand]
    #[arg(long, value_name = "HOW", value_parser = prompt_weights)]
    pub prompt_weights: Option<bool>,

    /// Use the default shapes, not the results of llm-demo tune
    #[arg(long)]
    pub no_tuning: bool,
}

/// A text to begin with.
#[derive(Clone, Debug, Args)]
pub struct Text {
    /// Text to continue
    #[arg(short, long)]
    pub prompt: Option<String>,

    /// Continue the text of a file, without its last line feed; - for standard input
    #[arg(short, long, value_name = "FILE", conflicts_with = "prompt")]
    pub file: Option<PathBuf>,
}

/// Constraints of a text. The CPU chooses its tokens, also where the GPU could.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Constraints")]
pub struct Constraints {
    /// The text is JSON that the schema in this file accepts
    #[arg(long, value_name = "FILE", conflicts_with = "grammar")]
    pub json_schema: Option<PathBuf>,

    /// The text is one of the grammar in this file, in Lark's notation or in GBNF
    #[arg(long, value_name = "FILE")]
    pub grammar: Option<PathBuf>,
}

#[derive(Clone, Debug, Args)]
pub struct Checking {
    /// Run on the software ga10b and search for mistakes of kernels
    ///
    /// CHECKS are the searches, separated by commas: memory, init, race, sync, order; by default all of them.
    /// Findings are printed on standard error, and the exit code is 3.
    #[arg(long, value_name = "CHECKS", num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    #[arg(value_parser = Checks::from_str)]
    pub check: Option<Checks>,
}
