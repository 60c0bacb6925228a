//! Dependencies and size of a session.

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_128;

use crate::cache::CacheType;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::model::config::Config;

/// The first bytes of every file.
pub(super) const MAGIC: [u8; 8] = *b"ga10bses";
/// The version of the format.
pub(super) const VERSION: u32 = 1;
/// Bytes of the longest summary.
pub(super) const LONGEST: u32 = 64 << 10;
/// Bytes of a checksum.
pub(super) const CHECKSUM: u64 = 16;

/// Dependencies and size of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Summary {
    /// The model's [`Fingerprint`](crate::gguf::Fingerprint).
    pub model: String,
    /// The model's name; empty if it has none.
    pub name: String,
    /// The model's architecture.
    pub architecture: String,
    /// Type of keys and values, as on the command line.
    pub cache: String,
    /// Layers.
    pub layers: u64,
    /// Heads of keys and values.
    pub kv_heads: u64,
    /// Values of a head.
    pub head_dim: u64,
    /// A hash of how positions rotate queries and keys, with the scaling and the windows in force.
    pub rotation: String,
    /// Positions with keys and values.
    pub positions: u64,
    /// Tokens.
    pub tokens: u64,
    /// Whether it is a conversation.
    pub conversation: bool,
    /// Bytes of the messages.
    pub message_bytes: u64,
}

/// A hash of what rotates queries and keys of a model in texts of at most `context` positions.
fn rotation(c: &Config, context: usize) -> String {
    let mut bytes = Vec::new();
    bytes.extend(c.rope_base.to_le_bytes());
    bytes.extend((c.rope_dim as u64).to_le_bytes());
    bytes.extend(c.score_factor.to_le_bytes());
    let factors = c.rope_factors_of(context).into_iter().flatten();
    bytes.extend(factors.flat_map(|factor| factor.to_le_bytes()));
    // Layers with a window may rotate otherwise.
    let window = c.window.iter().flat_map(|window| {
        let period = window.period.unwrap_or(0) as u64;
        [window.positions as u64, period]
            .into_iter()
            .flat_map(u64::to_le_bytes)
            .chain(window.rope_base.unwrap_or(0.0).to_le_bytes())
    });
    bytes.extend(window);
    format!("{:032x}", XxHash3_128::oneshot(&bytes))
}

impl Summary {
    /// Of an empty session of `model` with a cache in `kv`, in a context of `context` positions.
    pub(crate) fn of(model: &Model, kv: CacheType, context: usize) -> Self {
        let c = &model.config;
        Self {
            model: model.gguf.fingerprint().to_string(),
            // So that the summary is not too long.
            name: model.name().unwrap_or_default().chars().take(256).collect(),
            architecture: c.architecture.name.to_owned(),
            cache: kv.name().to_owned(),
            layers: c.layers as u64,
            kv_heads: c.kv_heads as u64,
            head_dim: c.head_dim as u64,
            rotation: rotation(c, context),
            positions: 0,
            tokens: 0,
            conversation: false,
            message_bytes: 0,
        }
    }

    /// Refuses a session that does not suit what it is loaded into, of which `here` is the summary.
    ///
    /// # Errors
    /// [`Error::SessionMismatch`] with the first difference.
    pub(crate) fn check(&self, here: &Self) -> Result<()> {
        let named = |s: &Self| format!("{:?} of hash {}", s.name, s.model);
        let differs = |what, saved, here, advice| Err(Error::SessionMismatch { what, saved, here, advice });
        if self.model != here.model {
            let advice = "name the file that it was saved with by -m";
            return differs("the model", named(self), named(here), advice);
        }
        if self.cache != here.cache {
            let advice = "--kv chooses the type";
            return differs("a cache in", self.cache.clone(), here.cache.clone(), advice);
        }
        let again = "another version of this program saved it; begin a new session";
        for (what, saved, here) in [
            ("layers:", self.layers, here.layers),
            ("heads of keys and values:", self.kv_heads, here.kv_heads),
            ("values of a head:", self.head_dim, here.head_dim),
        ] {
            if saved != here {
                return differs(what, saved.to_string(), here.to_string(), again);
            }
        }
        let rotated = "the model rotates otherwise in long contexts: choose one as long as that which it was saved in \
                       (--ctx, or -n), or begin a new session";
        for (what, saved, here, advice) in [
            ("architecture", &self.architecture, &here.architecture, again),
            ("rotations of hash", &self.rotation, &here.rotation, rotated),
        ] {
            if saved != here {
                return differs(what, saved.clone(), here.clone(), advice);
            }
        }
        Ok(())
    }

    /// Bytes of keys and values; `None` if they do not fit 64 bits, or if the type is unknown.
    pub fn cache_bytes(&self) -> Option<u64> {
        let kv = CacheType::ALL.into_iter().find(|kv| kv.name() == self.cache)?;
        let values = self.kv_heads.checked_mul(self.head_dim)?.checked_mul(self.positions)?;
        // A value takes at most 2 bytes in any type.
        values.checked_mul(2)?;
        kv.bytes(values).checked_mul(self.layers)?.checked_mul(2)
    }

    /// Bytes between the summary and the keys and values; `None` if they do not fit 64 bits.
    pub(super) fn front_bytes(&self) -> Option<u64> {
        self.tokens.checked_mul(4)?.checked_add(self.message_bytes)?.checked_add(CHECKSUM)
    }
}
