//! `hcq-bench` on the software GPU: its rows, and that it notices a wrong result by itself.

use std::process::Command;

use serde_json::Value;

/// The rows of a run, by name.
fn rows(args: &[&str]) -> Vec<Value> {
    let output = Command::new(env!("CARGO_BIN_EXE_hcq-bench"))
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
fn launches_graphs_copies_and_allocations_have_their_rows() {
    let rows = rows(&["--copy-mib", "1"]);
    let row = |name: &str| rows.iter().find(|row| row["name"] == name).expect(name);
    assert_eq!(row("launch + wait")["samples"], 1);
    assert_eq!(row("graph of 230, per kernel, 48 addresses")["samples"], 48);
    assert_eq!(row("graph of 230 of load + store, 48 addresses")["samples"], 48);
    for row in &rows {
        assert!(row["min"].as_f64() > Some(0.0) && row["min"].as_f64() <= row["p50"].as_f64(), "{row}");
    }
}
