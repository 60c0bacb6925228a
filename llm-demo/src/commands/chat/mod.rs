//! A conversation on the terminal.

mod input;
mod order;

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, bail};
use ga10b_llm::chat::{Answer, Conversation, Message, Template};
use ga10b_llm::generate::Stop;
use ga10b_llm::{Model, Sampler, Tokenizer, session as content};
use signal_hook::consts::SIGINT;

use crate::cli::commands::Chat;
use crate::outcome::Outcome;
use crate::saved::Saved;
use crate::session::{self, Setup};
use crate::speculation::Decoding;
use crate::terminal;
use input::{Input, Line};
use order::Order;

/// Most tokens of an answer by default.
const DEFAULT_COUNT: u32 = 512;
/// Positions of the cache by default, if the model has as many.
const DEFAULT_CONTEXT: usize = 4096;

pub fn run(chat: &Chat) -> anyhow::Result<Outcome> {
    let common = &chat.common;
    let model = session::model_for(common, &chat.sampling)?;
    let context = session::context(chat.ctx, &model)?;
    let context = context.unwrap_or_else(|| DEFAULT_CONTEXT.min(model.config.context));
    let mut saved = chat.session.as_deref().map(Saved::open).transpose()?;
    if let Some(session) = saved.as_ref().and_then(Saved::session) {
        check_session(chat, session)?;
    }
    let (read, decoding) = thread::scope(|scope| {
        let read = scope.spawn(|| read(chat, &model));
        let (device, setup) = (|| session::device(&common.device), Setup::of(&common.launching));
        let decoding = Decoding::new(device, &setup, &chat.speculation, &model, context);
        (read.join().unwrap_or_else(|panic| resume_unwind(panic)), decoding)
    });
    let (template, tokenizer) = read?;
    let sampler = session::sampler(&chat.sampling, &chat.constraints, &tokenizer)?;
    let mut decoding = decoding?;
    let before = match (&mut saved, &mut decoding) {
        (Some(saved), Decoding::Engine(session)) => saved.load(&mut session.engine, &model)?,
        _ => None,
    };
    let mut input = Input::open()?;
    // Ctrl-C ends the answer, not the program. After the line editor, which sets a handler of its own.
    let stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&stopped))?;

    let goes_on = before.is_some();
    let content::Session { tokens, messages } = before.unwrap_or_default();
    let messages = messages.unwrap_or_default();
    if goes_on {
        let (count, tokens) = (messages.len(), tokens.len());
        anstream::eprintln!("[the conversation goes on: {count} messages, {tokens} tokens]");
    }
    let mut talk = Talk {
        loaded: tokens.len(),
        conversation: Conversation::resume(&template, &tokenizer, messages, tokens),
        sampler,
        count: chat.count.unwrap_or(DEFAULT_COUNT) as usize,
        context,
        stopped,
        origin: match &chat.template {
            Some(path) => format!("--template {}", path.display()),
            None => "tokenizer.chat_template of the model's file".into(),
        },
        refused: false,
    };
    if let Some(system) = chat.system.as_ref().filter(|_| !goes_on) {
        talk.begin(&template, system)?;
    }
    if input.is_terminal() {
        anstream::eprintln!("{}", order::WELCOME);
    }
    talk.listen(&mut input, &mut decoding, &template)?;
    if let Some(summary) = decoding.summary() {
        anstream::eprintln!("[{summary}]");
    }
    if let (Some(saved), Decoding::Engine(session)) = (saved, &decoding) {
        let (tokens, messages) = (talk.conversation.held().to_vec(), talk.conversation.messages().to_vec());
        let messages = Some(messages);
        saved.save(&session.engine, &model, &content::Session { tokens, messages })?;
    }
    Ok(talk.outcome())
}

/// Refuses a session that is no conversation, or one with another system message than the command line's.
fn check_session(chat: &Chat, session: &content::Session) -> anyhow::Result<()> {
    let Some(messages) = &session.messages else {
        bail!("the session is a text: go on with it by llm-demo run --session FILE");
    };
    let system = messages.first().filter(|message| message.role == "system");
    if let Some(text) = &chat.system
        && system.is_none_or(|message| message.content != *text)
    {
        bail!(
            "the session's conversation has another system message: leave --system out, or enter /system TEXT"
        );
    }
    Ok(())
}

/// The template, from the file that the command line names or from the model's, and the vocabulary.
fn read(chat: &Chat, model: &Model) -> anyhow::Result<(Template, Tokenizer)> {
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    if chat.session.is_some() {
        // While the weights are copied.
        model.gguf.fingerprint();
    }
    let template = session::template(chat.template.as_deref(), model, &tokenizer)?;
    let Some(template) = template else {
        bail!(
            "the model has no template of conversations (tokenizer.chat_template): it continues texts, \
             llm-demo -p TEXT; or name a template in Jinja by --template FILE"
        );
    };
    Ok((template, tokenizer))
}

/// A conversation, and how its answers are made.
struct Talk<'a> {
    /// Tokens of the session that no message was answered with yet.
    loaded: usize,
    conversation: Conversation<'a>,
    sampler: Sampler,
    count: usize,
    context: usize,
    stopped: Arc<AtomicBool>,
    /// Source of the template.
    origin: String,
    /// Whether it failed with a message.
    refused: bool,
}

impl Talk<'_> {
    /// A template that fails with one message may do with all of them.
    fn outcome(&self) -> Outcome {
        if self.refused { Outcome::Bad } else { Outcome::Good }
    }

    /// Begins anew with a system message; an error if the template takes none.
    fn begin(&mut self, template: &Template, system: &str) -> anyhow::Result<()> {
        if !template.takes_system() {
            bail!("the template of this model takes no system message");
        }
        self.conversation.set_messages(vec![Message::new("system", system)]);
        Ok(())
    }

    /// Answers and obeys until the input ends.
    fn listen(
        &mut self,
        input: &mut Input,
        decoding: &mut Decoding,
        template: &Template,
    ) -> anyhow::Result<()> {
        loop {
            match input.read()? {
                Line::End => return Ok(()),
                Line::Cancelled => anstream::eprintln!("[/exit or Ctrl-D ends the program]"),
                Line::Unreadable => anstream::eprintln!("[that is not UTF-8]"),
                Line::Text(text) if text.trim().is_empty() => {}
                Line::Text(text) => match Order::of(&text) {
                    None => self.say(decoding, order::message(text))?,
                    Some(Ok(Order::Exit)) => return Ok(()),
                    Some(Ok(order)) => self.obey(decoding, template, order)?,
                    Some(Err(unknown)) => anstream::eprintln!("[{}]", terminal::on_stderr(&unknown)),
                },
            }
        }
    }

    /// Prints the answer to `text`.
    fn say(&mut self, decoding: &mut Decoding, text: String) -> anyhow::Result<()> {
        self.stopped.store(false, Ordering::Relaxed);
        let mut out = io::stdout().lock();
        let mut broken = false;
        let answer = self.conversation.answer(
            decoding.decoder(),
            &mut self.sampler,
            Message::new("user", text),
            self.count,
            &mut |piece| {
                if self.stopped.load(Ordering::Relaxed) {
                    return Err(io::ErrorKind::Interrupted.into());
                }
                let written = out.write_all(terminal::on_stdout(piece).as_bytes()).and_then(|()| out.flush());
                broken |= written.is_err();
                written
            },
        );
        let answer = match answer {
            Ok(answer) => answer,
            // Nobody reads the answers any more, or the device is lost; else another message may do.
            Err(error) if broken || matches!(error, ga10b_llm::Error::Device(_)) => return Err(error.into()),
            Err(error) => {
                let mut text = error.to_string();
                if matches!(error, ga10b_llm::Error::Template { .. }) {
                    self.refused = true;
                    write!(text, " ({})", self.origin)?;
                }
                anstream::eprintln!("[{}]", terminal::on_stderr(&text));
                return Ok(());
            }
        };
        writeln!(out)?;
        let loaded = std::mem::take(&mut self.loaded);
        if answer.reused < loaded {
            let reused = answer.reused;
            anstream::eprintln!(
                "[{reused} of the session's {loaded} tokens were kept: from there on the template writes \
                 others]"
            );
        }
        self.remark(&answer);
        Ok(())
    }

    /// Prints remarks about an answer beside its text.
    fn remark(&self, answer: &Answer) {
        if answer.forgotten > 0 {
            anstream::eprintln!(
                "[the {} oldest messages were removed: the context of {} tokens has no room for them]",
                answer.forgotten,
                self.context
            );
        }
        match answer.generation.as_ref().map(|generation| generation.stop) {
            None => anstream::eprintln!("[stopped]"),
            Some(Stop::End | Stop::Caller) => {}
            Some(Stop::Count) => anstream::eprintln!("[stopped after {} tokens; -n allows more]", self.count),
            Some(Stop::Context) => {
                anstream::eprintln!("[the context of {} tokens is full; --ctx allows more]", self.context);
            }
        }
        if let Some(generation) = &answer.generation {
            let new = answer.prompt - answer.reused;
            let rate = generation.tokens_per_second().unwrap_or_default();
            tracing::debug!(
                "{new} of {} tokens processed in {:.3} s; {rate:.1} tokens per second",
                answer.prompt,
                generation.prefill.as_secs_f64()
            );
        }
    }

    fn obey(&mut self, decoding: &mut Decoding, template: &Template, order: Order) -> anyhow::Result<()> {
        if order != Order::Help {
            // The conversation begins otherwise than the session.
            self.loaded = 0;
        }
        let messages = self.conversation.messages();
        let first = usize::from(messages.first().is_some_and(|m| m.role == "system"));
        match order {
            Order::Exit => {}
            Order::Help => anstream::eprintln!("{}", order::HELP),
            Order::New => {
                let kept = messages[..first].to_vec();
                self.conversation.set_messages(kept);
                anstream::eprintln!("[a new conversation]");
            }
            Order::System(text) => match self.begin(template, &text) {
                Ok(()) => anstream::eprintln!("[a new conversation with this system message]"),
                Err(error) => anstream::eprintln!("[{error:#}]"),
            },
            Order::Undo | Order::Retry if messages.len() < first + 2 => {
                anstream::eprintln!("[there is no answer yet]");
            }
            Order::Undo | Order::Retry => {
                let mut kept = messages.to_vec();
                kept.pop();
                let question = kept.pop();
                self.conversation.set_messages(kept);
                match (order, question) {
                    (Order::Retry, Some(question)) => self.say(decoding, question.content)?,
                    _ => anstream::eprintln!("[the last message and its answer are removed]"),
                }
            }
        }
        Ok(())
    }
}
