//! Records launches and copies as pushbuffer words, and keeps the order that barriers ask for at the least cost.
//!
//! A launch that has to follow exactly one other is linked to it: the scheduler starts it when the other ends, without
//! a word in the pushbuffer. Everything else that has to be ordered waits for the engine in the pushbuffer.

use crate::address::GpuVa;
use crate::pushbuffer::{Pushbuffer, Scratch};

/// A launch whose QMD can still be changed: nothing of it has been handed to the GPU.
#[derive(Clone, Debug)]
struct Recorded {
    va: GpuVa,
    qmd: qmd::Qmd,
}

/// The launches since the last point where everything before is known to be over.
#[derive(Debug, Default)]
enum Group {
    /// None.
    #[default]
    Empty,
    /// One, which may have been linked to another.
    One { launch: Box<Recorded>, follows: Option<Box<Recorded>> },
    /// Several, or one that nothing may be linked to.
    Many,
}

/// Where QMDs are written: address and content.
pub(crate) type QmdSink<'a> = dyn FnMut(GpuVa, &qmd::Qmd) -> Result<(), crate::Error> + 'a;

/// A list of commands under construction.
#[derive(Debug)]
pub(crate) struct Recorder {
    words: Pushbuffer,
    group: Group,
    /// Copies were recorded since the last point where everything before is known to be over.
    copies: bool,
    /// What comes next has to wait for what was recorded.
    barrier: bool,
    /// Whether launches may be linked.
    chain: bool,
    /// For a channel of the copy engine, which takes no compute methods and has no shader caches.
    copies_only: bool,
}

impl Recorder {
    /// Nothing recorded.
    pub fn new(chain: bool) -> Self {
        Self {
            words: Pushbuffer::default(),
            group: Group::Empty,
            copies: false,
            barrier: false,
            chain,
            copies_only: false,
        }
    }

    /// Nothing recorded, for a channel that only copies.
    pub fn for_copies() -> Self {
        Self { copies_only: true, ..Self::new(false) }
    }

    /// The words so far; more may be added that need no ordering.
    pub fn words(&mut self) -> &mut Pushbuffer {
        &mut self.words
    }

    /// Everything recorded so far has ended where the next word is processed.
    fn is_settled(&self) -> bool {
        matches!(self.group, Group::Empty) && !self.copies
    }

    /// The last launch follows another by a link: the barrier between them holds for what comes next as well, and is
    /// in no word.
    fn is_linked(&self) -> bool {
        matches!(self.group, Group::One { follows: Some(_), .. })
    }

    /// Waits in the pushbuffer for everything recorded.
    pub fn settle(&mut self) {
        self.barrier = false;
        if self.is_settled() {
            return;
        }
        if self.copies {
            self.words.wait_for_engine();
        }
        if !self.copies_only {
            // Also drops what caches hold of data that copies have changed.
            self.words.wait_for_grids();
        }
        self.group = Group::Empty;
        self.copies = false;
    }

    /// What is recorded next follows what was recorded.
    pub fn barrier(&mut self) {
        self.barrier = true;
    }

    /// Launches the QMD that lies, or will lie, at `va`.
    pub fn launch(&mut self, va: GpuVa, qmd: qmd::Qmd, sink: &mut QmdSink<'_>) -> Result<(), crate::Error> {
        sink(va, &qmd)?;
        let barrier = std::mem::take(&mut self.barrier);
        self.group = match std::mem::take(&mut self.group) {
            Group::One { mut launch, .. } if barrier && self.chain && !self.copies => {
                let next = qmd::Dependent::schedule(va.raw()).prefetched();
                if launch.qmd.set_dependent(0, &next).is_ok() {
                    sink(launch.va, &launch.qmd)?;
                    Group::One { launch: Box::new(Recorded { va, qmd }), follows: Some(launch) }
                } else {
                    self.group = Group::Many;
                    self.settle();
                    self.first(va, qmd)
                }
            }
            Group::One { launch, follows: Some(mut before) } if !barrier => {
                // Two launches follow one: unlink the first, and let both wait in the pushbuffer.
                if before.qmd.clear_dependent(0).is_ok() {
                    sink(before.va, &before.qmd)?;
                }
                self.words.wait_for_grids();
                self.kick(launch.va);
                self.kick(va);
                Group::Many
            }
            other if barrier => {
                self.group = other;
                self.settle();
                self.first(va, qmd)
            }
            Group::Empty => self.first(va, qmd),
            Group::One { .. } | Group::Many => {
                self.kick(va);
                Group::Many
            }
        };
        Ok(())
    }

    /// Kicks the first launch of a group.
    fn first(&mut self, va: GpuVa, qmd: qmd::Qmd) -> Group {
        self.kick(va);
        Group::One { launch: Box::new(Recorded { va, qmd }), follows: None }
    }

    fn kick(&mut self, va: GpuVa) {
        self.words.launch(va);
    }

    /// Copies bytes; copies follow each other in any case.
    pub fn copy(&mut self, source: GpuVa, destination: GpuVa, len: u64) {
        let barrier = std::mem::take(&mut self.barrier);
        if (barrier && !self.is_settled()) || self.is_linked() {
            let launches = !matches!(self.group, Group::Empty);
            self.settle();
            if launches {
                self.words.wait_for_engine();
            }
        }
        self.words.copy(source, destination, len);
        self.copies = true;
        self.seal();
    }

    /// Writes the time at `va` when everything recorded has ended.
    pub fn timestamp(&mut self, va: GpuVa) {
        self.words.release(va, 1);
        self.seal();
    }

    /// What is recorded next waits for a timeline.
    pub fn acquire(&mut self, va: GpuVa, value: u64) {
        if self.is_linked() {
            self.settle();
        }
        self.words.acquire(va, value);
        self.seal();
    }

    /// Gives kernels other scratch memory; those before keep theirs.
    pub fn set_scratch(&mut self, scratch: &Scratch) {
        self.settle();
        self.words.set_scratch(scratch);
    }

    /// Lets the last launch write `value` and the time at `va` when it ends, if everything recorded has ended then.
    /// `false` if that is not so, or not possible.
    pub fn release_in_launch(
        &mut self,
        va: GpuVa,
        value: u64,
        sink: &mut QmdSink<'_>,
    ) -> Result<bool, crate::Error> {
        let Group::One { launch, .. } = &mut self.group else { return Ok(false) };
        let release = qmd::Release::new_u64(va.raw(), value).with_timestamp();
        if self.copies || launch.qmd.set_release(0, &release).is_err() {
            return Ok(false);
        }
        sink(launch.va, &launch.qmd)?;
        Ok(true)
    }

    /// Takes back what [`release_in_launch`](Self::release_in_launch) did: the words were not handed over.
    pub fn withdraw_release(&mut self, sink: &mut QmdSink<'_>) -> Result<(), crate::Error> {
        if let Group::One { launch, .. } = &mut self.group
            && launch.qmd.clear_release(0).is_ok()
        {
            sink(launch.va, &launch.qmd)?;
        }
        Ok(())
    }

    /// The words were handed over, and nothing at their end waits for them: what comes next has to, since it signals
    /// the same timeline.
    pub fn reset_running(&mut self) {
        self.reset();
        self.group = Group::Many;
        self.barrier = true;
    }

    /// Everything that was handed over is known to have ended.
    pub fn assume_ended(&mut self) {
        if self.words.is_empty() {
            self.reset();
        }
    }

    /// Nothing may be linked to the last launch any more.
    fn seal(&mut self) {
        if !matches!(self.group, Group::Empty) {
            self.group = Group::Many;
        }
    }

    /// The words were handed over, and end in a release that waits for everything.
    pub fn reset(&mut self) {
        self.words.clear();
        self.group = Group::Empty;
        self.copies = false;
        self.barrier = false;
    }
}

#[cfg(test)]
mod tests;
