//! Values of options.

use std::str::FromStr;

use ga10b_llm::engine::MOST_COLUMNS;
use ga10b_llm::model::Pooling;
use ga10b_llm::{CacheType, Mode};

/// A token, and what is added to its logit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bias(pub u32, pub f32);

impl FromStr for Bias {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('=').and_then(|(token, bias)| {
            let bias = bias.parse().ok().filter(|bias: &f32| bias.is_finite())?;
            Some(Self(token.parse().ok()?, bias))
        });
        parsed
            .ok_or_else(|| "expected TOKEN=BIAS, the number of a token and what is added to its logit".into())
    }
}

pub fn engine(text: &str) -> Result<Mode, String> {
    let mode = Mode::ALL.into_iter().find(|m| m.name() == text);
    mode.ok_or_else(|| match text {
        "phases" => {
            "a step is one launch (stream), whose phases profile and --trace show; several launches are \
                     batch"
                .to_owned()
        }
        _ => format!("expected one of {}", Mode::ALL.map(Mode::name).join(", ")),
    })
}

/// Whether chunks of prompts keep the weights that they expand.
pub fn prompt_weights(text: &str) -> Result<bool, String> {
    match text {
        "keep" => Ok(true),
        "expand" => Ok(false),
        _ => Err("expected one of keep, expand".to_owned()),
    }
}

pub fn cache_type(text: &str) -> Result<CacheType, String> {
    let kv = CacheType::ALL.into_iter().find(|t| t.name() == text);
    kv.ok_or_else(|| format!("expected one of {}", CacheType::ALL.map(CacheType::name).join(", ")))
}

/// The way in which hidden states become the embedding of a text.
pub fn pooling(text: &str) -> Result<Pooling, String> {
    match text {
        "mean" => Ok(Pooling::Mean),
        "last" => Ok(Pooling::Last),
        _ => Err("expected one of mean, last".to_owned()),
    }
}

/// A number of tokens, runs or requests.
pub fn count(text: &str) -> Result<u32, String> {
    let value = text.parse::<u32>().ok().filter(|n| *n > 0);
    value.ok_or_else(|| {
        format!("expected a whole number from 1 to {}; leave the option out for no limit", u32::MAX)
    })
}

/// A number of sequences in one step.
pub fn sequences(text: &str) -> Result<u32, String> {
    let value = text.parse::<u32>().ok().filter(|n| (1..=MOST_COLUMNS).contains(&(*n as usize)));
    value.ok_or_else(|| format!("expected a whole number from 1 to {MOST_COLUMNS}"))
}

pub fn whole(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("expected a whole number from 0 to {}", u32::MAX))
}

pub fn seed(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| {
        format!("expected a whole number from 0 to {}; the same one gives the same numbers again", u64::MAX)
    })
}

pub fn not_negative(text: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| v.is_finite() && *v >= 0.0);
    value.ok_or_else(|| "expected a number that is 0 or more".into())
}

pub fn fraction(text: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| (0.0..=1.0).contains(v));
    value.ok_or_else(|| "expected a number from 0 to 1".into())
}

pub fn positive(text: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| v.is_finite() && *v > 0.0);
    value.ok_or_else(|| "expected a number that is more than 0".into())
}

pub fn finite(text: &str) -> Result<f32, String> {
    let value = text.parse::<f32>().ok().filter(|v| v.is_finite());
    value.ok_or_else(|| "expected a number".into())
}
