//! The place of an address among mappings and windows.

use serde::Serialize;

use crate::hex::Hex;
use crate::process_map::host::HostRange;
use crate::process_map::map::{Mapping, ProcessMap};
use crate::size::size;

/// The place of an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Whereabouts {
    /// The address.
    pub address: Hex,
    /// The window that contains it.
    pub window: Option<String>,
    /// The mapping that contains it.
    pub mapping: Option<Mapping>,
    /// The nearest mapping, if none contains it.
    pub nearest: Option<Mapping>,
    /// From the nearest mapping's end (positive, 1 is the first byte after it) or its start (negative) to the
    /// address.
    pub distance_bytes: Option<i64>,
    /// CPU mapping of the process at that address, if the GPU has none there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<HostRange>,
    /// The same in words.
    pub words: String,
}

impl ProcessMap {
    /// The place of an address, if anything is known about the address space. `page` means that only the page
    /// of the address is known.
    #[must_use]
    pub fn locate(&self, va: u64, page: bool) -> Option<Whereabouts> {
        let host = self.host.iter().find(|range| range.contains(va)).cloned();
        if self.mappings.is_empty() && self.windows.is_empty() && host.is_none() {
            return None;
        }
        let window = self.window_at(va).map(|w| w.name.clone());
        let mapping =
            self.mappings.iter().find(|m| m.contains(va) || page && m.contains(va | 0xfff)).cloned();
        let gap = |m: &Mapping| match va >= m.va.0 {
            true => (va - m.end().min(va)).saturating_add(1),
            false => m.va.0 - va,
        };
        let distance = |m: &Mapping| {
            let gap = i64::try_from(gap(m)).unwrap_or(i64::MAX);
            if va >= m.va.0 { gap } else { -gap }
        };
        let nearest = self.mappings.iter().min_by_key(|m| gap(m));
        let (nearest, distance) = match mapping {
            Some(_) => (None, None),
            None => (nearest.cloned(), nearest.map(distance)),
        };
        let about = if page { "the page of the address" } else { "the address" };
        let mut words = match (&mapping, &nearest, distance) {
            (Some(m), ..) => format!(
                "{about} lies {:#x} bytes into the {} of {} at {}",
                va.saturating_sub(m.va.0),
                m.what,
                size(m.size_bytes),
                m.va
            ),
            (None, Some(m), Some(d)) if d > 0 => {
                format!(
                    "{about} lies {} past the end of the {} of {} at {}",
                    bytes(d),
                    m.what,
                    size(m.size_bytes),
                    m.va
                )
            }
            (None, Some(m), Some(d)) => {
                format!(
                    "{about} lies {} before the {} of {} at {}",
                    bytes(d),
                    m.what,
                    size(m.size_bytes),
                    m.va
                )
            }
            _ => "nothing is mapped".to_owned(),
        };
        let host = host.filter(|_| mapping.is_none());
        if let Some(host) = &host {
            words = format!(
                "{about} is a host address, in the process's own {}: the GPU has no mapping there",
                host.words()
            );
        }
        if let Some(window) = &window {
            words += &format!("; it is inside the {window} window");
        }
        words += &self.in_spaces(va, mapping.as_ref());
        Some(Whereabouts {
            address: Hex(va),
            window,
            mapping,
            nearest,
            distance_bytes: distance,
            host,
            words,
        })
    }
}

impl ProcessMap {
    /// Where a process has several address spaces: which of them has `mapping` at an address, and what the
    /// others have there.
    fn in_spaces(&self, va: u64, mapping: Option<&Mapping>) -> String {
        let (count, Some(mapping)) = (self.spaces.len(), mapping) else { return String::new() };
        let (mut held, mut others) = (Vec::new(), String::new());
        for (space, number) in self.spaces.iter().zip(1..) {
            match space.mappings.iter().find(|m| *m == mapping || m.contains(va)) {
                Some(same) if same == mapping => held.push(number.to_string()),
                Some(other) => others += &format!("; {number} has the {} there", other.what),
                None => others += &format!("; {number} has nothing there"),
            }
        }
        match (held.is_empty(), others.is_empty()) {
            (false, false) => format!(" in address space {} of {count}{others}", held.join(", ")),
            _ => String::new(),
        }
    }
}

fn bytes(distance: i64) -> String {
    match distance.unsigned_abs() {
        n if n >= 1 << 20 => size(n),
        1 => "1 byte".to_owned(),
        n => format!("{n} bytes"),
    }
}
