//! Events as text and as JSON.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::hex::Hex;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::trace::bytes::Bytes;
use crate::trace::decode::decode;
use crate::trace::event::{Call, Event};
use crate::trace::submission::{self, Names, Submissions};

/// Parts of a trace that are shown as text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum View {
    /// Calls.
    #[default]
    Calls,
    /// A line for each launch, copy and semaphore that is submitted.
    Submissions,
    /// Calls, and submissions with their methods and the fields of QMDs.
    All,
}

/// Shows the events of a trace, in their order.
#[derive(Debug, Default)]
pub struct Printer {
    submissions: Submissions,
    view: View,
    names: Option<Names>,
    /// The last answers of requests that poll, by process, descriptor and request.
    polled: HashMap<(i32, i32, u64), (i64, Bytes)>,
}

/// Requests by which programs wait, as often as there is time for.
const POLLS: &[u32] = &[nvgpu_sys::NVGPU_IOCTL_CHANNEL_GET_TIMEDOUT];

impl Printer {
    /// With `normalize`, addresses, handles, payloads and processes are names in order of appearance, and
    /// times are left out, so that two runs of a program can be compared.
    #[must_use]
    pub fn new(view: View, normalize: bool) -> Self {
        Self { view, names: normalize.then(Names::default), ..Self::default() }
    }

    /// Whether a normalized trace leaves the event out: a request that polls, with the answer of the time
    /// before, or with nothing but zeros at first. How often a program polls depends on time.
    pub fn is_repeated(&mut self, event: &Event) -> bool {
        let Call::Ioctl { fd, request, output, .. } = &event.call else { return false };
        let polls = POLLS.iter().any(|poll| u64::from(*poll) == request.0);
        if self.names.is_none() || !polls {
            return false;
        }
        let answer = (event.result, output.clone());
        let is_initial = event.result == 0 && output.0.iter().all(|byte| *byte == 0);
        match self.polled.insert((event.pid, *fd, request.0), answer.clone()) {
            Some(before) => before == answer,
            None => is_initial,
        }
    }

    /// The event as a JSON object: the contents of the log, with the meaning beside the bytes.
    pub fn json(&mut self, event: &Event) -> Value {
        let mut value = json!(event);
        let Some(object) = value.as_object_mut() else { return value };
        if let Some(decoded) = decode(event) {
            object.insert("decoded".to_owned(), json!(decoded));
        }
        if let Call::Submission(submission) = &event.call {
            let decoded = self.submissions.decode(event.pid, submission);
            object.insert("decoded".to_owned(), json!(decoded));
        }
        if let Some(name) = errno_name(event.result) {
            object.insert("errno".to_owned(), json!(name));
        }
        if let Some(names) = &mut self.names {
            // Decoded parts replace the bytes.
            for raw in ["entries", "launches", "memory"] {
                object.remove(raw);
            }
            if matches!(event.call, Call::Mmap { .. }) && event.result > 0 {
                object.insert("result_address".to_owned(), json!(Hex(event.result.cast_unsigned())));
                object.remove("result");
            }
            names.normalize(&mut value);
        }
        value
    }

    /// Writes an event as text, if it is one to show.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        let is_submission = matches!(event.call, Call::Submission(_));
        if self.view != View::All && is_submission != (self.view == View::Submissions) {
            return Ok(());
        }
        let value = self.json(event);
        let start = match self.names {
            Some(_) => String::new(),
            None => {
                let (seconds, micros) = (event.start_ns / 1_000_000_000, event.start_ns / 1000 % 1_000_000);
                let id = if self.view == View::Submissions { event.pid } else { event.tid };
                format!("{ASIDE}{seconds}.{micros:06} {id}{ASIDE:#} ")
            }
        };
        if self.view == View::Submissions {
            return submission::lines(&value, &start, out);
        }
        write!(out, "{start}")?;
        if is_submission { submission::detailed(&value, out) } else { call(&value, out) }
    }
}

/// Writes a call as a line, and a line for each piece of memory its argument points to. `event` may have names
/// in place of addresses and no times.
fn call(event: &Value, out: &mut dyn Write) -> io::Result<()> {
    let decoded = &event["decoded"];
    let [what, fd, node] = ["call", "fd", "node"].map(|key| text(&event[key]));
    write!(out, "{what}(")?;
    match what.as_str() {
        "open" => write!(out, "{}, {}", text(&event["path"]), open_flags(&event["flags"]))?,
        "mmap" => {
            let [length, offset] = ["length", "offset"].map(|key| text(&event[key]));
            let protection = named(&event["protection"], PROTECTION, "PROT_NONE");
            let flags = named(&event["flags"], MAP_FLAGS, "0");
            write!(out, "{fd}<{node}>, {length} bytes from {offset}, {protection}, {flags}")?;
        }
        "ioctl" => {
            let style = if decoded["known"] == true { NAME } else { HEADING };
            write!(out, "{fd}<{node}>, {style}{}{style:#}", text(&decoded["name"]))?;
            if let Some(about) = decoded["about"].as_str() {
                write!(out, " {HEADING}{about}{HEADING:#}")?;
            }
            write!(out, "{}", fields(", ", decoded))?;
        }
        _ => write!(out, "{fd}<{node}>")?,
    }
    write!(out, ") = {}", result(event))?;
    if let Some(status) = decoded["status"].as_str() {
        write!(out, " {PROBLEM}{status}{PROBLEM:#}")?;
    }
    match event.get("duration_ns").map(Value::as_u64) {
        Some(Some(ns)) => writeln!(out, " {ASIDE}<{} us>{ASIDE:#}", ns / 1000)?,
        Some(None) => writeln!(out, " {ASIDE}<never returned>{ASIDE:#}")?,
        None => writeln!(out)?,
    }
    for memory in decoded["memory"].as_array().into_iter().flatten() {
        let layout = memory["layout"].as_str().map_or(String::new(), |layout| format!(" {layout}"));
        let field = text(&memory["field"]);
        writeln!(out, "    {ASIDE}{field}:{layout}{ASIDE:#}{}", fields(" ", memory))?;
    }
    Ok(())
}

/// Rights of a mapping, of `mman.h`; the numbers are those of x86-64 and AArch64.
const PROTECTION: &[(u64, &str)] = &[(1, "PROT_READ"), (2, "PROT_WRITE"), (4, "PROT_EXEC")];
/// Flags of a mapping, likewise; the first two together are MAP_SHARED_VALIDATE.
const MAP_FLAGS: &[(u64, &str)] = &[
    (1, "MAP_SHARED"),
    (2, "MAP_PRIVATE"),
    (0x10, "MAP_FIXED"),
    (0x20, "MAP_ANONYMOUS"),
    (0x2000, "MAP_LOCKED"),
    (0x4000, "MAP_NORESERVE"),
    (0x8000, "MAP_POPULATE"),
    (0x10_0000, "MAP_FIXED_NOREPLACE"),
];
/// Flags of `open` that both have in common.
const OPEN_FLAGS: &[(u64, &str)] = &[
    (1, "O_WRONLY"),
    (2, "O_RDWR"),
    (0x40, "O_CREAT"),
    (0x80, "O_EXCL"),
    (0x200, "O_TRUNC"),
    (0x400, "O_APPEND"),
    (0x800, "O_NONBLOCK"),
    (0x8_0000, "O_CLOEXEC"),
];

fn open_flags(flags: &Value) -> String {
    let names = named(flags, OPEN_FLAGS, "O_RDONLY");
    match flags.as_u64() {
        Some(flags) if flags != 0 && flags & 3 == 0 => format!("O_RDONLY|{names}"),
        _ => names,
    }
}

/// Flags by their names, those without one in hexadecimal.
fn named(flags: &Value, names: &[(u64, &str)], none: &str) -> String {
    let Some(mut left) = flags.as_u64() else { return text(flags) };
    let mut found = Vec::new();
    for (bit, name) in names {
        if left & bit != 0 {
            left &= !bit;
            found.push((*name).to_owned());
        }
    }
    found.extend((left != 0).then(|| format!("{left:#x}")));
    if found.is_empty() { none.to_owned() } else { found.join("|") }
}

/// The arguments of a call or of memory, and the answers if there are any.
fn fields(before: &str, decoded: &Value) -> String {
    let list = |key: &str| {
        let fields = decoded[key].as_object().into_iter().flatten();
        fields.map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(", ")
    };
    match (list("arguments"), list("answers")) {
        (arguments, answers) if arguments.is_empty() && answers.is_empty() => String::new(),
        (arguments, answers) if answers.is_empty() => format!("{before}{{{arguments}}}"),
        (arguments, answers) => format!("{before}{{{arguments}}} -> {{{answers}}}"),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(text).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

fn result(event: &Value) -> String {
    match (event["errno"].as_str(), &event["result_address"], &event["result"]) {
        (Some(name), ..) => format!("-1 {PROBLEM}{name}{PROBLEM:#}"),
        (None, address, _) if !address.is_null() => text(address),
        _ if event.get("duration_ns").is_some_and(Value::is_null) => "?".to_owned(),
        (None, _, result) if event["call"] == "mmap" => {
            result.as_i64().map_or_else(|| text(result), |address| format!("{address:#x}"))
        }
        (.., result) => text(result),
    }
}

/// The name of an errno that a call returned as a negative number.
pub(super) fn errno_name(result: i64) -> Option<String> {
    let number = i32::try_from(result.checked_neg()?).ok().filter(|n| (1..4096).contains(n))?;
    Some(match nix::errno::Errno::from_raw(number) {
        // Answers that never reach a program: the kernel makes the call again.
        nix::errno::Errno::UnknownErrno if (512..=516).contains(&number) => "ERESTART".to_owned(),
        nix::errno::Errno::UnknownErrno => format!("errno {number}"),
        errno => format!("{errno:?}"),
    })
}
