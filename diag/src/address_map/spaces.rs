//! The address spaces of one process. Each is a map of its own: equal addresses of two mean different memory.

use std::io::{self, Write};

use serde::Serialize;

use crate::address_map::{AddressMap, BufferObject, Parts};
use crate::process_map::host::HostRange;
use crate::process_map::map::Process;
use crate::report::Report;

/// The address spaces of a process.
#[derive(Clone, Debug, Serialize)]
pub struct AddressMaps {
    /// Owner, and where the maps were read.
    pub source: String,
    /// The process, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// The address spaces: at least one.
    pub spaces: Vec<AddressMap>,
    /// Buffers the process holds, mapped or not. Those of a single address space are in its map.
    pub buffers: Vec<BufferObject>,
    /// CPU mappings of the process; likewise.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostRange>,
}

impl From<AddressMap> for AddressMaps {
    fn from(map: AddressMap) -> Self {
        let (source, process) = (map.source.clone(), map.process);
        Self { source, process, spaces: vec![map], buffers: Vec::new(), host: Vec::new() }
    }
}

impl AddressMaps {
    /// Sorts, sums up and judges each of `spaces`. Source, process, buffers and CPU mappings of all are those of
    /// `shared`.
    #[must_use]
    pub fn new(shared: Parts, mut spaces: Vec<Parts>) -> Self {
        let Parts { source, process, buffers, host, .. } = shared;
        if spaces.len() < 2 {
            let space = spaces.pop().unwrap_or_default();
            return AddressMap::new(Parts { source, process, buffers, host, ..space }).into();
        }
        let count = spaces.len();
        let numbered = spaces.into_iter().zip(1..).map(|(space, number)| {
            AddressMap::new(Parts { source: source.clone(), number: Some((number, count)), process, ..space })
        });
        Self { spaces: numbered.collect(), source, process, buffers, host }
    }

    /// The only address space, if there is one alone.
    #[must_use]
    pub fn only(&self) -> Option<&AddressMap> {
        match &self.spaces[..] {
            [map] => Some(map),
            _ => None,
        }
    }
}

/// The document of one address space is `nvdiag.vamap/1`; that of several `nvdiag.vamap/2`.
impl Report for AddressMaps {
    const SCHEMA: &'static str = "nvdiag.vamap/2";

    fn has_problem(&self) -> bool {
        self.spaces.iter().any(Report::has_problem)
    }

    fn print(&self, out: &mut dyn Write) -> io::Result<()> {
        for (index, map) in self.spaces.iter().enumerate() {
            if index > 0 {
                writeln!(out)?;
            }
            map.print(out)?;
        }
        AddressMap::print_buffers(&self.buffers, out)
    }

    fn json(&self) -> serde_json::Result<serde_json::Value> {
        match self.only() {
            Some(map) => map.json(),
            None => serde_json::to_value(crate::report::document(self)),
        }
    }

    fn print_json(&self, out: &mut dyn Write) -> io::Result<()> {
        match self.only() {
            Some(map) => map.print_json(out),
            None => {
                serde_json::to_writer_pretty(&mut *out, &crate::report::document(self))?;
                writeln!(out)
            }
        }
    }
}
