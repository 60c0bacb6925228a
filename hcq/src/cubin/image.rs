//! Fat binaries: the images of several architectures in one file.
//!
//! A container is a header of 16 bytes (magic, version, header length, content length), then images, each with
//! a header of its own. Executables and objects hold containers one after another in the sections `.nv_fatbin`
//! and `__nv_relfatbin`. The format is not documented by NVIDIA; what is read here is what `fatbinary` of
//! CUDA 11 to 13 writes. Images are packed as LZ4 blocks, or with Zstandard from CUDA 12.8 on.

use std::borrow::Cow;
use std::io::Read;

use goblin::elf::Elf;

use super::error::CubinError;
use super::file::EM_CUDA;

/// Magic number of a container.
const MAGIC: [u8; 4] = [0x50, 0xed, 0x55, 0xba];
/// Sections of executables and objects that hold containers.
const SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];
/// `flags` of an image: packed as an LZ4 block.
const LZ4: u64 = 1 << 13;
/// `flags` of an image: packed with Zstandard.
const ZSTD: u64 = 1 << 15;
/// Most bytes that an image is unpacked to.
const LARGEST: u64 = 1 << 30;

/// The kind of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ImageKind {
    /// PTX text.
    Ptx,
    /// A cubin.
    Cubin,
    /// Something else, by its number.
    Other(u16),
}

/// The packing of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Not at all.
    None,
    /// As an LZ4 block.
    Lz4,
    /// With Zstandard.
    Zstd,
}

impl Compression {
    /// Its usual name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "not packed",
            Self::Lz4 => "LZ4",
            Self::Zstd => "Zstandard",
        }
    }
}

/// An image of a fat binary.
#[derive(Clone, Copy, Debug)]
pub struct Image<'a> {
    /// The kind.
    pub kind: ImageKind,
    /// The compute capability it is for, 87 for 8.7.
    pub sm: u32,
    /// The packing.
    pub compression: Compression,
    /// Its length when it is unpacked, in bytes.
    pub size_bytes: u64,
    packed: &'a [u8],
}

impl<'a> Image<'a> {
    /// Its content, unpacked.
    ///
    /// # Errors
    /// [`CubinError::TooLarge`] above 1 GiB, [`CubinError::Compressed`].
    pub fn content(&self) -> Result<Cow<'a, [u8]>, CubinError> {
        let failed = |reason: String| CubinError::Compressed {
            sm: self.sm,
            compression: self.compression.name(),
            reason,
        };
        if self.size_bytes > LARGEST {
            return Err(CubinError::TooLarge { section: "of the image".to_owned(), len: self.size_bytes });
        }
        let content = match self.compression {
            Compression::None => return Ok(Cow::Borrowed(self.packed)),
            Compression::Lz4 => {
                // A byte of an LZ4 block stands for 255 at most.
                let most = self.packed.len().saturating_mul(255).saturating_add(64);
                lz4_flex::block::decompress(self.packed, most.min(self.size_bytes as usize))
                    .map_err(|error| failed(error.to_string()))?
            }
            Compression::Zstd => {
                let unpacker = ruzstd::decoding::StreamingDecoder::new(self.packed);
                let unpacker = unpacker.map_err(|error| failed(error.to_string()))?;
                let mut content = Vec::new();
                unpacker
                    .take(self.size_bytes.saturating_add(1))
                    .read_to_end(&mut content)
                    .map_err(|error| failed(error.to_string()))?;
                content
            }
        };
        if content.len() as u64 == self.size_bytes {
            Ok(Cow::Owned(content))
        } else {
            Err(failed(format!("{} bytes instead of {}", content.len(), self.size_bytes)))
        }
    }
}

/// The images of a fat binary, or of an executable or object that holds some; `None` for a file that is
/// neither.
///
/// # Errors
/// [`CubinError::Elf`], [`CubinError::Truncated`], and [`CubinError::Other`] for an ELF file without device
/// code and for a static library.
pub fn images(bytes: &[u8]) -> Result<Option<Vec<Image<'_>>>, CubinError> {
    if bytes.starts_with(&MAGIC) {
        return containers(bytes).map(Some);
    }
    if bytes.starts_with(b"!<arch>\n") {
        let what = "a static library: take its objects out with `ar x FILE`";
        return Err(CubinError::Other { what });
    }
    if bytes.starts_with(b"MZ") {
        return Err(CubinError::Other { what: "a Windows executable, which cannot be read" });
    }
    // A cubin names its own machine, at byte 18.
    let machine = bytes.get(18..20).map(|half| u16::from_le_bytes([half[0], half[1]]));
    if !bytes.starts_with(b"\x7fELF") || machine == Some(EM_CUDA) {
        return Ok(None);
    }
    let elf = Elf::parse(bytes).map_err(|error| CubinError::Elf { reason: error.to_string() })?;
    let mut all = Vec::new();
    for header in &elf.section_headers {
        if elf.shdr_strtab.get_at(header.sh_name).is_some_and(|name| SECTIONS.contains(&name)) {
            let range = header.file_range().and_then(|range| bytes.get(range));
            all.extend(containers(range.ok_or(CubinError::Truncated { what: "a section" })?)?);
        }
    }
    if all.is_empty() {
        let what = "a program without device code (no .nv_fatbin or __nv_relfatbin section): a shared library \
            that it loads may have it";
        return Err(CubinError::Other { what });
    }
    Ok(Some(all))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

/// The images of containers that follow each other, with zeros between them.
fn containers(mut bytes: &[u8]) -> Result<Vec<Image<'_>>, CubinError> {
    let truncated = CubinError::Truncated { what: "a fatbin" };
    let mut images = Vec::new();
    while let Some(start) = bytes.iter().position(|byte| *byte != 0) {
        bytes = &bytes[start..];
        if !bytes.starts_with(&MAGIC) {
            return Err(CubinError::Other { what: "a fat binary with something unknown between its images" });
        }
        let (Some(header), Some(len)) = (half(bytes, 6), long(bytes, 8)) else { return Err(truncated) };
        let end = usize::try_from(len).ok().and_then(|len| len.checked_add(header.into()));
        let Some((container, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else {
            return Err(truncated);
        };
        let Some(mut content) = container.get(header.into()..) else { return Err(truncated) };
        while !content.is_empty() {
            let Some((image, rest)) = image(content) else { return Err(truncated) };
            images.push(image);
            content = rest;
        }
        bytes = rest;
    }
    Ok(images)
}

/// The first image, and what follows it.
fn image(bytes: &[u8]) -> Option<(Image<'_>, &[u8])> {
    let header = word(bytes, 4)? as usize;
    let len = usize::try_from(long(bytes, 8)?).ok()?;
    let body = bytes.get(header..header.checked_add(len)?)?;
    let rest = bytes.get((header + len).max(1)..)?;
    let flags = long(bytes, 0x28)?;
    let compression = match (flags & LZ4 != 0, flags & ZSTD != 0) {
        (true, _) => Compression::Lz4,
        (false, true) => Compression::Zstd,
        (false, false) => Compression::None,
    };
    let (packed, size_bytes) = match compression {
        Compression::None => (body, len as u64),
        // The body is padded; the length of what is packed stands by itself.
        _ => (body.get(..word(bytes, 0x10)? as usize)?, long(bytes, 0x38)?),
    };
    let kind = match half(bytes, 0)? {
        1 => ImageKind::Ptx,
        2 => ImageKind::Cubin,
        other => ImageKind::Other(other),
    };
    Some((Image { kind, sm: word(bytes, 0x1c)?, compression, size_bytes, packed }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cubin::file::File;

    const LZ4_FILE: &[u8] = include_bytes!("../../tests/data/triple.lz4.fatbin");
    const ZSTD_FILE: &[u8] = include_bytes!("../../tests/data/triple.zstd.fatbin");
    const OBJECT: &[u8] = include_bytes!("../../tests/data/triple.o");

    /// The images of a file: sm, kind, and the kernels of cubins.
    fn listed(bytes: &[u8]) -> Vec<(u32, ImageKind, Vec<String>)> {
        let images = images(bytes).expect("readable").expect("a fat binary");
        let row = |image: &Image<'_>| {
            let content = image.content().expect("unpacks");
            assert_eq!(content.len() as u64, image.size_bytes);
            let names = match image.kind {
                ImageKind::Cubin => {
                    let file = File::parse(&content).expect("a cubin");
                    assert_eq!(file.sm(), image.sm);
                    file.kernels().map(|kernel| kernel.name.to_owned()).collect()
                }
                _ => Vec::new(),
            };
            (image.sm, image.kind, names)
        };
        images.iter().map(row).collect()
    }

    #[test]
    fn images_of_every_packing_are_read() {
        let kernel = || vec!["_Z6triplePi".to_owned()];
        let cubin = |sm| (sm, ImageKind::Cubin, kernel());
        let expected = [cubin(87), cubin(89), (89, ImageKind::Ptx, Vec::new())];
        for file in [LZ4_FILE, ZSTD_FILE] {
            let mut found = listed(file);
            found.sort_by_key(|(sm, kind, _)| (*sm, *kind == ImageKind::Ptx));
            assert_eq!(found, expected);
        }
        assert_eq!(listed(OBJECT), [cubin(89)]);
    }

    #[test]
    fn damage_is_an_error() {
        for file in [LZ4_FILE, ZSTD_FILE, OBJECT] {
            for len in (0..file.len()).step_by(37) {
                let _ = images(&file[..len]);
            }
            for at in (0..file.len()).step_by(5) {
                let mut damaged = file.to_vec();
                damaged[at] ^= 0xff;
                for image in images(&damaged).ok().flatten().unwrap_or_default() {
                    let _ = image.content();
                }
            }
        }
        let cut = images(&ZSTD_FILE[..ZSTD_FILE.len() - 8]);
        assert!(matches!(cut, Err(CubinError::Truncated { .. })), "{cut:?}");
    }

    #[test]
    fn other_files_are_named() {
        assert!(matches!(images(b"!<arch>\n"), Err(CubinError::Other { .. })));
        assert!(
            images(include_bytes!("../../tests/data/01_vecadd.sm_87.cubin")).expect("readable").is_none()
        );
    }
}
