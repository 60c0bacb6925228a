//! Subcommands as their users start them, on the software device.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::program::{command, ended, run};

fn good(args: &[&str]) -> String {
    let (code, out, err) = run(args, "");
    assert_eq!(code, 0, "{args:?}: {err}");
    out
}

const STORY: &str = "Once upon a time, a cheerful boy named Tom lived on a quiet farm.\n";

#[test]
fn a_text_comes_from_an_option_a_file_or_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("prompt");
    fs::write(&path, "Once upon a time\n").expect("written");
    assert_eq!(good(&["run", "-n", "12"]), STORY);
    assert_eq!(good(&["run", "-n", "12", "-p", "Once upon a time"]), STORY);
    assert_eq!(good(&["run", "-n", "12", "-f", path.to_str().expect("UTF-8")]), STORY);
    assert_eq!(run(&["run", "-n", "12", "-f", "-"], "Once upon a time\n").1, STORY);
}

#[test]
fn penalties_and_biases_change_the_text() {
    assert_eq!(good(&["run", "-n", "3", "-p", "Once", "--logit-bias", "626=100"]), "OnceOnceOnceOnce\n");
    let plain = good(&["run", "-n", "40"]);
    let penalized = good(&["run", "-n", "40", "--repeat-penalty", "2", "--repeat-last-n", "32"]);
    let frequent = good(&["run", "-n", "40", "--frequency-penalty", "1.5", "--presence-penalty", "1"]);
    assert!(plain != penalized && plain != frequent, "{plain}");
    let persistent = ["run", "-n", "3", "-p", "Once", "--engine", "stream", "--logit-bias", "626=100"];
    assert_eq!(good(&persistent), "OnceOnceOnceOnce\n");
}

#[test]
fn tokens_are_printed() {
    let out = good(&["tokenize", "-p", "Once upon"]);
    assert!(out.contains("626  \"Once\"") && out.contains("627  \" upon\""), "{out}");
    assert_eq!(good(&["tokenize", "--ids", "-p", "Once upon"]), "0,626,627\n");
    assert_eq!(good(&["tokenize", "--ids", "--no-bos", "-p", "Once upon"]), "626,627\n");
}

#[test]
fn a_file_is_described_and_measured_against_the_device() {
    let out = good(&["info"]);
    for words in ["GGUF 3", "Q6_K", "template    none", "4.2 M parameters", "fits"] {
        assert!(out.contains(words), "{words}: {out}");
    }
    let out = good(&["info", "--tensors", "--metadata", "--ctx", "100", "--kv", "q8_0"]);
    for words in
        ["token_embd.weight", "general.architecture = \"llama\"", "1024 strings", "     100 ", "q8_0"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
    let (code, _, err) = run(&["info", "-m", "/nonexistent.gguf"], "");
    assert_eq!(code, 1);
    assert!(err.contains("/nonexistent.gguf"), "{err}");
    // A model that does not fit is a no.
    let (code, out, err) = ended(command(&["info"]).env("NVGPU_SIM_MEMORY", "64000000"));
    assert!(code == 1 && out.contains("does not fit"), "{out}{err}");
}

/// A model of two layers with random weights.
fn tiny(folder: &Path) -> String {
    let path = folder.join("tiny.gguf").to_str().expect("UTF-8").to_owned();
    good(&["synthesize", "tiny-llama:q6_k", &path]);
    path
}

/// The fields that llama.cpp's `compare-llama-bench.py` asks for.
const ASKED: [&str; 28] = [
    "cpu_info",
    "gpu_info",
    "backends",
    "n_gpu_layers",
    "tensor_buft_overrides",
    "model_filename",
    "model_type",
    "n_batch",
    "n_ubatch",
    "embeddings",
    "cpu_mask",
    "cpu_strict",
    "poll",
    "n_threads",
    "type_k",
    "type_v",
    "use_mmap",
    "no_kv_offload",
    "split_mode",
    "main_gpu",
    "tensor_split",
    "flash_attn",
    "n_prompt",
    "n_gen",
    "n_depth",
    "build_commit",
    "test_time",
    "avg_ts",
];

#[test]
fn bench_has_the_fields_and_formats_of_llama_bench() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = tiny(folder.path());
    let bench = |format: &str| {
        good(&["bench", "-m", &model, "-p", "3,9", "-n", "2", "-d", "0,5", "-r", "2", "-o", format])
    };
    let rows: Vec<Value> = serde_json::from_str(&bench("json")).expect("JSON");
    let number = |row: &Value, field: &str| row[field].as_u64().expect("a number");
    let tests: Vec<[u64; 3]> =
        rows.iter().map(|row| ["n_prompt", "n_gen", "n_depth"].map(|field| number(row, field))).collect();
    assert_eq!(tests, [[3, 0, 0], [3, 0, 5], [9, 0, 0], [9, 0, 5], [0, 2, 0], [0, 2, 5]]);
    for row in &rows {
        assert!(ASKED.iter().all(|field| !row[field].is_null()), "{row}");
        let samples = row["samples_ns"].as_array().expect("samples");
        let mean = samples.iter().filter_map(Value::as_u64).sum::<u64>() / 2;
        assert!(samples.len() == 2 && number(row, "avg_ns").abs_diff(mean) <= 1, "{row}");
        assert!(row["peak_host_bytes"].as_u64() > Some(1 << 20), "{row}");
        assert!(row["device_bytes"].as_u64() > Some(1 << 20), "{row}");
    }
    let lines = bench("jsonl");
    assert_eq!(lines.lines().count(), 6);
    assert!(
        lines.lines().all(|line| serde_json::from_str::<Value>(line).is_ok_and(|row| row["avg_ts"].is_f64()))
    );
    let csv = bench("csv");
    let header: Vec<&str> = csv.lines().next().expect("names").split(',').collect();
    assert!(ASKED.iter().all(|field| header.contains(field)), "{csv}");
    // A quoted value may have commas.
    assert!(csv.lines().skip(1).all(|line| line.matches("\",\"").count() == header.len() - 1), "{csv}");
    let table = bench("md");
    for words in ["| model ", "llama ", "| sim ", "pp3 @ d5", "tg2", " ± ", "memory: "] {
        assert!(table.contains(words), "{words}: {table}");
    }
    let (code, _, err) = run(&["bench", "-m", &model, "-p", "100000"], "");
    assert_eq!(code, 1);
    assert!(err.contains("pp100000 needs"), "{err}");
}

#[test]
fn every_command_has_a_manual_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let out = good(&["man", folder.path().to_str().expect("UTF-8")]);
    let page = fs::read_to_string(out.trim()).expect("the page that it names");
    assert!(page.contains("synthesize") && page.contains("device"), "{page}");
    for command in [
        "run",
        "chat",
        "serve",
        "bench",
        "speculate",
        "verify",
        "logits",
        "tokenize",
        "info",
        "tune",
        "profile",
        "predict",
        "synthesize",
    ] {
        let page = folder.path().join(format!("llm-demo-{command}.1"));
        assert!(page.is_file(), "{command}");
    }
    let blocked = folder.path().join("llm-demo.1");
    let (code, _, err) = run(&["man", blocked.to_str().expect("UTF-8")], "");
    assert!(code == 1 && err.contains("cannot write the manual page to"), "{err}");
    for shell in ["bash", "zsh", "fish"] {
        assert!(good(&["completions", shell]).contains("synthesize"), "{shell}");
    }
}
