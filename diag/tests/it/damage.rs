//! Damaged input: reports or errors, never a panic.

use nvdiag::Report;
use nvdiag::disassembly::Disassembly;
use nvdiag::queue_metadata::Metadata;
use proptest::prelude::*;

const CUBIN: &[u8] = include_bytes!("../data/12_local_stack.sm_87.cubin");

fn print(report: &impl Report) {
    let mut out = Vec::new();
    report.print(&mut out).expect("memory takes everything");
    report.print_json(&mut out).expect("memory takes everything");
}

proptest! {
    #[test]
    fn a_damaged_cubin(
        changes in prop::collection::vec((0..CUBIN.len(), any::<u8>()), 0..64),
        headers in prop::collection::vec((0usize..64, any::<u8>()), 0..4),
        keep in prop_oneof![3 => Just(CUBIN.len()), 1 => 0..CUBIN.len()],
    ) {
        let mut bytes = CUBIN.to_vec();
        for (at, value) in changes.into_iter().chain(headers) {
            bytes[at] = value;
        }
        bytes.truncate(keep);
        if let Ok(report) = Disassembly::read(&bytes, None, &mut |_| None) {
            print(&report);
        }
    }

    #[test]
    fn a_damaged_section_table(at in 0usize..26 * 64, value in any::<u64>()) {
        let mut bytes = CUBIN.to_vec();
        let table = u64::from_le_bytes(*bytes[0x28..].first_chunk().expect("e_shoff")) as usize;
        let at = (table + at).min(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        if let Ok(report) = Disassembly::read(&bytes, None, &mut |_| None) {
            print(&report);
        }
    }

    #[test]
    fn bytes_that_are_no_cubin(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        prop_assert!(Disassembly::read(&bytes, None, &mut |_| None).is_err());
    }

    #[test]
    fn any_bytes_as_a_qmd(bytes in prop::collection::vec(any::<u8>(), 0..512), hopper in any::<bool>()) {
        let version = if hopper { qmd::Version::V04 } else { qmd::Version::V03 };
        let any = qmd::Qmd::from_bytes_as(version, &bytes).map(Metadata::of);
        for report in [Metadata::read(&bytes), any].into_iter().flatten() {
            print(&report);
        }
    }
}

#[test]
fn a_word_that_is_no_instruction_is_shown_and_counts_as_a_problem() {
    let whole = Disassembly::read(CUBIN, Some("local_array"), &mut |_| None).expect("a cubin");
    assert!(!whole.has_problem());
    let word = u128::from_str_radix(whole.kernels[0].instructions[3].word.trim_start_matches("0x"), 16)
        .expect("hex");
    let at = CUBIN.windows(16).position(|w| w == word.to_le_bytes()).expect("the code is in the file");
    let mut bytes = CUBIN.to_vec();
    bytes[at..at + 16].fill(0xff);
    let report = Disassembly::read(&bytes, None, &mut |_| None).expect("still a cubin");
    assert!(report.has_problem());
    let bad: Vec<_> = report
        .kernels
        .iter()
        .flat_map(|k| &k.instructions)
        .filter_map(|line| line.error.as_deref())
        .collect();
    assert!(bad.iter().all(|e| e.contains("ffffffffffffffffffffffffffffffff")), "{bad:?}");
    assert_eq!(bad.len(), 1);
}
