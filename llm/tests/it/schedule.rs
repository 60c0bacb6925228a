//! The scheduler against a model of an engine that is too simple to be wrong, and on the batch engine.

use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;

use ga10b_llm::engine::PAGE;
use ga10b_llm::sampler::{Logprobs, Penalties};
use ga10b_llm::schedule::{Event, Finish, Reading, Request, RequestId, Scheduler};
use ga10b_llm::speculate::{Draft, DraftModel, Lengths, SpeculatorOptions, Text};
use ga10b_llm::{Columns, ColumnsOptions, Error, Sampler, SamplerOptions, Sequences};
use proptest::prelude::*;

use crate::craft::Craft;
use crate::open::device;
use crate::schedule_model::{Guess, Model, VOCAB, alone, cached, logits_of, state_of};

/// Whether every token of a prompt is a column.
fn is_read(request: &Request) -> bool {
    matches!(request.reading, Reading::Logprobs(_) | Reading::States)
}

/// The prompt of a request as the cache has it.
fn in_cache(request: &Request, (page, least): (usize, Option<usize>)) -> Vec<u32> {
    cached(&request.prompt, page, least.filter(|_| !is_read(request)))
}

/// The results that are told of a request's prompt.
fn told(request: &Request, shape: (usize, Option<usize>)) -> Vec<Event> {
    let text = in_cache(request, shape);
    let state = |len: usize| Event::State(state_of(&text[..len]));
    let known =
        |at: usize, most| Event::Known(Logprobs::of(request.prompt[at], &logits_of(&text[..at]), most));
    match request.reading {
        Reading::Nothing => vec![],
        Reading::Logprobs(most) => (1..text.len()).map(|at| known(at, most)).collect(),
        Reading::States => (1..=text.len()).map(state).collect(),
        Reading::LastState => vec![state(text.len())],
    }
}

/// The text of a request that is alone, and why it ends, as far as only the request and the context decide.
fn wanted(
    request: &Request,
    (page, least): (usize, Option<usize>),
    is_alone: bool,
    context: usize,
) -> (Vec<u32>, Finish) {
    let mut sampler = request.sampler.clone();
    sampler.begin(&request.prompt);
    let mut text = in_cache(request, (page, least));
    let mut written = vec![];
    if request.most == 0 {
        return (written, Finish::Count);
    }
    loop {
        let token = sampler.sample(&logits_of(&text));
        if request.ends.contains(&token) {
            return (written, Finish::End);
        }
        written.push(token);
        text.push(if is_alone { alone(token) } else { token });
        if written.len() == request.most {
            return (written, Finish::Count);
        }
        if text.len() > context {
            return (written, Finish::Context);
        }
    }
}

#[derive(Clone, Debug)]
enum Op {
    Submit(Box<Request>),
    Cancel(usize),
    Steps(usize),
}

fn request() -> impl Strategy<Value = Request> {
    let sampler = (0u64..6).prop_map(|seed| {
        let warm = SamplerOptions { temperature: 0.7, top_k: 0, top_p: 1.0, min_p: 0.0, seed };
        let greedy = Sampler::new(SamplerOptions::GREEDY);
        match seed {
            0 => greedy,
            1 => greedy.with_penalties(Penalties { repeat: 1.5, frequency: 0.5, ..Penalties::NONE }),
            2 => Sampler::new(warm).with_bias(vec![(3, 2.0), (7, -9.0)]),
            // Two tokens in turn, as far as chance has it: what lookup proposes is often right.
            3 => Sampler::new(warm).with_bias(vec![(3, 99.0), (7, 99.0)]),
            _ => Sampler::new(warm),
        }
    });
    // Many begin in the same way.
    let own = proptest::collection::vec(0..VOCAB, 1..30);
    let prompt =
        (0usize..40, own).prop_map(|(common, own)| (0..common as u32).map(|i| i % 7).chain(own).collect());
    let ends = proptest::collection::vec(0..VOCAB, 0..2);
    let reading = prop_oneof![
        3 => Just(Reading::Nothing),
        1 => (0usize..3).prop_map(Reading::Logprobs),
        1 => Just(Reading::States),
        1 => Just(Reading::LastState),
    ];
    let most = prop_oneof![1 => Just(0), 4 => 0usize..50];
    (prompt, sampler, most, ends, any::<bool>(), reading).prop_map(
        |(prompt, sampler, most, ends, reuse, reading)| Request {
            prompt,
            sampler,
            most,
            ends,
            reuse,
            reading,
        },
    )
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        3 => request().prop_map(|request| Op::Submit(request.into())),
        1 => (0usize..20).prop_map(Op::Cancel),
        3 => (1usize..12).prop_map(Op::Steps),
    ]
}

proptest! {
    /// Whatever comes and goes beside it, a request gets the text that it gets alone, and ends once; no page,
    /// no sequence and no request is lost.
    #[test]
    fn a_request_gets_its_own_text(
        pages in 1usize..20,
        page in prop_oneof![Just(4usize), Just(16)],
        least in proptest::option::of(1usize..17),
        context in 20usize..120,
        most in prop_oneof![Just(1usize), 1usize..40],
        lookup in 0usize..9,
        (caches, slices, guesses, is_alone) in any::<(bool, bool, bool, bool)>(),
        ops in proptest::collection::vec(op(), 1..40),
    ) {
        // Where a text is always alone, its steps may write other keys and values than others.
        let is_alone = is_alone && most == 1;
        let model = Model { pages, page, least, alone: is_alone, context, most, ..Model::default() };
        let guess = Guess::default();
        let held = Rc::clone(&guess.held);
        let options = SpeculatorOptions::new(lookup).fixed();
        let scheduler = match Scheduler::new(model, 8) {
            scheduler if is_alone => scheduler,
            scheduler if guesses => scheduler.with_draft(Box::new(guess), options),
            scheduler => scheduler.with_lookup(lookup),
        };
        let scheduler = if caches { scheduler.with_prefix_cache() } else { scheduler };
        let mut scheduler = if slices { scheduler.with_latency(Duration::ZERO) } else { scheduler };
        let mut reused: HashMap<RequestId, usize> = HashMap::new();
        let mut requests: HashMap<RequestId, Request> = HashMap::new();
        let mut order: Vec<RequestId> = vec![];
        let mut found: HashMap<RequestId, (Vec<u32>, Option<Finish>)> = HashMap::new();
        let mut read: HashMap<RequestId, Vec<Event>> = HashMap::new();
        let mut run = |scheduler: &mut Scheduler<Model>, found: &mut HashMap<RequestId, (Vec<u32>, Option<Finish>)>| {
            let Model { steps, chunks, .. } = scheduler.sequences();
            let (before, chunks) = (steps.len(), *chunks);
            for (id, event) in scheduler.step().unwrap() {
                let (text, finish) = found.get_mut(&id).expect("an event of a request that is not there");
                assert!(finish.is_none(), "an event after the end");
                match event {
                    Event::Admitted { reused: tokens } => drop(reused.insert(id, tokens)),
                    Event::Reused { tokens } => {
                        assert!(tokens > 0 && text.is_empty());
                        *reused.get_mut(&id).expect("it is admitted") += tokens;
                    }
                    Event::Logprobs(_) => panic!("no sampler keeps them"),
                    event @ (Event::Known(_) | Event::State(_)) => {
                        assert!(text.is_empty(), "told of the prompt after its text has begun");
                        read.entry(id).or_default().push(event);
                    }
                    Event::Token(token) => text.push(token),
                    Event::Finished(reason) => *finish = Some(reason),
                }
            }
            assert!(scheduler.sequences().steps.len() <= before + 1);
            assert!(scheduler.sequences().chunks <= chunks + 1);
        };
        for op in ops {
            match op {
                Op::Submit(request) => match scheduler.submit((*request).clone()) {
                    Ok(id) => {
                        order.push(id);
                        found.insert(id, (vec![], None));
                        requests.insert(id, *request);
                    }
                    // Those that were put back wait too.
                    Err(Error::QueueFull { most: 8 }) => prop_assert!(scheduler.load().waiting >= 8),
                    Err(Error::ContextFull { .. }) => prop_assert!(request.prompt.len() > context),
                    Err(error) => prop_assert!(false, "{}", error),
                },
                Op::Cancel(number) if !order.is_empty() => {
                    let id = order[number % order.len()];
                    let there = found.get(&id).is_some_and(|(_, finish)| finish.is_none());
                    prop_assert_eq!(scheduler.cancel(id).unwrap(), there);
                    if there {
                        found.remove(&id);
                    }
                }
                Op::Cancel(_) => {}
                Op::Steps(count) => (0..count).for_each(|_| run(&mut scheduler, &mut found)),
            }
        }
        let mut steps = 0;
        while scheduler.load().waiting + scheduler.load().running > 0 {
            run(&mut scheduler, &mut found);
            steps += 1;
            prop_assert!(steps < 100_000, "no end: {:?}", scheduler.load());
        }
        prop_assert!(scheduler.sequences().texts.is_empty(), "sequences are lost");
        prop_assert!(held.borrow().is_empty(), "the draft has texts that have ended");
        prop_assert_eq!(scheduler.sequences().kept.len(), scheduler.load().cached_pages, "pages are lost");
        prop_assert!(caches || scheduler.load().cached_pages == 0);
        for (id, tokens) in &reused {
            let Some(request) = requests.get(id) else { continue };
            let most = request.prompt.len() + found.get(id).map_or(request.most, |(text, _)| text.len());
            prop_assert!(*tokens < most && (caches && request.reuse && !is_read(request) || *tokens == 0), "{tokens} of {most}");
        }
        scheduler.forget();
        prop_assert_eq!(scheduler.sequences().free_pages(), pages, "pages are lost");
        for (id, (text, finish)) in &found {
            let (whole, last) = wanted(&requests[id], (page, least), is_alone, context);
            let (told, read) = (told(&requests[id], (page, least)), read.remove(id).unwrap_or_default());
            match finish {
                Some(Finish::Context) if text.is_empty() => prop_assert!(told.starts_with(&read)),
                _ => prop_assert_eq!(told, read),
            }
            match finish {
                // All pages together hold less than the context.
                Some(Finish::Context) if last != Finish::Context || text.len() < whole.len() => {
                    prop_assert!(whole.starts_with(text));
                    prop_assert!(requests[id].prompt.len() + text.len() >= pages * page, "ended too early");
                }
                finish => prop_assert_eq!((text, *finish), (&whole, Some(last))),
            }
        }
    }
}

/// Texts that repeat themselves, beside others: proposals take columns that a step has anyway, and pages that
/// are free.
#[test]
fn texts_that_repeat_themselves_take_fewer_steps() {
    let run = |lookup: usize, pages: usize| {
        let model = Model { pages, page: 16, context: 400, most: 8, ..Model::default() };
        let mut scheduler = Scheduler::new(model, 100).with_lookup(lookup);
        for i in 0..4 {
            let sampler = Sampler::new(SamplerOptions::GREEDY);
            let sampler = if i < 2 { sampler.with_bias(vec![(3, 1000.0)]) } else { sampler };
            let request = Request {
                prompt: vec![i, 9],
                sampler,
                most: 60,
                ends: vec![],
                reuse: true,
                reading: Reading::Nothing,
            };
            scheduler.submit(request).unwrap();
        }
        let mut texts: HashMap<RequestId, Vec<u32>> = HashMap::new();
        let mut repeated = 0;
        for step in 1.. {
            for (id, event) in scheduler.step().unwrap() {
                match event {
                    Event::Logprobs(_) | Event::Known(_) | Event::State(_) => panic!("nobody asks for them"),
                    Event::Token(token) => texts.entry(id).or_default().push(token),
                    Event::Finished(_) if id.0 < 2 => repeated = step,
                    _ => {}
                }
            }
            if scheduler.load().running == 0 {
                break;
            }
        }
        assert!(scheduler.sequences().steps.iter().all(|tokens| *tokens <= 8));
        (texts, repeated, scheduler.load())
    };
    let (texts, steps, load) = run(0, 400);
    assert_eq!((steps, load.proposed, load.accepted), (60, 0, 0));
    let (found, steps, load) = run(7, 400);
    assert_eq!(found, texts);
    // Four columns of eight are spare, one for each text, and the last for who proposes.
    assert!(steps <= 35 && load.accepted >= 50 && load.proposed > load.accepted, "{steps} steps, {load:?}");
    // Each text fills its pages: there are none for proposals.
    let (found, steps, load) = run(7, 4 * 4);
    assert_eq!(found, texts);
    assert!(steps < 60 && load.evicted_pages == 0, "{steps} steps, {load:?}");
}

/// A text gets a token between two slices of a chunk, and before all of them is written a prompt is not sliced.
#[test]
fn texts_go_on_between_the_slices_of_a_chunk() {
    let run = |latency: Option<Duration>| {
        let model = Model { pages: 400, page: 16, least: Some(4), context: 400, most: 8, ..Model::default() };
        let scheduler = Scheduler::new(model, 100);
        let mut scheduler = latency.into_iter().fold(scheduler, Scheduler::with_latency);
        let mut submit = |prompt: Vec<u32>, most| {
            let sampler = Sampler::new(SamplerOptions::GREEDY);
            let request =
                Request { prompt, sampler, most, ends: vec![], reuse: true, reading: Reading::Nothing };
            scheduler.submit(request).unwrap()
        };
        // 20 and 3 chunks: the second prompt has the text of the first beside it.
        let (text, beside) = (submit((0..321).map(|i| i % VOCAB).collect(), 60), submit(vec![5; 49], 1));
        let (mut alone, mut between) = (0, 0);
        while scheduler.is_running(beside) || alone == 0 {
            let chunks = scheduler.sequences().chunks;
            let tokens = scheduler
                .step()
                .unwrap()
                .iter()
                .filter(|(id, e)| *id == text && matches!(e, Event::Token(_)))
                .count();
            match tokens {
                0 => alone += scheduler.sequences().chunks - chunks,
                _ => between += scheduler.sequences().chunks - chunks,
            }
        }
        (alone, between)
    };
    assert_eq!(run(None), (20, 3));
    assert_eq!(run(Some(Duration::ZERO)), (20, 9));
}

/// A request that came first is not overtaken for ever, and texts rotate.
#[test]
fn texts_take_turns() {
    let model = Model { pages: 4000, page: 16, context: 400, most: 40, ..Model::default() };
    let mut scheduler = Scheduler::new(model, 100);
    for i in 0..40 {
        let prompt = vec![i % VOCAB, 3];
        let sampler = Sampler::new(SamplerOptions::GREEDY);
        scheduler
            .submit(Request {
                prompt,
                sampler,
                most: 200,
                ends: vec![],
                reuse: true,
                reading: Reading::Nothing,
            })
            .unwrap();
    }
    let mut written = HashMap::new();
    for _ in 0..120 {
        for (id, event) in scheduler.step().unwrap() {
            if let Event::Token(_) = event {
                *written.entry(id).or_insert(0) += 1;
            }
        }
    }
    let (least, most) = (written.values().min().unwrap(), written.values().max().unwrap());
    assert_eq!(written.len(), 40);
    assert!(most - least <= 6, "{least} to {most} tokens");
    let steps = &scheduler.sequences().steps;
    assert!(steps[10..].iter().all(|tokens| *tokens == 32), "columns are empty: {steps:?}");
}

#[test]
fn requests_on_columns_get_the_texts_that_they_get_alone() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let request = |seed: u32| Request {
        prompt: (0..20 + 90 * (seed % 3)).map(|i| (i * 31 + seed * 7) % 1024).collect(),
        sampler: Sampler::new(match seed % 2 {
            0 => SamplerOptions::GREEDY,
            _ => SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.0, seed: seed.into() },
        })
        .with_bias(if seed < 2 { vec![(5, 12.0)] } else { vec![] }),
        most: 6 + 3 * seed as usize,
        ends: vec![],
        reuse: true,
        reading: Reading::Nothing,
    };
    let run = |requests: &[u32], pages: usize, (lookup, draft): (usize, Option<&ga10b_llm::Model>)| {
        let options = ColumnsOptions::new(6, 2 * PAGE).with_pages(pages);
        let columns = Columns::new(&device(), &model, &options).unwrap();
        let mut scheduler = Scheduler::new(columns, 16).with_lookup(lookup);
        if let Some(draft) = draft {
            // Of less context than the texts, and with pages for two of them.
            let options = ColumnsOptions::new(6, 200).with_pages(2).with_chunks();
            let draft = Box::new(DraftModel::new(Columns::new(&device(), draft, &options).unwrap()));
            scheduler = scheduler.with_draft(draft, SpeculatorOptions::new(3).fixed());
        }
        let ids: Vec<RequestId> =
            requests.iter().map(|seed| scheduler.submit(request(*seed)).unwrap()).collect();
        let mut texts: HashMap<RequestId, Vec<u32>> = HashMap::new();
        while scheduler.load().waiting + scheduler.load().running > 0 {
            for (id, event) in scheduler.step().unwrap() {
                match event {
                    Event::Admitted { reused } => assert_eq!(reused, 0, "nothing is kept"),
                    Event::Reused { .. } => panic!("nothing is kept"),
                    Event::Logprobs(_) | Event::Known(_) | Event::State(_) => panic!("nobody asks for them"),
                    Event::Token(token) => texts.entry(id).or_default().push(token),
                    Event::Finished(finish) => assert_eq!(finish, Finish::Count),
                }
            }
        }
        assert_eq!((scheduler.sequences().free_pages(), scheduler.sequences().sequences()), (pages, 0));
        let load = scheduler.load();
        assert_eq!(load.accepted > 0, lookup > 0 || draft.is_some(), "{load:?}");
        (ids.iter().map(|id| texts[id].clone()).collect::<Vec<_>>(), load)
    };
    let alone: Vec<Vec<u32>> = (0..5).flat_map(|seed| run(&[seed], 8, (0, None)).0).collect();
    // With pages for all, and for two at a time.
    for (pages, lookup) in [(8, 0), (2, 0), (8, 7)] {
        let (texts, _) = run(&[0, 1, 2, 3, 4], pages, (lookup, None));
        assert_eq!(texts, alone, "{pages} pages, up to {lookup} proposed");
    }
    // The model itself, which is right where texts are greedy.
    let (texts, load) = run(&[0, 1, 2, 3, 4], 8, (0, Some(&model)));
    assert_eq!(texts, alone, "with a draft");
    assert!(load.accepted >= 10, "{load:?}");
}

/// A text whose keys or values are no numbers ends so, also where its logits did not tell, and nothing of it is shared.
#[test]
fn what_is_no_number_is_found_at_the_end_and_not_shared() {
    for cancelled in [false, true] {
        let model = Model { pages: 40, page: 16, context: 100, most: 2, poison: Some(9), ..Model::default() };
        let mut scheduler = Scheduler::new(model, 8).with_prefix_cache();
        let mut run = |prompt: Vec<u32>, cancelled: bool| {
            let sampler = Sampler::new(SamplerOptions::GREEDY).with_bias(vec![(5, 1e6)]);
            let request =
                Request { prompt, sampler, most: 12, ends: vec![], reuse: true, reading: Reading::Nothing };
            let id = scheduler.submit(request).unwrap();
            let mut finish = None;
            for step in 0..20 {
                if cancelled && step == 10 {
                    scheduler.cancel(id).unwrap();
                }
                finish =
                    scheduler.step().unwrap().into_iter().fold(finish, |finish, (_, event)| match event {
                        Event::Finished(reason) => Some(reason),
                        _ => finish,
                    });
            }
            (finish, scheduler.load().cached_pages)
        };
        assert_eq!(run(vec![3; 20], false), (Some(Finish::Count), 2));
        let finish = if cancelled { None } else { Some(Finish::NotFinite { position: 11 }) };
        let (found, pages) = run(vec![9], cancelled);
        assert_eq!((found, pages), (finish, if cancelled { 2 } else { 0 }));
    }
}

/// Prompts that arrive together are processed once, whatever they have in common.
#[test]
fn what_prompts_begin_with_is_processed_once() {
    for (common, own) in [(100, 5), (64, 5), (64, 0), (200, 40)] {
        let model = Model { pages: 400, page: 16, context: 400, most: 8, ..Model::default() };
        let mut scheduler = Scheduler::new(model, 100).with_prefix_cache();
        let prompt =
            |i: u32| -> Vec<u32> { (0..common).chain((0..own).map(|n| n + i)).map(|n| n % VOCAB).collect() };
        for i in 0..8 {
            let sampler = Sampler::new(SamplerOptions::GREEDY);
            let request = Request {
                prompt: prompt(i),
                sampler,
                most: 20,
                ends: vec![],
                reuse: true,
                reading: Reading::Nothing,
            };
            scheduler.submit(request).unwrap();
        }
        let mut reused = 0;
        while scheduler.load().waiting + scheduler.load().running > 0 {
            for (_, event) in scheduler.step().unwrap() {
                if let Event::Admitted { reused: tokens } | Event::Reused { tokens } = event {
                    reused += tokens;
                }
            }
        }
        let processed: usize = scheduler.sequences().steps.iter().sum();
        let tokens = 8 * (common + own + 19) as usize;
        assert_eq!(processed, tokens - reused);
        // A step's free columns begin with the next prompt before the one before it ends.
        let least = 7 * common as usize - 2 * 32;
        assert!(reused >= least, "{reused} of {least}");
    }
}

/// Texts for which a draft has no page are left out, and the others go on.
#[test]
fn a_draft_proposes_for_the_texts_that_it_has_pages_for() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let options = ColumnsOptions::new(4, PAGE).with_pages(2);
    let mut draft = DraftModel::new(Columns::new(&device(), &model, &options).unwrap());
    let tokens = [[1, 7], [2, 9], [3, 5], [4, 8]];
    let texts: Vec<Text<'_>> =
        (0u64..).zip(&tokens).map(|(name, tokens)| Text { name, tokens, lengths: Lengths::all(3) }).collect();
    let lengths = |draft: &mut DraftModel| -> Vec<usize> {
        draft.propose(&texts, 30).unwrap().iter().map(|proposal| proposal.tokens.len()).collect()
    };
    assert_eq!(lengths(&mut draft), [3, 3, 0, 0]);
    assert_eq!(lengths(&mut draft), [3, 3, 0, 0], "the same again");
    draft.forget(0);
    draft.forget(1);
    let texts = &texts[1..];
    let found = draft.propose(texts, 4).unwrap();
    let found: Vec<usize> = found.iter().map(|proposal| proposal.tokens.len()).collect();
    assert_eq!(found, [2, 2, 0], "four columns for two texts");
}
