//! Opens what a command works with: model, device, engine.

use std::borrow::Cow;
use std::fs;
use std::io::{self, Read};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use ga10b_llm::embedded;
use ga10b_llm::{CacheType, Engine, EngineOptions, Mode, Model};
use hcq::{Device, DeviceOptions};

use crate::checker;
use crate::cli::Cli;
use crate::memory;
use crate::progress;
use crate::shapes::{self, TuningReport};

/// Loads the model that the command line names.
pub fn model(cli: &Cli) -> anyhow::Result<Model> {
    match &cli.model {
        Some(path) => Model::open(path).with_context(|| format!("cannot use the model {}", path.display())),
        None => Ok(embedded::model()?),
    }
}

/// The prompt of the command line or of the file that it names, or one for the embedded model.
pub fn prompt(cli: &Cli) -> anyhow::Result<Cow<'_, str>> {
    let Some(path) = &cli.file else {
        return Ok(cli.prompt.as_deref().unwrap_or(embedded::PROMPT).into());
    };
    let read = match path.to_str() {
        Some("-") => {
            let mut bytes = Vec::new();
            io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
        _ => fs::read(path),
    };
    let named = || format!("cannot read the prompt from {}", path.display());
    let mut text = String::from_utf8(read.with_context(named)?).with_context(named)?;
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text.into())
}

/// How an engine is set up.
pub struct Setup {
    /// How a step is launched; `None` for the default of the device.
    pub mode: Option<Mode>,
    /// Type of the key/value cache.
    pub kv: CacheType,
    /// Whether phases are timed.
    pub timed: bool,
    /// Whether tuned shapes are used.
    pub tuned: bool,
}

impl Setup {
    /// What the command line names.
    pub fn of(cli: &Cli) -> Self {
        let timed = cli.profile || cli.trace.is_some();
        Self { mode: cli.engine, kv: cli.kv, timed, tuned: !cli.no_tuning }
    }
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
    if let Some(checks) = cli.check {
        return checker::open(checks, cli.device, options);
    }
    Device::open_with(cli.device, options)
        .with_context(|| format!("cannot open the device \"{}\"", cli.device))
}

impl Session {
    /// Sets up an engine for `model` on `device`, for `wanted` positions or as many as the model has.
    pub fn new(device: Device, setup: &Setup, model: &Model, wanted: usize) -> anyhow::Result<Self> {
        let context = wanted.min(model.config.context);
        let usual = match device.info().backend {
            hcq::BackendKind::Sim => Mode::Operations,
            _ => Mode::Persistent,
        };
        let in_use = shapes::find(setup.tuned, device.info(), model);
        let options = EngineOptions::new(context)
            .with_mode(setup.mode.unwrap_or(usual))
            .with_cache(setup.kv)
            .with_phase_times(setup.timed)
            .with_tuning(in_use.tuning);
        memory::check(&device, model, &options)?;
        let begin = Instant::now();
        let bar = progress::byte_bar("loading");
        let engine = Engine::with_progress(&device, model, &options, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let engine = engine.context("cannot set up the engine")?;
        let (wanted, found) = (setup.mode.unwrap_or(usual), engine.mode());
        if wanted != found {
            let what = format!(
                "the step kernel does not take this model's sizes ({}, feed-forward {}) on this device: an SM's \
                 shared memory holds a whole input vector and a ring of weights",
                model.quantization(),
                model.config.ff
            );
            ensure!(
                setup.mode.is_none(),
                "{what}, so --engine {} is not possible; leave it out, or use --engine {}",
                wanted.name(),
                found.name()
            );
            tracing::warn!("{what}: steps take one launch per operation, which is slower");
        }
        Ok(Self { device, engine, context, load: begin.elapsed(), tuning: in_use.report })
    }

    /// Opens the device that the command line names and sets up an engine for `model`.
    pub fn open(cli: &Cli, model: &Model, wanted: usize) -> anyhow::Result<Self> {
        Self::new(device(cli)?, &Setup::of(cli), model, wanted)
    }
}
