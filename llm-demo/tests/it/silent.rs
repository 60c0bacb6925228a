//! Mistakes that a run must not make in silence: lose a file, ignore an option, continue another text than it
//! was given.

use std::path::Path;
use std::process::{Command, Stdio};

use ga10b_llm::gguf::{GgmlType, Value, Writer};
use ga10b_llm::synthesize::Synthesis;

use crate::program;

fn run(args: &[&str]) -> (i32, String, String) {
    program::run(args, "")
}

fn name(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Writes a model with random weights.
fn synthesize(spec: &str, seed: u64, file: &Path) {
    let synthesis: Synthesis = spec.parse().expect("a shape");
    synthesis.write_file(seed, file, &mut |_, _| ()).expect("a file");
}

/// The embedded model's file with other keys, and with some tensors in F32.
fn with(path: &Path, keys: &[(&str, Value)], wide: &[&str]) {
    let gguf = &ga10b_llm::embedded::model().expect("a model").gguf;
    let mut writer = Writer::new();
    let kept = gguf.metadata().iter().filter(|(key, _)| !keys.iter().any(|(k, _)| k == key));
    kept.for_each(|(key, value)| writer.key(key, value.clone()));
    keys.iter().for_each(|(key, value)| writer.key(*key, value.clone()));
    let is_wide = |name: &str| wide.contains(&name);
    for info in gguf.tensors() {
        writer.tensor(&info.name, if is_wide(&info.name) { GgmlType::F32 } else { info.ty }, &info.dims);
    }
    let mut out = writer.begin(Vec::new()).expect("a vector");
    for info in gguf.tensors() {
        let tensor = gguf.tensor(&info.name).expect("present");
        if is_wide(&info.name) {
            let values = tensor.to_f32().expect("a known type");
            out.write(&values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>()).expect("fits");
        } else {
            out.write(tensor.data).expect("fits");
        }
    }
    std::fs::write(path, out.finish().expect("complete")).expect("written");
}

#[test]
fn a_wrong_token_loses_no_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("logits");
    std::fs::write(&file, "precious").expect("written");
    let (code, _, err) = run(&["logits", name(&file), "--tokens", "1"]);
    assert_eq!(code, 1);
    assert!(err.contains("logits: it is there, and is no file of logits"), "{err}");
    assert_eq!(std::fs::read(&file).expect("there"), b"precious");
    let other = folder.path().join("other");
    let (code, _, err) = run(&["logits", name(&other), "--tokens", "1,99999"]);
    assert_eq!(code, 1);
    assert!(err.contains("token 99999 is outside the vocabulary of 1024"), "{err}");
    assert!(!other.exists());
}

#[test]
fn a_file_is_not_both_read_and_written_nor_written_twice() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |file: &str| name(&folder.path().join(file)).to_owned();
    let (model, link, lark, new, below) =
        (path("m.gguf"), path("link.gguf"), path("g.lark"), path("new"), path("./new"));
    with(Path::new(&model), &[], &[]);
    std::fs::hard_link(&model, &link).expect("linked");
    std::fs::write(&lark, "start: \"a\"").expect("written");
    let before = std::fs::read(&model).expect("there");
    for (args, words) in [
        (&["-m", &model, "--trace", &link][..], "is the model and the trace"),
        (&["logits", &model, "-m", &model, "--tokens", "1"], "is the model and the file of logits"),
        (&["-m", &model, "-f", &lark, "--trace", &lark], "is the prompt and the trace"),
        (&["--grammar", &lark, "--session", &lark], "is the grammar and the session"),
        (&["--session", &new, "--trace", &below], "is the session and the trace"),
        (&["chat", "--template", &lark, "--session", &lark], "is the template and the session"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (2, ""), "{args:?}: {err}");
        assert!(err.contains(words), "{args:?}: {err}");
    }
    // Another kind of file, and what is not there: before a device is opened.
    for (args, words) in [
        (&["--trace", &model][..], "is no trace that is known to be of llm-demo"),
        (&["synthesize", "tiny-llama:q6_k", &model], "is no synthetic model"),
        (&["--trace", "/nonexistent/trace"], "cannot write /nonexistent/trace: "),
        (&["--grammar", "/nonexistent/lark"], "cannot use the grammar /nonexistent/lark"),
        (&["chat", "--template", "/nonexistent/jinja"], "cannot use the template /nonexistent/jinja"),
    ] {
        let (code, out, err) = run(args);
        assert_eq!((code, out.as_str()), (1, ""), "{args:?}: {err}");
        assert!(err.contains(words) && !err.contains("opened a GPU"), "{args:?}: {err}");
    }
    assert!(std::fs::read(&model).expect("there") == before && !Path::new(&new).exists());
    // Its like is replaced.
    for _ in 0..2 {
        let (code, _, err) = run(&["-n", "1", "--trace", &new]);
        assert_eq!(code, 0, "{err}");
        let (code, _, err) = run(&["synthesize", "tiny-llama:q6_k", &path("tiny.gguf")]);
        assert_eq!(code, 0, "{err}");
    }
}

#[test]
fn logits_go_to_standard_output() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = program::command(&["logits", "-", "--tokens", "1,2"]);
    let output = command.current_dir(folder.path()).output().expect("the program starts");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 2 * 1024 * 4));
    assert_eq!(std::fs::read_dir(folder.path()).expect("readable").count(), 0, "a file called -");
}

#[test]
fn a_prompt_comes_from_a_file_or_from_standard_input() {
    let wanted = run(&["-p", "The little fox", "-n", "4"]);
    assert_eq!(wanted.0, 0, "{}", wanted.2);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("prompt");
    std::fs::write(&file, "The little fox\n").expect("written");
    assert_eq!(run(&["-f", name(&file), "-n", "4"]).1, wanted.1);
    assert_eq!(program::run(&["-f", "-", "-n", "4"], "The little fox\n").1, wanted.1);
    std::fs::write(&file, b"\xff").expect("written");
    for file in [name(&file), "/nonexistent/prompt"] {
        let (code, out, err) = run(&["-f", file, "-n", "4"]);
        assert_eq!((code, out.as_str()), (1, ""));
        assert!(err.contains("cannot read the prompt from") && err.contains(file), "{err}");
    }
}

#[test]
fn a_prompt_past_the_context_is_refused_before_it_is_echoed() {
    let long = "a ".repeat(1200);
    let (code, out, err) = run(&["-p", &long, "-n", "4"]);
    assert_eq!((code, out.as_str()), (1, ""), "{err}");
    assert!(
        err.contains("does not fit the model's context of 1024") && !err.contains("the model needs"),
        "{err}"
    );
}

#[test]
fn a_prompt_that_begins_with_bos_has_no_second_one() {
    let gguf = &ga10b_llm::embedded::model().expect("a model").gguf;
    let bos = gguf.uint("tokenizer.ggml.bos_token_id").expect("a number").expect("a token") as usize;
    let token = &gguf.strings("tokenizer.ggml.tokens").expect("strings").expect("tokens")[bos];
    let plain = run(&["-p", "Once upon", "-n", "4"]);
    let (code, out, err) = run(&["-p", &format!("{token}Once upon"), "-n", "4"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(out.strip_prefix(token.as_str()), Some(plain.1.as_str()), "{err}");
    assert!(err.contains("no second one is added"), "{err}");
}

#[test]
fn an_engine_that_the_model_cannot_have_is_an_error_if_asked_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("wide.gguf");
    // A vector that shared memory does not hold.
    let synthesis: Synthesis = "tiny-llama:f16".parse().expect("a shape");
    let synthesis = synthesis.with_sizes(1, 64, 49_152);
    synthesis.write_file(3, &file, &mut |_, _| ()).expect("a file");
    let (code, _, err) = run(&["-m", name(&file), "-n", "2", "-p", "a"]);
    assert_eq!(code, 0, "{err}");
    let (code, out, err) = run(&["-m", name(&file), "-n", "2", "-p", "a", "--engine", "stream"]);
    assert_eq!((code, out.as_str()), (2, ""), "{err}");
    assert!(err.contains("the step kernel does not take this model's sizes"), "{err}");
    assert!(err.contains("--engine stream is not possible"), "{err}");
}

#[test]
fn an_architecture_that_the_step_kernel_lacks_is_named() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("other.gguf");
    // Eight tokens are more than a window of the tiny model.
    for (shape, lacks) in [
        ("tiny-olmoe", "mixtures of experts"),
        ("tiny-gemma2", "scaled embeddings"),
        ("tiny-mistral", "windows of positions"),
    ] {
        synthesize(&format!("{shape}:q8_0"), 3, &file);
        let (code, out, err) = run(&["-m", name(&file), "-n", "8", "-p", "a", "--engine", "stream"]);
        assert_eq!((code, out.as_str()), (2, ""), "{err}");
        assert!(err.contains(&format!("the step kernel has no {lacks}")), "{err}");
        let (code, out, err) = run(&["verify", "-m", name(&file), "-n", "3", "-p", "a"]);
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains("within bounds"), "{out}");
    }
}

/// Steps, and a prompt that is long enough for a chunk.
#[test]
fn the_batch_step_of_any_architecture_is_verified() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("other.gguf");
    for shape in ["tiny-olmoe", "tiny-gemma3", "tiny-smollm3"] {
        synthesize(&format!("{shape}:q8_0"), 0, &file);
        let (code, out, err) = run(&["verify", "--batch", "-m", name(&file), "-n", "40", "-p", "a"]);
        assert_eq!(code, 0, "{out}{err}");
        assert!(out.contains("40, of a batch") && out.contains("within bounds"), "{out}");
    }
    let (code, _, err) = run(&["verify", "--batch", "--engine", "stream"]);
    assert!(code == 2 && err.contains("--engine"), "{err}");
}

#[test]
fn a_model_with_layer_norms_has_a_step_kernel() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("other.gguf");
    synthesize("tiny-gpt2:q8_0", 3, &file);
    let args = ["verify", "-m", name(&file), "-n", "3", "-p", "a", "--engine", "stream"];
    let (code, out, err) = run(&args);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("within bounds"), "{out}");
}

#[test]
fn a_model_of_several_types_has_a_step_kernel() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("mixed.gguf");
    with(&file, &[], &["blk.0.attn_q.weight", "token_embd.weight", "blk.1.ffn_up.weight"]);
    let args = ["verify", "-m", name(&file), "--engine", "stream", "-n", "3"];
    let (code, out, err) = run(&args);
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("within bounds"), "{out}");
}

/// A model without the persistent step is predicted by batch steps, and kept weights are counted.
#[test]
fn a_prediction_needs_no_persistent_step_and_a_fit_counts_kept_weights() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("gemma.gguf");
    synthesize("tiny-gemma2:q6_k", 1, &file);
    let (code, _, err) = run(&["predict", "-m", name(&file), "-n", "1"]);
    assert_eq!(code, 0, "{err}");
    let fits = |how: &str| run(&["info", "-m", name(&file), "--prompt-weights", how]).1;
    assert_ne!(fits("keep"), fits("expand"));
}

#[test]
fn prompts_without_chunks_are_said_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("odd.gguf");
    let synthesis: Synthesis = "tiny-llama:f16".parse().expect("a shape");
    synthesis.with_sizes(2, 512, 1056).write_file(1, &file, &mut |_, _| ()).expect("written");
    let (code, _, err) = run(&["-m", name(&file), "-p", "a", "-n", "2"]);
    assert_eq!(code, 0, "{err}");
    assert_eq!(err.matches("prompts are processed in batch steps").count(), 1, "{err}");
    assert!(err.contains("feed-forward 1056"), "{err}");
}

#[test]
fn ctrl_c_leaves_a_whole_trace() {
    use std::io::Read;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trace.json");
    let mut command = Command::new(assert_cmd::cargo::cargo_bin!("llm-demo"));
    command.env("HCQ_DEVICE", "sim").args(["-n", "900", "--trace", name(&file)]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("the program starts");
    let mut first = [0; 20];
    child.stdout.as_mut().expect("a pipe").read_exact(&mut first).expect("some text");
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill");
    assert!(kill.success());
    let output = child.wait_with_output().expect("it exits");
    assert_eq!(output.status.code(), Some(130));
    let trace: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&file).expect("written")).expect("JSON");
    assert!(!trace["traceEvents"].as_array().expect("events").is_empty());
}

#[test]
fn keys_that_change_the_text_are_refused_or_obeyed() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("changed.gguf");
    let usual = run(&["-n", "8"]).1;
    for (key, value) in [
        ("llama.attention.causal", Value::Bool(false)),
        ("llama.logit_scale", Value::F32(0.5)),
        ("general.type", Value::String("adapter".into())),
    ] {
        with(&file, &[(key, value)], &[]);
        let (code, out, err) = run(&["-m", name(&file), "-n", "8"]);
        assert_eq!((code, out.as_str()), (1, ""), "{key}: {err}");
        assert!(err.contains(key), "{err}");
    }
    for (key, value) in
        [("llama.rope.scale_linear", Value::F32(8.0)), ("llama.attention.sliding_window", Value::U32(8))]
    {
        with(&file, &[(key, value)], &[]);
        let (code, out, err) = run(&["-m", name(&file), "-p", "Once upon a time", "-n", "8"]);
        assert_eq!(code, 0, "{key}: {err}");
        assert_ne!(out, usual, "{key}");
        let (code, out, err) = run(&["verify", "-m", name(&file), "-p", "Once upon a time", "-n", "10"]);
        assert_eq!(code, 0, "{key}: {out}{err}");
    }
}
