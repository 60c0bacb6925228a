//! Two address maps, range by range: what came, what went, what changed.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde::Serialize;

use crate::address_map::{AddressMap, Mapping, Window};
use crate::hex::Hex;
use crate::process_map::map::Range;
use crate::report::style::{HEADING, NAME};
use crate::report::{Report, counted};
use crate::size::size;

/// Differences between two address maps.
#[derive(Clone, Debug, Serialize)]
pub struct MapDifference {
    /// Names of the two maps.
    pub names: [String; 2],
    /// Mappings, windows, reservations and regions that are the same in both.
    pub equal: usize,
    /// Differences, by address.
    pub changes: Vec<Change>,
    /// Mapped bytes of each.
    pub mapped_bytes: [u64; 2],
}

/// Object of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    /// A mapping.
    Mapping,
    /// A window.
    Window,
    /// A range taken out of the driver's allocator.
    Reservation,
    /// A range that addresses are given out from.
    Region,
}

/// Kind of difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// Only the second map has it.
    Came,
    /// Only the first map has it.
    Went,
    /// Both have it, at different addresses: the only one of its name and size in each.
    Moved,
    /// Both have one at this address, with other attributes.
    Changed,
}

/// Something that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// The kind of difference.
    pub how: How,
    /// The object.
    pub subject: Subject,
    /// Its address in the first map, if that has it, and in the second.
    pub va: [Option<Hex>; 2],
    /// Its length in each.
    pub size_bytes: [Option<u64>; 2],
    /// Its name in each.
    pub name: [Option<String>; 2],
    /// Changed attributes, besides name and length.
    pub attributes: Vec<String>,
}

/// A mapping, window, reservation or region, as far as it is compared.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Item {
    subject: Subject,
    va: u64,
    size_bytes: u64,
    name: Option<String>,
    /// Names and values.
    attributes: Vec<(&'static str, String)>,
}

impl Item {
    fn of_mapping(m: &Mapping) -> Self {
        let or_unknown = |value: Option<String>| value.unwrap_or_else(|| "not known".to_owned());
        let flags = if m.flags.is_empty() { "none".to_owned() } else { m.flags.join(", ") };
        let attributes = vec![
            ("pages", or_unknown(m.page_bytes.map(size))),
            ("kind", or_unknown(m.kind.map(|kind| kind.to_string()))),
            ("flags", flags),
            ("physical address", or_unknown(m.physical.map(|at| at.to_string()))),
        ];
        let (va, size_bytes, name) = (m.va.0, m.size_bytes, m.name.clone());
        Self { subject: Subject::Mapping, va, size_bytes, name, attributes }
    }

    fn of_window(w: &Window) -> Self {
        let (va, size_bytes, name) = (w.base.0, w.size_bytes, Some(w.name.clone()));
        Self { subject: Subject::Window, va, size_bytes, name, attributes: Vec::new() }
    }

    fn of_range(subject: Subject, r: &Range) -> Self {
        let pages = r.page_bytes.map_or("not known".to_owned(), size);
        let (va, size_bytes, name) = (r.va.0, r.size_bytes, Some(r.name.clone()));
        Self { subject, va, size_bytes, name, attributes: vec![("pages", pages)] }
    }

    fn all(map: &AddressMap) -> Vec<Self> {
        let mappings = map.mappings.iter().map(Self::of_mapping);
        let reservations = map.reservations.iter().map(|r| Self::of_range(Subject::Reservation, r));
        let regions = map.regions.iter().map(|r| Self::of_range(Subject::Region, r));
        mappings.chain(map.windows.iter().map(Self::of_window)).chain(reservations).chain(regions).collect()
    }
}

impl Change {
    fn of(how: How, was: Option<&Item>, is: Option<&Item>) -> Self {
        let both = [was, is];
        let differs = |(before, after): (&(&'static str, String), &(&'static str, String))| {
            (before != after).then(|| format!("{} {} to {}", before.0, before.1, after.1))
        };
        let attributes = match (was, is) {
            (Some(was), Some(is)) => was.attributes.iter().zip(&is.attributes).filter_map(differs).collect(),
            _ => Vec::new(),
        };
        Self {
            how,
            subject: was.or(is).map_or(Subject::Mapping, |item| item.subject),
            va: both.map(|item| item.map(|item| Hex(item.va))),
            size_bytes: both.map(|item| item.map(|item| item.size_bytes)),
            name: both.map(|item| item.and_then(|item| item.name.clone())),
            attributes,
        }
    }

    /// The address that it is listed at: that in the second map, else in the first.
    fn at(&self) -> Hex {
        self.va[1].or(self.va[0]).unwrap_or_default()
    }

    /// Returns the change in words.
    fn words(&self) -> String {
        let mut words = Vec::new();
        if let (Some(was), Some(is), true) = (self.va[0], self.va[1], self.how == How::Moved) {
            words.push(format!("from {was} to {is}"));
        }
        if let (Some(was), Some(is)) = (self.size_bytes[0], self.size_bytes[1])
            && was != is
        {
            words.push(match (size(was), size(is)) {
                // Lengths that round to the same.
                (before, after) if before == after => format!("{was} bytes to {is} bytes"),
                (before, after) => format!("{before} to {after}"),
            });
        }
        let quoted = |name: &Option<String>| name.as_ref().map_or("no name".to_owned(), |n| format!("{n:?}"));
        if self.how == How::Changed && self.name[0] != self.name[1] {
            words.push(format!("{} to {}", quoted(&self.name[0]), quoted(&self.name[1])));
        }
        words.extend(self.attributes.iter().cloned());
        words.join(", ")
    }
}

impl MapDifference {
    /// Compares `first` with `second`. Mappings that begin at one address are the same in both; where several
    /// mappings begin at one, they are matched in the order of their sizes.
    #[must_use]
    pub fn of(names: [String; 2], first: &AddressMap, second: &AddressMap) -> Self {
        let items = [Item::all(first), Item::all(second)];
        let mut places: BTreeMap<(u64, Subject), [Vec<&Item>; 2]> = BTreeMap::new();
        for (side, items) in items.iter().enumerate() {
            for item in items {
                places.entry((item.va, item.subject)).or_default()[side].push(item);
            }
        }
        let (mut equal, mut changes) = (0, Vec::new());
        let (mut went, mut came) = (Vec::new(), Vec::new());
        for [mut before, mut after] in places.into_values() {
            // Items that are in both need no partner among the others.
            before.retain(|item| match after.iter().position(|other| other == item) {
                Some(at) => {
                    after.remove(at);
                    equal += 1;
                    false
                }
                None => true,
            });
            let pairs = before.len().min(after.len());
            let changed =
                before.iter().zip(&after).map(|(was, is)| Change::of(How::Changed, Some(was), Some(is)));
            changes.extend(changed);
            went.extend(before.drain(pairs..));
            came.extend(after.drain(pairs..));
        }
        moves(&mut went, &mut came, &mut changes);
        changes.extend(went.iter().map(|item| Change::of(How::Went, Some(item), None)));
        changes.extend(came.iter().map(|item| Change::of(How::Came, None, Some(item))));
        changes.sort_by_key(|change| (change.at(), change.subject));
        let mapped_bytes = [first.totals.mapped_bytes, second.totals.mapped_bytes];
        Self { names, equal, changes, mapped_bytes }
    }
}

/// Takes out of both lists the items with a name and a length that nothing else in them has.
fn moves(went: &mut Vec<&Item>, came: &mut Vec<&Item>, changes: &mut Vec<Change>) {
    type Key<'a> = (Subject, &'a str, u64);
    let mut keys: BTreeMap<Key<'_>, [Vec<&Item>; 2]> = BTreeMap::new();
    for (side, items) in [&*went, &*came].into_iter().enumerate() {
        for &item in items {
            if let Some(name) = &item.name {
                keys.entry((item.subject, name, item.size_bytes)).or_default()[side].push(item);
            }
        }
    }
    let pairs: BTreeMap<Key<'_>, Change> = keys
        .into_iter()
        .filter_map(|(key, sides)| match (&sides[0][..], &sides[1][..]) {
            ([was], [is]) => Some((key, Change::of(How::Moved, Some(was), Some(is)))),
            _ => None,
        })
        .collect();
    let stays = |item: &&Item| {
        item.name.as_ref().is_none_or(|n| !pairs.contains_key(&(item.subject, n, item.size_bytes)))
    };
    went.retain(stays);
    came.retain(stays);
    changes.extend(pairs.into_values());
}

impl Report for MapDifference {
    const SCHEMA: &'static str = "nvdiag.vamap-diff/1";

    fn has_problem(&self) -> bool {
        !self.changes.is_empty()
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        let [first, second] = &self.names;
        writeln!(out, "{HEADING}{first} and {second}{HEADING:#}")?;
        for change in &self.changes {
            let how = match change.how {
                How::Came => "came",
                How::Went => "went",
                How::Moved => "moved",
                How::Changed => "changed",
            };
            let what = match change.subject {
                Subject::Mapping => "mapping",
                Subject::Window => "window",
                Subject::Reservation => "reserved",
                Subject::Region => "region",
            };
            let len = size(change.size_bytes[1].or(change.size_bytes[0]).unwrap_or(0));
            let name = change.name[1].as_ref().or(change.name[0].as_ref());
            let name = name.map_or(String::new(), |name| format!("  {name:?}"));
            let words = change.words();
            let words = if words.is_empty() { words } else { format!("  {words}") };
            let at = change.at();
            writeln!(out, "  {NAME}{how:<8}{NAME:#} {what:<8} {at:<14} {len:>10}{name}{words}")?;
        }
        let [was, is] = self.mapped_bytes;
        let count = |how| self.changes.iter().filter(|change| change.how == how).count();
        writeln!(
            out,
            "  {} came, {} went, {} moved, {} changed, {} equal; mapped {} and {}",
            count(How::Came),
            count(How::Went),
            count(How::Moved),
            count(How::Changed),
            counted(self.equal as u64, "range"),
            size(was),
            size(is)
        )
    }
}
