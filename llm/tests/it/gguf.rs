//! The GGUF reader against the writer, and against damaged files.

use ga10b_llm::gguf::{Array, GgmlType, Gguf, Value, Writer};
use ga10b_llm::{Decoder, Error, Model, Tokenizer};
use proptest::prelude::*;

/// One value of each type, arrays of each type, and two tensors.
fn sample() -> (Vec<u8>, Vec<(&'static str, Value)>) {
    let keys = vec![
        ("u8", Value::U8(200)),
        ("i8", Value::I8(-100)),
        ("u16", Value::U16(60_000)),
        ("i16", Value::I16(-30_000)),
        ("u32", Value::U32(4_000_000_000)),
        ("i32", Value::I32(-2_000_000_000)),
        ("f32", Value::F32(1.5)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("Grüße".into())),
        ("u64", Value::U64(u64::MAX)),
        ("i64", Value::I64(i64::MIN)),
        ("f64", Value::F64(-0.1)),
        ("array.u8", Value::Array(Array::U8(vec![1, 2]))),
        ("array.i8", Value::Array(Array::I8(vec![-1]))),
        ("array.u16", Value::Array(Array::U16(vec![3]))),
        ("array.i16", Value::Array(Array::I16(vec![-3]))),
        ("array.u32", Value::Array(Array::U32(vec![5, 6]))),
        ("array.i32", Value::Array(Array::I32(vec![-5]))),
        ("array.f32", Value::Array(Array::F32(vec![0.25, 8.0]))),
        ("array.bool", Value::Array(Array::Bool(vec![true, false]))),
        ("array.string", Value::Array(Array::String(vec!["a".into(), String::new()]))),
        (
            "array.array",
            Value::Array(Array::Array(vec![Array::U8(vec![7]), Array::String(vec!["b".into()])])),
        ),
        ("array.u64", Value::Array(Array::U64(vec![9]))),
        ("array.i64", Value::Array(Array::I64(vec![-9]))),
        ("array.f64", Value::Array(Array::F64(vec![1e300]))),
    ];
    let mut writer = Writer::new();
    keys.iter().for_each(|(key, value)| writer.key(*key, value.clone()));
    writer.tensor("odd", GgmlType::F32, &[3, 1]);
    writer.tensor("quantized", GgmlType::Q8_0, &[32, 2]);
    let mut data = writer.begin(Vec::new()).expect("a vector takes everything");
    data.write(&[1; 12]).expect("fits");
    data.write(&[2; 34]).expect("fits");
    data.write(&[3; 34]).expect("fits");
    (data.finish().expect("complete"), keys)
}

/// A whole model small enough to damage thousands of times: one layer, 32 wide, 256 symbols and three words.
fn small_model() -> Vec<u8> {
    let mut writer = Writer::new();
    let number = |n: u32| Value::U32(n);
    writer.key("general.architecture", Value::String("llama".into()));
    for (key, value) in [
        ("context_length", 64),
        ("embedding_length", 32),
        ("block_count", 1),
        ("feed_forward_length", 32),
        ("attention.head_count", 2),
        ("attention.head_count_kv", 1),
    ] {
        writer.key(format!("llama.{key}"), number(value));
    }
    writer.key("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
    writer.key("tokenizer.ggml.model", Value::String("gpt2".into()));
    writer.key("tokenizer.ggml.pre", Value::String("gpt-2".into()));
    let tokens = ["a", "b", "ab", "<end>"].map(str::to_owned).to_vec();
    writer.key("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    writer.key("tokenizer.ggml.token_type", Value::Array(Array::I32(vec![1, 1, 1, 3])));
    writer.key("tokenizer.ggml.merges", Value::Array(Array::String(vec!["a b".into()])));
    writer.key("tokenizer.ggml.eos_token_id", number(3));
    let matrices = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let mut sizes = Vec::new();
    let mut tensor = |name: String, ty: GgmlType, dims: &[u64]| {
        sizes.push(ty.bytes_for(dims.iter().product()).expect("whole blocks") as usize);
        writer.tensor(name, ty, dims);
    };
    tensor("token_embd.weight".into(), GgmlType::F16, &[32, 4]);
    for role in matrices {
        let rows = if matches!(role, "attn_k" | "attn_v") { 16 } else { 32 };
        tensor(format!("blk.0.{role}.weight"), GgmlType::Q8_0, &[32, rows]);
    }
    for name in ["blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"] {
        tensor(name.into(), GgmlType::F32, &[32]);
    }
    let mut data = writer.begin(Vec::new()).expect("a vector takes everything");
    sizes.iter().for_each(|&size| data.write(&vec![0; size]).expect("fits"));
    data.finish().expect("complete")
}

#[test]
fn what_is_written_is_read_back() {
    let (bytes, keys) = sample();
    let file = Gguf::from_bytes(bytes).expect("a valid file");
    assert_eq!(file.version(), 3);
    assert_eq!(file.metadata().len(), keys.len());
    for (key, value) in &keys {
        assert_eq!(file.value(key), Some(value), "{key}");
    }
    let odd = file.tensor("odd").expect("present");
    assert_eq!((odd.row_len(), odd.rows(), odd.data), (3, 1, &[1u8; 12][..]));
    let quantized = file.tensor("quantized").expect("present");
    assert_eq!((quantized.row_len(), quantized.rows(), quantized.row_bytes()), (32, 2, 34));
    assert_eq!(quantized.data[34], 3);
    assert!(file.tensors().iter().all(|t| t.offset % file.alignment() == 0));
}

#[test]
fn a_mapped_file_equals_one_in_memory() {
    let (bytes, _) = sample();
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("sample.gguf");
    std::fs::write(&path, &bytes).expect("written");
    let mapped = Gguf::open(&path).expect("a valid file");
    let memory = Gguf::from_bytes(bytes).expect("a valid file");
    assert_eq!(mapped.metadata(), memory.metadata());
    assert_eq!(mapped.tensors(), memory.tensors());
}

#[test]
fn a_missing_file_a_folder_and_an_empty_file_are_named() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let missing = Gguf::open(dir.path().join("none.gguf")).expect_err("there is none");
    assert!(missing.to_string().contains("none.gguf"), "{missing}");
    assert!(matches!(Gguf::open(dir.path()), Err(Error::File { .. })));
    let empty = dir.path().join("empty.gguf");
    std::fs::write(&empty, b"").expect("written");
    assert!(matches!(Gguf::open(&empty), Err(Error::NotGguf { .. })));
}

#[test]
fn every_cut_of_a_file_is_an_error() {
    let (bytes, _) = sample();
    // The padding after the last tensor carries nothing.
    let end = bytes.len() - 28;
    for length in 0..end {
        let cut = Gguf::from_bytes(bytes[..length].to_vec());
        assert!(cut.is_err(), "{length} of {end} bytes were taken for a whole file");
    }
}

#[test]
fn a_count_that_cannot_fit_is_refused_before_memory_is_reserved() {
    for at in [8, 16] {
        let (mut bytes, _) = sample();
        bytes[at..at + 8].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
        assert!(matches!(Gguf::from_bytes(bytes), Err(Error::Truncated { .. })));
    }
}

#[test]
fn foreign_versions_are_named() {
    let (bytes, _) = sample();
    let with_version = |version: [u8; 4]| {
        let mut bytes = bytes.clone();
        bytes[4..8].copy_from_slice(&version);
        Gguf::from_bytes(bytes)
    };
    assert!(matches!(with_version([1, 0, 0, 0]), Err(Error::Version { version: 1 })));
    assert!(matches!(with_version([0, 0, 0, 3]), Err(Error::BigEndian)));
    assert!(with_version([2, 0, 0, 0]).is_ok());
    assert!(matches!(Gguf::from_bytes(b"PK\x03\x04zip".to_vec()), Err(Error::NotGguf { .. })));
}

#[test]
fn doubled_names_are_refused() {
    let mut writer = Writer::new();
    writer.key("k", Value::U8(1));
    writer.key("k", Value::U8(1));
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    let error = Gguf::from_bytes(bytes).expect_err("twice");
    assert_eq!(error.to_string(), "key \"k\" appears twice");
    let mut writer = Writer::new();
    writer.key("k", Value::U8(1));
    writer.key("k", Value::U8(2));
    let bytes = writer.begin(Vec::new()).and_then(|w| w.finish()).expect("complete");
    let error = Gguf::from_bytes(bytes).expect_err("twice");
    assert!(matches!(error, Error::DuplicateKey { differ: true, .. }));
    assert!(error.to_string().contains("different values"), "{error}");
    let mut writer = Writer::new();
    writer.tensor("t", GgmlType::I8, &[1]);
    writer.tensor("t", GgmlType::I8, &[1]);
    let mut data = writer.begin(Vec::new()).expect("a vector takes everything");
    data.write(&[0]).expect("fits");
    data.write(&[0]).expect("fits");
    let bytes = data.finish().expect("complete");
    assert!(matches!(Gguf::from_bytes(bytes), Err(Error::DuplicateTensor { .. })));
}

#[test]
fn too_many_dimensions_are_counted() {
    let mut writer = Writer::new();
    writer.tensor("t", GgmlType::I8, &[1]);
    let mut data = writer.begin(Vec::new()).expect("a vector takes everything");
    data.write(&[0]).expect("fits");
    let bytes = data.finish().expect("complete");
    // After the length of the name and the name itself.
    let rank_at = bytes.windows(9).position(|w| w == [1, 0, 0, 0, 0, 0, 0, 0, b't']).expect("the name") + 9;
    for rank in [0, 5, u32::MAX] {
        let mut bytes = bytes.clone();
        bytes[rank_at..rank_at + 4].copy_from_slice(&rank.to_le_bytes());
        let error = Gguf::from_bytes(bytes).expect_err("no such tensor");
        assert!(error.to_string().contains(&format!("{rank} dimensions")), "{error}");
    }
}

#[test]
fn a_small_model_loads_whole() {
    let model = Model::new(Gguf::from_bytes(small_model()).expect("a valid file")).expect("a whole model");
    assert_eq!((model.config.layers, model.config.head_dim, model.config.vocab), (1, 16, 4));
    assert!(model.is_tied());
    Tokenizer::from_gguf(&model.gguf).expect("a tokenizer");
}

proptest! {
    /// Whatever happens to a file on its way, reading it ends in a model or in an error.
    #[test]
    fn damaged_files_never_panic(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
        whole: bool,
    ) {
        let mut bytes = if whole { small_model() } else { sample().0 };
        // Most of the bytes are weights, where nothing can go wrong: aim at the head of the file.
        let head = bytes.len().min(1600);
        for (at, value) in changes {
            bytes[at.index(head)] = value;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Ok(file) = Gguf::from_bytes(bytes) {
            let _ = Tokenizer::from_gguf(&file);
            for tensor in file.tensors() {
                let view = file.tensor(&tensor.name).expect("it is in the table");
                prop_assert_eq!(view.data.len() as u64, tensor.bytes);
                let _ = view.to_f32();
            }
            if let Ok(model) = Model::new(file)
                && let Ok(mut reference) = ga10b_llm::reference::Reference::new(&model, 4)
            {
                let _ = reference.step(1);
            }
        }
    }

    /// A 64-bit field set to an extreme value anywhere in the head: lengths, counts, dimensions, offsets.
    #[test]
    fn extreme_numbers_never_panic(at in any::<prop::sample::Index>(), value in prop_oneof![
        Just(u64::MAX), Just(u64::MAX / 2), Just(1 << 40), Just(1 << 31), Just(0), 1u64..100_000,
    ]) {
        let mut bytes = small_model();
        let at = at.index(1600);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        if let Ok(file) = Gguf::from_bytes(bytes) {
            let _ = Tokenizer::from_gguf(&file);
            let _ = Model::new(file);
        }
    }
}
