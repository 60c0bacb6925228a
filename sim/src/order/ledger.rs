//! The ledger: which work is ordered before which, and the accesses that nothing orders.

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustc_hash::FxHashMap;

use crate::findings::{Checks, Event, Finding, Findings};
use crate::order::access::{Access, Conflict, may_meet};
use crate::order::known::Known;
use crate::order::shadow::{LINE, Mark, Shadow, Strength, Threads, Word};
use crate::order::work::{Parts, Site, Work, WorkId};

/// Releases of a semaphore that are remembered one by one.
const RELEASES: usize = 64;
/// The program's own line.
const PROGRAM: u32 = 0;

/// Scope in which a grid's writes are visible, by the barrier at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Visible {
    /// Nowhere for certain.
    Nowhere,
    /// On the GPU.
    Device,
    /// On the CPU too.
    System,
}

/// Why an access may give another value than it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Unordered,
    NotVisible,
    Cached,
}

#[derive(Debug)]
struct Entry {
    work: Work,
    line: u32,
    number: u32,
    known: Known,
    /// Accesses of a launch's threads before they wait for the launch that theirs follows.
    early: bool,
}

/// A channel, or the program.
#[derive(Debug, Default)]
struct Line {
    /// Number of the channel.
    name: u32,
    /// Work so far.
    count: u32,
    /// Work that has ended where the next method is processed.
    front: Known,
    /// The channel's transfers, which one that is not pipelined follows as well.
    transfers: Known,
}

/// Knowledge that releases of a semaphore have published.
#[derive(Debug, Default)]
struct Published {
    all: Known,
    /// By the value that was written.
    latest: VecDeque<(u64, Known)>,
}

/// Content of the ledger.
#[derive(Debug, Default)]
pub(crate) struct State {
    entries: Vec<Entry>,
    lines: Vec<Line>,
    shadow: Shadow,
    published: FxHashMap<u64, Published>,
    /// All that was published.
    everything: Known,
    /// Work whose writes are visible on the GPU, and on the CPU too.
    device: Known,
    system: Known,
    /// Number of times that the level-1 caches were emptied.
    emptied: u32,
    /// The program reports its accesses and submissions.
    reports: bool,
    /// Knowledge of the program at each submission: by token, up to which entry of the ring.
    submitted: FxHashMap<u32, VecDeque<(u32, Known)>>,
    /// The program's accesses since its last submission.
    own: Option<WorkId>,
    sites: Vec<Site>,
    site_numbers: FxHashMap<(u64, u128), u32>,
    /// Memory without an owner: writes to sparse pages vanish in it.
    ignored: Range<u64>,
}

/// The ledger of a machine.
pub(crate) struct Ledger {
    state: Mutex<State>,
    findings: Arc<Findings>,
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").finish_non_exhaustive()
    }
}

impl Ledger {
    /// Nothing has happened; `ignored` addresses have no owner.
    pub(crate) fn new(findings: Arc<Findings>, ignored: Range<u64>) -> Self {
        let program = Line::default();
        let state = State { lines: vec![program], ignored, ..State::default() };
        Self { state: Mutex::new(state), findings }
    }

    /// Locks its content.
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the findings.
    #[cfg(test)]
    pub(crate) fn findings(&self) -> Vec<Finding> {
        self.findings.all()
    }

    /// A unit other than an SM reads or writes bytes at host addresses; `va` is the guest address of the
    /// first.
    pub(crate) fn unit_access(&self, work: WorkId, at: u64, len: u64, writes: bool, va: u64) {
        let conflict = self.state().unit_access(work, at, len, writes);
        if let Some((conflict, offset)) = conflict {
            let (event, program) = {
                let state = self.state();
                let own = &state.entries[work.0 as usize].work;
                (own.event(None, 0, 0), own.program())
            };
            self.findings.record(Finding {
                check: Checks::ORDER,
                text: conflict.text.to_owned(),
                detail: conflict.detail,
                program,
                kernel: None,
                event,
                address: Some(va + offset),
                location: None,
                earlier: Some(conflict.earlier),
                count: 1,
            });
        }
    }

    /// The program reads or writes bytes at host addresses.
    pub(crate) fn program_access(&self, at: u64, len: u64, writes: bool) {
        let work = self.state().program();
        self.unit_access(work, at, len, writes, 0);
    }

    /// Something about a launch that is no access.
    pub(crate) fn report(&self, work: WorkId, text: &str, address: u64) {
        let (detail, program) = {
            let state = self.state();
            (state.name(work), state.entries[work.0 as usize].work.program())
        };
        let event = Event { pc: 0, sass: detail, block: [0; 3], thread: [0; 3], source: None };
        self.findings.record(Finding {
            check: Checks::ORDER,
            text: text.to_owned(),
            detail: String::new(),
            program,
            kernel: None,
            event,
            address: Some(address),
            location: None,
            earlier: None,
            count: 1,
        });
    }
}

/// Reports from the front end of the GPU.
impl State {
    /// A channel that has done nothing.
    pub(crate) fn open(&mut self, name: u32) -> u32 {
        self.lines.push(Line { name, ..Line::default() });
        (self.lines.len() - 1) as u32
    }

    /// The entry before `next` of the ring is fetched: the work that the program knew of when it submitted
    /// has ended.
    pub(crate) fn fetch(&mut self, line: u32, token: u32, next: u32) {
        let submitted = self.submitted.entry(token).or_default();
        let known = match submitted.front() {
            Some((put, known)) if *put != next => known.clone(),
            Some(_) => submitted.pop_front().map(|(_, known)| known).unwrap_or_default(),
            None if self.reports => self.lines[PROGRAM as usize].front.clone(),
            // It may have read every semaphore.
            None => self.everything.clone(),
        };
        self.line(line).front.join(&known);
    }

    fn line(&mut self, line: u32) -> &mut Line {
        &mut self.lines[line as usize]
    }

    /// Returns the work that has ended where the channel's next method is processed.
    pub(crate) fn front(&self, line: u32) -> Known {
        self.lines[line as usize].front.clone()
    }

    /// Work of a channel begins, after `known`.
    pub(crate) fn begin(&mut self, line: u32, work: Work, known: Known) -> WorkId {
        let id = WorkId(self.entries.len() as u32);
        let own = self.line(line);
        own.count += 1;
        let number = own.count;
        self.entries.push(Entry { work, line, number, known, early: false });
        id
    }

    /// Begins the part of a launch before its threads wait (`griddepcontrol.wait`), after `known`. For all
    /// other work it is the launch's own.
    pub(crate) fn begin_early(&mut self, launch: WorkId, known: Known) -> WorkId {
        let id = WorkId(self.entries.len() as u32);
        let Entry { work, line, number, .. } = self.entries[launch.0 as usize];
        self.entries.push(Entry { work, line, number, known, early: true });
        id
    }

    /// A thread of a launch continues after its wait: it keeps its knowledge of before.
    pub(crate) fn pass_wait(&mut self, Parts { launch, early, invalidates }: Parts) {
        let learned = self.entries[early.0 as usize].known.clone();
        self.entries[launch.0 as usize].known.join(&learned);
        self.emptied += u32::from(invalidates);
    }

    /// A launch of which no thread has waited ends: that tells nothing about the launch that it follows.
    pub(crate) fn end_early(&mut self, Parts { launch, early, .. }: Parts) {
        self.entries[launch.0 as usize].known = self.known_before(early);
    }

    /// Returns the work that had ended before this work began.
    pub(crate) fn known_before(&self, work: WorkId) -> Known {
        self.entries[work.0 as usize].known.clone()
    }

    /// Returns the work before a transfer that is not pipelined: all transfers of the channel too.
    pub(crate) fn known_of_transfers(&self, line: u32) -> Known {
        let own = &self.lines[line as usize];
        let mut known = own.front.clone();
        known.join(&own.transfers);
        known
    }

    /// A transfer that later ones follow.
    pub(crate) fn transfers(&mut self, line: u32, work: WorkId) {
        let number = self.entries[work.0 as usize].number;
        self.line(line).transfers.insert(line, number);
    }

    /// Work and all that had ended before it.
    pub(crate) fn known_after(&self, work: WorkId) -> Known {
        let mut known = self.known_before(work);
        let Entry { line, number, .. } = self.entries[work.0 as usize];
        known.insert(line, number);
        known
    }

    /// Work has ended: its writes and those before it are visible in the scope `visible`.
    pub(crate) fn end(&mut self, work: WorkId, visible: Visible) {
        if visible == Visible::Nowhere {
            return;
        }
        let known = self.known_after(work);
        self.device.join(&known);
        if visible == Visible::System {
            self.system.join(&known);
        }
    }

    /// The channel has waited for all its work.
    pub(crate) fn wait_idle(&mut self, line: u32) {
        let own = self.line(line);
        own.front.insert_all(line, own.count);
        let front = own.front.clone();
        self.device.join(&front);
    }

    /// A system membar, after a wait for the engine.
    pub(crate) fn flush(&mut self, line: u32) {
        let front = self.front(line);
        self.system.join(&front);
    }

    /// A semaphore at a host address is written, after `known`.
    pub(crate) fn publish(&mut self, at: u64, value: u64, known: Known) {
        self.everything.join(&known);
        let published = self.published.entry(at / 4).or_default();
        published.all.join(&known);
        published.latest.push_back((value, published.all.clone()));
        if published.latest.len() > RELEASES {
            published.latest.pop_front();
        }
    }

    /// A channel has waited for the semaphore at a host address.
    pub(crate) fn acquire(&mut self, line: u32, at: u64) {
        if let Some(published) = self.published.get(&(at / 4)) {
            self.lines[line as usize].front.join(&published.all);
        }
    }

    /// The level-1 caches are emptied.
    pub(crate) fn empty_caches(&mut self) {
        self.emptied += 1;
    }

    /// A channel was stopped, and its work with it: the driver sees to it that nothing runs any more.
    pub(crate) fn stop(&mut self, line: u32) {
        let count = self.line(line).count;
        self.submitted.remove(&self.lines[line as usize].name);
        for known in [&mut self.device, &mut self.system, &mut self.everything] {
            known.insert_all(line, count);
        }
        self.lines[PROGRAM as usize].front.insert_all(line, count);
    }

    /// Memory is new.
    pub(crate) fn forget(&mut self, bytes: Range<u64>) {
        self.published.retain(|word, _| !bytes.contains(&(word * 4)));
        self.shadow.forget(bytes.start / 4..bytes.end.div_ceil(4));
    }
}

/// Reports from the program.
impl State {
    /// It has read a semaphore.
    pub(crate) fn observe(&mut self, at: u64, value: u64) {
        self.reports = true;
        let Some(published) = self.published.get(&(at / 4)) else { return };
        let reached = |(released, _): &&(u64, Known)| value.wrapping_sub(*released).cast_signed() >= 0;
        if let Some((_, known)) = published.latest.iter().rev().find(reached) {
            self.lines[PROGRAM as usize].front.join(known);
        }
    }

    /// It is about to publish the entries before `put` to the channel that `token` names.
    pub(crate) fn submit(&mut self, token: u32, put: u32) {
        self.reports = true;
        self.own = None;
        let own = self.line(PROGRAM);
        own.front.insert_all(PROGRAM, own.count);
        let known = own.front.clone();
        self.submitted.entry(token).or_default().push_back((put, known));
    }

    /// Its accesses until the next submission.
    fn program(&mut self) -> WorkId {
        self.reports = true;
        if let Some(own) = self.own {
            return own;
        }
        let own = self.begin(PROGRAM, Work::Program, Known::default());
        self.own = Some(own);
        // Its writes go to memory.
        self.end(own, Visible::System);
        own
    }
}

/// Accesses.
impl State {
    /// The number of an instruction.
    pub(crate) fn site(&mut self, pc: u64, word: u128, text: impl FnOnce() -> String) -> u32 {
        *self.site_numbers.entry((pc, word)).or_insert_with(|| {
            self.sites.push(Site { pc, sass: text() });
            (self.sites.len() - 1) as u32
        })
    }

    /// A kernel accesses words of a line; returns the first conflict of which `changes` says that the word gets
    /// another value.
    pub(crate) fn access(
        &mut self,
        work: WorkId,
        access: &Access,
        mut changes: impl FnMut(u32) -> bool,
    ) -> Option<Conflict> {
        let Access { line, mask, .. } = *access;
        if self.ignored.contains(&(line * LINE * 4)) {
            return None;
        }
        let strength = if access.strong { Strength::Strong } else { Strength::Weak };
        let mark = Mark {
            work,
            site: access.site,
            block: access.block,
            threads: access.threads,
            bytes: access.bytes,
            strength,
            emptied: self.emptied,
        };
        let mut shadow = std::mem::take(&mut self.shadow);
        let mut found = None;
        if access.strong && access.reads {
            shadow.line(line, mask, |_, state| self.synchronize(work, state));
            self.learn_at(work, line, mask);
        }
        shadow.line(line, mask, |word, state| {
            if found.is_none() {
                found = self
                    .conflict(state, &mark, access.writes)
                    .filter(|_| changes(word))
                    .map(|found| (word, found));
            }
            match access.writes {
                true => state.write(mark),
                false => state.read(mark),
            }
        });
        self.shadow = shadow;
        if access.strong && access.writes {
            let known = self.known_after(work);
            for word in words_of(line, mask) {
                self.published.entry(word).or_default().all.join(&known);
            }
        }
        found.map(|(word, (earlier, why))| self.explain(&mark, access.writes, (&earlier, word), why))
    }

    /// A strong read of a kernel orders the releases published there.
    fn learn_at(&mut self, work: WorkId, line: u64, mask: u32) {
        for word in words_of(line, mask) {
            if let Some(published) = self.published.get(&word) {
                self.entries[work.0 as usize].known.join(&published.all);
            }
        }
    }

    /// ... and the writes of other units.
    fn synchronize(&mut self, work: WorkId, word: &Word) {
        if let Some(writer) = word.writer.filter(|w| !self.same(w.work, work) && w.strength == Strength::Unit)
        {
            let known = self.known_after(writer.work);
            self.entries[work.0 as usize].known.join(&known);
        }
    }

    fn unit_access(&mut self, work: WorkId, at: u64, len: u64, writes: bool) -> Option<(Conflict, u64)> {
        let mark = Mark {
            work,
            site: 0,
            block: 0,
            threads: Threads::one(0),
            bytes: 0,
            strength: Strength::Unit,
            emptied: self.emptied,
        };
        let mut shadow = std::mem::take(&mut self.shadow);
        let mut first = None;
        let ignored = self.ignored.clone();
        shadow.range(at, len, |number, bytes, word| {
            if ignored.contains(&(number * 4)) {
                return;
            }
            let mark = Mark { bytes, ..mark };
            if first.is_none() {
                first = self.conflict(word, &mark, writes).map(|found| (found, number));
            }
            match writes {
                true => word.write(mark),
                false => word.read(mark),
            }
        });
        self.shadow = shadow;
        let ((earlier, why), word) = first?;
        let conflict = self.explain(&mark, writes, (&earlier, (word % LINE) as u32), why);
        Some((conflict, (word * 4).saturating_sub(at)))
    }

    /// Whether both are the same work, or parts of one launch.
    fn same(&self, work: WorkId, other: WorkId) -> bool {
        let of = |work: WorkId| (self.entries[work.0 as usize].line, self.entries[work.0 as usize].number);
        work == other || of(work) == of(other)
    }

    /// Whether `other` has ended before `work` began.
    fn knows(&self, work: WorkId, other: WorkId) -> bool {
        let Entry { line, number, .. } = self.entries[other.0 as usize];
        let own = &self.entries[work.0 as usize];
        let known = if own.line == PROGRAM { &self.lines[PROGRAM as usize].front } else { &own.known };
        (own.line == PROGRAM && line == PROGRAM) || known.contains(line, number)
    }

    /// Why an access may not see, or may destroy, an earlier one's value.
    fn conflict(&self, word: &Word, mark: &Mark, writes: bool) -> Option<(Mark, Why)> {
        let meets = |old: &&Mark| old.bytes & mark.bytes != 0 && !self.same(old.work, mark.work);
        let new = (mark.strength, writes);
        let unordered = |old: &Mark, wrote: bool| {
            !may_meet((old.strength, wrote), new) && !self.knows(mark.work, old.work)
        };
        if writes && let Some(reader) = word.readers().find(|old| meets(old) && unordered(old, false)) {
            return Some((*reader, Why::Unordered));
        }
        let writer = word.writer.as_ref().filter(meets)?;
        if unordered(writer, true) {
            return Some((*writer, Why::Unordered));
        }
        if writes || may_meet((writer.strength, true), new) {
            return None;
        }
        let Entry { line, number, .. } = self.entries[writer.work.0 as usize];
        let by_program = self.entries[mark.work.0 as usize].line == PROGRAM;
        let visible = if by_program { &self.system } else { &self.device };
        let old_value = mark.strength == Strength::Weak && word.cached == Some(mark.emptied);
        match (visible.contains(line, number), old_value) {
            (false, _) => Some((*writer, Why::NotVisible)),
            (true, true) => Some((*writer, Why::Cached)),
            (true, false) => None,
        }
    }

    fn explain(&self, mark: &Mark, writes: bool, (earlier, word): (&Mark, u32), why: Why) -> Conflict {
        let old = &self.entries[earlier.work.0 as usize];
        let (here, there) = (self.name(mark.work), self.name(earlier.work));
        let by_program = self.entries[mark.work.0 as usize].line == PROGRAM;
        let (text, detail) = match why {
            Why::Unordered => {
                let text = match writes {
                    true => "writes memory that other work accesses, and nothing orders the two",
                    false => "reads memory that other work writes, and nothing orders the two",
                };
                let missing = match self.entries[mark.work.0 as usize].early {
                    true => "griddepcontrol.wait before the access",
                    false if by_program => "wait",
                    false => "barrier or wait",
                };
                (text, format!("no {missing} orders {here} after {there}"))
            }
            Why::NotVisible => {
                let text = "reads memory that earlier work wrote, and no membar makes it visible";
                let scope = if by_program { " for the system" } else { "" };
                (text, format!("no membar{scope} follows {there} before {here}"))
            }
            Why::Cached => {
                let text = "reads memory of which a level-1 cache may hold an old value";
                (text, format!("nothing invalidates the caches between {there} and {here}"))
            }
        };
        let site = self.sites.get(earlier.site as usize);
        Conflict {
            word,
            text,
            detail,
            earlier: old.work.event(site, earlier.block, earlier.threads.of(word)),
        }
    }

    /// Work, as reports name it.
    pub(crate) fn name(&self, work: WorkId) -> String {
        let Entry { work, line, number, .. } = &self.entries[work.0 as usize];
        let name = self.lines[*line as usize].name;
        match work {
            Work::Launch(shape) => {
                format!("launch {number} of channel {name} (kernel at {:#x})", shape.program)
            }
            Work::Copy { .. } | Work::Inline { .. } => format!("copy {number} of channel {name}"),
            Work::Program => "the program's access".to_owned(),
        }
    }
}

/// The words of a line.
fn words_of(line: u64, mask: u32) -> impl Iterator<Item = u64> {
    (0..32).filter(move |word| mask >> word & 1 != 0).map(move |word| line * LINE + word)
}
