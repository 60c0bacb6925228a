//! The meaning of a code or a name, in all lists of the hardware and the drivers.

use std::io::{self, Write};

use nv_hw::Names;
use nv_hw::fault as lists;
use serde::Serialize;

use crate::catalogue::{Class, notifiers, xids};
use crate::fault::causes::{Known, MMU_FAULTS, WARP_ERRORS};
use crate::fault::sm;
use crate::report::Report;
use crate::report::style::{HEADING, NAME};

/// A code in one list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// The list.
    pub list: &'static str,
    /// The number there; of bits, that of the bit.
    pub number: u32,
    /// The name.
    pub name: String,
    /// Meaning, where it is known.
    pub meaning: Option<String>,
    /// Likely causes, the likeliest first.
    pub causes: Vec<String>,
    /// Remedies.
    pub try_next: Vec<String>,
    /// The likeliest owner, where the code alone tells.
    pub whose: Option<Class>,
    /// Source of the facts.
    pub source: String,
}

/// All that a word can mean.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanations {
    /// The word.
    pub word: String,
    /// Its meanings.
    pub found: Vec<Explained>,
}

/// Lists of names: their own name, their names, whether the numbers are of bits, and what is known of some.
const LISTS: [(&str, Names, &[Known]); 14] = [
    ("warp error (ESR)", lists::warp_esr::NAMES, WARP_ERRORS),
    ("SM error bit (global ESR)", lists::global_esr::NAMES, &[]),
    ("MMU fault", lists::fault_type::TEXTS, MMU_FAULTS),
    ("MMU fault, by the desktop driver", lists::fault_type::XID_TEXTS, MMU_FAULTS),
    ("MMU access", lists::access_type::TEXTS, &[]),
    ("pushbuffer interrupt bit (PBDMA 0)", lists::pbdma_intr_0::NAMES, &[]),
    ("pushbuffer interrupt bit (PBDMA 1)", lists::pbdma_intr_1::NAMES, &[]),
    ("copy engine interrupt bit", lists::ce_intr::NAMES, &[]),
    ("copy engine launch error", lists::ce_launch_error::NAMES, &[]),
    ("front-end exception bit", lists::fe_esr::NAMES, &[]),
    ("macro engine exception bit", lists::mme_esr::NAMES, &[]),
    ("inline data exception bit", lists::memfmt_esr::NAMES, &[]),
    ("class error", lists::class_error::NAMES, &[]),
    ("register error", lists::pri_error::TEXTS, &[]),
];

/// All that a number (`31`, `0x10`) or a name (`OOR_ADDR`, `invalid pte`, a part of one) can mean.
#[must_use]
pub fn explain_word(word: &str) -> Explanations {
    let text = word.trim().to_ascii_lowercase();
    let number = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let fits = |own: u32, name: &str| match number {
        Some(number) => own == number,
        None => text.len() >= 3 && name.to_ascii_lowercase().contains(&text),
    };
    let mut found = Vec::new();
    for (list, names, known) in LISTS {
        for (own, name) in names.iter().filter(|(own, name)| fits(*own, name)) {
            let row = known.iter().find(|row| row.numbers.contains(own));
            let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
            let is_warp = std::ptr::eq(names, lists::warp_esr::NAMES);
            found.push(Explained {
                list,
                number: *own,
                name: (*name).to_owned(),
                meaning: is_warp.then(|| sm::words(*own).to_owned()),
                causes: row.map_or(Vec::new(), |row| owned(row.causes)),
                try_next: row.map_or(Vec::new(), |row| owned(row.tries)),
                whose: is_warp.then_some(Class::Program),
                source: "nv-hw: register headers of nvgpu and the open GPU kernel modules".to_owned(),
            });
        }
    }
    for (list, errors) in [("nvgpu's error notifier", notifiers()), ("Xid of the desktop driver", xids())] {
        let name = |e: &crate::catalogue::Error| e.name.clone().unwrap_or_default();
        found.extend(errors.iter().filter(|e| fits(e.number, &name(e)) || fits(e.number, &e.title)).map(
            |e| Explained {
                list,
                number: e.number,
                name: name(e),
                meaning: Some(format!("{}. {}", e.title, e.meaning)),
                causes: Vec::new(),
                try_next: vec![e.action.clone()],
                whose: Some(e.class),
                source: e.source.clone(),
            },
        ));
    }
    Explanations { word: word.to_owned(), found }
}

impl Report for Explanations {
    const SCHEMA: &'static str = "nvdiag.explain/1";

    fn has_problem(&self) -> bool {
        self.found.is_empty()
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        if self.found.is_empty() {
            writeln!(
                out,
                "no list has {}: give a number (31, 0x1f) or a part of a name (OOR_ADDR)",
                self.word
            )?;
        }
        for e in &self.found {
            writeln!(out, "{HEADING}{} {} ({:#x}): {}{HEADING:#}", e.list, e.number, e.number, e.name)?;
            let mut row = |name: &str, value: &str| writeln!(out, "  {NAME}{name:<14}{NAME:#}{value}");
            e.meaning.iter().try_for_each(|text| row("meaning", text))?;
            e.whose.iter().try_for_each(|class| row("fault of", class.words()))?;
            e.causes.iter().try_for_each(|text| row("cause", text))?;
            e.try_next.iter().try_for_each(|text| row("do", text))?;
        }
        Ok(())
    }
}
