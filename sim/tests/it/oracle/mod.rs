//! The address spaces and requests of the model against those of the driver's own code.
//!
//! `data/nvgpu-address-spaces.txt.gz` holds random sequences of calls with the driver's answers and the page
//! tables it wrote; `tools/nvgpu-oracle` makes it, and more of its kind: `NVGPU_ORACLE` names another file to
//! compare with.

mod bytes;
mod client;
mod lines;
mod nvmap;
mod record;
mod replay;
mod requests;
mod tables;

use client::Client;
use record::{Answer, Line};
use std::fmt::Write as _;
use std::io::Read;

/// The records: those committed, or those of the file that `NVGPU_ORACLE` names.
fn records() -> String {
    let bytes = match std::env::var_os("NVGPU_ORACLE") {
        Some(path) => std::fs::read(path).unwrap(),
        None => include_bytes!("../../data/nvgpu-address-spaces.txt.gz").to_vec(),
    };
    gunzip(&bytes)
}

/// The text in a file, compressed or not.
fn gunzip(bytes: &[u8]) -> String {
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return String::from_utf8(bytes.to_vec()).unwrap();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(bytes).read_to_string(&mut text).unwrap();
    text
}

/// Numbers of comparisons.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    sequences: usize,
    calls: usize,
    refused: usize,
    tables: usize,
    leaves: u64,
    directories: usize,
    /// Sequences compared up to a call after which addresses are in use twice.
    corrupted: usize,
}

/// Replays one sequence; the error says where the two part.
fn replay(lines: &[&str], counts: &mut Counts) -> Result<(), String> {
    let mut client = Client::new();
    let mut at = 0;
    while at < lines.len() {
        let line = Line::parse(lines[at])?;
        let here = |text: String| format!("{}\n  {text}", lines[at]);
        match line {
            Line::Tables => {
                let end = at + lines[at..].iter().position(|l| *l == ".").ok_or("a table without end")?;
                let driver = tables::Tables::parse(&lines[at + 1..end])?;
                let model = client.tables();
                counts.tables += 1;
                counts.leaves += driver.leaf_count();
                counts.directories += driver.directories.len();
                driver.compare(&model, client.range()).map_err(here)?;
                at = end;
            }
            Line::Buffer { bytes, read_only } => client.buffer(bytes, read_only),
            Line::Call { request, answer } => {
                counts.calls += 1;
                let got = client.call(&request);
                counts.refused += usize::from(matches!(got, Answer::Refused(_)));
                if got != answer {
                    return Err(here(format!("the driver: {answer}, the model: {got}")));
                }
                if client.is_corrupt() {
                    counts.corrupted += 1;
                    return Ok(());
                }
            }
        }
        at += 1;
    }
    Ok(())
}

/// Addresses, errnos and page-table words are the driver's for any sequence of calls.
#[test]
fn address_spaces_are_those_of_the_driver() {
    let text = records();
    let lines: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
    let starts: Vec<usize> = (0..lines.len()).filter(|&i| lines[i].starts_with("S ")).collect();
    assert!(!starts.is_empty(), "no sequences");
    let mut counts = Counts::default();
    let mut differences = String::new();
    let mut different = 0;
    for (i, &start) in starts.iter().enumerate() {
        let end = starts.get(i + 1).copied().unwrap_or(lines.len());
        counts.sequences += 1;
        if let Err(text) = replay(&lines[start + 1..end], &mut counts) {
            different += 1;
            if different <= 20 {
                writeln!(differences, "seed {}: {text}", &lines[start][2..]).unwrap();
            }
        }
    }
    println!("{counts:?}");
    assert!(different == 0, "{different} of {} sequences differ\n{differences}", counts.sequences);
}
