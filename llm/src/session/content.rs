//! The content of a file beside keys and values.

use crate::chat::Message;

/// The content of a file beside keys and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Session {
    /// The text. It begins with the tokens whose keys and values are there; one that was chosen last was not
    /// processed.
    pub tokens: Vec<u32>,
    /// The messages of a conversation; `None` for a text.
    pub messages: Option<Vec<Message>>,
}
