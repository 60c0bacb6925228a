//! Events as text and as JSON.

use std::io::{self, Write};

use serde_json::{Value, json};

use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::trace::decode::{DecodedMemory, Fields, decode};
use crate::trace::event::{Call, Event};

/// Writes an event as a line, and a line for each piece of memory its argument points to.
///
/// # Errors
/// Those of `out`.
pub fn print(event: &Event, out: &mut dyn Write) -> io::Result<()> {
    let (seconds, micros) = (event.start_ns / 1_000_000_000, event.start_ns / 1000 % 1_000_000);
    write!(out, "{ASIDE}{seconds}.{micros:06} {}{ASIDE:#} ", event.tid)?;
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
        (Call::Ioctl { .. }, None) => {}
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

/// The event as a JSON object: what the log holds, with the meaning beside the bytes.
#[must_use]
pub fn to_json(event: &Event) -> Value {
    let mut value = json!(event);
    if let (Some(object), Some(decoded)) = (value.as_object_mut(), decode(event)) {
        object.insert("decoded".to_owned(), json!(decoded));
    }
    if let (Some(object), Some(name)) = (value.as_object_mut(), errno_name(event.result)) {
        object.insert("errno".to_owned(), json!(name));
    }
    value
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
