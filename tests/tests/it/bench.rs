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

#[test]
fn a_control_loop_counts_its_ticks_and_those_it_missed() {
    let output = Command::new(env!("CARGO_BIN_EXE_hcq-bench"))
        .args([
            "loop",
            "--device",
            "sim",
            "--json",
            "--hz",
            "50",
            "--hz",
            "100000",
            "--seconds",
            "1",
            "--load",
        ])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["schema"], "hcq.loop/1");
    let figures = report["figures"].as_array().unwrap();
    let about: Vec<_> =
        figures.iter().map(|figure| (figure["hz"].as_u64(), figure["load"].as_bool())).collect();
    assert_eq!(
        about,
        [50, 50, 100_000, 100_000]
            .iter()
            .zip([false, true, false, true])
            .map(|(hz, load)| (Some(*hz), Some(load)))
            .collect::<Vec<_>>()
    );
    for figure in figures {
        let number = |name: &str| figure[name].as_u64().expect(name);
        assert_eq!(number("ticks") + number("missed"), number("hz"), "each tick runs or is missed: {figure}");
        let times = &figure["response"];
        let order = ["min", "p50", "p99", "p99_99", "max"].map(|name| times[name].as_f64().expect(name));
        assert!(order[0] > 0.0 && order.is_sorted(), "{figure}");
        assert!(figure["work"]["min"].as_f64() <= times["min"].as_f64(), "{figure}");
    }
    // The model takes longer than 10 us for a launch.
    assert!(figures[2]["missed"].as_u64() > Some(0), "{figures:?}");
}
