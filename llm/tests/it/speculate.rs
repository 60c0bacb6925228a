//! Speculative decoding: whatever a draft proposes, texts are those of one token at a time.
//!
//! Against a model of a target that is too simple to be wrong, and on the batch engine.

use std::ops::ControlFlow;

use ga10b_llm::engine::PAGE;
use ga10b_llm::generate::{Generation, Stop, extend};
use ga10b_llm::gguf::{Array, Value};
use ga10b_llm::sampler::Penalties;
use ga10b_llm::speculate::{
    Draft, DraftModel, Kind, Lengths, Lookup, NoDraft, Proposal, Speculator, SpeculatorOptions, Text,
    check_vocabularies,
};
use ga10b_llm::{
    CacheType, Columns, ColumnsOptions, Decoder, Error, Model, Result, Sampler, SamplerOptions, Tokenizer,
    generate,
};
use proptest::prelude::*;

use crate::craft::Craft;
use crate::open::device;
use crate::schedule_model;
use crate::speculate_model::{Plain, Several, VOCAB, continuation, logits_of};

/// The behaviour of a draft when it is asked.
#[derive(Clone, Debug)]
struct Answer {
    /// Tokens that are right if the most likely ones are chosen.
    right: usize,
    /// Tokens after them.
    then: Vec<u32>,
    kind: Kind,
    fails: bool,
}

/// Gives one answer after the other.
#[derive(Debug)]
struct Scripted(std::vec::IntoIter<Answer>);

impl Draft for Scripted {
    fn propose(&mut self, texts: &[Text<'_>], columns: usize) -> Result<Vec<Proposal>> {
        let Some(Answer { right, then, kind, fails }) = self.0.next() else {
            return NoDraft.propose(texts, columns);
        };
        if fails {
            return Err(Error::EmptyPrompt);
        }
        let mut tokens = continuation(texts[0].tokens, right);
        tokens.extend(then);
        Ok(vec![Proposal { tokens, kind }])
    }
}

fn answer() -> impl Strategy<Value = Answer> {
    let kind = prop_oneof![
        Just(Kind::MatchOfOne),
        Just(Kind::MatchOfTwo),
        Just(Kind::MatchOfThree),
        Just(Kind::Model),
    ];
    let then = proptest::collection::vec(0..VOCAB + 2, 0..6);
    (0usize..9, then, kind, proptest::bool::weighted(0.05)).prop_map(|(right, then, kind, fails)| Answer {
        right,
        then,
        kind,
        fails,
    })
}

#[derive(Clone, Debug)]
enum Op {
    Prompt(Vec<u32>),
    /// So many tokens of a text, each the one that was chosen before.
    Text(usize),
    Token(u32),
    Logits(u32),
    Truncate(usize),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        2 => proptest::collection::vec(0..VOCAB, 0..12).prop_map(Op::Prompt),
        6 => (1usize..30).prop_map(Op::Text),
        1 => (0..VOCAB + 1).prop_map(Op::Token),
        1 => (0..VOCAB).prop_map(Op::Logits),
        1 => (0usize..60).prop_map(Op::Truncate),
    ]
}

fn sampler(number: u64) -> Sampler {
    let warm = SamplerOptions { temperature: 0.4, top_k: 6, top_p: 0.9, min_p: 0.01, seed: number };
    match number {
        0 => Sampler::new(SamplerOptions::GREEDY),
        1 => Sampler::new(SamplerOptions::GREEDY).with_penalties(Penalties {
            repeat: 1.4,
            frequency: 0.3,
            ..Penalties::NONE
        }),
        2 => Sampler::new(warm).with_bias(vec![(3, 2.0), (7, -9.0)]),
        _ => Sampler::new(warm),
    }
}

/// Results as text: errors have no equality.
fn shown<T: std::fmt::Debug>(result: &Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("error: {error}"),
    }
}

proptest! {
    /// Whatever a draft proposes, and if it fails: every token, every logit and every error is that of one
    /// token at a time.
    #[test]
    fn a_draft_changes_no_result(
        context in 8usize..120,
        columns in 1usize..12,
        most in 0usize..12,
        adaptive: bool,
        number in 0u64..5,
        answers in proptest::collection::vec(answer(), 0..60),
        ops in proptest::collection::vec(op(), 1..20),
    ) {
        let target = Several { tokens: vec![], context, columns, logits: vec![] };
        let options = SpeculatorOptions { most, adaptive };
        let draft = Box::new(Scripted(answers.into_iter()));
        let mut decoder = Speculator::new(target, draft, options).unwrap();
        let mut plain = Plain { tokens: vec![], context };
        let (mut own, mut wanted) = (sampler(number), sampler(number));
        let (mut next, mut tokens) = (5, 0);
        // A draft that failed is asked again.
        let failed = |result: &Result<u32>| matches!(result, Err(Error::EmptyPrompt));
        for op in ops {
            match op {
                Op::Prompt(prompt) => {
                    let found = decoder.prefill(&prompt);
                    let mut all = plain.tokens.clone();
                    all.extend(&prompt);
                    match &found {
                        Ok(logits) if prompt.is_empty() => prop_assert!(logits.is_empty()),
                        Ok(logits) => {
                            prop_assert_eq!(Some(logits.clone()), logits_of(&all));
                            plain.tokens = all;
                            own.begin(&prompt);
                            wanted.begin(&prompt);
                        }
                        Err(Error::ContextFull { .. }) => prop_assert!(all.len() > context),
                        Err(Error::NotFinite { .. }) => prop_assert!(logits_of(&all).is_none()),
                        Err(error) => prop_assert!(false, "{}", error),
                    }
                }
                Op::Text(count) => {
                    for _ in 0..count {
                        let before = own.clone();
                        let mut found = decoder.step_sampled(next, &mut own);
                        while failed(&found) {
                            prop_assert_eq!(&own, &before);
                            found = decoder.step_sampled(next, &mut own);
                        }
                        let expected = plain.step_sampled(next, &mut wanted);
                        prop_assert_eq!(shown(&found), shown(&expected));
                        prop_assert_eq!(&own, &wanted);
                        let Ok(token) = found else { break };
                        tokens += 1;
                        next = token;
                    }
                }
                Op::Token(token) => {
                    let mut found = decoder.step_greedy(token);
                    while failed(&found) {
                        found = decoder.step_greedy(token);
                    }
                    prop_assert_eq!(shown(&found), shown(&plain.step_greedy(token)));
                    tokens += usize::from(found.is_ok());
                }
                Op::Logits(token) => {
                    let mut found = decoder.step(token);
                    while matches!(found, Err(Error::EmptyPrompt)) {
                        found = decoder.step(token);
                    }
                    prop_assert_eq!(shown(&found), shown(&plain.step(token)));
                    tokens += usize::from(found.is_ok());
                }
                Op::Truncate(count) => {
                    decoder.truncate(count).unwrap();
                    plain.truncate(count).unwrap();
                }
            }
            prop_assert_eq!(decoder.position(), plain.position());
        }
        let statistics = decoder.statistics();
        prop_assert!(statistics.steps + statistics.accepted >= tokens);
        prop_assert!(statistics.accepted <= statistics.proposed);
    }

    /// A draft that is a model proposes what it finds most likely, whatever it was asked before.
    #[test]
    fn a_draft_model_follows_the_text(
        context in 4usize..60,
        forgets in 1usize..9,
        edits in proptest::collection::vec(
            (0usize..50, proptest::collection::vec(0..schedule_model::VOCAB + 1, 1..20), 0usize..9),
            1..20,
        ),
    ) {
        let sequences = schedule_model::Model { pages: 15, page: 4, context, most: 1, ..Default::default() };
        let mut draft = DraftModel::new(sequences);
        let mut tokens: Vec<u32> = vec![];
        for (kept, new, most) in edits {
            if new.len() == forgets {
                draft.forget(0);
            }
            tokens.truncate(kept);
            tokens.extend(new);
            let text = Text { name: 0, tokens: &tokens, lengths: Lengths::all(most) };
            let found = draft.propose(&[text], 30).unwrap();
            let unknown = tokens.iter().any(|token| *token >= schedule_model::VOCAB);
            let room = if unknown { 0 } else { (context + 1).saturating_sub(tokens.len()) };
            let mut wanted = tokens.clone();
            for _ in 0..most.min(room) {
                wanted.push(schedule_model::best(&schedule_model::logits_of(&wanted)));
            }
            prop_assert_eq!(&found[0].tokens, &wanted[tokens.len()..]);
        }
    }
}

fn model(name: &str) -> Model {
    Craft::new(name).model().unwrap()
}

fn speculator(model: &Model, (context, kv): (usize, CacheType), most: usize) -> Speculator<Columns> {
    let options = ColumnsOptions::new(1, context).with_cache(kv);
    let columns = Columns::new(&device(), model, &options).unwrap();
    Speculator::new(columns, Box::new(NoDraft), SpeculatorOptions::new(most).fixed()).unwrap()
}

/// `count` tokens after `prompt`, of an empty context.
fn text(decoder: &mut dyn Decoder, prompt: &[u32], count: usize, mut sampler: Sampler) -> Vec<u32> {
    decoder.reset().unwrap();
    sampler.begin(prompt);
    let mut tokens = vec![sampler.sample(&decoder.prefill(prompt).unwrap())];
    while tokens.len() < count {
        tokens.push(decoder.step_sampled(tokens[tokens.len() - 1], &mut sampler).unwrap());
    }
    tokens
}

/// Knows the text after a prompt, and proposes it with a wrong token at one place.
#[derive(Debug)]
struct Oracle {
    prompt: usize,
    text: Vec<u32>,
    wrong: usize,
}

impl Draft for Oracle {
    fn propose(&mut self, texts: &[Text<'_>], _: usize) -> Result<Vec<Proposal>> {
        let kind = Kind::Model;
        let [Text { tokens, lengths, .. }] = texts else { panic!("{texts:?}") };
        let right = self.text.iter().skip(tokens.len() - self.prompt).take(lengths.of(kind));
        let wrong = |(i, token): (usize, &u32)| if i == self.wrong { (token + 1) % 1024 } else { *token };
        Ok(vec![Proposal { tokens: right.enumerate().map(wrong).collect(), kind }])
    }
}

fn prompt(len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + 11) % 1000).collect()
}

const MOST: usize = 7;

#[test]
fn a_token_that_is_rejected_at_any_place_changes_no_text() {
    let f16 = CacheType::F16;
    let warm = SamplerOptions { temperature: 1.0, top_k: 50, top_p: 0.95, min_p: 0.0, seed: 4 };
    let adjusted = Sampler::new(warm)
        .with_penalties(Penalties { repeat: 1.3, presence: 0.2, frequency: 0.1, ..Penalties::NONE })
        .with_bias(vec![(5, 3.0)]);
    let cases = vec![
        ("tiny-llama:q6_k", f16, Sampler::new(SamplerOptions::GREEDY)),
        ("tiny-llama:q4_k_m", CacheType::Q8_0, Sampler::new(warm)),
        ("tiny-qwen2:q8_0", f16, adjusted),
        ("tiny-qwen3:q6_k", CacheType::Q8_0, Sampler::new(SamplerOptions::GREEDY)),
    ];
    for (name, kv, sampler) in ga10b_oracles::sample("rejected tokens", cases, 4) {
        let mut decoder = speculator(&model(name), (64, kv), MOST);
        let (prompt, count) = (prompt(9), 22);
        let wanted = text(&mut decoder, &prompt, count, sampler.clone());
        for wrong in 0..=MOST {
            let oracle = Oracle { prompt: prompt.len(), text: wanted.clone(), wrong };
            let options = SpeculatorOptions::new(MOST).fixed();
            decoder.set_draft(Box::new(oracle), options).unwrap();
            assert_eq!(text(&mut decoder, &prompt, count, sampler.clone()), wanted, "{name}: {wrong}");
            // The prompt gives the first token, and the last one is not processed.
            let (steps, found) = ((count - 1).div_ceil(wrong + 1), decoder.statistics());
            assert_eq!((found.steps, found.accepted), (steps, count - 1 - steps), "{name}: {wrong}");
        }
    }
}

#[test]
fn rejected_tokens_give_their_page_back() {
    let mut decoder = speculator(&model("tiny-llama:q8_0"), (PAGE + 40, CacheType::Q8_0), MOST);
    let (prompt, count) = (prompt(PAGE - 6), 16);
    let greedy = || Sampler::new(SamplerOptions::GREEDY);
    let wanted = text(&mut decoder, &prompt, count, greedy());
    for wrong in [1, 4] {
        let oracle = Oracle { prompt: prompt.len(), text: wanted.clone(), wrong };
        decoder.set_draft(Box::new(oracle), SpeculatorOptions::new(MOST).fixed()).unwrap();
        assert_eq!(text(&mut decoder, &prompt, count, greedy()), wanted, "{wrong}");
    }
}

/// Generates, and ends the text when `stop` is part of it.
fn generated(
    decoder: &mut dyn Decoder,
    tokenizer: &Tokenizer,
    prompt: &[u32],
    (count, stop): (usize, Option<&str>),
) -> Generation {
    decoder.reset().unwrap();
    let mut all = String::new();
    let mut sampler = Sampler::new(SamplerOptions::GREEDY);
    extend(decoder, tokenizer, &mut sampler, prompt, count, &mut |piece| {
        all.push_str(piece);
        let stops = stop.is_some_and(|stop| all.contains(stop));
        Ok(if stops { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })
    .unwrap()
}

/// A text ends at the same place for every reason, also within tokens that are accepted; what comes after it
/// on the same decoder is not changed by what was proposed.
#[test]
fn a_text_ends_where_it_ends_without_a_draft() {
    let plain = model("tiny-llama:q6_k");
    let prompt = prompt(12);
    let greedy = || Sampler::new(SamplerOptions::GREEDY);
    let mut decoder = speculator(&plain, (64, CacheType::F16), MOST);
    let whole = text(&mut decoder, &prompt, 24, greedy());
    let end = (3..8).find(|at| !whole[..*at].contains(&whole[*at])).expect("a new token");
    let key = "tokenizer.ggml.eos_token_id";
    let crafted = Craft::new("tiny-llama:q6_k").key(key, Value::U32(whole[end])).model().unwrap();
    let (usual, ends) = [&plain, &crafted].map(|model| Tokenizer::from_gguf(&model.gguf).unwrap()).into();
    let mut stream = usual.stream();
    let pieces: Vec<String> = whole.iter().map(|token| stream.push(*token)).collect();
    let stop = pieces[4..7].concat();

    let mut small = speculator(&plain, (prompt.len() + 9, CacheType::F16), MOST);
    let runs = |decoder: &mut Speculator<Columns>, small: &mut Speculator<Columns>| {
        [
            generated(decoder, &ends, &prompt, (24, None)),
            generated(decoder, &usual, &prompt, (24, Some(&stop))),
            generated(decoder, &usual, &prompt, (10, None)),
            generated(small, &usual, &prompt, (24, None)),
        ]
        .map(|made| (made.tokens, made.stop))
    };
    let wanted = runs(&mut decoder, &mut small);
    assert_eq!(wanted[0], (whole[..end].to_vec(), Stop::End));
    assert_eq!(wanted[1].1, Stop::Caller, "{stop:?} in {pieces:?}");
    assert_eq!((wanted[2].0.len(), wanted[2].1), (10, Stop::Count));
    assert_eq!((wanted[3].0.len(), wanted[3].1), (10, Stop::Context));
    for decoder in [&mut decoder, &mut small] {
        let oracle = Oracle { prompt: prompt.len(), text: whole.clone(), wrong: usize::MAX };
        decoder.set_draft(Box::new(oracle), SpeculatorOptions::new(MOST).fixed()).unwrap();
    }
    assert_eq!(runs(&mut decoder, &mut small), wanted);
    assert!(decoder.statistics().accepted > 5, "{:?}", decoder.statistics());
    // A longer text that begins with the tokens of the last one.
    let longer = [&prompt[..], &whole[..6], &[3, 1]].concat();
    let alone = text(&mut decoder, &longer, 5, greedy());
    generated(&mut decoder, &usual, &prompt, (10, None));
    decoder.truncate(prompt.len() + 6).unwrap();
    let mut sampler = greedy();
    let rest = &longer[prompt.len() + 6..];
    let made = extend(&mut decoder, &usual, &mut sampler, rest, 5, &mut |_| Ok(ControlFlow::Continue(())));
    assert_eq!(made.unwrap().tokens, alone);
}

#[test]
fn drafts_give_the_text_that_is_written_without_them() {
    let target = ga10b_llm::embedded::model().unwrap();
    let tokenizer = Tokenizer::from_gguf(&target.gguf).unwrap();
    let story = "Once upon a time, a cheerful boy named Tom lived on a quiet farm. Once upon a time";
    let prompt = tokenizer.encode(story).unwrap();
    let mut decoder = speculator(&target, (128, CacheType::F16), MOST);
    let mut run = |draft: Box<dyn Draft>, options: SpeculatorOptions| {
        decoder.set_draft(draft, options).unwrap();
        decoder.reset().unwrap();
        let mut sampler = Sampler::new(SamplerOptions::GREEDY);
        let made = generate(&mut decoder, &tokenizer, &mut sampler, &prompt, 40, &mut |_| Ok(())).unwrap();
        (made.tokens, decoder.statistics())
    };
    let (wanted, plain) = run(Box::new(NoDraft), SpeculatorOptions::new(0));
    assert_eq!((wanted.len(), plain.steps, plain.proposed), (40, 39, 0));
    let fixed = SpeculatorOptions::new(MOST).fixed();
    let (found, lookup) = run(Box::new(Lookup), fixed);
    assert_eq!(found, wanted);
    assert!(lookup.accepted > 0 && lookup.steps < 39, "{lookup:?}");
    assert_eq!(run(Box::new(Lookup), SpeculatorOptions::new(MOST)).0, wanted);

    // The model itself, with a context that the text leaves, and the persistent step, which rounds in another way.
    let draft = || {
        let options = ColumnsOptions::new(1, prompt.len() + 30).with_stream();
        Box::new(DraftModel::new(Columns::new(&device(), &target, &options).unwrap()))
    };
    let (found, own) = run(draft(), fixed);
    assert_eq!(found, wanted);
    assert!(own.acceptance() > Some(0.9) && own.tokens_per_step() > Some(2.9), "{own:?}");
    assert_eq!(run(draft(), SpeculatorOptions::new(MOST)).0, wanted);
}

#[test]
fn weights_that_are_no_numbers_are_an_error() {
    let model = Craft::new("tiny-llama:f16").value("blk.1.ffn_down.weight", 5, f32::NAN).model().unwrap();
    let mut decoder = speculator(&model, (16, CacheType::F16), MOST);
    assert!(matches!(decoder.prefill(&[7, 3]), Err(Error::NotFinite { position: 1, .. })));
    assert!(matches!(decoder.step_greedy(7), Err(Error::NotFinite { position: 0, .. })));
    assert_eq!(decoder.position(), 0);
    assert!(matches!(decoder.step_greedy(1024), Err(Error::Token { token: 1024, .. })));
}

#[test]
fn vocabularies_that_differ_are_refused_with_the_first_difference() {
    let own = model("tiny-llama:q8_0");
    let Some(Value::Array(Array::String(tokens))) = own.gguf.value("tokenizer.ggml.tokens") else {
        panic!("no tokens")
    };
    let difference = |draft: &Craft| match check_vocabularies(&own.gguf, &draft.gguf()) {
        Ok(()) => None,
        Err(Error::DraftVocabulary { difference }) => Some(difference),
        Err(error) => Some(format!("another error: {error}")),
    };
    let draft = || Craft::new("tiny-qwen2:q8_0");
    let with_tokens =
        |tokens: Vec<String>| draft().key("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    assert_eq!(difference(&draft()), None, "another architecture, the same vocabulary");
    assert_eq!(difference(&draft().key("tokenizer.ggml.pre", Value::String("qwen2".into()))), None);
    assert_eq!(difference(&with_tokens([&tokens[..], &["<pad>".into()]].concat())), None);
    assert_eq!(difference(&with_tokens(tokens[..900].to_vec())), None);
    let mut other = tokens.clone();
    other[700] = "xyz".into();
    let found = difference(&with_tokens(other)).expect("a difference");
    assert!(found.starts_with("its token 700 is \"xyz\", the model's"), "{found}");
    let found = difference(&draft().key("tokenizer.ggml.model", Value::String("llama".into())));
    assert_eq!(found.as_deref(), Some("its tokenizer is \"llama\", the model's \"gpt2\""));
    let found = difference(&draft().key("tokenizer.ggml.eos_token_id", Value::U32(3)));
    assert!(found.is_some_and(|text| text.starts_with("its tokenizer.ggml.eos_token_id is 3, the model's")));
}
