//! Keys and values of an engine to a file, and back.

use std::io::{Read, Write};

use crate::decoder::Decoder;
use crate::engine::decode::Engine;
use crate::error::{Error, Result};
use crate::model::Model;
use crate::session::{Reader, Session, Summary, Writer};

/// Bytes that are copied from the device or to it at a time.
const PIECE: u64 = 1 << 20;

/// Ranges of a buffer of keys or values, offset and length in bytes.
type Ranges = Vec<(u64, u64)>;

impl Engine {
    /// Writes the context with `session`, whose tokens begin with those of the context, as
    /// [`session`](crate::session) says. `model` is the engine's. If there are fewer tokens than positions in
    /// the context, only so many positions are written.
    ///
    /// # Errors
    /// [`Error::SessionOutput`]; [`Error::SessionMismatch`] if `model` is another; what the device reports.
    pub fn save(&self, model: &Model, session: &Session, out: &mut dyn Write) -> Result<()> {
        let summary = self.summary(model)?;
        let positions = self.position().min(session.tokens.len());
        let mut writer = Writer::begin(out, summary, session, positions)?;
        let mut piece = Vec::new();
        for buffer in self.caches().flatten() {
            for (at, len) in pieces(self.ranges(positions)) {
                piece.resize(len as usize, 0);
                buffer.read(at, &mut piece)?;
                writer.write(&piece)?;
            }
        }
        writer.finish()
    }

    /// Replaces the context by that of a session that was saved with the same `model`, which is the engine's,
    /// and the same type of cache; the engine may have another number of positions, unless the model rotates otherwise
    /// in long contexts. The logits of the next
    /// step are those that the saved engine would have given, bit for bit if both are set up with the same
    /// options.
    ///
    /// # Errors
    /// [`Error::SessionMismatch`], [`Error::SessionDamaged`], [`Error::SessionInput`], [`Error::Token`]; what
    /// the device reports. The context is empty then.
    pub fn load<R: Read>(&mut self, model: &Model, mut session: Reader<R>) -> Result<Session> {
        self.reset()?;
        session.summary().check(&self.summary(model)?)?;
        let positions = usize::try_from(session.summary().positions).unwrap_or(usize::MAX);
        if positions > self.context() {
            return Err(Error::SessionMismatch {
                what: "positions:",
                saved: positions.to_string(),
                here: self.context().to_string(),
                advice: "a larger context has room for them",
            });
        }
        session.session().tokens.iter().try_for_each(|token| self.check_token(*token))?;
        let mut piece = Vec::new();
        for buffer in self.caches().flatten() {
            for (at, len) in pieces(self.ranges(positions)) {
                piece.resize(len as usize, 0);
                session.next(&mut piece)?;
                buffer.write(at, &piece)?;
            }
        }
        let session = session.finish()?;
        self.resume(&session.tokens[..positions])?;
        Ok(session)
    }

    /// The summary of an empty session.
    fn summary(&self, model: &Model) -> Result<Summary> {
        if model.config == self.model.config {
            return Ok(Summary::of(model, self.kv(), self.context()));
        }
        let name = |architecture: &str| format!("of architecture {architecture}");
        Err(Error::SessionMismatch {
            what: "the model",
            saved: name(model.config.architecture.name),
            here: name(self.model.config.architecture.name),
            advice: "the engine is of another one",
        })
    }

    /// Ranges of the first `positions` positions in a buffer of keys or values: of each head, then their
    /// scales.
    fn ranges(&self, positions: usize) -> Ranges {
        let (cache, c) = (&self.model.cache, &self.model.config);
        let dim = c.padded_head() as u64;
        let rows = || (0..c.kv_heads).flat_map(|head| cache.rows(head, &self.pages, positions));
        let values = || rows().map(|(row, count)| (row * dim, count * dim));
        match cache.scales_at {
            None => values().map(|(at, count)| (2 * at, 2 * count)).collect(),
            Some(scales) => {
                let scale_bytes = |values: u64| cache.kv.bytes(values) - values;
                let of_scales =
                    values().map(|(at, count)| (u64::from(scales) + scale_bytes(at), scale_bytes(count)));
                values().chain(of_scales).collect()
            }
        }
    }
}

/// The same ranges in pieces that are not too long.
fn pieces(ranges: Ranges) -> impl Iterator<Item = (u64, u64)> {
    let cut = |(at, len): (u64, u64)| {
        (0..len.div_ceil(PIECE)).map(move |i| (at + i * PIECE, PIECE.min(len - i * PIECE)))
    };
    ranges.into_iter().flat_map(cut)
}
