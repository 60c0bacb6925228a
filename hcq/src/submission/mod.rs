//! Submission of work to the GPU: commands, rings, channels, the timelines that say when it has ended, and
//! deferred frees.

pub(crate) mod channel;
pub(crate) mod gpfifo;
pub(crate) mod limbo;
pub(crate) mod pushbuffer;
pub(crate) mod recorder;
pub(crate) mod ring;
pub(crate) mod timeline;
pub(crate) mod uses;
