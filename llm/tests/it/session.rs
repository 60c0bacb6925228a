//! Sessions in files: what is loaded goes on as if it had never been saved, and no file does harm.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;

use ga10b_llm::chat::Message;
use ga10b_llm::gguf::Value;
use ga10b_llm::session::{Reader, Session, is_session, replace};
use ga10b_llm::synthesize::SHAPES;
use ga10b_llm::{CacheType, Decoder, Engine, EngineOptions, Error, Mode, Model, embedded};
use ga10b_oracles::sample;
use proptest::prelude::*;

use crate::craft::Craft;
use crate::open::device;

const CONTEXT: usize = 300;

fn engine(model: &Model, mode: Mode, kv: CacheType, context: usize) -> Engine {
    let options = EngineOptions::new(context).with_mode(mode).with_cache(kv);
    Engine::new(&device(), model, &options).unwrap()
}

fn saved(engine: &Engine, model: &Model, session: &Session) -> Vec<u8> {
    let mut bytes = Vec::new();
    engine.save(model, session, &mut bytes).unwrap();
    bytes
}

fn load(engine: &mut Engine, model: &Model, bytes: &[u8]) -> ga10b_llm::Result<Session> {
    engine.load(model, Reader::begin(bytes)?)
}

fn text(tokens: &[u32]) -> Session {
    Session { tokens: tokens.to_vec(), messages: None }
}

fn bits(logits: Vec<f32>) -> Vec<u32> {
    logits.into_iter().map(f32::to_bits).collect()
}

/// Saves the first `positions` of `tokens` from `whole`, which has them, and loads them into `other`: both go
/// on in the same way.
fn goes_on(model: &Model, [whole, other]: &mut [Engine; 2], tokens: &[u32], positions: usize, what: &str) {
    whole.truncate(positions).unwrap();
    // The last token is chosen and not processed.
    let session = text(&tokens[..positions + 1]);
    let bytes = saved(whole, model, &session);
    assert_eq!(load(other, model, &bytes).unwrap(), session);
    assert_eq!(other.position(), positions);
    assert_eq!(saved(other, model, &session), bytes, "what was loaded is what was saved");
    let next = [tokens[positions], 7];
    for token in next {
        let expected = bits(whole.step(token).unwrap());
        assert_eq!(bits(other.step(token).unwrap()), expected, "{what} {positions}");
    }
    assert_eq!(other.step_greedy(5).unwrap(), whole.step_greedy(5).unwrap());
    // Prompts in chunks too.
    let more: Vec<u32> = (0..20).map(|i| i * 3 + 1).collect();
    let expected = bits(whole.prefill(&more).unwrap());
    assert_eq!(bits(other.prefill(&more).unwrap()), expected, "{what} {positions}");
    assert_eq!(other.check().is_ok(), whole.check().is_ok());
}

#[test]
fn a_session_goes_on_bit_for_bit() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let tokens: Vec<u32> = (0..CONTEXT as u32).map(|i| (i * 37 + i / 5) % 1024).collect();
    let modes = vec![
        (Mode::Batch, CacheType::F16),
        (Mode::Batch, CacheType::Q8_0),
        (Mode::Stream, CacheType::F16),
        (Mode::Stream, CacheType::Q8_0),
    ];
    for (mode, kv) in sample("sessions", modes, 2) {
        let mut both = [(); 2].map(|()| engine(&model, mode, kv, CONTEXT));
        both[0].prefill(&tokens[..257]).unwrap();
        // The next steps overwrite only unused positions.
        let few = sample("positions of sessions", vec![256, 255, 33, 32, 31, 1], 1);
        for positions in [257].into_iter().chain(few) {
            goes_on(&model, &mut both, &tokens, positions, &format!("{mode:?} {kv:?}"));
        }
    }
}

/// Windows, two rotations and none, learned positions, norms with biases, experts.
#[test]
fn sessions_of_other_architectures_go_on_bit_for_bit() {
    let cases = vec![
        ("tiny-gemma2:q6_k", Mode::Batch, CacheType::F16),
        ("tiny-gemma3:q8_0", Mode::Batch, CacheType::Q8_0),
        ("tiny-mistral:q4_k_m", Mode::Batch, CacheType::F16),
        ("tiny-gpt2:q6_k", Mode::Stream, CacheType::F16),
        ("tiny-gpt2:f16", Mode::Batch, CacheType::Q8_0),
        ("tiny-olmoe:q6_k", Mode::Batch, CacheType::F16),
        ("tiny-qwen3moe:q6_k", Mode::Batch, CacheType::F16),
        ("tiny-mixtral:q4_k_m", Mode::Batch, CacheType::Q8_0),
        ("tiny-qwen2:q8_0", Mode::Stream, CacheType::F16),
        ("tiny-qwen3:q6_k", Mode::Stream, CacheType::Q8_0),
        ("tiny-smollm3:q4_k_m", Mode::Stream, CacheType::F16),
        ("tiny-gemma:q6_k", Mode::Batch, CacheType::F16),
        ("tiny-phi4:q8_0", Mode::Stream, CacheType::Q8_0),
    ];
    for shape in SHAPES.iter().filter(|shape| shape.starts_with("tiny-") && **shape != "tiny-llama") {
        assert!(cases.iter().any(|(name, ..)| name.starts_with(shape)), "no session of {shape}");
    }
    for (name, mode, kv) in sample("sessions of architectures", cases, 3) {
        let model = Craft::new(name).model().unwrap();
        let tokens: Vec<u32> = (0..60).map(|i| (i * 41 + i / 3) % 1024).collect();
        let mut both = [(); 2].map(|()| engine(&model, mode, kv, 90));
        assert_eq!(both[0].mode(), mode, "{name}");
        both[0].prefill(&tokens[..40]).unwrap();
        // The windows have 4 positions.
        for positions in sample("positions beside windows", vec![40, 33, 5, 4, 3], 2) {
            goes_on(&model, &mut both, &tokens, positions, name);
        }
    }
}

/// The rotation of keys is part of a session, in layers with a window too.
#[test]
fn rotations_and_windows_are_named() {
    let rotation = |craft: Craft| {
        let model = craft.model().unwrap();
        let engine = engine(&model, Mode::Batch, CacheType::F16, 8);
        let bytes = saved(&engine, &model, &text(&[]));
        Reader::begin(&bytes[..]).unwrap().summary().rotation.clone()
    };
    let gemma = || Craft::new("tiny-gemma3:f16");
    let mut all = vec![rotation(gemma())];
    for (key, value) in [
        ("gemma3.rope.freq_base", Value::F32(100.0)),
        ("gemma3.rope.freq_base_swa", Value::F32(100.0)),
        ("gemma3.attention.sliding_window", Value::U32(3)),
    ] {
        all.push(rotation(gemma().key(key, value)));
    }
    assert_eq!(rotation(gemma()), all[0]);
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 4);
}

#[test]
fn another_context_has_the_same_keys_and_values() {
    let model = embedded::model().unwrap();
    for kv in CacheType::ALL {
        let mut short = engine(&model, Mode::Batch, kv, 20);
        let mut long = engine(&model, Mode::Batch, kv, 90);
        let tokens: Vec<u32> = (5..22).collect();
        short.prefill(&tokens).unwrap();
        let session = text(&tokens);
        let bytes = saved(&short, &model, &session);
        load(&mut long, &model, &bytes).unwrap();
        assert_eq!(saved(&long, &model, &session), bytes);
        // Fewer tokens than positions.
        let bytes = saved(&long, &model, &text(&tokens[..9]));
        load(&mut short, &model, &bytes).unwrap();
        assert_eq!(short.position(), 9);
        let summary = Reader::begin(&bytes[..]).unwrap().summary().clone();
        assert_eq!((summary.positions, summary.tokens), (9, 9));
        assert_eq!(summary.cache_bytes(), Some(9 * short.cache_bytes_per_position()));
    }
}

#[test]
fn what_differs_is_named() {
    let model = Craft::new("tiny-llama:f16").model().unwrap();
    let mut first = engine(&model, Mode::Batch, CacheType::F16, 40);
    let tokens: Vec<u32> = (1..31).collect();
    first.prefill(&tokens).unwrap();
    let messages = vec![Message::new("user", "Hello"), Message::new("assistant", "\u{1f98a}")];
    let session = Session { tokens: tokens.clone(), messages: Some(messages) };
    let bytes = saved(&first, &model, &session);
    let refused = |model: &Model, kv: CacheType, context: usize| {
        let mut engine = engine(model, Mode::Batch, kv, context);
        let error = load(&mut engine, model, &bytes).unwrap_err();
        assert_eq!(engine.position(), 0);
        engine.step(1).unwrap();
        assert!(matches!(error, Error::SessionMismatch { .. }), "{error}");
        error.to_string()
    };
    let error = refused(&model, CacheType::Q8_0, 40);
    assert!(error.contains("a cache in f16, here it is q8_0"), "{error}");
    let error = refused(&model, CacheType::F16, 29);
    assert!(error.contains("positions: 30, here it is 29"), "{error}");
    // One weight of the last layer.
    let changed = Craft::new("tiny-llama:f16").value("blk.1.ffn_down.weight", 77, 0.5).model().unwrap();
    let error = refused(&changed, CacheType::F16, 40);
    assert!(
        error.contains("the model") && error.contains(&changed.gguf.fingerprint().to_string()),
        "{error}"
    );
    // The engine is of another model than the one that is passed.
    let other = embedded::model().unwrap();
    let error = load(&mut first, &other, &bytes).unwrap_err();
    assert!(error.to_string().contains("another one"), "{error}");
    assert!(first.save(&other, &session, &mut Vec::new()).is_err());
    assert_eq!(load(&mut first, &model, &bytes).unwrap(), session);
}

/// A session of a few positions, for tests without an engine.
fn small() -> Vec<u8> {
    let model = embedded::model().unwrap();
    let mut engine = engine(&model, Mode::Batch, CacheType::F16, 8);
    engine.prefill(&[5, 6, 7]).unwrap();
    let messages = Some(vec![Message::new("user", "Once upon a time")]);
    saved(&engine, &model, &Session { tokens: vec![5, 6, 7, 8], messages })
}

/// Reads a file to its end.
fn read(bytes: &[u8]) -> ga10b_llm::Result<Session> {
    Reader::begin(bytes)?.skip()
}

#[test]
fn a_damaged_file_is_an_error_and_leaves_the_engine_usable() {
    let model = embedded::model().unwrap();
    let mut engine = engine(&model, Mode::Batch, CacheType::F16, 8);
    let logits = engine.step(9).unwrap();
    let good = small();
    for at in [good.len() - 1, good.len() - 20, good.len() / 2] {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        for bytes in [&bytes[..], &good[..at]] {
            let error = load(&mut engine, &model, bytes).unwrap_err();
            assert!(matches!(error, Error::SessionDamaged { .. }), "{error}");
            assert_eq!(engine.position(), 0);
            assert_eq!(engine.step(9).unwrap(), logits);
        }
    }
    let long = [&good[..], &[0]].concat();
    assert!(load(&mut engine, &model, &long).unwrap_err().to_string().contains("follows its end"));
    load(&mut engine, &model, &good).unwrap();
    assert_eq!(engine.position(), 3);
}

/// A file with this summary and nothing after it, or with the checksum of what precedes.
fn hostile(summary: &serde_json::Value) -> Vec<u8> {
    let text = summary.to_string();
    let length = u32::try_from(text.len()).unwrap();
    [&b"ga10bses"[..], &1u32.to_le_bytes(), &length.to_le_bytes(), text.as_bytes()].concat()
}

#[test]
fn sizes_that_are_not_there_reserve_nothing() {
    let good = Reader::begin(&small()[..]).unwrap().summary().clone();
    let most = u64::MAX;
    for (key, value) in [
        ("tokens", most),
        ("tokens", 1 << 40),
        ("tokens", 1 << 61),
        ("positions", most),
        ("positions", 1 << 50),
        ("message_bytes", most),
        ("message_bytes", 1 << 42),
        ("layers", most),
        ("layers", 1 << 60),
        ("kv_heads", most),
        ("head_dim", 1 << 63),
    ] {
        let mut summary = serde_json::to_value(&good).unwrap();
        summary[key] = value.into();
        if key == "positions" {
            summary["tokens"] = value.into();
        }
        let error = read(&hostile(&summary)).unwrap_err();
        assert!(matches!(error, Error::SessionDamaged { .. }), "{key}: {error}");
    }
    let mut summary = serde_json::to_value(&good).unwrap();
    summary["further"] = 1.into();
    assert!(read(&hostile(&summary)).unwrap_err().to_string().contains("further"));
    let long = [&b"ga10bses"[..], &1u32.to_le_bytes(), &u32::MAX.to_le_bytes()].concat();
    assert!(read(&long).unwrap_err().to_string().contains("4294967295"));
    let newer = [&b"ga10bses"[..], &2u32.to_le_bytes()].concat();
    assert!(matches!(read(&newer), Err(Error::SessionVersion { version: 2 })));
    assert!(matches!(read(b"GGUF\x03\0\0\0\0"), Err(Error::NotSession { .. })));
    assert!(matches!(read(b""), Err(Error::NotSession { .. })));
}

proptest! {
    /// Whatever is changed, cut off or added: an error, never another session.
    #[test]
    fn no_change_goes_unnoticed(
        at in any::<prop::sample::Index>(),
        flip in 1u8..,
        cut in any::<prop::sample::Index>(),
        more in proptest::collection::vec(any::<u8>(), 1..40),
    ) {
        thread_local!(static GOOD: Vec<u8> = small());
        let good = GOOD.with(Clone::clone);
        prop_assert!(read(&good).is_ok());
        let mut bytes = good.clone();
        bytes[at.index(good.len())] ^= flip;
        prop_assert!(read(&bytes).is_err());
        prop_assert!(read(&good[..cut.index(good.len())]).is_err());
        prop_assert!(read(&[&good[..], &more].concat()).is_err());
    }

    /// Bytes that nobody saved.
    #[test]
    fn any_bytes_are_an_error(
        length in any::<u32>(),
        bytes in proptest::collection::vec(any::<u8>(), 0..300),
    ) {
        prop_assert!(read(&bytes).is_err());
        let begun = [&b"ga10bses"[..], &1u32.to_le_bytes(), &(length % 400).to_le_bytes(), &bytes].concat();
        prop_assert!(read(&begun).is_err());
    }
}

#[test]
fn a_file_is_private_and_replaced_as_a_whole() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("story.session");
    let write = |bytes: &'static [u8]| {
        move |out: &mut dyn Write| out.write_all(bytes).map_err(|source| Error::SessionOutput { source })
    };
    replace(&path, write(b"ga10bses and more")).unwrap();
    assert!(is_session(&path).unwrap());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let error = replace(&path, |out| {
        write(b"half")(out)?;
        Err(Error::SessionOutput { source: io::ErrorKind::StorageFull.into() })
    });
    assert!(error.is_err());
    assert_eq!(fs::read(&path).unwrap(), b"ga10bses and more");
    // The target of a link is replaced.
    let link = folder.path().join("link");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    replace(&link, write(b"short")).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"short");
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink() && !is_session(&link).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "nothing is left beside");
    let error = replace(&folder.path().join("no/such"), write(b"x")).unwrap_err();
    assert!(error.to_string().contains("no/such"), "{error}");
}
