//! The embedded model, which writes short stories.
//!
//! `tools/stories/` has the grammar of its training data and the trainer; `models/stories.json` is the report of the training.

use crate::error::Result;
use crate::gguf::Gguf;
use crate::model::Model;

/// The GGUF file: Q6_K, 4.2 million parameters.
pub const STORIES: &[u8] = include_bytes!("../models/stories.gguf");

/// A prompt from the training data.
pub const PROMPT: &str = "Once upon a time";

/// Loads the embedded model.
///
/// # Errors
/// None for the committed file.
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

    /// The trainer's report, with the text of its PyTorch model for the same prompt.
    const REPORT: &str = include_str!("../models/stories.json");

    #[test]
    fn the_reference_gives_the_text_of_the_trainers_model() {
        let report: serde_json::Value = serde_json::from_str(REPORT).expect("valid JSON");
        let model = model().expect("a whole model");
        let tokenizer = Tokenizer::from_gguf(&model.gguf).expect("a tokenizer");
        let expected: Vec<u32> = serde_json::from_value(report["greedy_tokens"].clone()).expect("a list");
        let prompt = tokenizer.encode(PROMPT).expect("encodes");
        assert_eq!(expected[..prompt.len()], prompt);
        // The whole story takes long on the CPU.
        let count = 24;
        let mut reference = Reference::new(&model, 64).expect("types are supported");
        let mut text = String::new();
        let made = generate(
            &mut reference,
            &tokenizer,
            &mut Sampler::new(SamplerOptions::GREEDY),
            &prompt,
            count,
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
        let made =
            generate(&mut reference, &tokenizer, &mut Sampler::new(options), &prompt, 100, &mut |_| Ok(()));
        let made = made.expect("generates");
        // The last token takes no position: nothing follows it.
        assert_eq!((made.stop, made.tokens.len()), (Stop::Context, 8 - prompt.len() + 1));
    }
}
