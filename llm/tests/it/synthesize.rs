//! Synthesized models are whole models.

use ga10b_llm::gguf::{GgmlType, Gguf};
use ga10b_llm::synthesize::{MIXES, SHAPES, Synthesis};
use ga10b_llm::{Decoder, Model, Reference, Tokenizer};

fn tiny(mix: &str, seed: u64) -> Vec<u8> {
    let synthesis: Synthesis = format!("tiny-llama:{mix}").parse().expect("a known shape");
    let mut bytes = Vec::new();
    let mut last = (0, 0);
    synthesis
        .write(seed, &mut bytes, &mut |done, total| last = (done, total))
        .expect("a vector takes everything");
    assert_eq!(last, (bytes.len() as u64, bytes.len() as u64));
    bytes
}

#[test]
fn every_mix_gives_a_model_with_finite_logits() {
    for mix in MIXES {
        let model = Model::new(Gguf::from_bytes(tiny(mix, 1)).expect("a valid file")).expect("a whole model");
        let tokenizer = Tokenizer::from_gguf(&model.gguf).expect("a tokenizer");
        let tokens = tokenizer.encode(" the number of people").expect("encodes");
        assert_eq!(tokens.len(), 5, "BOS and four words");
        let mut reference = Reference::new(&model, tokens.len()).expect("types are supported");
        let mut logits = Vec::new();
        for &token in &tokens {
            logits = reference.step(token).expect("a step");
        }
        assert_eq!(logits.len(), 1024);
        let spread = (logits.iter().map(|l| l * l).sum::<f32>() / 1024.0).sqrt();
        assert!((1.0..4.0).contains(&spread), "{mix}: logits of spread {spread}");
        assert!(reference.step(1).is_err(), "the context is full");
    }
}

#[test]
fn a_seed_fixes_every_byte() {
    assert_eq!(tiny("q4_k_m", 7), tiny("q4_k_m", 7));
    assert_ne!(tiny("q4_k_m", 7), tiny("q4_k_m", 8));
}

#[test]
fn medium_mixes_follow_the_quantizer() {
    let file = Gguf::from_bytes(tiny("q4_k_m", 1)).expect("a valid file");
    let ty = |name: &str| file.tensor(name).expect("present").ty;
    assert_eq!(ty("token_embd.weight"), GgmlType::Q6K);
    assert_eq!(ty("blk.0.attn_q.weight"), GgmlType::Q4K);
    assert_eq!(ty("blk.1.attn_v.weight"), GgmlType::Q6K);
    assert_eq!(ty("blk.0.attn_norm.weight"), GgmlType::F32);
    assert!(file.tensor("output.weight").is_none());
}

#[test]
fn shapes_are_those_of_the_published_models() {
    for shape in SHAPES {
        let synthesis = match format!("{shape}:q6_k").parse::<Synthesis>() {
            Ok(synthesis) => synthesis,
            // Those whose rows 256 does not divide have types with blocks of 32.
            Err(error) => {
                let rows = match *shape {
                    "gemma-3-1b" => "rows of 1152",
                    "open-llama-3b" => "rows of 3200",
                    _ => panic!("{shape}: {error}"),
                };
                assert!(error.to_string().contains(rows), "{error}");
                assert!(format!("{shape}:q8_0").parse::<Synthesis>().is_ok());
                continue;
            }
        };
        assert_eq!(synthesis.config().hidden % 256, 0);
    }
    let synthesis: Synthesis = "llama-3.2-1b:Q6_K".parse().expect("a known shape");
    // 967.0 MiB is the size that llama.cpp reports for this model.
    assert_eq!(format!("{:.1}", synthesis.tensor_bytes() as f64 / 1024.0 / 1024.0), "967.0");
    let error = "llama-9:q6_k".parse::<Synthesis>().expect_err("unknown").to_string();
    assert!(error.contains("llama-3.2-1b") && error.contains("q4_k_m"), "{error}");
}

#[test]
fn a_file_appears_only_when_it_is_complete() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let path = dir.path().join("tiny.gguf");
    let synthesis: Synthesis = "tiny-llama:q8_0".parse().expect("a known shape");
    synthesis.write_file(1, &path, &mut |_, _| ()).expect("written");
    assert_eq!(std::fs::read(&path).expect("readable"), tiny("q8_0", 1));
    assert_eq!(std::fs::read_dir(dir.path()).expect("readable").count(), 1);
    assert!(synthesis.write_file(1, &dir.path().join("none/x.gguf"), &mut |_, _| ()).is_err());

    // A link keeps pointing where it points; what is no file is not replaced.
    let link = dir.path().join("link.gguf");
    std::os::unix::fs::symlink(&path, &link).expect("a link");
    synthesis.write_file(2, &link, &mut |_, _| ()).expect("written");
    assert!(link.symlink_metadata().expect("there").is_symlink());
    let error = synthesis.write_file(1, dir.path(), &mut |_, _| ()).expect_err("a folder");
    assert!(format!("{error:?}").contains("no regular file"), "{error:?}");
}
