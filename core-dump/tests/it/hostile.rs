//! Files that are damaged, or made to cost memory.

use core_dump::{CoreDump, Error};
use proptest::prelude::*;

use crate::hand_built::{Section, file, sections};

fn error(sections: &[Section]) -> Error {
    CoreDump::read(file(sections).as_slice()).expect_err("a bad file")
}

fn named<'s>(sections: &'s mut [Section], name: &str) -> &'s mut Section {
    sections.iter_mut().find(|section| section.0.starts_with(name)).expect("the section")
}

#[test]
fn a_file_that_ends_anywhere_is_called_truncated() {
    let whole = file(&sections());
    for len in 4..whole.len() {
        let error = CoreDump::read(&whole[..len]).expect_err("truncated");
        assert!(matches!(error, Error::Truncated { .. }), "{len}: {error}");
    }
}

/// The section table may stand first: then the contents are what is missing.
#[test]
fn a_section_past_the_end_is_named() {
    let mut bytes = file(&sections());
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().expect("8 bytes")) as usize;
    let size = table + 64 + 32;
    bytes[size..size + 8].copy_from_slice(&0xffff_ffff_ffff_fff0_u64.to_le_bytes());
    let text = CoreDump::read(bytes.as_slice()).expect_err("truncated").to_string();
    assert!(text.contains("section 1 .cudbg.lntbl.dev0.sm1.cta0.wp0 ends at"), "{text}");
}

#[test]
fn sections_that_share_their_bytes_are_refused() {
    let mut bytes = file(&sections());
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().expect("8 bytes")) as usize;
    for section in 1..20 {
        let at = table + 64 * section;
        bytes[at + 24..at + 32].fill(0);
        bytes[at + 32..at + 40].copy_from_slice(&(table as u64).to_le_bytes());
    }
    let error = CoreDump::read(bytes.as_slice()).expect_err("too large");
    assert!(matches!(error, Error::TooLarge { .. }), "{error}");
}

#[test]
fn a_section_of_no_row_is_named() {
    for (name, link, info) in [
        (".cudbg.regs", 1, 2),
        (".cudbg.regs", 2, 0),
        (".cudbg.regs", 0, 0),
        (".cudbg.lntbl", 1, 0),
        (".cudbg.wptbl", 3, u32::MAX),
        (".cudbg.smtbl", 999, 0),
        (".cudbg.relfimg", 8, 1),
        (".cudbg.param", 5, 1),
        (".cudbg.bt", 1, 7),
    ] {
        let mut sections = sections();
        let section = named(&mut sections, name);
        (section.3, section.4) = (link, info);
        let error = error(&sections);
        assert!(matches!(error, Error::Orphan { .. }), "{name}: {error}");
    }
}

#[test]
fn rows_that_are_too_short_are_refused() {
    for size in [0, 1, 47] {
        let mut sections = sections();
        named(&mut sections, ".cudbg.lntbl").5 = size;
        assert_eq!(error(&sections), Error::Row { section: 1, name: "lanes", size, least: 48 });
    }
    let mut sections = sections();
    named(&mut sections, ".cudbg.lntbl").5 = u64::MAX;
    assert!(matches!(error(&sections), Error::Orphan { .. }), "a table without rows");
}

/// A count of sections that no file has.
#[test]
fn a_huge_section_count_is_called_truncated() {
    let mut bytes = file(&sections());
    let table = u64::from_le_bytes(bytes[0x28..0x30].try_into().expect("8 bytes")) as usize;
    bytes[0x3c..0x3e].fill(0);
    bytes[table + 32..table + 40].copy_from_slice(&u64::MAX.to_le_bytes());
    let error = CoreDump::read(bytes.as_slice()).expect_err("truncated");
    assert!(matches!(error, Error::Truncated { .. }), "{error}");
}

/// Rows take more memory than in the file.
#[test]
fn more_rows_than_any_gpu_has_are_refused() {
    let mut sections = sections();
    let section = named(&mut sections, ".cudbg.modtbl");
    section.6 = vec![0; 8 * ((1 << 22) + 1)];
    assert!(matches!(error(&sections), Error::TooManyRows { .. }));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_damage_is_read_or_an_error(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = file(&sections());
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let _ = CoreDump::read(bytes.as_slice());
    }
}
