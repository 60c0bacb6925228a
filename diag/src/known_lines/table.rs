//! The table, with an index by the texts of its formats.

use std::collections::HashMap;
use std::io::Read;
use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, MatchKind};
use flate2::read::GzDecoder;
use serde::Deserialize;

use crate::known_lines::line::Line;
use crate::known_lines::pieces::{self, Piece, Span, squeezed};

/// Bytes of a literal that are looked for.
const ANCHOR: usize = 32;

/// A line of a log that the table knows.
#[derive(Clone, Debug)]
pub struct Known<'t> {
    /// The format and its meaning.
    pub line: &'t Line,
    /// Advice.
    pub advice: &'t str,
    /// Names and texts of the values, in the order of the format; fewer where the line is cut off.
    pub values: Vec<(&'t str, String)>,
    /// Whether the line is whole.
    pub complete: bool,
    /// Whether the text in front of the message names a function that prints this format.
    pub function_agrees: bool,
}

/// The table, with its index.
#[derive(Debug)]
pub struct Table {
    lines: Vec<Line>,
    advice: HashMap<String, String>,
    automaton: AhoCorasick,
    /// For each pattern of the automaton: lines, and which of their pieces begins with it.
    anchored: Vec<Vec<(u32, u32)>>,
    /// Lines by the functions that print them.
    functions: HashMap<String, Vec<u32>>,
}

/// Defect of a file that is not a table.
#[derive(Debug, thiserror::Error)]
pub enum TableError {
    /// It is no gzip stream.
    #[error("the table of known lines cannot be unpacked: {0}")]
    Unpack(#[from] std::io::Error),
    /// It is not the JSON that it should be.
    #[error("the table of known lines cannot be read: {0}")]
    Read(#[from] serde_json::Error),
    /// It is of another version.
    #[error("the table of known lines has the schema {0}, not nvdiag.formats/1")]
    Schema(String),
    /// Its texts are too many or too long to index.
    #[error("the table of known lines cannot be indexed: {0}")]
    Index(#[from] aho_corasick::BuildError),
}

#[derive(Deserialize)]
struct Document {
    schema: String,
    advice: HashMap<String, String>,
    lines: Vec<Line>,
}

impl Table {
    /// The table that is built into the program.
    ///
    /// # Panics
    /// If the program was built with a damaged table, which a test excludes.
    #[must_use]
    pub fn built_in() -> &'static Self {
        static TABLE: LazyLock<Table> = LazyLock::new(|| {
            Table::read(include_bytes!("../../data/nvgpu-formats.json.gz")).expect("the table of known lines")
        });
        &TABLE
    }

    /// Reads a table as `tools/nvgpu-formats` writes it.
    ///
    /// # Errors
    /// If the bytes are damaged or of another version.
    pub fn read(gzip: &[u8]) -> Result<Self, TableError> {
        let mut text = String::new();
        GzDecoder::new(gzip).read_to_string(&mut text)?;
        let Document { schema, advice, lines } = serde_json::from_str(&text)?;
        if schema != "nvdiag.formats/1" {
            return Err(TableError::Schema(schema));
        }
        let mut patterns: Vec<&str> = Vec::new();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        let mut anchored: Vec<Vec<(u32, u32)>> = Vec::new();
        let mut functions: HashMap<String, Vec<u32>> = HashMap::new();
        for (index, line) in (0u32..).zip(&lines) {
            for site in &line.sites {
                let lines = functions.entry(site.function.clone()).or_default();
                if lines.last() != Some(&index) {
                    lines.push(index);
                }
            }
            let Some((piece, text)) = anchor(&line.pieces) else { continue };
            let number = *numbers.entry(text).or_insert_with(|| {
                patterns.push(text);
                anchored.push(Vec::new());
                patterns.len() - 1
            });
            anchored[number].push((index, piece));
        }
        let automaton = AhoCorasick::builder().match_kind(MatchKind::Standard).build(&patterns)?;
        Ok(Self { automaton, anchored, functions, advice, lines })
    }

    /// All lines of the table.
    #[must_use]
    pub fn lines(&self) -> &[Line] {
        &self.lines
    }

    /// The advice of that name.
    #[must_use]
    pub fn advice(&self, name: &str) -> &str {
        self.advice.get(name).map_or("", String::as_str)
    }

    /// The part of the driver that the function in nvgpu's frame belongs to, for lines whose text is not
    /// known.
    #[must_use]
    pub fn unit_around(&self, text: &str) -> Option<&str> {
        let first = *self.functions.get(frame_function(text)?.1)?.first()?;
        Some(&self.lines[first as usize].unit)
    }

    /// The format that a line of a log was printed with: the one that explains most of it.
    ///
    /// Short formats count only where the line names the driver, since words like `busy` are in many logs.
    #[must_use]
    pub fn find(&self, text: &str) -> Option<Known<'_>> {
        let text = squeezed(text.trim_end());
        let text = text.as_ref();
        let message = message_start(text);
        let mut best: Option<(Rank, u32, Span)> = None;
        let mut consider = |index: u32, span: Span| {
            if !span.tells(8) {
                return;
            }
            let line = &self.lines[index as usize];
            let named = words(&text[..span.start]).any(|word| line.is_of(word));
            if !line.is_telling() && !named && !marked(&line.driver, text) {
                return;
            }
            let rank = Rank::of(&span, named, message.is_some());
            if best.as_ref().is_none_or(|(other, ..)| rank > *other) {
                best = Some((rank, index, span));
            }
        };
        for hit in self.automaton.find_overlapping_iter(text) {
            for (index, piece) in &self.anchored[hit.pattern().as_usize()] {
                let pieces = &self.lines[*index as usize].pieces;
                if let Some(span) = pieces::around(pieces, *piece as usize, text, hit.start(), message) {
                    consider(*index, span);
                }
            }
        }
        if best.is_none() {
            best = self.by_function(text);
        }
        best.map(|(rank, index, span)| self.known(text, rank, index, &span))
    }

    /// A line without a text to search for, such as `%s`, identified by the function in front of it.
    fn by_function(&self, text: &str) -> Option<(Rank, u32, Span)> {
        let (start, function) = frame_function(text)?;
        let bare = self.functions.get(function)?.iter().filter(|index| {
            let pieces = &self.lines[**index as usize].pieces;
            anchor(pieces).is_none()
        });
        let matches =
            |index: &u32| Some((*index, pieces::whole(&self.lines[*index as usize].pieces, text, start)?));
        let (index, span) = bare.filter_map(matches).max_by_key(|(_, span)| span.literal)?;
        Some((Rank::of(&span, true, true), index, span))
    }

    fn known(&self, text: &str, rank: Rank, index: u32, span: &Span) -> Known<'_> {
        let line = &self.lines[index as usize];
        let names = line.pieces.iter().filter_map(|piece| match piece {
            Piece::Value(_, name) => Some(name.as_str()),
            Piece::Literal(_) => None,
        });
        let values =
            names.zip(&span.values).map(|(name, (from, to))| (name, text[*from..*to].to_owned())).collect();
        let advice = self.advice(&line.advice);
        Known { line, advice, values, complete: span.complete, function_agrees: rank.named }
    }
}

/// Quality of a match: by the function that the line's frame names, then by the length of text that the
/// format explains.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    whole_and_named: bool,
    literal: usize,
    complete: bool,
    named: bool,
}

impl Rank {
    fn of(span: &Span, named: bool, framed: bool) -> Self {
        let complete = span.complete;
        Self { whole_and_named: complete && named && framed, literal: span.literal, complete, named }
    }
}

/// The literal that a format is looked for by, and which piece it is: an early one, since lines are cut off
/// at their end.
fn anchor(pieces: &[Piece]) -> Option<(u32, &str)> {
    let literals = (0u32..).zip(pieces).filter_map(|(at, piece)| match piece {
        Piece::Literal(text) => Some((at, text.as_str())),
        Piece::Value(..) => None,
    });
    let telling = |text: &str| text.bytes().filter(u8::is_ascii_alphanumeric).count();
    let long = literals.clone().find(|(_, text)| telling(text) >= 10);
    let (at, text) = long.or_else(|| literals.max_by_key(|(_, text)| telling(text)))?;
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= ANCHOR).last()?;
    (telling(text) >= 2).then_some((at, &text[..end]))
}

/// Whether a line names a driver.
fn marked(driver: &str, text: &str) -> bool {
    match driver {
        "nvgpu" => text.contains("nvgpu") || text.contains("gk20a") || text.contains("__g"),
        "nvrm" => text.contains("NVRM"),
        "linux" | "user" => true,
        other => text.contains(other),
    }
}

/// The function in nvgpu's frame, `{function}:{line} [{level}] `, and where the message begins.
fn frame_function(text: &str) -> Option<(usize, &str)> {
    let level = ["[ERR]", "[WRN]", "[INFO]", "[DBG]"]
        .iter()
        .find_map(|level| Some((text.find(level)?, level.len())))?;
    let function = text[..level.0].trim_end().rsplit(' ').next()?.split_once(':')?.0;
    let start = level.0 + level.1;
    Some((start + usize::from(text[start..].starts_with(' ')), function))
}

/// Returns the start of the message after nvgpu's frame, or after that of its dumps, `__{chip}__ `.
fn message_start(text: &str) -> Option<usize> {
    frame_function(text).map(|(start, _)| start).or_else(|| {
        let chip = text.find("__g")? + 2;
        let end = chip + text[chip..].find("__ ")? + 3;
        (end - chip <= 11).then_some(end)
    })
}

/// The words of C in a text.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}
