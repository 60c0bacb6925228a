//! From bytes to methods, QMDs and semaphores.

use std::collections::{HashMap, VecDeque};

use nv_hw::class;
use serde::Serialize;

use crate::gpfifo::{Action, Entry};
use crate::hex::Hex;
use crate::pushbuffer::command::{Command, Generation};
use crate::pushbuffer::decoder::Decoder;
use crate::trace::submission::launch::{DecodedLaunch, Source};
use crate::trace::submission::recorded::{Launch, RingEntry, Submission};
use crate::trace::submission::work::{Methods, Started, Work};

/// A decoded submission.
#[derive(Clone, Debug, Serialize)]
pub struct Decoded {
    /// Name of the channel's class.
    pub class_name: Option<&'static str>,
    /// The entries.
    pub entries: Vec<DecodedEntry>,
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
    /// Their work, in order; a launch is followed by those that depend on it.
    pub work: Vec<Work>,
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

/// State of a channel.
#[derive(Debug)]
struct Channel {
    decoder: Decoder,
    methods: Methods,
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
        let new = || Channel { decoder: Decoder::new(generation), methods: Methods::default(), base: 0 };
        let channel = self.0.entry((pid, submission.channel.number)).or_insert_with(new);
        let mut launches = submission.launches.iter().collect();
        let entries = submission.entries.iter().map(|entry| channel.entry(entry, &mut launches));
        Decoded { class_name: class::name(number), entries: entries.collect() }
    }
}

impl Channel {
    fn entry(&mut self, entry: &RingEntry, launches: &mut VecDeque<&Launch>) -> DecodedEntry {
        let mut shown = Entry::decode(entry.index as usize, entry.word.0);
        let problem = shown.problem.clone().map(|text| Problem { offset: Hex(0), text });
        let mut decoded = DecodedEntry {
            entry: shown.clone(),
            read_bytes: Some(0),
            commands: Vec::new(),
            work: Vec::new(),
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
            for started in command.writes.iter().flat_map(|write| self.methods.write(write, is_copy)) {
                match started {
                    Started::Work(work) => decoded.work.push(work),
                    Started::Launch(address) => decoded.work.extend(launched(address, launches)),
                }
            }
            if let Some(inline) = command.qmd.take() {
                let error = inline.metadata.is_none().then(|| "a QMD of no version that is known".to_owned());
                let launch = DecodedLaunch::new(inline.address, Source::Inline, inline.metadata, error);
                decoded.work.push(Work::Launch(Box::new(launch)));
            }
        }
        decoded
    }
}

/// The next launch that was read for an address, and those that depend on it.
fn launched(address: u64, launches: &mut VecDeque<&Launch>) -> Vec<Work> {
    let is_it = |launch: &&Launch| launch.after.is_none() && launch.address.0 == address;
    let mut found = Vec::new();
    if let Some(at) = launches.iter().position(is_it) {
        launches.drain(..at);
        found.extend(launches.pop_front().map(DecodedLaunch::of));
        while launches.front().is_some_and(|launch| launch.after.is_some()) {
            found.extend(launches.pop_front().map(DecodedLaunch::of));
        }
    }
    if found.is_empty() {
        let error = Some("not read, past the limit of launches".to_owned());
        found.push(DecodedLaunch::new(Some(Hex(address)), Source::NotMapped, None, error));
    }
    found.into_iter().map(|launch| Work::Launch(Box::new(launch))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::bytes::Bytes;
    use crate::trace::submission::recorded;
    use crate::trace::submission::work::Copy;

    #[test]
    fn fills_and_uploads_are_copies_without_a_source() {
        // Headers of methods that increase: count, subchannel, method.
        let header =
            |count: u32, subchannel: u32, method: u32| 1 << 29 | count << 16 | subchannel << 13 | method >> 2;
        let fill = [
            &[header(1, 4, 0x700), 5, header(1, 4, 0x708), 0x3_0004][..],
            &[header(2, 4, 0x408), 1, 0x2000, header(1, 4, 0x418), 0x100],
            &[header(1, 4, 0x300), 0x581],
        ];
        let upload = [
            &[header(4, 1, 0x180), 8, 1, 1, 0x4500][..],
            &[header(1, 1, 0x1b0), 0x41, header(2, 1, 0x1b4), 1, 2],
        ];
        let words = [fill.concat(), upload.concat()].concat();
        let entry = RingEntry {
            index: 0,
            word: Hex(0x1_0000_1000 | (words.len() as u64) << 42),
            bytes: Some(Bytes(words.iter().flat_map(|word| word.to_le_bytes()).collect())),
        };
        let class = Hex(class::AMPERE_CHANNEL_GPFIFO_B.into());
        let channel = recorded::Channel { number: 1, class, ..recorded::Channel::default() };
        let submission = Submission { channel, entries: vec![entry], ..Submission::default() };
        let decoded = Submissions::default().decode(1, &submission);
        let copies: Vec<&Copy> = decoded.entries[0]
            .work
            .iter()
            .map(|work| match work {
                Work::Copy(copy) => copy,
                other => panic!("{other:?}"),
            })
            .collect();
        let copy = |to, size_bytes, fill| Copy { from: None, to: Hex(to), size_bytes, lines: 1, fill };
        assert_eq!(copies, [&copy(0x1_0000_2000, 0x400, Some(Hex(5))), &copy(0x1_0000_4500, 8, None)]);
    }
}
