//! Decoding against the driver's own code: page tables that it wrote, and lines that it printed about faults.
//!
//! The records are those of `tools/nvgpu-oracle`; `NVGPU_ORACLE_IMAGES` and `NVGPU_ORACLE_FAULTS` name other
//! files of its
//! `images` and `faults`.

use std::collections::BTreeMap;
use std::io::Read;

use nvdiag::fault::{FaultList, FaultReport, Subject};
use nvdiag::page_table::{Aperture, kind_name, walk};
use nvdiag::process_map::ProcessMap;
use nvdiag::session::Session;

const PAGE: u64 = 4096;

/// The records in `committed`, or those of the file that `variable` names.
fn records(variable: &str, committed: &[u8]) -> String {
    let bytes = std::env::var_os(variable).map_or(committed.to_vec(), |path| std::fs::read(path).unwrap());
    if !bytes.starts_with(&[0x1f, 0x8b]) {
        return String::from_utf8(bytes).unwrap();
    }
    let mut text = String::new();
    flate2::read::GzDecoder::new(&bytes[..]).read_to_string(&mut text).unwrap();
    text
}

fn hex(word: &str) -> u64 {
    u64::from_str_radix(word, 16).unwrap_or_else(|e| panic!("`{word}`: {e}"))
}

/// Target of one page of virtual addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapped {
    page_bytes: u64,
    /// Physical address; `None` for sparse.
    address: Option<u64>,
    coherent: bool,
    kind: u8,
    flags: Vec<String>,
}

/// An image: memory, and the driver's mappings by request, by 4 KiB page.
#[derive(Default)]
struct Image {
    root: u64,
    memory: BTreeMap<u64, Vec<u8>>,
    expected: BTreeMap<u64, Mapped>,
}

impl Image {
    fn expect(&mut self, words: &[&str]) {
        let (va, bytes, page_bytes) = (hex(words[1]), hex(words[2]), hex(words[3]));
        let letters = if words[4] == "-" { "" } else { words[5] };
        let names = [('u', "uncached"), ('r', "read only"), ('p', "privileged"), ('l', "L3")];
        let flags =
            names.iter().filter(|(c, _)| letters.contains(*c)).map(|(_, name)| (*name).to_owned()).collect();
        let mapped = Mapped {
            page_bytes,
            address: (words[4] != "-").then(|| hex(words[4])),
            coherent: letters.contains('c'),
            kind: words.get(6).map_or(0, |kind| hex(kind) as u8),
            flags: if words[4] == "-" { vec!["sparse".to_owned()] } else { flags },
        };
        for at in (0..bytes).step_by(PAGE as usize) {
            let address = mapped.address.map(|address| address + at);
            self.expected.insert(va + at, Mapped { address, ..mapped.clone() });
        }
    }

    /// A page of tables.
    fn page(&mut self, words: &[&str]) {
        let mut page = vec![0; PAGE as usize];
        for entry in &words[2..] {
            let (index, word) = entry.split_once(':').unwrap();
            let (word, more, step) = match word.split_once(['+', '*']) {
                Some((first, count)) => (hex(first), hex(count), if word.contains('+') { 0x100 } else { 0 }),
                None => (hex(word), 0, 0),
            };
            for i in 0..=more {
                let at = (hex(index) + i) as usize * 8;
                page[at..at + 8].copy_from_slice(&(word + i * step).to_le_bytes());
            }
        }
        self.memory.insert(hex(words[1]), page);
    }

    /// Returns the walker's pages, and its complaints.
    fn found(&self) -> (BTreeMap<u64, Mapped>, Vec<String>) {
        let walk = walk(&self.memory, self.root);
        let mut found = BTreeMap::new();
        for run in &walk.runs {
            for at in (0..run.size_bytes).step_by(PAGE as usize) {
                let mapped = Mapped {
                    page_bytes: run.page_bytes,
                    address: run.physical.map(|physical| physical.0 + at),
                    coherent: run.aperture == Some(Aperture::SystemCoherent),
                    kind: run.kind,
                    flags: run.flags.iter().map(|&flag| flag.to_owned()).collect(),
                };
                found.insert(run.va.0 + at, mapped);
            }
        }
        (found, walk.anomalies.iter().map(|a| a.text.clone()).collect())
    }
}

fn images(text: &str) -> Vec<(String, Image)> {
    let mut images: Vec<(String, Image)> = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[0] {
            "I" => images.push((words[1].to_owned(), Image { root: hex(words[2]), ..Image::default() })),
            "X" => images.last_mut().unwrap().1.expect(&words),
            "P" => images.last_mut().unwrap().1.page(&words),
            "." => {}
            other => panic!("unknown line `{other}`"),
        }
    }
    images
}

/// Page tables that the driver writes read as the mappings that were requested.
#[test]
fn page_tables_of_the_driver_are_read_as_they_were_meant() {
    let text = records("NVGPU_ORACLE_IMAGES", include_bytes!("../data/nvgpu-page-tables.txt.gz"));
    let images = images(&text);
    assert!(!images.is_empty(), "no images");
    let (mut pages, mut big) = (0, 0);
    for (seed, image) in &images {
        let (found, anomalies) = image.found();
        pages += image.expected.len();
        big += image.expected.values().filter(|mapped| mapped.page_bytes > PAGE).count();
        for (va, mapped) in &image.expected {
            assert_eq!(found.get(va), Some(mapped), "seed {seed}: {va:#x}");
        }
        let stray = found.keys().find(|va| !image.expected.contains_key(va));
        assert_eq!(stray, None, "seed {seed}: nothing was mapped there");
        for text in anomalies {
            let of_a_kind = image.expected.values().any(|mapped| {
                (kind_name(mapped.kind).is_none() || mapped.kind == 7)
                    && text == format!("kind {:#04x} is none", mapped.kind)
            });
            assert!(of_a_kind, "seed {seed}: {text}");
        }
    }
    println!("{} images, {pages} pages of 4 KiB, {big} of them in pages of 64 KiB", images.len());
}

/// A fault: its cause, and the driver's lines.
struct Fault<'a> {
    seed: &'a str,
    kind: &'a str,
    facts: BTreeMap<&'a str, &'a str>,
    log: String,
}

impl Fault<'_> {
    fn number(&self, name: &str) -> u64 {
        let value = self.facts.get(name).unwrap_or_else(|| panic!("seed {}: no {name}", self.seed));
        hex(value)
    }

    fn u32(&self, name: &str) -> u32 {
        u32::try_from(self.number(name)).unwrap()
    }

    /// The number of the error notifier that the driver set.
    fn notifier(&self) -> Option<u32> {
        let (_, rest) = self.log.split_once("error notifier set to ")?;
        rest.split(' ').next()?.parse().ok()
    }

    fn explain(&self) -> FaultList {
        let mut session = Session::new(ProcessMap::default(), 10);
        session.feed(self.log.as_bytes());
        session.finish("the driver")
    }
}

fn faults(text: &str) -> Vec<Fault<'_>> {
    let mut faults: Vec<Fault<'_>> = Vec::new();
    for line in text.lines() {
        if let Some(line) = line.strip_prefix("F ") {
            let (numbers, comm) = line.split_once(" comm=").unwrap();
            let mut words = numbers.split(' ');
            let (seed, kind) = (words.next().unwrap(), words.next().unwrap());
            let mut facts: BTreeMap<&str, &str> = words.filter_map(|word| word.split_once('=')).collect();
            facts.insert("comm", comm);
            faults.push(Fault { seed, kind, facts, log: String::new() });
        } else if let Some(line) = line.strip_prefix("K ") {
            let fault = faults.last_mut().unwrap();
            fault.log += line;
            fault.log += "\n";
        }
    }
    faults
}

fn check_owner(fault: &Fault<'_>, report: &FaultReport) {
    let Some(notifier) = fault.notifier() else { return };
    let found = report.owners.iter().any(|owner| {
        (owner.channel, owner.notifier, owner.comm.as_deref())
            == (Some(fault.u32("channel")), Some(notifier), Some(fault.facts["comm"]))
    });
    assert!(found, "seed {}: {:?}\n{}", fault.seed, report.owners, fault.log);
}

fn check_sm(fault: &Fault<'_>, report: &FaultReport) {
    let [sm] = &report.sms[..] else { panic!("seed {}: {:?}\n{}", fault.seed, report.sms, fault.log) };
    let place = sm.place.unwrap();
    assert_eq!(
        (place.gpc, place.tpc, place.sm, sm.sm_id),
        (fault.u32("gpc"), fault.u32("tpc"), Some(fault.u32("sm")), Some(fault.u32("sm_id"))),
        "seed {}",
        fault.seed
    );
    assert_eq!(
        (sm.warp_esr.value.0, sm.global_esr.value.0, sm.pc.map(|pc| pc.0)),
        (fault.number("warp"), fault.number("global"), Some(fault.number("pc"))),
        "seed {}",
        fault.seed
    );
    assert_eq!(sm.warp_esr.code, fault.u32("warp") & 0xffff, "seed {}", fault.seed);
}

fn check_mmu(fault: &Fault<'_>, report: &FaultReport) {
    let [mmu] = &report.mmu[..] else { panic!("seed {}: {:?}\n{}", fault.seed, report.mmu, fault.log) };
    let packet: Vec<u64> = fault.facts["packet"].split(',').map(hex).collect();
    assert_eq!(
        mmu.address.map(|a| a.0),
        Some(packet[3] << 32 | packet[2] & 0xffff_f000),
        "seed {}",
        fault.seed
    );
    assert_eq!(
        (mmu.fault_type, mmu.engine_id, mmu.in_gpc),
        (Some(fault.u32("type")), Some(fault.u32("engine")), Some(fault.number("hub") == 0)),
        "seed {}\n{}",
        fault.seed,
        fault.log
    );
    let client = fault.log.split_once("client id:  ").and_then(|(_, rest)| rest.split_once(", gpc id"));
    assert_eq!(mmu.client.as_deref(), client.map(|(name, _)| name), "seed {}", fault.seed);
    if fault.number("hub") == 0 {
        assert_eq!(mmu.gpc, Some(fault.u32("gpc")), "seed {}", fault.seed);
    }
    let group = report.owners.iter().any(|owner| owner.tsg == Some(fault.u32("tsg")));
    assert!(
        group || !fault.log.contains("generated a mmu fault"),
        "seed {}: {:?}",
        fault.seed,
        report.owners
    );
}

/// For all registers and packets of the driver, its lines lead back to them.
#[test]
fn faults_that_the_driver_prints_are_read_as_what_happened() {
    let text = records("NVGPU_ORACLE_FAULTS", include_bytes!("../data/nvgpu-faults.txt.gz"));
    let faults = faults(&text);
    assert!(!faults.is_empty(), "no faults");
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for fault in &faults {
        *counts.entry(fault.kind).or_default() += 1;
        let list = fault.explain();
        if !fault.log.contains("[ERR]") {
            // A method that the driver carries out itself, or a buffer that the firmware has it empty.
            assert!(matches!(fault.kind, "method" | "firmware") && list.found == 0, "seed {}", fault.seed);
            continue;
        }
        assert!(list.found >= 1, "seed {}: nothing found in\n{}", fault.seed, fault.log);
        let report = &list.faults[0];
        check_owner(fault, report);
        match fault.kind {
            "sm" => check_sm(fault, report),
            "mmu" => check_mmu(fault, report),
            "unit" => {
                let code = report.what.code.map(|code| code.0);
                assert_eq!(
                    (report.subject, code),
                    (Subject::FrontEnd, Some(fault.number("esr") & 0x3fff_ffff)),
                    "seed {}\n{}",
                    fault.seed,
                    fault.log
                );
            }
            "pbdma" => assert!(
                matches!(report.subject, Subject::Pushbuffer | Subject::Timeout),
                "seed {}: {:?}\n{}",
                fault.seed,
                report.subject,
                fault.log
            ),
            "pri" => assert_eq!(report.subject, Subject::Register, "seed {}\n{}", fault.seed, fault.log),
            "firmware" => assert!(
                matches!(report.subject, Subject::Firmware | Subject::FrontEnd),
                "seed {}: {:?}\n{}",
                fault.seed,
                report.subject,
                fault.log
            ),
            "method" => assert_eq!(report.subject, Subject::FrontEnd, "seed {}\n{}", fault.seed, fault.log),
            other => panic!("unknown kind `{other}`"),
        }
    }
    println!("{counts:?}");
}
