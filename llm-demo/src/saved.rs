//! The file of `--session`: a text or a conversation that goes on.

use std::fs::{self, File};
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ga10b_llm::session::{Reader, Session, check_writable, replace};
use ga10b_llm::{Engine, Model};

/// Bytes that are read at a time.
const BUFFER: usize = 1 << 20;

/// The file of a session, and what was saved in it.
pub struct Saved {
    path: PathBuf,
    /// `None` for a file that does not exist yet.
    reader: Option<Reader<BufReader<File>>>,
}

impl Saved {
    /// Reads what precedes keys and values, if the file exists. An error if it could not be saved again.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let open = || -> anyhow::Result<_> {
            match fs::metadata(path) {
                Ok(found) if !found.is_file() => bail!("it is not a regular file"),
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
                Err(error) => return Err(error.into()),
            }
            Ok(Some(Reader::begin(BufReader::with_capacity(BUFFER, File::open(path)?))?))
        };
        let reader = open().with_context(|| named(path))?;
        check_writable(path)?;
        Ok(Self { path: path.to_owned(), reader })
    }

    /// The saved session, unless it is loaded already.
    pub fn session(&self) -> Option<&Session> {
        self.reader.as_ref().map(Reader::session)
    }

    /// Positions with keys and values.
    pub fn positions(&self) -> usize {
        self.reader.as_ref().map_or(0, |reader| reader.summary().positions as usize)
    }

    /// Loads keys and values, if there are any, and gives tokens and messages.
    pub fn load(&mut self, engine: &mut Engine, model: &Model) -> anyhow::Result<Option<Session>> {
        let session = self.reader.take().map(|reader| engine.load(model, reader));
        session.transpose().with_context(|| named(&self.path))
    }

    /// Saves the context of `engine` with `session`.
    pub fn save(&self, engine: &Engine, model: &Model, session: &Session) -> anyhow::Result<()> {
        replace(&self.path, |out| engine.save(model, session, out))?;
        let tokens = session.tokens.len();
        tracing::debug!("saved {tokens} tokens in {}", self.path.display());
        Ok(())
    }
}

fn named(path: &Path) -> String {
    format!("cannot go on with the session {}", path.display())
}
