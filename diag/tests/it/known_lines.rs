//! The table of known lines: every format is found again in a line printed with it, and every line has a
//! meaning.

use std::collections::BTreeMap;
use std::io::Read;

use nvdiag::known_lines::{Kind, Level, Line, Piece, Table};

/// A generator of numbers; xorshift, so that a failure repeats.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn pick<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[(self.next() % of.len() as u64) as usize]
    }

    /// A value as the kernel prints it; of one word where the text behind does not mark its end.
    fn value(&mut self, kind: Kind, one_word: bool) -> String {
        let number = self.next() >> (self.next() % 60);
        match kind {
            Kind::Decimal if self.next().is_multiple_of(4) => (number as i32).to_string(),
            Kind::Decimal => number.to_string(),
            Kind::Hex if self.next().is_multiple_of(2) => format!("{:08x}", number as u32),
            Kind::Hex => format!("{number:x}"),
            Kind::Pointer => self.pick(&["0", "(null)", "(____ptrval____)", "0xffffff8012345678"]).to_owned(),
            Kind::Text if one_word => self.pick(&["gr0", "tsg", "gpc", "as_3"]).to_owned(),
            Kind::Text => self
                .pick(&["gr0", "tsg", "gpc", "invalid pte", "ro page, write", "virt read", "as_3"])
                .to_owned(),
            Kind::Character => self.pick(&["R", "W"]).to_owned(),
            Kind::Symbol => "gk20a_wait+0x10/0x40 [nvgpu]".to_owned(),
            Kind::Prefixed | Kind::Number => unreachable!("no format of the table has them"),
        }
    }

    /// A line of a log printed with a format, and its values.
    fn print(&mut self, line: &Line) -> (String, Vec<String>) {
        let mut values = Vec::new();
        let mut message = String::new();
        for (at, piece) in line.pieces.iter().enumerate() {
            // Other drivers' messages have no frame that marks their start.
            let framed = line.driver == "nvgpu" || at > 0;
            let one_word = match line.pieces.get(at + 1).filter(|_| framed) {
                Some(Piece::Literal(text)) => !text.contains(|c: char| !c.is_whitespace()),
                Some(Piece::Value(..)) => true,
                None => !framed,
            };
            match piece {
                Piece::Literal(text) => message.push_str(text),
                Piece::Value(kind, _) => {
                    values.push(self.value(*kind, one_word));
                    message.push_str(values.last().expect("pushed"));
                }
            }
        }
        let function = line.sites.first().map_or("", |site| &site.function);
        let seconds = self.next() % 9000;
        let frame = match (line.driver.as_str(), line.level) {
            ("nvgpu", Level::Dump) => "__ga10b__ ".to_owned(),
            ("nvgpu", level) => {
                let level = match level {
                    Level::Warning => "WRN",
                    Level::Info => "INFO",
                    Level::Error | Level::Dump => "ERR",
                };
                format!("nvgpu: 17000000.gpu {function:>33}:{:<4} [{level}]  ", self.next() % 2000)
            }
            ("nvrm", _) => "NVRM: ".to_owned(),
            (driver, _) => format!("{driver} "),
        };
        (format!("[{seconds:5}.{:06}] {frame}{message}", self.next() % 1_000_000), values)
    }
}

/// A format without the names of its values: the facts that a line has.
fn shape(line: &Line) -> Vec<(Option<&str>, Option<Kind>)> {
    let part = |piece: &'_ Piece| match piece {
        Piece::Literal(_) => None,
        Piece::Value(kind, _) => Some(*kind),
    };
    fn literal(piece: &Piece) -> Option<&str> {
        match piece {
            Piece::Literal(text) => Some(text),
            Piece::Value(..) => None,
        }
    }
    line.pieces.iter().map(|piece| (literal(piece), part(piece))).collect()
}

#[test]
fn every_line_has_a_meaning() {
    let table = Table::built_in();
    for line in table.lines() {
        assert!(
            line.meaning.len() > 12 && line.meaning.ends_with(['.', ')']),
            "{}: {:?}",
            line.text,
            line.meaning
        );
        assert!(!line.meaning.contains(['{', '}', '%']), "{}: {:?}", line.text, line.meaning);
        assert!(
            !line.unit.is_empty() && !line.engine.is_empty() && !line.releases.is_empty(),
            "{}",
            line.text
        );
        assert!(!table.advice(&line.advice).is_empty(), "{}: no advice {:?}", line.text, line.advice);
        assert!(!line.pieces.is_empty(), "{}", line.text);
    }
}

#[test]
fn every_format_is_found_in_a_line_printed_with_it() {
    let table = Table::built_in();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut wrong = Vec::new();
    let mut bare = 0;
    for line in table.lines() {
        // Parts of lines of the dump: nothing in them identifies it.
        let letters =
            |piece: &Piece| matches!(piece, Piece::Literal(text) if text.contains(char::is_alphanumeric));
        if line.level == Level::Dump && !line.pieces.iter().any(letters) {
            bare += 1;
            continue;
        }
        for _ in 0..4 {
            let (text, values) = random.print(line);
            let Some(known) = table.find(&text) else {
                wrong.push(format!("not found: {text}\n  of {:?}", line.text));
                break;
            };
            if shape(known.line) != shape(line) {
                wrong.push(format!("{text}\n  is  {:?}\n  not {:?}", known.line.text, line.text));
                break;
            }
            let found: Vec<&String> = known.values.iter().map(|(_, value)| value).collect();
            if !known.complete || found != values.iter().collect::<Vec<_>>() {
                wrong.push(format!("{text}\n  {found:?}\n  not {values:?}"));
                break;
            }
        }
    }
    assert!(bare < 12, "{bare} formats of the dump are skipped");
    assert!(
        wrong.is_empty(),
        "{} of {}:\n{}",
        wrong.len(),
        table.lines().len(),
        wrong[..wrong.len().min(40)].join("\n")
    );
}

/// The formats of errors in files of r36 whose path starts so: how many texts, how many of them explained by hand.
fn coverage(path: &str) -> (usize, usize) {
    let lines = Table::built_in().lines().iter().filter(|line| {
        let r36 = |site: &nvdiag::known_lines::Site| {
            site.file.starts_with(path) && site.releases.iter().any(|release| release == "r36")
        };
        line.driver == "nvgpu" && line.level == Level::Error && line.sites.iter().any(r36)
    });
    let mut texts: BTreeMap<&str, bool> = BTreeMap::new();
    for line in lines {
        *texts.entry(&line.text).or_insert(true) &= line.by_hand;
    }
    (texts.len(), texts.values().filter(|by_hand| **by_hand).count())
}

/// Errors that stop a GPU are explained by hand; the rest of the driver by its wording at least. The counts
/// are those of L4T r36.4.3: a table made from a tree that was read in part has fewer.
#[test]
fn every_error_path_of_the_driver_is_covered() {
    for (path, formats, by_hand) in [
        ("hal/gr/intr/", 82, 82),
        ("hal/ltc/intr/", 16, 15),
        ("hal/fifo/mmu_fault_gk20a.c", 11, 10),
        ("hal/mc/mc_intr_ga10b", 10, 10),
        ("hal/mm/mmu_fault/", 10, 10),
        ("hal/priv_ring/", 35, 35),
        ("hal/fb/", 47, 47),
        ("hal/ce/", 10, 10),
        ("hal/bus/", 10, 10),
        ("hal/fifo/", 77, 75),
        ("common/acr/", 40, 39),
        ("common/pmu/", 363, 339),
        ("common/rc/", 12, 10),
        ("common/fifo/", 128, 78),
        ("common/gr/", 150, 103),
        ("common/mm/", 60, 55),
        ("os/linux/", 430, 251),
        ("", 2271, 1785),
    ] {
        let found = coverage(path);
        assert!(found.0 >= formats && found.1 >= by_hand, "{path}: {found:?}, not ({formats}, {by_hand})");
        println!("| `{path}` | {} | {} |", found.0, found.1);
    }
    let mut releases: BTreeMap<&str, usize> = BTreeMap::new();
    for line in Table::built_in().lines().iter().filter(|line| line.driver == "nvgpu") {
        for release in &line.releases {
            *releases.entry(release).or_default() += 1;
        }
    }
    println!("{releases:?}");
    for (release, least) in [("r28", 900), ("r32", 1400), ("r35", 2400), ("r36", 2600)] {
        assert!(releases[release] >= least, "{release}: {}", releases[release]);
    }
}

/// Lines that the driver's own code printed when it was run as an oracle.
#[test]
fn lines_that_the_driver_printed_are_known_by_their_function() {
    let mut text = String::new();
    let packed = &include_bytes!("../data/nvgpu-faults.txt.gz")[..];
    flate2::read::GzDecoder::new(packed).read_to_string(&mut text).expect("a text");
    let table = Table::built_in();
    let (mut count, mut wrong) = (0, Vec::new());
    for line in text.lines().filter_map(|line| line.strip_prefix("K ")).filter(|line| line.contains("[ERR]"))
    {
        count += 1;
        match table.find(line) {
            Some(known) if known.function_agrees => {}
            known => wrong.push(format!("{line}\n  {:?}", known.map(|known| &known.line.text))),
        }
    }
    assert!(count > 5000, "{count} lines");
    wrong.truncate(20);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
