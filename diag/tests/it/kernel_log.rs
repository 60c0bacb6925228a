//! The kernel log: every sample line, every shape with any values, and whatever else a file may hold.

use std::fmt::Write as _;

use nvdiag::Report;
use nvdiag::fault::{FaultList, FaultReport, Subject};
use nvdiag::kernel_log::{Kind, Parsed, Reader, Role, Shape, Source, Value};
use nvdiag::known_lines::{Kind as Form, Piece};
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;
use proptest::prelude::*;

const SAMPLES: &str = include_str!("../data/kernel-log-samples.txt");

fn parse(log: &[u8]) -> Vec<Parsed> {
    let (mut reader, mut found) = (Reader::new(), Vec::new());
    reader.feed(log, &mut |p| found.push(p));
    reader.finish(&mut |p| found.push(p));
    found
}

fn explain(log: &str) -> FaultList {
    explain_with(log, ProcessMap::default())
}

fn explain_with(log: &str, map: ProcessMap) -> FaultList {
    let mut session = Session::new(map, 1000);
    session.feed(log.as_bytes());
    session.finish("a log")
}

/// The samples of one heading, `# A1: ...` up to the next line that begins with `#`.
fn sample(heading: &str) -> String {
    let start = SAMPLES.find(&format!("# {heading}")).unwrap_or_else(|| panic!("no sample {heading}"));
    SAMPLES[start..]
        .lines()
        .skip(1)
        .take_while(|l| !l.starts_with('#'))
        .fold(String::new(), |all, l| all + l + "\n")
}

fn only(log: &str) -> FaultReport {
    let mut list = explain(log);
    assert_eq!(list.found, 1, "{:#?}", list.faults.iter().map(|f| &f.verdict).collect::<Vec<_>>());
    list.faults.remove(0)
}

#[test]
fn every_sample_line_is_understood() {
    let lines: Vec<&str> = SAMPLES.lines().filter(|l| !l.is_empty() && !l.starts_with('#')).collect();
    let mut count = 0;
    for line in &lines {
        let found = parse(line.as_bytes());
        assert!(matches!(found.as_slice(), [Parsed::Entry(_)]), "{line}: {found:?}");
        count += 1;
    }
    assert!(count > 180, "{count} lines");
    assert_eq!(explain(SAMPLES).unknown_found, 0);
}

#[test]
fn sample_faults_are_named() {
    for (heading, name, code) in [
        ("A1:", "INVALID_ADDR_SPACE", 0x10),
        ("A2:", "MISALIGNED_ADDR", 0xf),
        ("A3:", "OOR_ADDR", 0xe),
        ("A4:", "ILLEGAL_INSTR_ENCODING", 9),
        ("A5:", "MMU_FAULT", 0x17),
        ("A6:", "ARRIVE", 0x21),
        ("A7:", "OOR_ADDR", 0xe),
        ("A8:", "OOR_REG", 0xd),
        ("A10:", "invalid pte", 2),
        ("A11:", "write, ro violation", 6),
        ("A12:", "invalid pde", 0),
        ("A13:", "invalid pde", 0),
        ("A14:", "unbound inst block", 4),
        ("A15:", "unsupported aperture", 10),
    ] {
        let fault = only(&sample(heading));
        assert_eq!((fault.what.name.as_str(), fault.what.code.map(|c| c.0)), (name, Some(code)), "{heading}");
        assert!(!fault.causes.is_empty() && !fault.try_next.is_empty(), "{heading}");
    }
}

#[test]
fn a_negative_register_is_the_one_that_the_hexadecimal_line_shows() {
    let fault = only(&sample("A5:"));
    let sm = &fault.sms[0];
    assert_eq!((sm.warp_esr.value.0, sm.warp_esr.warp, fault.sms.len()), (0x881e_0017, 0x1e, 1));
    assert_eq!(sm.notes, [""; 0]);
    assert_eq!(sm.place.and_then(|p| p.sm), Some(1));
}

#[test]
fn registers_that_disagree_are_noted() {
    let log = sample("A1:").replace("warp 0x00000010", "warp 0x0000000f");
    let fault = only(&log);
    assert_eq!(fault.what.name, "MISALIGNED_ADDR");
    assert!(fault.sms[0].notes[0].contains("disagree"), "{:?}", fault.sms[0].notes);
}

#[test]
fn one_exception_of_two_channels_is_one_fault_with_two_owners() {
    let fault = only(&sample("A8:"));
    let owners: Vec<_> = fault.owners.iter().map(|o| (o.channel, o.comm.as_deref(), o.notifier)).collect();
    assert_eq!(owners, [(Some(507), Some("worker-a"), Some(13)), (Some(501), Some("worker-a"), Some(13))]);
}

#[test]
fn an_mmu_fault_names_unit_sm_and_owner() {
    let fault = only(&sample("A10:"));
    let mmu = &fault.mmu[0];
    assert_eq!(fault.subject, Subject::Mmu);
    assert_eq!((mmu.address.map(|a| a.0), mmu.client.as_deref()), (Some(0xff_f3a2_1000), Some("t1_3")));
    assert_eq!(mmu.sm.map(|p| (p.gpc, p.tpc, p.sm)), Some((0, 1, Some(1))));
    assert_eq!(mmu.engine.as_deref(), Some("graphics, subcontext 1"));
    assert_eq!((fault.owners.len(), fault.owners[0].tsg, fault.owners[0].notifier), (1, Some(5), Some(31)));
}

#[test]
fn the_window_trap_is_recognized_by_name() {
    let fault = only(&sample("A1:"));
    assert!(fault.window_trap.as_ref().is_some_and(|t| !t.certain));
    assert!(fault.causes[0].contains("shared- or local-memory window"), "{:?}", fault.causes);
    let mut map = ProcessMap::default();
    map.add_json(
        br#"{"schema": "nvdiag.vamap/1", "windows": [{"name": "shared memory", "base": "0xfe00000000"}],
             "mappings": [{"what": "buffer", "va": "0xfe00200000", "size_bytes": 2097152}]}"#,
    )
    .expect("a map");
    let list = explain_with(&sample("A1:"), map);
    let fault = &list.faults[0];
    assert!(fault.window_trap.as_ref().is_some_and(|t| t.certain));
    assert!(fault.verdict.starts_with("memory-window trap: "), "{}", fault.verdict);
    assert!(fault.causes[0].starts_with("the buffer at 0xfe00200000 lies in the shared memory window"));
}

#[test]
fn front_end_and_host_faults_say_what_to_check() {
    let list = explain(&sample("A18:"));
    let sked = &list.faults[0];
    assert!(sked.what.name.starts_with("SKEDCHECK17_MEMORY_WINDOW_OVERLAP"), "{}", sked.what.name);
    assert!(sked.try_next[0].contains("0x2a0"), "{:?}", sked.try_next);
    let list = explain(&sample("A19:"));
    assert!(list.faults.iter().any(|f| f.what.name.contains("METHOD invld")), "{list:?}");
    let method = &list.faults[0];
    assert!(method.notes.iter().any(|n| n.contains("method 0x005c on subchannel 0")), "{:?}", method.notes);
    let list = explain(&(sample("A20:") + &sample("A21:")));
    let timeout = &list.faults[0];
    assert_eq!((timeout.subject, timeout.owners[0].pid), (Subject::Timeout, Some(4711)));
    assert!(
        timeout.notes.iter().any(|n| n.contains("semaphore at 0xfffe0c0000 with value 0x2")),
        "{:?}",
        timeout.notes
    );
}

#[test]
fn desktop_lines_of_one_fault_are_one_report() {
    let list = explain(&sample("A25:"));
    let first = &list.faults[0];
    assert_eq!((first.what.name.as_str(), first.sms.len(), first.sms[0].warp_esr.warp), ("OOR_ADDR", 1, 1));
    assert_eq!(first.owners[0].comm.as_deref(), Some("app"));
    let mmu = list.faults.iter().find(|f| f.subject == Subject::Mmu).expect("Xid 31");
    assert_eq!(mmu.mmu[0].address.map(|a| a.0), Some(0x7f12_3456_7000));
    assert_eq!(
        (mmu.mmu[0].fault_type, mmu.mmu[0].client.as_deref(), mmu.mmu[0].gpc),
        (Some(2), Some("t1_4"), Some(1))
    );
    // Two SMs, and one that was only stopped.
    let paused = &explain(&sample("https://github.com/vllm-project/vllm/issues/5901")).faults[0];
    assert_eq!(paused.sms.iter().map(|s| s.is_error()).collect::<Vec<_>>(), [true, false]);
    let hopper = &explain(&sample("https://github.com/leptonai/gpud/pull/46")).faults[0];
    assert_eq!((hopper.sms.len(), hopper.what.name.as_str()), (1, "ILLEGAL_INSTR_PARAM"));
}

/// The desktop driver's lines (580.159.04) on an H200 for the kinds of `nvdiag provoke`, misaligned to
/// window.
#[test]
fn an_h200s_log_tells_each_provoked_fault() {
    let list = explain(include_str!("../data/h200-xid.txt"));
    assert_eq!(list.unknown_found, 0);
    let names: Vec<&str> = list.faults.iter().map(|f| f.what.name.as_str()).collect();
    assert_eq!(
        names,
        [
            "METHOD",
            "ILLEGAL_INSTR_ENCODING",
            "MISALIGNED_ADDR",
            "invalid pde",
            "INVALID_ADDR_SPACE",
            "ILLEGAL_INSTR_ENCODING",
            "OOR_ADDR",
            "MISALIGNED_ADDR"
        ]
    );
    let misaligned = &list.faults[2];
    assert_eq!(misaligned.sms.len(), 1);
    assert_eq!(misaligned.sms[0].place.map(|p| (p.gpc, p.tpc, p.sm)), Some((1, 3, Some(0))));
    assert_eq!(misaligned.sms[0].warp_esr.address_error_type, 5);
    assert_eq!((misaligned.owners[0].pid, misaligned.owners[0].channel), (Some(6729), Some(5)));
    assert_eq!(list.faults[3].mmu[0].address.map(|a| a.0), Some(0x7295_0140_0000));
}

/// A value of a form, and how the driver prints it.
fn value(form: Form, text_ends_with: Option<String>) -> BoxedStrategy<(Value, String)> {
    let hex = any::<u64>().prop_flat_map(|n| (0..64_u32).prop_map(move |shift| n >> shift));
    match form {
        Form::Decimal => any::<i32>().prop_map(|n| (Value::Decimal(n.into()), n.to_string())).boxed(),
        Form::Prefixed => (hex, any::<bool>())
            .prop_map(|(n, padded)| {
                (Value::Hex(n), if padded { format!("{n:#010x}") } else { format!("{n:#x}") })
            })
            .boxed(),
        Form::Hex => hex.prop_map(|n| (Value::Hex(n), format!("{n:08x}"))).boxed(),
        Form::Number => prop_oneof![
            any::<i32>().prop_map(|n| (Value::Decimal(n.into()), n.to_string())),
            hex.prop_map(|n| (Value::Hex(n), format!("{n:#x}")))
        ]
        .boxed(),
        // Names of tasks may hold blanks and commas; the text that ends the field is ambiguous.
        Form::Text => "[A-Za-z0-9_.][A-Za-z0-9_.,/-]{0,6}( [a-z0-9_,]{1,5})?"
            .prop_filter("holds what ends it", move |t| {
                text_ends_with.as_ref().is_none_or(|end| (t.clone() + end).find(end) == Some(t.len()))
            })
            // After a bracket that is a terminal's colour without its escape.
            .prop_filter("reads as a colour", |t| {
                !t.trim_start_matches(|c: char| c.is_ascii_digit()).starts_with(['m', 'K'])
            })
            .prop_map(|t| (Value::Text(t.clone()), t))
            .boxed(),
        Form::Pointer | Form::Character | Form::Symbol => unreachable!("no pattern has them"),
    }
}

type Printed = (Kind, String, Vec<(String, Value)>);

/// A line of any shape with any values, in the driver's frame.
fn line(kinds: &'static [Kind]) -> impl Strategy<Value = Printed> {
    let shape =
        prop::sample::select(kinds).prop_flat_map(|kind| (Just(kind), prop::sample::select(kind.patterns())));
    shape.prop_flat_map(|(kind, pattern)| {
        let pieces: Vec<Piece> = Shape::new(pattern).pieces().to_vec();
        let ends = pieces.iter().skip(1).map(|piece| match piece {
            Piece::Literal(text) => Some(text.clone()),
            Piece::Value(..) => None,
        });
        let ends = ends.chain([None]);
        let values: Vec<_> = pieces
            .iter()
            .zip(ends)
            .map(|(piece, end)| match piece.clone() {
                Piece::Literal(literal) => Just((None, literal)).boxed(),
                Piece::Value(form, name) => {
                    value(form, end).prop_map(move |(v, text)| (Some((name.clone(), v)), text)).boxed()
                }
            })
            .collect();
        values.prop_map(move |parts| {
            let message: String = parts.iter().map(|(_, text)| text.as_str()).collect();
            let fields = parts.into_iter().filter_map(|(field, _)| field).collect();
            let line = match kind.source() {
                Source::Nvgpu => {
                    format!(
                        "[  812.004113] nvgpu: 17000000.gpu {:>33}:{:<4} [ERR]  {message}",
                        "a_function", 377
                    )
                }
                Source::Dump => format!("[  812.004113] __ga10b__ {message}"),
                Source::Xid => {
                    format!("[ 5001.000001] NVRM: Xid (PCI:0000:01:00): 13, pid=4242, name=app, {message}")
                }
                Source::Pcie => format!("[    9.000001] pcieport 0000:00:01.0: AER: {message}"),
                Source::Other => message,
            };
            (kind, line, fields)
        })
    })
}

/// Kinds whose text has no facts but itself: another shape may take the same line.
const CATCH_ALL: [Kind; 5] = [Kind::XidOther, Kind::XidChannel, Kind::Nvrm, Kind::PcieError, Kind::Refused];
/// Kinds that other drivers print as well: read where the line names a GPU's.
const SHARED: [Kind; 3] = [Kind::SymbolVersion, Kind::KeyRejected, Kind::FirmwareMissing];

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_values_printed_in_a_drivers_format_come_back((kind, line, fields) in line(Kind::ALL)) {
        // Such a text reads as the `__ga10b__` that lines of a dump begin with.
        prop_assume!(kind.source() != Source::Other || !line.contains("__"));
        prop_assume!(!SHARED.contains(&kind));
        let found = parse(line.as_bytes());
        let [Parsed::Entry(entry)] = found.as_slice() else { panic!("{line}: {found:?}") };
        if CATCH_ALL.contains(&kind) || kind == Kind::SmRecordLive {
            return Ok(());
        }
        prop_assert_eq!(entry.kind, kind, "{}", line);
        prop_assert!(entry.missing.is_empty(), "{}: {:?}", line, entry.missing);
        let read: Vec<_> = entry.fields.iter().map(|(n, v)| (n.to_owned(), v.clone())).collect();
        prop_assert_eq!(read, fields, "{}", line);
    }

    #[test]
    fn a_line_cut_anywhere_gives_nothing_that_it_did_not_say(
        (kind, line, fields) in line(Kind::ALL), cut in any::<prop::sample::Index>()
    ) {
        let ends: Vec<usize> = line.char_indices().map(|(at, _)| at).collect();
        let cut = &line[..ends[cut.index(ends.len())]];
        for parsed in parse(cut.as_bytes()) {
            if let Parsed::Entry(entry) = parsed
                && entry.kind == kind
                && !entry.missing.is_empty()
            {
                for (name, value) in entry.fields.iter() {
                    match value {
                        Value::Text(text) => prop_assert!(line.contains(text.as_str())),
                        number => prop_assert!(fields.contains(&(name.to_owned(), number.clone())), "{}: {} {:?}", cut, name, number),
                    }
                }
            }
        }
    }

}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn garbage_gives_no_panic(
        pieces in prop::collection::vec(prop_oneof![
            line(Kind::ALL).prop_map(|(_, line, _)| line.into_bytes()),
            prop::collection::vec(any::<u8>(), 0..300),
            (line(Kind::ALL), any::<prop::sample::Index>()).prop_map(|((_, line, _), at)| {
                let bytes = line.into_bytes();
                bytes[..at.index(bytes.len())].to_vec()
            }),
            Just(b"\n".to_vec()),
        ], 0..40),
        chunk in 1..200_usize,
    ) {
        let log = pieces.concat();
        let mut session = Session::new(ProcessMap::default(), 100);
        for part in log.chunks(chunk) {
            session.feed(part);
        }
        let in_pieces = session.finish("garbage");
        let mut session = Session::new(ProcessMap::default(), 100);
        session.feed(&log);
        let at_once = session.finish("garbage");
        prop_assert_eq!(&in_pieces.faults, &at_once.faults, "how the log is cut into reads must not matter");
        let mut out = Vec::new();
        at_once.print(&mut out).expect("memory takes everything");
        at_once.json().expect("every report has a JSON form");
    }

    #[test]
    fn shuffled_samples_give_no_panic(order in Just(SAMPLES.lines().collect::<Vec<_>>()).prop_shuffle()) {
        let list = explain(&order.join("\n"));
        prop_assert!(list.found > 0);
    }
}

/// The lines of one fault come back out of a log in which other programs print between them.
#[test]
fn lines_of_others_in_between_change_nothing() {
    for heading in ["A1:", "A5:", "A10:", "A15:"] {
        let clean = sample(heading);
        let mut noisy = String::new();
        for (index, line) in clean.lines().enumerate() {
            let _ = writeln!(noisy, "[  900.{index:06}] usb 1-1: new high-speed USB device number {index}");
            let _ = writeln!(noisy, "{line}");
        }
        let (a, b) = (only(&clean), only(&noisy));
        assert_eq!((a.what, a.sms, a.mmu, a.owners), (b.what, b.sms, b.mmu, b.owners), "{heading}");
    }
}

/// A log of any size is read in one pass and bounded memory; the kinds of its lines are those of a short one.
#[test]
fn a_large_log_is_counted_to_its_end() {
    let block = SAMPLES.replace("\n#", "\n\n#");
    let once = explain(&block).found;
    let mut session = Session::new(ProcessMap::default(), 3);
    const TIMES: u64 = 320; // 10 MB
    for _ in 0..TIMES {
        session.feed(block.as_bytes());
    }
    let list = session.finish("a large log");
    assert_eq!(list.faults.len(), 3);
    assert!(list.found > once * TIMES / 2, "{} of {}", list.found, once * TIMES);
}

#[test]
fn roles_and_meanings_are_complete() {
    for kind in Kind::ALL {
        assert!(!kind.meaning().is_empty() && !kind.patterns().is_empty(), "{kind:?}");
        assert!(kind.source() != Source::Dump || kind.role() == Role::Dump, "{kind:?}");
    }
}
