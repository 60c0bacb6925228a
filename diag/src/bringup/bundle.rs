//! The one file that a bring-up leaves, a `.tar.gz` of a few texts: read again.
//!
//! Reading trusts nothing: nothing is written to disk, entries are known by their exact names, and sizes have
//! limits before memory is taken.

use std::io::{self, Read};

use flate2::read::MultiGzDecoder;

use crate::bringup::report::Bringup;
use crate::document::{self, Bounds};
use crate::report::plain;

/// Name of the entry with the results.
pub const RESULTS: &str = "bringup.json";
/// Names of all entries, with their contents.
pub const ENTRIES: [(&str, &str); 4] = [
    (
        RESULTS,
        "each step: result, times, what was found, the driver's log lines; settings that were tried; figures",
    ),
    ("gpu.json", "what the driver reports of the GPU: characteristics, clocks (without its serial number)"),
    ("machine.json", "versions, power mode, clocks, memory: the checks of `nvdiag doctor`"),
    ("kernel-log.txt", "lines of the GPU driver in the kernel log; they may name processes that use the GPU"),
];

/// Most bytes of a packed file.
const PACKED: u64 = 16 << 20;
/// Most bytes of it, unpacked.
const UNPACKED: u64 = 64 << 20;
/// Most entries.
const COUNT: usize = 32;
/// Most of the results: a run's have some tens of thousands of bytes.
const RESULT_BOUNDS: Bounds = Bounds { bytes: 4 << 20, values: 1 << 18 };

/// Why a file is none of ours.
#[derive(Debug, thiserror::Error)]
pub enum Unreadable {
    /// It cannot be read, or is no archive.
    #[error("it is no tar.gz file")]
    Archive(#[source] io::Error),
    /// It is larger than any of ours.
    #[error(
        "it is larger than {UNPACKED} bytes unpacked, {PACKED} bytes packed or {COUNT} entries, or its {RESULTS} than {} bytes",
        RESULT_BOUNDS.bytes
    )]
    TooLarge,
    /// An entry is missing.
    #[error("it has no entry {RESULTS}")]
    NoResults,
    /// There are two entries of results.
    #[error("it has two entries {RESULTS}; one report is read")]
    Twice,
    /// The results are of another form.
    #[error("its {RESULTS} is not what `nvdiag bringup` writes")]
    Form(#[source] serde_json::Error),
}

/// Contents of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Contents {
    /// The results.
    pub results: Bringup,
    /// Its entries: name, length, and whether it is one of [`ENTRIES`].
    pub entries: Vec<(String, u64, bool)>,
}

/// Reads a file that [`pack`](crate::archive::pack) has made, or anything else.
///
/// # Errors
/// [`Unreadable`].
pub fn read(input: impl Read) -> Result<Contents, Unreadable> {
    let mut packed = Limited { inner: input, left: PACKED };
    let mut unpacked = Limited { inner: MultiGzDecoder::new(&mut packed), left: UNPACKED };
    let mut archive = tar::Archive::new(&mut unpacked);
    // Archives may follow each other, as `cat` joins them.
    archive.set_ignore_zeros(true);
    let (mut entries, mut results) = (Vec::new(), None);
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::FileTooLarge => Unreadable::TooLarge,
        _ => Unreadable::Archive(error),
    };
    for entry in archive.entries().map_err(failed)? {
        let mut entry = entry.map_err(failed)?;
        if entries.len() == COUNT {
            return Err(Unreadable::TooLarge);
        }
        let name = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        let is_ours = entry.header().entry_type().is_file() && ENTRIES.iter().any(|known| known.0 == name);
        if name == RESULTS && is_ours {
            if results.is_some() {
                return Err(Unreadable::Twice);
            }
            if entry.size() > RESULT_BOUNDS.bytes as u64 {
                return Err(Unreadable::TooLarge);
            }
            let mut text = Vec::new();
            entry.read_to_end(&mut text).map_err(failed)?;
            // It may quote the file.
            let wrong = |problem: String| Unreadable::Form(serde::de::Error::custom(plain(&problem)));
            let form = |error: document::Unreadable| wrong(error.to_string());
            match document::schema(&text, RESULT_BOUNDS).map_err(form)? {
                Some(known) if Bringup::READ.contains(&known.as_str()) => {}
                Some(other) => {
                    let read = Bringup::READ.join(" or ");
                    return Err(wrong(format!("its schema is {other}, and {read} is read")));
                }
                None => return Err(wrong("it has no member schema".to_owned())),
            }
            let read: Bringup = document::read(&text, RESULT_BOUNDS).map_err(form)?;
            read.check().map_err(wrong)?;
            results = Some(read);
        }
        entries.push((name, entry.size(), is_ours));
    }
    Ok(Contents { results: results.ok_or(Unreadable::NoResults)?, entries })
}

/// A reader that fails past a length, instead of ending there.
#[derive(Debug)]
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or(io::ErrorKind::FileTooLarge)?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;
    use crate::archive::pack;
    use crate::bringup::outcome::StepResult;
    use crate::bringup::report::Interruption;
    use crate::report::Report;
    use proptest::prelude::*;

    fn results() -> Bringup {
        Bringup {
            version: "0.1.0".to_owned(),
            date: "2026-01-01T00:00:00Z".to_owned(),
            host: "1234abcd".to_owned(),
            driver: "sim".to_owned(),
            software: true,
            interrupted: None,
            steps: vec![StepResult::skipped(4, "memory", "a reason")],
            settings: None,
            figures: Vec::new(),
            unmeasured: None,
        }
    }

    fn packed(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(entries, &mut bytes).expect("a vector takes everything");
        bytes
    }

    fn text() -> Vec<u8> {
        let mut bytes = Vec::new();
        results().print_json(&mut bytes).expect("a vector takes everything");
        bytes
    }

    #[test]
    fn what_is_packed_is_read_again() {
        let contents = read(&packed(&[(RESULTS, text()), ("gpu.json", b"{}".to_vec())])[..]).expect("ours");
        assert_eq!(contents.results, results());
        let names: Vec<_> = contents.entries.iter().map(|(name, _, ours)| (name.as_str(), *ours)).collect();
        assert_eq!(names, [(RESULTS, true), ("gpu.json", true)]);
    }

    #[test]
    fn a_report_of_the_first_form_is_read() {
        let first = br#"{"schema":"nvdiag.bringup/1","version":"0.1.0","date":"2026-01-01T00:00:00Z",
            "host":"h","driver":"nvgpu","steps":[{"number":2,"title":"t","status":"passed","seconds":0.5,
            "facts":[{"name":"chip","value":"ga10b"}],"warnings":[],"reason":null,"remedy":null,"log":[]}],
            "figures":[]}"#;
        let read = read(&packed(&[(RESULTS, first.to_vec())])[..]).expect("it is one of ours").results;
        assert_eq!((read.settings, read.steps[0].notes.facts[0].expected.as_ref()), (None, None));
        let third = String::from_utf8(first.to_vec()).expect("text").replace("bringup/1", "bringup/3");
        match super::read(&packed(&[(RESULTS, third.into_bytes())])[..]) {
            Err(Unreadable::Form(error)) => {
                assert!(error.to_string().contains("nvdiag.bringup/1 or nvdiag.bringup/2 is read"), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn other_entries_are_listed_and_not_touched() {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut add = |name: &[u8], kind: tar::EntryType, bytes: &[u8]| {
            let mut header = tar::Header::new_gnu();
            header.as_old_mut().name[..name.len()].copy_from_slice(name);
            header.set_entry_type(kind);
            header.set_size(bytes.len() as u64);
            header.set_cksum();
            archive.append(&header, bytes).expect("it is appended");
        };
        add(b"../../etc/passwd", tar::EntryType::Regular, b"root");
        add(RESULTS.as_bytes(), tar::EntryType::Symlink, b"");
        add(RESULTS.as_bytes(), tar::EntryType::Regular, &text());
        let bytes = archive.into_inner().expect("it ends").finish().expect("it ends");
        let contents = read(&bytes[..]).expect("the third entry is ours");
        let ours: Vec<bool> = contents.entries.iter().map(|entry| entry.2).collect();
        assert_eq!(ours, [false, false, true]);
    }

    #[test]
    fn a_file_that_unpacks_to_too_much_is_refused() {
        let bomb = packed(&[(RESULTS, vec![b' '; UNPACKED as usize + 1])]);
        assert!(bomb.len() < 1 << 20, "{}", bomb.len());
        assert!(matches!(read(&bomb[..]), Err(Unreadable::TooLarge)));
        let many: Vec<(&str, Vec<u8>)> = (0..=COUNT).map(|_| ("gpu.json", Vec::new())).collect();
        assert!(matches!(read(&packed(&many)[..]), Err(Unreadable::TooLarge)));
    }

    #[test]
    fn what_is_missing_or_of_another_form_is_named() {
        assert!(matches!(read(&packed(&[("gpu.json", Vec::new())])[..]), Err(Unreadable::NoResults)));
        assert!(matches!(read(&packed(&[(RESULTS, b"[]".to_vec())])[..]), Err(Unreadable::Form(_))));
        assert!(matches!(read(&b"PK\x03\x04"[..]), Err(Unreadable::Archive(_))));
    }

    #[test]
    fn results_that_no_run_leaves_are_refused_by_the_member() {
        let step = |number| StepResult::skipped(number, "a step", "a reason");
        let took = |seconds| StepResult { seconds, ..step(1) };
        let interrupted = |step| Some(Interruption { step, signal: None });
        let whole = results();
        for (results, problem) in [
            (Bringup { steps: vec![step(1_000_000)], ..whole.clone() }, "steps[0].number is 1000000;"),
            (Bringup { steps: vec![step(0)], ..whole.clone() }, "steps[0].number is 0;"),
            (Bringup { steps: vec![step(4), step(4)], ..whole.clone() }, "steps[1].number is 4 after 4;"),
            (Bringup { steps: vec![step(4), step(3)], ..whole.clone() }, "steps[1].number is 3 after 4;"),
            (Bringup { steps: vec![took(-1.0)], ..whole.clone() }, "steps[0].seconds is -1;"),
            (Bringup { steps: vec![took(2e9)], ..whole.clone() }, "steps[0].seconds is 2000000000;"),
            (Bringup { steps: vec![], ..whole.clone() }, "steps is empty"),
            (Bringup { interrupted: interrupted(Some(22)), ..whole.clone() }, "interrupted.step is 22;"),
        ] {
            let mut bytes = Vec::new();
            results.print_json(&mut bytes).expect("a vector takes everything");
            match read(&packed(&[(RESULTS, bytes)])[..]) {
                Err(Unreadable::Form(error)) => assert!(error.to_string().starts_with(problem), "{error}"),
                other => panic!("{problem}: {other:?}"),
            }
        }
        let first = Bringup { steps: vec![], interrupted: interrupted(Some(1)), ..whole };
        let mut bytes = Vec::new();
        first.print_json(&mut bytes).expect("a vector takes everything");
        assert_eq!(read(&packed(&[(RESULTS, bytes)])[..]).expect("ours").results, first);
        let without = read(&packed(&[(RESULTS, b"{}".to_vec())])[..]);
        assert!(matches!(without, Err(Unreadable::Form(error)) if error.to_string().contains("schema")));
    }

    #[test]
    fn members_and_archives_that_follow_each_other_are_read_to_the_end() {
        let one = packed(&[(RESULTS, text())]);
        let joined = [one.clone(), packed(&[("gpu.json", b"{}".to_vec())])].concat();
        assert_eq!(read(&joined[..]).expect("ours").entries.len(), 2);
        assert!(matches!(read(&[one.clone(), one].concat()[..]), Err(Unreadable::Twice)));
        let mut tar = Vec::new();
        flate2::read::GzDecoder::new(&packed(&[(RESULTS, text())])[..]).read_to_end(&mut tar).expect("ours");
        let mut members = Vec::new();
        for half in tar.chunks(tar.len() / 2) {
            let mut member = GzEncoder::new(&mut members, Compression::fast());
            member.write_all(half).expect("a vector takes everything");
            member.finish().expect("a vector takes everything");
        }
        assert_eq!(read(&members[..]).expect("ours").results, results());
    }

    #[test]
    fn texts_of_a_file_cannot_change_what_a_terminal_shows() {
        let step = StepResult::skipped(4, "a\u{202e}b\u{2066}c\u{1b}[2J", "a reason");
        let mut shown = Vec::new();
        Bringup { steps: vec![step], ..results() }.print(&mut shown).expect("a vector takes everything");
        let shown = String::from_utf8(shown).expect("text");
        assert!(shown.contains("a\u{fffd}b\u{fffd}c\u{fffd}[2J"), "{shown}");
        let schema = packed(&[(RESULTS, br#"{"schema":"\u202e\u001b"}"#.to_vec())]);
        match read(&schema[..]) {
            Err(Unreadable::Form(error)) => {
                assert!(error.to_string().contains("\u{fffd}\u{fffd}"), "{error}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn steps_that_are_missing_between_others_are_named() {
        let step = |number| StepResult::skipped(number, "a step", "a reason");
        let mut shown = Vec::new();
        let steps = vec![step(3), step(5), step(11), step(12)];
        Bringup { steps, ..results() }.print(&mut shown).expect("a vector takes everything");
        let shown = String::from_utf8(shown).expect("text");
        let missing = shown.lines().filter(|line| line.contains("missing"));
        let missing: Vec<_> = missing.map(|line| anstream::adapter::strip_str(line).to_string()).collect();
        assert_eq!(missing, ["    step 4 is missing", "    steps 6 to 10 are missing"]);
    }

    proptest! {
        #[test]
        fn damaged_files_end_in_an_answer(at in 0_usize..512, byte: u8, cut in 0_usize..512) {
            let mut bytes = packed(&[(RESULTS, text())]);
            let len = bytes.len();
            bytes[at % len] ^= byte;
            bytes.truncate(len - cut % len);
            let _ = read(&bytes[..]);
        }
    }
}
