//! Writes a session.

use std::io::{self, Write};

use twox_hash::XxHash3_128;

use crate::error::{Error, Result};
use crate::session::content::Session;
use crate::session::summary::{LONGEST, MAGIC, Summary, VERSION};

/// Hashes what it writes.
pub(crate) struct Writer<'a> {
    out: &'a mut dyn Write,
    hash: XxHash3_128,
}

impl<'a> Writer<'a> {
    /// Writes all that precedes the keys and values of the first `positions` tokens of `session`. `summary`
    /// is that of an empty session.
    ///
    /// # Errors
    /// [`Error::SessionOutput`].
    pub fn begin(
        out: &'a mut dyn Write,
        mut summary: Summary,
        session: &Session,
        positions: usize,
    ) -> Result<Self> {
        let json = |value: serde_json::Result<Vec<u8>>| {
            value.map_err(|source| Error::SessionOutput { source: source.into() })
        };
        let messages = session.messages.as_ref().map(|messages| json(serde_json::to_vec(messages)));
        let messages = messages.transpose()?;
        summary.positions = positions as u64;
        summary.tokens = session.tokens.len() as u64;
        summary.conversation = messages.is_some();
        let messages = messages.unwrap_or_default();
        summary.message_bytes = messages.len() as u64;
        let text = json(serde_json::to_vec(&summary))?;
        let length = u32::try_from(text.len()).ok().filter(|length| *length <= LONGEST);
        let length = length.ok_or(Error::TooLarge { size: text.len() })?;
        let mut writer = Self { out, hash: XxHash3_128::new() };
        writer.write(&MAGIC)?;
        writer.write(&VERSION.to_le_bytes())?;
        writer.write(&length.to_le_bytes())?;
        writer.write(&text)?;
        let tokens: Vec<u8> = session.tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        writer.write(&tokens)?;
        writer.write(&messages)?;
        writer.checksum()?;
        Ok(writer)
    }

    /// Writes `bytes`.
    ///
    /// # Errors
    /// [`Error::SessionOutput`].
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.hash.write(bytes);
        self.out.write_all(bytes).map_err(failed)
    }

    fn checksum(&mut self) -> Result<()> {
        self.write(&self.hash.finish_128().to_le_bytes())
    }

    /// Writes the checksum of all.
    ///
    /// # Errors
    /// [`Error::SessionOutput`].
    pub fn finish(mut self) -> Result<()> {
        self.checksum()?;
        self.out.flush().map_err(failed)
    }
}

fn failed(source: io::Error) -> Error {
    Error::SessionOutput { source }
}
