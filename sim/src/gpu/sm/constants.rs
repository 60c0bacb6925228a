//! Words of constant banks.

use crate::gpu::sm::guest;
use crate::gpu::sm::launch::{Access, ConstBank, Launch, Memory, MemoryFault};

/// Reads an aligned word of guest memory.
pub(crate) fn read_word(memory: &dyn Memory, va: u64, access: Access) -> Result<u32, MemoryFault> {
    let span = memory.translate(va, access)?;
    // SAFETY: `Memory` promises readable memory for the whole span, aligned as the guest address is; other
    // threads only touch it through atomics too.
    Ok(unsafe { guest::load_u32(span.host.as_ptr().add((va - span.va) as usize)) })
}

/// A word of a constant bank; `None` if the bank does not hold it.
pub(crate) fn read_const(memory: &dyn Memory, launch: &Launch, bank: u8, offset: i32) -> Option<u32> {
    let ConstBank { va, len } = (*launch.banks.get(usize::from(bank))?)?;
    let offset = u32::try_from(offset).ok()?;
    if offset.checked_add(4)? > len {
        return None;
    }
    read_word(memory, va + u64::from(offset), Access::Read).ok()
}
