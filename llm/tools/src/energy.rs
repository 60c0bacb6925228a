//! Energy by the sensors of a board: the INA3221 monitors of a Jetson, through the kernel's hwmon interface.
//!
//! A monitor's channel n has a label (`inN_label`), a voltage (`inN_input`, mV) and a current (`currN_input`,
//! mA), n from 1 to 3 (the kernel's `Documentation/hwmon/ina3221.rst`). Rails are reported one by one and not
//! added: some are part of others, depending on the board. Rails that cannot be read are absent.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

/// Time between two readings. The monitors convert a channel in some milliseconds.
const PERIOD: Duration = Duration::from_millis(10);

/// A supply of the board.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rail {
    name: String,
    millivolts: PathBuf,
    milliamperes: PathBuf,
}

/// The energy of a rail over some time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Energy {
    /// The label of the rail, as `VDD_GPU_SOC`.
    pub rail: String,
    /// Mean power.
    pub watts: f64,
    /// Energy.
    pub joules: f64,
}

impl Rail {
    /// The rails that have a label and can be read, below `root`, which is `/` outside of tests; by name.
    pub fn all(root: &Path) -> Vec<Self> {
        let mut rails = Vec::new();
        for node in fs::read_dir(root.join("sys/class/hwmon")).into_iter().flatten().flatten() {
            let node = node.path();
            let text = |name: &str| Some(fs::read_to_string(node.join(name)).ok()?.trim().to_owned());
            if text("name").as_deref() != Some("ina3221") {
                continue;
            }
            for channel in 1..=3 {
                // NVIDIA's boards label a channel without a rail so.
                let label =
                    text(&format!("in{channel}_label")).filter(|label| !label.is_empty() && label != "NC");
                let [millivolts, milliamperes] =
                    ["in", "curr"].map(|kind| node.join(format!("{kind}{channel}_input")));
                let rail = label.map(|name| Self { name, millivolts, milliamperes });
                rails.extend(rail.filter(|rail| rail.watts().is_some()));
            }
        }
        rails.sort_by(|a, b| a.name.cmp(&b.name));
        rails
    }

    /// The power now.
    fn watts(&self) -> Option<f64> {
        let number = |path: &Path| fs::read_to_string(path).ok()?.trim().parse::<f64>().ok();
        Some(number(&self.millivolts)? * number(&self.milliamperes)? / 1e6)
    }
}

/// Power of a rail at a time since the start.
type Reading = (f64, f64);

/// Reads rails until it is stopped.
#[derive(Debug)]
pub struct Meter {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(String, Vec<Reading>)>>,
    begin: Instant,
}

impl Meter {
    /// Begins to read `rails`; `None` if there are none.
    pub fn start(rails: &[Rail]) -> Option<Self> {
        let rails = Some(rails).filter(|rails| !rails.is_empty())?.to_vec();
        let (begin, stop) = (Instant::now(), Arc::new(AtomicBool::new(false)));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut read: Vec<(String, Vec<Reading>)> =
                rails.iter().map(|rail| (rail.name.clone(), Vec::new())).collect();
            loop {
                let last = stopped.load(Ordering::Acquire);
                for (rail, (_, readings)) in rails.iter().zip(&mut read) {
                    readings.extend(rail.watts().map(|watts| (begin.elapsed().as_secs_f64(), watts)));
                }
                if last {
                    return read;
                }
                thread::sleep(PERIOD);
            }
        });
        Some(Self { stop, thread, begin })
    }

    /// Ends, and gives the energy of each rail since the start.
    pub fn stop(self) -> Vec<Energy> {
        let seconds = self.begin.elapsed().as_secs_f64();
        self.stop.store(true, Ordering::Release);
        let read = self.thread.join().unwrap_or_default();
        let energy = |(rail, readings): (String, Vec<Reading>)| {
            let watts = mean(&readings)?;
            Some(Energy { rail, watts, joules: watts * seconds })
        };
        read.into_iter().filter_map(energy).collect()
    }
}

/// The mean power over the time of the readings, between which it changes evenly.
fn mean(readings: &[Reading]) -> Option<f64> {
    let (first, last) = (readings.first()?, readings.last()?);
    let span = last.0 - first.0;
    if span <= 0.0 {
        return Some(last.1);
    }
    let energy: f64 =
        readings.windows(2).map(|pair| (pair[1].0 - pair[0].0) * (pair[0].1 + pair[1].1) / 2.0).sum();
    Some(energy / span)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a temporary directory");
        for (path, text) in files {
            let path = root.path().join("sys/class/hwmon").join(path);
            fs::create_dir_all(path.parent().expect("it has one")).expect("created");
            fs::write(path, text).expect("written");
        }
        root
    }

    const ORIN: [(&str, &str); 14] = [
        ("hwmon0/name", "tmp451\n"),
        ("hwmon0/in1_label", "VDD_NONE\n"),
        ("hwmon3/name", "ina3221\n"),
        ("hwmon3/in1_label", "VDD_GPU_SOC\n"),
        ("hwmon3/in1_input", "19000\n"),
        ("hwmon3/curr1_input", "1000\n"),
        ("hwmon3/in2_label", "VDD_CPU_CV\n"),
        ("hwmon3/in2_input", "19000\n"),
        ("hwmon3/curr2_input", "200\n"),
        ("hwmon3/in3_label", "VIN_SYS_5V0\n"),
        ("hwmon4/name", "ina3221\n"),
        ("hwmon4/in1_label", "NC\n"),
        ("hwmon4/in1_input", "0\n"),
        ("hwmon4/curr1_input", "0\n"),
    ];

    #[test]
    fn rails_are_found_by_their_labels() {
        let root = board(&ORIN);
        let names: Vec<String> = Rail::all(root.path()).into_iter().map(|rail| rail.name).collect();
        // The third one has a label and no values.
        assert_eq!(names, ["VDD_CPU_CV", "VDD_GPU_SOC"]);
        assert_eq!(Rail::all(&root.path().join("nothing")), []);
        assert!(Meter::start(&[]).is_none());
    }

    #[test]
    fn energy_is_power_over_time() {
        let root = board(&ORIN);
        let meter = Meter::start(&Rail::all(root.path())).expect("rails");
        thread::sleep(Duration::from_millis(50));
        let energies = meter.stop();
        let gpu = &energies[1];
        assert_eq!(gpu.rail, "VDD_GPU_SOC");
        assert!((gpu.watts - 19.0).abs() < 1e-9, "{gpu:?}");
        assert!(gpu.joules >= 19.0 * 0.05, "{gpu:?}");
        assert!((energies[0].watts - 3.8).abs() < 1e-9);
    }

    #[test]
    fn power_between_readings_changes_evenly() {
        assert_eq!(mean(&[]), None);
        assert_eq!(mean(&[(1.0, 5.0)]), Some(5.0));
        assert_eq!(mean(&[(0.0, 0.0), (1.0, 10.0), (3.0, 10.0)]), Some(25.0 / 3.0));
    }
}
