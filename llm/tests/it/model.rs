//! Models that are accepted, and models that are refused.

use ga10b_llm::gguf::{Array, GgmlType, Gguf, Value, Writer};
use ga10b_llm::model::llama3_factors;
use ga10b_llm::{Error, Model};

use crate::craft::Craft;

/// A model of one layer whose keys and tensors can be changed before it is written. All weights are zero.
struct Draft {
    keys: Vec<(String, Value)>,
    tensors: Vec<(String, GgmlType, Vec<u64>)>,
}

impl Draft {
    fn new() -> Self {
        let mut draft = Self { keys: Vec::new(), tensors: Vec::new() };
        draft.set("general.architecture", Value::String("llama".into()));
        for (key, value) in [
            ("context_length", 64),
            ("embedding_length", 32),
            ("block_count", 1),
            ("feed_forward_length", 64),
            ("attention.head_count", 4),
            ("attention.head_count_kv", 2),
        ] {
            draft.set(&format!("llama.{key}"), Value::U32(value));
        }
        draft.set("llama.attention.layer_norm_rms_epsilon", Value::F32(1e-5));
        for (name, dims) in [
            ("token_embd", vec![32, 7]),
            ("blk.0.attn_norm", vec![32]),
            ("blk.0.attn_q", vec![32, 32]),
            ("blk.0.attn_k", vec![32, 16]),
            ("blk.0.attn_v", vec![32, 16]),
            ("blk.0.attn_output", vec![32, 32]),
            ("blk.0.ffn_norm", vec![32]),
            ("blk.0.ffn_gate", vec![32, 64]),
            ("blk.0.ffn_up", vec![32, 64]),
            ("blk.0.ffn_down", vec![64, 32]),
            ("output_norm", vec![32]),
        ] {
            draft.tensors.push((format!("{name}.weight"), GgmlType::F16, dims));
        }
        draft
    }

    fn set(&mut self, key: &str, value: Value) {
        self.unset(key);
        self.keys.push((key.into(), value));
    }

    fn unset(&mut self, key: &str) {
        self.keys.retain(|(k, _)| k != key);
    }

    fn load(&self) -> ga10b_llm::Result<Model> {
        let mut writer = Writer::new();
        self.keys.iter().for_each(|(key, value)| writer.key(key, value.clone()));
        self.tensors.iter().for_each(|(name, ty, dims)| writer.tensor(name, *ty, dims));
        let mut data = writer.begin(Vec::new()).expect("a vector takes everything");
        for (_, ty, dims) in &self.tensors {
            let bytes = ty.bytes_for(dims.iter().product()).expect("whole blocks");
            data.write(&vec![0; bytes as usize]).expect("fits");
        }
        Model::new(Gguf::from_bytes(data.finish().expect("complete")).expect("a valid file"))
    }
}

#[test]
fn defaults_fill_what_converters_leave_out() {
    let model = Draft::new().load().expect("a whole model");
    let c = &model.config;
    assert_eq!((c.head_dim, c.rope_dim, c.vocab, c.rope_base), (8, 8, 7, 10000.0));
    assert_eq!(c.rope_factors, None);
    assert!(model.is_tied());
    assert_eq!(model.output().name, "token_embd.weight");
}

#[test]
fn an_output_matrix_of_its_own_is_used() {
    let mut draft = Draft::new();
    draft.tensors.push(("output.weight".into(), GgmlType::F16, vec![32, 7]));
    let model = draft.load().expect("a whole model");
    assert!(!model.is_tied());
    assert_eq!(model.output().name, "output.weight");
}

#[test]
fn heads_may_be_wider_than_their_share() {
    let mut draft = Draft::new();
    draft.set("llama.attention.key_length", Value::U32(16));
    draft.set("llama.attention.value_length", Value::U32(16));
    for (name, _, dims) in &mut draft.tensors {
        match name.as_str() {
            "blk.0.attn_q.weight" => *dims = vec![32, 64],
            "blk.0.attn_output.weight" => *dims = vec![64, 32],
            "blk.0.attn_k.weight" | "blk.0.attn_v.weight" => *dims = vec![32, 32],
            _ => {}
        }
    }
    let model = draft.load().expect("a whole model");
    assert_eq!((model.config.q_dim(), model.config.kv_dim()), (64, 32));
}

#[test]
fn a_missing_key_and_a_missing_tensor_are_named() {
    let mut draft = Draft::new();
    draft.unset("llama.block_count");
    assert!(matches!(draft.load(), Err(Error::MissingKey { key }) if key == "llama.block_count"));
    let mut draft = Draft::new();
    draft.tensors.retain(|(name, ..)| name != "blk.0.ffn_up.weight");
    assert!(matches!(draft.load(), Err(Error::MissingTensor { name }) if name == "blk.0.ffn_up.weight"));
}

/// Files before April 2024 have a tensor for each expert.
#[test]
fn experts_in_tensors_of_their_own_are_counted() {
    let apart = || Craft::new("tiny-mixtral:f16").experts_apart(4);
    let error = apart().without("blk.1.ffn_down.3.weight").model().expect_err("a missing expert");
    assert!(matches!(&error, Error::MissingTensor { name } if name == "blk.1.ffn_down.3.weight"), "{error}");
    let error = apart().with("blk.1.ffn_up.4.weight", vec![0.0; 64]).model().expect_err("one too many");
    assert!(
        matches!(&error, Error::UnexpectedTensor { name, .. } if name == "blk.1.ffn_up.4.weight"),
        "{error}"
    );
}

/// In other architectures than `llama` it is the name that says whether there are experts.
#[test]
fn experts_that_an_architecture_does_not_have_or_lacks_are_named() {
    for (shape, key, value) in [
        ("tiny-qwen3", "qwen3.expert_count", Value::U32(8)),
        ("tiny-qwen3moe", "qwen3moe.expert_count", Value::U32(0)),
        ("tiny-qwen3moe", "qwen3moe.expert_used_count", Value::U32(9)),
        ("tiny-qwen3moe", "qwen3moe.expert_feed_forward_length", Value::U32(0)),
        ("tiny-olmoe", "olmoe.expert_weights_norm", Value::Bool(true)),
    ] {
        let text = Craft::new(&format!("{shape}:f16")).key(key, value).model().expect_err(key).to_string();
        assert!(text.contains(key), "{shape}: {text}");
    }
}

#[test]
fn a_tensor_that_would_be_ignored_is_refused() {
    let mut draft = Draft::new();
    draft.tensors.push(("blk.0.ffn_up.bias".into(), GgmlType::F32, vec![64]));
    assert!(matches!(draft.load(), Err(Error::UnexpectedTensor { name, .. }) if name == "blk.0.ffn_up.bias"));
}

#[test]
fn a_tensor_of_another_shape_is_refused() {
    let mut draft = Draft::new();
    draft.tensors[2].2 = vec![32, 31];
    let error = draft.load().expect_err("31 rows");
    assert!(error.to_string().contains("[32, 31]") && error.to_string().contains("[32, 32]"), "{error}");
}

#[test]
fn values_out_of_range_are_refused() {
    for (key, value) in [
        ("llama.attention.head_count_kv", Value::U32(3)),
        ("llama.attention.head_count", Value::U32(0)),
        ("llama.embedding_length", Value::U32(u32::MAX)),
        ("llama.block_count", Value::U32(1_000_000)),
        ("llama.attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)),
        ("llama.rope.freq_base", Value::F32(-1.0)),
        ("llama.rope.dimension_count", Value::U32(10)),
        ("llama.rope.scaling.type", Value::String("su".into())),
        ("llama.expert_count", Value::U32(u32::MAX)),
        ("llama.attention.value_length", Value::U32(4)),
    ] {
        let mut draft = Draft::new();
        draft.set(key, value);
        let error = draft.load().expect_err(key);
        assert!(error.to_string().contains(key), "{error}");
    }
    let mut draft = Draft::new();
    draft.set("general.architecture", Value::String("mamba".into()));
    assert!(matches!(draft.load(), Err(Error::Architecture { .. })));
    draft.set("general.architecture", Value::U32(1));
    assert!(matches!(draft.load(), Err(Error::KeyType { .. })));
}

#[test]
fn sizes_may_be_given_per_layer_if_they_are_equal() {
    let key = "llama.attention.head_count_kv";
    let mut draft = Draft::new();
    draft.set(key, Value::Array(Array::I32(vec![2])));
    assert_eq!(draft.load().expect("a whole model").config.kv_heads, 2);
    for (sizes, says) in [
        (Array::I32(vec![2, 4]), "one for each layer"),
        (Array::U32(vec![]), "one for each layer"),
        (Array::I32(vec![-2]), "not negative"),
        (Array::F32(vec![2.0]), "not negative"),
        (Array::U32(vec![0]), "from 1 to"),
    ] {
        let mut draft = Draft::new();
        draft.set(key, Value::Array(sizes));
        let text = draft.load().expect_err("no sizes").to_string();
        assert!(text.contains(key) && text.contains(says), "{text}");
    }
    let mut draft = Draft::new();
    draft.set("llama.block_count", Value::U32(2));
    draft.set(key, Value::Array(Array::U32(vec![2, 4])));
    let text = draft.load().expect_err("layers differ").to_string();
    assert!(text.contains("[2, 4]") && text.contains("layers must have equal sizes"), "{text}");
}

#[test]
fn scaling_becomes_divisors_of_the_angles() {
    let mut draft = Draft::new();
    draft.set("llama.rope.scaling.type", Value::String("linear".into()));
    draft.set("llama.rope.scaling.factor", Value::F32(4.0));
    let model = draft.load().expect("a whole model");
    assert_eq!(model.config.rope_factors, Some(vec![4.0; 4]));
    assert_eq!(model.config.rope_frequencies(false, 64)[0], 0.25);
}

#[test]
fn linear_scaling_is_the_default_and_has_two_names() {
    for (key, value, expected) in [
        ("llama.rope.scaling.factor", 4.0, Some(vec![4.0; 4])),
        ("llama.rope.scale_linear", 2.0, Some(vec![2.0; 4])),
        ("llama.rope.scaling.factor", 0.0, None),
    ] {
        let mut draft = Draft::new();
        draft.set(key, Value::F32(value));
        assert_eq!(draft.load().expect(key).config.rope_factors, expected, "{key}");
    }
    let mut draft = Draft::new();
    draft.set("llama.rope.scale_linear", Value::F32(2.0));
    draft.set("llama.rope.scaling.factor", Value::F32(4.0));
    assert!(draft.load().expect_err("two factors").to_string().contains("scale_linear"));
}

#[test]
fn keys_that_would_change_the_result_are_refused_by_name() {
    for (key, value) in [
        ("llama.rope.scaling.attn_factor", Value::F32(0.0)),
        ("llama.rope.scaling.yarn_ext_factor", Value::F32(1.0)),
        ("llama.attention.causal", Value::Bool(false)),
        ("llama.attention.sliding_window_pattern", Value::Array(Array::Bool(vec![true]))),
        ("llama.rope.freq_base_swa", Value::F32(10000.0)),
        ("llama.attn_logit_softcapping", Value::F32(50.0)),
        ("llama.attention.scale", Value::F32(0.5)),
        ("llama.attention.clamp_kqv", Value::F32(8.0)),
        ("llama.attention.temperature_scale", Value::F32(0.1)),
        ("llama.expert_feed_forward_length", Value::U32(64)),
        ("llama.expert_weights_norm", Value::Bool(false)),
        ("llama.expert_weights_scale", Value::F32(2.5)),
        ("llama.expert_gating_func", Value::U32(2)),
        ("llama.logit_scale", Value::F32(0.0625)),
        ("llama.embedding_scale", Value::F32(12.0)),
        ("llama.residual_scale", Value::F32(0.22)),
        ("llama.final_logit_softcapping", Value::F32(30.0)),
        ("llama.use_parallel_residual", Value::Bool(true)),
        ("llama.pooling_type", Value::U32(2)),
        ("llama.pooling_type", Value::U32(4)),
        ("llama.rope.dimension_sections", Value::U32(1)),
        ("llama.a_key_of_tomorrow", Value::Bool(false)),
        ("general.type", Value::String("adapter".into())),
        ("adapter.type", Value::String("lora".into())),
    ] {
        let mut draft = Draft::new();
        draft.set(key, value);
        let error = draft.load().expect_err(key);
        assert!(error.to_string().contains(key), "{error}");
    }
}

#[test]
fn keys_that_change_nothing_are_allowed() {
    for (key, value) in [
        ("llama.rope.scaling.attn_factor", Value::F32(1.0)),
        ("llama.attention.causal", Value::Bool(true)),
        ("llama.attention.sliding_window", Value::U32(64)),
        ("llama.attention.scale", Value::F32(1.0 / 8f32.sqrt())),
        ("llama.attention.clamp_kqv", Value::F32(0.0)),
        ("llama.use_parallel_residual", Value::Bool(false)),
        ("llama.expert_weights_norm", Value::Bool(true)),
        ("llama.expert_gating_func", Value::U32(1)),
        ("llama.rope.scaling.finetuned", Value::Bool(true)),
        ("llama.tensor_data_layout", Value::String("Meta AI original pth".into())),
        ("general.type", Value::String("model".into())),
        ("general.url", Value::String("anything".into())),
        ("quantize.imatrix.file", Value::String("anything".into())),
    ] {
        let mut draft = Draft::new();
        draft.set(key, value);
        assert!(draft.load().is_ok(), "{key}: {:?}", draft.load().err());
    }
}

#[test]
fn a_window_is_one_if_it_is_shorter_than_the_context() {
    let mut draft = Draft::new();
    draft.set("llama.attention.sliding_window", Value::U32(16));
    let c = draft.load().expect("a whole model").config;
    assert_eq!((c.window_of(0, 64), c.window_of(0, 16)), (Some(16), None));
    draft.set("llama.attention.sliding_window", Value::U32(64));
    assert_eq!(draft.load().expect("a whole model").config.window, None);
}

#[test]
fn llama3_factors_equal_the_published_ones() {
    // LLaMA 3.2 1B, as its GGUF files hold them.
    let factors = llama3_factors(500_000.0, 64, 32.0, 1.0, 4.0, 8192.0);
    assert_eq!(factors.len(), 32);
    assert!(factors[..15].iter().all(|&f| f == 1.0));
    assert!(factors[18..].iter().all(|&f| f == 32.0));
    for (factor, expected) in factors[15..18].iter().zip([1.6513, 3.2923, 9.6667]) {
        assert!((factor - expected).abs() < 1e-4, "{factor} {expected}");
    }
}
