//! `llm-bench` on the software GPU: its rows, and that it notices a wrong result by itself.

use std::process::Command;

use serde_json::Value;

/// The rows of a run, by name.
fn rows(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_llm-bench"))
        .args(["--device", "sim", "--json", "--launches", "1"])
        .args(args)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "hcq.bench/1");
    report["figures"].as_array().unwrap().clone()
}

#[test]
fn whole_kernels_are_compared_with_the_cpu_and_counted() {
    let rows = rows(&["--sizes", "64,192", "--values", "4100", "--samples", "1", "--gbs", "100"]);
    let names: Vec<_> = rows.iter().map(|row| row["name"].as_str().unwrap()).collect();
    let expected = [
        "f16 matrix product, 64",
        "f16 matrix product, 192",
        "addition of 4100 f32, read + written",
        "D2H 16 MiB pinned",
        "launch + wait",
    ];
    assert_eq!(names, expected);
    assert!(rows[..3].iter().all(|row| row["warp_instructions"].as_u64() > Some(0)), "{rows:?}");
    assert!(rows[2]["percent_of_limit"].as_f64() > Some(0.0) && rows[0]["percent_of_limit"].is_null());
}

#[test]
fn sizes_that_the_kernels_do_not_take_are_refused() {
    for (option, value) in [("--sizes", "64,100"), ("--sizes", "0"), ("--values", "3"), ("--values", "x")] {
        let output = Command::new(env!("CARGO_BIN_EXE_llm-bench"))
            .args(["--device", "sim", option, value])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{option} {value}: {text}");
        assert!(text.contains(option), "{text}");
    }
}
