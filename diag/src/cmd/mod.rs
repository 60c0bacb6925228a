//! The subcommands, one module each: arguments in, report out.

pub mod completions;
pub mod disasm;
pub mod doctor;
pub mod esr;
mod follow;
pub mod info;
mod kernel_log;
mod live;
pub mod man;
mod process;
pub mod provoke;
pub mod pushbuf;
pub mod qmd;
pub mod trace;
pub mod vamap;

use std::io::{self, Read, Write};
use std::path::Path;

use anyhow::Context;
use nvdiag::Report;

use crate::Finding;

/// Most bytes read from a file or from stdin: no input of ours is larger, and a device node must not fill the memory.
const MAX_INPUT: u64 = 1 << 30;

/// Prints a report as text or JSON and says what it found.
fn show(report: &impl Report, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
    match json {
        true => report.print_json(out)?,
        false => report.print(out)?,
    }
    out.flush()?;
    Ok(if report.has_problem() { Finding::Problem } else { Finding::Clean })
}

/// Reads a whole file, or stdin for `-`.
fn read_input(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let read = match path.as_os_str() == "-" {
        true => io::stdin().lock().take(MAX_INPUT + 1).read_to_end(&mut bytes),
        false => std::fs::File::open(path).and_then(|f| f.take(MAX_INPUT + 1).read_to_end(&mut bytes)),
    };
    read.with_context(|| format!("cannot read {}", path.display()))?;
    anyhow::ensure!(bytes.len() as u64 <= MAX_INPUT, "{} is larger than 1 GiB", path.display());
    Ok(bytes)
}

/// Reads a number as people paste it: `4096`, `0x1000`, `0x0000_1000`.
fn number(text: &str) -> Result<u64, String> {
    let digits = text.replace('_', "");
    let parsed = match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => digits.parse(),
    };
    parsed.map_err(|_| "expected a number such as 4096, 0x1000 or 0x0000_1000".to_owned())
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_taken_as_people_paste_them() {
        assert_eq!(number("4096"), Ok(4096));
        assert_eq!(number("0x1000"), Ok(4096));
        assert_eq!(number("0x0000_1000"), Ok(4096));
        assert!(number("1000h").is_err());
        assert!(number("").is_err());
        assert!(number("-1").is_err());
    }
}
