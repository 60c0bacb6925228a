//! Answers to messages, one after the other.

use std::io;
use std::ops::ControlFlow;

use crate::chat::template::{Message, Template};
use crate::decoder::Decoder;
use crate::error::{Error, Result};
use crate::generate::{Generation, extend};
use crate::sampler::Sampler;
use crate::tokenizer::Tokenizer;

/// Messages, and the tokens of them that a decoder has in its context.
///
/// A text begins like the one before, so only what is new is processed: the rest stays in the cache.
#[derive(Debug)]
pub struct Conversation<'a> {
    template: &'a Template,
    tokenizer: &'a Tokenizer,
    messages: Vec<Message>,
    /// The tokens in the decoder's context.
    held: Vec<u32>,
}

/// An answer, with its counts and times.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The text that was emitted.
    pub text: String,
    /// Tokens of the conversation before the answer.
    pub prompt: usize,
    /// Of these, the tokens that were in the context already.
    pub reused: usize,
    /// The oldest messages that were removed because the context has no room for them.
    pub forgotten: usize,
    /// The tokens of the answer; `None` if `emit` ended it.
    pub generation: Option<Generation>,
}

impl<'a> Conversation<'a> {
    /// A conversation without messages, for a decoder that is used for nothing else.
    pub fn new(template: &'a Template, tokenizer: &'a Tokenizer) -> Self {
        Self { template, tokenizer, messages: Vec::new(), held: Vec::new() }
    }

    /// A conversation that goes on with `messages`, for a decoder that has the tokens `held` in its context.
    pub fn resume(
        template: &'a Template,
        tokenizer: &'a Tokenizer,
        messages: Vec<Message>,
        held: Vec<u32>,
    ) -> Self {
        Self { template, tokenizer, messages, held }
    }

    /// The tokens that are known of the decoder's context: all, or the first ones if an answer was ended.
    pub fn held(&self) -> &[u32] {
        &self.held
    }

    /// The messages so far.
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Replaces all messages. Their common beginning with those before is not processed again.
    pub fn set_messages(&mut self, messages: Vec<Message>) {
        self.messages = messages;
    }

    /// Adds `message`, and the answer to all messages, of at most `count` tokens; `emit` gets its text as it is
    /// generated. If it returns [`io::ErrorKind::Interrupted`], the answer ends there.
    ///
    /// The oldest exchanges but a leading system message are forgotten when the context has no room for the
    /// conversation and `count` tokens, or a quarter of the context if that is less.
    ///
    /// # Errors
    /// The template's error, [`Error::ContextFull`] if the message alone does not fit, or what
    /// [`generate`](crate::generate()) returns. The conversation is then as before.
    pub fn answer(
        &mut self,
        decoder: &mut dyn Decoder,
        sampler: &mut Sampler,
        message: Message,
        count: usize,
        emit: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Result<Answer> {
        let before = self.messages.clone();
        self.messages.push(message);
        let answer = self.continued(decoder, sampler, count, emit);
        match &answer {
            Ok(answer) => self.messages.push(Message::new("assistant", answer.text.clone())),
            Err(_) => self.messages = before,
        }
        answer
    }

    fn continued(
        &mut self,
        decoder: &mut dyn Decoder,
        sampler: &mut Sampler,
        count: usize,
        emit: &mut dyn FnMut(&str) -> io::Result<()>,
    ) -> Result<Answer> {
        let (tokens, forgotten) = self.fitting(decoder.context(), count)?;
        let shared = self.held.iter().zip(&tokens).take_while(|(a, b)| a == b).count();
        // The last token gives the logits of the answer's first.
        let reused = shared.min(tokens.len().saturating_sub(1)).min(decoder.position());
        self.held.truncate(reused);
        decoder.truncate(reused)?;

        let mut text = String::new();
        sampler.begin(&tokens);
        let generated = extend(decoder, self.tokenizer, sampler, &tokens[reused..], count, &mut |piece| {
            emit(piece)?;
            text.push_str(piece);
            Ok(ControlFlow::Continue(()))
        });
        let generation = match generated {
            Ok(generation) => Some(generation),
            Err(Error::Output { source }) if source.kind() == io::ErrorKind::Interrupted => None,
            Err(error) => {
                self.held.clear();
                decoder.reset()?;
                return Err(error);
            }
        };
        let prompt = tokens.len();
        self.held = tokens;
        self.held.extend(generation.iter().flat_map(|g| &g.tokens));
        // The last token was chosen and not processed; those of an answer that was ended are not known.
        self.held.truncate(decoder.position());
        Ok(Answer { text, prompt, reused, forgotten, generation })
    }

    /// The conversation's tokens, without as many of the oldest messages as the context has no room for; how
    /// many these are.
    fn fitting(&mut self, context: usize, count: usize) -> Result<(Vec<u32>, usize)> {
        let room = context - count.min(context / 4);
        let mut forgotten = 0;
        loop {
            let text = self.template.render(&self.messages, true)?;
            let tokens = self.tokenizer.encode_formatted(&text)?;
            if tokens.len() <= room {
                return Ok((tokens, forgotten));
            }
            let first = usize::from(self.messages.first().is_some_and(|m| m.role == "system"));
            // The message to be answered stays.
            if self.messages.len() < first + 3 {
                return Err(Error::ContextFull { position: tokens.len(), context });
            }
            self.messages.drain(first..first + 2);
            forgotten += 2;
        }
    }
}
