//! Searches the shapes of kernels that are fastest on a device for a model.
//!
//! Candidates are compiled, launched once and compared with the results of the default shape, and then timed
//! alternately with it on the model's own matrices; the median counts. A candidate that does not fit the
//! device, fails or gives other results is rejected.

mod bench;
mod gemm;
mod meter;
mod outcome;

use std::collections::BTreeSet;
use std::time::Instant;

use hcq::Device;

use crate::cache::CacheType;
use crate::engine::cache::pages_for;
use crate::engine::memory::DeviceModel;
use crate::engine::programs::Programs;
use crate::error::Result;
use crate::kernels::choices::Kernels;
use crate::model::Model;
use crate::search::bench::Bench;
use crate::tuning::compile::Compiler;
use crate::tuning::entry::{Entry, Method, Subject};

pub use meter::{Counter, Meter};
pub use outcome::{Finding, Limits, Listener, Outcome, Progress, Rejected};

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
    let programs = Programs::new(device, Kernels::new())?;
    let method = match meter {
        Meter::Clock => Method::Measured,
        Meter::Count(_) => Method::Predicted,
    };
    let entry = Entry::new(Subject::new(device.info(), model), method, compiler.version());
    // The cache is a small part of the bytes that are read here.
    let model =
        DeviceModel::load(device, model, (context, pages_for(context), CacheType::F16), &mut |bytes| {
            done += bytes;
            listener.loading(done, total);
        })?;
    let outcome = Outcome {
        entry,
        kernels: Kernels::new(),
        findings: Vec::new(),
        rejected: Vec::new(),
        left_out: None,
        out_of_time: false,
    };
    let mut bench = Bench {
        queue: device.queue()?,
        model,
        programs,
        compiler,
        meter,
        limits,
        deadline: Instant::now() + limits.budget,
        compiled: Kernels::new(),
        refused: BTreeSet::new(),
        outcome,
        listener,
    };
    gemm::search(&mut bench)?;
    bench.report()?;
    Ok(bench.outcome)
}
