//! Opens what decodes a text: the engine, or the batch engine whose steps verify what a draft proposes.

use std::path::Path;

use anyhow::Context;
use ga10b_llm::engine::check;
use ga10b_llm::speculate::{
    Draft, DraftModel, Lookup, NoDraft, Speculator, SpeculatorOptions, Statistics, check_vocabularies,
};
use ga10b_llm::{CacheType, Columns, ColumnsOptions, Decoder, Model};
use hcq::Device;

use crate::cli::speculation::Speculation;
use crate::session::{self, Session, Setup};

/// The decoder of a text.
pub enum Decoding {
    /// A token per step.
    Engine(Box<Session>),
    /// Several tokens per step.
    Speculative(Box<Speculative>),
}

/// Columns and a draft.
pub struct Speculative {
    device: Device,
    decoder: Speculator<Columns>,
    /// Positions in the cache.
    context: usize,
}

impl Decoding {
    /// Sets up what `speculation` asks for on a device, which is opened once the draft's file is read, for `wanted`
    /// positions or as many as `model` has.
    pub fn new(
        device: impl FnOnce() -> anyhow::Result<Device>,
        setup: &Setup,
        speculation: &Speculation,
        model: &Model,
        wanted: usize,
    ) -> anyhow::Result<Self> {
        if !speculation.is_asked() {
            return Ok(Self::Engine(Box::new(Session::new(device()?, setup, model, wanted)?)));
        }
        let context = wanted.min(model.config.context);
        let drafting = Drafting::open(speculation, model, setup.kv)?;
        let device = device()?;
        // Before the model, which gets what memory is left.
        let draft = drafting.draft(&device, setup, (1, context))?;
        let mut decoder = target(&device, setup, model, context)?;
        if let Some((draft, options)) = draft {
            decoder.set_draft(draft, options)?;
        }
        Ok(Self::Speculative(Box::new(Speculative { device, decoder, context })))
    }

    pub fn device(&self) -> &Device {
        match self {
            Self::Engine(session) => &session.device,
            Self::Speculative(own) => &own.device,
        }
    }

    /// Positions in the cache.
    pub fn context(&self) -> usize {
        match self {
            Self::Engine(session) => session.context,
            Self::Speculative(own) => own.context,
        }
    }

    pub fn decoder(&mut self) -> &mut dyn Decoder {
        match self {
            Self::Engine(session) => &mut session.engine,
            Self::Speculative(own) => &mut own.decoder,
        }
    }

    /// The counts of proposals, in words; `None` without a draft.
    pub fn summary(&self) -> Option<String> {
        match self {
            Self::Engine(_) => None,
            Self::Speculative(own) => summary(&own.decoder.statistics()),
        }
    }
}

/// The counts of proposals, in words; `None` before the first step.
fn summary(statistics: &Statistics) -> Option<String> {
    let &Statistics { steps, proposed, accepted, .. } = statistics;
    let per_step = statistics.tokens_per_step()?;
    Some(format!(
        "{} tokens in {steps} steps, {per_step:.2} per step; {accepted} of {proposed} proposed tokens accepted",
        steps + accepted
    ))
}

/// Columns for one sequence of `context` positions, without a draft.
pub fn target(
    device: &Device,
    setup: &Setup,
    model: &Model,
    context: usize,
) -> anyhow::Result<Speculator<Columns>> {
    let options = ColumnsOptions::new(1, context).with_cache(setup.kv).with_chunks();
    let mut columns = session::columns(device, model, options, options.pages, setup.prompt_weights)?;
    // Else the first steps wait for it, and their times are wrong.
    columns.record_all()?;
    Ok(Speculator::new(columns, Box::new(NoDraft), SpeculatorOptions::new(0))?)
}

/// The source of proposals.
enum Source {
    Lookup,
    Model(Box<Model>),
}

/// The draft that the command line asks for, before it is on a device.
pub struct Drafting {
    /// `None` if it asks for none.
    source: Option<Source>,
    pub options: SpeculatorOptions,
}

impl Drafting {
    /// Reads the draft model, and checks that it can be run with a cache in `kv` and that its tokens are those of
    /// `model`.
    pub fn open(speculation: &Speculation, model: &Model, kv: CacheType) -> anyhow::Result<Self> {
        let read = |path: &Path| -> anyhow::Result<Model> {
            let draft = Model::open(path)?;
            check(&draft, kv)?;
            check_vocabularies(&model.gguf, &draft.gguf)?;
            Ok(draft)
        };
        let path = speculation.draft.as_deref();
        let named = |path: &Path| format!("cannot use the draft model {}", path.display());
        let model = path.map(|path| read(path).with_context(|| named(path))).transpose()?;
        let source = match model {
            Some(model) => Some(Source::Model(Box::new(model))),
            None => speculation.lookup.then_some(Source::Lookup),
        };
        Ok(Self { source, options: speculation.options() })
    }

    /// The draft model, if it is one.
    pub fn model(&self) -> Option<&Model> {
        match self.source.as_ref()? {
            Source::Lookup => None,
            Source::Model(model) => Some(model),
        }
    }

    /// The draft, if there is one, of `parallel` texts of `context` positions at once.
    pub fn draft(
        &self,
        device: &Device,
        setup: &Setup,
        (parallel, context): (usize, usize),
    ) -> anyhow::Result<Option<(Box<dyn Draft>, SpeculatorOptions)>> {
        let Some(source) = &self.source else { return Ok(None) };
        let Source::Model(model) = source else {
            // Lookups cost nothing, so more are never slower in columns that a step has anyway.
            let options = if parallel > 1 { self.options.fixed() } else { self.options };
            return Ok(Some((Box::new(Lookup), options)));
        };
        if model.config.context < context {
            tracing::warn!("the draft has {} positions: past them it proposes nothing", model.config.context);
        }
        tracing::info!("setting up the draft");
        let context = context.min(model.config.context);
        let options = ColumnsOptions::new(parallel, context).with_cache(setup.kv).with_chunks();
        let setup = Setup { mode: None, prompt_weights: Some(false), ..*setup };
        let columns = match parallel {
            1 => session::columns_of_one(device, &setup, model, options),
            _ => session::columns(device, model, options, options.pages, setup.prompt_weights),
        };
        let mut columns = columns.context("cannot set up the draft")?;
        columns.record_all()?;
        Ok(Some((Box::new(DraftModel::new(columns)), self.options)))
    }
}
