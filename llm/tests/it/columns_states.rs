//! Hidden states and probabilities of prompts: against the reference, and the same beside others.
//!
//! Runs on the device that `HCQ_DEVICE` names, else on the software one.

use ga10b_llm::compare::{Bounds, Comparison};
use ga10b_llm::gguf::Value;
use ga10b_llm::model::Pooling;
use ga10b_llm::sampler::Logprobs;
use ga10b_llm::schedule::{Event, Finish, Reading, Request};
use ga10b_llm::{
    CacheType, Columns, ColumnsOptions, Decoder, Error, Model, Reference, Sampler, SamplerOptions, Scheduler,
};

use crate::craft::Craft;
use crate::open::device;

/// A text of a vocabulary of 1024.
fn text(seed: u32, len: usize) -> Vec<u32> {
    (0..len as u32).map(|i| (i * 37 + seed * 101 + 11) % 1024).collect()
}

/// What is told of prompts that are processed together, and their texts.
fn told(model: &Model, prompts: &[(Vec<u32>, Reading, usize)]) -> Vec<Vec<Event>> {
    let options = ColumnsOptions::new(prompts.len(), 256).with_chunks();
    let columns = Columns::new(&device(), model, &options).unwrap();
    let mut scheduler = Scheduler::new(columns, prompts.len()).with_prefix_cache();
    let ids: Vec<_> = prompts
        .iter()
        .map(|(prompt, reading, most)| {
            let (prompt, sampler) = (prompt.clone(), Sampler::new(SamplerOptions::GREEDY));
            let request =
                Request { prompt, sampler, most: *most, ends: vec![], reuse: true, reading: *reading };
            scheduler.submit(request).unwrap()
        })
        .collect();
    let mut all = vec![vec![]; ids.len()];
    while scheduler.load().waiting + scheduler.load().running > 0 {
        for (id, event) in scheduler.step().unwrap() {
            let at = ids.iter().position(|other| *other == id).unwrap();
            if !matches!(event, Event::Admitted { .. } | Event::Reused { .. }) {
                all[at].push(event);
            }
        }
    }
    all
}

#[test]
fn states_are_those_of_the_reference() {
    // RMS norms, layer norms with biases, norms of results and a factor of the embedding.
    for name in ["tiny-llama:q6_k", "tiny-gpt2:q8_0", "tiny-gemma2:f16"] {
        let model = Craft::new(name).model().unwrap();
        let mut columns = Columns::new(&device(), &model, &ColumnsOptions::new(2, 64)).unwrap();
        let (own, other) = (columns.admit().unwrap(), columns.admit().unwrap());
        let mut reference = Reference::new(&model, 64).unwrap();
        let mut comparison = Comparison::new();
        let tokens = text(1, 12);
        let work: Vec<_> = tokens.iter().flat_map(|token| [(own, *token), (other, token / 2)]).collect();
        columns.fill_with_states(&work).unwrap();
        for (at, token) in tokens.iter().enumerate() {
            comparison.add(&reference.state(*token).unwrap(), &columns.state(2 * at).unwrap());
        }
        assert!(matches!(columns.logits(0), Err(Error::StepSize { asked: 1, most: 0 })));
        assert!(matches!(columns.state(24), Err(Error::StepSize { asked: 25, most: 24 })));
        // The same with logits, of which the state is the last operand.
        columns.step(&[(own, 5)]).unwrap();
        comparison.add(&reference.state(5).unwrap(), &columns.state(0).unwrap());
        columns.fill(&[(own, 5)]).unwrap();
        assert!(matches!(columns.state(0), Err(Error::StepSize { asked: 1, most: 0 })));
        let nmse = comparison.nmse();
        assert!(nmse < Bounds::of_cache(CacheType::F16).nmse, "{name}: NMSE {nmse:e}");
    }
}

#[test]
fn prompts_are_told_of_as_if_they_were_alone() {
    let model = Craft::new("tiny-llama:q6_k").model().unwrap();
    let prompts = [
        (text(1, 70), Reading::States, 0),
        (text(1, 70), Reading::LastState, 0),
        (text(1, 50), Reading::Logprobs(2), 3),
        (text(2, 40), Reading::Nothing, 5),
        (text(3, 1), Reading::Logprobs(1), 0),
    ];
    let together = told(&model, &prompts);
    for (prompt, events) in prompts.iter().zip(&together) {
        assert_eq!(&told(&model, std::slice::from_ref(prompt))[0], events);
    }
    let counts: Vec<usize> = together.iter().map(Vec::len).collect();
    assert_eq!(counts, [70 + 1, 1 + 1, 49 + 3 + 1, 5 + 1, 1]);
    assert!(together.iter().all(|events| events.last() == Some(&Event::Finished(Finish::Count))));

    let mut reference = Reference::new(&model, 64).unwrap();
    let tokens = text(1, 50);
    for (at, token) in tokens[..49].iter().enumerate() {
        let logits = reference.step(*token).unwrap();
        let (wanted, Event::Known(found)) = (Logprobs::of(tokens[at + 1], &logits, 2), &together[2][at])
        else {
            panic!("{:?}", together[2][at]);
        };
        assert!((wanted.chosen - found.chosen).abs() < 0.05, "{wanted:?} {found:?}");
    }
}

#[test]
fn a_file_names_the_pooling() {
    let with = |number| Craft::new("tiny-llama:f16").key("llama.pooling_type", Value::U32(number)).model();
    let pooling = |number| with(number).unwrap().pooling().unwrap();
    assert_eq!([0, 1, 3].map(pooling), [None, Some(Pooling::Mean), Some(Pooling::Last)]);
    assert!(with(2).unwrap_err().to_string().contains("pooling_type"));
}
