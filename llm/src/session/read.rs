//! Reads a session of unknown origin.

use std::fmt;
use std::io::{self, Read};

use twox_hash::XxHash3_128;

use crate::chat::Message;
use crate::error::{Error, Result};
use crate::session::content::Session;
use crate::session::summary::{LONGEST, MAGIC, Summary, VERSION};

/// Bytes that are read at a time where a file says how many there are: memory grows only with what is there.
const PIECE: usize = 64 << 10;

/// A session whose keys and values are not read yet.
pub struct Reader<R> {
    input: R,
    hash: XxHash3_128,
    summary: Summary,
    session: Session,
}

impl<R> fmt::Debug for Reader<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reader({:?})", self.summary)
    }
}

impl<R: Read> Reader<R> {
    /// Reads all that precedes the keys and values, and verifies it.
    ///
    /// # Errors
    /// [`Error::NotSession`], [`Error::SessionVersion`], [`Error::SessionDamaged`], [`Error::SessionInput`].
    pub fn begin(input: R) -> Result<Self> {
        let (hash, session) = (XxHash3_128::new(), Session::default());
        let mut reader = Self { input, hash, summary: EMPTY, session };
        let mut magic = [0; MAGIC.len()];
        let read = reader.read_some(&mut magic)?;
        if read < magic.len() || magic != MAGIC {
            return Err(Error::NotSession { found: magic[..read].to_vec() });
        }
        let version = reader.word("its version")?;
        if version != VERSION {
            return Err(Error::SessionVersion { version });
        }
        let length = reader.word("the length of its summary")?;
        if length > LONGEST {
            return damaged(format!("its summary has {length} bytes, at most {LONGEST} are possible"));
        }
        let text = reader.bytes(u64::from(length), "its summary")?;
        let summary: Summary = match serde_json::from_slice(&text) {
            Ok(summary) => summary,
            Err(error) => return damaged(format!("its summary cannot be read: {error}")),
        };
        let Summary { tokens, positions, message_bytes, conversation, .. } = summary;
        if positions > tokens {
            return damaged(format!("it has {tokens} tokens for {positions} positions"));
        }
        if summary.front_bytes().is_none() || summary.cache_bytes().is_none() {
            return damaged("its sizes are larger than any file".to_owned());
        }
        let bytes = reader.bytes(4 * tokens, "its tokens")?;
        reader.session.tokens = bytes.as_chunks().0.iter().map(|b| u32::from_le_bytes(*b)).collect();
        let messages = reader.bytes(message_bytes, "its messages")?;
        // Before what was read is used.
        reader.checksum("what precedes its keys and values")?;
        if conversation {
            let messages: Vec<Message> = match serde_json::from_slice(&messages) {
                Ok(messages) => messages,
                Err(error) => return damaged(format!("its messages cannot be read: {error}")),
            };
            reader.session.messages = Some(messages);
        }
        reader.summary = summary;
        Ok(reader)
    }

    /// Its dependencies and its size.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Tokens and messages.
    pub fn session(&self) -> &Session {
        &self.session
    }

    /// Reads the next bytes of keys and values.
    pub(crate) fn next(&mut self, bytes: &mut [u8]) -> Result<()> {
        self.exact(bytes, "its keys and values")
    }

    /// Reads keys and values that are not needed, and verifies them.
    ///
    /// # Errors
    /// [`Error::SessionDamaged`], [`Error::SessionInput`].
    pub fn skip(mut self) -> Result<Session> {
        let mut left = self.summary.cache_bytes().unwrap_or(0);
        let mut piece = vec![0; PIECE];
        while left > 0 {
            let len = left.min(PIECE as u64) as usize;
            self.next(&mut piece[..len])?;
            left -= len as u64;
        }
        self.finish()
    }

    /// Verifies what was read, all keys and values.
    pub(crate) fn finish(mut self) -> Result<Session> {
        self.checksum("its keys and values")?;
        match self.read_some(&mut [0])? {
            0 => Ok(self.session),
            _ => damaged("something follows its end".to_owned()),
        }
    }

    /// Compares the checksum that follows with that of all before.
    fn checksum(&mut self, what: &'static str) -> Result<()> {
        let expected = self.hash.finish_128().to_le_bytes();
        let mut found = [0; 16];
        self.exact(&mut found, "a checksum")?;
        if found == expected {
            return Ok(());
        }
        damaged(format!("{what} and the checksum differ"))
    }

    fn word(&mut self, what: &'static str) -> Result<u32> {
        let mut bytes = [0; 4];
        self.exact(&mut bytes, what)?;
        Ok(u32::from_le_bytes(bytes))
    }

    /// The next `len` bytes, or an error if there are fewer.
    fn bytes(&mut self, len: u64, what: &'static str) -> Result<Vec<u8>> {
        let (mut bytes, mut left) = (Vec::new(), len);
        while left > 0 {
            let (begin, piece) = (bytes.len(), left.min(PIECE as u64) as usize);
            bytes.resize(begin + piece, 0);
            self.exact(&mut bytes[begin..], what)?;
            left -= piece as u64;
        }
        Ok(bytes)
    }

    fn exact(&mut self, bytes: &mut [u8], what: &'static str) -> Result<()> {
        if self.read_some(bytes)? < bytes.len() {
            return damaged(format!("it ends within {what}"));
        }
        Ok(())
    }

    /// Fills `bytes` as far as there is something. Returns how many bytes that is.
    fn read_some(&mut self, bytes: &mut [u8]) -> Result<usize> {
        let mut read = 0;
        while read < bytes.len() {
            match self.input.read(&mut bytes[read..]) {
                Ok(0) => break,
                Ok(more) => read += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(source) => return Err(Error::SessionInput { source }),
            }
        }
        self.hash.write(&bytes[..read]);
        Ok(read)
    }
}

fn damaged<T>(what: String) -> Result<T> {
    Err(Error::SessionDamaged { what })
}

/// Before anything is read.
const EMPTY: Summary = Summary {
    model: String::new(),
    name: String::new(),
    architecture: String::new(),
    cache: String::new(),
    layers: 0,
    kv_heads: 0,
    head_dim: 0,
    rotation: String::new(),
    positions: 0,
    tokens: 0,
    conversation: false,
    message_bytes: 0,
};
