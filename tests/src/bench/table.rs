//! The output: a table for people, or one JSON document.

use crate::output;
use anyhow::Result;
use hcq::Device;
use serde::Serialize;

/// One row of the table.
#[derive(Debug, Serialize)]
pub struct Figure {
    name: String,
    unit: &'static str,
    p50: f64,
    p99: f64,
    min: f64,
    max: f64,
    samples: usize,
    /// Percent of the chip's limit at the median, where the caller named the limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    percent_of_limit: Option<f64>,
    /// Instructions that warps issued per run, counted by the software GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    warp_instructions: Option<u64>,
}

impl Figure {
    /// A row of at least one sample.
    pub fn new(name: impl Into<String>, unit: &'static str, mut samples: Vec<f64>) -> Self {
        samples.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = ((samples.len() as f64 * share) as usize).min(samples.len().saturating_sub(1));
            samples.get(index).copied().unwrap_or(f64::NAN)
        };
        Self {
            name: name.into(),
            unit,
            p50: at(0.5),
            p99: at(0.99),
            min: at(0.0),
            max: at(1.0),
            samples: samples.len(),
            percent_of_limit: None,
            warp_instructions: None,
        }
    }

    /// With the share of `limit`, in the figure's unit.
    pub fn of_limit(mut self, limit: Option<f64>) -> Self {
        self.percent_of_limit = limit.map(|limit| 100.0 * self.p50 / limit);
        self
    }

    /// With what the software GPU counted.
    pub fn counted(mut self, warp_instructions: Option<u64>) -> Self {
        self.warp_instructions = warp_instructions;
        self
    }
}

#[derive(Serialize)]
struct Report<'a> {
    schema: &'static str,
    device: &'a str,
    backend: String,
    driver: &'a str,
    sm_count: u32,
    figures: &'a [Figure],
}

/// Prints what was measured on `device`.
pub fn print(device: &Device, figures: &[Figure], json: bool) -> Result<()> {
    let info = device.info();
    let report = Report {
        schema: "hcq.bench/1",
        device: &info.name,
        backend: info.backend.to_string(),
        driver: &info.driver_version,
        sm_count: info.sm_count,
        figures,
    };
    if json {
        output::line(serde_json::to_string_pretty(&report)?)?;
        return Ok(());
    }
    output::line(format_args!(
        "{} ({} backend, driver {}, {} SMs)",
        report.device, report.backend, report.driver, report.sm_count
    ))?;
    for f in figures {
        let limit = f.percent_of_limit.map_or(String::new(), |p| format!("  {p:.0} % of the limit"));
        let counted =
            f.warp_instructions.map_or(String::new(), |n| format!("  {n} warp instructions per run"));
        output::line(format_args!(
            "{:<48} p50 {:>10.3}  p99 {:>10.3}  {}{limit}{counted}",
            f.name, f.p50, f.p99, f.unit
        ))?;
    }
    Ok(())
}
