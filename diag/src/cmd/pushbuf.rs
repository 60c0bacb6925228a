//! `nvdiag pushbuf`: decodes the words sent to a channel.

use std::io::Write;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use clap::ValueEnum;
use nvdiag::pushbuffer::{Decoder, Generation};

use crate::cmd::finding::Finding;
use crate::cmd::finding::show;
use crate::cmd::input::{number, read_input};

/// Decode a captured pushbuffer or GPFIFO: methods, fields, the classes bound to subchannels, inline QMDs.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  nvdiag pushbuf pb.bin                                 a pushbuffer
  nvdiag pushbuf --gpfifo ring.bin --memory pb.bin@0x1000200000
  nvdiag pushbuf pb.bin --bind 1=0xc7c0                 a class bound earlier

Exit codes: 0 decoded; 1 something in it is wrong; 2 bad usage, or unreadable input.")]
pub struct Args {
    /// The capture, raw bytes as in memory; `-` for stdin.
    file: PathBuf,
    /// The file is a GPFIFO: a ring of 8-byte entries that name segments.
    #[arg(long)]
    gpfifo: bool,
    /// With --gpfifo: memory the segments are in, captured from this GPU address on.
    #[arg(long, value_name = "FILE@ADDRESS", value_parser = memory, requires = "gpfifo")]
    memory: Vec<(PathBuf, u64)>,
    /// Where the pushbuffer or ring starts in the file, in bytes.
    #[arg(long, value_name = "BYTES", value_parser = number, default_value = "0")]
    offset: u64,
    /// How much of the file it is, in bytes; all of the rest if not given.
    #[arg(long, value_name = "BYTES", value_parser = number)]
    length: Option<u64>,
    /// Chip whose classes the channel has before it binds any.
    #[arg(long, value_enum, default_value_t = Chip::Ampere)]
    chip: Chip,
    /// A class that was bound to a subchannel before the capture began.
    #[arg(long, value_name = "SUBCHANNEL=CLASS", value_parser = binding)]
    bind: Vec<(u8, u32)>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Chip {
    /// ga10b and other Ampere and Ada parts.
    Ampere,
    /// GH100.
    Hopper,
}

fn memory(text: &str) -> Result<(PathBuf, u64), String> {
    let (file, address) =
        text.rsplit_once('@').ok_or("expected a file and an address, such as pb.bin@0x1000")?;
    Ok((file.into(), number(address)?))
}

fn binding(text: &str) -> Result<(u8, u32), String> {
    let expected = "expected a subchannel from 0 to 7 and a class, such as 1=0xc7c0";
    let (subchannel, class) = text.split_once('=').ok_or(expected)?;
    let subchannel = subchannel.parse().ok().filter(|n| *n < 8).ok_or(expected)?;
    Ok((subchannel, u32::try_from(number(class)?).map_err(|_| expected)?))
}

impl Args {
    /// Decodes and prints.
    pub fn run(&self, json: bool, out: &mut dyn Write) -> anyhow::Result<Finding> {
        let file = read_input(&self.file)?;
        let name = self.file.display();
        let range = usize::try_from(self.offset).ok().and_then(|start| {
            let end = match self.length {
                Some(length) => start.checked_add(usize::try_from(length).ok()?)?,
                None => file.len(),
            };
            file.get(start..end)
        });
        let bytes = range.with_context(|| {
            format!("{name} has {} bytes, which offset and length do not fit in", file.len())
        })?;
        ensure!(!bytes.is_empty(), "nothing to decode in {name}");
        let generation = match self.chip {
            Chip::Ampere => Generation::Ampere,
            Chip::Hopper => Generation::Hopper,
        };
        let bind = |decoder: Decoder, &(subchannel, class): &(u8, u32)| decoder.bind(subchannel, class);
        let mut decoder = self.bind.iter().fold(Decoder::new(generation), bind);
        if self.gpfifo {
            let read = |(path, address): &(PathBuf, u64)| anyhow::Ok((*address, read_input(path)?));
            let memory: Vec<(u64, Vec<u8>)> = self.memory.iter().map(read).collect::<Result<_, _>>()?;
            decoder.gpfifo(bytes, |address, len| {
                memory.iter().find_map(|(base, content)| {
                    let start = usize::try_from(address.checked_sub(*base)?).ok()?;
                    content.get(start..start.checked_add(usize::try_from(len).ok()?)?)
                })
            });
        } else {
            decoder.segment(None, bytes);
        }
        show(&decoder.finish(), json, out)
    }
}
