//! Serves a model over HTTP.

use std::net::TcpListener;
use std::panic::resume_unwind;
use std::process;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context;
use ga10b_llm::chat::Template;
use ga10b_llm::engine::PAGE;
use ga10b_llm::model::Pooling;
use ga10b_llm::{ColumnsOptions, Model, Tokenizer};
use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::cli::commands::Serve;
use crate::grammar::Form;
use crate::outcome::{Outcome, Usage};
use crate::serve::access::Access;
use crate::serve::app::router;
use crate::serve::batch::{Batch, Sharing};
use crate::serve::listen;
use crate::serve::metrics::Metrics;
use crate::serve::openai::fields::Unknown;
use crate::serve::openai::request::Defaults;
use crate::serve::scheduler::{self, Build, Options, Processor};
use crate::serve::state::{App, Embeddings, Limits, Own};
use crate::session::{self, Setup};
use crate::speculation::Drafting;
use crate::text_file::{self, Input};

/// Positions of the cache by default, if the model has as many.
const DEFAULT_CONTEXT: usize = 4096;
/// Requests at the same time by default.
const DEFAULT_PARALLEL: usize = 8;
/// Time for which the engine is left alone after it could not be set up.
const RETRY: Duration = Duration::from_secs(10);
/// Temperature of requests that do not say.
const TEMPERATURE: f32 = 0.8;
/// Time that a step of the engine has to end after its request was cut.
const LAST_STEP: Duration = Duration::from_secs(10);

pub fn run(serve: &Serve) -> anyhow::Result<Outcome> {
    let model = session::model_for(&serve.common, &serve.sampling)?;
    let context = session::context(serve.ctx, &model)?;
    let context = context.unwrap_or_else(|| DEFAULT_CONTEXT.min(model.config.context));
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let tokenizer = Arc::new(tokenizer);
    let template = session::template(serve.template.as_deref(), &model, &tokenizer)?;
    let pooling = serve.pooling.or(model.pooling()?).unwrap_or(Pooling::Last);
    let key = key(serve)?;
    let listener = TcpListener::bind((serve.host.as_str(), serve.port))
        .with_context(|| format!("cannot listen on {}, port {}", serve.host, serve.port))?;
    let address = listener.local_addr()?;
    let loopback = address.ip().is_loopback();
    if !loopback && key.is_none() {
        tracing::warn!("everybody who reaches {address} may use the server: there is no --api-key");
    }

    tracing::info!("{}", of_calls(template.as_ref()));
    let metrics = Arc::new(Metrics::default());
    let parallel = parallel(serve)?;
    let build: Build<'_> = Box::new(|| processor(serve, (&model, &tokenizer), (parallel, context)));
    let options = Options { waiting: serve.queue as usize, retry: RETRY };
    let (scheduler, mut worker) = scheduler::new(options, Arc::clone(&metrics), build);
    let limits = Limits::default();
    let app = App {
        scheduler: scheduler.clone(),
        tokenizer: Arc::clone(&tokenizer),
        template,
        metrics,
        model: serve.alias.clone().unwrap_or_else(|| name(serve, &model)),
        context,
        defaults: defaults(serve),
        limits,
        access: Access {
            key,
            loopback,
            hosts: serve.allow_host.clone(),
            origins: serve.allow_origin.clone(),
        },
        unknown: Unknown::new(serve.strict),
        parallel,
        embeddings: Embeddings { pooling, width: model.config.hidden },
        own: Own::default(),
    };
    let router = router(Arc::new(app));
    let patience = Duration::from_secs(serve.patience.into());
    let (stop, stopped) = watch::channel(false);
    let http = thread::Builder::new().name("http".into()).spawn({
        let stop = stop.clone();
        move || {
            let runtime = runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
            let served = runtime.block_on(async {
                tokio::spawn(signals(stop));
                listen::serve(listener, router, limits, scheduler.clone(), stopped, patience).await
            });
            scheduler.cut();
            thread::spawn(|| {
                thread::sleep(LAST_STEP);
                tracing::error!("the engine does not end");
                process::exit(1);
            });
            served
        }
    })?;
    let started = worker.start();
    if started.is_ok() {
        tracing::info!("listening on http://{address}");
        worker.run();
    }
    stop.send_replace(true);
    http.join().unwrap_or_else(|panic| resume_unwind(panic))?;
    started?;
    Ok(Outcome::Good)
}

/// The number of requests that are processed at the same time.
fn parallel(serve: &Serve) -> anyhow::Result<usize> {
    let engine = serve.common.launching.engine.is_some();
    let alone = engine || serve.speculation.draft.is_some();
    let parallel = serve.parallel.map_or(if alone { 1 } else { DEFAULT_PARALLEL }, |n| n as usize);
    if engine && parallel > 1 {
        return Err(Usage(format!("--engine is for --parallel 1, not {parallel}")).into());
    }
    if serve.latency_ms.is_some() && parallel == 1 {
        let reason = match (engine, serve.parallel) {
            (true, _) => "--engine processes one",
            (_, Some(_)) => "--parallel 1 processes one",
            _ => "--draft processes one without --parallel 2 to 32",
        };
        return Err(Usage(format!("--latency-ms is for several requests at a time: {reason}")).into());
    }
    Ok(parallel)
}

/// The generator of texts, on a device that is opened for it.
fn processor<'a>(
    serve: &Serve,
    (model, tokenizer): (&Model, &'a Tokenizer),
    (parallel, context): (usize, usize),
) -> anyhow::Result<Box<dyn Processor + 'a>> {
    let caches = !serve.no_prefix_cache;
    let setup = Setup::of(&serve.common.launching);
    let drafting = Drafting::open(&serve.speculation, model, setup.kv)?;
    let device = session::device(&serve.common.device)?;
    // Before the model, whose pages get what memory is left.
    let draft = drafting.draft(&device, &setup, (parallel, context))?;
    let options = ColumnsOptions::new(parallel, context).with_cache(setup.kv).with_chunks();
    let mut columns = match parallel == 1 && draft.is_none() {
        true => session::columns_of_one(&device, &setup, model, options)?,
        false => session::columns(&device, model, options, context.div_ceil(PAGE), setup.prompt_weights)?,
    };
    // Else the first requests wait for it.
    columns.record_all()?;
    let latency = serve.latency_ms.map(|ms| Duration::from_millis(ms.into()));
    if latency.is_some() {
        columns.record_slices()?;
    }
    Ok(Box::new(Batch::new(tokenizer, columns, Sharing { caches, draft, latency })))
}

/// Ends the server at the first signal, the program at the second one.
async fn signals(stop: watch::Sender<bool>) {
    let signals = signal(SignalKind::interrupt()).and_then(|i| Ok((i, signal(SignalKind::terminate())?)));
    let (mut interrupt, mut terminate) = match signals {
        Ok(signals) => signals,
        Err(error) => return tracing::error!("signals cannot be received: {error}"),
    };
    let mut next = async || tokio::select! { _ = interrupt.recv() => 130, _ = terminate.recv() => 143 };
    next().await;
    tracing::info!("ending; another signal ends at once");
    stop.send_replace(true);
    process::exit(next().await);
}

/// The key that requests have to name.
fn key(serve: &Serve) -> anyhow::Result<Option<String>> {
    let key = match &serve.api_key_file {
        None => serve.api_key.clone(),
        Some(path) => {
            let text = text_file::read(path, Input::AFile);
            let text = text.with_context(|| format!("cannot read the key from {}", path.display()))?;
            Some(text.trim().to_owned())
        }
    };
    match key {
        Some(key) if key.is_empty() => Err(Usage("the key is empty".to_owned()).into()),
        key => Ok(key),
    }
}

/// The options of generation where a request names none.
fn defaults(serve: &Serve) -> Defaults {
    let sampling = &serve.sampling;
    let (penalties, bias, seed) = (sampling.penalties(), sampling.bias(), sampling.seed);
    let count = serve.count.map(u64::from);
    Defaults { sampling: sampling.options_at(TEMPERATURE), penalties, bias, seed, count }
}

/// The line about requests with tools, for the log.
fn of_calls(template: Option<&Template>) -> String {
    match Form::of_model(template) {
        Some(Form { name, .. }) => format!("the template takes tools: calls are in the form {name}"),
        None => "no template takes tools: requests with them are refused".to_owned(),
    }
}

/// The model's name in requests: its file without the extension, and without the number of a split model's first file.
fn name(serve: &Serve, model: &Model) -> String {
    let file = serve.common.model.path.as_ref().and_then(|path| path.file_stem());
    let first = format!("-00001-of-{:05}", model.gguf.files());
    let name = file.map(|name| name.to_string_lossy().trim_end_matches(&first).to_owned());
    name.unwrap_or_else(|| model.name().unwrap_or("embedded").to_owned())
}
