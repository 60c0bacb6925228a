//! From bytes to methods, QMDs and semaphores.

use std::collections::HashMap;

use nv_hw::class;
use serde::Serialize;

use crate::gpfifo::{Action, Entry};
use crate::hex::Hex;
use crate::pushbuffer::command::{Command, Generation};
use crate::pushbuffer::decoder::Decoder;
use crate::queue_metadata::description::Metadata;
use crate::trace::submission::recorded::{Launch, RingEntry, Submission};
use crate::trace::submission::semaphores::{Semaphore, Semaphores};

/// A decoded submission.
#[derive(Clone, Debug, Serialize)]
pub struct Decoded {
    /// Name of the channel's class.
    pub class_name: Option<&'static str>,
    /// The entries.
    pub entries: Vec<DecodedEntry>,
    /// Launches that the segments name, in their order, each followed by those that depend on it.
    pub launches: Vec<DecodedLaunch>,
}

/// A GPFIFO entry and its segment.
#[derive(Clone, Debug, Serialize)]
pub struct DecodedEntry {
    /// The entry.
    #[serde(flatten)]
    pub entry: Entry,
    /// Bytes of the segment that were read; absent where it was not mapped in the process.
    pub read_bytes: Option<usize>,
    /// The commands of the segment.
    pub commands: Vec<Command>,
    /// Semaphores that they release and wait for.
    pub semaphores: Vec<Semaphore>,
    /// Errors at which the hardware stops.
    pub problems: Vec<Problem>,
}

/// Something that the hardware stops at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Offset in the segment.
    pub offset: Hex,
    /// The problem.
    pub text: String,
}

/// Memory in which a QMD was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// Memory that the process has mapped.
    Memory,
    /// An inline-to-memory upload of the same channel.
    Upload,
    /// The methods for inline QMDs.
    Inline,
    /// Nowhere: the process has not mapped it.
    NotMapped,
}

/// A launch.
#[derive(Clone, Debug, Serialize)]
pub struct DecodedLaunch {
    /// GPU address of its QMD, where that is known.
    pub address: Option<Hex>,
    /// The QMD that names it as its dependent.
    pub after: Option<Hex>,
    /// Memory in which the QMD was read.
    pub source: Source,
    /// Decoded QMD.
    pub qmd: Option<Metadata>,
    /// Why there is none.
    pub error: Option<String>,
}

/// State of a channel.
#[derive(Debug)]
struct Channel {
    decoder: Decoder,
    semaphores: Semaphores,
    /// Address bits above 40.
    base: u64,
}

/// The channels of the processes of a trace.
#[derive(Debug, Default)]
pub struct Submissions(HashMap<(i32, u32), Channel>);

impl Submissions {
    /// Decodes the next submission of a process.
    pub fn decode(&mut self, pid: i32, submission: &Submission) -> Decoded {
        let number = submission.channel.class.0 as u32;
        let generation =
            if number >= class::HOPPER_CHANNEL_GPFIFO_A { Generation::Hopper } else { Generation::Ampere };
        let new =
            || Channel { decoder: Decoder::new(generation), semaphores: Semaphores::default(), base: 0 };
        let channel = self.0.entry((pid, submission.channel.number)).or_insert_with(new);
        let mut decoded =
            Decoded { class_name: class::name(number), entries: Vec::new(), launches: Vec::new() };
        for entry in &submission.entries {
            let entry = channel.entry(entry, &mut decoded.launches);
            decoded.entries.push(entry);
        }
        decoded.launches.extend(submission.launches.iter().map(DecodedLaunch::of));
        decoded
    }
}

impl Channel {
    fn entry(&mut self, entry: &RingEntry, launches: &mut Vec<DecodedLaunch>) -> DecodedEntry {
        let mut shown = Entry::decode(entry.index as usize, entry.word.0);
        let problem = shown.problem.clone().map(|text| Problem { offset: Hex(0), text });
        let mut decoded = DecodedEntry {
            entry: shown.clone(),
            read_bytes: Some(0),
            commands: Vec::new(),
            semaphores: Vec::new(),
            problems: problem.into_iter().collect(),
        };
        match shown.action {
            Action::ExtendedBase => self.base = (entry.word.0 >> 8 & 0x1_ffff) << 40,
            Action::Fetch => shown.address = Hex(self.base | shown.address.0),
            _ => {}
        }
        decoded.entry = shown;
        if decoded.entry.action != Action::Fetch {
            return decoded;
        }
        decoded.read_bytes = entry.bytes.as_ref().map(|bytes| bytes.0.len());
        let Some(bytes) = &entry.bytes else {
            self.decoder.skip();
            return decoded;
        };
        self.decoder.segment(Some(decoded.entry.address.0), &bytes.0);
        if (bytes.0.len() as u64) < decoded.entry.size_bytes {
            self.decoder.skip();
        }
        let pushbuffer = self.decoder.take();
        let problem = |p: crate::pushbuffer::command::Problem| Problem { offset: p.offset, text: p.text };
        decoded.problems.extend(pushbuffer.problems.into_iter().map(problem));
        decoded.commands = pushbuffer.segments.into_iter().flat_map(|segment| segment.commands).collect();
        for command in &mut decoded.commands {
            // The low byte of a copy class.
            let is_copy = command
                .class
                .is_some_and(|number| class::Kind::of(number.0 as u32) == Some(class::Kind::Copy));
            let found = command.writes.iter().filter_map(|write| self.semaphores.write(write, is_copy));
            decoded.semaphores.extend(found);
            if let Some(inline) = command.qmd.take() {
                let error = inline.metadata.is_none().then(|| "a QMD of no version that is known".to_owned());
                launches.push(DecodedLaunch {
                    address: inline.address,
                    after: None,
                    source: Source::Inline,
                    qmd: inline.metadata,
                    error,
                });
            }
        }
        decoded
    }
}

impl DecodedLaunch {
    fn of(launch: &Launch) -> Self {
        let (source, read) = match &launch.bytes {
            None => (Source::NotMapped, Err("not mapped in the process".to_owned())),
            Some(bytes) => {
                let source = if launch.uploaded { Source::Upload } else { Source::Memory };
                (source, Metadata::read(&bytes.0).map_err(|error| error.to_string()))
            }
        };
        let (qmd, error) = match read {
            Ok(qmd) => (Some(qmd), None),
            Err(error) => (None, Some(error)),
        };
        Self { address: Some(launch.address), after: launch.after, source, qmd, error }
    }
}
