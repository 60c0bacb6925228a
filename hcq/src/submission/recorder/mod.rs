//! Records launches and copies as pushbuffer words, and keeps the order that barriers ask for at the least
//! cost.
//!
//! A launch that has to follow exactly one other is linked to it: the scheduler starts it when the other
//! ends, without a word in the pushbuffer. Everything else that has to be ordered waits for the engine in the
//! pushbuffer.
//!
//! Writes of a grid are made visible by the barrier at its end: inside the GPU for a launch that another is
//! linked to, since that one reads through the same level-2 cache after dropping its level-1 lines;
//! everywhere for all others, since a copy engine, another channel or the CPU may read them next.

use crate::address::GpuVa;
use crate::error::Error;
use crate::submission::pushbuffer::{Pushbuffer, Scratch};

pub(crate) mod net;
pub(crate) mod release;

/// A launch and where its QMD lies.
#[derive(Clone, Debug)]
struct Recorded {
    va: GpuVa,
    qmd: qmd::Qmd,
}

/// The launches since the last point where everything before is known to have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Group {
    /// None.
    #[default]
    Empty,
    /// One, kicked in the pushbuffer.
    One,
    /// A line of them, each linked to the one before it.
    Line,
    /// Several, or one that nothing may be linked to.
    Many,
}

/// Copies since the last point where everything before is known to have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Copies {
    /// By the copy engine.
    engine: bool,
    /// By kernels.
    kernel: bool,
}

/// Receiver of QMDs: address and content.
pub(crate) type QmdSink<'a> = dyn FnMut(GpuVa, &qmd::Qmd) -> Result<(), Error> + 'a;

/// A list of commands under construction.
#[derive(Debug)]
pub(crate) struct Recorder {
    words: Pushbuffer,
    group: Group,
    /// The last launch. Its QMD is written when it is known what follows, so that it is written once.
    last: Option<Recorded>,
    unwritten: bool,
    /// The launch that the last one is linked to.
    before: Option<Recorded>,
    copies: Copies,
    /// Whether the next command waits for those recorded.
    barrier: bool,
    /// Launches since the words were last handed over.
    launches: usize,
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
            last: None,
            unwritten: false,
            before: None,
            copies: Copies::default(),
            barrier: false,
            launches: 0,
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

    /// Launches recorded since the words were last handed over.
    pub fn launches(&self) -> usize {
        self.launches
    }

    /// Everything recorded so far has ended where the next word is processed.
    fn is_settled(&self) -> bool {
        self.group == Group::Empty && !self.copies.engine
    }

    /// Writes the QMD of the last launch, if that is still to be done. Has to be called before the words are
    /// handed over.
    pub fn finish(&mut self, sink: &mut QmdSink<'_>) -> Result<(), Error> {
        if let (true, Some(launch)) = (self.unwritten, &self.last) {
            sink(launch.va, &launch.qmd)?;
        }
        self.unwritten = false;
        Ok(())
    }

    /// Waits in the pushbuffer for everything recorded.
    pub fn settle(&mut self) {
        self.barrier = false;
        if self.is_settled() {
            return;
        }
        if self.copies.engine {
            self.words.wait_for_engine();
        }
        if !self.copies_only {
            // Also drops what caches hold of data that copies have changed.
            self.words.wait_for_grids();
        }
        self.group = Group::Empty;
        self.copies = Copies::default();
    }

    /// The next command follows those recorded.
    pub fn barrier(&mut self) {
        self.barrier = true;
    }

    /// Launches the QMD that is to lie at `va`.
    pub fn launch(&mut self, va: GpuVa, qmd: qmd::Qmd, sink: &mut QmdSink<'_>) -> Result<(), Error> {
        self.launches += 1;
        let barrier = std::mem::take(&mut self.barrier);
        let linked = barrier && self.link(va, sink)?;
        if linked {
            self.before = self.last.take();
            self.group = Group::Line;
        } else {
            if self.group == Group::Line && !barrier {
                self.unlink(sink)?;
            }
            self.finish(sink)?;
            if barrier {
                self.settle();
            }
            self.words.launch(va);
            self.group = if self.group == Group::Empty { Group::One } else { Group::Many };
        }
        self.last = Some(Recorded { va, qmd });
        self.unwritten = true;
        Ok(())
    }

    /// Links the launch at `next` to the last one, if that is possible.
    fn link(&mut self, next: GpuVa, sink: &mut QmdSink<'_>) -> Result<bool, Error> {
        if !self.chain || self.copies.engine || !matches!(self.group, Group::One | Group::Line) {
            return Ok(false);
        }
        let Some(last) = self.last.as_mut().filter(|_| self.unwritten) else { return Ok(false) };
        let next = qmd::Dependent::schedule(next.raw()).prefetched();
        if last.qmd.set_dependent(0, &next).is_err() {
            return Ok(false);
        }
        last.qmd.set_membar(qmd::Membar::Device);
        last.qmd.set_task_chasing(true);
        self.finish(sink)?;
        Ok(true)
    }

    /// A second launch is to follow what the last one follows: takes it off the line, and lets it wait in the
    /// pushbuffer.
    fn unlink(&mut self, sink: &mut QmdSink<'_>) -> Result<(), Error> {
        if let Some(mut before) = self.before.take()
            && before.qmd.clear_dependent(0).is_ok()
        {
            before.qmd.set_membar(qmd::Membar::System);
            before.qmd.set_task_chasing(false);
            sink(before.va, &before.qmd)?;
        }
        self.words.wait_for_grids();
        if let Some(last) = &self.last {
            self.words.launch(last.va);
        }
        Ok(())
    }

    /// Copies bytes by the copy engine; copies follow each other in any case.
    pub fn copy(&mut self, source: GpuVa, destination: GpuVa, len: u64) {
        let barrier = std::mem::take(&mut self.barrier);
        if (barrier && !self.is_settled()) || self.group == Group::Line || self.copies.kernel {
            let launches = self.group != Group::Empty;
            self.settle();
            if launches {
                self.words.wait_for_engine();
            }
        }
        self.words.copy(source, destination, len);
        self.copies.engine = true;
        self.seal();
    }

    /// Launches that follow copy, some or all of them by kernels.
    pub fn copies_by_kernel(&mut self) {
        self.barrier |= self.copies != Copies::default();
        self.copies.kernel = true;
    }

    /// Copies bytes by a launch; copies follow each other in any case.
    pub fn copy_by_kernel(&mut self, va: GpuVa, qmd: qmd::Qmd, sink: &mut QmdSink<'_>) -> Result<(), Error> {
        self.barrier |= self.copies != Copies::default();
        self.launch(va, qmd, sink)?;
        self.copies.kernel = true;
        Ok(())
    }

    /// Writes the time at `va` when everything recorded has ended.
    pub fn timestamp(&mut self, va: GpuVa) {
        self.words.release(va, 1);
        self.seal();
    }

    /// The next command waits for a timeline.
    pub fn acquire(&mut self, va: GpuVa, value: u64) {
        if self.group == Group::Line {
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

    /// Nothing may be linked to the last launch any more.
    fn seal(&mut self) {
        if self.group != Group::Empty {
            self.group = Group::Many;
        }
    }
}

#[cfg(test)]
mod tests;
