//! Steps of several sequences: against the reference, bit by bit against each other, and misused.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::engine::{MOST_COLUMNS, PAGE};
use ga10b_llm::synthesize::MIXES;
use ga10b_llm::{CacheType, ColumnId, Columns, ColumnsOptions, Decoder, Error, Model, Reference, Sequences};
use ga10b_oracles::sample;

use crate::craft::Craft;
use crate::open::device;

fn model(name: &str) -> Model {
    Craft::new(name).model().unwrap()
}

fn columns(model: &Model, options: &ColumnsOptions) -> Columns {
    Columns::new(&device(), model, options).unwrap()
}

/// A text of a vocabulary of 1024.
fn text(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + seed * 101 + 11) % 1024).collect()
}

fn bits(logits: &[f32]) -> Vec<u32> {
    logits.iter().map(|l| l.to_bits()).collect()
}

#[test]
fn logits_are_those_of_the_reference() {
    for kv in CacheType::ALL {
        for mix in sample(format_args!("columns, {kv:?}"), MIXES.to_vec(), 6) {
            let model = model(&format!("tiny-llama:{mix}"));
            let mut columns = columns(&model, &ColumnsOptions::new(2, 64).with_cache(kv));
            let ids = [columns.admit().unwrap(), columns.admit().unwrap()];
            let mut references = [0, 1].map(|_| Reference::with_cache(&model, 64, kv).unwrap());
            let mut comparison = Comparison::new();
            for (i, (id, reference)) in ids.iter().zip(&mut references).enumerate() {
                let prompt = text(i as u32, 5 + 34 * i);
                let (column, _) = columns.prefill(*id, &prompt).unwrap();
                comparison.add(&reference.prefill(&prompt).unwrap(), &columns.logits(column).unwrap());
            }
            for step in 0..3 {
                let work = [(ids[0], 5 + step), (ids[1], 700 + step)];
                columns.step(&work).unwrap();
                for (i, reference) in references.iter_mut().enumerate() {
                    comparison.add(&reference.step(work[i].1).unwrap(), &columns.logits(i).unwrap());
                }
            }
            let nmse = comparison.nmse();
            assert!(nmse < Bounds::of_cache(kv).nmse, "{mix}, {kv:?}: NMSE {nmse:e}");
        }
    }
}

/// The logits after each token of `text`, one token at a time.
fn alone(columns: &mut Columns, text: &[u32]) -> Vec<Vec<u32>> {
    let id = columns.admit().unwrap();
    let step = |token: &u32| {
        columns.step(&[(id, *token)]).unwrap();
        bits(&columns.logits(0).unwrap())
    };
    let all = text.iter().map(step).collect();
    columns.release(id).unwrap();
    all
}

#[test]
fn a_text_is_the_same_whatever_runs_beside_it() {
    let cases = vec![
        ("tiny-llama:q6_k", CacheType::F16),
        ("tiny-llama:q4_k_m", CacheType::Q8_0),
        ("tiny-olmoe:q4_k_m", CacheType::F16),
        ("tiny-gpt2:q8_0", CacheType::F16),
        ("tiny-gemma2:f16", CacheType::Q8_0),
    ];
    for (mix, kv) in sample("columns beside others", cases, 3) {
        let model = model(mix);
        // Learned positions are 256.
        let mut columns = columns(&model, &ColumnsOptions::new(24, PAGE).with_cache(kv));
        let own = text(3, 12);
        let wanted = alone(&mut columns, &own);
        let others: Vec<ColumnId> = (0..20).map(|_| columns.admit().unwrap()).collect();
        // One token at a time, beside few and many others, in any place among them.
        for count in [1usize, 9, 20] {
            let id = columns.admit().unwrap();
            for (at, token) in own.iter().enumerate() {
                let mut work: Vec<(ColumnId, u32)> = others[..count]
                    .iter()
                    .zip(text(at as u32, count))
                    .map(|(id, token)| (*id, token))
                    .collect();
                let place = at * 5 % (count + 1);
                work.insert(place, (id, *token));
                columns.step(&work).unwrap();
                assert_eq!(
                    bits(&columns.logits(place).unwrap()),
                    wanted[at],
                    "{mix} beside {count}: token {at}"
                );
            }
            columns.release(id).unwrap();
        }
        // All at once, and in two parts.
        let id = columns.admit().unwrap();
        columns.fill(&own[..7].iter().map(|token| (id, *token)).collect::<Vec<_>>()).unwrap();
        let mut work: Vec<(ColumnId, u32)> = own[7..].iter().map(|token| (id, *token)).collect();
        work.insert(2, (others[3], 9));
        columns.step(&work).unwrap();
        assert_eq!(bits(&columns.logits(5).unwrap()), wanted[11], "{mix}, as a prompt");
        assert_eq!(bits(&columns.logits(1).unwrap()), wanted[8], "{mix}, within a prompt");
    }
}

#[test]
fn a_fork_shares_what_it_has_not_changed() {
    for kv in CacheType::ALL {
        let model = model("tiny-llama:q8_0");
        let options = ColumnsOptions::new(4, 2 * PAGE).with_pages(4).with_cache(kv);
        let mut columns = columns(&model, &options);
        let text = text(1, PAGE + 20);
        let id = columns.admit().unwrap();
        columns.prefill(id, &text).unwrap();
        assert_eq!(columns.free_pages(), 2);
        let fork = columns.fork(id, PAGE + 10).unwrap();
        assert_eq!((columns.free_pages(), columns.position(fork).unwrap()), (2, PAGE + 10));
        // The fork takes another way; the first sequence does not see it.
        columns.step(&[(fork, 99)]).unwrap();
        assert_eq!(columns.free_pages(), 1);
        columns.step(&[(id, 500)]).unwrap();
        let first = bits(&columns.logits(0).unwrap());
        // And the fork continues as the first if it takes the same way.
        columns.truncate(fork, PAGE + 10).unwrap();
        let work: Vec<(ColumnId, u32)> = text[PAGE + 10..].iter().chain([&500]).map(|t| (fork, *t)).collect();
        columns.step(&work).unwrap();
        assert_eq!(bits(&columns.logits(10).unwrap()), first, "{kv:?}");
        columns.release(id).unwrap();
        columns.release(fork).unwrap();
        assert_eq!(columns.free_pages(), 4);
    }
}

#[test]
fn misuse_is_an_error_and_changes_nothing() {
    let model = model("tiny-llama:q8_0");
    let mut columns = columns(&model, &ColumnsOptions::new(2, 2 * PAGE).with_pages(2));
    let (a, b) = (columns.admit().unwrap(), columns.admit().unwrap());
    assert!(matches!(columns.admit(), Err(Error::TooManySequences { most: 2 })));
    assert!(matches!(columns.fork(a, 3), Err(Error::TooManySequences { most: 2 })));
    assert!(matches!(columns.step(&[]), Err(Error::StepSize { asked: 0, .. })));
    let many = vec![(a, 1); MOST_COLUMNS + 1];
    assert!(matches!(columns.step(&many), Err(Error::StepSize { asked: 33, most: 32 })));
    assert!(matches!(columns.step(&[(a, 5), (b, 4096)]), Err(Error::Token { token: 4096, .. })));
    assert!(matches!(columns.prefill(a, &[]), Err(Error::EmptyPrompt)));
    assert_eq!((columns.position(a).unwrap(), columns.free_pages()), (0, 2));
    assert!(matches!(columns.logits(0), Err(Error::StepSize { .. })));

    columns.step(&[(b, 3)]).unwrap();
    assert!(matches!(columns.logits(1), Err(Error::StepSize { asked: 2, most: 1 })));
    let long = vec![1; PAGE + 1];
    assert!(matches!(columns.prefill(a, &long), Err(Error::OutOfPages { needed: 2, free: 1 })));
    let long = vec![1; 2 * PAGE];
    assert!(matches!(columns.prefill(b, &long), Err(Error::ContextFull { .. })));
    assert_eq!((columns.position(b).unwrap(), columns.free_pages()), (1, 1));

    columns.release(a).unwrap();
    assert!(matches!(columns.release(a), Err(Error::Released)));
    assert!(matches!(columns.step(&[(b, 1), (a, 1)]), Err(Error::Released)));
    let again = columns.admit().unwrap();
    assert!(matches!(columns.position(a), Err(Error::Released)));
    assert_eq!((columns.position(again).unwrap(), columns.sequences()), (0, 2));
}

#[test]
fn weights_that_are_no_numbers_are_an_error() {
    let model = Craft::new("tiny-llama:f16").value("blk.1.ffn_down.weight", 5, f32::NAN).model().unwrap();
    let mut columns = columns(&model, &ColumnsOptions::new(1, 16));
    let id = columns.admit().unwrap();
    let error = columns.prefill(id, &[7, 3]).unwrap_err();
    assert!(matches!(error, Error::NotFinite { position: 1, .. }), "{error}");
    assert_eq!(columns.position(id).unwrap(), 0);
    assert_eq!(columns.step(&[(id, 3)]).unwrap(), [None]);
}
