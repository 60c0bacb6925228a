//! Outputs for events: the log, the printed trace, and saved QMDs.
//!
//! The traced program runs on whatever happens to these files: one that cannot be written is given up, and the
//! error is reported at the end.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nvdiag::Report;
use nvdiag::trace::{Call, Event, Header, LogWriter, Printer, Summary};

use crate::cmd::finding::is_broken_pipe;
use crate::cmd::replaced;
use crate::cmd::trace::capture::{Rings, Saver};
use crate::cmd::trace::tracer::Events;

/// Files of a trace.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// File for the output; stdout without it.
    pub output: Option<&'a Path>,
    /// The log.
    pub log: Option<&'a Path>,
    /// The folder of QMDs.
    pub qmds: Option<&'a Path>,
}

/// Style of printed events.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// As JSON.
    pub json: bool,
    /// As a table of counts.
    pub summary: bool,
    /// With names in place of values that differ from run to run.
    pub normalize: bool,
}

/// Takes the events of a trace.
pub struct Sink<'o> {
    /// `None` once it cannot be written.
    out: Option<Out<'o>>,
    log: Option<Log>,
    summary: Option<Summary>,
    printer: Printer,
    qmds: Option<Saver>,
    json: bool,
    /// The first file that could not be written.
    failure: Option<anyhow::Error>,
    /// Whether events came since the last flush.
    is_dirty: bool,
    /// Calls that succeeded.
    pub served: u64,
    /// Calls that did not.
    pub failed: u64,
    /// The channels whose rings are read.
    pub rings: Option<Rings>,
}

struct Out<'o> {
    writer: Box<dyn Write + 'o>,
    /// The file behind it, and its path; `None` for stdout.
    file: Option<(File, PathBuf)>,
}

struct Log {
    writer: LogWriter<BufWriter<File>>,
    file: File,
    path: PathBuf,
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

/// Waits until the disk has a file, so that it outlives a machine that freezes. Pipes and devices have no disk.
fn sync(file: &File) -> io::Result<()> {
    match file.sync_data() {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
        done => done,
    }
}

impl Log {
    fn create(path: &Path, header: &Header) -> io::Result<Self> {
        let file = File::create(path)?;
        let writer = LogWriter::new(BufWriter::new(file.try_clone()?), header)?;
        Ok(Self { writer, file, path: path.to_owned() })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()?;
        sync(&self.file)
    }
}

impl Out<'_> {
    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()?;
        self.file.as_ref().map_or(Ok(()), |(file, _)| sync(file))
    }
}

impl<'o> Sink<'o> {
    /// Creates the files.
    ///
    /// # Errors
    /// One cannot be written.
    pub fn new(
        files: Files<'_>,
        style: Style,
        header: &Header,
        stdout: &'o mut dyn Write,
    ) -> anyhow::Result<Self> {
        let log = files.log.map(|path| {
            replaced::ensure_same_kind(path, "a log of calls", |start| start.starts_with(b"{\"schema\""))?;
            Log::create(path, header).with_context(|| cannot_write(path))
        });
        let log = log.transpose()?;
        let mut out = match files.output {
            Some(path) => {
                let cannot = || cannot_write(path);
                let file = File::create(path).with_context(cannot)?;
                let copy = file.try_clone().with_context(cannot)?;
                let writer = Box::new(BufWriter::new(anstream::StripStream::new(file)));
                Out { writer, file: Some((copy, path.to_owned())) }
            }
            None => Out { writer: Box::new(stdout), file: None },
        };
        if style.json && !style.summary {
            serde_json::to_writer(&mut out.writer, header)?;
            writeln!(out.writer)?;
        }
        Ok(Self {
            out: Some(out),
            log,
            summary: style.summary.then(Summary::default),
            printer: Printer::new(style.normalize),
            qmds: files.qmds.map(Saver::new).transpose()?,
            json: style.json,
            failure: None,
            is_dirty: true,
            served: 0,
            failed: 0,
            rings: None,
        })
    }

    /// Gives up the log, if it could not be written.
    fn log_done(&mut self, done: io::Result<()>) {
        let Err(error) = done else { return };
        if let Some(log) = self.log.take() {
            self.failure.get_or_insert(anyhow::Error::from(error).context(cannot_write(&log.path)));
        }
    }

    /// Gives the printed output up, if it could not be written.
    fn out_done(&mut self, done: io::Result<()>) {
        let Err(error) = done else { return };
        let Some(out) = self.out.take() else { return };
        let error = anyhow::Error::from(error);
        match out.file {
            Some((_, path)) => _ = self.failure.get_or_insert(error.context(cannot_write(&path))),
            // A reader that has stopped has read enough.
            None if is_broken_pipe(&error) => {}
            None => _ = self.failure.get_or_insert(error),
        }
    }

    fn print(&mut self, event: &Event) -> io::Result<()> {
        let Some(out) = &mut self.out else { return Ok(()) };
        match &mut self.summary {
            Some(summary) => summary.add(event),
            None if self.printer.is_repeated(event) => {}
            None if self.json => {
                serde_json::to_writer(&mut out.writer, &self.printer.json(event))?;
                writeln!(out.writer)?;
            }
            None => self.printer.text(event, &mut out.writer)?,
        }
        Ok(())
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// The first file that could not be written, and why.
    pub fn finish(mut self) -> anyhow::Result<()> {
        if let (Some(summary), Some(out)) = (self.summary.take().map(Summary::finish), &mut self.out) {
            let printed = match self.json {
                true => summary.print_json(&mut out.writer),
                false => summary.print(&mut out.writer),
            };
            self.out_done(printed);
        }
        self.is_dirty = true;
        self.flush();
        self.failure.map_or(Ok(()), Err)
    }
}

impl Events for Sink<'_> {
    fn event(&mut self, event: Event) {
        self.is_dirty = true;
        let logged = self.log.as_mut().map_or(Ok(()), |log| log.writer.event(&event));
        self.log_done(logged);
        match event.result {
            0.. => self.served += 1,
            _ => self.failed += 1,
        }
        if let Some(rings) = &mut self.rings {
            rings.event(&event);
        }
        if let (Some(qmds), Call::Submission(submission)) = (&mut self.qmds, &event.call)
            && let Err(error) = qmds.save(submission)
        {
            self.qmds = None;
            self.failure.get_or_insert(error);
        }
        let printed = self.print(&event);
        self.out_done(printed);
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            let logged = self.log.as_mut().map_or(Ok(()), Log::flush);
            self.log_done(logged);
            let printed = self.out.as_mut().map_or(Ok(()), Out::flush);
            self.out_done(printed);
        }
    }

    fn listens(&self) -> bool {
        self.out.is_some() || self.log.is_some()
    }
}

/// Refuses two names of one file: one would be lost before it is read, or both be mixed. Nothing is opened.
///
/// # Errors
/// Two are the same regular file, or would be.
pub fn ensure_different(named: &[(&str, Option<&Path>)]) -> anyhow::Result<()> {
    let named: Vec<(&str, &Path)> = named.iter().filter_map(|(name, path)| Some((*name, (*path)?))).collect();
    for (i, (name, path)) in named.iter().enumerate() {
        let same = named[..i].iter().find(|(_, other)| is_same(path, other));
        if let Some((other, _)) = same {
            ensure!(false, "{other} and {name} are the same file, {}: name two files", path.display());
        }
    }
    Ok(())
}

fn is_same(one: &Path, other: &Path) -> bool {
    match (fs::metadata(one), fs::metadata(other)) {
        (Ok(one), Ok(other)) => one.is_file() && other.is_file() && replaced::is_same(&one, &other),
        (Err(_), Err(_)) => match (place(one), place(other)) {
            (Some(one), Some(other)) => one == other,
            _ => false,
        },
        _ => false,
    }
}

/// Returns the place where a file that does not exist would be made.
fn place(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(fs::canonicalize(folder).ok()?.join(path.file_name()?))
}
