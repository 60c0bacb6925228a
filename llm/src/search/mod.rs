//! Searches the shapes of kernels that are fastest on a device for a model.
//!
//! Candidates are compiled, launched once and compared with the results of the default shape, and then timed
//! alternately with it on the model's own matrices; the median counts. A candidate that does not fit the
//! device, fails or gives other results is rejected.

mod bench;
mod gemm;
mod matvec;
mod meter;
mod outcome;

use std::collections::BTreeSet;
use std::time::Instant;

use hcq::Device;

use crate::cache::CacheType;
use crate::engine::memory::DeviceModel;
use crate::engine::operations::Operations;
use crate::engine::programs::Programs;
use crate::error::Result;
use crate::kernels::choices::{Choices, Kernels};
use crate::model::Model;
use crate::search::bench::Bench;
use crate::tuning::compile::Compiler;
use crate::tuning::entry::{Entry, Method, Subject};

pub use meter::{Counter, Meter};
pub use outcome::{Finding, Limits, Listener, Outcome, Part, Progress, Rejected};

/// Searches the shapes for `model` on `device`.
///
/// # Errors
/// As [`Engine::new`](crate::engine::Engine::new); an error of `listener`;
/// [`Error::TuningStopped`](crate::Error::TuningStopped) if the device fails with a candidate.
pub fn search(
    device: &Device,
    model: &Model,
    compiler: &Compiler,
    meter: Meter,
    limits: &Limits,
    listener: &mut dyn Listener,
) -> Result<Outcome> {
    let (total, mut done) = (model.tensor_bytes(), 0);
    let context = limits.context.clamp(1, model.config.context);
    let mut programs = Programs::new(device, Kernels::new())?;
    let method = match meter {
        Meter::Clock => Method::Measured,
        Meter::Count(_) => Method::Predicted,
    };
    let entry = Entry::new(Subject::new(device.info(), model), method, compiler.version());
    // The cache is a small part of the bytes that are read here.
    let model = DeviceModel::load(device, model, (context, context, CacheType::F16), &mut |bytes| {
        done += bytes;
        listener.loading(done, total);
    })?;
    let operations = Operations::new(&model, &mut programs, &Choices::default())?;
    let outcome = Outcome {
        entry,
        kernels: Kernels::new(),
        findings: Vec::new(),
        rejected: Vec::new(),
        left_out: Vec::new(),
        out_of_time: false,
    };
    let mut bench = Bench {
        queue: device.queue()?,
        model,
        operations,
        programs,
        compiler,
        meter,
        limits,
        deadline: Instant::now(),
        compiled: Kernels::new(),
        refused: BTreeSet::new(),
        outcome,
        listener,
    };
    let end = Instant::now() + limits.budget;
    for (i, part) in limits.parts.iter().enumerate() {
        let left = end.saturating_duration_since(Instant::now());
        bench.deadline = Instant::now() + left / (limits.parts.len() - i) as u32;
        match part {
            Part::Matvec => matvec::search(&mut bench)?,
            Part::Prompt => gemm::search(&mut bench)?,
        }
        bench.report()?;
    }
    Ok(bench.outcome)
}
