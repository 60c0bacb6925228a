//! Findings as text, in blocks as compute-sanitizer prints them.

use std::io::{self, Write};

use nix::sys::signal::Signal;

use crate::checked::{Access, Checked, Ended, Found, Run};
use crate::report::style::{ASIDE, HEADING, PROBLEM};
use crate::report::{Report, counted, plain};

/// Beginning of each line, so that they are found among those of the program.
const MARK: &str = "=========";

/// Three numbers of a block or a thread.
fn place([x, y, z]: [u32; 3]) -> String {
    format!("({x},{y},{z})")
}

impl Access {
    /// `0x240 in sum: STS [R9], R4`.
    fn words(&self, kernel: Option<&str>) -> String {
        match (self.offset, self.pc, kernel) {
            (Some(offset), _, Some(kernel)) => format!("at {offset} in {kernel}: {}", self.what),
            (Some(at), _, None) | (None, Some(at), _) => format!("at {at}: {}", self.what),
            (None, None, _) => self.what.clone(),
        }
    }

    fn thread(&self) -> Option<String> {
        Some(format!("by thread {} in block {}", place(self.thread?), place(self.block?)))
    }
}

impl Found {
    fn print(&self, seeds: usize, out: &mut dyn Write) -> io::Result<()> {
        let Self { check, text, detail, kernel, at, address, location, other, count, .. } = self;
        writeln!(out, "{MARK} {PROBLEM}{check}{PROBLEM:#}: {HEADING}{}{HEADING:#}", plain(text))?;
        let mut row = |text: &str| writeln!(out, "{MARK}     {}", plain(text));
        if let Some(at) = at {
            row(&at.words(kernel.as_deref()))?;
            at.source.iter().try_for_each(|source| row(&format!("in {source}")))?;
            at.thread().iter().try_for_each(|thread| row(thread))?;
        }
        match (address, location) {
            (Some(address), Some(location)) => row(&format!("address {address}, {location}"))?,
            (Some(address), None) => row(&format!("address {address}"))?,
            (None, _) => {}
        }
        if let Some(other) = other {
            row(&format!("the other access: {}", other.words(None)))?;
            other.source.iter().try_for_each(|source| row(&format!("    in {source}")))?;
            other.thread().iter().try_for_each(|thread| row(&format!("    {thread}")))?;
        }
        if !detail.is_empty() {
            row(detail)?;
        }
        match (*count, seeds) {
            (1, 0) => {}
            (count, 0) => row(&format!("{count} times"))?,
            (count, all) => {
                let times = counted(count, "time");
                row(&format!("{times}, with {} of {}", self.seed_words(), counted(all as u64, "seed")))?;
            }
        }
        writeln!(out, "{MARK}")
    }

    /// `seeds 1, 2 and 7`.
    fn seed_words(&self) -> String {
        let words: Vec<_> = self.seeds.iter().map(u64::to_string).collect();
        match words.split_last() {
            None => "no seed".to_owned(),
            Some((only, [])) => format!("seed {only}"),
            Some((last, others)) => format!("seeds {} and {last}", others.join(", ")),
        }
    }
}

impl Run {
    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let program = match self.seed {
            Some(seed) => format!("with seed {seed} the program"),
            None => "the program".to_owned(),
        };
        match self.ended {
            Ended::Exited(0) => {}
            Ended::Exited(code) => writeln!(out, "{MARK} {program} ended with code {code}")?,
            Ended::Signal(signal) => {
                let name = Signal::try_from(signal).map_or("unknown", Signal::as_str);
                writeln!(out, "{MARK} {program} was ended by signal {signal} ({name})")?;
            }
        }
        if self.unreadable_lines > 0 {
            let lines = counted(self.unreadable_lines, "line");
            writeln!(out, "{MARK} {lines} of findings could not be read")?;
        }
        Ok(())
    }
}

impl Report for Checked {
    const SCHEMA: &'static str = "nvdiag.check/1";

    fn has_problem(&self) -> bool {
        self.errors > 0
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let launches = match self.launches() {
            1 => "1 launch".to_owned(),
            launches => format!("{launches} launches"),
        };
        let checks = self.checks.to_string().replace(',', ", ");
        writeln!(out, "{MARK} {HEADING}NVDIAG CHECK{HEADING:#} {ASIDE}{checks}; {launches}{ASIDE:#}")?;
        let seeds = self.runs.iter().filter(|run| run.seed.is_some()).count();
        self.findings.iter().try_for_each(|found| found.print(seeds, out))?;
        self.runs.iter().try_for_each(|run| run.print(out))?;
        if self.launches() == 0 && self.findings.is_empty() {
            writeln!(out, "{MARK} {PROBLEM}no launch was seen{PROBLEM:#}: nothing was checked")?;
        }
        let style = if self.errors > 0 { PROBLEM } else { HEADING };
        writeln!(out, "{MARK} {style}ERROR SUMMARY: {}{style:#}", counted(self.errors as u64, "error"))
    }
}
