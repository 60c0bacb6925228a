//! The embedded model, which writes short stories.
//!
//! `tools/stories/` has the grammar of its training data and the trainer; `models/stories.json` is the report
//! of the training.

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
    use crate::generate::{Generation, Stop, generate};
    use crate::reference::Reference;
    use crate::sampler::{Sampler, SamplerOptions};
    use crate::tokenizer::Tokenizer;

    /// The trainer's report, with the text of its PyTorch model for the same prompt.
    const REPORT: &str = include_str!("../models/stories.json");

    /// Continues [`PROMPT`] by up to `count` tokens in a context of `context`. Also returns the tokens of the
    /// prompt.
    fn story(context: usize, options: SamplerOptions, count: usize) -> (Vec<u32>, Generation, String) {
        let model = model().expect("a whole model");
        let tokenizer = Tokenizer::from_gguf(&model.gguf).expect("a tokenizer");
        let prompt = tokenizer.encode(PROMPT).expect("encodes");
        let mut reference = Reference::new(&model, context).expect("types are supported");
        let (mut sampler, mut text) = (Sampler::new(options), String::new());
        let made = generate(&mut reference, &tokenizer, &mut sampler, &prompt, count, &mut |piece| {
            text.push_str(piece);
            Ok(())
        });
        (prompt, made.expect("generates"), text)
    }

    #[test]
    fn the_reference_gives_the_text_of_the_trainers_model() {
        let report: serde_json::Value = serde_json::from_str(REPORT).expect("valid JSON");
        let expected: Vec<u32> = serde_json::from_value(report["greedy_tokens"].clone()).expect("a list");
        // The whole story takes long on the CPU.
        let count = 24;
        let (prompt, made, text) = story(64, SamplerOptions::GREEDY, count);
        assert_eq!(expected[..prompt.len()], prompt);
        assert_eq!(made.tokens, expected[prompt.len()..][..count]);
        assert_eq!(made.stop, Stop::Count);
        let whole = report["greedy"].as_str().expect("a string");
        assert!(whole.starts_with(&format!("{PROMPT}{text}")), "{text}");
    }

    #[test]
    fn generating_stops_where_the_context_ends() {
        let options = SamplerOptions { temperature: 1.0, seed: 1, ..SamplerOptions::GREEDY };
        let (prompt, made, _) = story(8, options, 100);
        // The last token takes no position: nothing follows it.
        assert_eq!((made.stop, made.tokens.len()), (Stop::Context, 8 - prompt.len() + 1));
    }
}
