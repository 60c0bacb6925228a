//! Measured tokens per second of a chip beside what is predicted for it, and the constants that fit them
//! best.

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::roofline::{Fitted, Machine, StepCost};

/// A file of measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measurements {
    /// `llm-demo.points/1`.
    pub schema: String,
    /// The chip's name on the command line.
    pub chip: String,
    /// The subject, time and method of the measurement.
    pub note: String,
    /// The measurements.
    pub points: Vec<Point>,
}

/// A model at a position of the context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The model's shape and quantization.
    pub model: String,
    /// Type of the key/value cache.
    pub kv: String,
    /// Tokens in the context.
    pub position: usize,
    /// Sequences of a batch step; `None` for the engine of one sequence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub columns: Option<usize>,
    /// Greedy tokens per second of all sequences, measured.
    pub tokens_per_second: f64,
    /// The software device's counts.
    pub cost: StepCost,
}

impl Point {
    /// Tokens per second of all sequences that are predicted for `machine`.
    #[must_use]
    pub fn predicted(&self, machine: &Machine) -> f64 {
        self.columns.unwrap_or(1) as f64 * machine.predict_step(&self.cost).tokens_per_second
    }
}

/// The reason a file of measurements cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Not such a document.
    #[error("not a file of measurements")]
    Json(#[from] serde_json::Error),
    /// Of another program or version.
    #[error("the schema is \"{0}\", expected \"{SCHEMA}\"")]
    Schema(String),
    /// Nothing was measured, or something that is no rate.
    #[error("{0}")]
    Points(String),
}

/// The schema that is read.
pub const SCHEMA: &str = "llm-demo.points/1";

/// Tokens per second that are taken for a measurement.
const RATES: RangeInclusive<f64> = 1e-3..=1e7;
/// Bytes, instructions or launches of a step at most.
const MOST: u64 = 1 << 50;
/// Bytes that DRAM delivers over those that are read, at most: a sector for a byte, and more.
const MOST_RATIO: f64 = 100.0;

/// The reason no step can have this cost.
fn unsound(cost: &StepCost) -> Option<String> {
    let bytes = cost.phases.iter().try_fold(0_u64, |sum, phase| {
        let each = phase.weight_bytes.checked_add(phase.cache_bytes)?;
        sum.checked_add(each.checked_mul(phase.count)?).filter(|sum| *sum <= MOST)
    });
    let phases: Option<u64> =
        cost.phases.iter().try_fold(0_u64, |sum, phase| sum.checked_add(phase.count)).filter(|n| *n <= MOST);
    let counts = [cost.launches, cost.weight_instructions, cost.cache_instructions];
    match (bytes, phases) {
        (None, _) => Some(format!("phases read more than {MOST} bytes")),
        (_, None | Some(0)) => Some("no phases, or too many".to_owned()),
        _ if counts.iter().any(|count| *count > MOST) => Some(format!("counts above {MOST}")),
        _ if !(0.0..=MOST_RATIO).contains(&cost.dram_ratio) => {
            Some(format!("a dram_ratio of {}, expected 0 to {MOST_RATIO}", cost.dram_ratio))
        }
        _ => None,
    }
}

impl Measurements {
    /// Reads a document.
    ///
    /// # Errors
    /// [`ReadError`].
    pub fn from_json(text: &str) -> Result<Self, ReadError> {
        let read: Self = serde_json::from_str(text)?;
        if read.schema != SCHEMA {
            return Err(ReadError::Schema(read.schema));
        }
        if read.points.is_empty() {
            return Err(ReadError::Points("no measurements".to_owned()));
        }
        if read.points.iter().any(|point| point.columns.is_some() != read.is_of_columns()) {
            return Err(ReadError::Points("one sequence and columns in the same file".to_owned()));
        }
        for Point { model, position, columns, tokens_per_second: rate, cost, .. } in &read.points {
            if *columns == Some(0) {
                return Err(ReadError::Points(format!("{model} at {position}: no columns")));
            }
            if !RATES.contains(rate) {
                let text = format!("{model} at {position}: {rate} tokens per second is no rate of a machine");
                return Err(ReadError::Points(text));
            }
            if let Some(wrong) = unsound(cost) {
                return Err(ReadError::Points(format!("{model} at {position}: {wrong}")));
            }
        }
        Ok(read)
    }

    /// Whether the points are steps of [columns](ga10b_llm::Columns), which other constants predict
    /// ([`Machine::of_columns`]).
    #[must_use]
    pub fn is_of_columns(&self) -> bool {
        self.points.iter().any(|point| point.columns.is_some())
    }

    /// `machine` with the constants in use for these measurements.
    #[must_use]
    pub fn machine(&self, machine: Machine) -> Machine {
        if self.is_of_columns() { machine.of_columns() } else { machine }
    }

    /// The measurements of an H100 that [`Fitted::DEFAULT`] fits.
    ///
    /// # Errors
    /// None, as long as the file in `llm/tools/data` is one.
    pub fn of_h100() -> Result<Self, ReadError> {
        Self::from_json(include_str!("../data/h100.json"))
    }

    /// The measurements of an H100 with several sequences, which [`FittedColumns::DEFAULT`] fits.
    ///
    /// # Errors
    /// None, as long as the file in `llm/tools/data` is one.
    ///
    /// [`FittedColumns::DEFAULT`]: crate::roofline::FittedColumns::DEFAULT
    pub fn of_h100_columns() -> Result<Self, ReadError> {
        Self::from_json(include_str!("../data/h100-columns.json"))
    }
}

/// A measurement beside its prediction.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The model's shape and quantization.
    pub model: String,
    /// Type of the key/value cache.
    pub kv: String,
    /// Tokens in the context.
    pub position: usize,
    /// Sequences of a batch step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub columns: Option<usize>,
    /// Measured tokens per second.
    pub measured: f64,
    /// Predicted tokens per second.
    pub predicted: f64,
    /// `predicted / measured - 1`, in percent.
    pub error_percent: f64,
}

/// Each measurement beside what is predicted for `machine`.
#[must_use]
pub fn compare(machine: &Machine, points: &[Point]) -> Vec<Comparison> {
    let row = |point: &Point| {
        let predicted = point.predicted(machine);
        Comparison {
            model: point.model.clone(),
            kv: point.kv.clone(),
            position: point.position,
            columns: point.columns,
            measured: point.tokens_per_second,
            predicted,
            error_percent: 100.0 * (predicted / point.tokens_per_second - 1.0),
        }
    };
    points.iter().map(row).collect()
}

/// The largest error, in percent, without its sign.
#[must_use]
pub fn worst_percent(rows: &[Comparison]) -> f64 {
    rows.iter().map(|row| row.error_percent.abs()).fold(0.0, f64::max)
}

/// The range of the constants: fractions and rates that the hardware has, latencies of the order of its
/// own.
const BOUNDS: [(f64, f64); 5] = [(0.5, 1.0), (0.25, 4.0), (0.25, 4.0), (300.0, 20_000.0), (2.0, 15.0)];

/// The constants with the least squares of relative errors: a search along each of the five, in ever smaller
/// steps, from the constants in use.
#[must_use]
pub fn fit(machine: &Machine, points: &[Point]) -> Fitted {
    let of = |[share, ipc, attention_ipc, exchange_cycles, launch_us]: [f64; 5]| Fitted {
        share,
        ipc,
        attention_ipc,
        exchange_cycles,
        launch_us,
    };
    let squares = |at: [f64; 5]| -> f64 {
        let machine = machine.clone().with(of(at));
        let error = |point: &Point| {
            (machine.predict_step(&point.cost).tokens_per_second / point.tokens_per_second).ln()
        };
        points.iter().map(|point| error(point).powi(2)).sum()
    };
    let start = Fitted::DEFAULT;
    let mut at = [start.share, start.ipc, start.attention_ipc, start.exchange_cycles, start.launch_us];
    let (mut best, mut step) = (squares(at), 1.5_f64);
    while step > 1.0001 {
        let mut improved = false;
        // Along one constant, and along two at once: a longer exchange makes up for a higher rate.
        for first in 0..at.len() {
            for second in first..at.len() {
                for (up, other) in
                    [(step, step), (1.0 / step, 1.0 / step), (step, 1.0 / step), (1.0 / step, step)]
                {
                    let mut next = at;
                    next[first] *= up;
                    if second != first {
                        next[second] *= other;
                    }
                    for (value, (least, most)) in next.iter_mut().zip(BOUNDS) {
                        *value = value.clamp(least, most);
                    }
                    let error = squares(next);
                    if error < best {
                        (at, best, improved) = (next, error, true);
                    }
                }
            }
        }
        if !improved {
            step = step.sqrt();
        }
    }
    of(at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::roofline::Phase;

    fn point(model: &str, weights: u64, layers: u64, position: usize) -> Point {
        let cost = StepCost {
            launches: 1,
            phases: vec![
                Phase { count: 4 * layers, weight_bytes: weights / (4 * layers + 4), cache_bytes: 0 },
                Phase { count: 1, weight_bytes: weights / (layers + 1), cache_bytes: 0 },
                Phase { count: layers, weight_bytes: 0, cache_bytes: 2048 * position as u64 },
            ],
            weight_instructions: weights / 12,
            cache_instructions: 350 * layers * position as u64,
            dram_ratio: 1.0,
            split: position > 256,
        };
        let (model, kv) = (model.to_owned(), "f16".to_owned());
        Point { model, kv, position, columns: None, tokens_per_second: 1.0, cost }
    }

    #[test]
    fn constants_that_made_the_measurements_are_found_again() {
        let machine = Machine::new("", 132.0, 1980.0, 4800.0);
        let truth =
            Fitted { share: 0.87, ipc: 1.1, attention_ipc: 0.9, exchange_cycles: 3300.0, launch_us: 9.0 };
        let mut points = Vec::new();
        for (weights, layers) in
            [(1_000_000_000, 16), (770_000_000, 16), (2_500_000_000, 16), (4_600_000_000, 32)]
        {
            for position in [128, 8192, 32_000] {
                let mut point = point("m", weights, layers, position);
                point.tokens_per_second =
                    machine.clone().with(truth).predict_step(&point.cost).tokens_per_second;
                points.push(point);
            }
        }
        let found = fit(&machine, &points);
        let rows = compare(&machine.clone().with(found), &points);
        let worst = rows.iter().map(|row| row.error_percent.abs()).fold(0.0, f64::max);
        assert!(worst < 1.0, "{found:?}: {rows:?}");
        assert!((found.ipc / truth.ipc - 1.0).abs() < 0.05, "{found:?}");
    }

    #[test]
    fn a_file_that_is_not_one_is_refused() {
        let mut file = Measurements {
            schema: SCHEMA.to_owned(),
            chip: "h100".to_owned(),
            note: String::new(),
            points: vec![point("m", 1_000_000, 2, 5)],
        };
        let read = |file: &Measurements| Measurements::from_json(&serde_json::to_string(file).expect("JSON"));
        assert_eq!(read(&file).expect("sound"), file);
        for absurd in [0.0, -5.0, 1e300, f64::MIN_POSITIVE, 1e-4] {
            file.points[0].tokens_per_second = absurd;
            assert!(matches!(read(&file), Err(ReadError::Points(_))), "{absurd}");
        }
        // JSON has no such number: it is written as `null`.
        file.points[0].tokens_per_second = f64::NAN;
        assert!(matches!(read(&file), Err(ReadError::Json(_))));
        file.points[0].tokens_per_second = 100.0;
        let sound = file.points[0].cost.clone();
        let absurd: [fn(&mut StepCost); 8] = [
            |cost| cost.dram_ratio = 1e300,
            |cost| cost.dram_ratio = -1.0,
            |cost| cost.launches = u64::MAX,
            |cost| cost.weight_instructions = u64::MAX,
            |cost| cost.phases[0].weight_bytes = u64::MAX,
            |cost| cost.phases[0].count = u64::MAX,
            |cost| cost.phases.iter_mut().for_each(|phase| phase.count = 0),
            |cost| cost.phases.clear(),
        ];
        for change in absurd {
            file.points[0].cost = sound.clone();
            change(&mut file.points[0].cost);
            assert!(matches!(read(&file), Err(ReadError::Points(_))), "{:?}", file.points[0].cost);
        }
        file.points[0].cost = sound;
        file.points[0].columns = Some(0);
        assert!(matches!(read(&file), Err(ReadError::Points(_))));
        file.points[0].columns = Some(4);
        assert!(read(&file).expect("sound").is_of_columns());
        file.points.push(point("m", 1_000_000, 2, 5));
        assert!(matches!(read(&file), Err(ReadError::Points(_))), "mixed");
        file.points.clear();
        assert!(matches!(read(&file), Err(ReadError::Points(_))));
        file.schema = "llm-demo.predict/1".to_owned();
        assert!(matches!(read(&file), Err(ReadError::Schema(_))));
        assert!(matches!(Measurements::from_json("{}"), Err(ReadError::Json(_))));
    }
}
