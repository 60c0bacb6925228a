//! Conversations: [`Template`] makes a text of messages, [`Conversation`] answers them.

mod conversation;
mod methods;
mod template;

pub use conversation::{Answer, Conversation};
pub use template::{Message, Template};
