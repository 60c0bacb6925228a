//! `nvdiag info`: describes the GPU.

use std::io::Write;

use anyhow::Context;
use hcq::{Device, Selector};
use nvdiag::device::DeviceInfo;

use super::show;
use crate::Finding;

/// Describe the GPU: name, driver, size, classes, memory, address windows.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Which device: auto, nvgpu (a Jetson's), rm (a desktop GPU), sim (the software ga10b).
    #[arg(long, env = "HCQ_DEVICE", default_value_t = Selector::Auto)]
    device: Selector,
}

impl Args {
    /// Opens the device and prints what it is.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let device =
            Device::open(self.device).with_context(|| format!("cannot open device {}", self.device))?;
        show(&DeviceInfo::of(&device), json, out)
    }
}
