//! From words to commands: headers, the data that follows them, and the state after them.

use nv_hw::class::c7c0::LOAD_INLINE_QMD_DATA;
use nv_hw::class::{self, Class, FIRST_ENGINE_METHOD, Field, Kind, METHOD_SPACE, Method};

use crate::gpfifo::{Action, Entry};
use crate::hex::Hex;
use crate::pushbuffer::command::{
    Command, FieldValue, Generation, InlineQmd, Problem, Pushbuffer, Segment, Write,
};
use crate::pushbuffer::halves::{Half, whole};
use crate::queue_metadata::description::Metadata;

/// Subchannels whose engine methods stop the channel: they were for software classes.
const SOFTWARE_SUBCHANNELS: std::ops::RangeInclusive<u8> = 5..=7;
/// Words that are decoded: a ring may name the same segment a million times.
const MAX_WORDS: usize = 1 << 21;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Increment,
    Fixed,
    IncrementOnce,
}

/// A method whose data words are still to come.
#[derive(Clone, Copy, Debug)]
struct Pending {
    mode: Mode,
    subchannel: u8,
    method: u32,
    remaining: usize,
}

/// Decodes the segments of one channel, in order.
#[derive(Debug)]
pub struct Decoder {
    generation: Generation,
    bound: [Option<u32>; 8],
    pending: Option<Pending>,
    half: Option<Half>,
    qmd_address: Option<u64>,
    qmd: Vec<u8>,
    words: usize,
    result: Pushbuffer,
}

impl Decoder {
    /// A channel as it is before its first command.
    #[must_use]
    pub fn new(generation: Generation) -> Self {
        let mut bound = [None; 8];
        (bound[1], bound[4]) = (Some(generation.compute()), Some(generation.copy()));
        Self {
            generation,
            bound,
            pending: None,
            half: None,
            qmd_address: None,
            qmd: Vec::new(),
            words: 0,
            result: Pushbuffer::default(),
        }
    }

    /// Binds a class to a subchannel; subchannels above 7 do not exist and are ignored.
    #[must_use]
    pub fn bind(mut self, subchannel: u8, class: u32) -> Self {
        if let Some(bound) = self.bound.get_mut(usize::from(subchannel)) {
            *bound = Some(class);
        }
        self
    }

    /// Decodes a GPFIFO, and the segments for which `memory` (GPU address and length in bytes) has content.
    pub fn gpfifo<'m>(&mut self, bytes: &[u8], memory: impl Fn(u64, u64) -> Option<&'m [u8]>) {
        let mut base = 0;
        for entry in Entry::decode_all(bytes) {
            let offset = Hex((entry.index * crate::gpfifo::ENTRY_BYTES) as u64);
            if let Some(text) = entry.problem.clone() {
                self.result.problems.push(Problem { segment: None, offset, text });
            }
            match entry.action {
                Action::ExtendedBase => base = (entry.word.0 >> 8 & 0x1_ffff) << 40,
                Action::Fetch => {
                    let address = base | entry.address.0;
                    match memory(address, entry.size_bytes) {
                        Some(words) => self.segment(Some(address), words),
                        // The state after it is not known.
                        None => self.skip(),
                    }
                }
                _ => {}
            }
            self.result.gpfifo.push(entry);
        }
        if !bytes.len().is_multiple_of(crate::gpfifo::ENTRY_BYTES) {
            let offset = Hex((bytes.len() / crate::gpfifo::ENTRY_BYTES * crate::gpfifo::ENTRY_BYTES) as u64);
            self.result.problems.push(Problem {
                segment: None,
                offset,
                text: "the last entry is cut off".to_owned(),
            });
        }
    }

    /// Decodes one segment.
    pub fn segment(&mut self, address: Option<u64>, bytes: &[u8]) {
        let index = self.result.segments.len();
        let decoded_before = self.words;
        self.words = self.words.saturating_add(bytes.len() / 4);
        if self.words > MAX_WORDS {
            if decoded_before <= MAX_WORDS {
                let text =
                    format!("more than {MAX_WORDS} words: this segment and those after it are left out");
                self.problem(index, 0, text);
            }
            return;
        }
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .filter_map(|chunk| chunk.first_chunk())
            .map(|chunk| u32::from_le_bytes(*chunk))
            .collect();
        self.result.segments.push(Segment {
            address: address.map(Hex),
            size_bytes: bytes.len() as u64,
            commands: Vec::new(),
        });
        let mut at = 0;
        if let Some(pending) = self.pending.take() {
            at = self.data(index, 0, None, pending, &words);
        }
        while at < words.len() {
            at = self.command(index, at, &words);
        }
        if !bytes.len().is_multiple_of(4) {
            self.problem(index, words.len(), format!("{} bytes after the last word", bytes.len() % 4));
        }
    }

    /// A segment is missing: the state at the next one is not known.
    pub fn skip(&mut self) {
        (self.pending, self.half) = (None, None);
    }

    /// Takes the output since the last call; the state of the channel stays.
    #[must_use]
    pub fn take(&mut self) -> Pushbuffer {
        self.words = 0;
        std::mem::take(&mut self.result)
    }

    /// Ends the capture.
    #[must_use]
    pub fn finish(mut self) -> Pushbuffer {
        if let (Some(pending), Some(last)) = (self.pending, self.result.segments.len().checked_sub(1)) {
            let at = self.result.segments[last].size_bytes as usize / 4;
            let (missing, method) = (pending.remaining, pending.method);
            self.problem(last, at, format!("the capture ends {missing} words short of method {method:#06x}"));
        }
        self.result
    }

    fn problem(&mut self, segment: usize, word: usize, text: String) {
        let offset = Hex(word as u64 * 4);
        self.result.problems.push(Problem { segment: Some(segment), offset, text });
    }

    fn push(&mut self, segment: usize, command: Command) {
        if let Some(segment) = self.result.segments.get_mut(segment) {
            segment.commands.push(command);
        }
    }

    /// Decodes the command whose header is word `at`; the place of the next.
    fn command(&mut self, segment: usize, at: usize, words: &[u32]) -> usize {
        let header = words[at];
        let plain = |form, words| Command {
            offset: Hex(at as u64 * 4),
            header: Some(Hex(header.into())),
            form,
            subchannel: None,
            class: None,
            class_name: None,
            words,
            writes: Vec::new(),
            qmd: None,
        };
        let rest = &words[at..];
        if header == 0 {
            let zeros = rest.iter().take_while(|w| **w == 0).count();
            self.push(segment, plain("nop", zeros));
            return at + zeros;
        }
        let subchannel = (header >> 13 & 7) as u8;
        let count = (header >> 16 & 0x1fff) as usize;
        let method = (header & 0xfff) * 4;
        let legacy = (header >> 18 & 0x7ff) as usize;
        // The legacy forms keep the byte address in bits 12:2.
        let (mode, method, count) = match (header >> 29, header >> 16 & 3) {
            (1, _) => (Mode::Increment, method, count),
            (3, _) => (Mode::Fixed, method, count),
            (5, _) => (Mode::IncrementOnce, method, count),
            (4, _) => {
                self.check(segment, at, header, subchannel, method);
                let mut command = self.methods(plain("immediate", 0), subchannel, method);
                let write = self.write(segment, at, subchannel, method, count as u32, &mut command);
                command.writes.push(write);
                self.push(segment, command);
                return at + 1;
            }
            (0, 0) => (Mode::Increment, header & 0x1ffc, legacy),
            (2, 0) => (Mode::Fixed, header & 0x1ffc, legacy),
            (0, form) => {
                let form =
                    ["", "set_subdevice_mask", "store_subdevice_mask", "use_subdevice_mask"][form as usize];
                self.push(segment, plain(form, 0));
                return at + 1;
            }
            (7, _) => {
                self.push(segment, plain("end", rest.len() - 1));
                return words.len();
            }
            _ => {
                let text = format!("{header:#010x} is no header: the channel stops (PBENTRY)");
                self.problem(segment, at, text);
                // The hardware reads no further; the rest is shown in case the capture began in the middle.
                self.push(segment, plain("reserved", 0));
                return at + 1;
            }
        };
        self.check(segment, at, header, subchannel, method);
        let pending = Pending { mode, subchannel, method, remaining: count };
        self.data(segment, at + 1, Some(plain(form_name(header), count)), pending, words)
    }

    /// Complaints about a header of methods.
    fn check(&mut self, segment: usize, at: usize, header: u32, subchannel: u8, method: u32) {
        if matches!(header >> 29, 1 | 3 | 4 | 5) && header >> 12 & 1 != 0 {
            self.problem(
                segment,
                at,
                format!("bit 12 of header {header:#010x} is set, which has no meaning"),
            );
        }
        if SOFTWARE_SUBCHANNELS.contains(&subchannel) && method >= FIRST_ENGINE_METHOD {
            let text = format!("subchannel {subchannel} is for software methods: the channel stops (DEVICE)");
            self.problem(segment, at, text);
        }
    }

    /// Sets the class that takes the methods of a command.
    fn methods(&self, mut command: Command, subchannel: u8, method: u32) -> Command {
        let number = match method < FIRST_ENGINE_METHOD && method != 0 {
            true => Some(self.generation.host()),
            false => self.bound.get(usize::from(subchannel)).copied().flatten(),
        };
        command.subchannel = Some(subchannel);
        command.class = number.map(|n| Hex(n.into()));
        command.class_name = number.and_then(class::name);
        command
    }

    /// Decodes data words from `at` on; the place of the next header.
    fn data(
        &mut self,
        segment: usize,
        at: usize,
        command: Option<Command>,
        pending: Pending,
        words: &[u32],
    ) -> usize {
        let Pending { mode, subchannel, mut method, remaining } = pending;
        let continued = Command {
            offset: Hex(at as u64 * 4),
            header: None,
            form: "continued",
            subchannel: None,
            class: None,
            class_name: None,
            words: remaining,
            writes: Vec::new(),
            qmd: None,
        };
        let mut command = self.methods(command.unwrap_or(continued), subchannel, method);
        let here = remaining.min(words.len() - at);
        let (mut mode, mut past) = (mode, false);
        for (i, value) in words[at..at + here].iter().enumerate() {
            if method >= METHOD_SPACE && !past {
                past = true;
                let text = "the methods run past the end of the method space: the channel stops (PBENTRY)";
                self.problem(segment, at + i, text.to_owned());
            }
            let write = self.write(segment, at + i, subchannel, method, *value, &mut command);
            command.writes.push(write);
            match mode {
                Mode::Increment => method += 4,
                Mode::IncrementOnce => (method, mode) = (method + 4, Mode::Fixed),
                Mode::Fixed => {}
            }
        }
        if here < remaining {
            self.pending = Some(Pending { mode, subchannel, method, remaining: remaining - here });
        }
        self.push(segment, command);
        at + here
    }

    /// Decodes one write and follows its effect on the state of the channel.
    fn write(
        &mut self,
        segment: usize,
        at: usize,
        subchannel: u8,
        method: u32,
        value: u32,
        command: &mut Command,
    ) -> Write {
        let plain = Write {
            method: Hex(method.into()),
            name: None,
            index: None,
            value: Hex(value.into()),
            fields: Vec::new(),
            note: None,
        };
        if method == 0 {
            self.bound[usize::from(subchannel)] = Some(value & 0xffff);
        }
        // SET_OBJECT reaches the engine, but the host's table knows it whatever the class.
        let host = method < FIRST_ENGINE_METHOD;
        let number = match host {
            true => Some(self.generation.host()),
            false => self.bound[usize::from(subchannel)],
        };
        let Some((number, class)) = number.and_then(|n| Some((n, Class::nearest(n)?))) else { return plain };
        let found = class.method(method).or_else(|| {
            // Hopper's public header leaves most of the host methods out; they are Ampere's.
            Class::find(Generation::Ampere.host()).filter(|_| host)?.method(method)
        });
        let Some((known, index)) = found else {
            if host {
                self.problem(
                    segment,
                    at,
                    format!("{method:#06x} is no host method: the channel stops (METHOD)"),
                );
            } else if class.number == number {
                self.problem(segment, at, format!("{} has no method {method:#06x}", class.name));
            }
            return plain;
        };
        if host && known.name == "ILLEGAL" {
            self.problem(segment, at, "the ILLEGAL method: the channel stops (METHOD)".to_owned());
        }
        let note = self.follow(segment, at, subchannel, class.kind, method, known, value, command);
        Write { name: Some(known.name), index, fields: fields(known, value), note, ..plain }
    }

    /// Interprets a write together with those before it.
    #[expect(
        clippy::too_many_arguments,
        reason = "the place of a write and the write, from the one call above"
    )]
    fn follow(
        &mut self,
        segment: usize,
        at: usize,
        subchannel: u8,
        kind: Kind,
        method: u32,
        known: &'static Method,
        value: u32,
        command: &mut Command,
    ) -> Option<String> {
        let half = Half { subchannel, method, known, value };
        let pair = self.half.replace(half).and_then(|before| whole(before, half));
        if kind == Kind::Compute && (LOAD_INLINE_QMD_DATA..LOAD_INLINE_QMD_DATA + 96 * 4).contains(&method) {
            self.load_qmd(method, value, command);
        }
        match known.name {
            "SET_OBJECT" => Some(match class::name(value & 0xffff) {
                Some(class) => format!("binds {class}"),
                None => format!("binds class {:#06x}", value & 0xffff),
            }),
            "SEND_PCAS_A" => Some(format!("QMD at {:#x}", u64::from(value) << 8)),
            "SET_INLINE_QMD_ADDRESS_A" => {
                self.qmd.clear();
                None
            }
            "SET_INLINE_QMD_ADDRESS_B" => {
                // Bit 30 of the upper word chooses the longer form on Hopper; addresses have 57 bits at most.
                self.qmd_address = pair.map(|p| (p & ((1 << 49) - 1)) << 8);
                self.qmd_address.map(|a| format!("QMD kept at {a:#x}"))
            }
            "SEM_EXECUTE" => {
                let named = known.fields.iter().fold(0, |mask, field| mask | field.mask());
                if value & !named != 0 {
                    let bits = value & !named;
                    let text =
                        format!("SEM_EXECUTE has undefined bits {bits:#010x}: the channel stops (SEMAPHORE)");
                    self.problem(segment, at, text);
                }
                None
            }
            _ => pair.map(|p| format!("{p:#x}")),
        }
    }

    /// Takes a word of an inline QMD; the last one completes it.
    fn load_qmd(&mut self, method: u32, value: u32, command: &mut Command) {
        if method == LOAD_INLINE_QMD_DATA {
            self.qmd.clear();
        }
        if self.qmd.len() as u32 == method - LOAD_INLINE_QMD_DATA {
            self.qmd.extend(value.to_le_bytes());
        }
        let is_hopper =
            |class: &u32| Kind::of(*class) == Some(Kind::Compute) && *class >= class::HOPPER_COMPUTE_A;
        let size = match self.bound.iter().flatten().any(is_hopper) {
            true => qmd::Version::V04.size(),
            false => qmd::Version::V03.size(),
        };
        if self.qmd.len() == size {
            let metadata = Metadata::read(&self.qmd).ok();
            command.qmd = Some(InlineQmd { address: self.qmd_address.map(Hex), metadata });
            self.qmd.clear();
        }
    }
}

const fn form_name(header: u32) -> &'static str {
    match header >> 29 {
        0 => "legacy_inc",
        1 => "inc",
        2 => "legacy_non_inc",
        3 => "non_inc",
        _ => "one_inc",
    }
}

/// The fields worth showing: all, or those that are not zero where a method's fields depend on one another.
fn fields(method: &Method, word: u32) -> Vec<FieldValue> {
    let overlap = method
        .fields
        .iter()
        .enumerate()
        .any(|(i, field)| method.fields.iter().skip(i + 1).any(|other| field.mask() & other.mask() != 0));
    let value = |field: &Field| {
        let value = field.of(word);
        FieldValue { name: field.name, value, value_name: field.value_name(value) }
    };
    let fields = method.fields.iter().map(value);
    fields.filter(|field| !overlap || field.value != 0).collect()
}
