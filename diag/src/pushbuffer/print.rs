//! Pushbuffers as text.

use std::io::{self, Write as Output};

use serde_json::{Value, json};

use crate::pushbuffer::command::{InlineQmd, Pushbuffer};
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};
use crate::report::{Report, counted};

/// Writes of one method in a row that are shown before the rest is counted.
const SHOWN_IN_A_ROW: usize = 4;

impl Report for Pushbuffer {
    const SCHEMA: &'static str = "nvdiag.pushbuf/1";

    fn has_problem(&self) -> bool {
        !self.problems.is_empty()
    }

    fn print(&self, out: &mut dyn Output) -> io::Result<()> {
        if !self.gpfifo.is_empty() {
            writeln!(out, "{HEADING}GPFIFO, {} entries{HEADING:#}", self.gpfifo.len())?;
        }
        for entry in &self.gpfifo {
            writeln!(out, "  {:>4}  {}", entry.index, entry.describe())?;
        }
        for segment in &self.segments {
            let place = segment.address.map_or(String::new(), |a| format!(" at {a}"));
            let words = segment.size_bytes / 4;
            writeln!(out, "{HEADING}segment{place}, {words} words{HEADING:#}")?;
            for command in &segment.commands {
                self::command(&json!(command), "  ", out)?;
                command.qmd.as_ref().map_or(Ok(()), |qmd| qmd.print(out))?;
            }
        }
        if self.problems.is_empty() {
            return writeln!(out, "{HEADING}No problems found{HEADING:#}");
        }
        writeln!(out, "{PROBLEM}Problems{PROBLEM:#}")?;
        for problem in &self.problems {
            let place = match problem.segment {
                Some(segment) => format!("segment {segment}, offset {}", problem.offset),
                None => format!("GPFIFO, offset {}", problem.offset),
            };
            writeln!(out, "  {place}: {PROBLEM}{}{PROBLEM:#}", problem.text)?;
        }
        Ok(())
    }
}

/// A value as text: strings without quotes.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The elements of a list, none where there is no list.
pub(crate) fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Writes a command in its JSON form, which may have names in place of addresses: each write, with the offset of
/// the header and the subchannel before the first.
pub(crate) fn command(command: &Value, indent: &str, out: &mut dyn Output) -> io::Result<()> {
    let offset = command["offset"].as_str().and_then(|o| u64::from_str_radix(o.strip_prefix("0x")?, 16).ok());
    let offset = offset.map_or_else(|| text(&command["offset"]), |offset| format!("{offset:04x}"));
    let writes = list(command, "writes");
    let [form, subchannel] = ["form", "subchannel"].map(|key| text(&command[key]).replace('_', " "));
    if writes.is_empty() {
        let words = command["words"].as_u64().filter(|words| *words > 0);
        let words = words.map_or(String::new(), |words| format!(", {}", counted(words, "word")));
        return writeln!(out, "{indent}{ASIDE}{offset}{ASIDE:#}  {form}{}", words);
    }
    let mut rest = writes;
    let mut place = format!("{ASIDE}{offset}{ASIDE:#} {subchannel}");
    while let Some(first) = rest.first() {
        let run =
            rest.iter().take_while(|w| w["name"] == first["name"] && w["note"].is_null()).count().max(1);
        let (now, later) = rest.split_at(run);
        for write in now.iter().take(SHOWN_IN_A_ROW) {
            writeln!(out, "{indent}{place} {}", self::write(write))?;
            "      ".clone_into(&mut place);
        }
        if run > SHOWN_IN_A_ROW {
            writeln!(
                out,
                "{indent}       {ASIDE}and {} more{ASIDE:#}",
                counted((run - SHOWN_IN_A_ROW) as u64, "word")
            )?;
        }
        rest = later;
    }
    Ok(())
}

/// One write: its method, its value or its fields, and its effect.
fn write(write: &Value) -> String {
    let index = write["index"].as_u64().map_or(String::new(), |index| format!("({index})"));
    let name = match write["name"].as_str() {
        Some(name) => format!("{name}{index}"),
        None => format!("method {}", text(&write["method"])),
    };
    let number = |value: &Value| value.as_u64().map_or_else(|| text(value), |number| format!("{number:#x}"));
    let value = match list(write, "fields") {
        [field] if field["value_name"].is_string() => text(&field["value_name"]),
        [] | [_] => number(&write["value"]),
        fields => {
            let field = |field: &Value| match field["value_name"].as_str() {
                Some(value) => format!("{}={value}", text(&field["name"])),
                None => format!("{}={}", text(&field["name"]), number(&field["value"])),
            };
            // The first is the operation; the others mean nothing when they are zero.
            let shown = fields.iter().enumerate().filter(|(i, field)| *i == 0 || field["value"] != 0);
            shown.map(|(_, value)| field(value)).collect::<Vec<_>>().join(" ")
        }
    };
    let note = write["note"].as_str().map_or(String::new(), |note| format!("  {ASIDE}{note}{ASIDE:#}"));
    format!("{NAME}{name:<36}{NAME:#} {value}{note}")
}

impl InlineQmd {
    fn print(&self, out: &mut dyn Output) -> io::Result<()> {
        let Some(metadata) = &self.metadata else {
            return writeln!(out, "        {PROBLEM}a QMD of no version that is known{PROBLEM:#}");
        };
        let mut text = Vec::new();
        metadata.print(&mut text)?;
        for line in String::from_utf8_lossy(&text).lines() {
            writeln!(out, "        {line}")?;
        }
        Ok(())
    }
}
