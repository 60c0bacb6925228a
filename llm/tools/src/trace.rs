//! Traces of host and GPU in the trace-event format, which Perfetto (<https://ui.perfetto.dev>) and Chrome
//! display.
//!
//! A slice has a start and a duration; slices of one track are nested or disjoint. Times are in µs from the
//! start of the trace on the program's clock, with a resolution of 1 ns; [`Clocks`] converts times of the
//! GPU. Format: "Trace Event Format", the JSON object form, of the Chromium project.

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hcq::ClockPair;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;

use ga10b_llm::engine::{LaunchTime, PhaseTime, Work};
use ga10b_llm::spans::HOST;

/// An action of the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpan {
    /// Name of the action.
    pub name: &'static str,
    /// When it started.
    pub start: Instant,
    /// When it ended.
    pub end: Instant,
    /// The span's fields.
    pub args: Map<String, Value>,
}

/// Collects the spans of target [`HOST`] of the thread that works with the device: a layer of a `tracing`
/// subscriber. Clones share their spans.
#[derive(Clone, Debug, Default)]
pub struct HostSpans(Arc<Mutex<Vec<HostSpan>>>);

impl HostSpans {
    /// Removes and returns the collected spans, in the order of their ends.
    pub fn take(&self) -> Vec<HostSpan> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The layer's data in a span.
struct Open {
    args: Map<String, Value>,
    start: Option<Instant>,
}

impl Visit for Open {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.args.insert(field.name().to_owned(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.args.insert(field.name().to_owned(), format!("{value:?}").into());
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for HostSpans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id).filter(|_| attributes.metadata().target() == HOST) {
            let mut open = Open { args: Map::new(), start: None };
            attributes.record(&mut open);
            span.extensions_mut().insert(open);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(open) = span.extensions_mut().get_mut::<Open>()
        {
            open.start = Some(Instant::now());
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let end = Instant::now();
        let Some(span) = context.span(id) else { return };
        if let Some(open) = span.extensions_mut().get_mut::<Open>()
            && let Some(start) = open.start.take()
        {
            let span = HostSpan { name: span.name(), start, end, args: open.args.clone() };
            self.0.lock().unwrap_or_else(PoisonError::into_inner).push(span);
        }
    }
}

/// The relation of the GPU's clock and the program's.
#[derive(Clone, Copy, Debug)]
pub struct Clocks {
    /// Start of the trace.
    pub origin: Instant,
    /// Both clocks before the trace.
    pub first: ClockPair,
    /// Both clocks after the trace.
    pub last: ClockPair,
}

impl Clocks {
    /// Time from the origin on the program's clock, in ns.
    fn host(&self, at: Instant) -> i64 {
        match at.checked_duration_since(self.origin) {
            Some(after) => after.as_nanos() as i64,
            None => -((self.origin - at).as_nanos() as i64),
        }
    }

    /// ns of the program's clock per ns of the GPU's.
    fn rate(&self) -> f64 {
        let gpu = self.last.gpu_ns.saturating_sub(self.first.gpu_ns);
        let cpu = self.last.cpu.saturating_duration_since(self.first.cpu).as_nanos() as u64;
        if gpu == 0 || cpu == 0 { 1.0 } else { cpu as f64 / gpu as f64 }
    }

    /// A time of the GPU's clock as ns from the origin, on the line through both pairs.
    fn gpu(&self, ns: u64) -> i64 {
        let after = i128::from(ns) - i128::from(self.first.gpu_ns);
        self.host(self.first.cpu) + (after as f64 * self.rate()).round() as i64
    }

    /// Largest error of a time of the GPU on the program's clock.
    fn error(&self) -> Duration {
        self.first.error.max(self.last.error)
    }
}

/// An event of the format.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "ph")]
enum Event {
    /// A name for a process or a thread.
    #[serde(rename = "M")]
    Name { name: &'static str, pid: u32, tid: u32, args: Map<String, Value> },
    /// A slice.
    #[serde(rename = "X")]
    Slice {
        name: String,
        cat: &'static str,
        #[serde(serialize_with = "micros")]
        ts: i64,
        #[serde(serialize_with = "micros")]
        dur: i64,
        pid: u32,
        tid: u32,
        args: Map<String, Value>,
    },
    /// New values of a counter.
    #[serde(rename = "C")]
    Counter {
        name: &'static str,
        #[serde(serialize_with = "micros")]
        ts: i64,
        pid: u32,
        args: BTreeMap<&'static str, f64>,
    },
}

/// ns as µs. A double keeps three decimals for a hundred days.
fn micros<S: serde::Serializer>(ns: &i64, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(*ns as f64 / 1e3)
}

/// A track of slices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Track {
    pid: u32,
    tid: u32,
}

const HOST_TRACK: Track = Track { pid: 1, tid: 1 };
const QUEUE: Track = Track { pid: 2, tid: 1 };
const PHASES: Track = Track { pid: 2, tid: 2 };

/// A trace: one document of JSON.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Trace {
    trace_events: Vec<Event>,
    display_time_unit: &'static str,
    other_data: Map<String, Value>,
}

impl Trace {
    /// A trace of host and GPU. `about` describes what was traced and becomes metadata of the document.
    pub fn new(
        mut about: Map<String, Value>,
        clocks: &Clocks,
        host: &[HostSpan],
        launches: &[LaunchTime],
    ) -> Self {
        about.extend(notes(clocks));
        let names = [
            ("process_name", HOST_TRACK, "host"),
            ("thread_name", HOST_TRACK, "decoding"),
            ("process_name", QUEUE, "GPU"),
            ("thread_name", QUEUE, "queue"),
            ("thread_name", PHASES, "phases of the step kernel"),
        ];
        let with_phases = launches.iter().any(|l| !l.phases.is_empty());
        let names = names.into_iter().filter(|(_, track, _)| *track != PHASES || with_phases);
        let names = names.map(|(name, Track { pid, tid }, value)| {
            let args = object(json!({ "name": value }));
            Event::Name { name, pid, tid, args }
        });
        let mut drawing = Drawing { clocks, events: names.collect() };
        let named = drawing.events.len();
        for span in host {
            let (start, end) = (clocks.host(span.start), clocks.host(span.end));
            drawing.slice(HOST_TRACK, (span.name.to_owned(), "host"), (start, end), span.args.clone());
        }
        let mut last_step = None;
        for work in launches.chunk_by(|a, b| (a.work, a.position) == (b.work, b.position)) {
            drawing.work(work);
            if let ([first, ..], [.., last]) = (work, work)
                && first.work == Work::Step
            {
                let (start, end) = (clocks.gpu(first.start), clocks.gpu(last.end));
                let since = last_step.replace(end).unwrap_or(start);
                drawing.count("tokens/s", end, 1e9 / (end - since).max(1) as f64);
            }
        }
        let mut trace_events = drawing.events;
        // Of two slices that start together the outer one comes first.
        trace_events[named..].sort_by_key(|event| match event {
            Event::Slice { ts, dur, .. } => (*ts, 1, -dur),
            Event::Counter { ts, .. } => (*ts, 0, 0),
            Event::Name { .. } => (i64::MIN, 0, 0),
        });
        Self { trace_events, display_time_unit: "ns", other_data: about }
    }

    /// Writes the document.
    ///
    /// # Errors
    /// The errors of `out`.
    pub fn write(&self, mut out: impl Write) -> io::Result<()> {
        serde_json::to_writer(&mut out, self)?;
        writeln!(out)?;
        out.flush()
    }
}

/// Notes for the reader of the trace.
fn notes(clocks: &Clocks) -> Map<String, Value> {
    object(json!({
        "gpu_clock_error_ns": clocks.error().as_nanos() as u64,
        "gpu_clock_drift_ppm": 1e6 * (clocks.rate() - 1.0),
        "gpu_clock": "times of the GPU are converted to the program's clock by a line through two readings of both, before and \
                      after the trace; the error is the larger one of the readings",
        "launches": "run one after the other with a timestamp after each: launches that could overlap do not, so a step takes \
                     longer than without the trace",
        "phases": "of a step in one launch, by the clock of its first block, scaled to the time of the launch",
        "bytes": "weights, keys and values that are read, computed from the shape of the model",
    }))
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Collects events.
struct Drawing<'a> {
    clocks: &'a Clocks,
    events: Vec<Event>,
}

impl Drawing<'_> {
    fn slice(
        &mut self,
        Track { pid, tid }: Track,
        (name, cat): (String, &'static str),
        (start, end): (i64, i64),
        args: Map<String, Value>,
    ) {
        let dur = (end - start).max(0);
        self.events.push(Event::Slice { name, cat, ts: start, dur, pid, tid, args });
    }

    fn count(&mut self, name: &'static str, ts: i64, value: f64) {
        self.events.push(Event::Counter { name, ts, pid: QUEUE.pid, args: BTreeMap::from([(name, value)]) });
    }

    /// Sets the rate of `bytes` bytes from the start of a time.
    fn rate(&mut self, (start, end): (i64, i64), bytes: u64) {
        self.count("GB/s", start, bytes as f64 / (end - start).max(1) as f64);
    }

    /// The launches of a step, or of a part of a prompt.
    fn work(&mut self, launches: &[LaunchTime]) {
        let ([first, ..], [.., last]) = (launches, launches) else { return };
        let around = (self.clocks.gpu(first.start), self.clocks.gpu(last.end));
        let args = json!({ "position": first.position, "launches": launches.len() });
        self.slice(QUEUE, (first.work.name().to_owned(), "work"), around, object(args));
        for launch in launches {
            let time = (self.clocks.gpu(launch.start), self.clocks.gpu(launch.end));
            let args = json!({
                "kernel": launch.name,
                "layer": launch.layer,
                "grid": launch.grid,
                "threads": launch.threads,
                "bytes": launch.bytes,
                "GB/s": launch.bytes as f64 / (launch.end - launch.start).max(1) as f64,
                "position": launch.position,
            });
            self.slice(QUEUE, (launch.role.to_owned(), "launch"), time, object(args));
            match launch.phases.is_empty() {
                true => self.rate(time, launch.bytes),
                false => launch.phases.iter().for_each(|phase| self.phase(launch, phase)),
            }
        }
        self.count("GB/s", around.1, 0.0);
    }

    /// A phase, and the parts of its time.
    fn phase(&mut self, launch: &LaunchTime, phase: &PhaseTime) {
        let time = (self.clocks.gpu(phase.start), self.clocks.gpu(phase.end));
        let args = json!({
            "kernel": launch.name,
            "layer": phase.layer,
            "bytes": phase.bytes,
            "position": launch.position,
        });
        self.slice(PHASES, (phase.role.to_owned(), "phase"), time, object(args));
        self.rate(time, phase.bytes);
        let p = &phase.parts;
        let parts = [
            ("waiting", p.waiting),
            ("input", p.input),
            ("products", p.products),
            ("results", p.results),
            ("end", p.end),
        ];
        let mut at = phase.start;
        for (name, ns) in parts {
            let part = (self.clocks.gpu(at), self.clocks.gpu(at + ns));
            self.slice(PHASES, (name.to_owned(), "part"), part, Map::new());
            at += ns;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_gpu_lie_between_the_readings_of_both_clocks() {
        let origin = Instant::now();
        let pair = |gpu_ns, ns| ClockPair {
            gpu_ns,
            cpu: origin + Duration::from_nanos(ns),
            error: Duration::from_nanos(100 + ns / 1000),
        };
        // The GPU's clock is a thousandth slow.
        let clocks = Clocks { origin, first: pair(5_000_000, 1_000), last: pair(5_999_000, 1_001_000) };
        assert_eq!(clocks.gpu(5_000_000), 1_000);
        assert_eq!(clocks.gpu(5_999_000), 1_001_000);
        assert_eq!(clocks.gpu(5_499_500), 501_000);
        assert_eq!(clocks.gpu(4_999_000), -1);
        assert_eq!(clocks.error(), Duration::from_nanos(1101));
    }
}
