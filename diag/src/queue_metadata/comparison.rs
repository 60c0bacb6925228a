//! Two QMDs, field by field: settings that one program makes and another does not.

use std::io::{self, Write};

use serde::Serialize;

use crate::hex::Hex;
use crate::queue_metadata::description::{Field, Metadata, Unnamed};
use crate::report::Report;
use crate::report::style::{ASIDE, HEADING, NAME};

/// Differences between two QMDs.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// The names of both.
    pub names: [String; 2],
    /// Their layout versions, `3.0` or `4.0`.
    pub versions: [String; 2],
    /// Fields that are not zero and equal in both.
    pub equal: usize,
    /// Fields that differ, in the order of the first one's bits; those that only the second's layout has follow.
    pub differ: Vec<Difference>,
    /// Words with different bits that no field names.
    pub unnamed: Vec<UnnamedDifference>,
}

/// A field that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Name in NVIDIA's header.
    pub name: &'static str,
    /// Element of an array.
    pub index: Option<u8>,
    /// Value in each.
    pub values: [FieldValue; 2],
}

/// Value of a field in a QMD.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FieldValue {
    /// Its value; absent where the layout has no field of this name.
    pub value: Option<u32>,
    /// The name of the value.
    pub name: Option<&'static str>,
}

/// A word with different bits that no field names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UnnamedDifference {
    /// Index of the word.
    pub word: usize,
    /// The bits in each.
    pub values: [Hex; 2],
}

impl Comparison {
    /// Compares `first` with `second`. Fields are the same if their names are, whatever the layouts.
    #[must_use]
    pub fn of(names: [String; 2], first: &Metadata, second: &Metadata) -> Self {
        let both = [first, second];
        let mut keys: Vec<(&'static str, Option<u8>)> = Vec::new();
        for field in both.iter().flat_map(|metadata| &metadata.fields) {
            if !keys.contains(&(field.name, field.index)) {
                keys.push((field.name, field.index));
            }
        }
        let of_first: Vec<_> = order(first);
        keys.sort_by_key(|key| of_first.iter().position(|of| of == key).unwrap_or(usize::MAX));
        let (mut equal, mut differ) = (0, Vec::new());
        for (name, index) in keys {
            let values = both.map(|metadata| FieldValue::in_one(metadata, name, index));
            match values[0].value == values[1].value {
                true => equal += 1,
                false => differ.push(Difference { name, index, values }),
            }
        }
        let bits = |metadata: &Metadata, word| {
            let found = metadata.unnamed.iter().find(|u: &&Unnamed| u.word == word);
            found.map_or(Hex(0), |unnamed| unnamed.value)
        };
        let words = first.size_bytes.max(second.size_bytes) / 4;
        let unnamed = (0..words)
            .map(|word| UnnamedDifference { word, values: both.map(|metadata| bits(metadata, word)) })
            .filter(|unnamed| unnamed.values[0] != unnamed.values[1])
            .collect();
        Self { names, versions: both.map(|metadata| metadata.version.clone()), equal, differ, unnamed }
    }
}

/// The fields that the layout of `metadata` has, zero or not, by bit.
fn order(metadata: &Metadata) -> Vec<(&'static str, Option<u8>)> {
    let mut entries: Vec<_> = metadata.image.entries().collect();
    entries.sort_by_key(|entry| entry.field.lo());
    entries.iter().map(|entry| (entry.field.name(), entry.indexed.then(|| entry.field.index()))).collect()
}

impl FieldValue {
    fn in_one(metadata: &Metadata, name: &str, index: Option<u8>) -> Self {
        let is_it = |field: &Field| field.name == name && field.index == index;
        let field = metadata.image.entries().map(|entry| Field::of(&entry)).find(is_it);
        Self { value: field.as_ref().map(|f| f.value), name: field.and_then(|f| f.value_name) }
    }

    fn text(self) -> String {
        match (self.value, self.name) {
            (None, _) => "no such field".to_owned(),
            (Some(value), None) => format!("{value:#x}"),
            (Some(value), Some(name)) => format!("{name} ({value:#x})"),
        }
    }
}

impl Report for Comparison {
    const SCHEMA: &'static str = "nvdiag.qmd-diff/1";

    fn has_problem(&self) -> bool {
        !self.differ.is_empty() || !self.unnamed.is_empty()
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let [first, second] = &self.names;
        let [of_first, of_second] = &self.versions;
        writeln!(out, "{HEADING}{first} (QMD v{of_first}) and {second} (QMD v{of_second}){HEADING:#}")?;
        let label = |d: &Difference| match d.index {
            Some(index) => format!("{}({index})", d.name),
            None => d.name.to_owned(),
        };
        let width = |texts: &mut dyn Iterator<Item = usize>| texts.max().unwrap_or(0);
        let names = width(&mut self.differ.iter().map(|d| label(d).len()));
        let values = width(&mut self.differ.iter().map(|d| d.values[0].text().len()));
        for difference in &self.differ {
            let [was, is] = difference.values.map(FieldValue::text);
            writeln!(out, "  {NAME}{:<names$}{NAME:#}  {was:<values$}  {is}", label(difference))?;
        }
        for UnnamedDifference { word, values: [was, is] } in &self.unnamed {
            writeln!(out, "  {ASIDE}unnamed bits of word {word}: {was} and {is}{ASIDE:#}")?;
        }
        let differences = match self.differ.len() + self.unnamed.len() {
            0 => "No difference".to_owned(),
            1 => "1 difference".to_owned(),
            count => format!("{count} differences"),
        };
        writeln!(out, "{differences}; {} fields that are not zero are equal", self.equal)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &[u8] = include_bytes!("../../tests/data/ga10b.qmd");

    fn compare(first: &[u8], second: &[u8]) -> Comparison {
        let read = |bytes| Metadata::read(bytes).expect("a QMD");
        Comparison::of(["a".to_owned(), "b".to_owned()], &read(first), &read(second))
    }

    #[test]
    fn a_qmd_does_not_differ_from_itself() {
        let same = compare(GOOD, GOOD);
        assert!(!same.has_problem());
        assert_eq!(same.equal, Metadata::read(GOOD).expect("a QMD").fields.len());
    }

    #[test]
    fn each_changed_field_is_named_with_both_values_and_nothing_else() {
        let mut image = Metadata::read(GOOD).expect("a QMD").image;
        let field = |image: &qmd::Qmd, name| {
            let mut entries = image.entries();
            entries.find(|entry| entry.field.name() == name).expect("it exists")
        };
        let (grid, registers) = (field(&image, "CTA_RASTER_WIDTH"), field(&image, "REGISTER_COUNT_V"));
        image.set(grid.field, grid.value + 1).expect("it fits");
        image.set(registers.field, registers.value ^ 1).expect("it fits");
        let found = compare(GOOD, image.as_bytes());
        let mut differ: Vec<_> = found.differ.iter().map(|d| (d.name, d.values.map(|v| v.value))).collect();
        differ.sort_unstable();
        let expected = [
            ("CTA_RASTER_WIDTH", [Some(grid.value), Some(grid.value + 1)]),
            ("REGISTER_COUNT_V", [Some(registers.value), Some(registers.value ^ 1)]),
        ];
        assert_eq!(differ, expected);
        assert_eq!(found.unnamed, []);
    }

    #[test]
    fn unnamed_bits_and_other_layouts_are_compared() {
        let broken = include_bytes!("../../tests/data/broken.qmd");
        let found = compare(GOOD, broken);
        assert_eq!(
            found.unnamed.iter().map(|u| (u.word, u.values)).collect::<Vec<_>>(),
            [(10, [Hex(0), Hex(0x8000)])]
        );
        let mut hopper = qmd::Qmd::new(qmd::Version::V04).as_bytes().to_vec();
        hopper.resize(qmd::Version::V04.size(), 0);
        let found = compare(GOOD, &hopper);
        assert_eq!(found.versions, ["3.0", "4.0"]);
        let absent = |i: usize| found.differ.iter().any(|d| d.values[i].value.is_none());
        assert!(absent(1), "v4.0 lacks fields that v3.0 has");
        let mut out = Vec::new();
        found.print(&mut out).expect("memory takes everything");
        assert!(String::from_utf8(out).expect("UTF-8").contains("no such field"));
    }
}
