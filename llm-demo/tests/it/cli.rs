//! The program as its users start it. Runs of a model use the software device.

use std::path::Path;

use ptxgen::Ptxas;
use serde_json::Value;

use crate::program::{self, command, ended};

fn run(args: &[&str]) -> (i32, String, String) {
    program::run(args, "")
}

/// A model of two layers with random weights.
fn tiny(folder: &Path, quant: &str) -> String {
    let path = folder.join(format!("{quant}.gguf"));
    let path = path.to_str().expect("UTF-8").to_owned();
    let (code, out, err) = run(&["synthesize", &format!("tiny-llama:{quant}"), &path]);
    assert_eq!((code, out.as_str()), (0, ""), "{err}");
    path
}

#[test]
fn without_arguments_it_tells_a_story() {
    let (code, out, err) = run(&["-n", "12"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out, "Once upon a time, a cheerful boy named Tom lived on a quiet farm.\n");
    assert!(err.contains("stopped after 12 tokens"), "{err}");
}

#[test]
fn the_checker_finds_nothing_in_the_built_in_kernels() {
    let (code, out, err) = run(&["-n", "2", "--check=init,sync"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("Once upon a time"), "{out}");
    assert!(err.contains("[checker (init, sync): found nothing]"), "{err}");
}

#[test]
fn the_checker_says_why_it_cannot_search_on_a_gpu() {
    let (code, out, err) = run(&["-n", "2", "--check", "--device", "rm"]);
    assert_eq!((code, out.as_str()), (2, ""));
    assert!(err.contains("the device is \"rm\"") && err.contains("Use --device sim"), "{err}");
}

#[test]
fn a_device_that_does_not_exist_is_blamed_on_who_named_it() {
    let (code, _, err) = ended(command(&[]).env("HCQ_DEVICE", "cuda"));
    assert_eq!(code, 2);
    assert!(err.contains("HCQ_DEVICE") && err.contains("\"cuda\"") && !err.contains("--device <"), "{err}");
    let (code, _, err) = run(&["--device", "vulkan"]);
    assert_eq!(code, 2);
    assert!(err.contains("--device <") && !err.contains("variable HCQ_DEVICE"), "{err}");
}

#[test]
fn a_seed_gives_the_same_text_again() {
    let args = ["-p", "The little fox", "-n", "8", "--temp", "1.2", "--seed", "11"];
    let first = run(&args);
    assert_eq!(first.0, 0, "{}", first.2);
    assert!(first.1.starts_with("The little fox"));
    assert_eq!(first.1, run(&args).1);
}

#[test]
fn verify_states_its_figures_and_bounds() {
    let (code, out, err) = run(&["verify", "-n", "6"]);
    assert_eq!(code, 0, "{out}{err}");
    for word in ["NMSE", "KL mean", "top-1", "at most 1.0e-5", "within bounds"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

fn json(args: &[&str]) -> Value {
    let (code, out, err) = run(args);
    assert_eq!(code, 0, "{args:?}: {err}");
    serde_json::from_str(&out).expect("JSON")
}

#[test]
fn bench_tells_what_its_figures_depend_on() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = tiny(folder.path(), "q6_k");
    let choices = ["--choice", "logits,greedy,sampled", "-r", "2", "-o", "json"];
    let rows = json(&[&["bench", "-m", &model, "--pp", "12", "--tg", "2"], &choices[..]].concat());
    let rows = rows.as_array().expect("rows");
    let tests: Vec<&str> = rows.iter().filter_map(|row| row["test"].as_str()).collect();
    assert_eq!(tests, ["pp12", "tg2", "tg2-greedy", "tg2-sampled"]);
    assert_eq!((&rows[2]["choice"], &rows[2]["sequences"]), (&"greedy".into(), &1.into()));
    let row = &rows[1];
    assert_eq!((&row["schema"], &row["engine"]), (&"llm-demo.bench/2".into(), &"batch".into()));
    assert_eq!((&row["model"]["quantization"], &row["device"]["backend"]), (&"Q6_K".into(), &"sim".into()));
    assert!(row["avg_ts"].as_f64() > Some(0.0) && row["weight_bytes_per_step"].as_u64() > Some(0), "{row}");
    let first = &row["first_token"];
    assert_eq!(first["prompt_tokens"], 12);
    assert!(first["first_step_seconds"].as_f64() > Some(0.0), "{first}");
    let parts = first["parts"].as_array().expect("parts");
    assert!(parts.iter().any(|part| part["name"].as_str().is_some_and(|n| n.starts_with("tokenizer"))));
    let sum: f64 = parts.iter().filter_map(|part| part["seconds"].as_f64()).sum();
    assert!((sum - first["seconds"].as_f64().expect("a number")).abs() < 1e-6, "{first}");
    let (code, out, err) = run(&["bench", "-p", "2", "-n", "2", "-r", "1", "--choice", "greedy"]);
    assert_eq!(code, 0, "{err}");
    for word in ["device", "stories", "Q6_K", "launches", "pp2", "tg2-greedy", "first token", "default"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn several_sequences_are_measured_together() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = tiny(folder.path(), "q6_k");
    let bench = ["bench", "-m", &model, "-b", "1,3", "--pp", "2", "--tg", "2"];
    let rows = json(&[&bench[..], &["-o", "json"]].concat());
    let number = |row: &Value, field: &str| row[field].as_u64().expect("a number");
    let fields = ["sequences", "n_prompt", "n_gen", "n_depth"];
    let tests: Vec<[u64; 4]> = rows
        .as_array()
        .expect("rows")
        .iter()
        .inspect(|row| assert!(row["avg_ts"].as_f64() > Some(0.0) && row["first_token"].is_null(), "{row}"))
        .map(|row| fields.map(|field| number(row, field)))
        .collect();
    assert_eq!(tests, [[1, 2, 0, 0], [1, 0, 2, 2], [3, 2, 0, 0], [3, 0, 2, 2]]);
    let (code, out, err) = run(&bench);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("pp2 x3") && out.contains("tg2 x3 @ d2"), "{out}");
    let step = ["profile", "-m", &model, "-b", "3", "--pp", "2"];
    let report = json(&[&step[..], &["--json"]].concat());
    assert_eq!((&report["batch"], &report["prompt"]), (&3.into(), &2.into()));
    let kernels = report["kernels"].as_array().expect("kernels");
    assert!(kernels.iter().any(|line| line["kernel"] == "columns_q6_k_8"), "{kernels:?}");
    assert!(run(&step).1.contains("of 3 sequences after prompts of 2 tokens"));
}

#[test]
fn steps_of_several_sequences_are_predicted() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = tiny(folder.path(), "q6_k");
    let args = ["predict", "-m", &model, "-b", "1,3", "--context", "40"];
    let report = json(&[&args[..], &["--json"]].concat());
    assert_eq!((&report["schema"], &report["position"]), (&"llm-demo.predict-batch/1".into(), &40.into()));
    let [one, three] = [0, 1].map(|i| &report["batches"][i]);
    // Both take the kernels of eight columns; attention is of each column.
    let count = |batch: &Value, what: &str| batch["cost"][what].as_u64().expect("a count");
    assert_eq!(count(one, "launches"), count(three, "launches"));
    assert!(count(one, "cache_instructions") > 0);
    assert_eq!(3 * count(one, "cache_instructions"), count(three, "cache_instructions"));
    let rate = |batch: &Value| batch["predictions"][0]["all_tokens_per_second"].as_f64();
    assert!(rate(three) > rate(one), "{report}");
    let (code, out, err) = run(&args);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("PREDICTED tok/s of all sequences"), "{out}");
}

#[test]
fn reports_say_what_they_leave_out() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = tiny(folder.path(), "q6_k");
    let json = |command| json(&[command, "-m", &model, "-n", "1", "--json"]);
    // A copy has no rate where time is simulated.
    let profile = json("profile");
    assert!(profile.as_object().expect("an object").contains_key("copy_bandwidth"));
    assert!(profile["copy_bandwidth"].is_null());
    assert!(profile["kernels"][0]["share_of_copy_bandwidth"].is_null());
    assert!(profile["kernels"][0]["gigabytes_per_second"].is_number());

    let predict = json("predict");
    let kernels = predict["occupancy"].as_array().expect("kernels");
    for path in ["stream", "batch", "prompt"] {
        assert!(kernels.iter().any(|k| k["path"] == path), "{path}");
    }
    let step = kernels.iter().find(|k| k["kernel"] == "stream").expect("the step kernel");
    // One block of 10 warps on each SM, by design.
    assert_eq!((&step["blocks_per_sm"], &step["warps_per_sm_launched"]), (&1.into(), &10.into()));
}

#[test]
fn a_trace_tells_what_the_host_did() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join("trace.json");
    let (code, out, err) = run(&["-n", "3", "--trace", path.to_str().expect("UTF-8")]);
    assert_eq!(code, 0, "{err}");
    assert!(out.starts_with("Once upon a time, a"), "{out}");
    assert!(err.contains("ui.perfetto.dev"), "{err}");
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).expect("written")).expect("JSON");
    assert_eq!(trace["otherData"]["device"]["backend"], "sim");
    let events = trace["traceEvents"].as_array().expect("events");
    for name in ["prompt", "sample", "detokenize", "print", "token", "submit", "wait"] {
        assert!(events.iter().any(|e| e["ph"] == "X" && e["cat"] == "host" && e["name"] == name), "{name}");
    }
    let missing = folder.path().join("no").join("trace.json");
    let (code, _, err) = run(&["-n", "1", "--trace", missing.to_str().expect("UTF-8")]);
    assert_eq!(code, 1);
    assert!(err.contains("cannot write"), "{err}");
}

#[test]
fn greedy_tokens_are_compared_with_those_of_the_unfused_path() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = tiny(folder.path(), "q4_k_m");
    let args = ["verify", "-m", &model, "-p", "a", "--greedy", "4"];
    let (code, out, err) = run(&[&args[..], &["--engine", "stream"]].concat());
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("stream with batch") && out.contains("the same 4 tokens"), "{out}");
    let (code, _, err) = run(&args);
    assert_eq!(code, 1);
    assert!(err.contains("choose --engine stream"), "{err}");
    // An engine that there is no more.
    let (code, _, err) = run(&["-n", "1", "--engine", "phases"]);
    assert_eq!(code, 2);
    assert!(err.contains("a step is one launch (stream)"), "{err}");
}

#[test]
fn profile_prints_a_table() {
    let (code, out, err) = run(&["profile", "-n", "2"]);
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("share") && out.contains('%'), "{out}");
    let (code, out, err) = run(&["profile", "--pp", "9"]);
    assert_eq!(code, 0, "{err}");
    for word in ["9 tokens", "dequantize_q6_k", "gemm_gate", "prompt_attention"] {
        assert!(out.contains(word), "{word}: {out}");
    }
}

#[test]
fn dumped_logits_are_rows_of_floats() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let out = folder.path().join("logits.f32");
    let path = out.to_str().expect("UTF-8");
    let (code, _, err) = run(&["logits", path, "--tokens", "0,626,627"]);
    assert_eq!(code, 0, "{err}");
    let bytes = std::fs::read(&out).expect("written");
    assert_eq!(bytes.len(), 3 * 1024 * 4);
    let best = |row: &[u8]| {
        let logits: Vec<f32> = row.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect();
        ga10b_llm::sampler::argmax(&logits)
    };
    // "Once", "upon", "a": the trainer's own model says the same.
    assert_eq!(best(&bytes[4096..8192]), 627);
    assert_eq!(best(&bytes[8192..]), 259);
}

#[test]
fn wrong_usage_exits_with_2_and_says_what_to_enter() {
    for (args, words) in [
        (&["--no-such-flag"][..], "--no-such-flag"),
        (&["-m", "x", "--bench", "--pp", "3"], "--bench is of the subcommand bench: llm-demo bench -m FILE"),
        (&["--tune=prompt"], "--tune is of the subcommand tune: llm-demo tune"),
        (&["-b", "2"], "llm-demo bench -b N"),
        (&["--man", "x"], "llm-demo man FOLDER"),
        (&["--serve"], "--serve is a subcommand: llm-demo serve"),
        (&["verify", "--json"], "--json is an option of speculate, tokenize, info, tune, profile, predict"),
        (&["verify", "--json"], "Usage: llm-demo verify"),
        (&["-p", "hello", "world"], "quote a prompt"),
        (&["run", "-p", "hello", "world"], "quote a prompt"),
        (&["--check", "memory"], "--check=memory"),
        (&["-n", "3", "info"], "options follow the subcommand: llm-demo info"),
        (&["synthesize", "llama-9:q6_k", "x.gguf"], "llama-9"),
        (&["synthesize", "tiny-llama:q9", "x.gguf"], "q9"),
        (&["--temp", "warm"], "a number"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains("error: ") && err.contains(words), "{args:?}: {err}");
    }
}

#[test]
fn settings_that_cannot_be_exit_with_2() {
    for (variable, value, args) in [
        ("HCQ_PROFILE", "/nowhere", &["-n", "1"][..]),
        ("HCQ_CONSERVATIVE", "x", &["-n", "1"]),
        ("NVGPU_SIM_WHATIF", ",", &["-n", "1"]),
        ("NVGPU_SIM_SMS", "3", &["-n", "1", "--check"]),
    ] {
        let (code, out, err) = ended(command(args).env(variable, value));
        assert_eq!((code, out.as_str()), (2, ""), "{variable}: {err}");
        assert!(err.contains(variable), "{err}");
    }
}

#[test]
fn a_full_disk_is_an_error_said_once() {
    for args in
        [&["--help"][..], &["--version"], &["bench", "--help"], &["tokenize"], &["completions", "zsh"]]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
        let mut command = std::process::Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
        let output = command.args(args).stdout(full).output().expect("the program starts");
        let err = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((output.status.code(), err.lines().count()), (Some(1), 1), "{args:?}: {err}");
    }
}

#[test]
fn failures_exit_with_1_and_say_what_to_do() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let missing = folder.path().join("missing.gguf");
    let (code, _, err) = run(&["-m", missing.to_str().expect("UTF-8")]);
    assert_eq!(code, 1);
    assert!(err.contains("missing.gguf") && err.contains("No such file"), "{err}");

    let damaged = folder.path().join("damaged.gguf");
    let model = std::fs::read(tiny(folder.path(), "q8_0")).expect("readable");
    std::fs::write(&damaged, &model[..model.len() / 2]).expect("written");
    let (code, _, err) = run(&["-m", damaged.to_str().expect("UTF-8")]);
    assert_eq!(code, 1);
    assert!(err.contains("cut short or damaged"), "{err}");

    let (code, _, err) = run(&["bench", "--pp", "5000"]);
    assert_eq!(code, 1);
    assert!(err.contains("model's context has 1024"), "{err}");
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    use std::process::{Command, Stdio};
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    command.args(["--device", "sim", "-n", "6"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it exits");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

/// [`run`] with a file of tuned shapes, and perhaps a ptxas.
fn run_tuned(file: &Path, ptxas: Option<&str>, args: &[&str]) -> (i32, String, String) {
    let mut command = command(args);
    command.env("LLM_DEMO_TUNING", file);
    ptxas.map(|path| command.env("PTXAS", path));
    ended(&mut command)
}

const BENCH: [&str; 9] = ["bench", "-p", "0", "-n", "1", "-r", "1", "-o", "json"];

#[test]
fn a_file_that_is_none_is_named_and_the_usual_shapes_are_used() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("tuning.json");
    for (content, word) in [("{\"schema\": \"other/3\"}", "other/3"), ("not JSON", "damaged")] {
        std::fs::write(&file, content).unwrap();
        let (code, out, err) = run_tuned(&file, None, &BENCH);
        assert_eq!(code, 0, "{err}");
        assert!(err.contains("tuning.json") && err.contains(word), "{err}");
        let report: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(report[0]["tuning"]["source"], "default");
        let (code, _, err) = run_tuned(&file, None, &["tune"]);
        assert_eq!(code, 1);
        assert!(err.contains("tuning.json") && err.contains("move it away"), "{err}");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), content, "it is left alone");
    }
}

#[test]
fn without_ptxas_the_search_says_how_to_get_one() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("tuning.json");
    let (code, out, err) = run_tuned(&file, Some("/nonexistent/ptxas"), &["tune"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("/nonexistent/ptxas"), "{err}");
    assert!(!file.exists());
}

#[test]
fn bench_says_which_shapes_are_in_use() {
    if Ptxas::find().is_err() {
        eprintln!("skipped: no ptxas");
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let file = folder.path().join("tuning.json");
    let args = ["tune", "--budget", "4", "--json"];
    let (code, out, err) = run_tuned(&file, None, &args);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["schema"], &report["method"]), (&"llm-demo.tune/1".into(), &"predicted".into()));
    assert!(!report["results"].as_array().unwrap().is_empty());
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept["schema"], "llm-demo.tuning/1");
    // A result for all products, whether there was time for candidates or not.
    let (code, out, err) = run_tuned(&file, Some("/nonexistent/ptxas"), &BENCH);
    assert_eq!(code, 0, "{err}");
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report[0]["tuning"]["source"], "file");
    assert_eq!(report[0]["tuning"]["path"], file.to_str().unwrap());
    assert_eq!(report[0]["tuning"]["method"], "predicted");
    let (_, out, _) = run_tuned(&file, None, &[&BENCH[..], &["--no-tuning"]].concat());
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report[0]["tuning"]["source"], "default");
}

/// A software GPU with 64 MB: the embedded model's scratch alone is larger.
#[test]
fn a_model_that_does_not_fit_is_refused_before_it_is_copied() {
    let (code, out, err) = ended(command(&["-n", "4"]).env("NVGPU_SIM_MEMORY", "64000000"));
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(err.contains("llm-demo: the model does not fit: it needs "), "{err}");
    assert!(err.contains("MB of weights, ") && err.contains("of 64.0 MB are free"), "{err}");
    assert!(err.contains("try: end other programs") && !err.contains("ENOMEM"), "{err}");
}

#[test]
fn what_is_said_to_fit_decodes_and_what_is_less_is_refused_at_any_number_of_sms() {
    for sms in ["2", "10", "16"] {
        let run = |memory: &str| {
            ended(command(&["-n", "2"]).env("NVGPU_SIM_SMS", sms).env("NVGPU_SIM_MEMORY", memory))
        };
        let (_, _, err) = run("40000000");
        let needed = err.split_once("it needs ").and_then(|after| after.1.split_once(' ')).expect("a sum").0;
        let needed: f64 = needed.parse().expect("a number");
        // The free memory is a little less than all.
        let (code, out, err) = run(&format!("{:.0}", (needed + 0.3) * 1e6));
        assert_eq!(code, 0, "{sms} SMs: {out}{err}");
        let (code, out, err) = run(&format!("{:.0}", (needed - 0.3) * 1e6));
        assert_eq!((code, out.as_str()), (1, ""), "{sms} SMs");
        assert!(err.contains("the model does not fit"), "{sms} SMs: {err}");
        // No quantization is that small.
        let (_, _, err) = run(&format!("{:.0}", (needed - 2.9) * 1e6));
        assert!(err.contains("does not fit") && !err.contains("weights of up to"), "{sms} SMs: {err}");
    }
}

#[test]
fn sequences_that_are_said_to_fit_are_measured_and_others_refused() {
    let run = |memory: &str| {
        let bench = ["bench", "-b", "4", "-p", "2", "-n", "2", "-r", "1"];
        let (code, _, err) = ended(command(&bench).env("NVGPU_SIM_MEMORY", memory));
        (code, err)
    };
    let (code, err) = run("20000000");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("shared by up to 4 sequences") && !err.contains("ENOMEM"), "{err}");
    let needed = err.split_once("it needs ").and_then(|after| after.1.split_once(' ')).expect("a sum").0;
    let needed: f64 = needed.parse().expect("a number");
    // The free memory is a little less than all.
    let (code, err) = run(&format!("{:.0}", (needed + 0.3) * 1e6));
    assert_eq!(code, 0, "{err}");
    let (code, err) = run(&format!("{:.0}", (needed - 0.3) * 1e6));
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("the model does not fit"), "{err}");
}

#[test]
fn a_context_that_does_not_fit_names_one_that_does() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let model = tiny(folder.path(), "q8_0");
    let run = |memory: &str, count: &str| {
        let bench = ["bench", "-m", &model, "-r", "1", "-p", "0", "-n", count];
        let (code, _, err) = ended(command(&bench).env("NVGPU_SIM_MEMORY", memory));
        (code, err)
    };
    let (code, err) = run("400000000", "2");
    assert_eq!(code, 0, "{err}");
    let needed = err.split_once("the model needs ").expect("a report").1;
    let megabytes: f64 = needed.split(' ').next().expect("a number").parse().expect("a number");
    // Enough for a few positions, too little for all that the model can have.
    let (code, err) = run(&format!("{:.0}", (megabytes + 3.0) * 1e6), "4096");
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("the model does not fit") && err.contains("try: fewer positions: "), "{err}");
    assert!(err.contains("try: --kv q8_0, with which "), "{err}");
}
