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
            let content: Vec<Value> = tokens.iter().map(|token| of_chat(tokenizer, token)).collect();
            json!({"content": content, "refusal": null})
        }
        Kind::Completion => of_completion(tokenizer, tokens, offset),
    }
}

fn of_chat(tokenizer: &Tokenizer, Weighed { token, logprobs }: &Weighed) -> Value {
    let one = |token: u32, logprob: f32| json!({"token": tokenizer.name(token), "logprob": logprob, "bytes": tokenizer.bytes(token)});
    let top: Vec<Value> = logprobs.top.iter().map(|(token, logprob)| one(*token, *logprob)).collect();
    let mut document = one(*token, logprobs.chosen);
    document["top_logprobs"] = top.into();
    document
}

fn of_completion(tokenizer: &Tokenizer, tokens: &[Weighed], offset: &mut usize) -> Value {
    let mut offsets = Vec::new();
    for Weighed { token, .. } in tokens {
        offsets.push(*offset);
        *offset += tokenizer.name(*token).chars().count();
    }
    let top = |Weighed { token, logprobs }: &Weighed| {
        // The chosen one is always among them.
        let all = logprobs.top.iter().copied().chain([(*token, logprobs.chosen)]);
        all.map(|(token, logprob)| (tokenizer.name(token), logprob.into())).collect::<Map<String, Value>>()
    };
    json!({
        "tokens": tokens.iter().map(|token| tokenizer.name(token.token)).collect::<Vec<_>>(),
        "token_logprobs": tokens.iter().map(|token| token.logprobs.chosen).collect::<Vec<_>>(),
        "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
        "text_offset": offsets,
    })
}
