//! Events as text and as JSON.

use std::collections::HashMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use crate::hex::Hex;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::trace::bytes::Bytes;
use crate::trace::decode::{DecodedMemory, Fields, decode};
use crate::trace::event::{Call, Event};
use crate::trace::submission::{self, Names, Submissions};

/// Shows the events of a trace, in their order.
#[derive(Debug, Default)]
pub struct Printer {
    submissions: Submissions,
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
    pub fn new(normalize: bool) -> Self {
        Self { names: normalize.then(Names::default), ..Self::default() }
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

    /// Writes an event as text.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&mut self, event: &Event, out: &mut dyn Write) -> io::Result<()> {
        if self.names.is_none() {
            let (seconds, micros) = (event.start_ns / 1_000_000_000, event.start_ns / 1000 % 1_000_000);
            write!(out, "{ASIDE}{seconds}.{micros:06} {}{ASIDE:#} ", event.tid)?;
        }
        match (&event.call, &self.names) {
            (Call::Submission(_), _) => submission::print(&self.json(event), out),
            (_, None) => call(event, out),
            (_, Some(_)) => normalized(&self.json(event), out),
        }
    }
}

/// Writes a call whose addresses have names.
fn normalized(event: &Value, out: &mut dyn Write) -> io::Result<()> {
    let decoded = &event["decoded"];
    let object = |value: &Value| {
        let fields = value.as_object().into_iter().flatten();
        fields.map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(", ")
    };
    let on = ["path", "node"].iter().find_map(|key| event[*key].as_str()).unwrap_or_default();
    let result = match (event["errno"].as_str(), event["result_address"].as_str()) {
        (Some(errno), _) => format!("-1 {errno}"),
        (None, Some(address)) => address.to_owned(),
        (None, None) => text(&event["result"]),
    };
    let name = decoded["name"].as_str().map_or(String::new(), |name| format!(" {NAME}{name}{NAME:#}"));
    let about = decoded["about"].as_str().map_or(String::new(), |about| format!(" {about}"));
    let (arguments, answers) = (object(&decoded["arguments"]), object(&decoded["answers"]));
    write!(out, "{}({on}){name}{about} {{{arguments}}} -> {{{answers}}} = {result}", text(&event["call"]))?;
    match decoded["status"].as_str() {
        Some(status) => writeln!(out, " {PROBLEM}{status}{PROBLEM:#}")?,
        None => writeln!(out)?,
    }
    for memory in decoded["memory"].as_array().into_iter().flatten() {
        let (arguments, answers) = (object(&memory["arguments"]), object(&memory["answers"]));
        writeln!(out, "    {}: {{{arguments}}} -> {{{answers}}}", text(&memory["field"]))?;
    }
    Ok(())
}

/// Writes a call as a line, and a line for each piece of memory its argument points to.
fn call(event: &Event, out: &mut dyn Write) -> io::Result<()> {
    let decoded = decode(event);
    match (&event.call, &decoded) {
        (Call::Ioctl { fd, node, .. }, Some(decoded)) => {
            let style = if decoded.known { NAME } else { HEADING };
            write!(out, "ioctl({fd}<{node}>, {style}{}{style:#}", decoded.name)?;
            if let Some(about) = &decoded.about {
                write!(out, " {HEADING}{about}{HEADING:#}")?;
            }
            write!(out, "{})", fields(", ", &decoded.arguments, &decoded.answers))?;
        }
        (Call::Open { path, flags }, _) => write!(out, "open({path}, {flags:#x})")?,
        (Call::Close { fd, node }, _) => write!(out, "close({fd}<{node}>)")?,
        (Call::Dup { fd, node }, _) => write!(out, "dup({fd}<{node}>)")?,
        (Call::Mmap { fd, node, length, protection, flags, offset, .. }, _) => {
            write!(out, "mmap({fd}<{node}>, {length} bytes from {offset}, {protection:#x}, {flags:#x})")?;
        }
        (Call::Ioctl { .. }, None) | (Call::Submission(_), _) => {}
    }
    write!(out, " = {}", result(event))?;
    if let Some(status) = decoded.as_ref().and_then(|d| d.status.as_ref()) {
        write!(out, " {PROBLEM}{status}{PROBLEM:#}")?;
    }
    match event.duration_ns {
        Some(ns) => writeln!(out, " {ASIDE}<{} us>{ASIDE:#}", ns / 1000)?,
        None => writeln!(out, " {ASIDE}<never returned>{ASIDE:#}")?,
    }
    for DecodedMemory { field, layout, arguments, answers } in decoded.iter().flat_map(|d| &d.memory) {
        let layout = layout.map_or(String::new(), |l| format!(" {l}"));
        writeln!(out, "    {ASIDE}{field}:{layout}{ASIDE:#}{}", fields(" ", arguments, answers))?;
    }
    Ok(())
}

fn fields(before: &str, arguments: &Fields, answers: &Fields) -> String {
    let list = |fields: &Fields| {
        let field = |(name, value): &(&str, Value)| format!("{name}={}", text(value));
        fields.0.iter().map(field).collect::<Vec<_>>().join(", ")
    };
    match (arguments.is_empty(), answers.is_empty()) {
        (true, true) => String::new(),
        (_, true) => format!("{before}{{{}}}", list(arguments)),
        _ => format!("{before}{{{}}} -> {{{}}}", list(arguments), list(answers)),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(text).collect::<Vec<_>>().join(", ")),
        other => other.to_string(),
    }
}

fn result(event: &Event) -> String {
    match errno_name(event.result) {
        Some(name) => format!("-1 {PROBLEM}{name}{PROBLEM:#}"),
        None if event.duration_ns.is_none() => "?".to_owned(),
        None if matches!(event.call, Call::Mmap { .. }) => format!("{:#x}", event.result),
        None => event.result.to_string(),
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
