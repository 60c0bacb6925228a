//! The program's mappings of buffers.

use crate::driver::dmabuf::DmaBuf;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One mapping.
#[derive(Clone, Debug)]
pub(crate) struct Mapping {
    /// Bytes.
    pub(crate) len: usize,
    /// Its start in the buffer.
    pub(crate) offset: u64,
    /// The mapped buffer; the mapping keeps its memory.
    pub(crate) buffer: Arc<DmaBuf>,
}

/// The mappings, by address.
#[derive(Debug, Default)]
pub(crate) struct Mappings(Mutex<BTreeMap<usize, Mapping>>);

impl Mappings {
    fn table(&self) -> MutexGuard<'_, BTreeMap<usize, Mapping>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// There is a new one.
    pub(crate) fn add(&self, address: usize, mapping: Mapping) {
        self.table().insert(address, mapping);
    }

    /// The mapping at an address is gone; returns it.
    pub(crate) fn remove(&self, address: usize) -> Option<Mapping> {
        self.table().remove(&address)
    }

    /// The one that holds an address, and how many bytes into it the address lies.
    pub(crate) fn find(&self, address: usize) -> Option<(usize, Mapping)> {
        let table = self.table();
        let (start, mapping) = table.range(..=address).next_back()?;
        (address - start < mapping.len).then(|| (address - start, mapping.clone()))
    }
}
