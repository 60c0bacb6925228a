//! Lines that begin with a slash: what the program does instead of answering.

/// The first line on a terminal.
pub const WELCOME: &str = "[/help lists the commands; Ctrl-C stops an answer, Ctrl-D ends the program]";

/// The commands.
pub const HELP: &str = "\
/new            begin a new conversation, with the same system message
/system TEXT    begin a new conversation with this system message
/undo           remove the last message and its answer
/retry          answer the last message again
/exit           end the program, as Ctrl-D
A line that ends with \\ continues on the next. Lines between two lines of \"\"\" are one message.
A message that begins with a slash: write it twice.";

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Order {
    Help,
    New,
    System(String),
    Undo,
    Retry,
    Exit,
}

impl Order {
    /// The command in `text`; `None` if it is a message. The error says what is wrong.
    pub fn of(text: &str) -> Option<Result<Self, String>> {
        let rest = text.strip_prefix('/').filter(|rest| !rest.starts_with('/'))?;
        let (word, argument) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let argument = argument.trim();
        let order = match word {
            "help" | "?" => Self::Help,
            "new" | "clear" => Self::New,
            "system" if argument.is_empty() => return Some(Err("/system needs a text".into())),
            "system" => return Some(Ok(Self::System(argument.into()))),
            "undo" => Self::Undo,
            "retry" => Self::Retry,
            "exit" | "quit" | "bye" => Self::Exit,
            _ => return Some(Err(format!("there is no command /{word}; /help lists them"))),
        };
        if !argument.is_empty() {
            return Some(Err(format!("/{word} takes no text")));
        }
        Some(Ok(order))
    }
}

/// The message that was entered: a slash that is written twice is one.
pub fn message(text: String) -> String {
    match text.strip_prefix('/') {
        Some(rest) if rest.starts_with('/') => rest.into(),
        _ => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        assert_eq!(Order::of("Hello /new"), None);
        assert_eq!(Order::of("//etc is a folder"), None);
        assert_eq!(Order::of("/new "), Some(Ok(Order::New)));
        assert_eq!(Order::of("/system  Be brief. "), Some(Ok(Order::System("Be brief.".into()))));
        assert_eq!(message("//etc is a folder".into()), "/etc is a folder");
        assert_eq!(message("a // b".into()), "a // b");
        for bad in ["/", "/system", "/new now", "/etc/passwd"] {
            assert!(matches!(Order::of(bad), Some(Err(_))), "{bad}");
        }
    }
}
