//! The allowed keys of each architecture. A key that is not here may change what the model computes, so a
//! file that has it is refused.

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gguf::value::Value;
use crate::model::architecture::{Caps, Windows};
use crate::model::config::Config;
use crate::model::pooling::Pooling;

/// The values that a key may hold.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Allowed {
    /// Anything: it is read, and checked where it is read.
    Read,
    /// Anything: it changes nothing, for the reason in the table.
    Anything,
    /// This number (a boolean is 0 or 1), with which it changes nothing.
    Only(f64),
    /// Zero, or the usual scale of attention.
    UsualScale,
    /// Read in architectures whose experts have a length of their own, elsewhere zero.
    OfExperts,
    /// As the architecture has it.
    SharesNormalized,
    /// Read by [`Window`](crate::model::window::Window) in architectures with windows; elsewhere zero, or no
    /// fewer positions than the context has.
    OfWindows,
    /// Read where some layers have a window and others not; elsewhere refused.
    OfPeriods,
    /// Read where layers with a window rotate otherwise; elsewhere refused.
    OfRotatedWindows,
    /// Read where scores are capped, elsewhere zero.
    ScoreCap,
    /// Read where logits are capped, elsewhere zero.
    LogitCap,
    /// None, or one of [`Pooling`](crate::model::pooling::Pooling).
    OfPooling,
}
use Allowed::{
    Anything, LogitCap, OfExperts, OfPeriods, OfPooling, OfRotatedWindows, OfWindows, Only, Read, ScoreCap,
    SharesNormalized, UsualScale,
};

/// The keys below the architecture's name, what they may hold, and the reason for those that are not read.
const KEYS: [(&str, Allowed, &str); 45] = [
    ("vocab_size", Read, ""),
    ("context_length", Read, ""),
    ("embedding_length", Read, ""),
    ("block_count", Read, ""),
    ("feed_forward_length", Read, ""),
    ("attention.head_count", Read, ""),
    ("attention.head_count_kv", Read, ""),
    ("attention.key_length", Read, ""),
    ("attention.value_length", Read, ""),
    ("attention.layer_norm_rms_epsilon", Read, ""),
    ("expert_count", Read, ""),
    ("expert_feed_forward_length", OfExperts, "feed_forward_length is that of an expert"),
    ("expert_weights_norm", SharesNormalized, "it is the architecture that says it"),
    ("expert_weights_scale", Only(1.0), "shares of experts are not scaled"),
    ("expert_gating_func", Only(1.0), "shares of experts are those of a softmax"),
    ("rope.dimension_count", Read, ""),
    ("rope.freq_base", Read, ""),
    ("rope.scale_linear", Read, ""),
    ("rope.scaling.type", Read, ""),
    ("rope.scaling.factor", Read, ""),
    ("rope.scaling.low_freq_factor", Read, ""),
    ("rope.scaling.high_freq_factor", Read, ""),
    ("rope.scaling.original_context_length", Read, ""),
    ("rope.scaling.finetuned", Anything, "how the model was trained"),
    ("attention.layer_norm_epsilon", Read, "of one of the two norms; the other's is without effect"),
    ("tensor_data_layout", Anything, "the name of the converter's layout"),
    ("expert_used_count", Read, "without effect where expert_count is 0"),
    ("rope.scaling.attn_factor", Read, ""),
    ("rope.scaling.yarn_log_multiplier", Only(0.0), "yarn lengthens queries and keys by its factor alone"),
    ("rope.scaling.yarn_beta_fast", Only(32.0), "the usual one of yarn"),
    ("rope.scaling.yarn_beta_slow", Only(1.0), "the usual one of yarn"),
    ("attention.causal", Only(1.0), "attention is causal"),
    ("attention.scale", UsualScale, "scores are divided by the square root of a head's length"),
    ("attention.sliding_window", OfWindows, "attention sees the whole context"),
    ("attention.sliding_window_pattern", OfPeriods, "all layers have the window, or none has one"),
    ("rope.freq_base_swa", OfRotatedWindows, "all layers rotate alike"),
    ("attention.clamp_kqv", Only(0.0), "queries, keys and values are not clamped"),
    ("attention.max_alibi_bias", Only(0.0), "positions are rotations"),
    ("attn_logit_softcapping", ScoreCap, "scores are not capped"),
    ("final_logit_softcapping", LogitCap, "logits are not capped"),
    ("logit_scale", Only(1.0), "logits are not scaled"),
    ("embedding_scale", Only(1.0), "embeddings are not scaled"),
    ("residual_scale", Only(1.0), "residuals are not scaled"),
    ("use_parallel_residual", Only(0.0), "the feed-forward block follows attention"),
    ("pooling_type", OfPooling, "texts are embedded by their mean (1) or their last token (3)"),
];

/// Checks that no key changes the result without being read, and that the file is a model.
///
/// # Errors
/// [`Error::UnknownKey`], [`Error::KeyValue`] with the key.
pub fn check(gguf: &Gguf, c: &Config) -> Result<()> {
    let a = c.architecture;
    let prefix = a.key("");
    for (key, value) in gguf.metadata() {
        if key.starts_with("adapter.") {
            return Err(Error::UnknownKey { key: key.clone() });
        }
        let Some(name) = key.strip_prefix(&prefix) else { continue };
        let known = KEYS.iter().find(|(known, ..)| *known == name);
        let &(_, allowed, rule) = known.ok_or_else(|| Error::UnknownKey { key: key.clone() })?;
        let number = number(value);
        let holds = match allowed {
            Read | Anything => true,
            Only(neutral) => number == Some(neutral),
            UsualScale => {
                let usual = f64::from(c.score_scale() / c.score_factor);
                number.is_some_and(|n| n == 0.0 || (n - usual).abs() < 1e-6 * usual)
            }
            OfExperts => a.experts.is_some_and(|e| e.length == name) || number == Some(0.0),
            SharesNormalized => a.experts.is_some_and(|e| number == Some(f64::from(u8::from(e.normalized)))),
            OfWindows if a.windows != Windows::None => true,
            OfWindows => number.is_some_and(|n| n == 0.0 || n >= c.context as f64),
            OfPeriods => !matches!(a.windows, Windows::None | Windows::All),
            OfRotatedWindows => matches!(a.windows, Windows::Rotated { .. }),
            ScoreCap => matches!(a.caps, Caps::Both { .. }) || number == Some(0.0),
            OfPooling => number == Some(0.0) || Pooling::of(gguf, a)?.is_some(),
            LogitCap => a.caps != Caps::None || number == Some(0.0),
        };
        if !holds {
            let value = number.map_or_else(|| value.kind().to_owned(), |n| n.to_string());
            return Err(Error::KeyValue { key: key.clone(), value, rule });
        }
    }
    Ok(())
}

/// Checks that the file is a model, not a part of one.
pub fn check_kind(gguf: &Gguf) -> Result<()> {
    let key = "general.type";
    match gguf.text(key)? {
        None | Some("model") => Ok(()),
        Some(other) => {
            let rule = "only a whole model can be run; merge an adapter into its model";
            Err(Error::KeyValue { key: key.into(), value: format!("{other:?}"), rule })
        }
    }
}

fn number(value: &Value) -> Option<f64> {
    let truth = value.as_bool().map(|b| f64::from(u8::from(b)));
    truth.or_else(|| value.as_uint().map(|n| n as f64)).or_else(|| value.as_real())
}
