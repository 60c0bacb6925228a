//! Contents of the file: the GPU, the machine, the kernel log. Nothing that names the user or the machine's
//! place.

use std::fs;

use anyhow::Context;
use hcq::{Device, Selector};
use nvdiag::Report;
use nvdiag::bringup::bundle::RESULTS;
use nvdiag::bringup::report::Bringup;
use nvdiag::doctor::{Surroundings, examine};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::cmd::info;
use crate::cmd::kernel_log as source;
use crate::cmd::machine_files::Files;

/// Most lines of the kernel log in the file.
const LINES: usize = 2000;
/// Most bytes of a line.
const LINE: usize = 512;
/// Words of which a line has one if it is the GPU driver's.
const MARKS: [&str; 10] =
    ["nvgpu", "nvmap", "gk20a", "ga10b", "17000000.gpu", "host1x", "NVRM", "nvidia-", "tegra-mc", "arm-smmu"];

/// A number that tells machines apart and reveals nothing else: the machine's identity is 128 random bits.
pub fn pseudonym() -> String {
    let identity = fs::read("/etc/machine-id").unwrap_or_default();
    if identity.is_empty() {
        return "unnamed".to_owned();
    }
    let digest = Sha256::new().chain_update(b"nvdiag bringup").chain_update(identity).finalize();
    digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect()
}

/// Beginning of the usual name of a file: its kind, the machine and the day.
pub fn stem(kind: &str, results: &Bringup) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
    let host: String = results.host.chars().map(plain).take(64).collect();
    format!("{kind}-{host}-{}", results.date.get(..10).unwrap_or("undated"))
}

/// The GPU driver's lines of the kernel log; `None` where it may not be read.
pub fn kernel_log() -> Option<Vec<String>> {
    let mut bytes = Vec::new();
    source::read(&mut |part| bytes.extend_from_slice(part)).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    let relevant = text.lines().filter(|line| MARKS.iter().any(|mark| line.contains(mark)));
    Some(relevant.map(|line| line.chars().take(LINE).collect()).collect())
}

/// The last lines that a driver logged, for a step whose process is gone.
pub fn last_lines(driver: Selector) -> Vec<String> {
    if driver == Selector::Sim {
        return Vec::new();
    }
    let lines = kernel_log().unwrap_or_default();
    lines[lines.len().saturating_sub(20)..].to_vec()
}

/// An entry of the file: its name and its text.
pub type Entry = (&'static str, Vec<u8>);

/// The results alone.
pub fn results(results: &Bringup) -> anyhow::Result<Entry> {
    let mut text = Vec::new();
    results.print_json(&mut text)?;
    Ok((RESULTS, text))
}

/// All entries of the file; without those for which the driver is asked if the user wants an end.
pub fn entries(driver: Selector, results: &Bringup) -> anyhow::Result<Vec<Entry>> {
    let log = match driver {
        // Its lines are part of the results: each step has a machine of its own.
        Selector::Sim => results.steps.iter().flat_map(|step| step.log.clone()).collect(),
        _ => kernel_log().unwrap_or_else(|| vec!["the kernel log may not be read".to_owned()]),
    };
    let mut log = log[log.len().saturating_sub(LINES)..].join("\n");
    log.push('\n');
    let machine = serde_json::to_vec_pretty(&machine()?).context("the machine's description")?;
    let mut entries = vec![self::results(results)?];
    if results.interrupted.is_none() {
        let gpu = serde_json::to_vec_pretty(&gpu(driver)).context("the GPU's description")?;
        entries.push(("gpu.json", gpu));
    }
    entries.extend([("machine.json", machine), ("kernel-log.txt", log.into_bytes())]);
    Ok(entries)
}

/// Returns the output of `nvdiag info --json`, without the identity of this one GPU.
fn gpu(driver: Selector) -> serde_json::Value {
    let described =
        Device::open(driver).map_err(anyhow::Error::from).and_then(|device| info::describe(&device));
    match described.and_then(|info| Ok(info.json()?)) {
        Ok(mut value) => {
            let groups = value.pointer_mut("/nvgpu/groups").and_then(serde_json::Value::as_array_mut);
            for group in groups.into_iter().flatten() {
                if let Some(fields) = group.get_mut("fields").and_then(serde_json::Value::as_array_mut) {
                    fields.retain(|field| field["name"] != "per_device_identifier");
                }
            }
            value
        }
        Err(error) => json!({ "error": format!("{error:#}") }),
    }
}

fn machine() -> anyhow::Result<serde_json::Value> {
    let files = Files::own();
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default().trim().to_owned();
    Ok(json!({
        "architecture": std::env::consts::ARCH,
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease"),
        "surroundings": Surroundings::of(&files),
        "doctor": examine(&files).json()?,
    }))
}
