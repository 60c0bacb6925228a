//! The loop from a prompt to a text.

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use tracing::trace_span;

use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::sampler::Sampler;
use crate::spans::HOST;
use crate::tokenizer::Tokenizer;

/// The reason a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The model chose a token that ends text, or the text is complete by its constraint.
    End,
    /// The requested number of tokens is reached.
    Count,
    /// The context has no room for another token.
    Context,
    /// The caller of [`extend`] wants no more.
    Caller,
}

/// The generated tokens, and how long they took.
#[derive(Clone, Debug)]
pub struct Generation {
    /// The tokens, without the one that ends the text.
    pub tokens: Vec<u32>,
    /// The reason the text ended.
    pub stop: Stop,
    /// Time of the prompt.
    pub prefill: Duration,
    /// Time of all tokens after the first.
    pub decode: Duration,
}

impl Generation {
    /// Tokens per second after the prompt; `None` for fewer than two tokens.
    pub fn tokens_per_second(&self) -> Option<f64> {
        let steps = self.tokens.len().checked_sub(1).filter(|&n| n > 0)?;
        Some(steps as f64 / self.decode.as_secs_f64())
    }
}

/// Continues `prompt` by at most `count` tokens, and calls `emit` with each complete piece of text.
///
/// # Errors
/// [`Error::EmptyPrompt`], [`Error::ContextFull`] if the prompt alone does not fit, [`Error::Output`] if
/// `emit` fails, [`Error::Constraint`] if the sampler's [gives up](Sampler::gave_up), or what the decoder
/// reports, also of the whole context at the end ([`Decoder::check`]).
pub fn generate(
    decoder: &mut dyn Decoder,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    count: usize,
    emit: &mut dyn FnMut(&str) -> io::Result<()>,
) -> Result<Generation> {
    sampler.begin(prompt);
    extend(decoder, tokenizer, sampler, prompt, count, &mut |text| emit(text).map(ControlFlow::Continue))
}

/// As [`generate()`], for a sampler that has begun its text ([`Sampler::begin`]) and a prompt of which the
/// decoder may have the first tokens in its context: `prompt` is the rest. `emit` gets the text of each token,
/// which is empty where a character is not complete, and what is left of an incomplete character at the end; if it breaks, the text ends there.
///
/// # Errors
/// As [`generate()`].
pub fn extend(
    decoder: &mut dyn Decoder,
    tokenizer: &Tokenizer,
    sampler: &mut Sampler,
    prompt: &[u32],
    count: usize,
    emit: &mut dyn FnMut(&str) -> io::Result<ControlFlow<()>>,
) -> Result<Generation> {
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt);
    }
    let (position, context) = (decoder.position() + prompt.len(), decoder.context());
    if position > context {
        return Err(Error::ContextFull { position, context });
    }
    let output = |source| Error::Output { source };
    let begin = Instant::now();
    let logits = decoder.prefill(prompt)?;
    let prefill = begin.elapsed();

    let begin = Instant::now();
    let mut stream = tokenizer.stream();
    let mut tokens = Vec::new();
    let mut next = trace_span!(target: HOST, "sample").in_scope(|| sampler.sample(&logits));
    let stop = loop {
        if tokens.len() == count {
            break Stop::Count;
        }
        if sampler.gave_up() {
            return Err(Error::Constraint);
        }
        if tokenizer.is_end(next) {
            break Stop::End;
        }
        tokens.push(next);
        let text = trace_span!(target: HOST, "detokenize").in_scope(|| stream.push(next));
        let flow = trace_span!(target: HOST, "print").in_scope(|| emit(&text)).map_err(output)?;
        if flow.is_break() {
            break Stop::Caller;
        }
        if sampler.is_complete() {
            break Stop::End;
        }
        if tokens.len() == count {
            break Stop::Count;
        }
        if decoder.position() == context {
            break Stop::Context;
        }
        let _token = trace_span!(target: HOST, "token", position = decoder.position()).entered();
        next = decoder.step_sampled(next, sampler)?;
    };
    let decode = begin.elapsed();
    let rest = stream.finish();
    if stop != Stop::Caller && !rest.is_empty() {
        // There is nothing that it could end.
        let _: ControlFlow<()> = emit(&rest).map_err(output)?;
    }
    decoder.check()?;
    Ok(Generation { tokens, stop, prefill, decode })
}
