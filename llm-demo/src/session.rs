//! Opens what a command works with: model, device, engine.

use std::time::{Duration, Instant};

use anyhow::Context;
use ga10b_llm::cache::CacheType;
use ga10b_llm::embedded;
use ga10b_llm::engine::{Engine, EngineOptions, Mode};
use ga10b_llm::model::Model;
use hcq::{Device, DeviceOptions};

use crate::cli::Cli;
use crate::progress;
use crate::shapes::{self, TuningReport};

/// Loads the model that the command line names.
pub fn model(cli: &Cli) -> anyhow::Result<Model> {
    match &cli.model {
        Some(path) => Model::open(path).with_context(|| format!("cannot use the model {}", path.display())),
        None => Ok(embedded::model()?),
    }
}

/// The prompt of the command line, or one for the embedded model.
pub fn prompt(cli: &Cli) -> &str {
    cli.prompt.as_deref().unwrap_or(embedded::PROMPT)
}

/// A model on a device.
pub struct Session {
    pub device: Device,
    pub engine: Engine,
    /// Positions in the cache.
    pub context: usize,
    /// How long the engine took to set up.
    pub load: Duration,
    /// Shapes of the kernels.
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
    /// Sets up an engine for `model` on `device`, with timed phases or without, with tuned shapes or without, for `wanted`
    /// positions or as many as the model has.
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
        let options = EngineOptions::new(context).with_mode(mode).with_cache(kv).with_phase_times(timed);
        let options = options.with_tuning(in_use.tuning);
        let begin = Instant::now();
        let bar = progress::byte_bar("loading");
        let engine = Engine::with_progress(&device, model, &options, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let engine = engine.context("cannot bring the model to the device")?;
        Ok(Self { device, engine, context, load: begin.elapsed(), tuning: in_use.report })
    }

    /// Opens the device that the command line names and sets up an engine for `model`.
    pub fn open(cli: &Cli, model: &Model, wanted: usize) -> anyhow::Result<Self> {
        let timed = cli.profile || cli.trace.is_some();
        Self::new(device(cli)?, (cli.engine, cli.kv, timed, !cli.no_tuning), model, wanted)
    }
}
