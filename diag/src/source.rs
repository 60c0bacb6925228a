//! Source lines of instructions, with their text where the file is there.

use std::collections::BTreeMap;
use std::io::{self, Write};

use hcq::cubin::Lines;
use serde::Serialize;

use crate::demangle::shown;
use crate::report::style::ASIDE;

/// A place in a source file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Source {
    /// The file, as the compiler was given it.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
    /// The function whose code was inlined here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// The line's text, where the file was there to read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// Source files that were there to read.
#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<String, Vec<String>>);

impl Files {
    /// Reads the files that `lines` names with `read`, which answers `None` for those that are not there.
    pub fn add(&mut self, lines: &Lines, read: &mut dyn FnMut(&str) -> Option<String>) {
        for file in lines.files() {
            if !self.0.contains_key(file)
                && let Some(text) = read(file)
            {
                self.0.insert(file.to_owned(), text.lines().map(|line| line.trim().to_owned()).collect());
            }
        }
    }

    /// The source lines of the instruction at `offset`: its own, then the calls it was inlined by.
    #[must_use]
    pub fn at(&self, lines: &Lines, offset: u64) -> Vec<Source> {
        let text = |file: &str, line: u64| {
            let index = usize::try_from(line.checked_sub(1)?).ok()?;
            self.0.get(file)?.get(index).filter(|text| !text.is_empty()).cloned()
        };
        let lines = lines.at(offset).map(|line| Source {
            file: line.file.clone(),
            line: line.line,
            function: line.function.clone(),
            text: text(&line.file, line.line),
        });
        lines.collect()
    }
}

impl Source {
    /// Prints `file:line`, the function that was inlined and the text, as a line.
    pub(crate) fn print(&self, out: &mut dyn Write, indent: &str) -> io::Result<()> {
        let text = self.text.as_ref().map_or(String::new(), |text| format!("  {text}"));
        writeln!(out, "{indent}{ASIDE}{}{ASIDE:#}{text}", self.place())
    }

    /// `file:line`, and the function that was inlined.
    pub(crate) fn place(&self) -> String {
        let function =
            self.function.as_ref().map_or(String::new(), |name| format!(" ({}, inlined)", shown(name)));
        format!("{}:{}{function}", self.file, self.line)
    }
}
