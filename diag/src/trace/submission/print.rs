//! A submission as text, from its JSON form, which may have names in place of addresses.

use std::io::{self, Write};

use serde_json::Value;

use crate::report::counted;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// Writes of one method in a row that are shown before the rest is counted.
const SHOWN_IN_A_ROW: usize = 4;

/// A value as text: strings without quotes.
fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn list<'v>(value: &'v Value, key: &str) -> &'v [Value] {
    value[key].as_array().map_or(&[], Vec::as_slice)
}

/// Writes a submission: `event` is the event in the form of [`Printer::json`](crate::trace::Printer::json).
///
/// # Errors
/// Those of `out`.
pub fn print(event: &Value, out: &mut dyn Write) -> io::Result<()> {
    let (channel, decoded) = (&event["channel"], &event["decoded"]);
    let class = decoded["class_name"].as_str().map_or_else(|| text(&channel["class"]), str::to_owned);
    let (number, handle) = (text(&channel["number"]), text(&channel["handle"]));
    let entries = list(decoded, "entries");
    let count = counted(entries.len() as u64, "entry").replace("entrys", "entries");
    writeln!(out, "{HEADING}submission{HEADING:#} to channel {number} ({class}, {handle}): {count}")?;
    for (key, what) in [
        ("not_seen", "entries or more were replaced in the ring before they were read: not seen"),
        ("not_read", "entries were counted and not read, past the limit (--submission-limit)"),
    ] {
        if let Some(count) = event[key].as_u64().filter(|count| *count > 0) {
            writeln!(out, "    {PROBLEM}{count} {what}{PROBLEM:#}")?;
        }
    }
    for entry in entries {
        self::entry(entry, out)?;
    }
    for launch in list(decoded, "launches") {
        self::launch(launch, out)?;
    }
    Ok(())
}

fn entry(entry: &Value, out: &mut dyn Write) -> io::Result<()> {
    let words = entry["size_bytes"].as_u64().unwrap_or(0) / 4;
    let what = match entry["action"].as_str() {
        Some("fetch") => format!("{words} words at {}", text(&entry["address"])),
        Some(action) => action.replace('_', " "),
        None => String::new(),
    };
    let flags = ["subroutine", "waits", "conditional"].into_iter().filter(|flag| entry[*flag] == true);
    let flags: String = flags.map(|flag| format!(", {flag}")).collect();
    let read = match entry["read_bytes"].as_u64() {
        None => format!(" {PROBLEM}not mapped in the process{PROBLEM:#}"),
        Some(bytes) if entry["action"] == "fetch" && bytes / 4 < words => {
            format!(" {ASIDE}the first {} of them were read{ASIDE:#}", bytes / 4)
        }
        Some(_) => String::new(),
    };
    writeln!(out, "    entry {}: {what}{flags}{read}", text(&entry["index"]))?;
    for command in list(entry, "commands") {
        self::command(command, out)?;
    }
    for semaphore in list(entry, "semaphores") {
        let options: Vec<String> = list(semaphore, "options").iter().map(text).collect();
        let [unit, operation, address, payload] =
            ["unit", "operation", "address", "payload"].map(|key| text(&semaphore[key]));
        let options = options.join(" ");
        writeln!(
            out,
            "      {NAME}semaphore{NAME:#} {unit} {operation} {address} {payload}  {ASIDE}{options}{ASIDE:#}"
        )?;
    }
    for problem in list(entry, "problems") {
        writeln!(
            out,
            "      {PROBLEM}at {}: {}{PROBLEM:#}",
            text(&problem["offset"]),
            text(&problem["text"])
        )?;
    }
    Ok(())
}

fn command(command: &Value, out: &mut dyn Write) -> io::Result<()> {
    let offset = command["offset"].as_str().and_then(|o| u64::from_str_radix(o.strip_prefix("0x")?, 16).ok());
    let offset = offset.map_or_else(|| text(&command["offset"]), |offset| format!("{offset:04x}"));
    let writes = list(command, "writes");
    let [form, subchannel] = ["form", "subchannel"].map(|key| text(&command[key]).replace('_', " "));
    if writes.is_empty() {
        let words = command["words"].as_u64().unwrap_or(0);
        return writeln!(out, "      {ASIDE}{offset}{ASIDE:#}  {form}, {}", counted(words, "word"));
    }
    let mut rest = writes;
    let mut place = format!("{ASIDE}{offset}{ASIDE:#} {subchannel}");
    while let Some(first) = rest.first() {
        let run =
            rest.iter().take_while(|w| w["name"] == first["name"] && w["note"].is_null()).count().max(1);
        let (now, later) = rest.split_at(run);
        for write in now.iter().take(SHOWN_IN_A_ROW) {
            writeln!(out, "      {place} {}", self::write(write))?;
            "      ".clone_into(&mut place);
        }
        if run > SHOWN_IN_A_ROW {
            writeln!(
                out,
                "             {ASIDE}and {} more{ASIDE:#}",
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

fn launch(launch: &Value, out: &mut dyn Write) -> io::Result<()> {
    let address = launch["address"].as_str().map_or(String::new(), |at| format!(" {at}"));
    let after = launch["after"].as_str().map_or(String::new(), |after| format!(", dependent of {after}"));
    let source = match launch["source"].as_str() {
        Some("memory") => "in memory",
        Some("upload") => "uploaded inline",
        Some("inline") => "inline",
        _ => "",
    };
    let Some(qmd) = launch["qmd"].as_object() else {
        let error = text(&launch["error"]);
        return writeln!(out, "    launch{address}{after}: {PROBLEM}{error}{PROBLEM:#}");
    };
    writeln!(out, "    {HEADING}launch{address}{HEADING:#}, QMD v{} {source}{after}", text(&qmd["version"]))?;
    let what = &qmd["launch"];
    if what.is_object() {
        let axes = |key: &str| list(what, key).iter().map(text).collect::<Vec<_>>().join("x");
        let [program, registers, shared] =
            ["program", "registers", "shared_bytes"].map(|key| text(&what[key]));
        let (grid, block) = (axes("grid"), axes("block"));
        writeln!(
            out,
            "      {grid} blocks of {block} threads, {registers} registers, {shared} bytes shared, program at {program}"
        )?;
    }
    for field in qmd.get("fields").and_then(Value::as_array).into_iter().flatten() {
        let index = field["index"].as_u64().map_or(String::new(), |index| format!("({index})"));
        let value = match (field["value_name"].as_str(), field["value"].as_u64()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(number)) => format!("{number:#x}"),
            (None, None) => text(&field["value"]),
        };
        writeln!(out, "      {NAME}{}{index}{NAME:#} = {value}", text(&field["name"]))?;
    }
    for problem in qmd.get("problems").and_then(Value::as_array).into_iter().flatten() {
        writeln!(out, "      {PROBLEM}{}{PROBLEM:#}", text(&problem["text"]))?;
    }
    Ok(())
}
