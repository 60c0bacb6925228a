//! Output while steps run.

use std::io::Write;

/// Output that is left out where the result is one JSON document.
pub struct Text<'a> {
    /// Output.
    pub out: &'a mut dyn Write,
    /// Whether text is printed.
    pub on: bool,
    /// Whether the file has what cannot be printed.
    pub has_file: bool,
    /// Why nothing is printed any more.
    pub failed: Option<std::io::Error>,
}

impl Text<'_> {
    /// Prints, and shows it at once: the next step may take long.
    pub fn print(&mut self, print: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> anyhow::Result<()> {
        if !self.on || self.failed.is_some() {
            return Ok(());
        }
        let printed = print(self.out).and_then(|()| self.out.flush());
        self.note(printed)
    }

    /// Goes on without output where there is a file to complete.
    fn note(&mut self, printed: std::io::Result<()>) -> anyhow::Result<()> {
        match printed {
            Err(error) if self.has_file => {
                self.failed.get_or_insert(error);
                Ok(())
            }
            printed => Ok(printed?),
        }
    }

    /// Prints it on standard error where standard output is for one document.
    pub fn print_always(
        &mut self,
        print: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> anyhow::Result<()> {
        match self.on {
            true => self.print(print),
            false => {
                let printed = print(&mut std::io::stderr().lock());
                self.note(printed)
            }
        }
    }
}
