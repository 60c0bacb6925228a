//! Address maps from documents: what `hcq` and `nvdiag vamap --json` write.

use crate::address_map::{AddressMap, Mapping, Parts, READ_AND_WRITE, READ_ONLY, Window};
use crate::process_map::map::{self, Process, ProcessMap, UNNAMED};

impl AddressMap {
    /// The address space that a process's map documents describe; programs are no part of it.
    #[must_use]
    pub fn of_documents(source: String, documents: &ProcessMap) -> Self {
        let mapping = |m: &map::Mapping| {
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
        };
        let window =
            |w: &map::Window| Window { name: w.name.clone(), base: w.base, size_bytes: w.size_bytes };
        Self::new(Parts {
            source,
            process: documents.pid.map(|pid| Process { pid }),
            regions: documents.regions.clone(),
            windows: documents.windows.iter().map(window).collect(),
            reservations: documents.reservations.clone(),
            mappings: documents.mappings.iter().map(mapping).collect(),
            host: documents.host.clone(),
            ..Parts::default()
        })
    }
}
