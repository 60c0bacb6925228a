//! Messages from a terminal, with a line editor, or from a file or pipe, a line each.

use std::io::{self, BufRead, IsTerminal};

use anyhow::Context;
use rustyline::DefaultEditor;
use rustyline::error::ReadlineError;

/// Begins and ends a message of several lines.
const FENCE: &str = "\"\"\"";

/// A line of input.
#[derive(Debug, PartialEq, Eq)]
pub enum Line {
    Text(String),
    /// Ctrl-C
    Cancelled,
    /// Bytes that are no text.
    Unreadable,
    /// Ctrl-D, or the end of the file.
    End,
}

/// The source of messages.
pub enum Input {
    Terminal(Box<DefaultEditor>),
    File,
}

impl Input {
    /// Standard input.
    pub fn open() -> anyhow::Result<Self> {
        if !io::stdin().is_terminal() {
            return Ok(Self::File);
        }
        Ok(Self::Terminal(Box::new(DefaultEditor::new().context("cannot use the terminal")?)))
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self, Self::Terminal(_))
    }

    /// The next message or command.
    pub fn read(&mut self) -> anyhow::Result<Line> {
        let message = message(&mut |prompt| self.line(prompt))?;
        if let (Self::Terminal(editor), Line::Text(text)) = (&mut *self, &message) {
            editor.add_history_entry(text.as_str())?;
        }
        Ok(message)
    }

    fn line(&mut self, prompt: &str) -> anyhow::Result<Line> {
        match self {
            Self::Terminal(editor) => loop {
                return match editor.readline(prompt) {
                    // A signal that came during the answer.
                    Err(ReadlineError::Signal(_)) => continue,
                    Ok(text) => Ok(Line::Text(text)),
                    Err(ReadlineError::Interrupted) => Ok(Line::Cancelled),
                    Err(ReadlineError::Eof) => Ok(Line::End),
                    Err(ReadlineError::Io(error)) if error.kind() == io::ErrorKind::InvalidData => {
                        Ok(Line::Unreadable)
                    }
                    Err(error) => Err(error).context("cannot read from the terminal"),
                };
            },
            Self::File => {
                let mut bytes = Vec::new();
                let read = io::stdin().lock().read_until(b'\n', &mut bytes);
                if read.context("cannot read standard input")? == 0 {
                    return Ok(Line::End);
                }
                let Ok(text) = String::from_utf8(bytes) else { return Ok(Line::Unreadable) };
                let text = text.strip_suffix('\n').unwrap_or(&text);
                Ok(Line::Text(text.strip_suffix('\r').unwrap_or(text).into()))
            }
        }
    }
}

/// A message of one or several of the lines that `line` reads.
fn message(line: &mut dyn FnMut(&str) -> anyhow::Result<Line>) -> anyhow::Result<Line> {
    let mut parts: Vec<String> = Vec::new();
    let mut fenced = false;
    loop {
        let more = fenced || !parts.is_empty();
        match line(if more { "… " } else { "> " })? {
            // A message that the end of the file cuts off is one.
            Line::End if more => return Ok(Line::Text(parts.join("\n"))),
            Line::Text(text) if text.trim() == FENCE => {
                if fenced {
                    return Ok(Line::Text(parts.join("\n")));
                }
                fenced = true;
            }
            Line::Text(text) if fenced => parts.push(text),
            Line::Text(text) => match text.strip_suffix('\\') {
                Some(text) => parts.push(text.into()),
                None => {
                    parts.push(text);
                    return Ok(Line::Text(parts.join("\n")));
                }
            },
            other => return Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(text: &str) -> Vec<String> {
        let mut lines = text.lines().map(|line| Line::Text(line.into()));
        let mut all = Vec::new();
        loop {
            match message(&mut |_| Ok(lines.next().unwrap_or(Line::End))).expect("reads") {
                Line::Text(text) => all.push(text),
                _ => return all,
            }
        }
    }

    #[test]
    fn lines_are_joined_where_they_say_so() {
        assert_eq!(messages("a\nb"), ["a", "b"]);
        assert_eq!(messages("a\\\nb\nc"), ["a\nb", "c"]);
        assert_eq!(messages("\"\"\"\na\\\n\nb\n\"\"\"\nc"), ["a\\\n\nb", "c"]);
        assert_eq!(messages("\"\"\"\na"), ["a"]);
        assert_eq!(messages("a\\"), ["a"]);
        assert_eq!(messages(""), [""; 0]);
    }

    #[test]
    fn a_cancelled_message_is_gone() {
        let mut lines = [Line::Text("a\\".into()), Line::Cancelled].into_iter();
        let read = message(&mut |_| Ok(lines.next().unwrap_or(Line::End))).expect("reads");
        assert_eq!(read, Line::Cancelled);
    }
}
