//! The probabilities of tokens in answers.

use ga10b_llm::Tokenizer;
use serde_json::{Map, Value, json};

use crate::serve::job::Weighed;
use crate::serve::openai::answer::Kind;

/// The field `logprobs` of a choice: of `tokens`, which begin at the character `offset` of the text and move it.
pub fn document(kind: Kind, tokenizer: &Tokenizer, tokens: &[Weighed], offset: &mut usize) -> Value {
    if tokens.is_empty() {
        return Value::Null;
    }
    match kind {
        Kind::Chat => {
            // The token that ends a message is no part of it; of a completion clients expect it.
            let content = tokens.iter().filter(|token| !tokenizer.is_end(token.token));
            let content: Vec<Value> = content.map(|token| of_chat(tokenizer, token)).collect();
            json!({"content": content, "refusal": null})
        }
        Kind::Completion => of_completion(tokenizer, tokens, offset),
    }
}

fn of_chat(tokenizer: &Tokenizer, Weighed { token, logprobs, .. }: &Weighed) -> Value {
    let one = |token: u32, logprob: f32| json!({"token": tokenizer.name(token), "logprob": logprob, "bytes": tokenizer.bytes(token)});
    let all = logprobs.iter().flat_map(|logprobs| &logprobs.top);
    let top: Vec<Value> = all.map(|(token, logprob)| one(*token, *logprob)).collect();
    let chosen = logprobs.as_ref().map_or(f32::NEG_INFINITY, |logprobs| logprobs.chosen);
    let mut document = one(*token, chosen);
    document["top_logprobs"] = top.into();
    document
}

fn of_completion(tokenizer: &Tokenizer, tokens: &[Weighed], offset: &mut usize) -> Value {
    let mut offsets = Vec::new();
    for Weighed { characters, .. } in tokens {
        offsets.push(*offset);
        *offset += characters;
    }
    let top = |Weighed { token, logprobs, .. }: &Weighed| {
        let logprobs = logprobs.as_ref()?;
        // The chosen one is always among them.
        let all = logprobs.top.iter().copied().chain([(*token, logprobs.chosen)]);
        let all = all.map(|(token, logprob)| (tokenizer.name(token), logprob.into()));
        Some(all.collect::<Map<String, Value>>())
    };
    let chosen = |token: &Weighed| token.logprobs.as_ref().map(|logprobs| logprobs.chosen);
    json!({
        "tokens": tokens.iter().map(|token| tokenizer.name(token.token)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(chosen).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
