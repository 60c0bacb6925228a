//! Address maps from documents: what `hcq` and `nvdiag vamap --json` write.

use crate::address_map::spaces::AddressMaps;
use crate::address_map::{Mapping, Parts, READ_AND_WRITE, READ_ONLY, Window};
use crate::process_map::map::Space;
use crate::process_map::map::{self, Process, ProcessMap, UNNAMED};

impl AddressMaps {
    /// The address spaces that a process's map documents describe; programs are no part of them. Windows that
    /// were given beside the documents are in each.
    #[must_use]
    pub fn of_documents(source: &str, documents: &ProcessMap) -> Self {
        let process = documents.pid.map(|pid| Process { pid });
        let spaces = match &documents.spaces[..] {
            [] => vec![parts(&documents.all())],
            spaces => spaces.iter().map(|space| with_windows(space, documents)).collect(),
        };
        let shared =
            Parts { source: source.to_owned(), process, host: documents.host.clone(), ..Parts::default() };
        Self::new(shared, spaces)
    }
}

fn with_windows(space: &Space, documents: &ProcessMap) -> Parts {
    let mut parts = parts(space);
    if parts.windows.is_empty() {
        parts.windows = documents.windows.iter().map(window).collect();
    }
    parts
}

fn window(window: &map::Window) -> Window {
    Window { name: window.name.clone(), base: window.base, size_bytes: window.size_bytes }
}

fn mapping(m: &map::Mapping) -> Mapping {
    let permission = match m.read_only {
        Some(true) => Some(READ_ONLY),
        Some(false) => Some(READ_AND_WRITE),
        None => None,
    };
    let mut flags = m.flags.clone();
    flags.extend(permission.filter(|word| !m.flags.iter().any(|f| f == word)).map(str::to_owned));
    Mapping {
        va: m.va,
        size_bytes: m.size_bytes,
        name: Some(m.what.clone()).filter(|what| what != UNNAMED),
        page_bytes: m.page_bytes,
        kind: m.kind,
        flags,
        physical: m.physical,
    }
}

fn parts(space: &Space) -> Parts {
    Parts {
        regions: space.regions.clone(),
        windows: space.windows.iter().map(window).collect(),
        reservations: space.reservations.clone(),
        mappings: space.mappings.iter().map(mapping).collect(),
        ..Parts::default()
    }
}
