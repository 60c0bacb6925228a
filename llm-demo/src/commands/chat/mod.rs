//! A conversation on the terminal.

mod input;
mod order;

use std::fs;
use std::io::{self, Write};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, bail};
use ga10b_llm::chat::{Answer, Conversation, Message, Template};
use ga10b_llm::generate::Stop;
use ga10b_llm::{Model, Sampler, Tokenizer};
use signal_hook::consts::SIGINT;

use crate::cli::{Chat, Cli};
use crate::outcome::Outcome;
use crate::session::{self, Session};
use crate::terminal;
use input::{Input, Line};
use order::Order;

/// Most tokens of an answer by default.
const DEFAULT_COUNT: u32 = 512;
/// Positions of the cache by default, if the model has as many.
const DEFAULT_CONTEXT: usize = 4096;

pub fn run(cli: &Cli, chat: &Chat) -> anyhow::Result<Outcome> {
    let model = session::model(cli)?;
    let context = chat.ctx.map_or(DEFAULT_CONTEXT, |n| n as usize).min(model.config.context);
    let (read, session) = thread::scope(|scope| {
        let read = scope.spawn(|| read(chat, &model));
        let session = Session::open(cli, &model, context);
        (read.join().unwrap_or_else(|panic| resume_unwind(panic)), session)
    });
    let (template, tokenizer) = read?;
    let mut session = session?;
    let mut input = Input::open()?;
    // Ctrl-C ends the answer, not the program. After the line editor, which sets a handler of its own.
    let stopped = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGINT, Arc::clone(&stopped))?;

    let mut talk = Talk {
        conversation: Conversation::new(&template, &tokenizer),
        sampler: Sampler::new(cli.sampling()),
        count: cli.count.unwrap_or(DEFAULT_COUNT) as usize,
        context,
        stopped,
    };
    if let Some(system) = &chat.system {
        talk.begin(&template, system)?;
    }
    if input.is_terminal() {
        anstream::eprintln!("{}", order::WELCOME);
    }
    loop {
        match input.read()? {
            Line::End => return Ok(Outcome::Good),
            Line::Cancelled => anstream::eprintln!("[/exit or Ctrl-D ends the program]"),
            Line::Unreadable => anstream::eprintln!("[that is not UTF-8]"),
            Line::Text(text) if text.trim().is_empty() => {}
            Line::Text(text) => match Order::of(&text) {
                None => talk.say(&mut session, order::message(text))?,
                Some(Ok(Order::Exit)) => return Ok(Outcome::Good),
                Some(Ok(order)) => talk.obey(&mut session, &template, order)?,
                Some(Err(unknown)) => anstream::eprintln!("[{}]", terminal::on_stderr(&unknown)),
            },
        }
    }
}

/// The template, from the file that the command line names or from the model's, and the vocabulary.
fn read(chat: &Chat, model: &Model) -> anyhow::Result<(Template, Tokenizer)> {
    let tokenizer = Tokenizer::from_gguf(&model.gguf).context("cannot read the vocabulary")?;
    let template = match &chat.template {
        None => Template::from_gguf(&model.gguf, &tokenizer)?,
        Some(path) => {
            let named = || format!("cannot use the template {}", path.display());
            let source = fs::read_to_string(path).with_context(named)?;
            Some(Template::for_model(&source, &model.gguf, &tokenizer).with_context(named)?)
        }
    };
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
    conversation: Conversation<'a>,
    sampler: Sampler,
    count: usize,
    context: usize,
    stopped: Arc<AtomicBool>,
}

impl Talk<'_> {
    /// Begins anew with a system message; an error if the template takes none.
    fn begin(&mut self, template: &Template, system: &str) -> anyhow::Result<()> {
        if !template.takes_system() {
            bail!("the template of this model takes no system message");
        }
        self.conversation.set_messages(vec![Message::new("system", system)]);
        Ok(())
    }

    /// Prints the answer to `text`.
    fn say(&mut self, session: &mut Session, text: String) -> anyhow::Result<()> {
        self.stopped.store(false, Ordering::Relaxed);
        let mut out = io::stdout().lock();
        let mut broken = false;
        let answer = self.conversation.answer(
            &mut session.engine,
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
                anstream::eprintln!("[{}]", terminal::on_stderr(&error.to_string()));
                return Ok(());
            }
        };
        writeln!(out)?;
        self.remark(&answer);
        Ok(())
    }

    /// What a reader has to know of an answer beside its text.
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
            Some(Stop::End) => {}
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

    fn obey(&mut self, session: &mut Session, template: &Template, order: Order) -> anyhow::Result<()> {
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
                    (Order::Retry, Some(question)) => self.say(session, question.content)?,
                    _ => anstream::eprintln!("[the last message and its answer are removed]"),
                }
            }
        }
        Ok(())
    }
}
