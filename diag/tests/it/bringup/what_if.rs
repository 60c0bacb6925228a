//! Healthy boards that differ from the model's default in one fact: no step fails, and the fact is named.

use std::time::Duration;

use ga10b_sim::{Sim, SimConfig, WhatIf, WhatIfs};
use hcq::{DeviceOptions, Preemption};
use nvdiag::bringup::outcome::{Fact, Status, StepResult};
use nvdiag::bringup::plan::{STEPS, Step};
use nvdiag::bringup::rig::Rig;
use nvdiag::bringup::settings::{Bases, Stage};
use nvdiag::bringup::steps::{run, try_settings};

use super::{CILP, Silent, differing, fact, step};

/// Runs a step as the program does, on a machine of its own with a what-if.
fn what_if(step: &Step, what_if: &WhatIfs) -> StepResult {
    let sim = Sim::new(SimConfig { what_if: what_if.clone(), ..SimConfig::default() });
    let mut rig = Rig::software(sim, &Silent);
    rig.soak = Duration::from_millis(200);
    run(step, &rig)
}

/// Steps that take seconds and that no what-if touches.
const SLOW: [u32; 3] = [13, 14, 17];
/// Steps of another program, which has a GPU of its own.
const OTHERS: [u32; 2] = [20, 21];

/// Runs the steps on a machine with a what-if, none of which fails, and returns them with what differs.
fn healthy(fact: impl Into<WhatIfs>) -> Vec<StepResult> {
    let fact = fact.into();
    let left_out = |step: &&Step| SLOW.contains(&step.number) || OTHERS.contains(&step.number);
    let steps = STEPS.iter().filter(|step| !left_out(step));
    let results: Vec<_> = steps.map(|step| what_if(step, &fact)).collect();
    let failed = results.iter().find(|result| result.status == Status::Failed);
    assert!(failed.is_none(), "{fact:?}: {failed:#?}");
    results
}

/// The steps that find something that differs, each with what.
fn found(results: &[StepResult]) -> Vec<(u32, Vec<&str>)> {
    let found = results.iter().map(|result| (result.number, differing(result)));
    found.filter(|(_, differing)| !differing.is_empty()).collect()
}

/// The number before a unit in a fact.
fn number(fact: &Fact, unit: &str) -> f64 {
    let before = fact.value.split(unit).next().unwrap_or_default();
    before.trim().rsplit(' ').next().unwrap_or_default().parse().unwrap_or_else(|_| panic!("{fact:?}"))
}

fn of(results: &[StepResult], number: u32) -> &StepResult {
    results.iter().find(|result| result.number == number).expect("a step that was run")
}

#[test]
fn what_if_the_doorbell_page_is_of_another_class() {
    let results = healthy(WhatIf::DOORBELL_CLASS);
    assert_eq!(found(&results), [(6, vec!["class of the page"])]);
}

#[test]
fn what_if_gp_get_is_late() {
    assert_eq!(found(&healthy(WhatIf::LATE_GP_GET)), []);
    // The CPU may be late itself, and see both at once.
    let seen_late = (0..50).any(|_| {
        let result = what_if(step(9), &WhatIf::LATE_GP_GET.into());
        number(fact(&result, "GP_GET"), " ms") >= 0.05
    });
    assert!(seen_late);
}

#[test]
fn what_if_the_group_is_unserviceable_late() {
    let results = healthy(WhatIf::LATE_UNSERVICEABLE);
    assert_eq!(found(&results), []);
    assert!(number(fact(of(&results, 19), "GET_TIMEDOUT"), " ms") >= 10.0, "{results:#?}");
}

#[test]
fn what_if_the_exception_of_the_sm_comes_first_or_the_fault_of_the_mmu() {
    for (order, differs) in
        [(WhatIf::SM_FIRST, vec![(19, vec!["unmapped, notifier"])]), (WhatIf::MMU_FIRST, vec![])]
    {
        let results = healthy(order);
        assert_eq!(found(&results), differs, "{order:?}");
        let reported = fact(of(&results, 19), "unmapped, reported as");
        assert_eq!(reported.value, "the MMU's fault", "{order:?}");
        assert_eq!(fact(of(&results, 19), "unmapped, address").value, "0x0", "{order:?}");
    }
}

#[test]
fn what_if_cilp_is_refused() {
    let results = healthy(WhatIf::CILP_REFUSED);
    assert_eq!(found(&results), [(8, vec![CILP])]);
}

#[test]
fn what_if_preemption_is_slow() {
    let results = healthy(WhatIf::SLOW_PREEMPTION);
    assert_eq!(found(&results), [(18, vec!["kernel log"])]);
    let line = &fact(of(&results, 18), "kernel log").value;
    assert!(line.contains("unbind failed, tearing down TSG"), "{line}");
}

#[test]
fn what_if_write_combined_memory_is_stale() {
    let results = healthy(WhatIf::STALE_WRITE_COMBINED);
    let commands =
        ["asynchronous", "synchronous"].map(|s| format!("{s} subcontext, write-combined commands"));
    assert_eq!(found(&results), [(9, commands.iter().map(String::as_str).collect())]);
}

#[test]
fn what_if_veid_0_is_dead() {
    let results = healthy(WhatIf::DEAD_VEID_0);
    let commands = ["cacheable", "write-combined"].map(|c| format!("synchronous subcontext, {c} commands"));
    let first = commands.iter().map(String::as_str).collect();
    assert_eq!(found(&results), [(9, first), (10, vec!["synchronous subcontext"])]);
}

#[test]
fn what_if_the_characteristics_have_another_length() {
    for (what_if, length) in
        [(WhatIf::CHARACTERISTICS_400, "400 bytes"), (WhatIf::CHARACTERISTICS_312, "312 bytes")]
    {
        let results = healthy(what_if);
        assert_eq!(found(&results), [(2, vec!["characteristics"])]);
        assert_eq!(fact(of(&results, 2), "characteristics").value, length);
    }
}

#[test]
fn what_if_the_kernel_log_may_not_be_read() {
    let results = healthy(WhatIf::NO_KERNEL_LOG);
    assert_eq!(found(&results), []);
    for result in &results {
        let looks = [10, 18, 19].contains(&result.number);
        assert_eq!(result.status, if looks { Status::Unseen } else { Status::Passed }, "{result:#?}");
        assert_eq!(looks, result.reason.as_deref().is_some_and(|why| why.contains("the kernel log")));
        assert_eq!(looks, result.remedy.as_deref().is_some_and(|what| what.contains("dmesg_restrict=0")));
    }
}

/// Requests that hcq does without, or that it sends where a setting needs them, with the steps that mark
/// them.
const SPARED: [(&str, &[u32]); 11] = [
    ("NVMAP_IOC_QUERY_HEAP_PARAMS", &[3]),
    // For buffers of 4 GiB.
    ("NVMAP_IOC_CREATE_64", &[]),
    // Mappings that are not removed end with the address space.
    ("NVGPU_AS_IOCTL_UNMAP_BUFFER", &[]),
    ("NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT", &[7, 8, 9, 10]),
    ("NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE", &[8]),
    ("NVGPU_IOCTL_CHANNEL_SET_TIMEOUT_EX", &[8]),
    ("NVGPU_IOCTL_CHANNEL_SET_ERROR_NOTIFIER", &[8, 19]),
    ("NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT", &[8, 19]),
    ("NVGPU_GPU_IOCTL_GET_GPU_TIME", &[9]),
    ("NVGPU_GPU_IOCTL_FLUSH_L2", &[14]),
    ("NVGPU_TSG_IOCTL_READ_SINGLE_SM_ERROR_STATE", &[19]),
];

#[test]
fn what_if_a_request_is_unknown_that_work_can_do_without() {
    for (request, marked) in SPARED {
        let what_if = format!("enotty={request}").parse::<WhatIfs>().expect("a request");
        let mut results = healthy(what_if.clone());
        results.push(self::what_if(step(14), &what_if));
        let found = found(&results);
        assert_eq!(found.iter().map(|(step, _)| *step).collect::<Vec<_>>(), marked, "{request}: {found:?}");
        for (number, names) in found.iter().take(1) {
            let fact = fact(of(&results, *number), names[0]);
            assert!(fact.value.contains(request) && fact.value.contains("ENOTTY"), "{fact:?}");
        }
        assert!(results.iter().all(|result| result.status == Status::Passed), "{results:#?}");
    }
}

#[test]
fn what_if_there_is_no_asynchronous_subcontext_says_nothing_of_preemption() {
    let what_if = "enotty=NVGPU_TSG_IOCTL_CREATE_SUBCONTEXT".parse::<WhatIfs>().expect("a request");
    assert_eq!(fact(&self::what_if(step(8), &what_if), CILP).value, "offered and accepted");
}

#[test]
fn what_if_cilp_is_refused_is_what_its_cells_say() {
    let config = SimConfig { what_if: WhatIf::CILP_REFUSED.into(), ..SimConfig::default() };
    let rig = Rig::software(Sim::new(config), &Silent);
    let mut settings = Bases::of(&DeviceOptions::default()).default;
    settings.preemption = Some(Preemption::Instructions);
    let failure = try_settings(&rig, settings, false).failure.expect("it is not preempted");
    assert_eq!(failure.stage, Stage::Preemption);
    assert!(failure.reason.contains("the driver refused the mode"), "{failure:?}");
}

#[test]
fn what_if_other_drivers_nodes_are_there_or_late() {
    for what_if in [WhatIf::DISPLAY_DRIVER, WhatIf::LATE_DEVFREQ] {
        assert_eq!(found(&healthy(what_if)), []);
    }
}

#[test]
fn what_if_the_firmware_did_not_start() {
    let result = what_if(step(1), &WhatIf::ONLY_POWER.into());
    assert_eq!(result.status, Status::Failed);
    let reason = result.reason.as_deref().unwrap_or_default();
    assert!(reason.contains("the GPU's firmware did not start"), "{reason}");
    let remedy = result.remedy.as_deref().unwrap_or_default();
    assert!(remedy.contains("power off") && !remedy.contains("modprobe"), "{remedy}");
}

#[test]
fn what_if_all_of_it_at_once() {
    // Not a dead default, and no two orders of one fact.
    let healthy = WhatIf::all() - WhatIf::ONLY_POWER - WhatIf::MMU_FIRST - WhatIf::CHARACTERISTICS_312;
    for step in &STEPS {
        let result = what_if(step, &healthy.into());
        assert_ne!(result.status, Status::Failed, "{result:#?}");
    }
}
