//! Layers that see a window of positions instead of the whole context.

use crate::error::Result;
use crate::gguf::Gguf;
use crate::model::architecture::{Architecture, Windows};
use crate::model::values::{check, positive, size};

/// The window of positions that some layers see.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Window {
    /// Positions, the newest with them.
    pub positions: usize,
    /// Of so many layers the last one sees the whole context; none does without it.
    pub period: Option<usize>,
    /// Base of the rotary frequencies in layers with the window, which then have no scaling; the same
    /// frequencies in all layers without it.
    pub rope_base: Option<f32>,
}

impl Window {
    /// The window of a file; `None` if all layers see the `context` positions that there are at most.
    ///
    /// # Errors
    /// As the keys' values.
    pub(super) fn read(gguf: &Gguf, a: &Architecture, context: usize) -> Result<Option<Self>> {
        let key = a.key("attention.sliding_window");
        let given = match gguf.uint(&key)? {
            Some(0) => return Ok(None),
            Some(_) => Some(size(gguf, &key)?),
            None => None,
        };
        let of = |positions, period, rope_base| Some(Self { positions, period, rope_base });
        let window = match (a.windows, given) {
            (Windows::None, _) | (Windows::All | Windows::Rotated { .. }, None) => None,
            (Windows::All, Some(positions)) => of(positions, None, None),
            (Windows::Alternating { period, usual }, given) => of(given.unwrap_or(usual), Some(period), None),
            (Windows::Rotated { period, base }, Some(positions)) => {
                let base = positive(gguf, &a.key("rope.freq_base_swa"), Some(base))?;
                of(positions, Some(period), Some(base))
            }
        };
        if let Some(Self { period: Some(period), .. }) = window {
            let key = a.key("attention.sliding_window_pattern");
            let found = gguf.uint(&key)?.unwrap_or(period as u64);
            check(found == period as u64, &key, found, "it must be that of the published models")?;
        }
        // A window of the whole context is none, unless such layers rotate otherwise.
        Ok(window.filter(|w| w.positions < context || w.rope_base.is_some()))
    }

    /// Whether layer `layer` has it.
    pub fn is_of(self, layer: usize) -> bool {
        self.period.is_none_or(|period| !(layer + 1).is_multiple_of(period))
    }
}
