//! A server on a port of its own, and a client that shows every byte.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ga10b_llm::chat::Template;
use ga10b_llm::engine::{KeptPage, PAGE};
use ga10b_llm::model::Pooling;
use ga10b_llm::sampler::Penalties;
use ga10b_llm::{
    ColumnId, Columns, ColumnsOptions, Error, Result, SamplerOptions, Sequences, Tokenizer, embedded,
};
use hcq::{Args, Device, LaunchConfig, Selector};
use serde_json::Value;
use tokio::runtime;
use tokio::sync::watch;

use crate::serve::access::Access;
use crate::serve::app::router;
use crate::serve::batch::{Batch, Sharing};
use crate::serve::listen;
use crate::serve::metrics::Metrics;
use crate::serve::openai::fields::Unknown;
use crate::serve::openai::request::Defaults;
use crate::serve::scheduler::{self, Build, Options};
use crate::serve::state::{App, Embeddings, Limits, Own};

/// `vadd_f32`.
const VADD: &[u8] = include_bytes!("../../../../hcq/tests/data/01_vecadd.sm_87.cubin");

/// Deadline of anything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// The engine's behaviour beside decoding.
#[derive(Debug)]
pub struct Plan {
    /// Milliseconds that a step takes longer.
    pub delay: AtomicU64,
    /// Steps until the device fails; negative for never.
    pub fail_in: AtomicI64,
    /// Steps until a kernel faults on the device; negative for never.
    pub fault_in: AtomicI64,
    /// Steps until the engine panics; negative for never.
    pub panic_in: AtomicI64,
    /// Whether it cannot be set up.
    pub broken: AtomicBool,
    /// Number of times it was set up.
    pub builds: AtomicU64,
    /// Steps in all.
    pub steps: AtomicU64,
    /// A token after which no logit is a number; negative for none.
    pub poison: AtomicI64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            delay: AtomicU64::new(0),
            fail_in: AtomicI64::new(-1),
            fault_in: AtomicI64::new(-1),
            panic_in: AtomicI64::new(-1),
            broken: AtomicBool::new(false),
            builds: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            poison: AtomicI64::new(-1),
        }
    }
}

impl Plan {
    /// Runs the plan's events before a step.
    fn step(&self) -> Result<()> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        thread::sleep(Duration::from_millis(self.delay.load(Ordering::SeqCst)));
        if self.fail_in.fetch_sub(1, Ordering::SeqCst) == 0 {
            return Err(device_error());
        }
        assert!(self.panic_in.fetch_sub(1, Ordering::SeqCst) != 0, "planned");
        Ok(())
    }
}

/// Runs a kernel that reads where nothing is mapped.
fn fault(device: &Device) -> Result<()> {
    let kernel = device.load(VADD)?.kernel("vadd_f32")?;
    let nowhere = 0x5_0000_0000;
    let args = Args::new().u64(nowhere).u64(nowhere).u64(nowhere).u32(32);
    let mut queue = device.queue()?;
    // SAFETY: nothing is mapped there, so the software GPU stops the kernel.
    unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args)? };
    queue.submit()?.wait(Duration::from_secs(60))?;
    Ok(())
}

fn device_error() -> Error {
    Error::Device(hcq::Error::Driver(hcq::DriverError::Answer {
        name: "TEST_IOCTL",
        value: 7,
        expected: "8",
    }))
}

/// Columns, which fail as planned.
struct FaultyColumns {
    device: Device,
    inner: Columns,
    plan: Arc<Plan>,
}

impl Sequences for FaultyColumns {
    type Id = ColumnId;
    type Page = KeptPage;

    fn most_columns(&self) -> usize {
        self.inner.most_columns()
    }

    fn most_sequences(&self) -> usize {
        self.inner.most_sequences()
    }

    fn context(&self) -> usize {
        self.inner.context()
    }

    fn page_positions(&self) -> usize {
        PAGE
    }

    fn free_pages(&self) -> usize {
        self.inner.free_pages()
    }

    fn vocab(&self) -> usize {
        self.inner.vocab()
    }

    fn admit_with(&mut self, pages: &[&KeptPage], len: usize) -> Result<ColumnId> {
        self.inner.admit_with(pages, len)
    }

    fn keep_page(&mut self, id: ColumnId, number: usize) -> Result<KeptPage> {
        self.inner.keep_page(id, number)
    }

    fn give_back(&mut self, page: KeptPage) {
        self.inner.give_back(page);
    }

    fn is_kept_alone(&self, page: &KeptPage) -> bool {
        self.inner.is_kept_alone(page)
    }

    fn release(&mut self, id: ColumnId) -> Result<()> {
        self.inner.release(id)
    }

    fn truncate(&mut self, id: ColumnId, len: usize) -> Result<()> {
        self.inner.truncate(id, len)
    }

    fn position(&self, id: ColumnId) -> Result<usize> {
        self.inner.position(id)
    }

    fn pages_needed(&self, id: ColumnId, tokens: usize) -> Result<usize> {
        self.inner.pages_needed(id, tokens)
    }

    fn fill(&mut self, work: &[(ColumnId, u32)]) -> Result<()> {
        self.plan.step()?;
        self.inner.fill(work)
    }

    fn fill_with_states(&mut self, work: &[(ColumnId, u32)]) -> Result<()> {
        self.plan.step()?;
        self.inner.fill_with_states(work)
    }

    fn state(&self, column: usize) -> Result<Vec<f32>> {
        self.inner.state(column)
    }

    fn step(&mut self, work: &[(ColumnId, u32)]) -> Result<Vec<Option<u32>>> {
        self.plan.step()?;
        if self.plan.fault_in.fetch_sub(1, Ordering::SeqCst) == 0 {
            fault(&self.device)?;
        }
        let poison = self.plan.poison.load(Ordering::SeqCst);
        let greedy = self.inner.step(work)?.into_iter().zip(work);
        Ok(greedy.map(|(next, (_, token))| next.filter(|_| i64::from(*token) != poison)).collect())
    }

    fn logits(&self, column: usize) -> Result<Vec<f32>> {
        self.inner.logits(column)
    }
}

/// Differences of a server from the usual one.
pub struct Setup {
    pub context: usize,
    pub parallel: usize,
    pub waiting: usize,
    pub limits: Limits,
    pub access: Access,
    pub template: Option<&'static str>,
    pub patience: Duration,
    /// Whether there is a prefix cache.
    pub caches: bool,
    /// Whether fields without effect are refused.
    pub strict: bool,
    pub pooling: Pooling,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            context: 256,
            parallel: 1,
            waiting: 8,
            limits: Limits::default(),
            access: Access { loopback: true, ..Access::default() },
            template: Some("{% for m in messages %}{{ m.content }}{% endfor %}"),
            patience: PATIENCE,
            caches: true,
            strict: false,
            pooling: Pooling::Mean,
        }
    }
}

/// A running server.
pub struct Server {
    pub address: SocketAddr,
    pub plan: Arc<Plan>,
    stop: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
}

/// An answer.
#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Reply {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// The message of an error in OpenAI's shape.
    pub fn message(&self) -> String {
        let error = self.json();
        let error = &error["error"];
        assert!(
            error["type"].is_string() && error.get("param").is_some() && error.get("code").is_some(),
            "{self:?}"
        );
        error["message"].as_str().expect("a message").to_owned()
    }

    /// The data of the events of a stream.
    pub fn events(&self) -> Vec<String> {
        let data = self.body.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
        data.map(str::to_owned).collect()
    }
}

impl Server {
    pub fn start(setup: Setup) -> Self {
        Self::with_plan(setup, Plan::default())
    }

    pub fn with_plan(setup: Setup, plan: Plan) -> Self {
        let model = Box::leak(Box::new(embedded::model().expect("a model")));
        let tokenizer = Arc::new(Tokenizer::from_gguf(&model.gguf).expect("a tokenizer"));
        let (plan, metrics) = (Arc::new(plan), Arc::new(Metrics::default()));
        let Setup { context, parallel, waiting, limits, access, template, patience, caches, strict, pooling } =
            setup;
        let width = model.config.hidden;
        let template = template.map(|source| Template::new(source, "", "").expect("a template"));

        let words: &'static Tokenizer = Box::leak(Box::new(Tokenizer::from_gguf(&model.gguf).expect("one")));
        let (sender, receiver) = std::sync::mpsc::channel();
        let (at, counts) = (Arc::clone(&plan), Arc::clone(&metrics));
        let worker = thread::spawn(move || {
            let build: Build<'_> = Box::new(|| {
                at.builds.fetch_add(1, Ordering::SeqCst);
                anyhow::ensure!(!at.broken.load(Ordering::SeqCst), "the GPU has fallen off the bus");
                let plan = Arc::clone(&at);
                let device = Device::open(Selector::Sim)?;
                let inner = Columns::new(&device, model, &ColumnsOptions::new(parallel, context))?;
                let sharing = Sharing { caches, ..Sharing::default() };
                Ok(Box::new(Batch::new(words, FaultyColumns { device, inner, plan }, sharing)))
            });
            let options = Options { waiting, retry: Duration::from_millis(50) };
            let (scheduler, worker) = scheduler::new(options, counts, build);
            sender.send(scheduler).expect("somebody waits");
            worker.run();
        });
        let scheduler = receiver.recv().expect("a scheduler");
        let sampling = SamplerOptions::GREEDY;
        let defaults =
            Defaults { sampling, penalties: Penalties::NONE, bias: Vec::new(), seed: None, count: None };
        let app = App {
            scheduler: scheduler.clone(),
            tokenizer,
            template,
            metrics,
            model: "stories".into(),
            context,
            defaults,
            limits,
            access,
            unknown: Unknown::new(strict),
            parallel,
            embeddings: Embeddings { pooling, width },
            own: Own::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let (stop, stopped) = watch::channel(false);
        let http = thread::spawn(move || {
            let runtime = runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            let served = runtime.block_on(listen::serve(
                listener,
                router(Arc::new(app)),
                limits,
                scheduler,
                stopped,
                patience,
            ));
            served.expect("served");
        });
        Self { address, plan, stop, threads: vec![http, worker] }
    }

    /// Asks the server to end.
    pub fn stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits for the end.
    pub fn join(mut self) {
        self.threads.drain(..).for_each(|thread| thread.join().expect("no panic"));
    }

    /// Sends the bytes of a request.
    pub fn send(&self, request: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(PATIENCE)).expect("set");
        stream.write_all(request.as_bytes()).expect("sent");
        stream
    }

    pub fn get(&self, path: &str) -> Reply {
        receive(self.send(&format!("GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")))
    }

    /// Begins a request with a JSON body.
    pub fn begin(&self, path: &str, body: &str) -> TcpStream {
        self.send(&post(path, body))
    }

    pub fn post(&self, path: &str, body: &str) -> Reply {
        receive(self.begin(path, body))
    }

    /// A completion of the model's own prompt.
    pub fn complete(&self, more: &str) -> Reply {
        self.post("/v1/completions", &completion(more))
    }

    /// The value of a counter.
    pub fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").body;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("{name}: {text}")).parse().expect("a number")
    }

    /// Waits until `condition` holds.
    pub fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !condition(self) {
            assert!(begin.elapsed() < PATIENCE, "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.plan.delay.store(0, Ordering::SeqCst);
        self.stop();
        for thread in self.threads.drain(..) {
            if thread.join().is_err() && !thread::panicking() {
                panic!("a thread of the server panicked");
            }
        }
    }
}

/// A completion of the model's own prompt, with further fields.
pub fn completion(more: &str) -> String {
    format!("{{\"prompt\": {:?}{}{more}}}", embedded::PROMPT, if more.is_empty() { "" } else { ", " })
}

/// The bytes of a request in HTTP 1.0, whose answer ends with the connection.
pub fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
}

/// The rest of an answer.
pub fn receive(stream: TcpStream) -> Reply {
    try_receive(stream).expect("an answer")
}

pub fn try_receive(mut stream: TcpStream) -> io::Result<Reply> {
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return Err(io::Error::other(format!("no answer: {text:?}")));
    };
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
    Ok(Reply { status, head: head.to_lowercase(), body: body.to_owned() })
}
