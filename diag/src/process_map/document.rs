//! Maps as JSON documents: `nvdiag.map/1` of one address space, `nvdiag.map/2` of several.

use serde::{Deserialize, Serialize};

use crate::document::{self, Bounds};
use crate::process_map::code::Module;
use crate::process_map::host::HostRange;
use crate::process_map::map::{Error, Process, ProcessMap, Space};

/// Schemas whose documents hold maps.
const KNOWN: [&str; 5] =
    ["nvdiag.map/1", "nvdiag.map/2", "nvdiag.vamap/1", "nvdiag.vamap/2", "nvdiag.info/1"];

/// Most of a map: some hundred thousand mappings.
pub const BOUNDS: Bounds = Bounds { bytes: 64 << 20, values: 1 << 22 };

/// A map as a JSON document.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Document {
    /// Its schema.
    pub schema: Option<String>,
    /// Process of the map.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<Process>,
    /// Programs, of any address space.
    #[serde(default)]
    pub modules: Vec<Module>,
    /// The address space, where there is one.
    #[serde(flatten)]
    pub space: Space,
    /// The address spaces, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub spaces: Vec<Space>,
    /// CPU mappings of the process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<HostRange>,
}

impl From<Document> for ProcessMap {
    fn from(document: Document) -> Self {
        let mut map = Self::default();
        map.add(document);
        map
    }
}

impl ProcessMap {
    /// Reads a map document and adds its contents.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Schema`], [`Error::Nothing`], [`Error::Processes`].
    pub fn add_json(&mut self, bytes: &[u8]) -> Result<(), Error> {
        let file: Document = document::read(bytes, BOUNDS)?;
        if file == Document::default() {
            return Err(Error::Nothing);
        }
        if let Some(schema) = file.schema.as_ref().filter(|s| !KNOWN.contains(&s.as_str())) {
            return Err(Error::Schema { schema: schema.clone() });
        }
        if let (Some(Process { pid }), Some(other)) = (file.process, self.pid)
            && pid != other
        {
            return Err(Error::Processes { pid, other });
        }
        self.add(file);
        Ok(())
    }

    fn add(&mut self, document: Document) {
        let Document { process, modules, space, spaces, host, .. } = document;
        self.pid = process.map(|p| p.pid).or(self.pid);
        self.windows.extend(space.windows);
        self.mappings.extend(space.mappings);
        self.regions.extend(space.regions);
        self.reservations.extend(space.reservations);
        for space in &spaces {
            for window in &space.windows {
                if !self.windows.contains(window) {
                    self.windows.push(window.clone());
                }
            }
            self.mappings.extend(space.mappings.iter().cloned());
        }
        self.spaces.extend(spaces);
        self.modules.extend(modules);
        self.host.extend(host);
        self.mappings.sort_by_key(|m| m.va);
    }

    /// The map as a document. Of several address spaces it holds each.
    #[must_use]
    pub fn document(&self) -> Document {
        let (schema, space) = match self.spaces.len() {
            0 => ("nvdiag.map/1", self.all()),
            _ => ("nvdiag.map/2", Space::default()),
        };
        Document {
            schema: Some(schema.to_owned()),
            process: self.pid.map(|pid| Process { pid }),
            modules: self.modules.clone(),
            space,
            spaces: self.spaces.clone(),
            host: self.host.clone(),
        }
    }

    /// Everything as one address space.
    pub(crate) fn all(&self) -> Space {
        Space {
            windows: self.windows.clone(),
            mappings: self.mappings.clone(),
            regions: self.regions.clone(),
            reservations: self.reservations.clone(),
        }
    }
}
