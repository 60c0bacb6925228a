//! Counters and times for Prometheus.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::{Registry, Unit};

/// The media type of [`Metrics::text`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// One counter of answers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Answered {
    /// The route, `other` for none.
    path: &'static str,
    status: u16,
}

/// The server's counters.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    answers: Family<Answered, Counter>,
    pub prompt_tokens: Counter,
    pub cached_tokens: Counter,
    pub generated_tokens: Counter,
    pub cancelled: Counter,
    pub engine_failures: Counter,
    pub waiting: Gauge,
    pub running: Gauge,
    pub pages_free: Gauge,
    pub pages_cached: Gauge,
    pub pages_evicted: Counter,
    pub proposed_tokens: Counter,
    pub accepted_tokens: Counter,
    steps: Counter,
    step_columns: Histogram,
    first_token: Histogram,
    next_token: Histogram,
    request: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        // From 1 ms to 4 minutes, and from 0.1 ms to 3 s.
        let long = || Histogram::new(exponential_buckets(0.001, 2.0, 19));
        let mut metrics = Self {
            registry: Registry::with_prefix("llm_demo"),
            answers: Family::default(),
            prompt_tokens: Counter::default(),
            cached_tokens: Counter::default(),
            generated_tokens: Counter::default(),
            cancelled: Counter::default(),
            engine_failures: Counter::default(),
            waiting: Gauge::default(),
            running: Gauge::default(),
            pages_free: Gauge::default(),
            pages_cached: Gauge::default(),
            pages_evicted: Counter::default(),
            proposed_tokens: Counter::default(),
            accepted_tokens: Counter::default(),
            steps: Counter::default(),
            step_columns: Histogram::new(exponential_buckets(1.0, 2.0, 6)),
            first_token: long(),
            next_token: Histogram::new(exponential_buckets(0.0001, 2.0, 16)),
            request: long(),
        };
        metrics.register();
        metrics
    }
}

impl Metrics {
    fn register(&mut self) {
        let r = &mut self.registry;
        r.register("answers", "Answers, by route and status", self.answers.clone());
        r.register("prompt_tokens", "Tokens of prompts", self.prompt_tokens.clone());
        r.register("cached_tokens", "Tokens of prompts that came from the cache", self.cached_tokens.clone());
        r.register("generated_tokens", "Tokens of texts", self.generated_tokens.clone());
        r.register("cancelled_requests", "Requests whose client went away", self.cancelled.clone());
        r.register("engine_failures", "Failures of the device or the engine", self.engine_failures.clone());
        r.register("requests_waiting", "Requests that wait", self.waiting.clone());
        r.register("requests_running", "Requests that are processed", self.running.clone());
        r.register(
            "pages_free",
            "Pages that no text has, and the prefix cache neither",
            self.pages_free.clone(),
        );
        r.register("pages_cached", "Pages of the prefix cache", self.pages_cached.clone());
        r.register("pages_evicted", "Pages that the prefix cache gave up", self.pages_evicted.clone());
        r.register("proposed_tokens", "Tokens that --lookup proposed", self.proposed_tokens.clone());
        r.register("accepted_tokens", "Proposed tokens that were chosen", self.accepted_tokens.clone());
        r.register("steps", "Steps of several requests", self.steps.clone());
        r.register("step_columns", "Tokens of a step, of all its requests", self.step_columns.clone());
        let mut times = |name, help, histogram: &Histogram| {
            r.register_with_unit(name, help, Unit::Seconds, histogram.clone());
        };
        times("time_to_first_token", "From the arrival of a request to its first token", &self.first_token);
        times("time_per_token", "Between two tokens of a text", &self.next_token);
        times("request_duration", "From the arrival of a request to the end of its text", &self.request);
    }

    pub fn answered(&self, path: &'static str, status: u16) {
        self.answers.get_or_create(&Answered { path, status }).inc();
    }

    pub fn first_token(&self, time: Duration) {
        self.first_token.observe(time.as_secs_f64());
    }

    pub fn next_token(&self, time: Duration) {
        self.next_token.observe(time.as_secs_f64());
    }

    /// A step of several requests, with so many tokens; 0 is none.
    pub fn step(&self, columns: usize) {
        if columns > 0 {
            self.steps.inc();
            self.step_columns.observe(columns as f64);
        }
    }

    pub fn request(&self, time: Duration) {
        self.request.observe(time.as_secs_f64());
    }

    /// All of it, as Prometheus reads it.
    pub fn text(&self) -> Result<String, std::fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }
}
