//! The scheduler on the batch engine: prompts that begin like others get the texts that they get alone.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use std::collections::HashMap;

use ga10b_llm::engine::PAGE;
use ga10b_llm::schedule::{Event, Finish, Reading, Request, RequestId, Scheduler};
use ga10b_llm::speculate::{DraftModel, SpeculatorOptions};
use ga10b_llm::synthesize::SHAPES;
use ga10b_llm::{CacheType, Columns, ColumnsOptions, Sampler, SamplerOptions};

use crate::craft::Craft;
use crate::open::device;

/// The events of a request that is alone: its text, and how many tokens it reused.
fn alone(scheduler: &mut Scheduler<Columns>, prompt: &[u32], seed: u64, reuse: bool) -> (Vec<u32>, usize) {
    let warm = SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.0, seed };
    let (prompt, sampler) = (prompt.to_vec(), Sampler::new(warm));
    scheduler
        .submit(Request { prompt, sampler, most: 6, ends: vec![], reuse, reading: Reading::Nothing })
        .unwrap();
    let (mut text, mut found) = (vec![], 0);
    while scheduler.load().running + scheduler.load().waiting > 0 {
        for (_, event) in scheduler.step().unwrap() {
            match event {
                Event::Admitted { reused: tokens } | Event::Reused { tokens } => found += tokens,
                Event::Logprobs(_) | Event::Known(_) | Event::State(_) => panic!("nobody asks for them"),
                Event::Token(token) => text.push(token),
                Event::Finished(finish) => assert_eq!(finish, Finish::Count),
            }
        }
    }
    (text, found)
}

#[test]
fn a_prompt_that_begins_like_another_gets_the_same_text() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let columns = Columns::new(&device(), &model, &ColumnsOptions::new(2, 2 * PAGE)).unwrap();
    let mut scheduler = Scheduler::new(columns, 4).with_prefix_cache();
    let mut run = |prompt: &[u32], reuse: bool| alone(&mut scheduler, prompt, 3, reuse);
    let first: Vec<u32> = (0..40).map(|i| (i * 31) % 1024).collect();
    let (answer, reused) = run(&first, true);
    assert_eq!(reused, 0);
    let second = [&first[..], &answer, &[9, 8, 7]].concat();
    let (text, reused) = run(&second, false);
    assert_eq!(reused, 0);
    // All but the last token of the prompt.
    assert_eq!(run(&second, true), (text.clone(), second.len() - 1));
    // What both have in common, with a page that is not full.
    let third = [&second[..20], &[1, 2, 3]].concat();
    assert_eq!(run(&third, true), (run(&third, false).0, 20));
    assert_eq!(run(&second, true).0, text, "the first one's pages have changed");
}

/// Whole pages, with what follows them, and one position less or more.
#[test]
fn pages_that_are_shared_change_no_bit() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    for kv in ga10b_oracles::sample("shared pages", CacheType::ALL.to_vec(), 2) {
        let options = ColumnsOptions::new(2, 3 * PAGE).with_cache(kv);
        let mut plain = Scheduler::new(Columns::new(&device(), &model, &options).unwrap(), 4);
        let columns = Columns::new(&device(), &model, &options).unwrap();
        let mut caching = Scheduler::new(columns, 4).with_prefix_cache();
        let base: Vec<u32> = (0..2 * PAGE as u32).map(|i| (i * 37 + i / 7) % 1024).collect();
        alone(&mut caching, &base[..PAGE + 20], 1, true);
        for (seed, common) in [(1, PAGE - 1), (2, PAGE), (3, PAGE + 1), (4, PAGE + 20)] {
            let prompt = [&base[..common], &[5, 6, 7]].concat();
            let (text, reused) = alone(&mut caching, &prompt, seed, true);
            // A page is not copied for a token.
            assert_eq!(reused, if common == PAGE + 1 { PAGE } else { common }, "{common} of {kv:?}");
            assert_eq!(alone(&mut plain, &prompt, seed, true), (text, 0), "{common} of {kv:?}");
        }
        let pages = options.pages - caching.sequences().free_pages();
        assert_eq!(pages, caching.load().cached_pages);
        caching.forget();
        assert_eq!(caching.sequences().free_pages(), options.pages);
    }
}

#[test]
fn every_architecture_shares_beginnings_and_takes_drafts() {
    let tiny = SHAPES.iter().copied().filter(|shape| shape.starts_with("tiny-")).collect();
    for shape in ga10b_oracles::sample("architectures that are served", tiny, 3) {
        let model = Craft::new(&format!("{shape}:q8_0")).model().unwrap();
        let options = ColumnsOptions::new(2, 96).with_chunks();
        let build = || Columns::new(&device(), &model, &options).unwrap();
        // The first 41 tokens are a chunk.
        let prompt = |own: u32| -> Vec<u32> { (0..41).map(|i| i * 23 % 1000).chain([own]).collect() };
        let mut plain = Scheduler::new(build(), 4);
        let wanted = [1, 2].map(|own| alone(&mut plain, &prompt(own), 3, false).0);
        let draft = Box::new(DraftModel::new(build()));
        let options = SpeculatorOptions::new(3).fixed();
        let mut shared = Scheduler::new(build(), 4).with_prefix_cache().with_draft(draft, options);
        let found = [1, 2].map(|own| alone(&mut shared, &prompt(own), 3, true));
        let [first, second] = wanted;
        assert_eq!(found, [(first, 0), (second, 41)], "{shape}");
        assert!(shared.load().proposed > 0, "{shape}");
    }
}

/// Prompts that arrive together, with pages for all and for two of them, get the texts that they get alone.
#[test]
fn prompts_that_arrive_together_share_their_beginning() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let prompts: Vec<Vec<u32>> =
        (0..4).map(|own| (0..PAGE as u32 + 30).map(|i| i % 61).chain([own, 9, own]).collect()).collect();
    let options = ColumnsOptions::new(4, 2 * PAGE);
    let mut plain = Scheduler::new(Columns::new(&device(), &model, &options).unwrap(), 8);
    let texts: Vec<Vec<u32>> = prompts.iter().map(|prompt| alone(&mut plain, prompt, 3, false).0).collect();
    for pages in ga10b_oracles::sample("pages for prompts that begin alike", vec![8, 4, 2], 3) {
        let columns = Columns::new(&device(), &model, &options.with_pages(pages)).unwrap();
        let mut scheduler = Scheduler::new(columns, 8).with_prefix_cache();
        let warm = SamplerOptions { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.0, seed: 3 };
        let submit = |prompt: &Vec<u32>| {
            let (prompt, sampler) = (prompt.clone(), Sampler::new(warm));
            scheduler
                .submit(Request {
                    prompt,
                    sampler,
                    most: 6,
                    ends: vec![],
                    reuse: true,
                    reading: Reading::Nothing,
                })
                .unwrap()
        };
        let ids: Vec<RequestId> = prompts.iter().map(submit).collect();
        let (mut found, mut reused): (HashMap<RequestId, Vec<u32>>, usize) = Default::default();
        while scheduler.load().waiting + scheduler.load().running > 0 {
            for (id, event) in scheduler.step().unwrap() {
                match event {
                    Event::Admitted { reused: tokens } | Event::Reused { tokens } => reused += tokens,
                    Event::Logprobs(_) | Event::Known(_) | Event::State(_) => panic!("nobody asks for them"),
                    Event::Token(token) => found.entry(id).or_default().push(token),
                    Event::Finished(finish) => assert_eq!(finish, Finish::Count),
                }
            }
        }
        for (id, text) in ids.iter().zip(&texts) {
            assert_eq!(&found[id], text, "{pages} pages");
        }
        assert!(reused >= 2 * PAGE, "{reused} tokens with {pages} pages");
        scheduler.forget();
        assert_eq!((scheduler.sequences().free_pages(), scheduler.sequences().sequences()), (pages, 0));
    }
}
