//! The time of a token on an Orin, predicted from the counts of the software ga10b; never a measurement.
//!
//! A token takes the time of DRAM or of instruction issue, whichever is longer, and the start of each launch:
//! `max(bytes / (bandwidth · share), instructions / (SMs · clock · rate)) + launches · link`.

use serde::Serialize;

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
    /// Share of the bandwidth that kernels reach: 0.85 is that of the best engines on an AGX Orin (162 to 178
    /// of 204.8 GB/s).
    pub share: f64,
    /// Instructions that an SM issues per clock over a whole kernel, at most 4: 2 is the rate of the integer
    /// pipe.
    pub ipc: f64,
    /// Time between the end of a launch and the start of the linked one, in µs: an estimate.
    pub link_us: f64,
}

/// What bounds a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// Memory bandwidth.
    Dram,
    /// Instruction issue.
    Issue,
}

impl Bound {
    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dram => "DRAM",
            Self::Issue => "issue",
        }
    }
}

/// Names of the constants that can be set.
const CONSTANTS: [&str; 6] = ["sms", "mhz", "gbps", "share", "ipc", "link-us"];

/// A constant given as `KEY=VALUE`.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    key: String,
    value: f64,
}

impl std::str::FromStr for Constant {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE, for example mhz=930.75")?;
        let value = value.parse().map_err(|e| format!("\"{value}\" is no number: {e}"))?;
        if !CONSTANTS.contains(&key) {
            return Err(format!("no constant \"{key}\": there are {}", CONSTANTS.join(", ")));
        }
        if !f64::is_finite(value) || value < 0.0 || (value == 0.0 && key != "link-us") {
            return Err(format!("{key} must be a positive number, not {value}"));
        }
        Ok(Self { key: key.to_owned(), value })
    }
}

/// Times of one token, in ms.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prediction {
    /// Time of DRAM.
    pub dram_ms: f64,
    /// Time of instruction issue.
    pub issue_ms: f64,
    /// Time of the starts of launches.
    pub launch_ms: f64,
    /// Tokens per second.
    pub tokens_per_second: f64,
    /// The longer of the first two.
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
    /// An AGX Orin 64 GB in its power modes (NVIDIA's Jetson Linux Developer Guide), with the estimates
    /// above.
    #[must_use]
    pub fn orin_agx() -> Vec<Machine> {
        let mode = |name: &str, sms, mhz, gbps, link_us| Machine {
            name: name.to_owned(),
            sms,
            mhz,
            gbps,
            share: 0.85,
            ipc: 2.0,
            link_us,
        };
        vec![
            mode("MAXN", 16.0, 1300.5, 204.8, 3.0),
            mode("50W", 16.0, 828.75, 204.8, 4.7),
            mode("30W", 8.0, 624.75, 204.8, 6.0),
            mode("15W", 6.0, 420.75, 136.5, 9.0),
        ]
    }

    /// The constant of that name.
    fn constant(&mut self, key: &str) -> Option<&mut f64> {
        Some(match key {
            "sms" => &mut self.sms,
            "mhz" => &mut self.mhz,
            "gbps" => &mut self.gbps,
            "share" => &mut self.share,
            "ipc" => &mut self.ipc,
            "link-us" => &mut self.link_us,
            _ => return None,
        })
    }

    /// The time of a token of cost `cost`.
    #[must_use]
    pub fn predict(&self, cost: &Cost) -> Prediction {
        let dram_ms = cost.dram_bytes / (self.gbps * self.share * 1e6);
        let issue_ms = cost.warp_instructions / (self.sms * self.mhz * self.ipc * 1e3);
        let launch_ms = cost.launches * self.link_us / 1e3;
        let bound = if dram_ms >= issue_ms { Bound::Dram } else { Bound::Issue };
        let tokens_per_second = 1e3 / (dram_ms.max(issue_ms) + launch_ms);
        Prediction { dram_ms, issue_ms, launch_ms, tokens_per_second, bound }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_takes_as_long_as_the_slower_resource_and_its_launches() {
        let mut machine = Machine::orin_agx().remove(0);
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
            let mut machine = Machine::orin_agx().remove(0);
            format!("{name}=7.5").parse::<Constant>().expect("a constant").apply(&mut machine);
            assert_eq!(machine.constant(name), Some(&mut 7.5));
        }
        for bad in ["volts=1", "mhz", "mhz=", "mhz=0", "mhz=-1", "mhz=NaN", "mhz=inf"] {
            assert!(bad.parse::<Constant>().is_err(), "{bad}");
        }
    }
}
