//! Opening what a command works with: model, tokenizer, device, engine.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use ga10b_llm::embedded;
use ga10b_llm::engine::{Engine, EngineOptions, Mode};
use ga10b_llm::gguf::Gguf;
use ga10b_llm::kernels::CacheType;
use ga10b_llm::model::Model;
use hcq::{Device, DeviceOptions};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::cli::Cli;
use crate::shapes::{self, TuningReport};

/// Loads the model that the command line names.
pub fn model(cli: &Cli) -> anyhow::Result<Model> {
    match &cli.model {
        Some(path) => load(path).with_context(|| format!("cannot use the model {}", path.display())),
        None => Ok(embedded::model()?),
    }
}

fn load(path: &Path) -> ga10b_llm::Result<Model> {
    Model::new(Gguf::open(path)?)
}

/// The prompt of the command line, or one that suits the built-in model.
pub fn prompt(cli: &Cli) -> &str {
    cli.prompt.as_deref().unwrap_or(embedded::PROMPT)
}

/// A model on a device.
pub struct Session {
    pub device: Device,
    pub engine: Engine,
    /// Positions there is room for.
    pub context: usize,
    /// Time it took to bring the weights to the device.
    pub load: Duration,
    /// The shapes of its kernels.
    pub tuning: TuningReport,
}

/// Opens the device that the command line names.
pub fn device(cli: &Cli) -> anyhow::Result<Device> {
    device_with(cli, DeviceOptions::default())
}

/// Opens the device that the command line names, with options.
pub fn device_with(cli: &Cli, options: DeviceOptions) -> anyhow::Result<Device> {
    Device::open_with(cli.device, options)
        .with_context(|| format!("cannot open the device \"{}\"", cli.device))
}

impl Session {
    /// Brings `model` to `device`, timed or not, with the tuned shapes or without, with room for `wanted` positions or as many
    /// as the model has.
    pub fn new(
        device: Device,
        (mode, kv, timed, tuned): (Option<Mode>, CacheType, bool, bool),
        model: &Model,
        wanted: usize,
    ) -> anyhow::Result<Self> {
        let context = wanted.min(model.config.context);
        let usual = match device.info().backend {
            hcq::BackendKind::Sim => Mode::Operations,
            _ => Mode::Persistent,
        };
        let mode = mode.unwrap_or(usual);
        let in_use = shapes::find(tuned, device.info(), model);
        let options = EngineOptions { context, mode, kv, timed };
        let begin = Instant::now();
        let bar = byte_bar("loading");
        let engine = Engine::tuned(&device, model, options, &in_use.tuning, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let engine = engine.context("cannot bring the model to the device")?;
        Ok(Self { device, engine, context, load: begin.elapsed(), tuning: in_use.report })
    }

    /// Opens the device that the command line names and brings `model` to it.
    pub fn open(cli: &Cli, model: &Model, wanted: usize) -> anyhow::Result<Self> {
        let timed = cli.profile || cli.trace.is_some();
        Self::new(device(cli)?, (cli.engine, cli.kv, timed, !cli.no_tuning), model, wanted)
    }
}

/// A bar that counts bytes; drawn only on a terminal.
pub fn byte_bar(what: &'static str) -> ProgressBar {
    let style = "{msg} [{wide_bar}] {bytes}/{total_bytes} {binary_bytes_per_sec}";
    bar(what, style)
}

/// A bar that counts steps; drawn only on a terminal.
pub fn step_bar(what: &'static str) -> ProgressBar {
    bar(what, "{msg} [{wide_bar}] {pos}/{len} {eta}")
}

fn bar(what: &'static str, style: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_message(what)
}
