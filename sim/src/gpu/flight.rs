//! Launches in flight: descriptors and constant banks as they were when they were handed over.
//!
//! The scheduler reads a descriptor some time after the method that names it, and a dependent one when its
//! predecessor ends; SMs read constants while the grid runs. Who changes them meanwhile gets either version.

use crate::gpu::memory::GpuMemory;
use qmd::{DependentAction, Qmd, Version};
use std::collections::HashMap;

/// Constant banks of a launch.
const BANKS: usize = 8;
/// Descriptors of a chain that are followed.
const LONGEST_CHAIN: usize = 1 << 12;

/// Memory that a launch consists of.
#[derive(Debug)]
struct Content {
    qmd: Vec<u8>,
    /// Number, address and content.
    banks: Vec<(usize, u64, Vec<u8>)>,
}

/// Changed memory of a launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// The descriptor, at this address.
    Descriptor(u64),
    /// A constant bank, at this address.
    Bank(u64),
}

impl Change {
    /// Its name in a report.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Descriptor(_) => "its descriptor was changed while the launch was in flight",
            Self::Bank(_) => "its constant bank was changed while the launch was in flight",
        }
    }

    /// Guest address of the first byte that changed.
    pub(crate) fn address(self) -> u64 {
        match self {
            Self::Descriptor(at) | Self::Bank(at) => at,
        }
    }
}

/// The launches of a channel that are in flight, by the addresses of their descriptors.
#[derive(Debug, Default)]
pub(crate) struct Flights(HashMap<u64, Content>);

impl Flights {
    /// The descriptor at `va` was submitted, with its dependents.
    pub(crate) fn submit(&mut self, memory: &GpuMemory<'_>, version: Version, va: u64) {
        let mut next = vec![va];
        for _ in 0..LONGEST_CHAIN {
            let Some(va) = next.pop() else { return };
            let Some(content) = Content::read(memory, version, va) else { continue };
            if let Ok(qmd) = Qmd::from_bytes_as(version, &content.qmd) {
                let dependents = (0..qmd.dependents()).filter_map(|slot| qmd.dependent(slot));
                let scheduled = dependents.filter(|d| d.action != DependentAction::IncrementPut);
                next.extend(scheduled.map(|d| d.address).filter(|at| *at != va && !self.0.contains_key(at)));
            }
            self.0.insert(va, content);
        }
    }

    /// The launch of the descriptor at `va` has ended; returns the memory that has changed.
    pub(crate) fn end(&mut self, memory: &GpuMemory<'_>, version: Version, va: u64) -> Option<Change> {
        let before = self.0.remove(&va)?;
        let after = Content::read(memory, version, va)?;
        if let Some(at) = difference(&before.qmd, &after.qmd) {
            return Some(Change::Descriptor(va + at));
        }
        before.banks.iter().zip(&after.banks).find_map(|((_, at, old), (_, _, new))| {
            difference(old, new).map(|offset| Change::Bank(at + offset))
        })
    }

    /// The channel was stopped.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

impl Content {
    fn read(memory: &GpuMemory<'_>, version: Version, va: u64) -> Option<Self> {
        let mut bytes = vec![0; version.size()];
        memory.read(va, &mut bytes).ok()?;
        let mut qmd = Qmd::from_bytes_as(version, &bytes).ok()?;
        let banks = (0..BANKS).filter_map(|number| {
            let bank = qmd.constant_buffer(number)?;
            let mut content = vec![0; bank.len as usize];
            memory.read(bank.address, &mut content).ok()?;
            Some((number, bank.address, content))
        });
        let banks = banks.collect();
        // The scheduler counts in it.
        if let Some(counter) = qmd::field(version, "HW_ONLY_DEPENDENCE_COUNTER") {
            qmd.set(counter, 0).ok()?;
        }
        Some(Self { qmd: qmd.as_bytes().to_vec(), banks })
    }
}

/// The first byte that differs.
fn difference(old: &[u8], new: &[u8]) -> Option<u64> {
    old.iter().zip(new).position(|(old, new)| old != new).map(|at| at as u64)
}
