//! The fields of a request. Every field is served, harmless without effect, or refused by name.

use ga10b_llm::SamplerOptions;
use ga10b_llm::chat::Message;
use ga10b_llm::sampler::Penalties;
use serde_json::{Map, Value};

use crate::serve::openai::answer::Kind;
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::{Field, Fields, Unknown, typed, wrong};
use crate::serve::openai::grammars::{self, Wanted as Constraint};
use crate::serve::openai::messages::{Prompt, Prompts, given, messages};
use crate::serve::openai::tools::{self, Tools};

/// Most stop strings, and bytes of each.
const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 256;
/// Most tokens with a bias.
const MOST_BIASES: usize = 1024;
/// Most texts of a request.
const MOST_TEXTS: u64 = 128;
/// Most tokens whose probabilities are told beside that of the chosen one.
const MOST_LOGPROBS: u64 = 20;

/// The body of `/v1/chat/completions` and of `/v1/completions`.
#[derive(Debug)]
pub struct Body {
    pub model: Option<String>,
    messages: Option<Vec<Value>>,
    prompt: Option<Prompts>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    /// As in `transformers`: of the whole prompt and text.
    repetition_penalty: Option<f32>,
    repeat_last_n: Option<u32>,
    presence_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    logit_bias: Option<Map<String, Value>>,
    seed: Option<i64>,
    stop: Option<OneOrMore>,
    stream: Option<bool>,
    /// `stream_options.include_usage`, if there are such options.
    usage: Option<bool>,
    cache_prompt: Option<bool>,
    n: Option<u64>,
    best_of: Option<u64>,
    echo: Option<bool>,
    ignore_eos: Option<bool>,
    logprobs: Option<Value>,
    top_logprobs: Option<u64>,
    chat_template_kwargs: Option<Map<String, Value>>,
    reasoning_effort: Option<String>,
    grammar: Option<Constraint>,
    tools: Option<Tools>,
    /// Fields that change an answer and are not supported, with values that may change nothing.
    absent: Vec<(&'static str, Value)>,
}

/// Fields that change an answer and are not supported, and the values that they may have.
const ABSENT: [(&str, &[&str]); 8] = [
    ("functions", &[]),
    ("function_call", &["\"none\""]),
    ("modalities", &["[\"text\"]"]),
    ("suffix", &[]),
    ("guided_regex", &[]),
    ("guided_choice", &[]),
    ("guided_grammar", &[]),
    ("structured_outputs", &[]),
];
/// Fields for the provider's records: without effect here.
pub const RECORDS: [&str; 6] =
    ["user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"];

#[derive(Debug)]
struct OneOrMore(Vec<String>);

impl Field for OneOrMore {
    fn of(path: &str, value: Value) -> Result<Self, Error> {
        match value {
            Value::String(text) => Ok(Self(vec![text])),
            list @ Value::Array(_) => typed(path, list).map(Self),
            value => Err(wrong(path, "a string or a list of strings", &value)),
        }
    }
}

/// The options of texts where a request names none.
#[derive(Clone, Debug)]
pub struct Defaults {
    pub sampling: SamplerOptions,
    pub penalties: Penalties,
    /// Tokens, and what is added to their logits.
    pub bias: Vec<(u32, f32)>,
    /// `None` for another text every time.
    pub seed: Option<u64>,
    /// Most tokens; `None` for as many as the context has room for.
    pub count: Option<u64>,
}

/// The fields of both kinds of requests.
#[derive(Clone, Debug)]
pub struct Wanted {
    pub sampling: SamplerOptions,
    pub penalties: Penalties,
    pub bias: Vec<(u32, f32)>,
    pub stops: Vec<String>,
    /// The constraint of the text.
    pub grammar: Option<Constraint>,
    /// Whether the model may not end the text.
    pub endless: bool,
    /// Texts of each prompt.
    pub texts: usize,
    /// Most likely tokens whose probabilities are told with that of each token, if they are.
    pub logprobs: Option<usize>,
    /// Whether the answer begins with the prompt.
    pub echo: bool,
    /// Variables of the template.
    pub variables: Map<String, Value>,
    /// Most tokens; `None` for as many as the context has room for.
    pub count: Option<usize>,
    pub reuse: bool,
    pub stream: bool,
    pub usage: bool,
}

/// The beginning of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Start {
    Messages(Vec<Message>),
    Prompts(Vec<Prompt>),
}

impl Start {
    /// The number of texts to continue.
    pub fn texts(&self) -> usize {
        match self {
            Self::Messages(_) => 1,
            Self::Prompts(prompts) => prompts.len(),
        }
    }

    /// The field that it is from.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Messages(_) => "messages",
            Self::Prompts(_) => "prompt",
        }
    }
}

impl Body {
    /// Reads a body.
    ///
    /// # Errors
    /// For a field of another type, by its name; for one that `unknown` refuses.
    pub fn of(mut fields: Fields, unknown: &Unknown) -> Result<Self, Error> {
        for name in RECORDS {
            fields.take::<Value>(name)?;
        }
        let absent = ABSENT.into_iter().map(|(name, _)| Ok(fields.take(name)?.map(|value| (name, value))));
        let absent = absent.filter_map(Result::transpose).collect::<Result<_, Error>>()?;
        let usage = match fields.take::<Value>("stream_options")? {
            None => None,
            Some(options) => {
                let mut options = Fields::of("stream_options", options)?;
                // Padding against observers of the length.
                options.take::<bool>("include_obfuscation")?;
                let usage = options.take("include_usage")?;
                options.end(unknown)?;
                Some(usage.unwrap_or(false))
            }
        };
        let body = Self {
            model: fields.take("model")?,
            messages: fields.take("messages")?,
            prompt: fields.take("prompt")?,
            max_tokens: fields.take("max_tokens")?,
            max_completion_tokens: fields.take("max_completion_tokens")?,
            temperature: fields.take("temperature")?,
            top_p: fields.take("top_p")?,
            top_k: fields.take("top_k")?,
            min_p: fields.take("min_p")?,
            repeat_penalty: fields.take("repeat_penalty")?,
            repetition_penalty: fields.take("repetition_penalty")?,
            repeat_last_n: fields.take("repeat_last_n")?,
            presence_penalty: fields.take("presence_penalty")?,
            frequency_penalty: fields.take("frequency_penalty")?,
            logit_bias: fields.take("logit_bias")?,
            seed: fields.take("seed")?,
            stop: fields.take("stop")?,
            stream: fields.take("stream")?,
            usage,
            cache_prompt: fields.take("cache_prompt")?,
            n: fields.take("n")?,
            best_of: fields.take("best_of")?,
            echo: fields.take("echo")?,
            ignore_eos: fields.take("ignore_eos")?,
            logprobs: fields.take("logprobs")?,
            top_logprobs: fields.take("top_logprobs")?,
            chat_template_kwargs: fields.take("chat_template_kwargs")?,
            reasoning_effort: fields.take("reasoning_effort")?,
            grammar: grammars::take(&mut fields, unknown)?,
            tools: tools::take(&mut fields, unknown)?,
            absent,
        };
        fields.end(unknown)?;
        Ok(body)
    }

    /// The messages of a chat.
    pub fn messages(&mut self) -> Result<Vec<Message>, Error> {
        if self.prompt.is_some() {
            return Err(Error::field("prompt", "a chat has messages; a prompt goes to /v1/completions"));
        }
        if self.echo == Some(true) {
            return Err(Error::field("echo", "echo is not part of a chat"));
        }
        let list = self.messages.take().filter(|list| !list.is_empty());
        messages(list.ok_or_else(|| Error::field("messages", "there are no messages"))?)
    }

    /// The texts that a completion continues.
    pub fn prompts(&mut self) -> Result<Vec<Prompt>, Error> {
        if self.messages.is_some() {
            return Err(Error::field("messages", "messages go to /v1/chat/completions"));
        }
        if self.tools.is_some() {
            return Err(Error::field("tools", "tools are part of a chat"));
        }
        match self.prompt.take() {
            None => Err(Error::field("prompt", "there is no prompt")),
            Some(Prompts(prompts)) => Ok(prompts),
        }
    }

    /// The rest of a request for `kind` with `prompts` prompts, for a model of `vocab` tokens.
    pub fn wanted(
        &self,
        (kind, prompts): (Kind, usize),
        defaults: &Defaults,
        vocab: usize,
    ) -> Result<Wanted, Error> {
        self.refuse()?;
        let within = |name, value: Option<f32>, least: f32, most: f32| match value {
            Some(value) if !(least..=most).contains(&value) => {
                Err(Error::field(name, format!("{name} is {value}, it has to be from {least} to {most}")))
            }
            value => Ok(value),
        };
        let usual = &defaults.sampling;
        let sampling = SamplerOptions {
            temperature: within("temperature", self.temperature, 0.0, 2.0)?.unwrap_or(usual.temperature),
            top_k: self.top_k.map_or(usual.top_k, |k| k as usize),
            top_p: within("top_p", self.top_p, 0.0, 1.0)?.unwrap_or(usual.top_p),
            min_p: within("min_p", self.min_p, 0.0, 1.0)?.unwrap_or(usual.min_p),
            seed: self.seed.map(|seed| seed as u64).or(defaults.seed).unwrap_or_else(random_seed),
        };
        let usual = &defaults.penalties;
        let presence = within("presence_penalty", self.presence_penalty, -2.0, 2.0)?;
        let frequency = within("frequency_penalty", self.frequency_penalty, -2.0, 2.0)?;
        let repetition = within("repetition_penalty", self.repetition_penalty, 0.1, 10.0)?;
        let repeat = within("repeat_penalty", self.repeat_penalty, 0.1, 10.0)?;
        let last = if repetition.is_some() { usize::MAX } else { usual.last };
        let penalties = Penalties {
            repeat: repeat.or(repetition).unwrap_or(usual.repeat),
            last: self.repeat_last_n.map_or(last, |n| n as usize),
            presence: presence.unwrap_or(usual.presence),
            frequency: frequency.unwrap_or(usual.frequency),
        };
        let counts = [("max_completion_tokens", self.max_completion_tokens), ("max_tokens", self.max_tokens)];
        let echo = self.echo.unwrap_or(false);
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == Some(0) && !echo) {
            let or = if kind == Kind::Completion { ", or 0 with echo" } else { "" };
            return Err(Error::field(name, format!("{name} has to be at least 1{or}")));
        }
        let count = self.max_completion_tokens.or(self.max_tokens).or(defaults.count);
        if self.usage.is_some() && self.stream != Some(true) {
            return Err(Error::field("stream_options", "stream_options needs \"stream\": true"));
        }
        Ok(Wanted {
            sampling,
            penalties,
            bias: self.bias(vocab)?.unwrap_or_else(|| defaults.bias.clone()),
            stops: self.stops()?,
            grammar: self.grammar.clone(),
            endless: self.ignore_eos.unwrap_or(false),
            texts: self.texts(prompts)?,
            logprobs: self.logprobs(kind)?,
            echo,
            variables: self.chat_template_kwargs.clone().unwrap_or_default(),
            count: count.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            reuse: self.cache_prompt.unwrap_or(true),
            stream: self.stream.unwrap_or(false),
            usage: self.usage.unwrap_or(false),
        })
    }

    /// The number of texts of each prompt.
    fn texts(&self, prompts: usize) -> Result<usize, Error> {
        let n = self.n.unwrap_or(1);
        if self.best_of.is_some_and(|best| best != n) {
            let message = format!("best_of is supported where it is n, {n}: all texts are answers");
            return Err(Error::field("best_of", message));
        }
        let most = MOST_TEXTS / prompts.max(1) as u64;
        match n {
            _ if most == 0 => {
                Err(Error::field("prompt", format!("a request has at most {MOST_TEXTS} prompts")))
            }
            n if (1..=most).contains(&n) => Ok(n as usize),
            n => Err(Error::field("n", format!("n is {n}, it has to be from 1 to {most}"))),
        }
    }

    /// How many probabilities are told with each token, if they are.
    fn logprobs(&self, kind: Kind) -> Result<Option<usize>, Error> {
        let Some(logprobs) = &self.logprobs else {
            return match self.top_logprobs {
                None | Some(0) => Ok(None),
                Some(_) => Err(Error::field("top_logprobs", "top_logprobs needs \"logprobs\": true")),
            };
        };
        let (name, count) = match (kind, logprobs) {
            (_, Value::Bool(false)) => return Ok(None),
            (Kind::Completion, Value::Number(_)) => ("logprobs", typed("logprobs", logprobs.clone())?),
            _ => {
                typed::<bool>("logprobs", logprobs.clone())?;
                ("top_logprobs", self.top_logprobs.unwrap_or(0))
            }
        };
        match count {
            0..=MOST_LOGPROBS => Ok(Some(count as usize)),
            _ => {
                Err(Error::field(name, format!("{name} is {count}, it has to be from 0 to {MOST_LOGPROBS}")))
            }
        }
    }

    /// The functions that the model may call.
    pub fn tools(&self) -> Option<&Tools> {
        self.tools.as_ref()
    }

    /// The variable of a template that says how long the model thinks.
    pub fn effort(&self) -> Option<&str> {
        self.reasoning_effort.as_deref()
    }

    /// An error for what changes an answer and is not supported.
    fn refuse(&self) -> Result<(), Error> {
        for (name, value) in &self.absent {
            let harmless =
                ABSENT.into_iter().find(|(absent, _)| absent == name).map_or(&[][..], |(_, all)| all);
            if given(value) && !harmless.contains(&value.to_string().as_str()) {
                return Err(Error::field(name, format!("{name} is not supported")).with_code("unsupported"));
            }
        }
        Ok(())
    }

    fn bias(&self, vocab: usize) -> Result<Option<Vec<(u32, f32)>>, Error> {
        let Some(bias) = &self.logit_bias else { return Ok(None) };
        if bias.len() > MOST_BIASES {
            return Err(Error::field("logit_bias", format!("logit_bias takes at most {MOST_BIASES} tokens")));
        }
        let one = |(token, bias): (&String, &Value)| {
            // Only as it is written: "05" and "+5" would be token 5 a second time.
            let number =
                token.parse::<u32>().ok().filter(|n| (*n as usize) < vocab && n.to_string() == *token);
            let Some(number) = number else {
                let token: String = token.chars().take(100).collect();
                let message = format!("{token:?} is no number of a token: the model has 0 to {}", vocab - 1);
                return Err(Error::field("logit_bias", message));
            };
            let bias = typed::<f32>(&format!("logit_bias.{token}"), bias.clone())?;
            if !(-100.0..=100.0).contains(&bias) {
                let message = format!("the bias of token {token} is {bias}, it has to be from -100 to 100");
                return Err(Error::field("logit_bias", message));
            }
            Ok((number, bias))
        };
        bias.iter().map(one).collect::<Result<_, _>>().map(Some)
    }

    fn stops(&self) -> Result<Vec<String>, Error> {
        let stops = self.stop.as_ref().map_or_else(Vec::new, |OneOrMore(stops)| stops.clone());
        if stops.len() > MOST_STOPS || stops.iter().any(|stop| stop.len() > LONGEST_STOP) {
            let message = format!("stop takes at most {MOST_STOPS} strings of at most {LONGEST_STOP} bytes");
            return Err(Error::field("stop", message));
        }
        if stops.iter().any(String::is_empty) {
            return Err(Error::field("stop", "an empty string cannot stop a text"));
        }
        Ok(stops)
    }
}

/// A number that differs from one request to the next; nothing secret depends on it.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
