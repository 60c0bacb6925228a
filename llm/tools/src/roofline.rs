//! The time of a token, predicted from the counts of the software ga10b; never a measurement.
//!
//! A step is a line of phases, which exchange their results. Weights of later phases flow while an earlier
//! one waits for its input, so a phase takes the time of DRAM, or that of instruction issue and its exchange,
//! whichever is longer: `max(bytes / (bandwidth · share), instructions / (SMs · clock · rate) + exchange)`.
//! Before the first one comes the launch. Where each phase is a launch, a link takes the place of the
//! exchange, and follows all else.
//!
//! Instructions are spread over phases by the bytes that these read: those of weights over weights, those
//! that a longer context adds over keys and values. A context that is split over blocks costs two exchanges
//! more for each attention: split-K parts are stored and counted, and the block that completes last reads
//! them.

use serde::{Deserialize, Serialize};

/// The cost of a token, independent of clocks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// Bytes read from DRAM and written to it.
    pub dram_bytes: f64,
    /// Instructions that warps issue.
    pub warp_instructions: f64,
    /// Kernel launches.
    pub launches: f64,
}

/// Phases that read as much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Number of them.
    pub count: u64,
    /// Bytes of weights that one reads.
    pub weight_bytes: u64,
    /// Bytes of keys and values that one reads.
    pub cache_bytes: u64,
}

impl Phase {
    /// Phases of which each reads so many bytes of weights, and so many of keys and values; those that read as much
    /// are one entry, where the first is.
    pub fn counted(bytes: impl IntoIterator<Item = (u64, u64)>) -> Vec<Self> {
        let mut phases: Vec<Self> = Vec::new();
        for (weight_bytes, cache_bytes) in bytes {
            let same = |p: &&mut Self| (p.weight_bytes, p.cache_bytes) == (weight_bytes, cache_bytes);
            match phases.iter_mut().find(same) {
                Some(phase) => phase.count += 1,
                None => phases.push(Self { count: 1, weight_bytes, cache_bytes }),
            }
        }
        phases
    }
}

/// The cost of a step, phase by phase, independent of clocks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepCost {
    /// Kernel launches.
    pub launches: u64,
    /// Its phases.
    pub phases: Vec<Phase>,
    /// Instructions that warps issue at an empty context.
    pub weight_instructions: u64,
    /// Instructions that they issue more at this position.
    pub cache_instructions: u64,
    /// Bytes that DRAM delivers over those that the phases read.
    pub dram_ratio: f64,
    /// Whether positions are split over blocks.
    pub split: bool,
}

/// Exchanges that a split context costs each attention.
const EXCHANGES_OF_SPLIT: f64 = 2.0;

/// Constants measured on one machine, by which others are predicted: fractions and rates of the chip's
/// limits, and latencies in clocks of the GPU.
///
/// `llm-demo predict --against FILE --fit` computes them from measurements of one chip.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Fitted {
    /// Share of the DRAM bandwidth that kernels reach.
    pub share: f64,
    /// Instructions that an SM issues per clock over a phase of products, at most 4.
    pub ipc: f64,
    /// The same of attention, whose loops wait for their own results.
    pub attention_ipc: f64,
    /// Clocks from the last result of a phase to the first product of the next.
    pub exchange_cycles: f64,
    /// From the host's call for a token to its first phase, and from the end of the last one to the host, in
    /// µs.
    pub launch_us: f64,
}

impl Fitted {
    /// The constants in use: those that fit `llm/tools/data/h100.json`.
    pub const DEFAULT: Self =
        Self { share: 0.838, ipc: 1.54, attention_ipc: 0.329, exchange_cycles: 1901.0, launch_us: 2.0 };
}

/// The constants of the launches of a step of a batch ([`Columns`](ga10b_llm::Columns)), in place of
/// [`Fitted`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct FittedColumns {
    /// As [`Fitted::share`].
    pub share: f64,
    /// Instructions that an SM issues per clock.
    pub ipc: f64,
    /// Clocks that each launch costs beside that.
    pub link_cycles: f64,
}

impl FittedColumns {
    /// The constants in use: those that fit `llm/tools/data/h100-columns.json`. Its points are bound by issue;
    /// the share of DRAM is that of the persistent step.
    pub const DEFAULT: Self = Self { share: Fitted::DEFAULT.share, ipc: 0.92, link_cycles: 1800.0 };
}

/// The constants of a machine.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Machine {
    /// Name of the power mode.
    pub name: String,
    /// Streaming multiprocessors in use.
    pub sms: f64,
    /// Clock of the GPU in MHz.
    pub mhz: f64,
    /// Nominal DRAM bandwidth in GB/s.
    pub gbps: f64,
    /// [`Fitted::share`].
    pub share: f64,
    /// [`Fitted::ipc`].
    pub ipc: f64,
    /// [`Fitted::attention_ipc`].
    pub attention_ipc: f64,
    /// [`Fitted::exchange_cycles`].
    pub exchange_cycles: f64,
    /// [`Fitted::launch_us`].
    pub launch_us: f64,
    /// Time between the end of a launch and the start of the linked one, in µs: 1300 clocks, as an H200 takes
    /// for a link.
    pub link_us: f64,
}

/// The limit of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory bandwidth.
    Dram,
    /// Instruction issue.
    Issue,
    /// Exchanges between phases.
    Exchange,
}

impl Bound {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dram => "DRAM",
            Self::Issue => "issue",
            Self::Exchange => "exchange",
        }
    }
}

/// Names of the constants that can be set.
const CONSTANTS: [&str; 9] =
    ["sms", "mhz", "gbps", "share", "ipc", "attention-ipc", "exchange-cycles", "launch-us", "link-us"];

/// Between what a constant may be.
const LEAST: f64 = 1e-6;
const MOST: f64 = 1e9;

/// A constant given as `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    key: String,
    value: f64,
}

impl std::str::FromStr for Constant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, given) = text.split_once('=').ok_or("expected KEY=VALUE, for example mhz=930.75")?;
        let value = given.parse().map_err(|e| format!("\"{given}\" is no number: {e}"))?;
        if !CONSTANTS.contains(&key) {
            return Err(format!("no constant \"{key}\": there are {}", CONSTANTS.join(", ")));
        }
        let least = if key.ends_with("-us") { 0.0 } else { LEAST };
        if !(least..=MOST).contains(&value) {
            return Err(format!("{key} must be a number from {least:?} to {MOST:?}, not {given}"));
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

/// Times of one token, in ms. They overlap.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Time of DRAM.
    pub dram_ms: f64,
    /// Time of instruction issue.
    pub issue_ms: f64,
    /// Time of the exchanges between phases.
    pub exchange_ms: f64,
    /// Time of the starts of launches.
    pub launch_ms: f64,
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// The longest of the first three.
    pub bound: Bound,
}

impl Constant {
    /// Overrides the machine's constant.
    pub fn apply(&self, machine: &mut Machine) {
        if let Some(field) = machine.constant(&self.key) {
            *field = self.value;
        }
    }
}

impl Machine {
    /// A machine with the [fitted](Fitted::DEFAULT) constants.
    #[must_use]
    pub fn new(name: &str, sms: f64, mhz: f64, gbps: f64) -> Self {
        const LINK_CYCLES: f64 = 1300.0;
        let Fitted { share, ipc, attention_ipc, exchange_cycles, launch_us } = Fitted::DEFAULT;
        let (name, link_us) = (name.to_owned(), LINK_CYCLES / mhz);
        Machine { name, sms, mhz, gbps, share, ipc, attention_ipc, exchange_cycles, launch_us, link_us }
    }

    /// The same machine with other constants.
    #[must_use]
    pub fn with(self, fitted: Fitted) -> Self {
        let Fitted { share, ipc, attention_ipc, exchange_cycles, launch_us } = fitted;
        Self { share, ipc, attention_ipc, exchange_cycles, launch_us, ..self }
    }

    /// The same machine with the constants of the batch engine.
    #[must_use]
    pub fn of_columns(self) -> Self {
        self.with_columns(FittedColumns::DEFAULT)
    }

    /// The same machine with other constants of the batch engine.
    #[must_use]
    pub fn with_columns(self, fitted: FittedColumns) -> Self {
        let FittedColumns { share, ipc, link_cycles } = fitted;
        let link_us = link_cycles / self.mhz;
        Self { share, ipc, attention_ipc: ipc, link_us, ..self }
    }

    /// The constant of that name.
    fn constant(&mut self, key: &str) -> Option<&mut f64> {
        Some(match key {
            "sms" => &mut self.sms,
            "mhz" => &mut self.mhz,
            "gbps" => &mut self.gbps,
            "share" => &mut self.share,
            "ipc" => &mut self.ipc,
            "attention-ipc" => &mut self.attention_ipc,
            "exchange-cycles" => &mut self.exchange_cycles,
            "launch-us" => &mut self.launch_us,
            "link-us" => &mut self.link_us,
            _ => return None,
        })
    }

    /// Milliseconds that DRAM takes for `bytes`.
    fn dram_ms(&self, bytes: f64) -> f64 {
        bytes / (self.gbps * self.share * 1e6)
    }

    /// Milliseconds that the SMs take to issue `instructions`, `ipc` per clock.
    fn issue_ms(&self, instructions: f64, ipc: f64) -> f64 {
        instructions / (self.sms * self.mhz * ipc * 1e3)
    }

    /// The time of work of cost `cost` without exchanges: the longer of DRAM and issue, and its launches.
    #[must_use]
    pub fn predict(&self, cost: &Cost) -> Prediction {
        let dram_ms = self.dram_ms(cost.dram_bytes);
        let issue_ms = self.issue_ms(cost.warp_instructions, self.ipc);
        let launch_ms = cost.launches * self.link_us / 1e3;
        let bound = if dram_ms >= issue_ms { Bound::Dram } else { Bound::Issue };
        let tokens_per_second = 1e3 / (dram_ms.max(issue_ms) + launch_ms);
        Prediction { dram_ms, issue_ms, exchange_ms: 0.0, launch_ms, tokens_per_second, bound }
    }

    /// The time of a step of cost `cost`.
    #[must_use]
    pub fn predict_step(&self, cost: &StepCost) -> Prediction {
        let all = |bytes: fn(&Phase) -> u64| {
            cost.phases.iter().map(|p| p.count * bytes(p)).sum::<u64>().max(1) as f64
        };
        let (weights, cache) = (all(|p| p.weight_bytes), all(|p| p.cache_bytes));
        let one_launch = cost.launches <= 1;
        let [mut dram_ms, mut issue_ms, mut exchange_ms, mut total] = [0.0; 4];
        for phase in &cost.phases {
            let (count, read) = (phase.count as f64, phase.weight_bytes + phase.cache_bytes);
            let dram = self.dram_ms(read as f64 * cost.dram_ratio);
            let products = cost.weight_instructions as f64 * phase.weight_bytes as f64 / weights;
            let attention = cost.cache_instructions as f64 * phase.cache_bytes as f64 / cache;
            let issue = self.issue_ms(products, self.ipc) + self.issue_ms(attention, self.attention_ipc);
            let split = phase.cache_bytes > 0 && cost.split;
            let exchanges = if split { 1.0 + EXCHANGES_OF_SPLIT } else { 1.0 };
            let exchange = if one_launch { exchanges * self.exchange_cycles / self.mhz / 1e3 } else { 0.0 };
            dram_ms += count * dram;
            issue_ms += count * issue;
            exchange_ms += count * exchange;
            total += count * dram.max(issue + exchange);
        }
        let launch_ms = (self.launch_us + cost.launches.saturating_sub(1) as f64 * self.link_us) / 1e3;
        let bound = match (dram_ms >= issue_ms.max(exchange_ms), issue_ms >= exchange_ms) {
            (true, _) => Bound::Dram,
            (false, true) => Bound::Issue,
            (false, false) => Bound::Exchange,
        };
        let tokens_per_second = 1e3 / (total + launch_ms);
        Prediction { dram_ms, issue_ms, exchange_ms, launch_ms, tokens_per_second, bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orin() -> Machine {
        Machine::new("MAXN", 16.0, 1300.5, 204.8)
    }

    #[test]
    fn a_step_takes_its_launch_and_of_each_phase_what_is_longer() {
        let fitted =
            Fitted { share: 0.5, ipc: 1.0, attention_ipc: 2.0, exchange_cycles: 1000.0, launch_us: 5.0 };
        let machine = Machine::new("", 10.0, 1000.0, 100.0).with(fitted);
        let large = Phase { count: 2, weight_bytes: 1_000_000, cache_bytes: 0 };
        let small = Phase { count: 3, weight_bytes: 1000, cache_bytes: 50_000 };
        let mut cost = StepCost {
            launches: 1,
            phases: vec![large, small],
            weight_instructions: 2_003_000,
            cache_instructions: 120_000,
            dram_ratio: 1.0,
            split: false,
        };
        // Large: 20 us of DRAM, 100 us of issue and 1 us of exchange. Small: 1.02 us of DRAM, 2.1 of issue.
        let p = machine.predict_step(&cost);
        let us = 5.0 + 2.0 * 101.0 + 3.0 * (0.1 + 2.0 + 1.0);
        assert!((1e6 / p.tokens_per_second - us).abs() < 1e-6, "{p:?}");
        assert_eq!(p.bound, Bound::Issue);
        cost.split = true;
        assert!((1e6 / machine.predict_step(&cost).tokens_per_second - us - 6.0).abs() < 1e-6);
        cost.weight_instructions = 0;
        let us = 5.0 + 2.0 * 20.0 + 3.0 * 5.0;
        assert!((1e6 / machine.predict_step(&cost).tokens_per_second - us).abs() < 1e-6);
        cost.launches = 5;
        let us = 5.0 + 4.0 * 1.3 + 2.0 * 20.0 + 3.0 * 2.0;
        assert!((1e6 / machine.predict_step(&cost).tokens_per_second - us).abs() < 1e-6);
    }

    #[test]
    fn a_token_takes_as_long_as_the_slower_resource_and_its_launches() {
        let mut machine = orin();
        machine.link_us = 3.0;
        machine.share = 0.85;
        let cost = Cost { dram_bytes: 1.014e9, warp_instructions: 1e6, launches: 83.0 };
        let p = machine.predict(&cost);
        assert_eq!(p.bound, Bound::Dram);
        assert!((p.dram_ms - 1014.0 / (204.8 * 0.85)).abs() < 1e-9);
        assert!((p.launch_ms - 0.249).abs() < 1e-12);
        for constant in ["sms=8", "mhz=1"] {
            constant.parse::<Constant>().expect("a constant").apply(&mut machine);
        }
        assert_eq!(machine.predict(&cost).bound, Bound::Issue);
    }

    #[test]
    fn constants_are_named_and_positive() {
        for name in CONSTANTS {
            let mut machine = orin();
            format!("{name}=7.5").parse::<Constant>().expect("a constant").apply(&mut machine);
            assert_eq!(machine.constant(name), Some(&mut 7.5));
        }
        for bad in [
            "volts=1",
            "mhz",
            "mhz=",
            "mhz=0",
            "exchange-cycles=0",
            "mhz=-1",
            "mhz=NaN",
            "mhz=inf",
            "mhz=1e300",
        ] {
            let error = bad.parse::<Constant>().expect_err(bad);
            assert!(error.len() < 100 || error.starts_with("no constant"), "as it was given: {error}");
        }
    }
}
