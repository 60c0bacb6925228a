//! Files as people download them: in parts, of types without kernels; and what is said of a file without a GPU.

use std::fs;
use std::path::Path;

use ga10b_llm::gguf::{GgmlType, Gguf, Value, Writer};
use serde_json::Value as Json;
use tempfile::TempDir;

use crate::program::run;

fn good(args: &[&str]) -> String {
    let (code, out, err) = run(args, "");
    assert_eq!(code, 0, "{args:?}: {err}");
    out
}

fn json(args: &[&str]) -> Json {
    serde_json::from_str(&good(args)).expect("JSON")
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Writes the tensors `own` of `whole` with some keys, and tensors of zeros in place of some.
fn write(
    path: &Path,
    whole: &Gguf,
    keys: &[(&str, Value)],
    own: std::ops::Range<usize>,
    zeros: Option<(&str, GgmlType)>,
) {
    let mut writer = Writer::new();
    if own.start == 0 {
        let kept = whole.metadata().iter().filter(|(key, _)| keys.iter().all(|(other, _)| other != key));
        kept.for_each(|(key, value)| writer.key(key, value.clone()));
    }
    keys.iter().for_each(|(key, value)| writer.key(*key, value.clone()));
    let own = &whole.tensors()[own];
    let type_of = |name: &str| zeros.filter(|(zero, _)| *zero == name).map(|(_, ty)| ty);
    own.iter().for_each(|t| writer.tensor(&t.name, type_of(&t.name).unwrap_or(t.ty), &t.dims));
    let mut out = writer.begin(Vec::new()).expect("a vector");
    for info in own {
        let view = whole.tensor(&info.name).expect("a tensor");
        match type_of(&info.name) {
            Some(ty) => {
                out.write(&vec![0; ty.bytes_for(info.dims.iter().product()).expect("whole") as usize])
            }
            None => out.write(view.data),
        }
        .expect("fits");
    }
    fs::write(path, out.finish().expect("complete")).expect("written");
}

/// A tiny model in `folder`: its file, and what is in it.
fn tiny(folder: &TempDir) -> (String, Gguf) {
    let path = folder.path().join("tiny.gguf");
    good(&["synthesize", "tiny-llama:q8_0", text(&path)]);
    let gguf = Gguf::open(&path).expect("a file");
    (text(&path).to_owned(), gguf)
}

#[test]
fn a_split_model_is_given_by_its_first_file_in_every_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, gguf) = tiny(&folder);
    let count = gguf.tensors().len();
    let path = |number: usize| folder.path().join(format!("tiny-{number:05}-of-00002.gguf"));
    for (number, own) in [(1, 0..9), (2, 9..count)] {
        let keys = [
            ("split.no", Value::U16(number as u16 - 1)),
            ("split.count", Value::U16(2)),
            ("split.tensors.count", Value::I32(count as i32)),
        ];
        write(&path(number), &gguf, &keys, own, None);
    }
    let first = path(1);
    let first = text(&first);
    for args in [&["run", "-n", "4", "-p", "hello", "-m"][..], &["tokenize", "--ids", "-p", "hello", "-m"]] {
        assert_eq!(good(&[args, &[first]].concat()), good(&[args, &[&whole]].concat()), "{args:?}");
    }
    let bench = json(&["bench", "-p", "2", "-n", "1", "-r", "1", "-o", "json", "-m", first]);
    assert_eq!(bench[0]["hints"].as_array().map(Vec::len), Some(0), "a software device needs none");
    good(&["verify", "-n", "2", "-m", first]);
    let report = json(&["info", "--json", "-m", first]);
    assert_eq!((&report["file"]["files"], &report["error"]), (&2.into(), &Json::Null));
    assert!(good(&["info", "-m", first]).contains("in 2 files"));
    // A session is of the model with all its files.
    let session = folder.path().join("s");
    let with = ["run", "-n", "2", "-p", "hello", "--session", text(&session), "-m"];
    good(&[&with[..], &[first]].concat());
    good(&[&with[..], &[first]].concat());
    assert_eq!(json(&["info", "--json", "-m", first, text(&session)])["suits"], true);
    let (code, out, _) = run(&["info", "--json", "-m", &whole, text(&session)], "");
    let report: Json = serde_json::from_str(&out).expect("JSON");
    assert_eq!((code, &report["suits"], &report["session"]["layers"]), (1, &false.into(), &2.into()));

    fs::remove_file(path(2)).expect("removed");
    for args in [&["info", "-m"][..], &["run", "--device", "nvgpu", "-m"]] {
        let (code, _, err) = run(&[args, &[first]].concat(), "");
        assert!(code == 1 && err.contains("file 2 of the 2") && err.contains(text(&path(2))), "{err}");
    }
}

/// There is no Jetson here: who names one is told of the file first.
#[test]
fn what_is_wrong_with_a_file_is_said_before_a_device_is_opened() {
    let folder = tempfile::tempdir().expect("a folder");
    let (whole, gguf) = tiny(&folder);
    let odd = folder.path().join("odd.gguf");
    write(&odd, &gguf, &[], 0..gguf.tensors().len(), Some(("blk.1.ffn_up.weight", GgmlType::Tq1_0)));
    let odd = text(&odd);
    let out = folder.path().join("out");
    let absent: &[&str] = &["--device", "nvgpu", "-m", odd];
    for args in [
        &["run", "-n", "1"][..],
        &["chat", "--template", odd],
        &["serve", "--port", "0"],
        &["bench"],
        &["speculate", "--lookup"],
        &["verify"],
        &["verify", "--greedy", "2"],
        &["logits", text(&out), "--tokens", "1"],
        &["tune"],
        &["profile"],
        &["info"],
    ] {
        let (code, _, err) = run(&[args, absent].concat(), "");
        assert_eq!(code, 1, "{args:?}: {err}");
        assert!(err.contains("blk.1.ffn_up.weight") && err.contains("TQ1_0"), "{args:?}: {err}");
        assert!(!err.contains("device"), "{args:?}: {err}");
    }
    // A vocabulary that is split in an unknown way.
    let pre = folder.path().join("pre.gguf");
    let keys = [("tokenizer.ggml.pre", Value::String("viking".into()))];
    write(&pre, &gguf, &keys, 0..gguf.tensors().len(), None);
    for command in ["run", "chat", "serve", "verify"] {
        let (code, _, err) = run(&[command, "--device", "nvgpu", "-m", text(&pre)], "");
        assert!(
            code == 1 && err.contains("tokenizer.ggml.pre") && err.contains("viking"),
            "{command}: {err}"
        );
        assert!(!err.contains("device"), "{command}: {err}");
    }
    // A draft too; the model itself is good.
    let (code, _, err) = run(&["run", "--device", "nvgpu", "-m", &whole, "--draft", odd], "");
    assert!(code == 1 && err.contains("draft model") && err.contains("TQ1_0"), "{err}");
    // What needs no kernels still works: the text of its tokens, and what is in it.
    good(&["tokenize", "-m", odd, "-p", "hello"]);
    let (code, out, _) = run(&["info", "--json", "-m", odd], "");
    let report: Json = serde_json::from_str(&out).expect("JSON");
    assert!(code == 1 && report["error"].as_str().is_some_and(|e| e.contains("TQ1_0")), "{out}");
    assert!(report["types"].as_array().is_some_and(|types| types.iter().any(|t| t["type"] == "TQ1_0")));
    // A good file, and no device.
    let (code, out, err) = run(&["info", "--json", "--device", "nvgpu", "-m", &whole], "");
    let report: Json = serde_json::from_str(&out).expect("JSON");
    assert!(code == 1 && err.contains("cannot open the device"), "{err}");
    assert_eq!((&report["model"]["architecture"], &report["device"]), (&"llama".into(), &Json::Null));
}

#[test]
fn reports_are_also_json() {
    let report = json(&["info", "--json", "--tensors", "--metadata", "--ctx", "100", "--kv", "q8_0"]);
    assert_eq!(report["schema"], "llm-demo.info/1");
    assert_eq!((&report["tokenizer"]["tokens"], &report["template"]), (&1024.into(), &false.into()));
    let rooms = report["contexts"].as_array().expect("contexts");
    let of = |context: u64| rooms.iter().find(|room| room["context"] == context).expect("a context");
    assert!(of(100)["fits"] == true && of(512)["cache_bytes"].as_u64() > of(100)["cache_bytes"].as_u64());
    let tensors = report["tensors"].as_array().expect("tensors");
    assert!(tensors.iter().any(|t| t["name"] == "token_embd.weight" && t["dims"][1] == 1024));
    let keys = report["metadata"].as_array().expect("keys");
    let value = |name: &str| &keys.iter().find(|key| key["key"] == name).expect("a key")["value"];
    assert_eq!(value("general.architecture"), "llama");
    assert_eq!(value("tokenizer.ggml.tokens")["elements"], 1024);
    assert!(json(&["info", "--json"]).get("tensors").is_none());

    let report = json(&["tokenize", "--json", "-p", "Once upon"]);
    assert_eq!(report["schema"], "llm-demo.tokenize/1");
    let tokens = report["tokens"].as_array().expect("tokens");
    let numbers: Vec<_> = tokens.iter().filter_map(|token| token["id"].as_u64()).collect();
    assert_eq!(numbers, [0, 626, 627]);
    assert_eq!((&tokens[0]["bytes"], &tokens[2]["text"]), (&Json::Null, &" upon".into()));
    // A part of a character has bytes and no text.
    let parts = json(&["tokenize", "--json", "--no-bos", "-p", "漢"]);
    let bytes =
        parts["tokens"].as_array().expect("tokens").iter().flat_map(|token| token["bytes"].as_array());
    let bytes: Vec<u8> = bytes.flatten().map(|b| b.as_u64().expect("a byte") as u8).collect();
    assert_eq!(String::from_utf8(bytes).as_deref(), Ok("漢"));
    assert_eq!(parts["tokens"][0]["text"], Json::Null);
    let (code, _, err) = run(&["tokenize", "--json", "--ids", "-p", "x"], "");
    assert!(code == 2 && err.contains("--ids"), "{err}");
}
