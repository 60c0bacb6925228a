//! The host's pushbuffer unit (PBDMA): fetches ring entries and pushbuffer segments, and routes each method
//! to the unit that serves it.

use crate::gpu::classes::{CLASSES, GRAPHICS_RUNLIST};
use crate::gpu::context::{Context, Flow};
use crate::gpu::exception::{Exception, HubClient, PbdmaRegisters};
use crate::gpu::instance::Instance;
use crate::gpu::methods::compute::{ComputeMethods, waits_for_engine};
use crate::gpu::methods::copy::CopyMethods;
use crate::gpu::methods::host::{HostMethods, waits_for_engines};
use crate::gpu::pushbuffer::{Entry, Header, Step};
use crate::gpu::sm::order::Order;
use crate::gpu::sm::{MemoryFault, Schedule};
use crate::gpu::submissions;
use crate::what_if::WhatIf;
use nv_hw::class::c76f::SET_OBJECT;
use nv_hw::class::{FIRST_ENGINE_METHOD, Kind, METHOD_SPACE, subchannel};
use nv_hw::fault::{pbdma_intr_0, pbdma_intr_1};
use std::cell::RefCell;

/// Words fetched at once.
const FETCH_WORDS: u32 = 1024;
/// Methods after which another channel is served.
const TURN: u32 = 4096;

/// End of a channel's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing left to do.
    Idle,
    /// Waits for a semaphore.
    Blocked,
    /// There is more to do.
    More,
}

/// State of the pushbuffer unit for one channel, and the method state of the engines.
#[derive(Debug, Default)]
pub(crate) struct Pbdma {
    get: u32,
    entry: u64,
    segment: Option<(u64, u32)>,
    words: Vec<u32>,
    next_word: usize,
    header: u32,
    step: Step,
    address: u32,
    subchannel: u32,
    remaining: u32,
    has_context: bool,
    classes: [u32; 8],
    host: HostMethods,
    compute: ComputeMethods,
    copy: CopyMethods,
    /// Whether the last engine method was one of the copy engine.
    at_copy_engine: bool,
    /// A method that waits until the engines are idle: subchannel, address, value.
    waits_for_idle: Option<(u32, u32, u32)>,
    choices: Option<RefCell<Order>>,
    /// Reports fetched entries.
    submissions: Option<ga10b_capture::Reader>,
    /// In free order: methods until the launches that have begun go on.
    until_step: Option<usize>,
}

impl Pbdma {
    /// Takes the order in which work runs that nothing orders, made from `seed` at first.
    pub(crate) fn take_choices(&mut self, seed: Option<u64>, channel: &Instance) -> Option<RefCell<Order>> {
        let seed = seed?.wrapping_add(u64::from(channel.number()) << 32);
        self.choices.take().or_else(|| Some(RefCell::new(Order::new(Schedule::Shuffled(seed)))))
    }

    /// Takes it back.
    pub(crate) fn keep_choices(&mut self, choices: Option<RefCell<Order>>) {
        self.choices = choices;
    }

    /// For the driver's log.
    pub(crate) fn registers(&self) -> PbdmaRegisters {
        let (next, left) = self.segment.unwrap_or_default();
        let unread = (self.words.len() - self.next_word) as u64;
        let method = self.address & 0x3ffc | self.subchannel << 16;
        PbdmaRegisters {
            header: method | 1 << 22 | self.header & 0xe000_0000,
            shadow: self.header,
            entry: self.entry,
            method: method | 1 << 22 | 1 << 31,
            gp_get: self.get,
            get: next.saturating_sub(unread * 4),
            put: next + u64::from(left) * 4,
            semaphore: self.host.semaphore(),
        }
    }

    /// Whether launches have begun that have not ended.
    pub(crate) fn is_working(&self) -> bool {
        self.compute.is_working()
    }

    /// Whether no block has begun that has not ended.
    pub(crate) fn is_between_blocks(&self) -> bool {
        self.compute.is_between_blocks()
    }

    /// Works for the channel until it has nothing to do, waits, or has had its turn.
    pub(crate) fn turn(&mut self, context: &Context<'_>) -> Result<Turn, Exception> {
        let mut methods = 0;
        if let Some(choices) = context.choices {
            return self.free_turn(context, choices);
        }
        if self.compute.is_working() {
            match self.compute.advance(context)? {
                Flow::Preempted => return Ok(Turn::More),
                Flow::Stuck => return Ok(Turn::Blocked),
                Flow::Next | Flow::Acquire(_) => {}
            }
        }
        loop {
            if !self.host.poll(context)? {
                return Ok(Turn::Blocked);
            }
            if methods >= TURN || context.channel.must_pause() {
                return Ok(Turn::More);
            }
            let Some(word) = self.word(context)? else {
                if self.fetch_entry(context)? {
                    methods += 1;
                    continue;
                }
                return Ok(Turn::Idle);
            };
            methods += 1;
            match self.execute_word(context, word)? {
                Flow::Next => {}
                Flow::Acquire(acquire) => self.host.wait_for(acquire),
                Flow::Preempted => return Ok(Turn::More),
                Flow::Stuck => return Ok(Turn::Blocked),
            }
        }
    }

    /// A turn in free order: launches that nothing orders run beside each other, and beside the methods that
    /// follow them, as far as chance has it.
    fn free_turn(&mut self, context: &Context<'_>, choices: &RefCell<Order>) -> Result<Turn, Exception> {
        for _ in 0..TURN {
            if context.channel.must_pause() {
                break;
            }
            // Chance decides only where there is something to decide, so that a seed gives the same order however
            // long the program takes between two submissions.
            if !self.compute.is_working() {
                self.until_step = None;
            } else {
                let most = TURN as usize / 64;
                let left = self.until_step.get_or_insert_with(|| choices.borrow_mut().pick(most));
                if *left == 0 {
                    self.until_step = None;
                    break;
                }
                *left -= 1;
            }
            if self.waits_for_idle.is_some() && self.compute.is_working() {
                break;
            }
            if !self.host.poll(context)? {
                return self.step(context, Turn::Blocked);
            }
            let flow = if let Some((subchannel, address, value)) = self.waits_for_idle.take() {
                self.dispatch(context, subchannel, address, value)?
            } else if let Some(word) = self.word(context)? {
                self.execute_word(context, word)?
            } else if self.fetch_entry(context)? {
                Flow::Next
            } else {
                return self.step(context, Turn::Idle);
            };
            match flow {
                Flow::Next | Flow::Preempted => {}
                Flow::Acquire(acquire) => self.host.wait_for(acquire),
                Flow::Stuck => return Ok(Turn::Blocked),
            }
        }
        self.step(context, Turn::More)
    }

    /// Lets a launch go on, if there is one; otherwise the turn has ended with `turn`.
    fn step(&mut self, context: &Context<'_>, turn: Turn) -> Result<Turn, Exception> {
        if !self.compute.is_working() {
            return Ok(turn);
        }
        match self.compute.advance(context)? {
            Flow::Stuck => Ok(Turn::Blocked),
            Flow::Next | Flow::Preempted | Flow::Acquire(_) => Ok(Turn::More),
        }
    }

    /// The next word of the segment.
    fn word(&mut self, context: &Context<'_>) -> Result<Option<u32>, Exception> {
        if self.next_word == self.words.len() {
            let Some((va, left)) = self.segment else { return Ok(None) };
            if left == 0 {
                self.segment = None;
                return Ok(None);
            }
            // Stop at page borders, so that a missing page faults when it is reached.
            let to_border = ((0x1000 - (va & 0xfff)) / 4) as u32;
            let count = left.min(FETCH_WORDS).min(to_border);
            self.words = context.memory.words(va, count as usize).map_err(fetch_fault)?;
            self.next_word = 0;
            self.segment = Some((va + u64::from(count) * 4, left - count));
        }
        let word = self.words[self.next_word];
        self.next_word += 1;
        Ok(Some(word))
    }

    /// Starts on the next ring entry; false when there is none.
    fn fetch_entry(&mut self, context: &Context<'_>) -> Result<bool, Exception> {
        let ring = context.ring;
        let put = ring.put();
        if put >= ring.entries {
            return Err(self.error(1 << pbdma_intr_0::GPPTR));
        }
        if put == self.get {
            return Ok(false);
        }
        let words = context.memory.words(ring.va + u64::from(self.get) * 8, 2).map_err(fetch_fault)?;
        self.entry = u64::from(words[1]) << 32 | u64::from(words[0]);
        if let Some(submissions) = &context.units.submissions {
            let follow = || submissions.follow(context.channel.token(), ring.entries);
            let reader = self.submissions.get_or_insert_with(follow);
            submissions::report(reader, self.get, self.entry, &context.memory);
        }
        self.get = (self.get + 1) % ring.entries;
        let Some(entry) = Entry::decode(self.entry) else {
            return Err(self.error(1 << pbdma_intr_0::GPENTRY));
        };
        if let Entry::Segment { va, words, .. } = entry {
            self.segment = Some((va, words));
        }
        if let Some(front) = &context.front {
            front.fetch(context.channel.token(), self.get);
        }
        if context.units.what_if.contains(WhatIf::LATE_GP_GET) {
            ring.set_get_later(self.get);
        } else {
            ring.set_get(self.get);
        }
        Ok(true)
    }

    fn execute_word(&mut self, context: &Context<'_>, word: u32) -> Result<Flow, Exception> {
        if self.remaining > 0 {
            let address = self.address;
            self.remaining -= 1;
            match self.step {
                Step::Increment => self.address += 4,
                Step::Stay => {}
                Step::Once => {
                    self.address += 4;
                    self.step = Step::Stay;
                }
            }
            if address >= METHOD_SPACE {
                return Err(self.error(1 << pbdma_intr_0::PBENTRY));
            }
            return self.method(context, self.subchannel, address, word);
        }
        self.header = word;
        match Header::decode(word).ok_or_else(|| self.error(1 << pbdma_intr_0::PBENTRY))? {
            Header::Nop => Ok(Flow::Next),
            Header::Data { step, address, subchannel, count } => {
                (self.step, self.address, self.subchannel, self.remaining) =
                    (step, address, subchannel, count);
                Ok(Flow::Next)
            }
            Header::Immediate { address, subchannel, value } => {
                (self.address, self.subchannel) = (address, subchannel);
                self.method(context, subchannel, address, value)
            }
            Header::EndSegment => {
                (self.next_word, self.segment) = (self.words.len(), None);
                Ok(Flow::Next)
            }
        }
    }

    fn method(
        &mut self,
        context: &Context<'_>,
        subchannel: u32,
        address: u32,
        value: u32,
    ) -> Result<Flow, Exception> {
        if context.choices.is_some()
            && self.compute.is_working()
            && self.waits_for_engines(context, subchannel, address, value)
        {
            self.waits_for_idle = Some((subchannel, address, value));
            return Ok(Flow::Next);
        }
        self.dispatch(context, subchannel, address, value)
    }

    /// Whether a method waits until the engines are idle: by itself, or because it is for the other engine of
    /// the graphics runlist than the one before it.
    fn waits_for_engines(&self, context: &Context<'_>, subchannel: u32, address: u32, value: u32) -> bool {
        match address {
            SET_OBJECT => false,
            _ if address < FIRST_ENGINE_METHOD => waits_for_engines(address, value),
            _ if is_copy_only(context) => false,
            _ => (subchannel == subchannel::COPY) != self.at_copy_engine || waits_for_engine(address, value),
        }
    }

    /// The host waits for the engine and a system membar when a channel goes from one engine of the graphics
    /// runlist to the other, and empties caches when SMs follow copies.
    fn switch_engine(&mut self, context: &Context<'_>, subchannel: u32) {
        let copies = subchannel == subchannel::COPY;
        if let (Some(front), true) = (&context.front, copies != self.at_copy_engine) {
            front.wait_idle(true);
            if !copies {
                front.empty_caches();
            }
        }
        self.at_copy_engine = copies;
    }

    fn dispatch(
        &mut self,
        context: &Context<'_>,
        subchannel: u32,
        address: u32,
        value: u32,
    ) -> Result<Flow, Exception> {
        if address == SET_OBJECT {
            return self.set_object(context, subchannel, value);
        }
        if address < FIRST_ENGINE_METHOD {
            return self.host.method(context, address, value).map_err(|e| e.with_registers(self.registers()));
        }
        if subchannel > subchannel::COPY {
            return Err(self.error(1 << pbdma_intr_0::DEVICE));
        }
        self.check_context(context)?;
        if is_copy_only(context) {
            return self.copy_method(context, address, value);
        }
        self.switch_engine(context, subchannel);
        match subchannel {
            subchannel::COMPUTE | subchannel::INLINE_TO_MEMORY => {
                self.compute.method(context, self.classes[subchannel as usize], subchannel, address, value)
            }
            subchannel::COPY => self.copy_method(context, address, value),
            _ => Err(Exception::IllegalMethod {
                class: self.classes[subchannel as usize],
                subchannel,
                address,
                value,
            }),
        }
    }

    fn copy_method(&mut self, context: &Context<'_>, address: u32, value: u32) -> Result<Flow, Exception> {
        self.copy.method(context, address, value).map_err(|e| e.with_registers(self.registers()))
    }

    fn set_object(&mut self, context: &Context<'_>, subchannel: u32, value: u32) -> Result<Flow, Exception> {
        if subchannel > subchannel::COPY {
            return Err(self.error(1 << pbdma_intr_0::DEVICE));
        }
        self.check_context(context)?;
        let class = value & 0xffff;
        let belongs = match Kind::of(class) {
            Some(Kind::Graphics) => subchannel::GRAPHICS,
            Some(Kind::Compute) => subchannel::COMPUTE,
            Some(Kind::InlineToMemory) => subchannel::INLINE_TO_MEMORY,
            Some(Kind::TwoD) => subchannel::TWO_D,
            Some(Kind::Copy) => subchannel::COPY,
            Some(Kind::Host) | None => u32::MAX,
        };
        let copies = is_copy_only(context);
        let reached = if copies { subchannel::COPY } else { subchannel };
        if belongs != reached || !CLASSES.contains(&class) {
            if reached == subchannel::COPY {
                return Err(Exception::Pbdma {
                    intr_0: 0,
                    intr_1: 1 << pbdma_intr_1::HCE_ILLEGAL_CLASS,
                    registers: self.registers(),
                });
            }
            return Err(if CLASSES.contains(&class) {
                Exception::ClassMismatch { class, subchannel }
            } else {
                Exception::IllegalClass { class }
            });
        }
        self.classes[subchannel as usize] = class;
        Ok(Flow::Next)
    }

    /// Engines need the context that `ALLOC_OBJ_CTX` makes.
    fn check_context(&mut self, context: &Context<'_>) -> Result<(), Exception> {
        if self.has_context || context.channel.has_context() {
            self.has_context = true;
            return Ok(());
        }
        Err(Exception::Pbdma {
            intr_0: 0,
            intr_1: 1 << pbdma_intr_1::CTXNOTVALID,
            registers: self.registers(),
        })
    }

    fn error(&self, bit: u32) -> Exception {
        Exception::Pbdma { intr_0: bit, intr_1: 0, registers: self.registers() }
    }
}

/// Whether the channel's runlist has only a copy engine: it receives the methods of all subchannels, and
/// refuses those that it does not have. On the graphics runlist the subchannel chooses the engine.
fn is_copy_only(context: &Context<'_>) -> bool {
    context.channel.runlist() != GRAPHICS_RUNLIST
}

fn fetch_fault(fault: MemoryFault) -> Exception {
    Exception::hub(HubClient::Esc, fault)
}
