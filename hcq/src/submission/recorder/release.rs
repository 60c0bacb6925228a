//! The signal at a submission's end, and its effect on the next recorded commands.
//!
//! Either words at its end release the timeline after a wait for the whole engine: then everything has ended
//! where the next words are processed. Or its last launch does, as part of its own end: then nothing in the
//! pushbuffer has waited, and what comes next has to, because it signals the same timeline. [`Closed`] goes
//! through these states; nothing else changes them.

use super::{Copies, Group, QmdSink, Recorder};
use crate::address::GpuVa;
use crate::error::Error;
use crate::submission::pushbuffer::Pushbuffer;

/// Recorded commands that end in a release of a timeline, ready to be handed over. Dropped without
/// [`submitted`](Self::submitted), the release is taken back, and recording goes on where it was.
#[derive(Debug)]
pub(crate) struct Closed<'a> {
    recorder: &'a mut Recorder,
    /// Words without those of the release.
    body: usize,
    /// The last launch releases the timeline.
    pub(super) in_launch: bool,
    submitted: bool,
}

impl Closed<'_> {
    /// All words.
    pub fn words(&mut self) -> &mut Pushbuffer {
        &mut self.recorder.words
    }

    /// Words before those of the release.
    pub fn body(&self) -> usize {
        self.body
    }

    /// The words were handed over.
    pub fn submitted(mut self) {
        self.submitted = true;
        self.recorder.reset();
        if self.in_launch {
            self.recorder.group = Group::Many;
            self.recorder.barrier = true;
        }
    }
}

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        if self.submitted {
            return;
        }
        let recorder = &mut *self.recorder;
        recorder.words.truncate(self.body);
        if self.in_launch
            && let Some(last) = &mut recorder.last
            && last.qmd.clear_release(0).is_ok()
        {
            recorder.unwritten = true;
        }
    }
}

impl Recorder {
    /// Ends the recorded commands with a release of `value` at `va`. With `in_launch` the last launch does
    /// that, where everything recorded has ended when it ends.
    pub fn close(
        &mut self,
        (va, value): (GpuVa, u64),
        in_launch: bool,
        sink: &mut QmdSink<'_>,
    ) -> Result<Closed<'_>, Error> {
        let in_launch = in_launch && self.release_in_launch(va, value);
        let body = self.words.len();
        let closed = Closed { recorder: self, body, in_launch, submitted: false };
        closed.recorder.finish(sink)?;
        if !in_launch {
            closed.recorder.words.release(va, value);
        }
        Ok(closed)
    }

    /// Lets the last launch write `value` and the time at `va` when it ends; `false` if something else may
    /// end later, or if its QMD was written already.
    fn release_in_launch(&mut self, va: GpuVa, value: u64) -> bool {
        let release = qmd::Release::new_u64(va.raw(), value).with_timestamp();
        let alone = matches!(self.group, Group::One | Group::Line) && self.unwritten && !self.copies.engine;
        alone && self.last.as_mut().is_some_and(|last| last.qmd.set_release(0, &release).is_ok())
    }

    /// Notes that the last handed-over work has ended if `ended` says so: the next command need not wait for
    /// it. It is asked only where it matters.
    pub fn observe_end(&mut self, ended: impl FnOnce() -> bool) {
        let running = self.words.is_empty() && self.group == Group::Many;
        if running && ended() {
            self.reset();
        }
    }

    /// Nothing is recorded, and everything that was has ended.
    fn reset(&mut self) {
        self.words.clear();
        self.group = Group::Empty;
        (self.last, self.before, self.unwritten) = (None, None, false);
        self.copies = Copies::default();
        self.launches = 0;
        self.barrier = false;
    }
}
