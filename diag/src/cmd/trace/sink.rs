//! Outputs for events: the log, the printed trace, and saved QMDs.
//!
//! The traced program runs on whatever happens to these files: one that cannot be written is given up, and the
//! error is reported at the end.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};
use nvdiag::Report;
use nvdiag::trace::{Call, Event, Header, LogWriter, Printer, Summary, Timeline, View};

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
    /// The time line.
    pub perfetto: Option<&'a Path>,
}

/// Style of printed events.
#[derive(Clone, Copy, Debug)]
pub struct Style {
    /// As JSON.
    pub json: bool,
    /// As a table of counts.
    pub summary: bool,
    /// Parts that are shown as text.
    pub view: View,
    /// With names in place of values that differ from run to run.
    pub normalize: bool,
}

/// Takes the events of a trace.
pub struct Sink<'o> {
    out: Output<Out<'o>>,
    log: Output<LogWriter<Out<'o>>>,
    timeline: Output<(Timeline, Out<'o>)>,
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

/// An output, until it cannot be written.
struct Output<T> {
    to: Option<T>,
    /// `None` for stdout.
    path: Option<PathBuf>,
}

/// A file or stdout. A flush waits until the disk has the file, so that it outlives a machine that freezes.
struct Out<'o> {
    writer: Box<dyn Write + 'o>,
    file: Option<File>,
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

impl Out<'_> {
    fn create(path: &Path) -> anyhow::Result<Self> {
        let file = File::create(path).with_context(|| cannot_write(path))?;
        let copy = file.try_clone().with_context(|| cannot_write(path))?;
        Ok(Self { writer: Box::new(BufWriter::new(anstream::StripStream::new(copy))), file: Some(file) })
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.writer.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()?;
        match self.file.as_ref().map_or(Ok(()), File::sync_data) {
            // Pipes and devices have no disk.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }
}

impl<T> Output<T> {
    fn new(path: Option<&Path>, create: impl FnOnce(&Path) -> anyhow::Result<T>) -> anyhow::Result<Self> {
        Ok(Self { to: path.map(create).transpose()?, path: path.map(Path::to_owned) })
    }

    /// Writes, and gives the output up where that fails. Nothing is written to one that is given up.
    fn write(&mut self, failure: &mut Option<anyhow::Error>, write: impl FnOnce(&mut T) -> io::Result<()>) {
        let Some(Err(error)) = self.to.as_mut().map(write) else { return };
        self.to = None;
        let error = anyhow::Error::from(error);
        match &self.path {
            Some(path) => _ = failure.get_or_insert(error.context(cannot_write(path))),
            // A reader that has stopped has read enough.
            None if is_broken_pipe(&error) => {}
            None => _ = failure.get_or_insert(error),
        }
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
        let log = Output::new(files.log, |path| {
            replaced::ensure_same_kind(path, "a log of calls", |start| start.starts_with(b"{\"schema\""))?;
            LogWriter::new(Out::create(path)?, header).with_context(|| cannot_write(path))
        })?;
        let mut out = Output::new(files.output, Out::create)?;
        let stdout = || Out { writer: Box::new(stdout), file: None };
        let writer = out.to.get_or_insert_with(stdout);
        if style.json && !style.summary {
            serde_json::to_writer(&mut *writer, header)?;
            writeln!(writer)?;
        }
        Ok(Self {
            out,
            log,
            timeline: Output::new(files.perfetto, |path| Ok((Timeline::default(), Out::create(path)?)))?,
            summary: style.summary.then(Summary::default),
            printer: Printer::new(style.view, style.normalize),
            qmds: files.qmds.map(Saver::new).transpose()?,
            json: style.json,
            failure: None,
            is_dirty: true,
            served: 0,
            failed: 0,
            rings: None,
        })
    }

    /// Writes the rest.
    ///
    /// # Errors
    /// The first file that could not be written, and why.
    pub fn finish(mut self) -> anyhow::Result<()> {
        let summary = self.summary.take().map(Summary::finish);
        self.out.write(&mut self.failure, |out| match &summary {
            Some(summary) if self.json => summary.print_json(out),
            Some(summary) => summary.print(out),
            None => Ok(()),
        });
        self.timeline.write(&mut self.failure, |(timeline, out)| std::mem::take(timeline).finish(out));
        self.is_dirty = true;
        self.flush();
        self.failure.map_or(Ok(()), Err)
    }
}

impl Events for Sink<'_> {
    fn event(&mut self, event: Event) {
        self.is_dirty = true;
        self.log.write(&mut self.failure, |log| log.event(&event));
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
        self.out.write(&mut self.failure, |out| match &mut self.summary {
            Some(summary) => {
                summary.add(&event);
                Ok(())
            }
            None if self.printer.is_repeated(&event) => Ok(()),
            None if self.json => {
                serde_json::to_writer(&mut *out, &self.printer.json(&event))?;
                writeln!(out)
            }
            None => self.printer.text(&event, out),
        });
        self.timeline.write(&mut self.failure, |(timeline, out)| timeline.event(&event, out));
    }

    fn flush(&mut self) {
        if std::mem::take(&mut self.is_dirty) {
            self.log.write(&mut self.failure, LogWriter::flush);
            self.out.write(&mut self.failure, Out::flush);
            self.timeline.write(&mut self.failure, |(_, out)| out.flush());
        }
    }

    fn listens(&self) -> bool {
        self.out.to.is_some() || self.log.to.is_some() || self.timeline.to.is_some()
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
