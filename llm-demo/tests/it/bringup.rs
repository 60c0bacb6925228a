//! `nvdiag bringup` reads what this program prints: its steps with a language model pass, and its figures are there.

use std::time::Duration;

use ga10b_sim::{Sim, SimConfig};
use hcq::Selector;
use nvdiag::bringup::figures::{Measured, measure};
use nvdiag::bringup::llm_demo::LlmDemo;
use nvdiag::bringup::outcome::Status;
use nvdiag::bringup::plan;
use nvdiag::bringup::rig::Rig;
use nvdiag::bringup::steps::run;
use nvdiag::doctor::{Machine, Node, Unread};

/// A machine that says nothing: the software ga10b is asked for nothing.
struct Silent;

impl Machine for Silent {
    fn text(&self, _: &str) -> Result<String, Unread> {
        Err(Unread::Absent)
    }

    fn list(&self, _: &str) -> Vec<String> {
        Vec::new()
    }

    fn node(&self, _: &str) -> Option<Node> {
        None
    }

    fn faults(&self) -> Result<u64, Unread> {
        Err(Unread::Absent)
    }
}

fn llm_demo() -> LlmDemo {
    LlmDemo::new(assert_cmd::cargo::cargo_bin!("llm-demo").to_owned())
}

#[test]
fn the_steps_of_nvdiag_pass_and_its_figures_are_measured() {
    let mut rig = Rig::software(Sim::new(SimConfig::default()), &Silent);
    (rig.llm_demo, rig.soak) = (Some(llm_demo()), Duration::from_millis(100));
    for number in plan::WITH_MODEL {
        let result = run(plan::find(number).expect("a step"), &rig);
        assert_eq!(result.status, Status::Passed, "{result:#?}");
    }
    let Measured { figures, unmeasured } = measure(&rig).expect("a device");
    assert_eq!(unmeasured, None);
    let tokens = figures.iter().filter(|figure| figure.unit == "tokens/s");
    let names: Vec<&str> = tokens.map(|figure| figure.name.as_str()).collect();
    let tests = ["pp8", "tg4", "tg4-greedy", "tg4-sampled"].map(|test| format!("embedded model, {test}"));
    assert_eq!(names, tests);
}

#[test]
fn an_error_of_the_program_is_that_of_the_step() {
    // No model has room for as many.
    let error = llm_demo().verify(Selector::Sim, "batch", 1_000_000).expect_err("too many").to_string();
    assert!(error.starts_with("llm-demo verify: its process ended with exit status: 1: "), "{error}");
    assert!(error.contains("do not fit the model's context"), "{error}");
}
