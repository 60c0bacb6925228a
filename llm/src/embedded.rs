//! The model that comes with the program: a small story teller.
//!
//! `tools/stories/` holds the grammar it was trained on and the trainer; `models/stories.json` the report of the training.

use crate::error::Result;
use crate::gguf::Gguf;
use crate::model::Model;

/// The GGUF file: Q6_K, 4.2 million parameters.
pub const STORIES: &[u8] = include_bytes!("../models/stories.gguf");

/// A prompt that the model was trained to continue.
pub const PROMPT: &str = "Once upon a time";

/// Loads the embedded model.
///
/// # Errors
/// None with the file as committed; what is wrong with it otherwise.
pub fn model() -> Result<Model> {
    Model::new(Gguf::from_bytes(STORIES)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Stop, generate};
    use crate::reference::Reference;
    use crate::sampler::{Sampler, SamplerOptions};
    use crate::tokenizer::Tokenizer;

    /// The trainer's own report: what its PyTorch model made of the same prompt.
    const REPORT: &str = include_str!("../models/stories.json");

    #[test]
    fn the_reference_tells_the_story_that_the_trainer_heard() {
        let report: serde_json::Value = serde_json::from_str(REPORT).expect("valid JSON");
        let model = model().expect("a whole model");
        let tokenizer = Tokenizer::from_gguf(&model.gguf).expect("a tokenizer");
        let expected: Vec<u32> = serde_json::from_value(report["greedy_tokens"].clone()).expect("a list");
        let prompt = tokenizer.encode(PROMPT).expect("encodes");
        assert_eq!(expected[..prompt.len()], prompt);
        // The whole story takes its time on the CPU; the first tokens tell as much.
        let count = 24;
        let mut reference = Reference::new(&model, 64).expect("types are supported");
        let mut text = String::new();
        let made = generate(
            &mut reference,
            &tokenizer,
            &mut Sampler::new(SamplerOptions::GREEDY),
            &prompt,
            count,
            64,
            &mut |piece| {
                text.push_str(piece);
                Ok(())
            },
        );
        let made = made.expect("generates");
        assert_eq!(made.tokens, expected[prompt.len()..][..count]);
        assert_eq!(made.stop, Stop::Count);
        let story = report["greedy"].as_str().expect("a string");
        assert!(story.starts_with(&format!("{PROMPT}{text}")), "{text}");
    }

    #[test]
    fn generating_stops_where_the_context_ends() {
        let model = model().expect("a whole model");
        let tokenizer = Tokenizer::from_gguf(&model.gguf).expect("a tokenizer");
        let prompt = tokenizer.encode(PROMPT).expect("encodes");
        let mut reference = Reference::new(&model, 8).expect("types are supported");
        let options = SamplerOptions { temperature: 1.0, seed: 1, ..SamplerOptions::GREEDY };
        let made = generate(
            &mut reference,
            &tokenizer,
            &mut Sampler::new(options),
            &prompt,
            100,
            8,
            &mut |_| Ok(()),
        );
        let made = made.expect("generates");
        // The last token needs no position of its own: nothing follows it.
        assert_eq!((made.stop, made.tokens.len()), (Stop::Context, 8 - prompt.len() + 1));
    }
}
