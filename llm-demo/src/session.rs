//! Opens what a command works with: model, device, engine.

use std::borrow::Cow;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use ga10b_llm::chat::Template;
use ga10b_llm::embedded;
use ga10b_llm::engine::check;
use ga10b_llm::{
    CacheType, Columns, ColumnsOptions, Engine, EngineOptions, Footprint, Mode, Model, Sampler, Tokenizer,
};
use hcq::{Device, DeviceOptions};

use crate::cli::options::{Common, Constraints, Launching, ModelFile, OnDevice, Text};
use crate::cli::sampling::Sampling;
use crate::grammar::{Compiler, Grammar};
use crate::memory;
use crate::outcome::Usage;
use crate::progress;
use crate::shapes::{self, TuningReport};
use crate::text_file::{self, Input};

/// Loads the model that the command line names.
pub fn model(file: &ModelFile) -> anyhow::Result<Model> {
    match &file.path {
        Some(path) => Model::open(path).with_context(|| format!("cannot use the model {}", path.display())),
        None => Ok(embedded::model()?),
    }
}

/// Loads the model that the command line names, to run it with a cache in `kv`. What is wrong with the file is known
/// before a device is opened.
pub fn model_to_run(file: &ModelFile, kv: CacheType) -> anyhow::Result<Model> {
    let model = model(file)?;
    let named = || match &file.path {
        Some(path) => format!("cannot run the model {}", path.display()),
        None => "cannot run the embedded model".to_owned(),
    };
    check(&model, kv).with_context(named)?;
    Ok(model)
}

/// Loads the model that the command line names, whose tokens `sampling` chooses.
pub fn model_for(common: &Common, sampling: &Sampling) -> anyhow::Result<Model> {
    let model = model_to_run(&common.model, common.launching.kv)?;
    let vocab = model.config.vocab;
    let unknown = sampling.bias().into_iter().find(|(token, _)| *token as usize >= vocab);
    if let Some((token, _)) = unknown {
        bail!("--logit-bias names token {token}: the model has tokens 0 to {}", vocab - 1);
    }
    Ok(model)
}

/// The prompt of the command line or of the file that it names, or one for the embedded model.
pub fn prompt(text: &Text) -> anyhow::Result<Cow<'_, str>> {
    let Some(path) = &text.file else {
        return Ok(text.prompt.as_deref().unwrap_or(embedded::PROMPT).into());
    };
    let named = || format!("cannot read the prompt from {}", path.display());
    let mut text = text_file::read(path, Input::Allowed).with_context(named)?;
    // A closed standard input reads like an empty file.
    ensure!(!text.is_empty(), "{}: it is empty; -p '' is a prompt without text", named());
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text.into())
}

/// The context that `--ctx` names.
///
/// # Errors
/// If it is more than `model` was trained for: what comes after that is not text.
pub fn context(given: Option<u32>, model: &Model) -> anyhow::Result<Option<usize>> {
    let most = model.config.context;
    let given = given.map(|n| n as usize);
    if let Some(given) = given.filter(|given| *given > most) {
        bail!(
            "--ctx {given} is more than the model's context of {most}; choose at most that, or leave it out"
        );
    }
    Ok(given)
}

/// A sampler by the options of the command line.
///
/// # Errors
/// If the grammar that they name cannot be used.
pub fn sampler(
    sampling: &Sampling,
    constraints: &Constraints,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Sampler> {
    let sampler = sampling.sampler();
    let (schema, lark) = (constraints.json_schema.as_deref(), constraints.grammar.as_deref());
    let Some(grammar) = Grammar::read(schema, lark)? else { return Ok(sampler) };
    let constraint = Compiler::new(tokenizer)?.compile(&grammar).map_err(anyhow::Error::msg);
    let path = schema.or(lark).unwrap_or(Path::new("-"));
    Ok(sampler.with_constraint(constraint.with_context(|| format!("cannot use {}", path.display()))?))
}

/// The template of conversations in the file `path`, or else the model's, if it has one.
pub fn template(
    path: Option<&Path>,
    model: &Model,
    tokenizer: &Tokenizer,
) -> anyhow::Result<Option<Template>> {
    let Some(path) = path else { return Ok(Template::from_gguf(&model.gguf, tokenizer)?) };
    let named = || format!("cannot use the template {}", path.display());
    let source = text_file::read(path, Input::AFile).with_context(named)?;
    Template::for_model(&source, &model.gguf, tokenizer).with_context(named).map(Some)
}

/// Options of an engine.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The launch mode of a step; `None` for the default of the device.
    pub mode: Option<Mode>,
    /// Type of the key/value cache.
    pub kv: CacheType,
    /// Whether chunks of prompts keep expanded weights; `None` for what suits the device.
    pub prompt_weights: Option<bool>,
    /// Whether phases are timed.
    pub timed: bool,
    /// Whether tuned shapes are used.
    pub tuned: bool,
}

impl Setup {
    /// The options that the command line names.
    pub fn of(launching: &Launching) -> Self {
        let &Launching { engine, kv, prompt_weights, no_tuning } = launching;
        Self { mode: engine, kv, prompt_weights, timed: false, tuned: !no_tuning }
    }

    /// The launch mode of a step on `device`, if the model has one.
    fn wanted(&self, device: &Device) -> Mode {
        self.mode.unwrap_or(match device.info().backend {
            hcq::BackendKind::Sim => Mode::Batch,
            _ => Mode::Stream,
        })
    }

    /// Says why steps of `model` are not launched as wanted; an error if the command line wants it.
    fn check(&self, device: &Device, (found, context): (Mode, usize), model: &Model) -> anyhow::Result<()> {
        let wanted = self.wanted(device);
        if wanted == found {
            return Ok(());
        }
        let what = match Engine::step_kernel_lacks(&model.config, context) {
            Some(lacks) => {
                let name = model.config.architecture.name;
                format!("the step kernel has no {lacks}, which {name} models need")
            }
            None => format!(
                "the step kernel does not take this model's sizes ({}, feed-forward {}) on this device: an SM's \
                 shared memory holds a whole input vector and a ring of weights; and types with a codebook mix \
                 with K types and Q8_0 alone",
                model.quantization(),
                model.config.ff
            ),
        };
        if self.mode.is_some() {
            let (wanted, found) = (wanted.name(), found.name());
            let advice = format!("leave it out, or use --engine {found}");
            return Err(Usage(format!("{what}, so --engine {wanted} is not possible; {advice}")).into());
        }
        tracing::warn!("{what}: steps are those of batches, which are slower");
        Ok(())
    }

    /// The options of an engine for `model` on `device`, and where its shapes are from.
    pub fn options(
        &self,
        device: &Device,
        model: &Model,
        context: usize,
    ) -> anyhow::Result<(EngineOptions, TuningReport)> {
        let in_use = shapes::find(self.tuned, device.info(), model);
        let options = EngineOptions::new(context)
            .with_mode(self.wanted(device))
            .with_cache(self.kv)
            .with_phase_times(self.timed)
            .with_tuning(in_use.tuning);
        let keeping = options.clone().with_expanded_weights(true);
        let needed = || Footprint::of(model, &keeping, device);
        let expanded = memory::keeps_expanded(device, self.prompt_weights, needed)?;
        Ok((options.with_expanded_weights(expanded), in_use.report))
    }
}

/// A model on a device.
pub struct Session {
    pub device: Device,
    pub engine: Engine,
    /// Positions in the cache.
    pub context: usize,
    /// Time that setting up the engine took.
    pub load: Duration,
    /// Shapes of the kernels.
    pub tuning: TuningReport,
    /// Whether chunks of prompts keep expanded weights.
    pub expanded: bool,
}

/// Opens the device that the command line names.
pub fn device(on: &OnDevice) -> anyhow::Result<Device> {
    device_with(on, DeviceOptions::default())
}

/// Opens the device that the command line names, with options.
pub fn device_with(on: &OnDevice, options: DeviceOptions) -> anyhow::Result<Device> {
    Device::open_with(on.selector, options)
        .with_context(|| format!("cannot open the device \"{}\"", on.selector))
}

impl Session {
    /// Sets up an engine for `model` on `device`, for `wanted` positions or as many as the model has.
    pub fn new(device: Device, setup: &Setup, model: &Model, wanted: usize) -> anyhow::Result<Self> {
        let context = wanted.min(model.config.context);
        let (options, tuning) = setup.options(&device, model, context)?;
        memory::check(&device, model, &options)?;
        let begin = Instant::now();
        let bar = progress::byte_bar("loading");
        let engine = Engine::with_progress(&device, model, &options, &mut |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let engine = engine.context("cannot set up the engine")?;
        setup.check(&device, (engine.mode(), context), model)?;
        Ok(Self { device, engine, context, load: begin.elapsed(), tuning, expanded: options.expanded })
    }

    /// Opens the device that the command line names and sets up an engine for `model`.
    pub fn open(common: &Common, model: &Model, wanted: usize) -> anyhow::Result<Self> {
        Self::new(device(&common.device)?, &Setup::of(&common.launching), model, wanted)
    }
}

/// Copies `model` to `device` for sequences that are processed together. They share fewer pages if the memory
/// does not suffice, but `least`.
pub fn columns(
    device: &Device,
    model: &Model,
    options: ColumnsOptions,
    least: usize,
    keeps: Option<bool>,
) -> anyhow::Result<Columns> {
    let needed = || Footprint::of_columns(model, &options.with_expanded_weights(true), device);
    let expanded = options.chunks && memory::keeps_expanded(device, keeps, needed)?;
    let options = options.with_expanded_weights(expanded);
    let options = memory::share(device, model, options, least)?;
    let bar = progress::byte_bar("loading");
    let columns = Columns::with_progress(device, model, &options, &mut |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    });
    bar.finish_and_clear();
    columns.context("cannot set up the sequences")
}

/// [`columns`] for one sequence, whose texts have the persistent step if `setup` and the device want it and `model` has
/// one.
pub fn columns_of_one(
    device: &Device,
    setup: &Setup,
    model: &Model,
    options: ColumnsOptions,
) -> anyhow::Result<Columns> {
    let options = if setup.wanted(device) == Mode::Stream { options.with_stream() } else { options };
    let columns = columns(device, model, options, options.pages, setup.prompt_weights)?;
    let found = if columns.streams() { Mode::Stream } else { Mode::Batch };
    setup.check(device, (found, options.context), model)?;
    Ok(columns)
}
