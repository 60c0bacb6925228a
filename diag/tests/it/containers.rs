//! One fault, stored by many tools: each time the same report, and no character of the tool in it.

use std::fmt::Write as _;

use nvdiag::Report;
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;
use serde_json::{Value, json};

/// A fault as nvgpu prints it.
const LINES: [&str; 5] = [
    "nvgpu: 17000000.gpu nvgpu_gr_intr_handle_sm_exception:365  [ERR]  sm machine check err. gpc_id(0), tpc_id(0), offset(0)",
    "nvgpu: 17000000.gpu gv11b_gr_intr_record_sm_error_state:1949 [ERR]  sm err state gpc_id(0), tpc_id(0), offset(0), sm_id(0), \
     hww_global_esr 4,hww_warp_esr 15, hww_warp_esr_pc 0xff55a2a830",
    "nvgpu: 17000000.gpu nvgpu_gr_intr_handle_sm_exception:377  [ERR]  sm hww global 0x00000004 warp 0x0000000f",
    "nvgpu: 17000000.gpu gr_intr_handle_exception_interrupts:759  [ERR]  set gr exception notifier",
    "nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 13 for ch 507 owned by python3",
];

/// A fault of the MMU, whose lines hold brackets of their own.
const MMU: [&str; 3] = [
    "nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:294  [ERR]  [MMU FAULT] mmu engine id:  65, ch id:  506, fault addr: \
     0xfff3a21000, fault addr aperture: 0, fault type: invalid pte, access type: virt read, ",
    "nvgpu: 17000000.gpu gv11b_fb_mmu_fault_info_dump:307  [ERR]  [MMU FAULT] protected mode: 0, client type: gpc, client id:  t1_3, \
     gpc id if client type is gpc: 0, ",
    "nvgpu: 17000000.gpu     nvgpu_set_err_notifier_locked:143  [ERR]  error notifier set to 31 for ch 506 owned by python3",
];

fn explain(log: &str) -> Value {
    let mut session = Session::new(ProcessMap::default(), 20);
    session.feed(log.as_bytes());
    session.finish("a log").json().expect("JSON")
}

/// A way in which a tool stores line `i`.
type Dress = fn(usize, &str) -> String;

const DRESSES: &[(&str, Dress)] = &[
    ("dmesg --color=always", |i, line| {
        format!("\x1b[32m[  812.00410{i}] \x1b[0m\x1b[33mnvgpu: \x1b[0m\x1b[31m{}\x1b[0m\n", &line[7..])
    }),
    ("colours without their escape character", |i, line| format!("[32m[  812.00410{i}] [0m[31m{line}[0m\n")),
    ("colours as cat -v shows them", |i, line| format!("^[[32m[  812.00410{i}] ^[[0m^[[31m{line}^[[0m\n")),
    ("journalctl -o json", |i, line| {
        let record = json!({"_TRANSPORT": "kernel", "PRIORITY": "3", "__MONOTONIC_TIMESTAMP": format!("81200410{i}"),
            "MESSAGE": line, "_HOSTNAME": "tegra", "x".repeat(1200): "y".repeat(1200)});
        format!("{record}\n")
    }),
    ("journalctl -o json with bytes", |_, line| {
        let bytes: Vec<u8> = format!("\x1b[31m{line}\x1b[0m").into_bytes();
        format!("{}\n", json!({"MESSAGE": bytes, "__REALTIME_TIMESTAMP": "1790000000000000"}))
    }),
    ("journalctl -o json-pretty", |i, line| {
        format!(
            "{{\n\t\"MESSAGE\" : {},\n\t\"_SOURCE_MONOTONIC_TIMESTAMP\" : \"81200410{i}\"\n}}\n",
            json!(line)
        )
    }),
    ("docker", |i, line| {
        let log = format!("[  812.00410{i}] {line}\n");
        format!("{}\n", json!({"log": log, "stream": "stdout", "time": "2026-11-21T16:42:53.004100000Z"}))
    }),
    ("CRI", |_, line| format!("2026-11-21T16:42:53.004100000Z stderr F {line}\n")),
    ("dmesg -J", |i, line| {
        let begins = if i == 0 { "{\n   \"dmesg\": [\n      {\n" } else { "" };
        let ends = if i == 4 { "}\n   ]\n}\n" } else { "},{\n" };
        let message = json!(line);
        format!(
            "{begins}         \"pri\": 3,\n         \"time\":   812.00410{i},\n         \"msg\": {message}\n      {ends}"
        )
    }),
    ("CSV", |i, line| format!("{i},\"812.00410{i}\",\"kern\",\"{line}\",\"err\"\n")),
    ("CSV without quotes, time in another field", |i, line| format!("host,812.00410{i},kern,{line}\n")),
    ("a web page", |i, line| {
        let text = line.replace('[', "&#91;").replace(' ', "&nbsp;");
        format!("<span class=\"err\">[  812.00410{i}] {text}</span><br/>\n")
    }),
    ("logcat", |_, line| format!("11-21 16:42:53.004     0     0 E nvgpu   : {}\n", &line[7..])),
    ("logcat -v brief", |_, line| format!("E/nvgpu   (    0): {}\n", &line[7..])),
    ("wrapped after the level", |i, line| {
        format!("[  812.00410{i}] {}\n", line.replace("[ERR] ", "[ERR]\n"))
    }),
    ("wrapped before the level", |i, line| {
        format!("[  812.00410{i}] {}\n", line.replace("[ERR]", "\n[ERR]"))
    }),
    ("a forum that takes brackets away", |i, line| {
        format!("812.00410{i} {}\n", line.replace(['[', ']'], ""))
    }),
    ("a quoted mail", |i, line| format!("> [  812.00410{i}] {line}\n")),
    ("a table of a text", |i, line| format!("| [  812.00410{i}] {line}\n")),
];

#[test]
fn the_report_is_the_same_whatever_stored_the_log() {
    for (tool, dress) in DRESSES {
        let log = LINES.iter().enumerate().fold(String::new(), |all, (i, line)| all + &dress(i, line));
        let list = explain(&log);
        assert_eq!(
            (&list["found"], &list["unknown_found"]),
            (&json!(1), &json!(0)),
            "{tool}: {log}\n{list:#}"
        );
        let fault = &list["faults"][0];
        assert_eq!(fault["what"]["name"], "MISALIGNED_ADDR", "{tool}");
        assert_eq!(fault["evidence"].as_array().map(Vec::len), Some(5), "{tool}: {fault:#}");
        assert_eq!(fault["owners"][0]["comm"], "python3", "{tool}: {fault:#}");
        assert_eq!(fault["device"], "17000000.gpu", "{tool}");
    }
}

#[test]
fn lines_with_brackets_of_their_own_are_found_too() {
    for (tool, dress) in DRESSES.iter().filter(|(tool, _)| *tool != "dmesg -J") {
        let log = MMU.iter().enumerate().fold(String::new(), |all, (i, line)| all + &dress(i, line));
        let list = explain(&log);
        assert_eq!(
            (&list["found"], &list["unknown_found"]),
            (&json!(1), &json!(0)),
            "{tool}: {log}\n{list:#}"
        );
        let mmu = &list["faults"][0]["mmu"][0];
        assert_eq!(
            (&mmu["address"], &mmu["fault"]),
            (&json!("0xfff3a21000"), &json!("invalid pte")),
            "{tool}"
        );
        assert_eq!(mmu["client"], "t1_3", "{tool}");
    }
}

#[test]
fn no_escape_character_reaches_a_document() {
    let mut log = String::new();
    for line in LINES.iter().chain(&MMU).chain(&["nvgpu: 17000000.gpu f:1 [ERR]  flux\x07 capacitor"]) {
        let _ = writeln!(log, "\x1b[1;31m{line}\x1b[0m\x1b[K");
    }
    let list = explain(&log);
    assert_eq!((&list["found"], &list["unknown_errors"]), (&json!(2), &json!(1)), "{list:#}");
    let text = list.to_string();
    assert!(!text.contains("\\u00") && !text.contains("[0m"), "{text}");
}

#[test]
fn what_follows_a_message_is_no_part_of_it() {
    for behind in ["\"", " <-- here", ", again", "; rest", " (3 times)", " | x", " # note"] {
        let log = format!("[    1.000000] {}{behind}\n", LINES[2]);
        let list = explain(&log);
        assert_eq!((&list["found"], &list["unknown_found"]), (&json!(1), &json!(0)), "{behind}: {list:#}");
        assert_eq!(list["faults"][0]["what"]["name"], "MISALIGNED_ADDR", "{behind}");
    }
}
