//! The fields of a request. Every field is served, harmless without effect, or refused by name.

use ga10b_llm::SamplerOptions;
use ga10b_llm::chat::Message;
use ga10b_llm::sampler::Penalties;
use serde_json::{Map, Value};

use crate::grammar::Grammar;
use crate::serve::openai::error::Error;
use crate::serve::openai::fields::{Field, Fields, typed};
use crate::serve::openai::messages::{Prompt, given, messages};

/// Most stop strings, and bytes of each.
const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 256;
/// Most tokens with a bias.
const MOST_BIASES: usize = 1024;

/// The body of `/v1/chat/completions` and of `/v1/completions`.
#[derive(Debug)]
pub struct Body {
    pub model: Option<String>,
    messages: Option<Vec<Value>>,
    prompt: Option<Prompt>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
    temperature: Option<f32>,
    top_p: Option<f32>,
    top_k: Option<u32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
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
    grammar: Option<Grammar>,
    /// Fields that change an answer and are not supported, with values that may change nothing.
    absent: Vec<(&'static str, Value)>,
}

/// Fields that change an answer and are not supported, and the values that they may have.
const ABSENT: [(&str, &[&str]); 8] = [
    ("logprobs", &["false"]),
    ("top_logprobs", &[]),
    ("tools", &[]),
    ("functions", &[]),
    ("tool_choice", &["\"none\""]),
    ("function_call", &["\"none\""]),
    ("modalities", &["[\"text\"]"]),
    ("suffix", &[]),
];
/// Fields for the provider's records: without effect here.
const RECORDS: [&str; 7] = [
    "user",
    "metadata",
    "store",
    "service_tier",
    "safety_identifier",
    "prompt_cache_key",
    "parallel_tool_calls",
];

#[derive(Debug)]
struct OneOrMore(Vec<String>);

impl Field for OneOrMore {
    const KIND: &'static str = "a string or a list of strings";

    fn of(value: Value) -> Result<Self, Value> {
        match value {
            Value::String(text) => Ok(Self(vec![text])),
            Value::Array(list) => {
                let texts = list.iter().map(|text| text.as_str().map(str::to_owned));
                texts.collect::<Option<_>>().map(Self).ok_or(Value::Array(list))
            }
            value => Err(value),
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
    pub grammar: Option<Grammar>,
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
    Prompt(Prompt),
}

impl Start {
    /// The field that it is from.
    pub fn field(&self) -> &'static str {
        match self {
            Self::Messages(_) => "messages",
            Self::Prompt(_) => "prompt",
        }
    }
}

impl Body {
    /// Reads a body.
    ///
    /// # Errors
    /// For what is no JSON object, and for a field that is unknown or of another type, by its name.
    pub fn read(body: &[u8]) -> Result<Self, Error> {
        let mut fields = Fields::parse(body)?;
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
                options.end()?;
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
            grammar: fields.take("response_format")?.map(grammar).transpose()?.flatten(),
            absent,
        };
        fields.end()?;
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

    /// The text that a completion continues.
    pub fn prompt(&mut self) -> Result<Prompt, Error> {
        if self.messages.is_some() {
            return Err(Error::field("messages", "messages go to /v1/chat/completions"));
        }
        if self.echo == Some(true) {
            return Err(Error::field("echo", "echo is not supported: the prompt is not repeated"));
        }
        match self.prompt.take() {
            None => Err(Error::field("prompt", "there is no prompt")),
            Some(Prompt::Texts(mut texts)) if texts.len() == 1 => Ok(Prompt::Text(texts.remove(0))),
            Some(Prompt::Texts(_)) => Err(Error::field("prompt", "one prompt per request is supported")),
            Some(prompt) => Ok(prompt),
        }
    }

    /// The rest of the request, for a model of `vocab` tokens.
    pub fn wanted(&self, defaults: &Defaults, vocab: usize) -> Result<Wanted, Error> {
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
        let penalties = Penalties {
            repeat: within("repeat_penalty", self.repeat_penalty, 0.1, 10.0)?.unwrap_or(usual.repeat),
            last: self.repeat_last_n.map_or(usual.last, |n| n as usize),
            presence: presence.unwrap_or(usual.presence),
            frequency: frequency.unwrap_or(usual.frequency),
        };
        let counts = [("max_completion_tokens", self.max_completion_tokens), ("max_tokens", self.max_tokens)];
        if let Some((name, _)) = counts.into_iter().find(|(_, count)| *count == Some(0)) {
            return Err(Error::field(name, format!("{name} has to be at least 1")));
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
            count: count.map(|n| usize::try_from(n).unwrap_or(usize::MAX)),
            reuse: self.cache_prompt.unwrap_or(true),
            stream: self.stream.unwrap_or(false),
            usage: self.usage.unwrap_or(false),
        })
    }

    /// An error for what changes an answer and is not supported.
    fn refuse(&self) -> Result<(), Error> {
        let one = |name, n: Option<u64>| match n {
            None | Some(1) => Ok(()),
            Some(n) => {
                Err(Error::field(name, format!("{name} is {n}; 1 is supported, send several requests")))
            }
        };
        one("n", self.n)?;
        one("best_of", self.best_of)?;
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

/// The constraint that `response_format` names.
fn grammar(format: Value) -> Result<Option<Grammar>, Error> {
    const FIELD: &str = "response_format";
    let mut format = Fields::of(FIELD, format)?;
    let kind: Option<String> = format.take("type")?;
    let schema: Option<Value> = format.take("json_schema")?;
    format.end()?;
    let grammar = match (kind.as_deref(), schema) {
        (Some("text"), None) => None,
        (Some("json_object"), None) => Some(Grammar::Object),
        (Some("json_schema"), Some(schema)) => {
            let mut named = Fields::of("response_format.json_schema", schema)?;
            // Whatever `strict` says, the text is what the schema accepts.
            named.take::<bool>("strict")?;
            named.take::<String>("name")?;
            named.take::<String>("description")?;
            let schema: Option<Map<String, Value>> = named.take("schema")?;
            named.end()?;
            let missing = || Error::field(FIELD, "response_format.json_schema.schema is missing");
            Some(Grammar::Schema(schema.ok_or_else(missing)?.into()))
        }
        (Some("json_schema"), None) => {
            return Err(Error::field(FIELD, "response_format.json_schema is missing"));
        }
        (Some("text" | "json_object"), Some(_)) => {
            return Err(Error::field(FIELD, "response_format.json_schema is for the type \"json_schema\""));
        }
        (kind, _) => {
            let kind: String = kind.unwrap_or("missing").chars().take(100).collect();
            let message =
                format!("response_format.type is {kind:?}: text, json_object and json_schema are supported");
            return Err(Error::field(FIELD, message).with_code("unsupported"));
        }
    };
    Ok(grammar)
}

/// A number that differs from one request to the next; nothing secret depends on it.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(0)
}
