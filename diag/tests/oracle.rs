//! Decoding against the driver's own code: page tables that it wrote.
//!
//! The records are those of `tools/nvgpu-oracle`; `NVGPU_ORACLE_IMAGES` names another file of its `images`.

use std::collections::BTreeMap;
use std::io::Read;

use nvdiag::page_table::{Aperture, kind_name, walk};

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

/// What one page of virtual addresses leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mapped {
    page_bytes: u64,
    /// Physical address; `None` for sparse.
    address: Option<u64>,
    coherent: bool,
    kind: u8,
    flags: Vec<String>,
}

/// An image: memory, and what was asked of the driver, by 4 KiB page.
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
        let flags = names.iter().filter(|(c, _)| letters.contains(*c)).map(|(_, name)| (*name).to_owned()).collect();
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

    /// What the walker finds, by page, and what it complains of.
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

/// Whatever the driver writes into page tables, the walker reads what was asked of the driver.
#[test]
fn page_tables_of_the_driver_are_read_as_they_were_meant() {
    let text = records("NVGPU_ORACLE_IMAGES", include_bytes!("data/nvgpu-page-tables.txt.gz"));
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
                (kind_name(mapped.kind).is_none() || mapped.kind == 7) && text == format!("kind {:#04x} is none", mapped.kind)
            });
            assert!(of_a_kind, "seed {seed}: {text}");
        }
    }
    println!("{} images, {pages} pages of 4 KiB, {big} of them in pages of 64 KiB", images.len());
}
