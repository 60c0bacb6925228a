//! Runs on the software ga10b with its checker: `--check`.

use std::sync::Arc;

use anyhow::Context;
use ga10b_sim::{Checks, Finding, Sim, SimConfig};
use hcq::{Device, DeviceOptions, Selector};

use crate::cli::options::OnDevice;
use crate::outcome::{Outcome, Usage};
use crate::session;

/// Opens the device that the command line names; with checks, a software ga10b that searches for mistakes of
/// kernels.
///
/// # Errors
/// If there are checks and `on` names a GPU: the hardware does not notice these mistakes.
pub fn device(checks: Option<Checks>, on: &OnDevice) -> anyhow::Result<Device> {
    let selector = on.selector;
    let Some(check) = checks else { return session::device(on) };
    if !matches!(selector, Selector::Auto | Selector::Sim) {
        let refused = format!(
            "--check searches while the software ga10b executes a kernel, and the device is \"{selector}\" (--device \
             or HCQ_DEVICE): a GPU does not notice these mistakes. Use --device sim"
        );
        return Err(Usage(refused).into());
    }
    let config = SimConfig { check, ..SimConfig::from_env()? };
    let sim: Arc<Sim> = Sim::try_new(config).context("cannot start the software ga10b")?;
    hcq::sim::open(sim, DeviceOptions::default()).context("cannot open the device \"sim\"")
}

/// The outcome of a command with the findings of `device`'s checker. Each finding has been printed when it
/// was noticed.
pub fn conclude(checks: Option<Checks>, device: &Device, outcome: Outcome) -> Outcome {
    let Some((checks, sim)) = checks.zip(hcq::sim::of(device)) else { return outcome };
    let findings = sim.findings();
    anstream::eprintln!("{}", summary(checks, &findings));
    if findings.is_empty() { outcome } else { Outcome::Findings }
}

fn summary(checks: Checks, findings: &[Finding]) -> String {
    let names: Vec<String> = checks.iter_names().map(|(name, _)| name.to_lowercase()).collect();
    let times: u64 = findings.iter().map(|finding| finding.count).sum();
    let found = match (findings.len(), times) {
        (0, _) => "found nothing".to_owned(),
        (1, 1) => "found 1 mistake".to_owned(),
        (1, times) => format!("found 1 mistake, {times} times"),
        (n, times) => format!("found {n} mistakes, {times} times"),
    };
    format!("[checker ({}): {found}]", names.join(", "))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ga10b_sim::Event;
    use hcq::{Args, LaunchConfig};

    use super::*;

    fn finding(count: u64) -> Finding {
        let event =
            Event { pc: 0x10, sass: "LDG R2, [R2]".to_owned(), block: [0; 3], thread: [0; 3], source: None };
        let text = "reads memory that nothing wrote".to_owned();
        Finding {
            check: Checks::INIT,
            text,
            detail: String::new(),
            program: 0,
            kernel: None,
            event,
            address: None,
            location: None,
            earlier: None,
            count,
        }
    }

    #[test]
    fn the_summary_names_the_checks_and_counts_mistakes_and_how_often_they_occur() {
        let checks = Checks::INIT | Checks::SYNC;
        assert_eq!(summary(checks, &[]), "[checker (init, sync): found nothing]");
        assert_eq!(summary(checks, &[finding(1)]), "[checker (init, sync): found 1 mistake]");
        let two = [finding(1), finding(4)];
        assert_eq!(summary(Checks::INIT, &two), "[checker (init): found 2 mistakes, 5 times]");
    }

    /// `vadd_f32` of 32 elements on buffers of which it reads one that nothing has written.
    #[test]
    fn a_launch_with_a_mistake_ends_the_program_with_3_whatever_else_it_did() {
        const VADD: &[u8] = include_bytes!("../../hcq/tests/data/01_vecadd.sm_87.cubin");
        let checks = Checks::INIT;
        let device = super::device(Some(checks), &OnDevice { selector: Selector::Sim }).expect("a device");
        let [a, b, c] = [(); 3].map(|()| device.alloc(128).expect("memory"));
        a.write(0, &[0; 128]).expect("written");
        for (outcome, code) in [(Outcome::Good, 0), (Outcome::Bad, 1)] {
            assert_eq!(conclude(Some(checks), &device, outcome).code(), code);
        }
        let kernel = device.load(VADD).expect("a cubin").kernel("vadd_f32").expect("its kernel");
        let args = Args::new().buffer(&a).buffer(&b).buffer(&c).u32(32);
        let mut queue = device.queue().expect("a queue");
        // SAFETY: 32 elements of each buffer, which hold as many.
        unsafe { queue.launch(&kernel, LaunchConfig::new(1, 32), &args) }.expect("a launch");
        queue.submit().expect("submitted").wait(Duration::from_secs(60)).expect("it ends");
        for outcome in [Outcome::Good, Outcome::Bad] {
            assert_eq!(conclude(Some(checks), &device, outcome).code(), 3);
            assert_eq!(conclude(None, &device, outcome), outcome, "nobody asked");
        }
    }

    #[test]
    fn a_gpu_is_refused_with_the_reason() {
        let error = device(Some(Checks::all()), &OnDevice { selector: Selector::Rm }).expect_err("a GPU");
        assert!(error.to_string().contains("does not notice"), "{error}");
    }
}
