//! Errors of reading a cubin.

use nv_hw::Shown;

/// An error of reading a cubin.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CubinError {
    /// The file is not an ELF object, or its tables are broken.
    #[error("not a readable ELF object: {reason}")]
    Elf {
        /// The reader's finding.
        reason: String,
    },
    /// Something people take for a cubin.
    #[error("no cubin but {what}")]
    Other {
        /// The kind of file, and its use.
        what: &'static str,
    },
    /// The file is an object for something else.
    #[error("not a 64-bit CUDA object (machine {machine}, expected 190); a fatbin must be unpacked first")]
    NotCuda {
        /// `e_machine`.
        machine: u16,
    },
    /// The code is for an SM this crate has no tables for.
    #[error("the code is for sm_{sm}, which is not supported")]
    UnknownSm {
        /// The number in the ELF flags.
        sm: u32,
    },
    /// The code is for another GPU.
    #[error("the code is for sm_{code}, the device is sm_{device}")]
    WrongSm {
        /// The SM of the code.
        code: u32,
        /// The SM of the device.
        device: u32,
    },
    /// Of several images none is for the GPU.
    #[error("no image runs on the device, an sm_{device}: there are {}", versions(images))]
    NoneFits {
        /// The SM of the device.
        device: u32,
        /// The SMs of the images.
        images: Vec<u32>,
    },
    /// Something ends before its length says.
    #[error("{what} ends past the end of its container")]
    Truncated {
        /// The part of the file.
        what: &'static str,
    },
    /// An attribute record has an unknown format.
    #[error("attribute {code:#04x} has the unknown format {format}")]
    Attribute {
        /// The format byte.
        format: u8,
        /// The attribute.
        code: u8,
    },
    /// A section's alignment is not usable.
    #[error("section {} wants alignment {align}", Shown(section))]
    Alignment {
        /// Its name.
        section: String,
        /// The alignment.
        align: u64,
    },
    /// A section's length is not plausible.
    #[error("section {} is {len} bytes long", Shown(section))]
    TooLarge {
        /// Its name.
        section: String,
        /// Its length.
        len: u64,
    },
    /// A relocation names a symbol that is not there or not loaded (an undefined external, a texture).
    #[error("a relocation names symbol {index}, which is not part of what is loaded")]
    Symbol {
        /// Index in the symbol table.
        index: usize,
    },
    /// A relocation of an unknown type.
    #[error("relocation type {kind:#x} is not supported")]
    Relocation {
        /// The type.
        kind: u32,
    },
    /// The content of an image in a fat binary cannot be unpacked.
    #[error("the image for sm_{sm} cannot be unpacked ({compression}): {reason}")]
    Compressed {
        /// The SM of the image.
        sm: u32,
        /// The packing.
        compression: &'static str,
        /// The unpacker's finding.
        reason: String,
    },
    /// The table of source lines is damaged.
    #[error("the source lines (.debug_line) cannot be read: {reason}")]
    Lines {
        /// The reader's finding.
        reason: String,
    },
    /// Something a kernel cannot run without is absent.
    #[error("kernel {} has no {what}", Shown(kernel))]
    Missing {
        /// The kernel.
        kernel: String,
        /// The absent part.
        what: &'static str,
    },
}

fn versions(images: &[u32]) -> String {
    let versions: Vec<String> = images.iter().map(|sm| format!("sm_{sm}")).collect();
    if versions.is_empty() { "none".to_owned() } else { versions.join(", ") }
}
