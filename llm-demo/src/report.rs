//! The facts on which every figure depends, printed beside it: device, clocks, model, types.

use std::io::{self, StdoutLock, Write};
use std::path::Path;

use ga10b_llm::Model;
use ga10b_llm::tuning::ModelShape;
use ga10b_llm_tools::power::Power;
use serde::Serialize;

use crate::terminal;

/// The facts of the device that a comparison needs.
#[derive(Debug, Serialize)]
pub struct DeviceReport {
    pub name: String,
    pub backend: String,
    sm: u32,
    sm_count: u32,
    max_clock_hz: Option<u64>,
    memory_bytes: u64,
    unified_memory: bool,
    /// Whether the device is the software one: its times are not those of a GPU.
    is_software: bool,
    driver_version: String,
    power: Power,
}

/// The facts of the model that a comparison needs.
#[derive(Debug, Serialize)]
pub struct ModelReport {
    name: String,
    pub architecture: &'static str,
    pub quantization: String,
    pub parameters: u64,
    pub tensor_bytes: u64,
    #[serde(flatten)]
    shape: ModelShape,
}

/// Writes `report` to standard output, as one document of JSON or through `print`.
pub fn show<R: Serialize>(
    report: &R,
    json: bool,
    print: impl FnOnce(&R, &mut StdoutLock<'static>) -> io::Result<()>,
) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if !json {
        return print(report, &mut out);
    }
    serde_json::to_writer_pretty(&mut out, report)?;
    writeln!(out)
}

impl DeviceReport {
    pub fn new(info: &hcq::Info) -> Self {
        Self {
            name: info.name.clone(),
            backend: info.backend.to_string(),
            sm: info.sm_number(),
            sm_count: info.sm_count,
            max_clock_hz: info.max_clock_hz,
            memory_bytes: info.memory,
            unified_memory: info.unified_memory,
            is_software: info.backend == hcq::BackendKind::Sim,
            driver_version: info.driver_version.clone(),
            power: match info.backend {
                hcq::BackendKind::Nvgpu => Power::read(Path::new("/")),
                _ => Power::default(),
            },
        }
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        write!(out, "device      {} ({}), sm_{}, {} SMs", self.name, self.backend, self.sm, self.sm_count)?;
        if let Some(clock) = self.max_clock_hz {
            write!(out, ", at most {:.0} MHz", clock as f64 / 1e6)?;
        }
        writeln!(out, ", driver {}", self.driver_version)?;
        if self.is_software {
            writeln!(
                out,
                "note        the device is simulated: times are those of the simulation, not of a GPU"
            )?;
        }
        if self.power.is_unknown() {
            return Ok(());
        }
        let Power { mode, gpu_hz, gpu_max_hz, emc_hz } = self.power;
        let megahertz = |hz: Option<u64>| hz.map_or("?".to_owned(), |hz| format!("{:.0}", hz as f64 / 1e6));
        let [gpu, most, emc] = [gpu_hz, gpu_max_hz, emc_hz].map(megahertz);
        let mode = mode.map_or("?".to_owned(), |m| m.to_string());
        writeln!(out, "power       mode {mode}, GPU {gpu} of {most} MHz, EMC {emc} MHz")
    }
}

impl ModelReport {
    pub fn new(model: &Model) -> Self {
        Self {
            name: model.name().unwrap_or("unnamed").to_owned(),
            architecture: model.config.architecture.name,
            quantization: model.quantization(),
            parameters: model.gguf.tensors().iter().map(|t| t.dims.iter().product::<u64>()).sum(),
            tensor_bytes: model.tensor_bytes(),
            shape: ModelShape::of(&model.config),
        }
    }

    pub fn print(&self, out: &mut impl Write) -> io::Result<()> {
        let Self { name, quantization, shape, .. } = self;
        let name = terminal::on_stdout(name);
        let ModelShape { layers, hidden, ff, heads, kv_heads, head_dim, vocab } = shape;
        let (parameters, bytes) = (self.parameters as f64 / 1e6, self.tensor_bytes as f64 / 1e6);
        writeln!(out, "model       {name}, {quantization}, {parameters:.1} M parameters, {bytes:.1} MB")?;
        write!(out, "shape       {layers} layers, width {hidden}, feed-forward {ff}, ")?;
        writeln!(out, "{heads} heads of {head_dim} on {kv_heads}, vocabulary {vocab}")
    }
}
