//! Pushbuffers: a stream a working driver writes, what stops a channel, and noise.

use nvdiag::Report;
use nvdiag::pushbuffer::{Decoder, Generation, Pushbuffer};
use proptest::prelude::*;

/// Wait for a timeline, invalidate, launch, signal, interrupt: what open drivers send for one launch.
const LAUNCH: [u32; 20] = [
    0x2005_0017,
    0x0000_1000,
    0x10,
    5,
    0,
    0x0100_0003,
    0x2001_25a6,
    0x1011,
    0x2001_20ad,
    0x1234_5678,
    0x2001_20b0,
    9,
    0x2005_0017,
    0x0000_1000,
    0x10,
    6,
    0,
    0x0310_0001,
    0x2001_0008,
    0,
];

fn bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

fn decode(words: &[u32]) -> Pushbuffer {
    let mut decoder = Decoder::new(Generation::Ampere);
    decoder.segment(None, &bytes(words));
    decoder.finish()
}

fn text(report: &impl Report) -> String {
    let mut out = anstream::StripStream::new(Vec::new());
    report.print(&mut out).expect("memory takes everything");
    String::from_utf8(out.into_inner()).expect("reports are UTF-8")
}

fn problems(words: &[u32]) -> Vec<String> {
    decode(words).problems.into_iter().map(|p| p.text).collect()
}

#[test]
fn a_launch_is_read_method_by_method() {
    let decoded = decode(&LAUNCH);
    assert_eq!(decoded.problems, []);
    let text = text(&decoded);
    for expected in [
        "  0000 0 SEM_ADDR_LO ",
        "OPERATION=ACQ_CIRC_GEQ",
        "0x1000001000",
        "RELEASE_TIMESTAMP=EN",
        "  0018 1 INVALIDATE_SHADER_CACHES_NO_WFI ",
        "QMD at 0x1234567800",
        "PCAS_ACTION=PREFETCH_SCHEDULE",
        "NON_STALL_INTERRUPT",
        "No problems found",
    ] {
        assert!(text.contains(expected), "{expected} in:\n{text}");
    }
}

#[test]
fn a_ring_leads_to_its_segments_and_data_goes_on_in_the_next() {
    let memory = bytes(&LAUNCH);
    let base = 0x10_0020_0000u64;
    // The first segment ends in the middle of the five words of the first semaphore.
    let entries = [base | 3 << 42, (base + 12) | 17 << 42, 0x4000_0000 | 1 << 42, 0];
    let ring: Vec<u8> = entries.iter().flat_map(|e| e.to_le_bytes()).collect();
    let mut decoder = Decoder::new(Generation::Ampere);
    decoder.gpfifo(&ring, |address, len| {
        let start = usize::try_from(address.checked_sub(base)?).ok()?;
        memory.get(start..start + len as usize)
    });
    let decoded = decoder.finish();
    assert_eq!(decoded.problems, []);
    assert_eq!((decoded.gpfifo.len(), decoded.segments.len()), (4, 2));
    let second = &decoded.segments[1].commands;
    assert_eq!((second[0].form, second[0].writes.len()), ("continued", 3));
    assert_eq!(second[0].writes[2].name, Some("SEM_EXECUTE"));
    assert_eq!(second[2].writes[0].note.as_deref(), Some("QMD at 0x1234567800"));
}

#[test]
fn classes_follow_set_object() {
    let decoded = decode(&[0x2001_6000, 0xcbc0, 0x2001_60ad, 1]);
    assert_eq!(decoded.problems, []);
    let [bind, launch] = &decoded.segments[0].commands[..] else { panic!("two commands") };
    assert_eq!(bind.writes[0].note.as_deref(), Some("binds HOPPER_COMPUTE_A"));
    assert_eq!(launch.class_name, Some("HOPPER_COMPUTE_A"));
    assert_eq!(launch.writes[0].name, Some("SEND_PCAS_A"));
    let nothing = decode(&[0x2001_40ad, 1]);
    assert_eq!((nothing.segments[0].commands[0].class, nothing.problems.len()), (None, 0));
}

#[test]
fn an_inline_qmd_is_decoded_where_it_is_complete() {
    let qmd = qmd::Launch::new(qmd::Target::Sm87).program(0x12_3450_0080, 512).grid([7, 1, 1]).registers(16);
    let qmd = qmd.build().expect("a launch");
    let mut words = vec![0x2042_20c6, 0x0000_0000, 0x1234_5678];
    words.extend(qmd.as_bytes().chunks(4).map(|w| u32::from_le_bytes(w.try_into().expect("four"))));
    let decoded = decode(&words);
    assert_eq!(decoded.problems, []);
    let command = &decoded.segments[0].commands[0];
    let inline = command.qmd.as_ref().expect("complete");
    assert_eq!(inline.address, Some(nvdiag::Hex(0x12_3456_7800)));
    let launch = inline.metadata.as_ref().and_then(|m| m.launch.as_ref()).expect("a launch");
    assert_eq!((launch.grid, launch.program.0), ([7, 1, 1], 0x12_3450_0080));
    assert!(text(&decoded).contains("7 x 1 x 1 blocks"));
}

#[test]
fn what_stops_a_channel_is_named() {
    for (words, expected) in [
        (&[0xc001_0017][..], "0xc0010017 is no header"),
        (&[0x2001_a0ad, 0], "subchannel 5 is for software methods"),
        (&[0x2001_0011, 0], "0x0044 is no host method"),
        (&[0x2001_20b1, 0], "AMPERE_COMPUTE_B has no method 0x02c4"),
        (&[0x2001_001b, 0x8], "SEM_EXECUTE has undefined bits 0x00000008"),
        (&[0x2001_0001, 0], "the ILLEGAL method"),
        (&[0x2001_30ad, 0], "bit 12"),
        (&[0x2002_2fff, 0, 0], "past the end of the method space"),
        (&[0x2005_0017, 1], "ends 4 words short of method 0x0060"),
    ] {
        let found = problems(words);
        assert!(found.iter().any(|text| text.contains(expected)), "{expected}: {found:?}");
    }
}

#[test]
fn nops_ends_and_legacy_forms() {
    let decoded = decode(&[0, 0, 0x0004_2100, 7, 0x4008_2104, 1, 2, 0x8000_2044, 0xe000_0000, 1, 2]);
    let forms: Vec<_> = decoded.segments[0].commands.iter().map(|c| (c.form, c.words)).collect();
    assert_eq!(forms, [("nop", 2), ("legacy_inc", 1), ("legacy_non_inc", 2), ("immediate", 0), ("end", 2)]);
    assert_eq!(decoded.segments[0].commands[3].writes[0].name, Some("WAIT_FOR_IDLE"));
}

#[test]
fn a_ring_that_names_one_segment_for_ever_is_cut_short() {
    let memory = vec![0xff; 4 << 20];
    let entry = 0x1000u64 | (1 << 20) << 42;
    let ring: Vec<u8> = std::iter::repeat_n(entry.to_le_bytes(), 4096).flatten().collect();
    let mut decoder = Decoder::new(Generation::Ampere);
    decoder.gpfifo(&ring, |_, len| memory.get(..len as usize));
    let decoded = decoder.finish();
    assert!(decoded.segments.len() <= 3);
    assert!(decoded.problems.iter().any(|p| p.text.contains("are left out")));
}

proptest! {
    #[test]
    fn any_words_are_decoded_and_none_is_lost(words in prop::collection::vec(any::<u32>(), 0..300), hopper: bool) {
        let generation = if hopper { Generation::Hopper } else { Generation::Ampere };
        let mut decoder = Decoder::new(generation);
        decoder.segment(None, &bytes(&words));
        let decoded = decoder.finish();
        let segment = &decoded.segments[0];
        let mut next = 0;
        for command in &segment.commands {
            prop_assert_eq!(command.offset.0, next);
            let data = match command.form {
                "nop" => command.words - 1,
                "end" => command.words,
                "immediate" => 0,
                _ => command.writes.len(),
            };
            next += (data + 1) as u64 * 4;
        }
        prop_assert_eq!(next, segment.size_bytes);
        text(&decoded);
        decoded.print_json(&mut Vec::new()).expect("memory takes everything");
    }

    #[test]
    fn any_bytes_as_a_ring(ring in prop::collection::vec(any::<u8>(), 0..200), memory in prop::collection::vec(any::<u8>(), 0..64)) {
        let mut decoder = Decoder::new(Generation::Ampere);
        decoder.gpfifo(&ring, |address, _| (address & 4 == 0).then_some(memory.as_slice()));
        text(&decoder.finish());
    }
}
