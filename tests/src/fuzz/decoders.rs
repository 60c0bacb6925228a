//! Decoders of what the GPU reads: instructions, launch descriptors, commands.

use std::time::Duration;

use nvdiag::Report;
use nvdiag::pushbuffer::{Decoder, Generation};
use nvdiag::queue_metadata::Metadata;
use rand::Rng;
use rand::rngs::StdRng;
use sass::{Arch, Listing, Word, decode};

use crate::fuzz::corpus;
use crate::fuzz::mutate::{awkward, damage, pick};
use crate::fuzz::target::{Case, Target};

/// Instructions.
pub(crate) const SASS: Target = Target {
    name: "sass",
    about: "words of code, random or with bits of compiled ones flipped: decoded, printed, asked for targets",
    bound: Duration::from_secs(5),
    start: sass,
};

/// Launch descriptors.
pub(crate) const QMD: Target = Target {
    name: "qmd",
    about: "damaged launch descriptors: decoded, checked, printed",
    bound: Duration::from_secs(5),
    start: qmd,
};

/// Commands.
pub(crate) const PUSHBUFFER: Target = Target {
    name: "pushbuffer",
    about: "commands and GPFIFO entries, well-formed or not: decoded, printed",
    bound: Duration::from_secs(5),
    start: pushbuffer,
};

const ARCHS: [Arch; 5] = [Arch::Sm80, Arch::Sm86, Arch::Sm87, Arch::Sm89, Arch::Sm90];

/// Prints a report in both forms.
pub(crate) fn print(report: &impl Report) {
    let mut out = Vec::new();
    report.print(&mut out).expect("memory takes everything");
    report.print_json(&mut out).expect("every report is JSON");
}

fn sass() -> Case {
    let code = corpus::code();
    Box::new(move |rng: &mut StdRng| {
        let arch = *pick(rng, &ARCHS);
        let kernel = pick(rng, &code);
        let mut word = *pick(rng, &kernel.words);
        match rng.random_range(0..8) {
            0 => word = rng.random(),
            1 => word = word & !0xfff | u128::from(rng.random_range(0..0x1000u32)),
            _ => (0..rng.random_range(1..6)).for_each(|_| word ^= 1 << rng.random_range(0..128)),
        }
        let pc = awkward(rng);
        match decode(arch, Word(word)) {
            Ok(instruction) => {
                assert_eq!(instruction.word, Word(word));
                assert!(!instruction.text(pc).is_empty());
                let control = instruction.control().to_string();
                let _ = (instruction.branch_target(pc), instruction.memory_access(), control);
            }
            Err(error) => assert!(error.to_string().contains(&Word(word).to_string()), "{error}"),
        }
        if rng.random_ratio(1, 64) {
            let mut bytes: Vec<u8> = word.to_le_bytes().repeat(3);
            bytes.truncate(rng.random_range(0..=48));
            let lines: Vec<String> = Listing::new(arch, &bytes, pc).map(|line| line.to_string()).collect();
            assert_eq!(lines.len(), bytes.len() / 16);
        }
    })
}

/// Descriptors as files hold them.
const DESCRIPTORS: [&[u8]; 2] = [
    include_bytes!("../../../diag/tests/data/ga10b.qmd"),
    include_bytes!("../../../diag/tests/data/broken.qmd"),
];

fn qmd() -> Case {
    Box::new(|rng: &mut StdRng| {
        let mut bytes = pick(rng, &DESCRIPTORS).to_vec();
        if rng.random_ratio(1, 4) {
            bytes.resize(rng.random_range(0..600), 0);
            rng.fill(&mut bytes[..]);
        }
        let whole = bytes.len();
        damage(rng, &mut bytes, whole, 24);
        let version = *pick(rng, &[qmd::Version::V03, qmd::Version::V04]);
        let any = qmd::Qmd::from_bytes_as(version, &bytes).map(Metadata::of);
        for report in [Metadata::read(&bytes), any].into_iter().flatten() {
            print(&report);
        }
    })
}

/// A word of a pushbuffer that is a header of a real method often enough to get far.
fn command(rng: &mut StdRng) -> u32 {
    let method = *pick(rng, &[0x5c, 0x6c, 0x78, 0x180, 0x188, 0x1b0, 0x2b4, 0x2c0, 0x300, 0x400, 0x418]);
    let method = if rng.random_ratio(1, 3) { rng.random_range(0..0x4000) } else { method };
    let count = rng.random_range(0..8);
    match rng.random_range(0..5) {
        0 => rng.random(),
        1 => rng.random_range(0..0x100),
        2 => awkward(rng) as u32,
        _ => rng.random_range(0..8) << 29 | count << 16 | rng.random_range(0..8) << 13 | method >> 2,
    }
}

fn pushbuffer() -> Case {
    Box::new(|rng: &mut StdRng| {
        let generation = *pick(rng, &[Generation::Ampere, Generation::Hopper]);
        let mut decoder = Decoder::new(generation);
        if rng.random_ratio(1, 4) {
            let class = *pick(rng, &[0xc7c0, 0xcbc0, 0xc7b5, 0xc8b5, 0xa140, 0xc797, 0]);
            decoder = decoder.bind(rng.random_range(0..9), class);
        }
        let mut bytes: Vec<u8> = Vec::new();
        for _ in 0..rng.random_range(0..128) {
            bytes.extend(command(rng).to_le_bytes());
        }
        bytes.extend(vec![0x55; rng.random_range(0..4)]);
        if rng.random_ratio(1, 2) {
            let address = rng.random_ratio(1, 2).then(|| awkward(rng));
            decoder.segment(address, &bytes);
            decoder.segment(None, &bytes);
        } else {
            let mut ring: Vec<u8> = Vec::new();
            for _ in 0..rng.random_range(0..8) {
                let entry = awkward(rng) & !3 | u64::from(rng.random::<u8>()) << 42;
                ring.extend(entry.to_le_bytes());
            }
            ring.extend(vec![1; rng.random_range(0..8)]);
            decoder.gpfifo(&ring, |address, len| {
                (address & 8 == 0).then(|| &bytes[..bytes.len().min(len as usize)])
            });
        }
        print(&decoder.finish());
    })
}
