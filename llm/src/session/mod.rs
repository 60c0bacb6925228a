//! Sessions in files: a text or a conversation with its keys and values, to go on later without computing
//! them again.
//!
//! [`Engine::save`](crate::Engine::save) writes one and [`Engine::load`](crate::Engine::load) takes it back:
//! the logits that follow are, bit for bit, those of the engine that went on. [`Reader`] reads what comes
//! before the keys and values, without an engine. All of a file is covered by checksums, and no size in it is
//! believed before as many bytes have been read.
//!
//! ```
//! use ga10b_llm::session::{Reader, Session};
//! use ga10b_llm::{Decoder, Engine, EngineOptions, embedded};
//! use hcq::{Device, Selector};
//!
//! let model = embedded::model()?;
//! let device = Device::open(Selector::Sim)?;
//! let mut engine = Engine::new(&device, &model, &EngineOptions::new(16))?;
//! engine.prefill(&[0, 259, 626])?;
//! // A file: `replace`.
//! let mut file = Vec::new();
//! engine.save(&model, &Session { tokens: vec![0, 259, 626], messages: None }, &mut file)?;
//! let next = engine.step(300)?;
//!
//! let mut other = Engine::new(&device, &model, &EngineOptions::new(16))?;
//! let session = other.load(&model, Reader::begin(&file[..])?)?;
//! assert_eq!((other.position(), session.tokens.len()), (3, 3));
//! assert_eq!(other.step(300)?, next);
//! # Ok::<(), ga10b_llm::Error>(())
//! ```
//!
//! # Format
//! All numbers are little-endian.
//!
//! | bytes | |
//! |---|---|
//! | 8 | `ga10bses` |
//! | 4 | version, 1 |
//! | 4 | length of the summary |
//! | ... | [`Summary`] as JSON |
//! | 4 each | tokens |
//! | ... | messages as JSON: a list of `role` and `content`; nothing for a text |
//! | 16 | XXH3 in 128 bits of all bytes before |
//! | ... | for each layer keys, then values: `[head][position][dimension]` in f16, or in signed bytes and after all of them one f16 scale for 32 |
//! | 16 | XXH3 in 128 bits of all bytes before |

mod content;
mod file;
mod read;
mod summary;
mod write;

pub use content::Session;
pub use file::{check_writable, is_session, replace};
pub use read::Reader;
pub use summary::Summary;
pub(crate) use write::Writer;
