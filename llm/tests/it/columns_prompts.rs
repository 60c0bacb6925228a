//! Prompts of the batch engine in chunks: against the reference, and bit by bit whatever is shared and runs
//! beside.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use std::collections::HashMap;
use std::time::Duration;

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::engine::{MOST_COLUMNS, PAGE};
use ga10b_llm::schedule::{Event, Finish, Reading, Request, RequestId, Scheduler};
use ga10b_llm::{
    CacheType, ColumnId, Columns, ColumnsOptions, Cut, Decoder, Error, Model, Reference, Sampler,
    SamplerOptions, Sequences,
};
use ga10b_oracles::sample;

use crate::craft::Craft;
use crate::open::device;

fn model(name: &str) -> Model {
    Craft::new(name).model().unwrap()
}

fn columns(model: &Model, options: ColumnsOptions) -> Columns {
    Columns::new(&device(), model, &options.with_chunks()).unwrap()
}

/// A text of a vocabulary of 1024.
fn text(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * i * 37 + i * 5 + seed * 101 + 11) % 1024).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

#[test]
fn logits_are_those_of_the_reference() {
    for (name, kv, len) in sample(
        "prompts in chunks",
        vec![
            ("tiny-llama:q6_k", CacheType::F16, 2 * PAGE + 41),
            ("tiny-qwen3:q4_k_m", CacheType::F16, PAGE + 9),
            ("tiny-llama:q8_0", CacheType::Q8_0, PAGE + 60),
            ("tiny-qwen2:f16", CacheType::F16, 90),
            ("tiny-gemma2:q6_k", CacheType::F16, 2 * PAGE + 11),
            ("tiny-gemma3:q8_0", CacheType::F16, PAGE + 200),
            ("tiny-mistral:q4_k_m", CacheType::Q8_0, 2 * PAGE + 3),
            ("tiny-olmoe:q4_k_m", CacheType::F16, PAGE + 9),
        ],
        4,
    ) {
        let model = model(name);
        let mut columns = columns(&model, ColumnsOptions::new(2, 3 * PAGE).with_cache(kv));
        let mut comparison = Comparison::new();
        // The second has other pages than the first.
        for (seed, len) in [(0, PAGE / 2), (1, len)] {
            let prompt = text(seed, len);
            let id = columns.admit().unwrap();
            let mut reference = Reference::with_cache(&model, 3 * PAGE, kv).unwrap();
            let (column, _) = columns.prefill(id, &prompt).unwrap();
            comparison.add(&reference.prefill(&prompt).unwrap(), &columns.logits(column).unwrap());
            columns.step(&[(id, 5)]).unwrap();
            comparison.add(&reference.step(5).unwrap(), &columns.logits(0).unwrap());
        }
        let nmse = comparison.nmse();
        assert!(nmse < Bounds::of_cache(kv).nmse, "{name}, {kv:?}: NMSE {nmse:e}");
    }
}

/// The bits of the logits after `prompt`, of which the first `done` tokens are there.
fn goes_on(columns: &mut Columns, id: ColumnId, prompt: &[u32], cut: Cut, beside: &[ColumnId]) -> Vec<u32> {
    let mut done = columns.position(id).unwrap();
    while done < prompt.len() {
        // Others are processed between the chunks.
        let mut work: Vec<(ColumnId, u32)> = beside.iter().map(|id| (*id, done as u32 % 1000)).collect();
        if let Some(len) = cut.chunk_at(done) {
            columns.chunk(id, &prompt[done..done + len]).unwrap();
            done += len;
            if !work.is_empty() {
                columns.step(&work).unwrap();
            }
            continue;
        }
        let own = (prompt.len() - done).min(MOST_COLUMNS - work.len());
        work.extend(prompt[done..done + own].iter().map(|token| (id, *token)));
        columns.step(&work).unwrap();
        done += own;
        if done == prompt.len() {
            return bits(&columns.logits(work.len() - 1).unwrap());
        }
    }
    panic!("the last token is a column");
}

#[test]
fn a_prompt_is_the_same_whatever_runs_between_and_wherever_its_pages_are_from() {
    let cases = vec![("q6_k", CacheType::F16), ("q4_k_m", CacheType::Q8_0)];
    for (mix, kv) in sample("a prompt's pages", cases, 2) {
        let model = model(&format!("tiny-llama:{mix}"));
        let mut columns = columns(&model, ColumnsOptions::new(6, 4 * PAGE).with_pages(14).with_cache(kv));
        let prompt = text(2, 2 * PAGE + 70);
        let cut = columns.cut(prompt.len()).unwrap();
        assert_eq!((cut.in_pages(), cut.in_chunks()), (2 * PAGE, 2 * PAGE + 69));
        let id = columns.admit().unwrap();
        let wanted = goes_on(&mut columns, id, &prompt, cut, &[]);
        columns.release(id).unwrap();
        let id = columns.admit().unwrap();
        let (column, _) = columns.prefill(id, &prompt).unwrap();
        assert_eq!(bits(&columns.logits(column).unwrap()), wanted, "{mix}: prefill");
        columns.release(id).unwrap();

        // Beside others that are being written, and longer prompts.
        let others: Vec<ColumnId> = (0..3).map(|_| columns.admit().unwrap()).collect();
        columns.prefill(others[1], &text(9, PAGE + 40)).unwrap();
        let id = columns.admit().unwrap();
        assert_eq!(goes_on(&mut columns, id, &prompt, cut, &others), wanted, "{mix}: beside others");
        columns.release(id).unwrap();
        others.into_iter().for_each(|id| columns.release(id).unwrap());

        // With pages of a longer prompt and of a shorter one that begin alike.
        for (len, common, reused) in [
            (3 * PAGE + 20, 2 * PAGE + 60, 2 * PAGE),
            (2 * PAGE + 3, 2 * PAGE + 2, 2 * PAGE),
            (3 * PAGE, PAGE + 7, PAGE),
        ] {
            let other = [&prompt[..common], &text(7, len - common)].concat();
            let from = columns.admit().unwrap();
            columns.prefill(from, &other).unwrap();
            let others = columns.cut(len).unwrap();
            let alike = (0..common).take_while(|at| cut.writer(*at) == others.writer(*at)).count();
            assert_eq!(cut.boundary(alike), reused, "{len}");
            let id = columns.fork(from, reused).unwrap();
            assert_eq!(
                goes_on(&mut columns, id, &prompt, cut, &[from]),
                wanted,
                "{mix}: after {reused} of {len}"
            );
            columns.release(id).unwrap();
            columns.release(from).unwrap();
        }
        assert_eq!((columns.free_pages(), columns.sequences()), (14, 0));
    }
}

/// The way in which requests run on a scheduler.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// All at a time.
    Together,
    /// All at a time, with a prefix cache.
    Sharing,
    /// One after the other, with a prefix cache.
    InTurn,
}

/// Runs requests on a scheduler; the texts in their order, and the tokens that each took from others.
fn run(model: &Model, requests: &[Request], pages: usize, way: Way) -> Vec<(Vec<u32>, usize)> {
    let options = ColumnsOptions::new(6, 3 * PAGE).with_pages(pages);
    let scheduler = Scheduler::new(columns(model, options), 16);
    let mut scheduler = match way {
        Way::Together => scheduler,
        Way::Sharing | Way::InTurn => scheduler.with_prefix_cache(),
    };
    let mut found: HashMap<RequestId, (Vec<u32>, usize)> = HashMap::new();
    let mut finish = |scheduler: &mut Scheduler<Columns>| {
        while scheduler.load().waiting + scheduler.load().running > 0 {
            for (id, event) in scheduler.step().unwrap() {
                let found = found.entry(id).or_default();
                match event {
                    Event::Admitted { reused } => found.1 = reused,
                    Event::Reused { tokens } => found.1 += tokens,
                    Event::Logprobs(_) | Event::Known(_) | Event::State(_) => panic!("nobody asks for them"),
                    Event::Token(token) => found.0.push(token),
                    Event::Finished(finish) => assert_eq!(finish, Finish::Count),
                }
            }
        }
    };
    let mut ids = vec![];
    for request in requests {
        ids.push(scheduler.submit(request.clone()).unwrap());
        if matches!(way, Way::InTurn) {
            finish(&mut scheduler);
        }
    }
    finish(&mut scheduler);
    scheduler.forget();
    assert_eq!((scheduler.sequences().free_pages(), scheduler.sequences().sequences()), (pages, 0));
    ids.iter().map(|id| found[id].clone()).collect()
}

#[test]
fn requests_get_the_texts_that_they_get_alone() {
    let model = model("tiny-llama:q6_k");
    let request = |seed: u32| Request {
        // All begin alike.
        prompt: [&text(1, PAGE + 30)[..], &text(seed, 60 * seed as usize)].concat(),
        sampler: Sampler::new(match seed % 2 {
            0 => SamplerOptions::GREEDY,
            _ => SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.0, seed: seed.into() },
        }),
        most: 4 + seed as usize,
        ends: vec![],
        reuse: true,
        reading: Reading::Nothing,
    };
    let requests: Vec<Request> = (0..5).map(request).collect();
    let alone: Vec<Vec<u32>> = requests
        .iter()
        .map(|request| run(&model, std::slice::from_ref(request), 12, Way::Together).remove(0).0)
        .collect();
    // With pages for all, and for two or three at a time.
    let ways = vec![
        (12, Way::Together),
        (6, Way::Together),
        (4, Way::Sharing),
        (12, Way::Sharing),
        (12, Way::InTurn),
    ];
    for (pages, way) in sample("requests", ways, 3) {
        let (texts, reused): (Vec<Vec<u32>>, Vec<usize>) =
            run(&model, &requests, pages, way).into_iter().unzip();
        assert_eq!(texts, alone, "{pages} pages, {way:?}");
        if let (12, Way::Sharing | Way::InTurn) = (pages, way) {
            assert_eq!(
                reused,
                [0, PAGE, PAGE, PAGE, PAGE],
                "{way:?}: the first one's page, as soon as it is there"
            );
        }
    }
}

/// A request that is alone: its text, the bits of the logits of each of its tokens, and how many tokens it
/// took from others.
fn watched(scheduler: &mut Scheduler<Columns>, prompt: &[u32]) -> (Vec<u32>, Vec<Vec<u32>>, usize) {
    let warm = SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.0, seed: 7 };
    let (prompt, sampler) = (prompt.to_vec(), Sampler::new(warm));
    scheduler
        .submit(Request { prompt, sampler, most: 5, ends: vec![], reuse: true, reading: Reading::Nothing })
        .unwrap();
    let (mut text, mut logits, mut taken) = (vec![], vec![], 0);
    while scheduler.load().running + scheduler.load().waiting > 0 {
        for (_, event) in scheduler.step().unwrap() {
            match event {
                Event::Admitted { reused: tokens } | Event::Reused { tokens } => taken += tokens,
                Event::Logprobs(_) | Event::Known(_) | Event::State(_) => panic!("nobody asks for them"),
                Event::Token(token) => {
                    text.push(token);
                    let column = scheduler.last_step() - 1;
                    logits.push(bits(&scheduler.sequences().logits(column).unwrap()));
                }
                Event::Finished(finish) => assert_eq!(finish, Finish::Count),
            }
        }
    }
    (text, logits, taken)
}

/// With and without the prefix cache, for prompts that begin like others and for those that go on with a
/// text: the same logits in every bit.
#[test]
fn the_prefix_cache_changes_no_bit() {
    let cases = vec![("q6_k", CacheType::F16), ("q4_k_m", CacheType::Q8_0)];
    for (mix, kv) in sample("prefix cache", cases, 2) {
        let model = model(&format!("tiny-llama:{mix}"));
        let options = ColumnsOptions::new(1, 3 * PAGE).with_pages(30).with_cache(kv);
        let mut plain = Scheduler::new(columns(&model, options), 1);
        let mut caching = Scheduler::new(columns(&model, options), 1).with_prefix_cache();
        let mut check = |prompt: &[u32], wanted: usize| -> Vec<u32> {
            let (text, logits, taken) = watched(&mut caching, prompt);
            let without = watched(&mut plain, prompt);
            assert_eq!((text.clone(), logits, 0), without, "{mix}: {} tokens, {taken} taken", prompt.len());
            assert_eq!(taken, wanted, "{mix}: of {} tokens", prompt.len());
            text
        };
        let base = text(1, 600);
        check(&base, 0);
        // Whole pages, whatever else is common.
        let others = vec![
            (2, 300, 255, 0),
            (3, 300, 256, PAGE),
            (4, 520, 257, PAGE),
            (5, 520, 512, 2 * PAGE),
            (6, 600, 512, 2 * PAGE),
            (7, 600, 257, PAGE),
        ];
        for (seed, len, common, taken) in sample("prompts that begin alike", others, 6) {
            check(&[&base[..common], &text(seed, len - common)].concat(), taken);
        }
        // Prompts that are divided alike share the chunk after the pages if all of it is common.
        check(&[&base[..599], &[3]].concat(), 599);
        check(&[&base[..598], &[3, 4]].concat(), 2 * PAGE);
        // A conversation: what was written by the batch engine becomes a part of a chunk, and then of a whole
        // page.
        let mut talk = text(9, 300);
        for (more, taken) in [(0, 0), (60, PAGE), (200, PAGE), (20, 2 * PAGE)] {
            talk.extend(text(10 + more, more as usize));
            let answer = check(&talk, taken);
            talk.extend(answer);
        }
        // Without chunks all that was processed is shared; the last token of a text was not.
        let short = text(20, 20);
        let answer = check(&short, 0);
        check(&[&short[..], &answer, &[1, 2, 3]].concat(), 24);
    }
}

/// A chunk in slices, with steps and another chunk of other sequences between them, has the bits of a whole one.
#[test]
fn a_chunk_in_slices_has_the_same_bits() {
    for (name, kv) in [("tiny-llama", CacheType::F16), ("tiny-olmoe", CacheType::Q8_0)] {
        let model = model(&format!("{name}:q6_k"));
        let mut columns = columns(&model, ColumnsOptions::new(3, 2 * PAGE).with_cache(kv));
        let prompt = text(1, 70);
        let whole = columns.admit().unwrap();
        columns.chunk(whole, &prompt).unwrap();
        columns.step(&[(whole, 9)]).unwrap();
        let expected = columns.logits(0).unwrap();
        columns.release(whole).unwrap();

        let [own, beside, other] = [(); 3].map(|()| columns.admit().unwrap());
        let mut calls = 1;
        while !columns.chunk_for(own, &prompt, Duration::ZERO).unwrap() {
            assert_eq!(columns.position(own).unwrap(), 0);
            columns.step(&[(beside, calls)]).unwrap();
            calls += 1;
        }
        assert!(calls as usize >= model.config.layers, "{calls} slices of {name}");
        columns.step(&[(own, 9)]).unwrap();
        assert_eq!(columns.logits(0).unwrap(), expected, "{name}");

        // The rest in one piece.
        columns.truncate(own, 0).unwrap();
        assert!(!columns.chunk_for(own, &prompt, Duration::ZERO).unwrap());
        columns.step(&[(beside, 7)]).unwrap();
        columns.chunk(own, &prompt).unwrap();
        columns.step(&[(own, 9)]).unwrap();
        assert_eq!(columns.logits(0).unwrap(), expected, "{name}, the rest of it");

        // What was begun is given up: another chunk, and a truncation.
        columns.truncate(own, 0).unwrap();
        assert!(!columns.chunk_for(own, &prompt, Duration::ZERO).unwrap());
        columns.chunk(other, &text(2, 40)).unwrap();
        assert!(!columns.chunk_for(own, &prompt, Duration::ZERO).unwrap());
        columns.truncate(own, 0).unwrap();
        columns.step(&[(own, 3)]).unwrap();
        columns.truncate(own, 0).unwrap();
        assert!(columns.chunk_for(own, &prompt, Duration::from_secs(60)).unwrap());
        columns.step(&[(own, 9)]).unwrap();
        assert_eq!(columns.logits(0).unwrap(), expected, "{name}, begun again");
    }
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let model = model("tiny-llama:q8_0");
    let mut columns = columns(&model, ColumnsOptions::new(2, 2 * PAGE).with_pages(2));
    let (a, b) = (columns.admit().unwrap(), columns.admit().unwrap());
    columns.step(&[(b, 3)]).unwrap();
    assert!(matches!(columns.chunk(a, &[]), Err(Error::StepSize { asked: 0, .. })));
    assert!(matches!(columns.chunk(a, &vec![1; PAGE + 1]), Err(Error::StepSize { most: PAGE, .. })));
    assert!(matches!(columns.chunk(a, &[5, 4096]), Err(Error::Token { token: 4096, .. })));
    assert!(matches!(columns.prefill(a, &vec![1; PAGE + 1]), Err(Error::OutOfPages { needed: 2, free: 1 })));
    assert_eq!((columns.position(a).unwrap(), columns.free_pages()), (0, 1));
    columns.chunk(b, &[1; 40]).unwrap();
    assert_eq!(columns.position(b).unwrap(), 41);
    assert!(matches!(columns.logits(0), Err(Error::StepSize { .. })), "a chunk has no logits");
    assert!(matches!(columns.chunk_for(a, &[], Duration::ZERO), Err(Error::StepSize { asked: 0, .. })));
    columns.release(a).unwrap();
    assert!(matches!(columns.chunk(a, &[1]), Err(Error::Released)));
    assert!(matches!(columns.chunk_for(a, &[1], Duration::ZERO), Err(Error::Released)));
}

/// Weights that f16 may not hold the activations of are no reason for other texts than without chunks.
#[test]
fn prompts_out_of_range_are_columns() {
    let wide = Craft::new("tiny-llama:f16").value("blk.0.ffn_up.weight", 5, f32::INFINITY).model().unwrap();
    let mut columns = columns(&wide, ColumnsOptions::new(1, 2 * PAGE));
    assert_eq!(columns.cut(2 * PAGE).unwrap(), Cut::NONE);
    let id = columns.admit().unwrap();
    columns.chunk(id, &text(1, 50)).unwrap();
    assert_eq!(columns.position(id).unwrap(), 50);
}
