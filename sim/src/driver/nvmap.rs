//! nvmap: handles to buffers.

use crate::driver::descriptor::FileKey;
use crate::driver::dmabuf::DmaBuf;
use std::collections::HashMap;
use std::sync::Arc;

/// First handle number.
const FIRST: u32 = 0x8000_0000;

/// The handles of the process (one client, however often the node is opened).
#[derive(Debug, Default)]
pub(crate) struct Handles {
    by_number: HashMap<u32, Arc<DmaBuf>>,
    by_buffer: HashMap<FileKey, u32>,
    last: u32,
    /// Buffers that stay, whatever is freed.
    lost: Vec<Arc<DmaBuf>>,
}

impl Handles {
    /// A new handle of a buffer.
    pub(crate) fn add(&mut self, buffer: Arc<DmaBuf>) -> u32 {
        let number = FIRST | self.last.wrapping_add(1) & 0x7fff_ffff;
        self.last = number & 0x7fff_ffff;
        *self.by_buffer.entry(buffer.key()).or_default() += 1;
        self.by_number.insert(number, buffer);
        number
    }

    /// The buffer of a handle.
    pub(crate) fn get(&self, number: u32) -> Option<&Arc<DmaBuf>> {
        self.by_number.get(&number)
    }

    /// The driver loses a reference to a buffer.
    pub(crate) fn lose(&mut self, buffer: Arc<DmaBuf>) {
        self.lost.push(buffer);
    }

    /// Drops a handle; false when there is none of this number.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let Some(buffer) = self.by_number.remove(&number) else { return false };
        if let Some(count) = self.by_buffer.get_mut(&buffer.key()) {
            *count -= 1;
            if *count == 0 {
                self.by_buffer.remove(&buffer.key());
                buffer.drop_descriptor();
            }
        }
        true
    }

    /// Drops all handles: the last open of the node is gone.
    pub(crate) fn clear(&mut self) {
        let numbers: Vec<u32> = self.by_number.keys().copied().collect();
        for number in numbers {
            self.remove(number);
        }
    }
}
