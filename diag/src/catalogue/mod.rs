//! Numbers that drivers give to errors: the desktop driver's Xids, and the error notifiers of nvgpu's channels.
//!
//! `data/xids.json` and `data/notifiers.json` hold one number per line with its source; the texts are this
//! project's own. Names of the hardware's codes are those of `nv-hw`.

use std::io::{self, Write};
use std::sync::LazyLock;

use serde::{Deserialize, Serialize};

use crate::report::Report;
use crate::report::style::{HEADING, NAME};

/// Owner of a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Class {
    /// A program, by its kernels or its calls.
    Program,
    /// The driver, or firmware of the GPU.
    Driver,
    /// The GPU, its memory, or its link.
    Hardware,
    /// The power supply, or heat.
    Power,
    /// How the machine is set up: files, releases, settings.
    Configuration,
    /// It follows from another error.
    Consequence,
    /// Nothing failed.
    Notice,
    /// No source tells.
    Unknown,
}

impl Class {
    /// In words, as they follow `fault of`.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Program => "the program",
            Self::Driver => "driver or firmware",
            Self::Hardware => "the hardware",
            Self::Power => "power or heat",
            Self::Configuration => "the configuration",
            Self::Consequence => "an earlier error",
            Self::Notice => "nobody: nothing failed",
            Self::Unknown => "not known",
        }
    }
}

/// A number with its meaning.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Error {
    /// The number, decimal in logs.
    pub number: u32,
    /// Name in the driver's headers.
    pub name: Option<String>,
    /// In a few words.
    pub title: String,
    /// Meaning.
    pub meaning: String,
    /// The likeliest owner of the fault.
    pub class: Class,
    /// Other owners.
    #[serde(default)]
    pub also: Vec<Class>,
    /// Advice.
    pub action: String,
    /// Source of the facts.
    pub source: String,
    /// `unused` or `reserved` of numbers that no driver in use prints.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
}

macro_rules! table {
    ($name:ident, $file:literal, $what:literal) => {
        #[doc = $what]
        ///
        /// # Panics
        /// If the program was built with a damaged table, which a test excludes.
        #[must_use]
        pub fn $name() -> &'static [Error] {
            static TABLE: LazyLock<Vec<Error>> =
                LazyLock::new(|| serde_json::from_str(include_str!($file)).expect("a table"));
            &TABLE
        }
    };
}
table!(xids, "../../data/xids.json", "The desktop driver's Xids, by number.");
table!(notifiers, "../../data/notifiers.json", "The error notifiers of nvgpu's channels, by number.");

/// The Xid of that number.
#[must_use]
pub fn xid(number: u32) -> Option<&'static Error> {
    xids().iter().find(|error| error.number == number)
}

/// Owner of the errors of an Xid, where a line has one that is known.
#[must_use]
pub fn class_of(number: Option<u32>) -> Option<Class> {
    number.and_then(xid).map(|known| known.class)
}

/// The error notifier of that number.
#[must_use]
pub fn notifier(number: u32) -> Option<&'static Error> {
    notifiers().iter().find(|error| error.number == number)
}

/// Errors to be shown.
#[derive(Clone, Debug, Serialize)]
pub struct Xids<'a> {
    /// The errors, by number.
    pub xids: Vec<&'a Error>,
}

impl Report for Xids<'_> {
    const SCHEMA: &'static str = "nvdiag.xid/1";

    fn has_problem(&self) -> bool {
        false
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.xids.as_slice() {
            [one] => one.print("Xid", out),
            all => all.iter().try_for_each(|x| {
                let status = x.status.as_ref().map_or(String::new(), |status| format!(" ({status})"));
                writeln!(out, "{:>4}  {:<52}  {}{status}", x.number, x.title, x.class.words())
            }),
        }
    }
}

impl Error {
    /// Writes it with its facts.
    fn print(&self, kind: &str, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}{kind} {}: {}{HEADING:#}", self.number, self.title)?;
        let mut row = |name: &str, value: &str| writeln!(out, "  {NAME}{name:<14}{NAME:#}{value}");
        if let Some(name) = &self.name {
            row("name", name)?;
        }
        row("meaning", &self.meaning)?;
        let also: Vec<&str> = self.also.iter().map(|class| class.words()).collect();
        let also = if also.is_empty() { String::new() } else { format!("; also {}", also.join(", ")) };
        row("fault of", &format!("{}{also}", self.class.words()))?;
        row("do", &self.action)?;
        row("source", &self.source)
    }
}
