//! The table of settings, each cell of which is a process of its own, and the resulting profile.

use std::path::Path;
use std::time::{Duration, Instant};

use hcq::{DeviceOptions, Profile};
use nix::sys::signal::Signal;
use nvdiag::bringup::process::Ended;
use nvdiag::bringup::report::{Bringup, print_cell, print_cells_head, print_choice};
use nvdiag::bringup::settings::{Bases, Cell, Failure, HEAD, Stage, Table};

use super::text::Text;
use crate::cmd::output_file::OutputFile;
use crate::cmd::replaced::ensure_same_kind;

/// Time limit of a cell, which needs a tenth of a second: its parts have limits of their own.
pub const DEADLINE: Duration = Duration::from_secs(30);

/// A cell that did not come to a result of its own.
fn lost(settings: Profile, reason: String, seconds: f64) -> Cell {
    Cell { settings, failure: Some(Failure { stage: Stage::Process, reason }), found: None, seconds }
}

/// Tries settings, each in a process that `child` runs with a device that is conservative besides, or not,
/// until the settings to use are found, or a signal comes. `keep` takes the results so far before each of
/// them.
pub fn search(
    child: &dyn Fn(Profile, bool) -> anyhow::Result<Ended>,
    keep: &mut dyn FnMut(Table) -> anyhow::Result<()>,
    text: &mut Text<'_>,
) -> anyhow::Result<(Table, Option<Signal>)> {
    let mut table = Table::new(Bases::of(&DeviceOptions::from_env()?));
    let (bases, mut seen, mut signal) = (table.bases, Vec::<Cell>::new(), None);
    text.print(print_cells_head)?;
    table.search(|settings, conservative| {
        let mut cells = seen.clone();
        // Kept beforehand: the result if the machine stops in this cell.
        cells.retain(|cell| cell.settings != settings);
        cells.push(lost(settings, "it has no end: the machine stopped, or the program".to_owned(), 0.0));
        keep(Table { cells, ..Table::new(bases) })?;
        let began = Instant::now();
        let ended = child(settings, conservative)?;
        let seconds = began.elapsed().as_secs_f64();
        let cell = match ended {
            Ended::Printed(bytes) => match serde_json::from_slice(&bytes) {
                Ok(cell) => cell,
                Err(error) => lost(settings, format!("it printed something else: {error}"), seconds),
            },
            Ended::Interrupted(by) => {
                signal = Some(by);
                return Ok(None);
            }
            other => lost(settings, other.reason(), seconds),
        };
        if !conservative && !seen.iter().any(|earlier| earlier.settings == settings) {
            text.print(|out| print_cell(&cell, &bases, out))?;
            seen.push(cell.clone());
        }
        anyhow::Ok(Some(cell))
    })?;
    if signal.is_none() {
        text.print(|out| print_choice(&table, out))?;
    }
    Ok((table, signal))
}

/// The file that the user named for the profile: a new one, an empty one, or a profile that it replaces.
pub fn profile_file(path: &Path) -> anyhow::Result<OutputFile> {
    let is_own = |start: &[u8]| {
        let first = start.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let first = String::from_utf8_lossy(first);
        let setting = first.split('#').next().unwrap_or_default();
        // A profile written by hand may begin with a setting.
        first.starts_with(HEAD) || !setting.trim().is_empty() && setting.parse::<Profile>().is_ok()
    };
    let kind = format!("a profile (its first line has neither a setting nor {HEAD:?})");
    ensure_same_kind(path, &kind, is_own)?;
    OutputFile::named(path, "--profile")
}

/// Writes the profile, if settings were found, to `file` or to one of the usual name; and prints how it is
/// used.
pub fn write_profile(results: &Bringup, file: Option<OutputFile>, text: &mut Text<'_>) -> anyhow::Result<()> {
    let about = format!("nvdiag {}, machine {}, {}", results.version, results.host, results.date);
    let Some(profile) = results.settings.as_ref().and_then(|table| table.file(&about)) else {
        return Ok(());
    };
    let mut file = match file {
        Some(file) => file,
        None => OutputFile::usual(&super::collect::stem("bringup-profile", results), "txt")?,
    };
    file.replace(profile.as_bytes())?;
    let path = std::path::absolute(file.path())?;
    text.print_always(|out| {
        writeln!(out, "written: {}", file.path().display())?;
        writeln!(out, "to use these settings: export {}={}", Profile::VARIABLE, quoted(&path))
    })
}

/// A path as a shell takes it.
fn quoted(path: &Path) -> String {
    let path = path.to_string_lossy();
    match path.chars().all(|c| c.is_alphanumeric() || "/._-+:@".contains(c)) {
        true => path.into_owned(),
        false => format!("'{}'", path.replace('\'', r"'\''")),
    }
}
