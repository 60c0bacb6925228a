//! Lines of drivers that are no fault of a channel: explained by the table of formats, or shown whole; never silence.

use nvdiag::Report;
use nvdiag::fault::FaultList;
use nvdiag::known_lines::Severity;
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;

fn explain(log: &str) -> FaultList {
    let mut session = Session::new(ProcessMap::default(), 20);
    session.feed(log.as_bytes());
    session.finish("a log")
}

fn printed(list: &FaultList) -> String {
    let mut out = Vec::new();
    list.print(&mut out).expect("memory takes all");
    anstream::adapter::strip_str(&String::from_utf8(out).expect("a text")).to_string()
}

fn nvgpu(function: &str, level: &str, message: &str) -> String {
    format!("[   12.345678] nvgpu: 17000000.gpu {function:>33}:{:<4} [{level}]  {message}\n", 123)
}

#[test]
fn errors_that_stop_the_gpu_are_explained_with_their_file() {
    for (function, message, file, words) in [
        ("nvgpu_acr_bootstrap_hs_acr", "ACR bootstrap failed", "common/acr/acr.c", "does not start"),
        (
            "gv11b_gr_intr_handle_gcc_exception",
            "Uncorrected error (DBE) detected in GCC L1.5!err_mask [00000001] is_overf [0]",
            "hal/gr/intr/gr_intr_gv11b_fusa.c",
            "lost data",
        ),
        (
            "is_nvgpu_gpu_state_valid",
            "GPU has disappeared from bus!!",
            "common/init/nvgpu_init.c",
            "until a reboot",
        ),
    ] {
        let list = explain(&nvgpu(function, "ERR", message));
        assert!(list.has_problem(), "{message}");
        assert_eq!((list.found, list.unknown_found, list.messages.len()), (0, 0, 1), "{message}");
        let found = &list.messages[0];
        assert_eq!((found.severity, found.is_problem, found.is_exact), (Severity::Gpu, true, true));
        assert_eq!((found.file.as_deref(), found.function.as_deref()), (Some(file), Some(function)));
        assert!(found.meaning.contains(words), "{}", found.meaning);
        let text = printed(&list);
        for part in [&found.meaning, &found.advice, file, message] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}

#[test]
fn an_error_that_nobody_knows_is_a_problem_and_shown_whole() {
    let line = nvgpu("ga10b_new_function", "ERR", "flux capacitor 0x12 of unit 3");
    let list = explain(&line);
    assert!(list.has_problem());
    assert_eq!((list.found, list.unknown_found, list.unknown_errors), (0, 1, 1));
    let text = printed(&list);
    assert!(text.contains("the driver reported 1 error that nvdiag cannot explain"), "{text}");
    assert!(text.contains(line.trim()), "{text}");
    // The function alone identifies the part of the driver.
    let list = explain(&nvgpu("nvgpu_acr_bootstrap_hs_acr", "ERR", "flux capacitor 0x12 of unit 3"));
    assert!(list.unknown[0].unit.as_deref().is_some_and(|unit| unit.contains("ACR")), "{:?}", list.unknown);
}

#[test]
fn what_is_no_error_is_no_problem() {
    for line in [
        nvgpu("ga10b_new_function", "WRN", "flux capacitor 0x12 of unit 3"),
        nvgpu("gp10b_ltc_lts_isr", "ERR", "Single bit error detected in GPU L2!"),
        "[    8.1] nvgpu: loading out-of-tree module taints kernel.\n".to_owned(),
        "[    8.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64\n".to_owned(),
        "[    8.1] app[7]: [ERR] no such file\n".to_owned(),
    ] {
        let list = explain(&line);
        assert!(!list.has_problem(), "{line}: {list:?}");
        assert!(printed(&list).starts_with("no GPU fault in a log (1 line)\n"), "{}", printed(&list));
    }
    assert_eq!(
        explain(&nvgpu("gp10b_ltc_lts_isr", "ERR", "Single bit error detected in GPU L2!")).messages.len(),
        1
    );
}

#[test]
fn stray_lines_that_name_an_error_are_not_passed_over() {
    for line in [
        "hww_warp_esr is 16, says my colleague",
        "screenshot: 0x10 (MISALIGNED_ADDR)",
        "NVRM: the GPU is not responding in a new way",
        "17000000.gpu something_new:12 [ERR] nvgpu is unhappy",
    ] {
        let list = explain(line);
        assert!(list.has_problem(), "{line}");
        assert!(printed(&list).contains(line), "{line}");
    }
    // Of an old release, and with its own frame.
    let old = "[  9.1] gk20a 57000000.gpu: gk20a_fifo_handle_mmu_fault: mmu fault on engine 0, engine subid 0 (gpc), client 5 \
               (t1 0), addr 0xff:0x12345000, type 2 (pte), info 0x3,inst_ptr 0x1000";
    let list = explain(old);
    assert!(list.has_problem() && list.unknown_found == 0, "{list:?}");
}

#[test]
fn equal_messages_are_counted_and_many_are_bounded() {
    let flood = nvgpu("nvgpu_acr_bootstrap_hs_acr", "ERR", "ACR bootstrap failed").repeat(500);
    let list = explain(&flood);
    let found = &list.messages[0];
    assert_eq!((list.messages.len(), found.count, found.line, found.last_line), (1, 500, 1, 500));
    let text = printed(&list);
    assert!(text.contains("1 (500 times, the last in line 500)"), "{text}");
    let log: String = nvdiag::known_lines::Table::built_in()
        .lines()
        .iter()
        .filter(|line| line.driver == "nvgpu" && !line.text.contains('%'))
        .map(|line| nvgpu(&line.sites[0].function, "ERR", &line.text))
        .collect();
    let list = explain(&log);
    assert!(list.messages.len() <= 64 && list.messages_dropped > 500, "{}", list.messages_dropped);
}

#[test]
fn a_message_beside_a_fault_is_shown_after_it() {
    let log = nvgpu("nvgpu_gr_intr_handle_sm_exception", "ERR", "sm hww global 0x00000004 warp 0x00000010")
        + &nvgpu("nvgpu_acr_bootstrap_hs_acr", "ERR", "ACR bootstrap failed");
    let list = explain(&log);
    assert_eq!((list.found, list.messages.len()), (1, 1));
    let text = printed(&list);
    assert!(text.find("INVALID_ADDR_SPACE") < text.find("the driver also reported 1 error"), "{text}");
}
