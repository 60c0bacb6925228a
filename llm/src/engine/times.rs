//! When launches and phases ran.

use serde::Serialize;

/// The work that launches belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// A step from a token to the next.
    Step,
    /// A step without logits.
    Fill,
    /// A chunk of a prompt, or the launches from the last chunk to its logits.
    Prompt,
}

impl Work {
    /// Its name in traces.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::Fill => "fill",
            Self::Prompt => "prompt",
        }
    }
}

/// When a launch ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchTime {
    /// The work it belongs to.
    pub work: Work,
    /// Tokens in the context before that work.
    pub position: usize,
    /// The kernel.
    pub name: String,
    /// Its role.
    pub role: &'static str,
    /// The layer that it is part of, from 0; `None` outside of layers.
    pub layer: Option<usize>,
    /// Thread blocks along x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block.
    pub threads: u32,
    /// When everything before it had completed, in ns of the GPU's clock.
    pub start: u64,
    /// When it had completed.
    pub end: u64,
    /// Weights, keys and values that it read, in bytes.
    pub bytes: u64,
    /// The phases of a step in one launch, if they are timed.
    pub phases: Vec<PhaseTime>,
}

/// When a phase of a launch ran, by the clock of its first block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PhaseTime {
    /// Its role.
    pub role: &'static str,
    /// The layer that it is part of, from 0; `None` outside of layers.
    pub layer: Option<usize>,
    /// When it started, in ns of the GPU's clock.
    pub start: u64,
    /// When the next one started.
    pub end: u64,
    /// Weights, keys and values that it read, in bytes.
    pub bytes: u64,
    /// The parts of its time, which add up to it.
    pub parts: PhaseParts,
}

/// The parts of a phase's time, in ns of its first block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PhaseParts {
    /// Until the phase before had completed in all blocks; the first loads of weights start in this time.
    pub waiting: u64,
    /// Loading the input to shared memory.
    pub input: u64,
    /// Products, or attention.
    pub products: u64,
    /// Using the results.
    pub results: u64,
    /// Signalling the other blocks.
    pub end: u64,
}

/// The layer of each launch, by the role that every layer has once and first.
pub(super) fn layers(roles: &[&str]) -> Vec<Option<usize>> {
    let first = match roles.contains(&"attention norm") {
        true => "attention norm",
        false => "q k v",
    };
    let mut layer = None;
    let of = |role: &&str| match *role {
        role if role == first => {
            layer = Some(layer.map_or(0, |l| l + 1));
            layer
        }
        // Weights are expanded ahead of their use.
        "final norm" | "output" | "argmax" | "advance" | "expand" => None,
        _ => layer,
    };
    roles.iter().map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layers_are_counted_by_their_first_role() {
        let operations = ["embedding", "attention norm", "q k v", "q k v", "down", "attention norm", "q k v"];
        let wanted = [None, Some(0), Some(0), Some(0), Some(0), Some(1), Some(1)];
        assert_eq!(layers(&operations), wanted);
        let phases = ["embedding", "q k v", "attention", "q k v", "down", "output"];
        assert_eq!(layers(&phases), [None, Some(0), Some(0), Some(1), Some(1), None]);
        assert_eq!(layers(&["step"]), [None]);
    }
}
