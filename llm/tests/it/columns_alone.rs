//! A text that is alone in the batch engine: the persistent step, wherever the pages of the cache lie.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::engine::PAGE;
use ga10b_llm::schedule::{Event, Finish, Reading, Request, Scheduler};
use ga10b_llm::{
    CacheType, ColumnId, Columns, ColumnsOptions, Decoder, Engine, EngineOptions, Model, Sampler,
    SamplerOptions, Sequences,
};

use crate::craft::Craft;
use crate::open::device;

fn columns(model: &Model, context: usize, (pages, kv): (usize, CacheType)) -> Columns {
    let options = ColumnsOptions::new(1, context).with_stream().with_cache(kv).with_pages(pages);
    let columns = Columns::new(&device(), model, &options).unwrap();
    assert!(columns.streams());
    columns
}

fn greedy() -> Sampler {
    Sampler::new(SamplerOptions::GREEDY)
}

fn warm(seed: u64) -> Sampler {
    Sampler::new(SamplerOptions { temperature: 1.1, top_k: 50, top_p: 0.98, min_p: 0.0, seed })
}

fn prompt(len: usize, seed: u32) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + 11 * seed) % 1000).collect()
}

/// `count` tokens after `token`.
fn text(columns: &mut Columns, id: ColumnId, mut token: u32, count: usize, mut sampler: Sampler) -> Vec<u32> {
    sampler.begin(&[token]);
    let mut all = vec![];
    while all.len() < count {
        token = columns.next(id, token, &mut sampler).unwrap().expect("a number");
        all.push(token);
    }
    assert!(columns.is_finite(id).unwrap());
    all
}

/// Makes the cache's first pages those of another sequence, so that the next one's pages are in no order.
fn disorder(columns: &mut Columns) {
    let id = columns.admit().unwrap();
    columns.pretend(id, 3 * PAGE).unwrap();
    let kept = [0, 1, 2].map(|number| columns.keep_page(id, number).unwrap());
    columns.release(id).unwrap();
    // The last one that is given back is taken first.
    let [first, second, third] = kept;
    [second, first, third].into_iter().for_each(|page| columns.give_back(page));
}

/// One position is computed with what is cached in every page, near the start of a context and far from it.
#[test]
fn a_text_does_not_depend_on_where_its_pages_lie() {
    let cases = vec![
        ("tiny-llama:q6_k", CacheType::F16),
        ("tiny-qwen2:q8_0", CacheType::Q8_0),
        ("tiny-qwen3:q4_k_m", CacheType::F16),
    ];
    for (name, kv) in ga10b_oracles::sample("pages in any order", cases, 3) {
        let model = Craft::new(name).model().unwrap();
        let mut columns = columns(&model, 3 * PAGE, (5, kv));
        let mut run = |orderly: bool| {
            if !orderly {
                disorder(&mut columns);
            }
            let id = columns.admit().unwrap();
            let mut all = vec![];
            for (len, seed) in [(3, 1), (PAGE - 4, 2), (2 * PAGE - 3, 3)] {
                let position = columns.position(id).unwrap();
                columns.prefill(id, &prompt(len - position, seed)).unwrap();
                // The last of them writes to a page that is new.
                all.push(text(&mut columns, id, 5, 6, warm(seed.into())));
                all.push(text(&mut columns, id, 6, 2, greedy()));
            }
            columns.release(id).unwrap();
            all
        };
        let wanted = run(true);
        assert_eq!(run(false), wanted, "{name}");
        assert_eq!(run(true), wanted, "{name}: the pages as they were left");
    }
}

/// The same step as the engine's.
#[test]
fn the_bits_are_those_of_the_engine() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let mut engine = Engine::new(&device(), &model, &EngineOptions::new(64)).unwrap();
    let mut columns = columns(&model, 64, (1, CacheType::F16));
    for sampler in [greedy(), warm(4)] {
        engine.reset().unwrap();
        let (mut token, mut own) = (7, sampler.clone());
        let wanted: Vec<u32> = (0..20)
            .map(|_| {
                token = engine.step_sampled(token, &mut own).unwrap();
                token
            })
            .collect();
        let id = columns.admit().unwrap();
        assert_eq!(text(&mut columns, id, 7, 20, sampler), wanted);
        columns.release(id).unwrap();
    }
}

/// The text of each request, and how many tokens it reused.
fn texts(scheduler: &mut Scheduler<Columns>, prompts: &[Vec<u32>], reuse: bool) -> Vec<(Vec<u32>, usize)> {
    let run = |prompt: &Vec<u32>| {
        let request = Request {
            prompt: prompt.clone(),
            sampler: warm(3),
            most: 6,
            ends: vec![],
            reuse,
            reading: Reading::Nothing,
        };
        scheduler.submit(request).unwrap();
        let (mut text, mut found) = (vec![], 0);
        while scheduler.load().running + scheduler.load().waiting > 0 {
            for (_, event) in scheduler.step().unwrap() {
                match event {
                    Event::Admitted { reused } | Event::Reused { tokens: reused } => found += reused,
                    Event::Logprobs(_) | Event::Known(_) | Event::State(_) => panic!("nobody asks for them"),
                    Event::Token(token) => text.push(token),
                    Event::Finished(finish) => assert_eq!(finish, Finish::Count),
                }
            }
        }
        (text, found)
    };
    prompts.iter().map(run).collect()
}

/// A request gets its text whatever was processed before: what persistent steps have written is not what a prompt
/// takes.
#[test]
fn a_prompt_that_goes_on_with_a_text_gets_the_same_text_again() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let options = ColumnsOptions::new(1, 3 * PAGE).with_stream().with_chunks().with_pages(8);
    let build = || Scheduler::new(Columns::new(&device(), &model, &options).unwrap(), 4);
    let (mut plain, mut cached) = (build(), build().with_prefix_cache());
    let mut wanted = vec![];
    let mut prompts = vec![prompt(12, 1), prompt(2 * PAGE + 50, 2)];
    for round in 0..2 {
        wanted.extend(texts(&mut plain, &prompts[2 * round..], false));
        let more = prompts[2 * round..].iter().zip(&wanted[2 * round..]);
        let more: Vec<Vec<u32>> =
            more.map(|(prompt, (text, _))| [&prompt[..], &text[..], &[9, 8]].concat()).collect();
        prompts.extend(more);
    }
    wanted.extend(texts(&mut plain, &prompts[4..], false));
    let (found, reused): (Vec<_>, Vec<_>) = texts(&mut cached, &prompts, true).into_iter().unzip();
    assert_eq!(found, wanted.into_iter().map(|(text, _)| text).collect::<Vec<_>>());
    // Of the short prompt all of its tokens, of the long one its whole pages; nothing of the texts.
    assert_eq!(reused, [0, 0, 12, 2 * PAGE, 20, 2 * PAGE]);
}

#[test]
fn weights_that_are_no_numbers_end_a_text() {
    let model = Craft::new("tiny-llama:f16").value("blk.1.ffn_down.weight", 5, f32::NAN).model().unwrap();
    let mut columns = columns(&model, 16, (1, CacheType::F16));
    let id = columns.admit().unwrap();
    assert_eq!(columns.next(id, 7, &mut greedy()).unwrap(), None);
}

/// Nothing of such a text is kept.
#[test]
fn a_value_past_the_cache_ends_its_text_alone() {
    let craft = Craft::new("tiny-llama:f16").value("token_embd.weight", 9 * 512 + 5, 20000.0);
    let model = craft.value("blk.0.attn_v.weight", 5, 6000.0).model().unwrap();
    let mut scheduler = Scheduler::new(columns(&model, 32, (1, CacheType::F16)), 4).with_prefix_cache();
    let mut run = |token: u32| {
        let sampler = Sampler::new(SamplerOptions::GREEDY).with_bias(vec![(token, 1e6)]);
        scheduler
            .submit(Request {
                prompt: vec![3, 7],
                sampler,
                most: 8,
                ends: vec![],
                reuse: true,
                reading: Reading::Nothing,
            })
            .unwrap();
        let mut finish = None;
        while finish.is_none() {
            finish = scheduler.step().unwrap().into_iter().find_map(|(_, event)| match event {
                Event::Finished(finish) => Some(finish),
                _ => None,
            });
        }
        (finish, scheduler.load().cached_pages)
    };
    assert_eq!(run(5), (Some(Finish::Count), 1));
    assert_eq!(run(9), (Some(Finish::NotFinite { position: 2 }), 0));
    assert_eq!(run(5), (Some(Finish::Count), 1), "the next text is as before");
}

/// Zeros that the model computes are no error.
#[test]
fn logits_of_zeros_are_an_answer_where_the_output_is_zero() {
    let model = Craft::new("tiny-llama:f32").scaled("output_norm.weight", 0.0).model().unwrap();
    let mut columns = columns(&model, 16, (1, CacheType::F16));
    let id = columns.admit().unwrap();
    assert_eq!(text(&mut columns, id, 7, 3, greedy()), [0, 0, 0]);
}

#[test]
fn only_a_single_sequence_has_a_persistent_step() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let options = ColumnsOptions::new(2, 64).with_stream();
    let mut columns = Columns::new(&device(), &model, &options).unwrap();
    assert!(!columns.streams());
    let (one, other) = (columns.admit().unwrap(), columns.admit().unwrap());
    let wanted = columns.step(&[(one, 7)]).unwrap()[0];
    assert_eq!(columns.next(other, 7, &mut greedy()).unwrap(), wanted);
    // Another architecture's step is that of batches.
    let model = Craft::new("tiny-gemma2:q6_k").model().unwrap();
    let columns = Columns::new(&device(), &model, &ColumnsOptions::new(1, 64).with_stream()).unwrap();
    assert!(!columns.streams());
}
