//! Writes a trace of host and GPU while a text is generated.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context;
use ga10b_llm::Model;
use ga10b_llm_tools::trace::{Clocks, HostSpans, Trace};
use hcq::ClockPair;
use serde_json::{Map, json};

use crate::report::{DeviceReport, ModelReport};
use crate::session::Session;

/// A trace that is being recorded.
pub struct Recording {
    path: PathBuf,
    file: File,
    spans: HostSpans,
    origin: Instant,
    first: ClockPair,
}

impl Recording {
    /// Creates the file and starts to take times.
    pub fn start(path: &Path, spans: HostSpans, session: &mut Session) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| format!("cannot write {}", path.display()))?;
        session.engine.start_trace()?;
        // Earlier spans are not part of the trace.
        spans.take();
        let origin = Instant::now();
        let first = session.device.clock_pair()?;
        Ok(Self { path: path.to_owned(), file, spans, origin, first })
    }

    /// Writes the file.
    pub fn finish(self, session: &mut Session, model: &Model) -> anyhow::Result<()> {
        let launches = session.engine.take_trace();
        let last = session.device.clock_pair()?;
        let clocks = Clocks { origin: self.origin, first: self.first, last };
        let mut about = Map::new();
        about.insert("program".into(), concat!("llm-demo ", env!("CARGO_PKG_VERSION")).into());
        about.insert("device".into(), json!(DeviceReport::new(session.device.info())));
        about.insert("model".into(), json!(ModelReport::new(model)));
        about.insert("engine".into(), session.engine.mode().name().into());
        let trace = Trace::new(about, &clocks, &self.spans.take(), &launches);
        let path = self.path.display();
        trace.write(BufWriter::new(self.file)).with_context(|| format!("cannot write {path}"))?;
        anstream::eprintln!(
            "[{path}: {} launches; open it at https://ui.perfetto.dev or chrome://tracing]",
            launches.len()
        );
        Ok(())
    }
}
