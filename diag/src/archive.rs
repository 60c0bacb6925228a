//! Archives that a person attaches to a ticket: a `.tar.gz` of a few texts.

use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Packs texts under their names.
///
/// # Errors
/// Those of `out`.
pub fn pack(entries: &[(impl AsRef<str>, Vec<u8>)], out: impl Write) -> io::Result<()> {
    let mut archive = tar::Builder::new(GzEncoder::new(out, Compression::best()));
    for (name, bytes) in entries {
        let mut header = tar::Header::new_gnu();
        // No owner and no time: neither is of use to a reader.
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        header.set_uid(0);
        header.set_gid(0);
        header.set_cksum();
        archive.append_data(&mut header, name.as_ref(), bytes.as_slice())?;
    }
    archive.into_inner()?.finish()?.flush()
}
