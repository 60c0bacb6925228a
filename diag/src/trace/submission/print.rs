//! A submission as text, from its JSON form, which may have names in place of addresses.

use std::io::{self, Write};

use serde_json::Value;

use crate::demangle::shown;
use crate::pushbuffer::print::{command, list, text};
use crate::report::counted;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// Writes a line for each launch, copy and semaphore of a submission, and for what went wrong. `event` is the
/// event in the form of [`Printer::json`](crate::trace::Printer::json), `start` the start of each line.
///
/// # Errors
/// Those of `out`.
pub fn lines(event: &Value, start: &str, out: &mut dyn Write) -> io::Result<()> {
    let start = format!("{start}queue {:<3}", text(&event["channel"]["number"]));
    for problem in lost(event) {
        writeln!(out, "{start} {PROBLEM}{problem}{PROBLEM:#}")?;
    }
    for entry in list(&event["decoded"], "entries") {
        if entry["read_bytes"].is_null() {
            let at = text(&entry["address"]);
            writeln!(out, "{start} {PROBLEM}entry at {at}: not mapped in the process{PROBLEM:#}")?;
        }
        for work in list(entry, "work") {
            writeln!(out, "{start} {}", self::work(work))?;
        }
        for problem in list(entry, "problems") {
            let [at, what] = ["offset", "text"].map(|key| text(&problem[key]));
            writeln!(out, "{start} {PROBLEM}at {at}: {what}{PROBLEM:#}")?;
        }
    }
    Ok(())
}

/// Entries that are not shown, and why.
fn lost(event: &Value) -> impl Iterator<Item = String> {
    let reasons = [
        ("not_seen", "entries or more were replaced in the ring before they were read: not seen"),
        ("not_read", "entries were counted and not read, past the limit (--submission-limit)"),
    ];
    let counted = |(key, what): (&str, &str)| {
        let count = event[key].as_u64().filter(|count| *count > 0)?;
        Some(format!("{count} {what}"))
    };
    reasons.map(counted).into_iter().flatten()
}

/// A launch, a copy or a semaphore in one line.
fn work(work: &Value) -> String {
    match work["kind"].as_str() {
        Some("launch") => launch_line(work),
        Some("copy") => {
            let [from, to, size, lines, fill] =
                ["from", "to", "size_bytes", "lines", "fill"].map(|key| text(&work[key]));
            let size = if lines == "1" { format!("{size} B") } else { format!("{lines} x {size} B") };
            match (work["from"].is_null(), work["fill"].is_null()) {
                (_, false) => format!("{NAME}fill{NAME:#}    {to} with {fill}  {size}"),
                (true, _) => format!("{NAME}upload{NAME:#}  {to}  {size}"),
                _ => format!("{NAME}copy{NAME:#}    {from} -> {to}  {size}"),
            }
        }
        _ => {
            let [unit, operation, address, payload] =
                ["unit", "operation", "address", "payload"].map(|key| text(&work[key]));
            let (what, sign) = match operation.as_str() {
                "RELEASE" => ("release", "="),
                "ACQUIRE" => ("acquire", "="),
                name if name.ends_with("GEQ") => ("acquire", ">="),
                name => (name, ""),
            };
            format!("{NAME}{what}{NAME:#} {address} {sign} {payload}  {ASIDE}{unit}{ASIDE:#}")
        }
    }
}

/// A launch in one line: its kernel, its shape, its arguments.
fn launch_line(launch: &Value) -> String {
    let what = &launch["qmd"]["launch"];
    if !what.is_object() {
        let queue = "a queue of the scheduler".to_owned();
        let error = launch["error"].as_str().map_or(queue, str::to_owned);
        return format!("{NAME}launch{NAME:#}  QMD at {}: {error}", text(&launch["address"]));
    }
    if list(what, "grid").iter().any(|axis| axis.as_u64() == Some(0)) {
        let address = text(&launch["address"]);
        return format!(
            "{NAME}launch{NAME:#}  QMD at {address}: empty where it was read, so written elsewhere"
        );
    }
    let axes = |key: &str| list(what, key).iter().map(text).collect::<Vec<_>>().join("x");
    let name = match launch["kernel"].as_str() {
        Some(name) => shown(name),
        None => format!("code at {}", text(&what["program"])),
    };
    let arguments = match &launch["arguments_size_bytes"] {
        Value::Null => String::new(),
        size => format!("  arguments {size} B"),
    };
    let release =
        |release: &Value| format!("  releases {} = {}", text(&release["address"]), text(&release["payload"]));
    let releases: String = list(what, "releases").iter().map(release).collect();
    let (grid, block, shared) = (axes("grid"), axes("block"), text(&what["shared_bytes"]));
    let shape = format!("grid {grid}  block {block}  shared {shared} B");
    let name = format!("{HEADING}{name}{HEADING:#}");
    format!("{NAME}launch{NAME:#}  {name}  {shape}{arguments}{ASIDE}{releases}{ASIDE:#}")
}

/// Writes a submission with its methods and the fields of its QMDs; `event` as in [`lines`].
///
/// # Errors
/// Those of `out`.
pub fn detailed(event: &Value, out: &mut dyn Write) -> io::Result<()> {
    let (channel, decoded) = (&event["channel"], &event["decoded"]);
    let class = decoded["class_name"].as_str().map_or_else(|| text(&channel["class"]), str::to_owned);
    let (number, handle) = (text(&channel["number"]), text(&channel["handle"]));
    let entries = list(decoded, "entries");
    let count = counted(entries.len() as u64, "entry").replace("entrys", "entries");
    writeln!(out, "{HEADING}submission{HEADING:#} to queue {number} ({class}, {handle}): {count}")?;
    for problem in lost(event) {
        writeln!(out, "    {PROBLEM}{problem}{PROBLEM:#}")?;
    }
    entries.iter().try_for_each(|entry| self::entry(entry, out))
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
    for shown in list(entry, "commands") {
        command(shown, "      ", out)?;
    }
    for work in list(entry, "work") {
        let options = list(work, "options").iter().map(|option| format!("  {}", text(option)));
        writeln!(out, "      {}{ASIDE}{}{ASIDE:#}", self::work(work), options.collect::<String>())?;
        launch(work, out)?;
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

/// The arguments and the QMD of a launch.
fn launch(launch: &Value, out: &mut dyn Write) -> io::Result<()> {
    let Some(qmd) = launch["qmd"].as_object() else { return Ok(()) };
    let arguments = list(launch, "arguments");
    if !arguments.is_empty() {
        let values = arguments.iter().map(|v| if v.is_null() { "?".to_owned() } else { text(v) });
        writeln!(out, "        arguments ({})", values.collect::<Vec<_>>().join(", "))?;
    }
    let after = launch["after"].as_str().map_or(String::new(), |after| format!(", dependent of {after}"));
    let [version, source, address] = [&qmd["version"], &launch["source"], &launch["address"]].map(text);
    writeln!(out, "        QMD v{version} at {address} ({source}){after}")?;
    for field in qmd.get("fields").and_then(Value::as_array).into_iter().flatten() {
        let index = field["index"].as_u64().map_or(String::new(), |index| format!("({index})"));
        let value = match (field["value_name"].as_str(), field["value"].as_u64()) {
            (Some(name), _) => name.to_owned(),
            (None, Some(number)) => format!("{number:#x}"),
            (None, None) => text(&field["value"]),
        };
        writeln!(out, "          {NAME}{}{index}{NAME:#} = {value}", text(&field["name"]))?;
    }
    for problem in qmd.get("problems").and_then(Value::as_array).into_iter().flatten() {
        writeln!(out, "          {PROBLEM}{}{PROBLEM:#}", text(&problem["text"]))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_qmd_of_zeros_is_no_launch_of_no_blocks() {
        let qmd = |grid: [u32; 3]| {
            let launch = json!({"grid": grid, "block": [1, 1, 1], "shared_bytes": 0, "program": "0x0"});
            json!({"address": "0x1000", "qmd": {"launch": launch}})
        };
        let shown = |grid| anstream::adapter::strip_str(&launch_line(&qmd(grid))).to_string();
        assert!(shown([0, 0, 0]).starts_with("launch  QMD at 0x1000: empty"), "{}", shown([0, 0, 0]));
        assert!(shown([2, 1, 1]).contains("grid 2x1x1"), "{}", shown([2, 1, 1]));
    }
}
