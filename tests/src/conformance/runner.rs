//! Runs cases on one device.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::{Context, Result};
use ga10b_sim::sm::Schedule;
use ga10b_sim::{Checks, Sim, SimConfig};
use hcq::{Args, Device, DeviceOptions, NodeId, Program, Queue, Selector};
use sass::Arch;

use crate::conformance::case::{Arg, Case, Link};
use crate::harness::DEADLINE;

/// A device with the modules that cases have asked for so far.
#[derive(Debug)]
pub struct Runner {
    device: Device,
    queue: Queue,
    /// By where the module's bytes are: they are static.
    programs: HashMap<*const u8, Program>,
}

impl Runner {
    /// On a device of its own.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open(selector: Selector) -> Result<Self> {
        Self::over(Device::open(selector).with_context(|| format!("cannot open the device \"{selector}\""))?)
    }

    /// On a software GPU with SMs of `arch`, which runs warps in an order of its own for each seed.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn simulated(arch: Arch, seed: u64) -> Result<Self> {
        Ok(Self::checked(arch, seed, Checks::empty())?.0)
    }

    /// The same, which searches for mistakes of kernels and keeps what it finds.
    ///
    /// # Errors
    /// Those of opening it.
    pub fn checked(arch: Arch, seed: u64, checks: Checks) -> Result<(Self, Arc<Sim>)> {
        let mut config = SimConfig { arch, ..Default::default() };
        (config.executor.schedule, config.executor.checks) = (Schedule::Shuffled(seed), checks);
        let sim = Sim::new(config);
        let device = hcq::sim::open(Arc::clone(&sim), DeviceOptions::default());
        Ok((Self::over(device.context("opening the software ga10b")?)?, sim))
    }

    fn over(device: Device) -> Result<Self> {
        Ok(Self { queue: device.queue()?, device, programs: HashMap::new() })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs `case` and returns what its buffers hold afterwards.
    ///
    /// # Errors
    /// Those of the device: a fault, a launch that it refuses, a wait that took too long.
    pub fn run(&mut self, case: &Case) -> Result<Vec<Vec<u32>>> {
        if let Some(work) = &case.work {
            return work(&self.device);
        }
        let arch = crate::kernels::arch(&self.device)?;
        let (cubin, (kernel, config)) = (case.cubin(arch), case.kernel(arch));
        if !self.programs.contains_key(&cubin.as_ptr()) {
            self.programs.insert(cubin.as_ptr(), self.device.load(cubin)?);
        }
        let program = &self.programs[&cubin.as_ptr()];
        let mut buffers = Vec::new();
        for content in &case.buffers {
            let buffer = self.device.alloc(4 * content.len() as u64)?;
            buffer.write_slice(0, content)?;
            buffers.push(buffer);
        }
        let args = |launch: &[Arg]| {
            launch.iter().fold(Args::new(), |args, arg| match *arg {
                Arg::Buffer(number, offset) => args.buffer_at(&buffers[number], offset),
                Arg::U16(v) => args.bytes(&v.to_le_bytes(), 2),
                Arg::U32(v) => args.u32(v),
                Arg::U64(v) => args.u64(v),
                Arg::F32(v) => args.f32(v),
                Arg::F64(v) => args.bytes(&v.to_le_bytes(), 8),
            })
        };
        if case.links.is_empty() {
            let kernel = program.kernel(kernel)?;
            for launch in &case.launches {
                // SAFETY: the kernels of all cases stay within the buffers that they are given.
                unsafe { self.queue.launch(&kernel, config, &args(launch))? };
            }
            self.queue.submit()?.wait(DEADLINE)?;
        } else {
            let (mut graph, mut nodes) = (self.device.graph(), Vec::new());
            for Link { kernel, args: of, after, early } in &case.links {
                let (kernel, of) = (program.kernel(kernel)?, args(of));
                let after: Vec<NodeId> = after.iter().map(|number| nodes[*number]).collect();
                nodes.push(match after[..] {
                    // SAFETY: as above, and those that are meant to be right wait before they access memory.
                    [one] if *early => unsafe { graph.launch_early(&kernel, config, &of, one) }?,
                    // SAFETY: as above.
                    _ => unsafe { graph.launch_after(&kernel, config, &of, &after) }?,
                });
            }
            let graph = graph.build()?;
            self.queue.replay(&graph)?.wait(DEADLINE)?;
        }
        buffers
            .iter()
            .zip(&case.buffers)
            .map(|(buffer, content)| Ok(buffer.read_vec(0, content.len())?))
            .collect()
    }
}
