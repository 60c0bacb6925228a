//! Sequences of requests on the model, against the driver's answers.

use super::bytes::{Argument, Field};
use ga10b_sim::{Consequence, Sim};
use nix::errno::Errno;
use nvgpu_sys::Sys;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::fd::OwnedFd;

/// A number that is no descriptor's.
pub const NO_DESCRIPTOR: i32 = 0x7fff_0000;
/// Most differences that a failure lists.
const MOST_SHOWN: usize = 400;
/// No memory of the process.
const NO_MEMORY: u64 = 16;

/// The client of a sequence.
pub trait Replayed {
    /// On a new machine.
    fn new() -> Self;

    /// The machine.
    fn sim(&self) -> &Sim;

    /// The number that stands for a name in an argument.
    fn descriptor(&self, name: &str) -> Result<i32, String>;

    /// Address of a mapping.
    fn mapping(&self, name: &str) -> Result<u64, String> {
        Err(format!("no mapping {name}"))
    }

    /// Executes a line, and returns its result in the form of the record.
    fn run(&mut self, words: &[&str]) -> Result<String, String>;
}

pub fn hex(text: &str) -> Result<u64, String> {
    u64::from_str_radix(text, 16).map_err(|e| format!("`{text}`: {e}"))
}

pub fn number(text: &str, kind: char) -> Result<usize, String> {
    let digits = text.strip_prefix(kind).ok_or_else(|| format!("`{text}` is no {kind}"))?;
    digits.parse().map_err(|e| format!("`{text}`: {e}"))
}

pub fn refused(errno: Errno) -> String {
    format!("!{}", errno as i32)
}

/// Bytes of a request's argument: without one, its value.
pub fn argument_bytes(request: u32) -> usize {
    match (request >> 16 & 0x3fff) as usize {
        0 => 4,
        bytes => bytes,
    }
}

/// Writes descriptors and addresses into an argument.
pub fn fill(client: &impl Replayed, argument: &mut Argument) -> Result<(), String> {
    for field in &argument.fields {
        let at = field.at();
        let address = match field {
            Field::Descriptor { name, .. } => {
                argument.bytes[at..at + 4].copy_from_slice(&client.descriptor(name)?.to_ne_bytes());
                continue;
            }
            Field::Descriptors { memory, names, .. } => {
                let bytes = &mut argument.memories[*memory].bytes;
                for (slot, name) in names.iter().enumerate() {
                    bytes[4 * slot..4 * slot + 4].copy_from_slice(&client.descriptor(name)?.to_ne_bytes());
                }
                bytes.as_ptr() as u64
            }
            Field::Memory { memory, .. } => argument.memories[*memory].bytes.as_mut_ptr() as u64,
            Field::NoMemory { .. } => NO_MEMORY,
            Field::Mapped { mapping, offset, .. } => client.mapping(mapping)? + offset,
            Field::NewFile { .. } | Field::Ignored { .. } => continue,
        };
        argument.bytes[at..at + 8].copy_from_slice(&address.to_ne_bytes());
    }
    Ok(())
}

/// Calls so far that a real machine does not survive, or not unharmed.
fn crashes(sim: &Sim) -> usize {
    let fatal = [Consequence::Freeze, Consequence::Hang, Consequence::Corruption];
    sim.violations().iter().filter(|v| fatal.contains(&v.consequence)).count()
}

/// Numbers of comparisons.
#[derive(Debug, Default)]
struct Counts {
    calls: usize,
    refused: usize,
    /// Calls that the driver does not survive: the model reports them.
    crashes: usize,
    by_request: BTreeMap<String, [usize; 2]>,
}

/// Replays one sequence; the error says where the two part.
fn replay<C: Replayed>(lines: &[&str], counts: &mut Counts) -> Result<(), String> {
    let mut client = C::new();
    for line in lines {
        let (call, answer) = line.split_once(" = ").unwrap_or((line, ""));
        let words: Vec<&str> = call.split(' ').collect();
        let before = crashes(client.sim());
        let got = client.run(&words).map_err(|e| format!("{line}\n  {e}"))?;
        if let Some(place) = answer.strip_prefix("!BUG ") {
            counts.crashes += 1;
            if crashes(client.sim()) == before {
                return Err(format!("{line}\n  the driver: {place}, the model: {got}, without a warning"));
            }
            return Ok(());
        }
        if got != answer {
            return Err(format!("{line}\n  the driver: {answer}, the model: {got}"));
        }
        let name = match words[0] {
            "I" => words[2],
            "O" => "open",
            "C" => "close",
            "D" | "M" => "mmap",
            "U" => "munmap",
            _ => continue,
        };
        counts.calls += 1;
        let of = counts.by_request.entry(name.to_owned()).or_default();
        of[0] += 1;
        if answer.starts_with(['!', '+']) {
            counts.refused += 1;
            of[1] += 1;
        }
    }
    Ok(())
}

/// Replays all sequences of a record.
pub fn compare<C: Replayed>(bytes: &[u8]) {
    let mut counts = Counts::default();
    let found = sequences(bytes, |lines| replay::<C>(lines, &mut counts));
    for (name, [calls, refused]) in &counts.by_request {
        println!("{name:50} {calls:6} {refused:6}");
    }
    let Counts { calls, refused, crashes, .. } = &counts;
    let Found { sequences, .. } = &found;
    println!("Counts {{ sequences: {sequences}, calls: {calls}, refused: {refused}, crashes: {crashes} }}");
    found.assert_alike();
}

/// Result of the sequences of a record.
#[derive(Debug)]
pub struct Found {
    pub sequences: usize,
    different: usize,
    /// First differences from the model.
    differences: String,
}

impl Found {
    pub fn assert_alike(&self) {
        let Self { sequences, different, differences } = self;
        assert!(*different == 0, "{different} of {sequences} sequences differ\n{differences}");
    }
}

/// Replays each sequence of a record, whose lines `replay` takes.
pub fn sequences(bytes: &[u8], mut replay: impl FnMut(&[&str]) -> Result<(), String>) -> Found {
    let text = super::gunzip(bytes);
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].starts_with("S ")).collect();
    assert!(!starts.is_empty(), "no sequences");
    let mut found = Found { sequences: starts.len(), different: 0, differences: String::new() };
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(lines.len());
        if let Err(text) = replay(&lines[start + 1..end]) {
            found.different += 1;
            if found.different <= MOST_SHOWN {
                writeln!(found.differences, "seed {}: {text}", &lines[start][2..]).unwrap();
            }
        }
    }
    found
}

/// The record in the file that `variable` names, or the committed one.
pub fn record(variable: &str, committed: &[u8]) -> Vec<u8> {
    std::env::var_os(variable).map_or_else(|| committed.to_vec(), |path| std::fs::read(path).unwrap())
}

/// The files of a client, by their order.
#[derive(Debug, Default)]
pub struct Files(Vec<Option<OwnedFd>>);

impl Files {
    /// Returns their number.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn get(&self, name: &str) -> Result<&OwnedFd, String> {
        let at = number(name, 'f')?;
        self.0.get(at).and_then(Option::as_ref).ok_or_else(|| format!("no file {name}"))
    }

    /// Keeps a new file: its name in the record.
    pub fn keep(&mut self, fd: OwnedFd) -> String {
        self.0.push(Some(fd));
        format!("f{}", self.0.len() - 1)
    }

    /// Takes one out.
    pub fn take(&mut self, at: usize) -> Option<OwnedFd> {
        self.0[at].take()
    }

    /// Closes those that are left.
    pub fn close(&mut self, sim: &Sim) {
        for fd in self.0.drain(..).flatten() {
            let _ = sim.close(fd);
        }
    }
}
