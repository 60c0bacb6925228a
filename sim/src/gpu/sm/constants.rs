//! Words of constant banks.

use crate::gpu::sm::guest;
use crate::gpu::sm::launch::{Access, ConstBank, Launch, Memory, MemoryFault, Span};

/// Reads an aligned word of guest memory.
pub(crate) fn read_word(memory: &dyn Memory, va: u64, access: Access) -> Result<u32, MemoryFault> {
    let span = memory.translate(va, access)?;
    // SAFETY: `Memory` promises readable memory for the whole span, aligned as the guest address is; other
    // threads only touch it through atomics too.
    Ok(unsafe { guest::load_u32(span.host.as_ptr().add((va - span.va) as usize)) })
}

/// The constant banks of a launch.
pub(crate) struct Banks<'a> {
    memory: &'a dyn Memory,
    launch: &'a Launch,
    /// The last translation: a bank lies in one page, or a few.
    span: Option<Span>,
}

impl<'a> Banks<'a> {
    pub fn new(memory: &'a dyn Memory, launch: &'a Launch) -> Self {
        Banks { memory, launch, span: None }
    }

    /// An aligned word; `None` if the bank does not hold it.
    pub fn word(&mut self, bank: u8, offset: i32) -> Option<u32> {
        let ConstBank { va, len } = (*self.launch.banks.get(usize::from(bank))?)?;
        let offset = u32::try_from(offset).ok()?;
        if offset.checked_add(4)? > len {
            return None;
        }
        let va = va + u64::from(offset);
        let covers = |s: &Span| va >= s.va && va - s.va + 4 <= s.len;
        let span = match self.span.filter(covers) {
            Some(span) => span,
            None => *self.span.insert(self.memory.translate(va, Access::Read).ok()?),
        };
        // SAFETY: as in `read_word`.
        Some(unsafe { guest::load_u32(span.host.as_ptr().add((va - span.va) as usize)) })
    }
}
