//! The file of a cubin that is loaded, as debuggers take it: sections, symbols, code and line tables have their
//! addresses.
//!
//! cuda-gdb reads such a file from a GPU core dump (`CUDBG_SHT_RELF_IMG`): it finds code by the values of
//! symbols, and source lines by the addresses in `.debug_line` (`libcudacore/cudacore.c`,
//! `gdb/cuda/cuda-elf-image.c`).

use std::collections::BTreeMap;

use super::error::CubinError;
use super::file::{File, Section};
use super::loader::{Cubin, Extent, Relocation, apply};

/// Bytes of `Elf64_Shdr`, and of `Elf64_Sym`.
const SECTION_HEADER: usize = 64;
const SYMBOL: usize = 24;

/// The file of `cubin`, which was read from `bytes`, with the addresses that it has at `base`.
///
/// # Errors
/// [`CubinError::Truncated`] for tables that are not in the file, and the errors of its relocations.
pub(crate) fn relocated(bytes: &[u8], cubin: &Cubin, base: u64) -> Result<Vec<u8>, CubinError> {
    let file = File::parse(bytes)?;
    let image = cubin.image(base)?;
    let loaded = |section: &Section<'_>| {
        let part = cubin.parts.iter().find(|part| part.name == section.name)?;
        Some((section.index, part.extent))
    };
    let placed: BTreeMap<usize, Extent> = file.sections().filter_map(|section| loaded(&section)).collect();
    let mut out = bytes.to_vec();
    let table = long(bytes, 0x28)?;
    for section in file.sections() {
        let Some(extent) = placed.get(&section.index) else { continue };
        put(&mut out, table + (section.index * SECTION_HEADER) as u64 + 16, base + extent.offset)?;
        if let Some(offset) = section.offset {
            let code = range(&image, extent.offset, section.size)?;
            let (start, len) = (offset as usize, code.len());
            let place = out.get_mut(start..start.saturating_add(len));
            place.ok_or(CubinError::Truncated { what: "a section" })?.copy_from_slice(code);
        }
    }
    if let Some(symbols) = file.section(".symtab") {
        for (index, symbol) in file.content(&symbols)?.chunks_exact(SYMBOL).enumerate() {
            let section = u16::from_le_bytes([symbol[6], symbol[7]]);
            let Some(extent) = placed.get(&usize::from(section)) else { continue };
            let at = symbols.offset.unwrap_or(0) + (index * SYMBOL) as u64 + 8;
            let value = long(symbol, 8)?.wrapping_add(base + extent.offset);
            put(&mut out, at, value)?;
        }
    }
    debug_sections(&file, &placed, base, &mut out)?;
    Ok(out)
}

/// Puts addresses into what debuggers read.
fn debug_sections(
    file: &File<'_>,
    placed: &BTreeMap<usize, Extent>,
    base: u64,
    out: &mut [u8],
) -> Result<(), CubinError> {
    for r in file.relocations() {
        let Some(section) = file.section_at(r.section).filter(|section| section.name.contains("debug_"))
        else {
            continue;
        };
        let (Some(offset), Some((place, value))) = (section.offset, r.target) else { continue };
        let start = placed.get(&place).map_or(0, |extent| base + extent.offset);
        let target = start.wrapping_add(value);
        apply(
            out,
            &Relocation { at: offset.saturating_add(r.offset), kind: r.kind, target, addend: r.addend },
            0,
        )?;
    }
    Ok(())
}

fn range(bytes: &[u8], offset: u64, len: u64) -> Result<&[u8], CubinError> {
    let range = offset as usize..offset.saturating_add(len) as usize;
    bytes.get(range).ok_or(CubinError::Truncated { what: "a section" })
}

fn long(bytes: &[u8], at: usize) -> Result<u64, CubinError> {
    let long = bytes.get(at..).and_then(|rest| rest.first_chunk());
    long.map(|long| u64::from_le_bytes(*long)).ok_or(CubinError::Truncated { what: "a table" })
}

fn put(bytes: &mut [u8], at: u64, value: u64) -> Result<(), CubinError> {
    let place = bytes.get_mut(at as usize..).and_then(|rest| rest.first_chunk_mut());
    *place.ok_or(CubinError::Truncated { what: "a table" })? = value.to_le_bytes();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: u64 = 0x10_0020_0000;

    fn both(bytes: &[u8]) -> (Cubin, Vec<u8>) {
        let cubin = Cubin::parse(bytes, |_| Some(0x160)).expect("a cubin");
        let loaded = relocated(bytes, &cubin, BASE).expect("relocated");
        (cubin, loaded)
    }

    #[test]
    fn sections_and_symbols_have_addresses_and_lines_stay_where_they_were() {
        let bytes = include_bytes!("../../tests/data/lines.sm_87.cubin");
        let (cubin, loaded) = both(bytes);
        let (before, after) = (File::parse(bytes).expect("a cubin"), File::parse(&loaded).expect("a cubin"));
        let mut kernels = 0;
        for (was, is) in before.functions().zip(after.functions()) {
            let extent = cubin.parts.iter().find(|part| part.name == is.section.name).expect("loaded").extent;
            assert_eq!(is.section.address, BASE + extent.offset);
            assert_eq!((was.name, was.offset, was.section.address), (is.name, is.offset, 0));
            assert_eq!(before.lines(&was).expect("lines").table(), after.lines(&is).expect("lines").table());
            assert!(!after.lines(&is).expect("lines").is_empty());
            kernels += 1;
        }
        assert_eq!(kernels, 2);
    }

    #[test]
    fn the_code_is_that_of_the_image() {
        let bytes = include_bytes!("../../../diag/tests/data/12_local_stack.sm_87.cubin");
        let (cubin, loaded) = both(bytes);
        let file = File::parse(&loaded).expect("a cubin");
        let image = cubin.image(BASE).expect("an image");
        for part in &cubin.parts {
            let section = file.section(&part.name).expect("the section");
            let start = part.extent.offset as usize;
            assert_eq!(
                file.content(&section).expect("content"),
                &image[start..start + part.extent.len as usize]
            );
        }
    }
}
