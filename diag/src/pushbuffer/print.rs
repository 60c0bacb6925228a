//! Pushbuffers as text.

use std::io::{self, Write as Output};

use crate::pushbuffer::command::{Command, FieldValue, InlineQmd, Pushbuffer, Write};
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME, PROBLEM};

/// Writes of one method in a row that are shown before the rest is summed up.
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
            write!(out, "  {:>4}  ", entry.index)?;
            if self.words {
                write!(out, "{ASIDE}{:016x}{ASIDE:#}  ", entry.word.0)?;
            }
            writeln!(out, "{}", entry.describe())?;
        }
        for segment in &self.segments {
            let place = segment.address.map_or(String::new(), |a| format!(" at {a}"));
            let words = segment.size_bytes / 4;
            writeln!(out, "{HEADING}segment{place}, {words} words{HEADING:#}")?;
            for command in &segment.commands {
                command.print(out, self.words)?;
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

impl Command {
    fn print(&self, out: &mut dyn Output, words: bool) -> io::Result<()> {
        write!(out, "  {ASIDE}{:04x}{ASIDE:#}  ", self.offset.0)?;
        if words {
            match self.header {
                Some(header) => write!(out, "{ASIDE}{:08x}{ASIDE:#}  ", header.0)?,
                None => write!(out, "          ")?,
            }
        }
        let form = self.form.replace('_', " ");
        match self.subchannel {
            Some(subchannel) => {
                let class = match (self.class_name, self.class) {
                    (Some(name), _) => name.to_owned(),
                    (None, Some(number)) => format!("class {number}"),
                    (None, None) => "nothing bound".to_owned(),
                };
                writeln!(out, "{form}, subchannel {subchannel}, {class}")?;
            }
            None if self.words > 0 => writeln!(out, "{form}, {} words", self.words)?,
            None => writeln!(out, "{form}")?,
        }
        let mut rest = self.writes.as_slice();
        while let Some(first) = rest.first() {
            let run = rest.iter().take_while(|w| w.is_data_like(first)).count().max(1);
            let (now, later) = rest.split_at(run);
            for write in now.iter().take(SHOWN_IN_A_ROW) {
                write.print(out, words)?;
            }
            if run > SHOWN_IN_A_ROW {
                writeln!(out, "          {ASIDE}and {} words more{ASIDE:#}", run - SHOWN_IN_A_ROW)?;
            }
            rest = later;
        }
        match &self.qmd {
            Some(qmd) => qmd.print(out),
            None => Ok(()),
        }
    }
}

impl Write {
    /// Whether it is one more word of the same data.
    fn is_data_like(&self, first: &Self) -> bool {
        self.name.is_some() && self.name == first.name && self.fields.len() <= 1 && self.note.is_none()
    }

    fn print(&self, out: &mut dyn Output, words: bool) -> io::Result<()> {
        let index = self.index.map_or(String::new(), |i| format!("({i})"));
        let name = match self.name {
            Some(name) => format!("{name}{index}"),
            None => format!("method {:#06x}", self.method.0),
        };
        write!(out, "        ")?;
        if words {
            write!(out, "{ASIDE}{:08x}{ASIDE:#}  ", self.value.0)?;
        }
        write!(out, "{NAME}{name:<40}{NAME:#} ")?;
        match self.fields.as_slice() {
            [] => write!(out, "{:#x}", self.value.0)?,
            [FieldValue { value_name: Some(value), .. }] => write!(out, "{value}")?,
            // An address whose lowest bits are no part of the field is shown whole.
            [_] => write!(out, "{:#x}", self.value.0)?,
            fields => {
                let field = |f: &FieldValue| match f.value_name {
                    Some(value) => format!("{}={value}", f.name),
                    None => format!("{}={:#x}", f.name, f.value),
                };
                write!(out, "{}", fields.iter().map(field).collect::<Vec<_>>().join(" "))?;
            }
        }
        match &self.note {
            Some(note) => writeln!(out, "  {ASIDE}{note}{ASIDE:#}"),
            None => writeln!(out),
        }
    }
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
