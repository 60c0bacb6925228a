//! Fat binaries, and programs that hold them: their cubins, and the selection of one.

use std::io::{self, Write};

use hcq::CubinError;
use hcq::cubin::{File, Image, ImageKind, images};
use serde::Serialize;

use crate::demangle::{demangled, shown};
use crate::report::Report;
use crate::report::style::HEADING;

/// Why no cubin was taken out of a fat binary.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file could not be read.
    #[error(transparent)]
    File(#[from] CubinError),
    /// No image has that number.
    #[error("there is no image {index}; there are {count}")]
    NoIndex {
        /// The requested number.
        index: usize,
        /// Their number.
        count: usize,
    },
    /// The image of that number is no cubin.
    #[error("image {index} is {kind}: it holds no machine code")]
    NotCubin {
        /// Its number.
        index: usize,
        /// Its kind.
        kind: String,
    },
    /// No cubin is for that architecture.
    #[error("no cubin is for sm_{sm}; there are: {}", available.join(", "))]
    NoArch {
        /// The requested one.
        sm: u32,
        /// Architectures of the cubins.
        available: Vec<String>,
    },
}

/// Contents of a fat binary.
#[derive(Clone, Debug, Serialize)]
pub struct FatBinary {
    /// Its images, in file order.
    pub images: Vec<Entry>,
}

/// An image of a fat binary.
#[derive(Clone, Debug, Serialize)]
pub struct Entry {
    /// Its number, from 1.
    pub index: usize,
    /// Target, e.g. `sm_87`.
    pub target: String,
    /// `cubin`, `PTX`, or another kind by its number.
    pub kind: String,
    /// Compression.
    pub compression: &'static str,
    /// Its length when it is unpacked.
    pub size_bytes: u64,
    /// Names of its kernels; empty for PTX.
    pub kernels: Vec<String>,
    /// Those names in the same order, as C++ or Rust spells them; absent where none is mangled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub demangled: Vec<String>,
    /// Why its kernels could not be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Selection of a cubin.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice {
    /// For this compute capability, 87 for 8.7.
    pub sm: Option<u32>,
    /// By its number, from 1.
    pub index: Option<usize>,
}

/// Result of a choice.
#[derive(Clone, Debug)]
pub enum Chosen {
    /// The content of one cubin.
    Cubin(Vec<u8>),
    /// Several fit: the list to choose from.
    Several(FatBinary),
}

impl FatBinary {
    /// Takes the selected cubin out of a fat binary or of a program that holds one; `None` if the file is
    /// neither. Cubins without kernels are passed over where one with kernels fits, too.
    ///
    /// # Errors
    /// One of [`Error`].
    pub fn choose(bytes: &[u8], choice: Choice) -> Result<Option<Chosen>, Error> {
        let Some(images) = images(bytes)? else { return Ok(None) };
        if let Some(index) = choice.index {
            let image = index.checked_sub(1).and_then(|at| images.get(at));
            let image = image.ok_or(Error::NoIndex { index, count: images.len() })?;
            if image.kind != ImageKind::Cubin {
                return Err(Error::NotCubin { index, kind: kind_name(image.kind) });
            }
            return Ok(Some(Chosen::Cubin(image.content()?.into_owned())));
        }
        let entries: Vec<Entry> =
            images.iter().zip(1..).map(|(image, index)| Entry::of(image, index)).collect();
        let fits =
            |image: &Image<'_>| image.kind == ImageKind::Cubin && choice.sm.is_none_or(|sm| image.sm == sm);
        let fitting: Vec<usize> = (0..images.len()).filter(|&at| fits(&images[at])).collect();
        if let (Some(sm), []) = (choice.sm, &*fitting) {
            let mut available: Vec<String> =
                entries.iter().map(|entry| format!("{} ({})", entry.target, entry.kind)).collect();
            available.dedup();
            return Err(Error::NoArch { sm, available });
        }
        let full: Vec<usize> =
            fitting.iter().copied().filter(|&at| !entries[at].kernels.is_empty()).collect();
        match (&*fitting, &*full) {
            ([one], _) | (_, [one]) => Ok(Some(Chosen::Cubin(images[*one].content()?.into_owned()))),
            _ => {
                let shown = |entry: &Entry| choice.sm.is_none() || fitting.contains(&(entry.index - 1));
                Ok(Some(Chosen::Several(Self { images: entries.into_iter().filter(shown).collect() })))
            }
        }
    }
}

fn kind_name(kind: ImageKind) -> String {
    match kind {
        ImageKind::Cubin => "cubin".to_owned(),
        ImageKind::Ptx => "PTX".to_owned(),
        ImageKind::Other(number) => format!("kind {number}"),
        _ => "unknown".to_owned(),
    }
}

/// The names as their language spells them; empty where no name is mangled.
fn readable(names: &[String]) -> Vec<String> {
    let read: Vec<_> = names.iter().map(|name| demangled(name)).collect();
    match read.iter().any(Option::is_some) {
        true => {
            read.into_iter().zip(names).map(|(read, name)| read.unwrap_or_else(|| name.clone())).collect()
        }
        false => Vec::new(),
    }
}

/// Names for a line of text, up to its length.
fn listed(names: &[String]) -> String {
    /// Most characters of all names together.
    const LINE: usize = 160;
    let mut line = String::new();
    for (at, name) in names.iter().enumerate() {
        let name = shown(name);
        if at > 0 && line.chars().count() + name.chars().count() > LINE {
            line += &format!(" and {} more", names.len() - at);
            break;
        }
        line += if at > 0 { " " } else { "" };
        line += &name;
    }
    line
}

impl Entry {
    fn of(image: &Image<'_>, index: usize) -> Self {
        let names = || -> Result<Vec<String>, CubinError> {
            let content = image.content()?;
            let file = File::parse(&content)?;
            Ok(file.kernels().map(|kernel| kernel.name.to_owned()).collect())
        };
        let (kernels, error) = match image.kind {
            ImageKind::Cubin => match names() {
                Ok(kernels) => (kernels, None),
                Err(error) => (Vec::new(), Some(error.to_string())),
            },
            _ => (Vec::new(), None),
        };
        Self {
            index,
            target: format!("sm_{}", image.sm),
            kind: kind_name(image.kind),
            compression: image.compression.name(),
            size_bytes: image.size_bytes,
            demangled: readable(&kernels),
            kernels,
            error,
        }
    }
}

impl Report for FatBinary {
    const SCHEMA: &'static str = "nvdiag.fatbin/1";

    fn has_problem(&self) -> bool {
        self.images.iter().any(|image| image.error.is_some())
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "{HEADING}fat binary, {} images{HEADING:#}", self.images.len())?;
        for image in &self.images {
            let content = match (&image.error, &*image.kernels) {
                (Some(error), _) => error.clone(),
                (None, []) if image.kind == "cubin" => "no kernels".to_owned(),
                (None, kernels) => listed(kernels),
            };
            let Entry { index, target, kind, compression, size_bytes, .. } = image;
            let line = format!(
                "{index:>4}  {target:<7} {kind:<6} {size_bytes:>9} bytes  {compression:<10}  {content}"
            );
            writeln!(out, "{}", line.trim_end())?;
        }
        writeln!(out, "choose one with --index N or --arch sm_NN")
    }
}
