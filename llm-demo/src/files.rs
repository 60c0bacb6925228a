//! The files that a command line names: none is written over another, or in the place of one of another kind.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use ga10b_llm::gguf::Gguf;
use ga10b_llm::session::check_writable;

use crate::cli::commands::Command;
use crate::cli::options::{Constraints, Text};
use crate::cli::speculation::Speculation;
use crate::outcome::Usage;

/// The beginning of a trace.
const TRACE: &[u8] = b"{\"traceEvents\":[";
/// The beginning of the name of a model that `synthesize` writes.
const SYNTHETIC: &str = "synthetic ";

/// An output, by its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    /// Checked by its reader, which comes first.
    Session,
    Trace,
    Logits,
    Model,
}

/// The files of a command. Inputs stand after the name of their content.
#[derive(Default)]
struct Files<'a> {
    /// Inputs that are read before the device is opened.
    early: Vec<(&'static str, &'a Path)>,
    /// Inputs that are read beside it or after.
    late: Vec<(&'static str, &'a Path)>,
    outputs: Vec<(Output, &'a Path)>,
}

/// Checks the files of `command`, before anything else is done.
///
/// # Errors
/// If an input cannot be opened; if an output cannot be written, is the file of an input or of another output,
/// or would replace a file that this command did not write.
pub fn check(command: &Command) -> anyhow::Result<()> {
    let Files { early, late, outputs } = Files::of(command);
    for (what, path) in &late {
        readable(path).with_context(|| format!("cannot use the {what} {}", path.display()))?;
    }
    let mut named = [early, late].concat();
    for (output, path) in outputs {
        let (file, what) = (Identity::of(path), output.name());
        if let Some((other, _)) =
            named.iter().find(|(_, other)| file.is_some() && Identity::of(other) == file)
        {
            let both =
                format!("{} is the {other} and the {what}: each needs a file of its own", path.display());
            return Err(Usage(both).into());
        }
        output.check(path).with_context(|| format!("cannot write {}", path.display()))?;
        named.push((what, path));
    }
    Ok(())
}

impl<'a> Files<'a> {
    fn of(command: &'a Command) -> Self {
        let mut files = Self::default();
        match command {
            Command::Run(run) => {
                files.early("model", run.common.model.path.as_deref()).text(&run.text);
                files.draft(&run.speculation).constraints(&run.constraints);
                files.output(Output::Session, run.session.as_deref());
                files.output(Output::Trace, run.trace.as_deref());
            }
            Command::Chat(chat) => {
                files.early("model", chat.common.model.path.as_deref());
                files.draft(&chat.speculation).constraints(&chat.constraints);
                files.late("template", chat.template.as_deref());
                files.output(Output::Session, chat.session.as_deref());
            }
            Command::Serve(serve) => {
                files.draft(&serve.speculation);
            }
            Command::Speculate(speculate) => {
                files.draft(&speculate.speculation);
            }
            Command::Logits(logits) => {
                files.early("model", logits.common.model.path.as_deref());
                files.output(Output::Logits, Some(&logits.out));
            }
            Command::Synthesize(synthesize) => files.output(Output::Model, Some(&synthesize.file)),
            _ => {}
        }
        files
    }

    fn early(&mut self, what: &'static str, path: Option<&'a Path>) -> &mut Self {
        self.early.extend(path.map(|path| (what, path)));
        self
    }

    fn late(&mut self, what: &'static str, path: Option<&'a Path>) -> &mut Self {
        self.late.extend(path.map(|path| (what, path)));
        self
    }

    fn text(&mut self, text: &'a Text) -> &mut Self {
        self.early("prompt", text.file.as_deref())
    }

    fn draft(&mut self, speculation: &'a Speculation) -> &mut Self {
        self.late("draft model", speculation.draft.as_deref())
    }

    fn constraints(&mut self, constraints: &'a Constraints) -> &mut Self {
        self.late("schema", constraints.json_schema.as_deref());
        self.late("grammar", constraints.grammar.as_deref())
    }

    fn output(&mut self, output: Output, path: Option<&'a Path>) {
        self.outputs.extend(path.filter(|path| *path != Path::new("-")).map(|path| (output, path)));
    }
}

impl Output {
    fn name(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Trace => "trace",
            Self::Logits => "file of logits",
            Self::Model => "synthetic model",
        }
    }

    /// Whether `path` can be written, and what is there may be replaced.
    fn check(self, path: &Path) -> anyhow::Result<()> {
        let found = match fs::metadata(path) {
            _ if self == Self::Session => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(check_writable(path)?),
            found => found?,
        };
        if found.is_file() && found.len() > 0 {
            ensure!(
                self.wrote(path)?,
                "it is there, and is no {} that is known to be of llm-demo; remove it, or choose another name",
                self.name()
            );
        }
        if found.is_file() || found.is_dir() {
            File::options().append(true).open(path)?;
        }
        Ok(())
    }

    /// Whether the file at `path` is of this kind. Logits have no mark.
    fn wrote(self, path: &Path) -> io::Result<bool> {
        match self {
            Self::Session | Self::Logits => Ok(false),
            Self::Trace => {
                let mut begin = Vec::new();
                File::open(path)?.take(TRACE.len() as u64).read_to_end(&mut begin)?;
                Ok(begin == TRACE)
            }
            Self::Model => {
                let name =
                    Gguf::open(path).ok().and_then(|gguf| gguf.text("general.name").ok()?.map(str::to_owned));
                Ok(name.is_some_and(|name| name.starts_with(SYNTHETIC)))
            }
        }
    }
}

/// Whether a file can be opened. A pipe is left to its reader, whose writer sees one end.
fn readable(path: &Path) -> anyhow::Result<()> {
    let pipe = || fs::metadata(path).is_ok_and(|found| !found.is_file());
    let opened = if pipe() { Ok(()) } else { File::open(path).map(drop) };
    opened.with_context(|| format!("cannot read {}", path.display()))
}

/// The identity of a file, the same for all its names.
#[derive(PartialEq)]
enum Identity {
    Node(u64, u64),
    /// The path of a file that is not there yet, in its folder's own path.
    New(PathBuf),
}

impl Identity {
    /// `None` for pipes and devices, which lose nothing, and in folders that are not there.
    fn of(path: &Path) -> Option<Self> {
        if let Ok(found) = fs::metadata(path) {
            return found.is_file().then(|| Self::Node(found.dev(), found.ino()));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(Self::New(folder.canonicalize().ok()?.join(path.file_name()?)))
    }
}
