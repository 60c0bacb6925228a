//! The host's pushbuffer unit: ring entries, method headers, and routing methods to the unit that serves them.
//!
//! Formats: open-gpu-doc `clc76f.h` and `dev_pbdma`.

use crate::driver::channel::{Channel, Ring};
use crate::driver::machine::Machine;
use crate::gpu::device::Gpu;
use crate::gpu::exception::{Exception, HubClient};
use crate::gpu::memory::GpuMemory;
use crate::gpu::methods::{ComputeMethods, CopyMethods, HostMethods};
use crate::gpu::semaphore::Acquire;
use crate::gpu::sm::MemoryFault;
use std::sync::Arc;

/// Interrupt bits of the pushbuffer unit (`INTR_0`).
pub(crate) mod intr {
    /// GP_PUT beyond the ring.
    pub(crate) const GPPTR: u32 = 1 << 14;
    /// A ring entry that means nothing.
    pub(crate) const GPENTRY: u32 = 1 << 15;
    /// A method header that means nothing.
    pub(crate) const PBENTRY: u32 = 1 << 18;
    /// A host method that does not exist or may not be used.
    pub(crate) const METHOD: u32 = 1 << 21;
    /// A software class.
    pub(crate) const DEVICE: u32 = 1 << 23;
    /// A semaphore method with a bad address or operation.
    pub(crate) const SEMAPHORE: u32 = 1 << 25;
}

/// Interrupt bits for the copy engine's own checks and missing contexts (`INTR_1`).
pub(crate) mod intr1 {
    /// A method of the copy class that does not exist.
    pub(crate) const HCE_ILLEGAL_METHOD: u32 = 1 << 3;
    /// A class that is not the copy class.
    pub(crate) const HCE_ILLEGAL_CLASS: u32 = 1 << 4;
    /// The channel's group has no context for the engine.
    pub(crate) const CONTEXT_NOT_VALID: u32 = 1 << 31;
}

/// Methods below this offset belong to the host, whatever the subchannel.
const HOST_METHODS: u32 = 0x100;
/// End of the method space.
const METHOD_END: u32 = 0x4000;
/// Reach of ring entries.
const ENTRY_VA_END: u64 = 1 << 40;
/// Words fetched at once.
const FETCH_WORDS: u32 = 1024;
/// Classes that the driver and the engines of ga10b take.
pub(crate) const CLASSES: &[u32] = &[
    0xc7c0, 0xc5c0, 0xc3c0, 0xc0c0, 0xb1c0, 0xc797, 0xc597, 0xc397, 0xc097, 0xb197, 0xc7b5, 0xc5b5, 0xc3b5,
    0xc0b5, 0xb0b5, 0xa0b5, 0xc76f, 0xc46f, 0xc36f, 0xc06f, 0xb06f, 0x902d, 0xa140, 0xc637, 0xc4b7,
];
/// The runlist of graphics, compute and a copy engine of their own.
const GRAPHICS_RUNLIST: u32 = 0;
/// Methods after which another channel gets its turn.
const TURN: u32 = 4096;

/// One ring entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A pushbuffer segment.
    Segment {
        /// Address of the first word.
        va: u64,
        /// Number of words.
        words: u32,
        /// Called from another segment; only which GET register shows it differs.
        subroutine: bool,
    },
    /// Nothing to fetch.
    Nop,
}

impl Entry {
    /// Decodes an entry; `None` raises GPENTRY.
    pub(crate) fn decode(entry: u64) -> Option<Self> {
        let words = (entry >> 42) as u32 & 0x1f_ffff;
        let high = entry >> 32 & 0xff;
        if words == 0 {
            // Operations: 0 nothing, 1 illegal, 2 and 3 checksums, which are off.
            return if matches!(high, 0 | 2 | 3) { Some(Self::Nop) } else { None };
        }
        let va = high << 32 | entry & 0xffff_fffc;
        let end = va + u64::from(words) * 4;
        if entry >> 40 & 1 != 0 || end >= ENTRY_VA_END {
            return None;
        }
        Some(Self::Segment { va, words, subroutine: entry >> 41 & 1 != 0 })
    }
}

/// What a method header asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Header {
    /// Nothing.
    Nop,
    /// Data words follow.
    Data {
        /// How the address moves.
        step: Step,
        /// Byte address of the first method.
        address: u32,
        /// Subchannel.
        subchannel: u32,
        /// Words that follow.
        count: u32,
    },
    /// The value is in the header.
    Immediate {
        /// Byte address.
        address: u32,
        /// Subchannel.
        subchannel: u32,
        /// 13 bits.
        value: u32,
    },
    /// The rest of the segment is skipped.
    EndSegment,
}

/// How the method address moves from word to word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Step {
    /// Every word goes to the next method.
    #[default]
    Increment,
    /// Every word goes to the same method.
    Stay,
    /// The first word goes to the method, all others to the next one.
    Once,
}

impl Header {
    /// Decodes a header word; `None` raises PBENTRY.
    pub(crate) fn decode(word: u32) -> Option<Self> {
        let address = (word & 0xfff) << 2;
        let subchannel = word >> 13 & 7;
        let count = word >> 16 & 0x1fff;
        let legacy =
            |step| Self::Data { step, address: word & 0x1ffc, subchannel, count: word >> 18 & 0x7ff };
        Some(match word >> 29 {
            0 if word == 0 => Self::Nop,
            // Sub-device masks (bits 17:16 not 0) select among linked GPUs; there is one.
            0 if word >> 16 & 3 != 0 => Self::Nop,
            0 => legacy(Step::Increment),
            1 => Self::Data { step: Step::Increment, address, subchannel, count },
            2 => legacy(Step::Stay),
            3 => Self::Data { step: Step::Stay, address, subchannel, count },
            4 => Self::Immediate { address, subchannel, value: count },
            5 => Self::Data { step: Step::Once, address, subchannel, count },
            7 => Self::EndSegment,
            _ => return None,
        })
    }
}

/// What a channel's turn ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// Nothing left to do.
    Idle,
    /// Waits for a semaphore.
    Blocked,
    /// There is more to do.
    More,
}

/// What a method led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Go on.
    Next,
    /// Nothing more until a semaphore has its value.
    Acquire(Acquire),
    /// A launch that never ends.
    Hang,
}

/// State of the pushbuffer unit for one channel, with the engines' method state behind it.
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
    hung: bool,
    scheduled: bool,
    has_context: bool,
    classes: [u32; 8],
    host: HostMethods,
    compute: ComputeMethods,
    copy: CopyMethods,
}

/// Everything a method may need.
#[derive(Debug)]
pub(crate) struct Context<'a> {
    /// The machine.
    pub(crate) machine: &'a Machine,
    /// The GPU.
    pub(crate) gpu: &'a Gpu,
    /// The channel whose turn it is.
    pub(crate) channel: &'a Arc<Channel>,
    /// Its ring.
    pub(crate) ring: &'a Ring,
    /// Its memory.
    pub(crate) memory: GpuMemory<'a>,
}

/// Registers that the driver prints when the pushbuffer unit stops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PbdmaRegisters {
    /// Decoded header.
    pub(crate) header: u32,
    /// Raw header.
    pub(crate) shadow: u32,
    /// Ring entry.
    pub(crate) entry: u64,
    /// First method of the method FIFO.
    pub(crate) method: u32,
    /// Fetch index.
    pub(crate) gp_get: u32,
    /// Address of the next word.
    pub(crate) get: u64,
    /// End of the segment.
    pub(crate) put: u64,
    /// Semaphore: address, payload, operation.
    pub(crate) semaphore: (u64, u64, u32),
}

impl Pbdma {
    /// Whether the channel still has work from an earlier doorbell.
    pub(crate) fn is_scheduled(&self) -> bool {
        self.scheduled
    }

    /// Gives the channel its turn.
    pub(crate) fn turn(&mut self, context: &Context<'_>) -> Result<Turn, Exception> {
        let turn = self.run(context);
        self.scheduled = matches!(turn, Ok(Turn::Blocked | Turn::More));
        turn
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

    /// Works for the channel until it has nothing to do, waits, or has had its turn.
    fn run(&mut self, context: &Context<'_>) -> Result<Turn, Exception> {
        let mut methods = 0;
        if self.hung {
            return Ok(Turn::Idle);
        }
        loop {
            if !self.host.poll(context)? {
                return Ok(Turn::Blocked);
            }
            if methods >= TURN || context.channel.is_unserviceable() || context.channel.is_closing() {
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
                Flow::Hang => {
                    self.hung = true;
                    return Ok(Turn::Idle);
                }
            }
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
            return Err(self.error(intr::GPPTR));
        }
        if put == self.get {
            return Ok(false);
        }
        let words = context.memory.words(ring.va + u64::from(self.get) * 8, 2).map_err(fetch_fault)?;
        self.entry = u64::from(words[1]) << 32 | u64::from(words[0]);
        self.get = (self.get + 1) % ring.entries;
        let Some(entry) = Entry::decode(self.entry) else { return Err(self.error(intr::GPENTRY)) };
        if let Entry::Segment { va, words, .. } = entry {
            self.segment = Some((va, words));
        }
        ring.set_get(self.get);
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
            if address >= METHOD_END {
                return Err(self.error(intr::PBENTRY));
            }
            return self.method(context, self.subchannel, address, word);
        }
        self.header = word;
        match Header::decode(word).ok_or_else(|| self.error(intr::PBENTRY))? {
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
        if address == 0 {
            return self.set_object(context, subchannel, value);
        }
        if address < HOST_METHODS {
            return self.host.method(context, address, value).map_err(|e| e.with_registers(self.registers()));
        }
        if subchannel > 4 {
            return Err(self.error(intr::DEVICE));
        }
        self.check_context(context)?;
        if is_copy_only(context) {
            return self.copy_method(context, address, value);
        }
        match subchannel {
            1 | 2 => {
                self.compute.method(context, self.classes[subchannel as usize], subchannel, address, value)
            }
            4 => self.copy_method(context, address, value),
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
        if subchannel > 4 {
            return Err(self.error(intr::DEVICE));
        }
        self.check_context(context)?;
        let class = value & 0xffff;
        let belongs = match class & 0xff {
            0x97 => 0,
            0xc0 => 1,
            0x40 => 2,
            0x2d => 3,
            0xb5 => 4,
            _ => 8,
        };
        let copies = is_copy_only(context);
        let reached = if copies { 4 } else { subchannel };
        if belongs != reached || !CLASSES.contains(&class) {
            if reached == 4 {
                return Err(Exception::Pbdma {
                    intr_0: 0,
                    intr_1: intr1::HCE_ILLEGAL_CLASS,
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
        Err(Exception::Pbdma { intr_0: 0, intr_1: intr1::CONTEXT_NOT_VALID, registers: self.registers() })
    }

    fn error(&self, bit: u32) -> Exception {
        Exception::Pbdma { intr_0: bit, intr_1: 0, registers: self.registers() }
    }
}

/// Whether there is only a copy engine behind the channel's runlist: it gets the methods of all subchannels, and refuses what it
/// does not know. On the graphics runlist the subchannel chooses the engine.
fn is_copy_only(context: &Context<'_>) -> bool {
    context.channel.runlist() != GRAPHICS_RUNLIST
}

fn fetch_fault(fault: MemoryFault) -> Exception {
    Exception::hub(HubClient::Esc, fault)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_decode_as_documented() {
        let segment = |subroutine| Entry::Segment { va: 0x1_2345_6780, words: 10, subroutine };
        assert_eq!(Entry::decode(0x0000_2801_2345_6780), Some(segment(false)));
        assert_eq!(Entry::decode(0x0000_2a01_2345_6780), Some(segment(true)));
        assert_eq!(Entry::decode(0), Some(Entry::Nop));
        assert_eq!(Entry::decode(1 << 32), None);
        assert_eq!(Entry::decode(1 << 42 | 0xff_ffff_fffc), None);
    }

    #[test]
    fn headers_decode_as_documented() {
        let data = |step, address, subchannel, count| Header::Data { step, address, subchannel, count };
        assert_eq!(Header::decode(0x2005_0017), Some(data(Step::Increment, 0x5c, 0, 5)));
        assert_eq!(Header::decode(0x2001_20ad), Some(data(Step::Increment, 0x2b4, 1, 1)));
        assert_eq!(Header::decode(0x6008_206d), Some(data(Step::Stay, 0x1b4, 1, 8)));
        let immediate = Header::Immediate { address: 0x2c0, subchannel: 1, value: 9 };
        assert_eq!(Header::decode(0x8009_20b0), Some(immediate));
        assert_eq!(Header::decode(6 << 29), None);
        assert_eq!(Header::decode(0), Some(Header::Nop));
    }

    proptest! {
        /// Any word is a header or an error, and never addresses anything outside the method space.
        #[test]
        fn any_word_decodes(word in any::<u32>(), entry in any::<u64>()) {
            match Header::decode(word) {
                Some(Header::Data { address, subchannel, .. } | Header::Immediate { address, subchannel, .. }) => {
                    prop_assert!(address < METHOD_END && subchannel < 8);
                }
                Some(Header::Nop | Header::EndSegment) => {}
                None => prop_assert_eq!(word >> 29, 6),
            }
            if let Some(Entry::Segment { va, words, .. }) = Entry::decode(entry) {
                prop_assert!(words > 0 && va % 4 == 0 && va + u64::from(words) * 4 < ENTRY_VA_END);
            }
        }
    }
}
