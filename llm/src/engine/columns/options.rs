//! Options of the batch engine.

use crate::cache::CacheType;
use crate::engine::cache::{PAGE, pages_for};

/// Options of [`Columns`](crate::engine::Columns).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ColumnsOptions {
    /// Pages of the cache, of [`PAGE`] positions each, that all sequences share.
    pub pages: usize,
    /// Most sequences at a time.
    pub sequences: usize,
    /// Most positions of a sequence.
    pub context: usize,
    /// Type of the cache.
    pub kv: CacheType,
    /// Whether prompts are processed in chunks where the model's shape allows it ([`Columns::cut`](crate::engine::Columns::cut)): faster,
    /// but what a sequence's logits are then also depends on the length of its prompt.
    pub chunks: bool,
    /// Whether the tokens of a text are decoded by the persistent step ([`Sequences::next`](crate::Sequences::next)),
    /// if there is one sequence and the model has such a kernel: faster, but what a text's logits are then also
    /// depends on where its prompt ends.
    pub stream: bool,
    /// Whether chunks keep the weights that they expand to f16, for 2 bytes of memory each: faster.
    pub expanded: bool,
}

impl ColumnsOptions {
    /// `sequences` sequences of up to `context` positions, with a page of a cache in f16 for each position,
    /// no chunks and no persistent step.
    pub fn new(sequences: usize, context: usize) -> Self {
        let pages = sequences.saturating_mul(pages_for(context));
        Self { pages, sequences, context, kv: CacheType::F16, chunks: false, stream: false, expanded: false }
    }

    /// Lets prompts be processed in chunks.
    #[must_use]
    pub fn with_chunks(self) -> Self {
        Self { chunks: true, ..self }
    }

    /// Lets the tokens of a text be decoded by the persistent step.
    #[must_use]
    pub fn with_stream(self) -> Self {
        Self { stream: true, ..self }
    }

    /// Sets whether chunks keep expanded weights.
    #[must_use]
    pub fn with_expanded_weights(self, expanded: bool) -> Self {
        Self { expanded, ..self }
    }

    /// Sets the pages that all sequences share.
    #[must_use]
    pub fn with_pages(self, pages: usize) -> Self {
        Self { pages, ..self }
    }

    /// Sets the type of the cache.
    #[must_use]
    pub fn with_cache(self, kv: CacheType) -> Self {
        Self { kv, ..self }
    }

    /// The options with what they cannot do without: at least one of each, and no more context than pages.
    pub(super) fn checked(&self) -> Self {
        let (pages, sequences) = (self.pages.max(1), self.sequences.max(1));
        let (context, stream) = (self.context.clamp(1, pages * PAGE), self.stream && sequences == 1);
        Self { pages, sequences, context, stream, ..*self }
    }
}
